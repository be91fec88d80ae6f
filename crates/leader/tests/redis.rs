//! The lock in a real Redis.

mod failover;
mod server;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use stargate_base::Secret;
use stargate_leader::lease::{Acquired, Bid, Hint, Released, Renewed};
use stargate_leader::redis::{Replicas, Settings};
use stargate_leader::{Lease, RedisLease};
use stargate_testkit::eventually;
use stargate_testkit::proxy::Proxy;
use stargate_testkit::redis::Redis;

use crate::nodes::{PATIENCE, bid};
use server::{client_of, lease_at, lease_of};

const TTL: Duration = Duration::from_secs(30);
const KEY: &str = "stargate:leader";

/// A bid that approves of the server as it is.
async fn approved(lease: &dyn Lease, instance: &str, ttl: Duration) -> Bid {
    let server = lease.inspect().await.expect("a server that answers").server.expect("Redis is a server");
    Bid { approved: Some(server.run), ..bid(instance, ttl) }
}

#[tokio::test]
async fn of_fifty_bids_at_once_one_is_granted() {
    let server = Redis::start();
    let bidders = join_all((0..50).map(|n| {
        let lease = lease_of(&server);
        async move {
            let bid = approved(&*lease, &format!("n{n}"), TTL).await;
            (lease, bid)
        }
    }))
    .await;
    let answers = join_all(bidders.iter().map(|(lease, bid)| lease.acquire(bid))).await;
    let winners: Vec<usize> = (0..50).filter(|n| matches!(answers[*n], Ok(Acquired::Granted))).collect();
    let [winner] = winners[..] else { panic!("granted to {winners:?}") };
    for (n, answer) in answers.into_iter().enumerate().filter(|(n, _)| *n != winner) {
        let Ok(Acquired::Held(incumbent)) = answer else { panic!("n{n}: {answer:?}") };
        assert_eq!(incumbent.value.holder, bidders[winner].1.holder);
        let left = incumbent.left.expect("a lock that ends");
        assert!(left <= TTL && left > TTL - Duration::from_secs(10), "{left:?}");
    }
}

#[tokio::test]
async fn the_lock_is_a_plain_key_with_the_value_and_the_time_to_live_of_the_contract() {
    let server = Redis::start();
    let lease = lease_of(&server);
    let bid = approved(&*lease, "node-1", TTL).await;
    assert_eq!(lease.acquire(&bid).await.unwrap(), Acquired::Granted);
    let mut client = client_of(&server).await;
    let value: String = redis::cmd("GET").arg(KEY).query_async(&mut client).await.unwrap();
    assert_eq!(value, format!("node-1:{}:http://node-1", bid.token));
    let left: i64 = redis::cmd("TTL").arg(KEY).query_async(&mut client).await.unwrap();
    assert!((25..=30).contains(&left), "{left}");
}

#[tokio::test]
async fn a_renewal_extends_the_lock_and_never_makes_one() {
    let server = Redis::start();
    let lease = lease_of(&server);
    let mut client = client_of(&server).await;
    let ours = approved(&*lease, "a", TTL).await;
    assert_eq!(lease.renew(&ours).await.unwrap(), Renewed::Lost, "nothing to renew");
    assert_eq!(lease.acquire(&ours).await.unwrap(), Acquired::Granted);
    let _: i64 = redis::cmd("PEXPIRE").arg(KEY).arg(5_000).query_async(&mut client).await.unwrap();
    assert_eq!(lease.renew(&ours).await.unwrap(), Renewed::Extended);
    let left: i64 = redis::cmd("PTTL").arg(KEY).query_async(&mut client).await.unwrap();
    assert!(left > 20_000, "{left}");
    // Expired or deleted: gone is gone.
    let _: i64 = redis::cmd("DEL").arg(KEY).query_async(&mut client).await.unwrap();
    assert_eq!(lease.renew(&ours).await.unwrap(), Renewed::Lost);
    let exists: i64 = redis::cmd("EXISTS").arg(KEY).query_async(&mut client).await.unwrap();
    assert_eq!(exists, 0);
    // Somebody else's: untouched, also if it is the same node's next one.
    let next = approved(&*lease, "a", Duration::from_secs(9)).await;
    assert_eq!(lease.acquire(&next).await.unwrap(), Acquired::Granted);
    assert_eq!(lease.renew(&ours).await.unwrap(), Renewed::Lost);
    let left: i64 = redis::cmd("PTTL").arg(KEY).query_async(&mut client).await.unwrap();
    assert!(left <= 9_000, "{left}");
}

