//! What an application expects of a worker of its queue.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stargate_queue::State;
use stargate_queue::store::JobFilter;
use stargate_testkit::eventually;

use crate::stage::{PATIENCE, QUEUE, Stage, on_both_stores};

on_both_stores!(
    a_job_is_run_and_its_result_is_its_output,
    priority_then_age_decides,
    a_delayed_job_waits_for_its_time,
    a_job_that_fails_twice_is_run_three_times_and_completed,
    a_job_whose_retries_are_used_up_fails_with_its_output_and_is_dead_lettered,
    an_error_that_is_not_worth_a_retry_fails_at_once,
    a_payload_that_cannot_be_kept_fails_at_once,
    a_job_cancelled_in_pg_boss_is_stopped_here,
    a_job_cancelled_here_is_cancelled_in_pg_boss,
    a_failed_job_that_is_retried_in_pg_boss_runs_again,
    a_job_longer_than_its_expiry_runs_once,
    what_would_expire_soon_is_kept,
);

fn names(runs: &[Value]) -> Vec<&str> {
    runs.iter().filter_map(|data| data["name"].as_str()).collect()
}

async fn a_job_is_run_and_its_result_is_its_output(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let worker = stage.worker().await;
    let id = stage.boss.send(QUEUE, json!({ "name": "one" }), json!({})).await.unwrap();
    let job = stage.until(&id, "completed").await;
    assert_eq!(job["output"], json!({ "did": "one" }), "{job}");
    assert_eq!(job["retryCount"], 0, "{job}");
    stage.all_settled().await;
    worker.stop().await;
    assert_eq!(names(&stage.script.runs()), ["one"]);
}

async fn priority_then_age_decides(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let mut ids = Vec::new();
    for (name, priority) in [("low", -5), ("first", 0), ("second", 0), ("high", 70), ("highest", 123_456)] {
        let options = json!({ "priority": priority });
        ids.push(stage.boss.send(QUEUE, json!({ "name": name }), options).await.unwrap());
    }
    let worker = stage.worker_with(Arc::new(stage.source()), 1).await;
    for id in &ids {
        stage.until(id, "completed").await;
    }
    worker.stop().await;
    assert_eq!(names(&stage.script.runs())[..2], ["highest", "high"], "{:?}", stage.script.runs());
    assert_eq!(stage.script.runs().len(), 5);
}

