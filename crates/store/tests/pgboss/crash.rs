//! Whatever dies between the two sides, a job is run and ended once.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use serde_json::json;
use stargate_queue::State;
use stargate_queue::store::JobFilter;
use stargate_testkit::eventually;

use crate::stage::{Break, Broken, PATIENCE, QUEUE, Stage, on_both_stores};

on_both_stores!(
    a_worker_killed_in_mid_job_loses_nothing,
    workers_killed_again_and_again_lose_nothing,
    a_death_before_the_acknowledgement_leads_to_one_execution,
    a_death_after_the_acknowledgement_leads_to_one_execution,
    a_job_that_another_worker_got_before_the_acknowledgement_is_not_run_here,
    a_job_changed_before_it_was_acknowledged_runs_as_it_is_now,
    a_death_before_the_end_is_written_leads_to_no_second_execution,
    a_death_after_the_end_is_written_changes_nothing,
    an_end_that_pg_boss_gave_up_waiting_for_is_written_all_the_same,
    a_job_that_pg_boss_gave_up_is_taken_back,
    a_job_that_pg_boss_gave_to_another_worker_is_not_run_again_here,
    an_end_waits_for_a_database_that_is_away,
    an_attempt_does_not_begin_while_nobody_can_say_whose_the_job_is,
    a_competing_worker_and_ours_run_every_job_once,
    two_of_our_processes_run_every_job_once,
);

async fn jobs(stage: &Stage) -> Vec<(State, u16)> {
    let jobs = stage.store.jobs(JobFilter::default()).await.unwrap();
    jobs.iter().map(|job| (job.state, job.attempt_count)).collect()
}

async fn a_worker_killed_in_mid_job_loses_nothing(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let first = stage.mortal(Arc::new(stage.source())).await;
    let data = json!({ "name": "survivor", "wait": true });
    let id = stage.boss.send(QUEUE, data, json!({ "retryLimit": 2 })).await.unwrap();
    stage.script.has_begun("survivor", 1).await;
    first.kill();
    let second = stage.worker().await;
    stage.script.has_begun("survivor", 2).await;
    assert_eq!(stage.boss.job(QUEUE, &id).await["state"], "active");
    stage.script.go.notify_waiters();
    let job = stage.until(&id, "completed").await;
    stage.all_settled().await;
    second.stop().await;
    assert_eq!(job["retryCount"], 1, "{job}");
    assert_eq!(jobs(stage).await, [(State::Done, 2)]);
}

async fn workers_killed_again_and_again_lose_nothing(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let mut ids = Vec::new();
    for n in 0..30 {
        let data = json!({ "name": format!("job {n}"), "millis": 50 });
        ids.push(stage.boss.send(QUEUE, data, json!({ "retryLimit": 20 })).await.unwrap());
    }
    for life in 1..=4 {
        let worker = stage.mortal(Arc::new(stage.source())).await;
        let before = stage.script.runs().len();
        eventually(PATIENCE, "some jobs to begin", || async {
            let runs = stage.script.runs().len();
            if runs >= before + life * 2 { Ok(()) } else { Err(format!("{runs} runs")) }
        })
        .await;
        worker.kill();
    }
    let worker = stage.worker().await;
    for id in &ids {
        stage.until(id, "completed").await;
    }
    stage.all_settled().await;
    worker.stop().await;
    let states = jobs(stage).await;
    assert_eq!(states.len(), 30, "one job for each: {states:?}");
    assert!(states.iter().all(|(state, _)| *state == State::Done), "{states:?}");
}

async fn a_death_before_the_acknowledgement_leads_to_one_execution(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let id = stage.boss.send(QUEUE, json!({ "name": "one" }), json!({})).await.unwrap();
    let dying = Broken { inner: stage.source(), at: Break::Acknowledging };
    stage.intake(Arc::new(dying)).await.run_once().await.unwrap_err();
    assert_eq!(stage.boss.job(QUEUE, &id).await["state"], "created");
    assert_eq!(jobs(stage).await, [(State::Queued, 0)], "accepted, and waits for the acknowledgement");
    is_run_once(stage, &id).await;
}