#[tokio::test]
async fn the_holder_of_a_foreign_value_is_shown_and_respected() {
    let server = Redis::start();
    let lease = lease_of(&server);
    let mut client = client_of(&server).await;
    let _: () = redis::cmd("SET").arg(KEY).arg("somebody").query_async(&mut client).await.unwrap();
    let bid = approved(&*lease, "a", TTL).await;
    let Acquired::Held(incumbent) = lease.acquire(&bid).await.unwrap() else { panic!("taken from somebody") };
    assert_eq!((incumbent.value.holder.instance.as_str(), incumbent.left), ("somebody", None));
}

/// T17 of the research: ten thousand times a release races with the successor's bid, and then comes once more, late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_release_never_deletes_the_lock_of_a_successor() {
    const LANES: usize = 8;
    const ROUNDS: usize = 10_000 / LANES;
    let server = Redis::start();
    let lanes = (0..LANES).map(|lane| {
        let lease = || {
            let url = Secret::new(format!("redis://{}", server.address()));
            let settings = Settings { key: format!("lane:{lane}"), ..Settings::of(url) };
            Arc::new(RedisLease::new(settings).unwrap())
        };
        race(lease(), lease(), ROUNDS)
    });
    let deleted: usize = join_all(lanes).await.into_iter().sum();
    assert_eq!(deleted, 0, "of {} locks of successors", LANES * ROUNDS);
}

/// How many locks of successors were gone.
async fn race(old: Arc<RedisLease>, new: Arc<RedisLease>, rounds: usize) -> usize {
    let mut deposed = approved(&*old, "old", TTL).await;
    let mut deleted = 0;
    for _ in 0..rounds {
        assert_eq!(old.acquire(&deposed).await.expect("an answer"), Acquired::Granted);
        let successor = Bid { approved: deposed.approved.clone(), ..bid("new", TTL) };
        let bids = async { while new.acquire(&successor).await.expect("an answer") != Acquired::Granted {} };
        let ((), first) = tokio::join!(bids, old.release(&deposed));
        assert_eq!(first.expect("an answer"), Released::Freed);
        let late = old.release(&deposed).await.expect("an answer");
        let kept = new.renew(&successor).await.expect("an answer") == Renewed::Extended;
        deleted += usize::from(!kept || late != Released::NotOurs);
        assert_eq!(new.release(&successor).await.expect("an answer"), Released::Freed);
        deposed = Bid { approved: deposed.approved, ..bid("old", TTL) };
    }
    deleted
}

#[tokio::test]
async fn a_server_that_the_bid_does_not_approve_of_grants_nothing() {
    let mut server = Redis::start();
    let lease = lease_of(&server);
    let bid = approved(&*lease, "a", TTL).await;
    server.restart();
    // The first call may still find the old connection and fail; none may be granted.
    let answer = eventually(PATIENCE, "an answer", || async {
        lease.acquire(&bid).await.map_err(|error| error.to_string())
    })
    .await;
    let Acquired::Unapproved(identity, None) = answer else { panic!("{answer:?}") };
    assert_ne!(Some(identity.run), bid.approved);
    assert!(identity.uptime < TTL);
    assert_eq!(lease.inspect().await.unwrap().incumbent, None);
}

