//! Split brain: the leader is cut off from Redis, in every way a network can do that, and is let in again.

use std::time::Duration;

use stargate_testkit::eventually;
use stargate_testkit::proxy::Proxy;
use stargate_testkit::redis::Redis;

use crate::observer::Observer;
use crate::stage::{Node, SHORT, SHORT_TTL, Stage, leader_first};
use crate::verdict::pronounce;
use crate::{PATIENCE, is_long};

/// What is done to the leader's way to Redis.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Nothing gets through; what was sent arrives when it heals.
    Drop,
    /// Everything arrives, too late.
    Delay,
    /// The connections stay open and lead nowhere.
    HalfOpen,
    /// The connections end, and new ones are refused.
    Cut,
}

const ALL: [Fault; 4] = [Fault::Drop, Fault::Delay, Fault::HalfOpen, Fault::Cut];

fn break_with(proxy: &Proxy, fault: Fault, ttl: Duration) {
    match fault {
        Fault::Drop => proxy.stall(),
        // Longer than a call may take, which is a tenth of the time to live and at most a second.
        Fault::Delay => proxy.delay((ttl / 4).min(Duration::from_secs(2))),
        Fault::HalfOpen => proxy.swallow(),
        Fault::Cut => proxy.cut(),
    }
}

/// A leads, and is cut off until B leads; when A is back, B steps down for it.
async fn cut_off([a, b]: [&Node; 2], proxy: &Proxy, fault: Fault, observer: &Observer) {
    lead_again(a, b).await;
    break_with(proxy, fault, SHORT_TTL);
    b.leads().await;
    proxy.forward();
    a.follows("b").await;
    observer.sees_more().await;
}

/// Waits until A leads; B makes room for it.
async fn lead_again(a: &Node, b: &Node) {
    eventually(PATIENCE, "the first node to lead again", || async {
        if a.says("/readyz").await.is_some_and(|report| report.epoch.is_some()) {
            return Ok(());
        }
        b.step_down().await;
        Err(format!("{}\n{}", a.log(), b.log()))
    })
    .await;
}

async fn split_brain(stage: Stage, what: &str, faults: &[Fault]) {
    let redis = Redis::start();
    let proxy = Proxy::start(&redis.address()).await;
    let a = stage.node("a", &proxy.address()).await;
    a.leads().await;
    let b = stage.node("b", &redis.address()).await;
    let mut observer = Observer::start();
    observer.watch(&a);
    observer.watch(&b);
    for fault in faults {
        cut_off([&a, &b], &proxy, *fault, &observer).await;
    }
    lead_again(&a, &b).await;
    pronounce(&stage, what, &b, &observer.finish().await).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_is_none_when_another_is_on_postgres() {
    split_brain(Stage::postgres(&unguarded()).await, "split brain, Postgres", &ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_is_none_when_another_is_on_sqlite() {
    split_brain(Stage::sqlite(&unguarded()).await, "split brain, SQLite", &[Fault::Drop]).await;
}

fn unguarded() -> String {
    format!("{SHORT}startup_guard = false\n")
}

/// The plan's partitions, of 10 s, in which nobody else can lead, and of 40 s, in which another does, at the default
/// timings. In the short form everything takes a fifteenth of the time.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_of_a_third_and_of_four_thirds_of_the_time_to_live() {
    let (settings, ttl, faults) = if is_long() {
        ("startup_guard = false\n".to_owned(), Duration::from_secs(30), &ALL[..])
    } else {
        (unguarded(), SHORT_TTL, &[Fault::HalfOpen][..])
    };
    for fault in faults {
        let stage = Stage::postgres(&settings).await;
        let redis = Redis::start();
        let proxy = Proxy::start(&redis.address()).await;
        let a = stage.node("a", &proxy.address()).await;
        a.leads().await;
        let b = stage.node("b", &redis.address()).await;
        let mut observer = Observer::start();
        observer.watch(&a);
        observer.watch(&b);
        for length in [ttl / 3, ttl * 4 / 3] {
            lead_again(&a, &b).await;
            break_with(&proxy, *fault, ttl);
            tokio::time::sleep(length).await;
            proxy.forward();
            observer.sees_more().await;
        }
        leader_first(&a, &b).await;
        let what = format!("partitions of {:?} and {:?}, {fault:?}", ttl / 3, ttl * 4 / 3);
        pronounce(&stage, &what, &b, &observer.finish().await).await;
        stage.close().await;
    }
}
