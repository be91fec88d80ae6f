//! The rules of pg-boss's queues hold for what is run here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use stargate_queue::Result;
use stargate_queue::intake::{Accept, Answer, Claim, Ending, Offer, Settled, Source, Standing, Taken};
use stargate_store::pgboss::PgBoss;
use stargate_testkit::boss::Boss;
use stargate_testkit::eventually;

use crate::stage::{PATIENCE, QUEUE, Stage, on_both_stores};

on_both_stores!(
    a_singleton_key_is_sent_once_in_its_time,
    a_singleton_queue_has_one_active_job_for_each_key,
    a_stately_queue_has_one_job_in_each_state,
    an_exclusive_queue_has_one_job,
    a_strict_order_holds_for_each_key,
    a_job_with_a_heartbeat_is_kept_alive,
    a_job_that_waits_for_another_is_run_after_it,
    a_queue_with_its_own_table_is_served,
    a_job_whose_place_another_takes_meanwhile_is_left_alone,
);

/// Waits until so many jobs of a queue are completed.
async fn completed(stage: &Stage, count: usize) {
    eventually(PATIENCE, &format!("{count} completed jobs"), || async {
        let jobs = stage.boss.jobs(QUEUE).await;
        let done = jobs.iter().filter(|job| job["state"] == "completed").count();
        if done == count { Ok(()) } else { Err(format!("{done} of {}", jobs.len())) }
    })
    .await;
}

async fn a_singleton_key_is_sent_once_in_its_time(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let worker = stage.worker().await;
    let options = json!({ "singletonKey": "k", "singletonSeconds": 3600 });
    let id = stage.boss.send(QUEUE, json!({ "name": "once" }), options.clone()).await.unwrap();
    assert_eq!(stage.boss.send(QUEUE, json!({ "name": "once" }), options.clone()).await, None);
    stage.until(&id, "completed").await;
    assert_eq!(
        stage.boss.send(QUEUE, json!({ "name": "once" }), options).await,
        None,
        "also when it is done"
    );
    worker.stop().await;
    assert_eq!(stage.script.runs_of("once"), 1);
}

async fn a_singleton_queue_has_one_active_job_for_each_key(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({ "policy": "singleton" })).await;
    for (name, key) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")] {
        let options = json!({ "singletonKey": key });
        stage.boss.send(QUEUE, json!({ "name": name, "wait": true }), options).await.unwrap();
    }
    let worker = stage.worker().await;
    stage.script.has_begun("a1", 1).await;
    stage.script.has_begun("b1", 1).await;
    for (done, next) in [(2, Some("a2")), (3, Some("a3")), (4, None)] {
        let active = stage.boss.jobs(QUEUE).await.iter().filter(|job| job["state"] == "active").count();
        assert!(active <= 2, "{active} active");
        stage.script.go.notify_waiters();
        completed(stage, done).await;
        if let Some(next) = next {
            stage.script.has_begun(next, 1).await;
        }
    }
    worker.stop().await;
    assert_eq!(stage.script.runs().len(), 4);
}

async fn a_stately_queue_has_one_job_in_each_state(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({ "policy": "stately" })).await;
    let worker = stage.worker().await;
    let send =
        async |name: &str| stage.boss.send(QUEUE, json!({ "name": name, "wait": true }), json!({})).await;
    let first = send("first").await.unwrap();
    stage.script.has_begun("first", 1).await;
    let second = send("second").await.unwrap();
    assert_eq!(send("third").await, None, "one waits already");
    stage.script.go.notify_waiters();
    stage.until(&first, "completed").await;
    stage.script.has_begun("second", 1).await;
    stage.script.go.notify_waiters();
    stage.until(&second, "completed").await;
    worker.stop().await;
    assert_eq!(stage.script.runs().len(), 2);
}

async fn an_exclusive_queue_has_one_job(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({ "policy": "exclusive" })).await;
    let worker = stage.worker().await;
    let send =
        async |name: &str| stage.boss.send(QUEUE, json!({ "name": name, "wait": true }), json!({})).await;
    let first = send("first").await.unwrap();
    stage.script.has_begun("first", 1).await;
    assert_eq!(send("second").await, None, "one is active");
    stage.script.go.notify_waiters();
    stage.until(&first, "completed").await;
    let third = send("third").await.unwrap();
    stage.script.has_begun("third", 1).await;
    stage.script.go.notify_waiters();
    stage.until(&third, "completed").await;
    worker.stop().await;
}