#[tokio::test]
async fn a_server_that_hangs_costs_its_timeout_and_works_again_afterwards() {
    let server = Redis::start();
    let lease = lease_of(&server);
    let ours = approved(&*lease, "a", TTL).await;
    assert_eq!(lease.acquire(&ours).await.unwrap(), Acquired::Granted);
    server.freeze();
    let hung = tokio::time::timeout(Duration::from_millis(300), lease.renew(&ours)).await;
    assert!(hung.is_err(), "{hung:?}");
    server.thaw();
    assert_eq!(lease.renew(&ours).await.unwrap(), Renewed::Extended, "on a new connection");
}

#[tokio::test]
async fn a_dead_server_is_an_error_that_names_the_place() {
    let mut server = Redis::start();
    let lease = lease_of(&server);
    server.kill();
    let error = lease.acquire(&bid("a", TTL)).await.unwrap_err();
    let beginning = format!("cannot acquire the leader lock in redis at {}: ", server.address());
    assert!(error.to_string().starts_with(&beginning), "{error}");
    assert_eq!(error.code(), "LEADER_LOCK_UNREACHABLE");
}

#[tokio::test]
async fn a_password_opens_the_lock_and_is_never_shown() {
    let server = Redis::with(&["--requirepass", "canary-right"]);
    let lease = |password: &str| {
        let url = Secret::new(format!("redis://:{password}@{}", server.address()));
        RedisLease::new(Settings::of(url)).unwrap()
    };
    let right = lease("canary-right");
    let bid = approved(&right, "a", TTL).await;
    assert_eq!(right.acquire(&bid).await.unwrap(), Acquired::Granted);
    for wrong in [
        lease("canary-wrong"),
        RedisLease::new(Settings::of(Secret::new(format!("redis://{}", server.address())))).unwrap(),
    ] {
        let error = wrong.acquire(&bid).await.unwrap_err();
        let shown = format!("{error} {error:?} {wrong:?}");
        assert!(!shown.contains("canary"), "{shown}");
    }
}

