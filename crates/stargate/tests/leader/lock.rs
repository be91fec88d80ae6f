//! What happens to the lock itself: Redis dies, forgets, is replaced, or fails over to a replica that lags.

use stargate_testkit::eventually;
use stargate_testkit::proxy::Proxy;
use stargate_testkit::redis::Redis;

use crate::PATIENCE;
use crate::observer::Observer;
use crate::stage::{Node, SHORT, SHORT_TTL, Stage, leader_first};
use crate::verdict::pronounce;

/// Two nodes that reach Redis through proxies, observed.
struct Pair {
    stage: Stage,
    ways: [Proxy; 2],
    nodes: [Node; 2],
    observer: Observer,
}

impl Pair {
    async fn start(leader: &str, redis: &str) -> Self {
        let stage = Stage::postgres(&format!("{SHORT}{leader}")).await;
        let ways = [Proxy::start(redis).await, Proxy::start(redis).await];
        let nodes = [stage.node("a", &ways[0].address()).await, stage.node("b", &ways[1].address()).await];
        let mut observer = Observer::start();
        nodes.iter().for_each(|node| observer.watch(node));
        Self { stage, ways, nodes, observer }
    }

    /// Waits until somebody leads, with a higher epoch than the one given. Its epoch.
    async fn leads_beyond(&self, epoch: u64) -> u64 {
        eventually(PATIENCE, &format!("a term after {epoch}"), || async {
            for node in &self.nodes {
                if let Some(newer) = node.says("/readyz").await.and_then(|r| r.epoch).filter(|e| *e > epoch) {
                    return Ok(newer);
                }
            }
            Err(format!("{}\n{}", self.nodes[0].log(), self.nodes[1].log()))
        })
        .await
    }

    async fn end(self, what: &str) {
        leader_first(&self.nodes[0], &self.nodes[1]).await;
        self.observer.sees_more().await;
        pronounce(&self.stage, what, &self.nodes[0], &self.observer.finish().await).await;
        drop(self.nodes);
        self.stage.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_forgot_the_lock_or_was_replaced_makes_no_second_leader() {
    let mut redis = Redis::start();
    let pair = Pair::start("", &redis.address()).await;
    let first = pair.leads_beyond(0).await;
    // Killed and restarted without its data.
    redis.restart();
    let second = pair.leads_beyond(first).await;
    // Replaced by an empty one, which one node sees before the other.
    let empty = Redis::start();
    pair.ways[1].redirect(&empty.address());
    tokio::time::sleep(SHORT_TTL / 2).await;
    pair.ways[0].redirect(&empty.address());
    redis.kill();
    let third = pair.leads_beyond(second).await;
    println!("a Redis that forgot: epochs {first}, {second}, {third}");
    pair.end("a Redis that forgot").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_kept_the_lock_makes_no_second_leader() {
    let mut redis = Redis::durable();
    let pair = Pair::start("", &redis.address()).await;
    let first = pair.leads_beyond(0).await;
    redis.restart();
    let (leader, other) = leader_first(&pair.nodes[0], &pair.nodes[1]).await;
    other.follows(leader.name).await;
    let then = pair.leads_beyond(0).await;
    println!("a Redis with AOF, killed and restarted: epochs {first}, {then}");
    pair.end("a Redis that kept the lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_a_replica_that_lags_makes_no_second_leader() {
    let primary = Redis::start();
    let replication = Proxy::start(&primary.address()).await;
    let replica = Redis::replica_of(&replication.address());
    eventually(PATIENCE, "the replica", || async {
        if primary.has_replica() { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    // A lock counts when one replica has it, so that a primary that was cut off grants nothing.
    let pair = Pair::start("replicas = 1\n", &primary.address()).await;
    let first = pair.leads_beyond(0).await;
    replication.stall();
    replica.promote();
    // One node is sent to the new primary at once, the other still talks to the old one.
    let (leader, _) = leader_first(&pair.nodes[0], &pair.nodes[1]).await;
    let (late, early) = if leader.name == "a" { (0, 1) } else { (1, 0) };
    // The new primary has no replica of its own; a second one follows it.
    let second = Redis::replica_of(&replica.address());
    pair.ways[early].redirect(&replica.address());
    let next = pair.leads_beyond(first).await;
    pair.ways[late].redirect(&replica.address());
    pair.nodes[late].follows(pair.nodes[early].name).await;
    println!("a failover to a replica that lags: epochs {first}, {next}");
    pair.end("a failover to a replica that lags").await;
    drop(second);
}
