//! The leader ends, or dies.

use std::time::{Duration, Instant};

use stargate_testkit::redis::Redis;

use crate::observer::Observer;
use crate::stage::{Node, SHORT, Stage};
use crate::verdict::pronounce;
use crate::{PATIENCE, is_long, print_times, times};

/// The defaults: 30 s, 10 s, 5 s. A Redis that has just started grants nothing for 30 s; that wait is left out here, and
/// is a test of its own.
const DEFAULT_TIMINGS: &str = "startup_guard = false\n";

/// How a leader goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Term,
    Kill,
}

impl End {
    /// A lock of 30 s lives for 20 s at the least when its owner dies, so whoever leads sooner was handed it.
    fn deadline(self) -> Duration {
        match self {
            Self::Term => Duration::from_secs(15),
            Self::Kill => PATIENCE,
        }
    }
}

/// Ends the leader again and again; how long it took each time until the other one led.
async fn rounds(stage: &Stage, end: End, count: usize) -> Vec<Duration> {
    let redis = Redis::start();
    let mut observer = Observer::start();
    let mut leader = stage.node("a", &redis.address()).await;
    leader.leads().await;
    observer.watch(&leader);
    let mut times = Vec::new();
    for round in 0..count {
        let name = if round % 2 == 0 { "b" } else { "a" };
        let standby = stage.node(name, &redis.address()).await;
        observer.watch(&standby);
        standby.follows(leader.name).await;
        observer.sees_more().await;
        let begin = Instant::now();
        match end {
            End::Term => leader.running.terminate(),
            End::Kill => leader.running.kill(),
        }
        times.push(standby.leads_within(end.deadline(), begin).await);
        if end == End::Term {
            let status = leader.running.ended(PATIENCE).await;
            assert!(status.success(), "{status}: {}", leader.log());
        }
        observer.leave(&leader);
        leader = standby;
    }
    observer.sees_more().await;
    pronounce(stage, &format!("SIG{end:?}").to_uppercase(), &leader, &observer.finish().await).await;
    times
}

#[tokio::test(flavor = "multi_thread")]
async fn after_sigterm_the_standby_leads_at_once_at_the_default_timings_on_postgres() {
    let stage = Stage::postgres(DEFAULT_TIMINGS).await;
    let took = rounds(&stage, End::Term, times(3, 50)).await;
    print_times("SIGTERM, ttl 30 s, Postgres: a successor leads after", took);
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_sigterm_the_standby_leads_at_once_at_the_default_timings_on_sqlite() {
    let stage = Stage::sqlite(DEFAULT_TIMINGS).await;
    let took = rounds(&stage, End::Term, times(1, 10)).await;
    print_times("SIGTERM, ttl 30 s, SQLite: a successor leads after", took);
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_sigkill_the_standby_leads_when_the_lock_ends() {
    // So long, so that a busy machine renews in time.
    let (ttl, settings) = if is_long() {
        ("5 s", "ttl = \"5s\"\nrenew_every = \"1500ms\"\nstartup_guard = false\n".to_owned())
    } else {
        ("2 s", format!("{SHORT}startup_guard = false\n"))
    };
    let stage = Stage::postgres(&settings).await;
    let took = rounds(&stage, End::Kill, times(2, 50)).await;
    print_times(&format!("SIGKILL, ttl {ttl}, Postgres: a successor leads after"), took);
    stage.close().await;
    if is_long() {
        let stage = Stage::postgres("").await;
        let took = rounds(&stage, End::Kill, 1).await;
        print_times("SIGKILL, the real 30 s, startup guard on: a successor leads after", took);
        stage.close().await;
    }
}

/// The integration test "failover" of the plan, step by step: A leads, is killed, B is started 5 s later and leads within
/// another 15 s, and the logs show no overlap.
///
/// With the plan's time to live of 30 s that cannot be: the lock of a killed leader lives until 30 s after its last
/// renewal, which is at most 10 s before the kill, so for 20 s at the least, and B has 20 s from the kill until the last
/// look. So this runs with a shorter one. The real 30 s are in the long form of the test above.
#[tokio::test(flavor = "multi_thread")]
async fn the_failover_of_the_plan() {
    let (settings, waits) = if is_long() {
        ("ttl = \"15s\"\nrenew_every = \"5s\"\n".to_owned(), [10, 5].map(Duration::from_secs))
    } else {
        (SHORT.to_owned(), [Duration::ZERO; 2])
    };
    let stage = Stage::postgres(&settings).await;
    let redis = Redis::start();
    let mut a = stage.node("a", &redis.address()).await;
    tokio::time::sleep(waits[0]).await;
    a.leads().await;
    reports_leader(&a, "a").await;
    a.running.kill();
    let killed = Instant::now();
    tokio::time::sleep(waits[1]).await;
    let b = stage.node("b", &redis.address()).await;
    print_times("the failover of the plan: B leads after", vec![b.leads_within(PATIENCE, killed).await]);
    reports_leader(&b, "b").await;
    let (log_a, log_b) = (epochs_in(&a), epochs_in(&b));
    assert!(!log_a.is_empty() && !log_b.is_empty(), "{}\n{}", a.log(), b.log());
    // B's terms begin after A's: A was dead before B began.
    assert!(log_a.iter().max() < log_b.iter().min(), "{log_a:?} {log_b:?}");
    stage.close().await;
}

async fn reports_leader(node: &Node, leader: &str) {
    for path in ["/healthz", "/readyz"] {
        let report = node.says(path).await.unwrap_or_else(|| panic!("no answer at {path}"));
        assert_eq!((report.epoch.is_some(), report.leader.as_deref()), (true, Some(leader)), "{path}");
    }
}

/// The epochs with which a node became leader, by its log.
fn epochs_in(node: &Node) -> Vec<u64> {
    let epoch = |line: &str| {
        let (_, rest) = line.split_once("epoch")?;
        rest.chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect::<String>()
            .parse()
            .ok()
    };
    node.log().lines().filter(|line| line.contains("became leader")).filter_map(epoch).collect()
}
