//! The leader is stopped past its lease, in the middle of a write, and goes on when another leads.

use std::time::Duration;

use reqwest::Client;
use stargate_testkit::eventually;
use stargate_testkit::proxy::Proxy;
use stargate_testkit::redis::Redis;
use tokio::task::JoinSet;

use crate::observer::{Observer, Outcome, WRITTEN, write_once};
use crate::stage::{Node, SHORT, Stage, leader_first};
use crate::verdict::{marks, pronounce};
use crate::{PATIENCE, times};

/// How long a write may take to be on its way to the store, when nothing else is in front of it. Shorter than the lease:
/// a leader that loses it meanwhile sends nothing.
const ON_ITS_WAY: Duration = Duration::from_millis(500);
/// How often this is tried.
const TRIES: usize = 50;

fn settings() -> String {
    format!("{SHORT}startup_guard = false\n")
}

/// A write that has been sent.
struct Writing {
    mark: String,
    outcome: JoinSet<Outcome>,
}

/// Holds up the leader's way to the store with a write on it. The statement may be that of another writer, in front of
/// ours.
async fn hold_up(node: &Node, to_store: &Proxy, round: usize) -> Writing {
    for number in 0..TRIES {
        to_store.stall();
        let (address, mark) = (node.address().to_owned(), format!("stopped in round {round}, try {number}"));
        let mut writing = Writing { mark: mark.clone(), outcome: JoinSet::new() };
        writing.outcome.spawn(async move { write_once(&Client::new(), &address, &mark, None).await });
        let held = async {
            while !to_store.holds(WRITTEN.as_bytes()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(ON_ITS_WAY, held).await.is_ok() {
            return writing;
        }
        // Something else was asked first, and everybody waits for its answer.
        to_store.forward();
        writing.outcome.join_all().await;
    }
    panic!("no write was ever on its way to the store");
}

/// Stops the leader when it has sent writes that have not reached the store yet, until the other one leads; then the
/// writes arrive, and then the node goes on. The mark of ours, and what became of it.
async fn stop_in_mid_write(node: &Node, to_store: &Proxy, other: &Node, round: usize) -> (String, Outcome) {
    // From here on the node has passed its own checks: only the store can still refuse.
    let Writing { mark, mut outcome } = hold_up(node, to_store, round).await;
    node.running.freeze();
    other.leads().await;
    to_store.forward();
    // The store has it, as something that happened after the other's term began.
    other.writes().await;
    node.running.thaw();
    (mark, outcome.join_next().await.expect("a writer").expect("a writer that does not fail"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_stopped_in_mid_write_past_its_lease_writes_nothing_on_postgres() {
    let stage = Stage::postgres(&settings()).await;
    let redis = Redis::start();
    let database = url::Url::parse(stage.database()).unwrap();
    let at = format!("{}:{}", database.host_str().unwrap(), database.port().unwrap_or(5432));
    let ways = [Proxy::start(&at).await, Proxy::start(&at).await];
    let store_through = |way: &Proxy| {
        let mut url = database.clone();
        url.set_port(way.address().rsplit_once(':').and_then(|(_, port)| port.parse().ok())).unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.to_string()
    };
    let urls = [store_through(&ways[0]), store_through(&ways[1])];
    let a = stage.node_with("a", &redis.address(), &[("STARGATE_STORE", &urls[0])]).await;
    let b = stage.node_with("b", &redis.address(), &[("STARGATE_STORE", &urls[1])]).await;
    let mut observer = Observer::start();
    observer.watch(&a);
    observer.watch(&b);
    let (mut stopped, mut refused) = (Vec::new(), 0);
    for round in 0..times(3, 25) {
        let (leader, other) = leader_first(&a, &b).await;
        let way = if leader.name == "a" { &ways[0] } else { &ways[1] };
        let (mark, outcome) = stop_in_mid_write(leader, way, other, round).await;
        match outcome {
            Outcome::Accepted(id) => panic!("a stale write was accepted: {id}; {}", leader.log()),
            Outcome::Refused => refused += 1,
            Outcome::Unsent | Outcome::Unknown => {}
        }
        stopped.push(mark);
        leader.follows(other.name).await;
        observer.sees_more().await;
    }
    let there = marks(&stage).await;
    let stale: Vec<_> = stopped.iter().filter(|mark| there.contains(mark)).collect();
    assert!(stale.is_empty(), "{stale:?} of a stopped leader are in the store");
    println!(
        "stopped past the lease with a write on its way, Postgres: {} times, 0 accepted, {refused} told NOT_LEADER",
        stopped.len()
    );
    pronounce(&stage, "stopped in mid-write, Postgres", &b, &observer.finish().await).await;
    stage.close().await;
}

/// With SQLite the two nodes share a file. One that is stopped while it writes keeps everybody from writing, the next
/// leader's term too, and may end what it began: nothing is stale. Stopped at any other moment it is like on Postgres.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_stopped_past_its_lease_writes_nothing_on_sqlite() {
    let stage = Stage::sqlite(&settings()).await;
    let redis = Redis::start();
    let a = stage.node("a", &redis.address()).await;
    let b = stage.node("b", &redis.address()).await;
    let mut observer = Observer::start();
    observer.watch(&a);
    observer.watch(&b);
    for _ in 0..times(2, 25) {
        let (leader, other) = leader_first(&a, &b).await;
        other.follows(leader.name).await;
        // Requests are under way all the time, so some are half done.
        leader.running.freeze_between_writes(stage.program.home()).await;
        other.leads().await;
        other.writes().await;
        leader.running.thaw();
        leader.follows(other.name).await;
        observer.sees_more().await;
    }
    pronounce(&stage, "stopped, SQLite", &b, &observer.finish().await).await;
    stage.close().await;
}

impl Node {
    /// Waits until a write at this node is accepted.
    async fn writes(&self) {
        let client = Client::new();
        eventually(PATIENCE, "a write of the new leader", || async {
            match write_once(&client, self.address(), "the new leader's", None).await {
                Outcome::Accepted(_) => Ok(()),
                other => Err(format!("{other:?}; {}", self.log())),
            }
        })
        .await;
    }
}