#[tokio::test]
async fn over_tls_the_certificate_must_be_signed_by_the_authority() {
    // The binary does this in its main; a second choice is refused, harmlessly.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
    let file = |name: &str| format!("{TLS}/{name}");
    let server = Redis::with(&[
        "--port",
        "0",
        "--tls-port",
        "PORT",
        "--tls-cert-file",
        &file("server.pem"),
        "--tls-key-file",
        &file("server.key"),
        "--tls-ca-cert-file",
        &file("authority.pem"),
        "--tls-auth-clients",
        "no",
    ]);
    let lease = |authority| {
        let url = Secret::new(format!("rediss://{}", server.address()));
        RedisLease::new(Settings { authority, ..Settings::of(url) }).unwrap()
    };
    let trusting = lease(Some(std::fs::read(file("authority.pem")).unwrap()));
    let bid = approved(&trusting, "a", TTL).await;
    assert_eq!(trusting.acquire(&bid).await.unwrap(), Acquired::Granted);
    let error = lease(None).acquire(&bid).await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_release_is_told_to_those_who_wait() {
    let server = Redis::start();
    let (ours, theirs) = (lease_of(&server), lease_of(&server));
    let bid = approved(&*ours, "a", TTL).await;
    assert_eq!(ours.acquire(&bid).await.unwrap(), Acquired::Granted);
    // The first hint only says that the subscription stands.
    let hint = || tokio::time::timeout(PATIENCE, theirs.hint());
    assert_eq!(hint().await.expect("a subscription"), Hint::Reachable);
    let (told, released) = tokio::join!(hint(), ours.release(&bid));
    assert_eq!(released.unwrap(), Released::Freed);
    assert_eq!(told.expect("a hint"), Hint::Released(Some("a".to_owned())));
}

#[tokio::test]
async fn a_call_without_answer_makes_the_subscription_doubtful() {
    let server = Redis::start();
    let proxy = Proxy::start(&server.address()).await;
    let lease = lease_at(&proxy.address(), Replicas::Connected);
    let hint = || tokio::time::timeout(PATIENCE, lease.hint());
    assert_eq!(hint().await.expect("a subscription"), Hint::Reachable);
    proxy.swallow();
    let asked = tokio::time::timeout(Duration::from_millis(300), lease.renew(&bid("a", TTL))).await;
    assert!(asked.is_err(), "{asked:?}");
    proxy.forward();
    // The old connection is dead for ever and does not say so.
    assert_eq!(hint().await.expect("a new subscription"), Hint::Reachable);
}

#[tokio::test]
async fn a_lock_counts_only_if_all_replicas_have_it() {
    let primary = Redis::start();
    let replica = Redis::replica_of(&primary.address());
    let mut client = client_of(&primary).await;
    online(&mut client).await;
    for replicas in [Replicas::Connected, Replicas::Exactly(1)] {
        let lease = lease_at(&primary.address(), replicas);
        let bid = approved(&*lease, "a", TTL).await;
        let bid = Bid { timeout: Duration::from_secs(10), ..bid };
        assert_eq!(lease.acquire(&bid).await.unwrap(), Acquired::Granted);
        let mut copy = client_of(&replica).await;
        let value: Option<String> = redis::cmd("GET").arg(KEY).query_async(&mut copy).await.unwrap();
        assert_eq!(value, Some(bid.value()), "on the replica, at once");
        assert_eq!(lease.renew(&bid).await.unwrap(), Renewed::Extended);
        // A replica that hangs is still connected, as far as the primary knows.
        replica.freeze();
        let hasty = Bid { timeout: Duration::from_millis(500), ..bid.clone() };
        assert_eq!(lease.renew(&hasty).await.unwrap(), Renewed::Unreplicated { reached: 0, expected: 1 });
        assert_eq!(lease.release(&bid).await.unwrap(), Released::Freed);
        assert_eq!(lease.acquire(&hasty).await.unwrap(), Acquired::Unreplicated { reached: 0, expected: 1 });
        assert_eq!(lease.release(&hasty).await.unwrap(), Released::Freed);
        replica.thaw();
    }
}

#[tokio::test]
async fn a_lock_that_counted_survives_the_failover_to_a_replica() {
    let mut primary = Redis::start();
    let replica = Redis::replica_of(&primary.address());
    online(&mut client_of(&primary).await).await;
    let before = lease_of(&primary);
    let ours = Bid { timeout: Duration::from_secs(10), ..approved(&*before, "a", TTL).await };
    assert_eq!(before.acquire(&ours).await.unwrap(), Acquired::Granted);
    primary.kill();
    let mut promoted = client_of(&replica).await;
    let _: () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut promoted).await.unwrap();
    let after = lease_of(&replica);
    let theirs = approved(&*after, "b", TTL).await;
    let answer = after.acquire(&theirs).await.unwrap();
    assert!(
        matches!(&answer, Acquired::Held(incumbent) if incumbent.value.token == Some(ours.token)),
        "{answer:?}"
    );
    assert_eq!(after.renew(&ours).await.unwrap(), Renewed::Extended, "its owner goes on");
}

#[tokio::test]
async fn a_primary_without_the_replicas_it_should_have_grants_nothing() {
    let primary = Redis::start();
    let strict = lease_at(&primary.address(), Replicas::Exactly(1));
    let bid = approved(&*strict, "a", TTL).await;
    let hasty = Bid { timeout: Duration::from_millis(200), ..bid };
    assert_eq!(strict.acquire(&hasty).await.unwrap(), Acquired::Unreplicated { reached: 0, expected: 1 });
}

/// Waits until the replica has caught up.
async fn online(client: &mut redis::aio::MultiplexedConnection) {
    eventually(PATIENCE, "the replica", || {
        let mut client = client.clone();
        async move {
            let info: String =
                redis::cmd("INFO").arg("replication").query_async(&mut client).await.expect("INFO");
            if info.contains("state=online") { Ok(()) } else { Err(info) }
        }
    })
    .await;
}