async fn a_strict_order_holds_for_each_key(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({ "policy": "key_strict_fifo" })).await;
    for n in 0..4 {
        for key in ["a", "b"] {
            let data = json!({ "name": format!("{key}{n}"), "fail": u8::from(n == 1) });
            let options = json!({ "singletonKey": key, "retryDelay": 0, "priority": n });
            stage.boss.send(QUEUE, data, options).await.unwrap();
        }
    }
    let worker = stage.worker().await;
    completed(stage, 8).await;
    worker.stop().await;
    let order = |key: &str| -> Vec<String> {
        let runs = stage.script.runs();
        let names = runs.iter().filter_map(|data: &Value| data["name"].as_str());
        names.filter(|name| name.starts_with(key)).map(str::to_owned).collect()
    };
    assert_eq!(order("a"), ["a0", "a1", "a1", "a2", "a3"]);
    assert_eq!(order("b"), ["b0", "b1", "b1", "b2", "b3"]);
}

async fn a_job_with_a_heartbeat_is_kept_alive(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let id = stage
        .boss
        .send(QUEUE, json!({ "name": "quiet", "millis": 6000 }), json!({ "retryLimit": 0 }))
        .await
        .unwrap();
    // pg-boss itself allows ten seconds at least.
    let client = stage.database.client().await;
    client.batch_execute("update pgboss.job set heartbeat_seconds = 2").await.unwrap();
    let worker = stage.worker().await;
    let job = stage.until(&id, "completed").await;
    worker.stop().await;
    assert_eq!(job["retryCount"], 0, "{job}");
    assert_eq!(stage.script.runs_of("quiet"), 1);
}

async fn a_job_that_waits_for_another_is_run_after_it(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({})).await;
    let worker = stage.worker().await;
    let flow = json!([[
        { "name": QUEUE, "ref": "parent", "data": { "name": "parent", "millis": 300 } },
        { "name": QUEUE, "ref": "child", "data": { "name": "child" }, "dependsOn": ["parent"] },
    ]]);
    stage.boss.call("flow", flow).await;
    completed(stage, 2).await;
    worker.stop().await;
    let runs = stage.script.runs();
    assert_eq!((&runs[0]["name"], &runs[1]["name"]), (&json!("parent"), &json!("child")));
}

async fn a_queue_with_its_own_table_is_served(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({ "partition": true })).await;
    let worker = stage.worker().await;
    let id = stage.boss.send(QUEUE, json!({ "name": "apart" }), json!({})).await.unwrap();
    stage.until(&id, "completed").await;
    stage.all_settled().await;
    worker.stop().await;
    assert_eq!(stage.script.runs_of("apart"), 1);
}

/// Lets a worker of pg-boss be faster, once, between the lock and the acknowledgement.
#[derive(Debug)]
struct Overtaken {
    inner: PgBoss,
    boss: Boss,
    done: AtomicBool,
}

struct Late<'a>(&'a dyn Accept, &'a Overtaken);

#[async_trait]
impl Accept for Late<'_> {
    async fn accept(&self, offers: Vec<Offer>) -> Result<Vec<Answer>> {
        let answers = self.0.accept(offers).await?;
        if !self.1.done.swap(true, Ordering::SeqCst) {
            let fetched = self.1.boss.call("fetch", json!([QUEUE])).await;
            assert_eq!(fetched[0]["data"]["name"], "theirs", "{fetched}");
        }
        Ok(answers)
    }
}

#[async_trait]
impl Source for Overtaken {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn queues(&self) -> &[String] {
        self.inner.queues()
    }

    async fn take(&self, _: usize, except: &[String], accept: &dyn Accept) -> Result<Taken> {
        // One at a time: the other row stays unlocked.
        self.inner.take(1, except, &Late(accept, self)).await
    }

    async fn look(&self, items: &[Claim]) -> Result<Vec<Standing>> {
        self.inner.look(items).await
    }

    async fn settle(&self, item: &Claim, ending: &Ending) -> Result<Settled> {
        self.inner.settle(item, ending).await
    }
}

async fn a_job_whose_place_another_takes_meanwhile_is_left_alone(stage: &Stage) {
    stage.boss.create_queue(QUEUE, json!({ "policy": "singleton" })).await;
    let ours = stage.boss.send(QUEUE, json!({ "name": "ours" }), json!({ "priority": 9 })).await.unwrap();
    let theirs = stage.boss.send(QUEUE, json!({ "name": "theirs" }), json!({})).await.unwrap();
    let boss = Boss::start(stage.database.url()).await;
    let source = Overtaken { inner: stage.source(), boss, done: AtomicBool::new(false) };
    let worker = stage.worker_with(Arc::new(source), 4).await;
    stage.until(&theirs, "active").await;
    stage.all_settled().await;
    assert_eq!(stage.boss.job(QUEUE, &ours).await["state"], "created");
    stage.boss.call("complete", json!([QUEUE, theirs])).await;
    stage.until(&ours, "completed").await;
    stage.all_settled().await;
    worker.stop().await;
    assert_eq!((stage.script.runs_of("ours"), stage.script.runs_of("theirs")), (1, 0));
}
