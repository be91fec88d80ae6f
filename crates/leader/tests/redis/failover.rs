//! Several nodes on one Redis: who leads when something goes away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stargate_leader::boot::{Clock as _, SystemClock};
use stargate_leader::redis::Replicas;
use stargate_leader::{Config, Holder, MemoryEpochs, Phase, Reason, Settings};
use stargate_testkit::eventually;
use stargate_testkit::proxy::Proxy;
use stargate_testkit::redis::Redis;

use super::server::{client_of, lease_at, lease_of};
use crate::nodes::{Node, PATIENCE, config};

const TTL: Duration = Duration::from_secs(2);

fn start(name: &str, server: &Redis, epochs: &Arc<MemoryEpochs>) -> Node {
    Node::start(config(name, TTL), lease_of(server), epochs.clone())
}

/// Looks at both until `done`; at no look may both lead.
async fn watch_both(a: &Node, b: &Node, what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        let both = a.leadership.current().zip(b.leadership.current());
        assert!(both.is_none(), "two leaders while waiting for {what}: {both:?}");
        assert!(
            begin.elapsed() < PATIENCE,
            "waited in vain for {what}: {:?} {:?}",
            a.leadership,
            b.leadership
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_standby_knows_the_leader_and_follows_at_once_when_it_ends() {
    let server = Redis::start();
    let epochs = Arc::default();
    // So long that only a hint can explain a quick successor.
    let long = |name: &str| {
        let lease = lease_of(&server);
        let epochs: Arc<MemoryEpochs> = Arc::clone(&epochs);
        Node::start(config(name, Duration::from_secs(300)), lease, epochs)
    };
    let a = long("a");
    drop(a.leads().await);
    let b = long("b");
    let known = eventually(PATIENCE, "the standby to know the leader", || {
        let known = b.leadership.known_leader();
        async move { known.ok_or_else(|| "nobody".to_owned()) }
    })
    .await;
    assert_eq!(known, Holder { instance: "a".to_owned(), address: Some("http://a".to_owned()) });
    let refused = b.leadership.guard().unwrap_err().to_string();
    assert_eq!(refused, "this node is not the leader; a at http://a is");
    a.stop().await;
    assert_eq!(b.leads().await.epoch().get(), 2);
    b.stop().await;
    let ends: Vec<_> = epochs.records().into_iter().map(|record| record.ended).collect();
    assert_eq!(ends, [Some(Reason::Shutdown); 2]);
}

#[tokio::test]
async fn a_node_that_stepped_down_follows_at_once_when_its_successor_ends() {
    let server = Redis::start();
    let epochs = Arc::<MemoryEpochs>::default();
    // So long that neither a lease nor the rest after stepping down can end within the test.
    let long =
        |name: &str| Node::start(config(name, Duration::from_secs(600)), lease_of(&server), epochs.clone());
    let a = long("a");
    drop(a.leads().await);
    let b = long("b");
    eventually(PATIENCE, "a second node", || {
        let known = b.leadership.known_leader();
        async move { known.ok_or_else(|| "nobody leads".to_owned()) }
    })
    .await;
    a.leadership.step_down().await.unwrap();
    drop(b.leads().await);
    let known = eventually(PATIENCE, "the news of the new leader", || {
        let known = a.leadership.known_leader();
        async move { known.ok_or_else(|| "nobody".to_owned()) }
    })
    .await;
    assert_eq!(known.instance, "b");
    b.stop().await;
    assert_eq!(a.leads().await.epoch().get(), 3);
    a.stop().await;
}

#[tokio::test]
async fn a_server_that_is_back_is_used_at_once_however_long_the_outage_was() {
    let mut server = Redis::start();
    let proxy = Proxy::start(&server.address()).await;
    // So long that no pause ends within the test.
    let long = || config("a", Duration::from_secs(600));
    server.kill();
    let a = Node::start(long(), lease_of(&server), Arc::<MemoryEpochs>::default());
    troubled(&a).await;
    server.up();
    drop(a.leads().await);
    a.stop().await;
    // The same when nothing is refused, only lost.
    proxy.swallow();
    let lease = lease_at(&proxy.address(), Replicas::Connected);
    let b = Node::start(long(), lease, Arc::<MemoryEpochs>::default());
    troubled(&b).await;
    proxy.forward();
    drop(b.leads().await);
    b.stop().await;
}

async fn troubled(node: &Node) {
    eventually(PATIENCE, "the outage to be noticed", || {
        let standing = node.leadership.standing();
        async move { standing.trouble.clone().ok_or_else(|| format!("{standing:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_dead_leader_is_replaced_when_its_lock_ends_and_not_before() {
    let server = Redis::start();
    let epochs = Arc::default();
    let a = start("a", &server, &epochs);
    drop(a.leads().await);
    let b = start("b", &server, &epochs);
    a.kill();
    // The deadline of the dead leader, which nobody renews any more.
    let deadline = a.leadership.current().expect("a term that is still valid").deadline;
    let guard = b.leads().await;
    assert!(SystemClock.now() >= deadline, "a successor while the dead one could still act");
    assert!(!a.leadership.is_leader(), "nothing told it; the clock did");
    assert_eq!(guard.epoch().get(), 2);
    drop(guard);
    b.stop().await;
}

#[tokio::test]
async fn a_leader_cut_off_from_redis_is_no_leader_any_more_when_another_is() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.address()).await;
    let epochs = Arc::<MemoryEpochs>::default();
    let a = Node::start(config("a", TTL), lease_at(&proxy.address(), Replicas::Connected), epochs.clone());
    drop(a.leads().await);
    let b = start("b", &server, &epochs);
    for _ in 0..2 {
        proxy.stall();
        watch_both(&a, &b, "b to lead", || b.leadership.is_leader()).await;
        proxy.forward();
        // Now the other way: what was held back arrives late, and must not depose the successor.
        watch_both(&a, &b, "a to be back", || {
            a.leadership.known_leader().is_some_and(|leader| leader.instance == "b")
        })
        .await;
        assert!(b.leadership.is_leader());
        b.leadership.step_down().await.unwrap();
        watch_both(&a, &b, "a to lead", || a.leadership.is_leader()).await;
    }
    let records = epochs.records();
    assert!(
        records.iter().any(|r| r.holder.instance == "a" && r.ended == Some(Reason::RenewalFailed)),
        "{records:?}"
    );
    b.stop().await;
    a.stop().await;
}

#[tokio::test]
async fn a_lock_deleted_by_somebody_ends_the_term() {
    let server = Redis::start();
    let epochs = Arc::<MemoryEpochs>::default();
    let a = start("a", &server, &epochs);
    let guard = a.leads().await;
    let mut client = client_of(&server).await;
    let _: i64 = redis::cmd("DEL").arg("stargate:leader").query_async(&mut client).await.unwrap();
    tokio::time::timeout(PATIENCE, guard.stopping().cancelled()).await.expect("the loss is noticed");
    drop(guard);
    assert_eq!(a.leads().await.epoch().get(), 2);
    assert_eq!(epochs.records()[0].ended, Some(Reason::Lost));
    a.stop().await;
}

/// T14 of the research: a server that restarts with nothing must not grant a lock that its old owner still trusts.
#[tokio::test]
async fn a_server_that_forgot_the_lock_grants_nothing_for_a_lease() {
    const GUARDED: Duration = Duration::from_secs(3);
    let mut server = Redis::start();
    let epochs = Arc::<MemoryEpochs>::default();
    let guarded = |name: &str| {
        let settings = Settings {
            ttl: GUARDED,
            renew_every: GUARDED / 3,
            retry_every: Duration::from_millis(100),
            retry_max: Duration::from_millis(100),
            ..Settings::of(Holder { instance: name.to_owned(), address: None })
        };
        Config::new(settings).unwrap()
    };
    // This one knew the server before, so it is not misled by its own memory.
    let a = Node::start(guarded("a"), lease_of(&server), epochs.clone());
    drop(a.leads().await);
    let restarted = SystemClock.now();
    server.restart();
    let b = Node::start(guarded("b"), lease_of(&server), epochs.clone());
    let begin = epochs.records().len();
    watch_both(&a, &b, "a new term", || epochs.records().len() > begin).await;
    let waited = SystemClock.now().since(restarted);
    assert!(waited >= GUARDED, "granted {waited:?} after a restart");
    watch_both(&a, &b, "a leader", || a.leadership.is_leader() || b.leadership.is_leader()).await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_server_that_kept_the_lock_lets_its_owner_go_on() {
    let mut server = Redis::durable();
    let epochs = Arc::<MemoryEpochs>::default();
    let long = config("a", Duration::from_secs(10));
    let a = Node::start(long, lease_of(&server), epochs.clone());
    let guard = a.leads().await;
    let before = a.leadership.current().unwrap();
    server.restart();
    let renewed = eventually(PATIENCE, "a renewal after the restart", || {
        let now = a.leadership.current();
        async move { now.filter(|term| term.deadline > before.deadline).ok_or_else(|| format!("{now:?}")) }
    })
    .await;
    assert_eq!(renewed.epoch, guard.epoch());
    assert_eq!(a.leadership.standing().phase, Phase::Leader);
    drop(guard);
    a.stop().await;
}