/// A worker comes, and the job `one` is run once and completed on both sides.
async fn is_run_once(stage: &Stage, id: &str) {
    let worker = stage.worker().await;
    stage.until(id, "completed").await;
    stage.all_settled().await;
    worker.stop().await;
    assert_eq!(stage.script.runs_of("one"), 1);
    assert_eq!(jobs(stage).await, [(State::Done, 1)]);
}

async fn a_death_after_the_acknowledgement_leads_to_one_execution(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let id = stage.boss.send(QUEUE, json!({ "name": "one" }), json!({})).await.unwrap();
    let dying = Broken { inner: stage.source(), at: Break::Acknowledged };
    let intake = stage.intake(Arc::new(dying)).await;
    intake.run_once().await.unwrap_err();
    assert_eq!(stage.boss.job(QUEUE, &id).await["state"], "active");
    assert_eq!(jobs(stage).await, [(State::Queued, 0)]);
    is_run_once(stage, &id).await;
}

async fn a_job_that_another_worker_got_before_the_acknowledgement_is_not_run_here(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let id = stage.boss.send(QUEUE, json!({ "name": "theirs" }), json!({})).await.unwrap();
    let dying = Broken { inner: stage.source(), at: Break::Acknowledging };
    stage.intake(Arc::new(dying)).await.run_once().await.unwrap_err();
    let fetched = stage.boss.call("fetch", json!([QUEUE])).await;
    assert_eq!(fetched[0]["id"], json!(id));
    let worker = stage.worker().await;
    stage.all_settled().await;
    assert_eq!(stage.boss.job(QUEUE, &id).await["state"], "active", "it is theirs");
    stage.boss.call("complete", json!([QUEUE, id, { "by": "them" }])).await;
    worker.stop().await;
    assert_eq!(stage.boss.job(QUEUE, &id).await["output"], json!({ "by": "them" }));
    assert_eq!(stage.script.runs_of("theirs"), 0);
    assert_eq!(jobs(stage).await, [(State::Cancelled, 0)]);
}

async fn a_job_changed_before_it_was_acknowledged_runs_as_it_is_now(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let id = stage.boss.send(QUEUE, json!({ "name": "old" }), json!({})).await.unwrap();
    let dying = Broken { inner: stage.source(), at: Break::Acknowledging };
    stage.intake(Arc::new(dying)).await.run_once().await.unwrap_err();
    let client = stage.database.client().await;
    let change = "update pgboss.job set data = '{\"name\": \"new\"}', priority = 7";
    client.batch_execute(change).await.unwrap();
    let worker = stage.worker().await;
    stage.until(&id, "completed").await;
    worker.stop().await;
    assert_eq!((stage.script.runs_of("old"), stage.script.runs_of("new")), (0, 1));
    assert_eq!(stage.store.jobs(JobFilter::default()).await.unwrap()[0].priority, 7);
}

async fn a_death_before_the_end_is_written_leads_to_no_second_execution(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let id = stage.boss.send(QUEUE, json!({ "name": "done" }), json!({})).await.unwrap();
    let first = stage.mortal(Arc::new(Broken { inner: stage.source(), at: Break::Settling })).await;
    eventually(PATIENCE, "the job to be done here", || async {
        let jobs = jobs(stage).await;
        if jobs == [(State::Done, 1)] { Ok(()) } else { Err(format!("{jobs:?}")) }
    })
    .await;
    first.kill();
    assert_eq!(stage.boss.job(QUEUE, &id).await["state"], "active");
    let second = stage.worker().await;
    let job = stage.until(&id, "completed").await;
    stage.all_settled().await;
    second.stop().await;
    assert_eq!(job["output"], json!({ "did": "done" }));
    assert_eq!(stage.script.runs_of("done"), 1);
}