async fn a_delayed_job_waits_for_its_time(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let worker = stage.worker().await;
    let id = stage.boss.send(QUEUE, json!({ "name": "later" }), json!({ "startAfter": 2 })).await.unwrap();
    let job = stage.until(&id, "completed").await;
    worker.stop().await;
    let time = |field: &str| job[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(time("startedOn") >= time("startAfter"), "{job}");
    assert_eq!(stage.script.runs_of("later"), 1);
}

async fn a_job_that_fails_twice_is_run_three_times_and_completed(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let worker = stage.worker().await;
    let options = json!({ "retryLimit": 5, "retryDelay": 1 });
    let id = stage.boss.send(QUEUE, json!({ "name": "stubborn", "fail": 2 }), options).await.unwrap();
    let job = stage.until(&id, "completed").await;
    stage.all_settled().await;
    worker.stop().await;
    assert_eq!(stage.script.runs_of("stubborn"), 3);
    assert_eq!((&job["retryCount"], &job["retryLimit"]), (&json!(2), &json!(5)), "{job}");
    let time = |field: &str| job[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let took = time("completedOn").duration_since(time("startedOn"));
    assert!(took.as_secs_f64() >= 2.0, "two delays of a second were asked for, it took {took:?}: {job}");
}

async fn a_job_whose_retries_are_used_up_fails_with_its_output_and_is_dead_lettered(stage: &Stage) {
    stage.boss.create_queue("dead", json!({})).await;
    stage.boss.create_queue(QUEUE, json!({ "deadLetter": "dead" })).await;
    let worker = stage.worker().await;
    let options = json!({ "retryLimit": 2, "retryDelay": 0 });
    let data = json!({ "name": "hopeless", "fail": 99 });
    let id = stage.boss.send(QUEUE, data.clone(), options).await.unwrap();
    let job = stage.until(&id, "failed").await;
    stage.all_settled().await;
    worker.stop().await;
    assert_eq!(stage.script.runs_of("hopeless"), 3);
    assert_eq!(job["retryCount"], 2, "{job}");
    assert_eq!(
        (&job["output"]["code"], &job["output"]["attempts"]),
        (&json!("RETRIES_EXHAUSTED"), &json!(3))
    );
    assert!(job["output"]["message"].as_str().unwrap().contains("attempt 3 fails"), "{job}");
    let dead = stage.boss.jobs("dead").await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((&dead[0]["data"], &dead[0]["sourceId"]), (&data, &json!(id)));
    assert_eq!((&dead[0]["sourceName"], &dead[0]["sourceRetryCount"]), (&json!(QUEUE), &json!(2)));
    assert_eq!(dead[0]["sourceOutput"], job["output"]);
}

async fn an_error_that_is_not_worth_a_retry_fails_at_once(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let worker = stage.worker().await;
    let options = json!({ "retryLimit": 5 });
    let id = stage.boss.send(QUEUE, json!({ "name": "poison", "invalid": true }), options).await.unwrap();
    let job = stage.until(&id, "failed").await;
    worker.stop().await;
    assert_eq!(stage.script.runs_of("poison"), 1);
    assert_eq!(job["output"]["class"], "ValidationFailure", "{job}");
    assert_eq!(job["output"]["code"], "VALIDATION_FAILED", "{job}");
}

async fn a_payload_that_cannot_be_kept_fails_at_once(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let worker = stage.worker().await;
    let large = json!({ "name": "large", "text": "x".repeat(1 << 20) });
    let large = stage.boss.send(QUEUE, large, json!({ "priority": 9 })).await.unwrap();
    let small = stage.boss.send(QUEUE, json!({ "name": "small" }), json!({})).await.unwrap();
    let job = stage.until(&large, "failed").await;
    assert_eq!(job["output"]["code"], "PAYLOAD_TOO_LARGE", "{}", job["output"]);
    stage.until(&small, "completed").await;
    worker.stop().await;
    assert_eq!(names(&stage.script.runs()), ["small"]);
}

async fn a_job_cancelled_in_pg_boss_is_stopped_here(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let worker = stage.worker_with(Arc::new(stage.source()), 1).await;
    let id = stage.boss.send(QUEUE, json!({ "name": "runs", "wait": true }), json!({})).await.unwrap();
    stage.script.has_begun("runs", 1).await;
    let waits = stage.boss.send(QUEUE, json!({ "name": "waits", "wait": true }), json!({})).await.unwrap();
    stage.until(&waits, "active").await;
    stage.boss.call("cancel", json!([QUEUE, [id, waits]])).await;
    stage.all_settled().await;
    let next = stage.boss.send(QUEUE, json!({ "name": "next" }), json!({})).await.unwrap();
    stage.until(&next, "completed").await;
    worker.stop().await;
    assert_eq!(stage.boss.job(QUEUE, &id).await["state"], "cancelled");
    assert_eq!(names(&stage.script.runs()), ["runs", "next"], "what waited never began");
    let filter = JobFilter { states: vec![State::Cancelled], ..JobFilter::default() };
    assert_eq!(stage.store.jobs(filter).await.unwrap().len(), 2);
}

async fn a_job_cancelled_here_is_cancelled_in_pg_boss(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let worker = stage.worker().await;
    let id = stage.boss.send(QUEUE, json!({ "name": "runs", "wait": true }), json!({})).await.unwrap();
    stage.script.has_begun("runs", 1).await;
    let jobs = stage.store.jobs(JobFilter::default()).await.unwrap();
    stage.store.cancel(jobs[0].id).await.unwrap();
    stage.until(&id, "cancelled").await;
    stage.all_settled().await;
    worker.stop().await;
    assert_eq!(stage.script.runs_of("runs"), 1);
}

async fn a_failed_job_that_is_retried_in_pg_boss_runs_again(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let worker = stage.worker().await;
    let options = json!({ "retryLimit": 0 });
    let id = stage.boss.send(QUEUE, json!({ "name": "again", "fail": 1 }), options).await.unwrap();
    stage.until(&id, "failed").await;
    stage.boss.call("retry", json!([QUEUE, id])).await;
    eventually(PATIENCE, "another run", || async {
        let job = stage.boss.job(QUEUE, &id).await;
        if job["retryCount"] == 1 && job["state"] == "failed" { Ok(()) } else { Err(job.to_string()) }
    })
    .await;
    worker.stop().await;
    assert_eq!(stage.script.runs_of("again"), 2);
}

async fn a_job_longer_than_its_expiry_runs_once(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let worker = stage.worker().await;
    // Without retries: once given up by pg-boss it would be failed for good.
    let options = json!({ "expireInSeconds": 1, "retryLimit": 0 });
    let id = stage.boss.send(QUEUE, json!({ "name": "long", "millis": 5000 }), options).await.unwrap();
    let job = stage.until(&id, "completed").await;
    worker.stop().await;
    assert_eq!(stage.script.runs_of("long"), 1);
    assert_eq!((&job["retryCount"], &job["expireInSeconds"]), (&json!(0), &json!(1)), "{job}");
    let time = |field: &str| job[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let took = time("completedOn").duration_since(time("startedOn"));
    assert!(took.as_secs_f64() > Duration::from_secs(4).as_secs_f64(), "its start is the true one: {job}");
}

async fn what_would_expire_soon_is_kept(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let worker = stage.worker().await;
    let options = json!({ "expireInSeconds": 60, "retryLimit": 0 });
    let id = stage.boss.send(QUEUE, json!({ "name": "kept", "wait": true }), options).await.unwrap();
    stage.script.has_begun("kept", 1).await;
    let client = stage.database.client().await;
    let soon = "update pgboss.job set expire_seconds = ceil(extract(epoch from now() - started_on)) + 5";
    client.batch_execute(soon).await.unwrap();
    let left = "select extract(epoch from started_on + expire_seconds * interval '1 second' - now())::float8 from pgboss.job";
    eventually(PATIENCE, "the expiry to be put off", || async {
        let left: f64 = client.query_one(left, &[]).await.unwrap().get(0);
        if left > 50.0 { Ok(()) } else { Err(format!("{left} s left")) }
    })
    .await;
    stage.script.go.notify_waiters();
    let job = stage.until(&id, "completed").await;
    worker.stop().await;
    assert_eq!(job["expireInSeconds"], 60, "what the application asked for: {job}");
}