async fn a_death_after_the_end_is_written_changes_nothing(stage: &Stage) {
    stage.boss.create_queue("dead", json!({})).await;
    stage.boss.create_queue(QUEUE, json!({ "deadLetter": "dead" })).await;
    let done = stage.boss.send(QUEUE, json!({ "name": "done" }), json!({})).await.unwrap();
    let data = json!({ "name": "bad", "invalid": true });
    let bad = stage.boss.send(QUEUE, data, json!({})).await.unwrap();
    let first = stage.mortal(Arc::new(Broken { inner: stage.source(), at: Break::Settled })).await;
    // The first that ends is written again and again, and the other waits behind it.
    eventually(PATIENCE, "both jobs to end here", || async {
        let jobs = jobs(stage).await;
        if jobs.len() == 2 && jobs.iter().all(|(state, _)| state.is_finished()) {
            Ok(())
        } else {
            Err(format!("{jobs:?}"))
        }
    })
    .await;
    first.kill();
    let second = stage.worker().await;
    stage.until(&done, "completed").await;
    stage.until(&bad, "failed").await;
    stage.all_settled().await;
    second.stop().await;
    assert_eq!((stage.script.runs_of("done"), stage.script.runs_of("bad")), (1, 1));
    assert_eq!(stage.boss.jobs("dead").await.len(), 1, "one copy of what failed");
}

async fn an_end_that_pg_boss_gave_up_waiting_for_is_written_all_the_same(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let options = json!({ "retryLimit": 3, "retryDelay": 3600 });
    let id = stage.boss.send(QUEUE, json!({ "name": "done" }), options).await.unwrap();
    let first = stage.mortal(Arc::new(Broken { inner: stage.source(), at: Break::Settling })).await;
    eventually(PATIENCE, "the job to be done here", || async {
        let jobs = jobs(stage).await;
        if jobs == [(State::Done, 1)] { Ok(()) } else { Err(format!("{jobs:?}")) }
    })
    .await;
    first.kill();
    stage.given_up().await;
    stage.until(&id, "retry").await;
    let second = stage.worker().await;
    let job = stage.until(&id, "completed").await;
    stage.all_settled().await;
    second.stop().await;
    assert_eq!(job["output"], json!({ "did": "done" }), "{job}");
    assert_eq!(stage.script.runs_of("done"), 1);
}

async fn a_job_that_pg_boss_gave_up_is_taken_back(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let options = json!({ "retryLimit": 3, "retryDelay": 3600 });
    let data = json!({ "name": "back", "wait": true });
    let id = stage.boss.send(QUEUE, data, options).await.unwrap();
    let first = stage.mortal(Arc::new(stage.source())).await;
    stage.script.has_begun("back", 1).await;
    first.kill();
    stage.given_up().await;
    stage.until(&id, "retry").await;
    let second = stage.worker().await;
    stage.script.has_begun("back", 2).await;
    stage.until(&id, "active").await;
    stage.script.go.notify_waiters();
    stage.until(&id, "completed").await;
    stage.all_settled().await;
    second.stop().await;
    assert_eq!(jobs(stage).await, [(State::Done, 2)]);
}

async fn a_job_that_pg_boss_gave_to_another_worker_is_not_run_again_here(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let options = json!({ "retryLimit": 3, "retryDelay": 0 });
    let data = json!({ "name": "away", "wait": true });
    let id = stage.boss.send(QUEUE, data, options).await.unwrap();
    let first = stage.mortal(Arc::new(stage.source())).await;
    stage.script.has_begun("away", 1).await;
    first.kill();
    stage.given_up().await;
    stage.until(&id, "retry").await;
    let client = stage.database.client().await;
    client.batch_execute("update pgboss.job set expire_seconds = 3600").await.unwrap();
    let fetched = stage.boss.call("fetch", json!([QUEUE])).await;
    assert_eq!(fetched[0]["id"], json!(id));
    let second = stage.worker().await;
    stage.all_settled().await;
    stage.boss.call("complete", json!([QUEUE, id, { "by": "them" }])).await;
    second.stop().await;
    let job = stage.boss.job(QUEUE, &id).await;
    assert_eq!((&job["state"], &job["output"]), (&json!("completed"), &json!({ "by": "them" })), "{job}");
    assert_eq!(stage.script.runs_of("away"), 1);
    assert_eq!(jobs(stage).await[0].0, State::Cancelled);
}

async fn an_end_waits_for_a_database_that_is_away(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let (proxy, source) = stage.proxied().await;
    let worker = stage.worker_with(Arc::new(source), 4).await;
    let id = stage.boss.send(QUEUE, json!({ "name": "done", "wait": true }), json!({})).await.unwrap();
    stage.script.has_begun("done", 1).await;
    proxy.stall();
    stage.script.go.notify_waiters();
    eventually(PATIENCE, "the job to be done here", || async {
        let jobs = jobs(stage).await;
        if jobs == [(State::Done, 1)] { Ok(()) } else { Err(format!("{jobs:?}")) }
    })
    .await;
    assert_eq!(stage.boss.job(QUEUE, &id).await["state"], "active");
    // The old connections stay dead without a word; only new ones get through.
    proxy.forget();
    stage.until(&id, "completed").await;
    stage.all_settled().await;
    worker.stop().await;
    assert_eq!(stage.script.runs_of("done"), 1);
}

async fn a_competing_worker_and_ours_run_every_job_once(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let mut ids = Vec::new();
    for n in 0..60 {
        let data = json!({ "name": format!("job {n}"), "millis": 40 });
        ids.push((n, stage.boss.send(QUEUE, data, json!({})).await.unwrap()));
    }
    stage.boss.call("compete", json!([QUEUE, 10])).await;
    let worker = stage.worker().await;
    for (_, id) in &ids {
        stage.until(id, "completed").await;
    }
    stage.all_settled().await;
    worker.stop().await;
    let theirs = stage.boss.call("ran", json!([])).await;
    for (n, id) in &ids {
        let here = stage.script.runs_of(&format!("job {n}"));
        let there = theirs.as_array().unwrap().iter().filter(|ran| *ran == id).count();
        assert_eq!(here + there, 1, "job {n} ran {here} times here and {there} times there");
    }
}

async fn an_attempt_does_not_begin_while_nobody_can_say_whose_the_job_is(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let options = json!({ "retryLimit": 1 });
    let id = stage.boss.send(QUEUE, json!({ "name": "asked", "wait": true }), options).await.unwrap();
    let first = stage.mortal(Arc::new(stage.source())).await;
    stage.script.has_begun("asked", 1).await;
    first.kill();
    let (proxy, source) = stage.proxied().await;
    proxy.stall();
    let second = stage.worker_with(Arc::new(source), 4).await;
    let claims = Mutex::new(HashSet::new());
    eventually(PATIENCE, "the job to be claimed and given back a few times", || async {
        let jobs = stage.store.jobs(JobFilter::default()).await.unwrap();
        assert!(jobs[0].attempt_count <= 2, "what did not begin does not count: {jobs:?}");
        let mut claims = claims.lock().unwrap();
        claims.insert(jobs[0].started_at);
        if claims.len() >= 4 { Ok(()) } else { Err(format!("{jobs:?}")) }
    })
    .await;
    assert_eq!(stage.script.runs_of("asked"), 1, "nothing ran while nobody could be asked");
    proxy.forget();
    stage.script.has_begun("asked", 2).await;
    stage.script.go.notify_waiters();
    stage.until(&id, "completed").await;
    stage.all_settled().await;
    second.stop().await;
    assert_eq!(jobs(stage).await, [(State::Done, 2)]);
}

async fn two_of_our_processes_run_every_job_once(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let mut ids = Vec::new();
    for n in 0..60 {
        let data = json!({ "name": format!("job {n}"), "millis": 20 });
        ids.push(stage.boss.send(QUEUE, data, json!({ "expireInSeconds": 1 })).await.unwrap());
    }
    let one = stage.worker().await;
    let other = stage.mortal(Arc::new(stage.source())).await;
    for id in &ids {
        stage.until(id, "completed").await;
    }
    stage.all_settled().await;
    one.stop().await;
    other.kill();
    assert_eq!(stage.script.runs().len(), 60, "{:?}", stage.script.runs());
    let states = jobs(stage).await;
    assert!(states.len() == 50 && states.iter().all(|job| *job == (State::Done, 1)), "{states:?}");
}
