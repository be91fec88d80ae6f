//! Workers killed with SIGKILL at random, and a database that falls over in mid-run, on the real binary.
//!
//! `STARGATE_KILLS` sets the number of kills on each store; the default is for every commit, 1000 for the night.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![expect(clippy::print_stdout, reason = "the figures of the run")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use stargate_queue::event::Event;
use stargate_queue::store::Enqueued;
use stargate_queue::{NewJob, SharedStore, State};
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::cluster::Cluster;
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::process::{Program, Running};

const WORKERS: usize = 3;
const JOBS_A_KILL: usize = 8;
const LEASE: Duration = Duration::from_secs(2);
/// Recovery begins no later than this after the lease ran out.
const RECOVERY_MAX: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(90);

/// Runs long enough to be caught in the middle, and leaves a trace that no store can touch.
const CONFIG: &str = r#"
[kinds."step"]
exec = ["sh", "-c", "echo $STARGATE_JOB_ID >> runs.log; sleep 0.04"]
max_attempts = 1000
max_crashes = 1000
backoff = "10ms"
"#;

fn kills() -> usize {
    std::env::var("STARGATE_KILLS").ok().and_then(|number| number.parse().ok()).unwrap_or(20)
}

fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_stargate"))
        .with("HEARTBEAT_INTERVAL_SEC", "0.25")
        .with("LEASE_TIMEOUT_SEC", LEASE.as_secs().to_string())
        // The kills keep both cores busy; pausing under load is another test's business.
        .with("LOAD_THRESHOLD", "1000");
    std::fs::write(program.home().join("stargate.toml"), CONFIG).unwrap();
    program
}

async fn ready_worker(program: &Program) -> Running {
    let mut worker = program.start(&["worker"]);
    worker.ready().await;
    worker
}

async fn enqueue(store: &SharedStore, count: usize) -> Vec<Enqueued> {
    let jobs = (0..count).map(|n| NewJob::of("step", &json!({ "n": n })).unwrap()).collect();
    store.enqueue(jobs).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_killed_at_random_lose_nothing_on_sqlite() {
    let program = program();
    let worker = ready_worker(&program).await;
    let path = program.home().join("stargate.db");
    let store: SharedStore = Arc::new(Sqlite::open(&path, sqlite::Options::default()).await.unwrap());
    killed_at_random(&program, worker, &store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_killed_at_random_lose_nothing_on_postgres() {
    let options = || postgres::Options { migrate: true, ..postgres::Options::default() };
    let database = Database::create(async |url: String| {
        Postgres::connect(&url, options()).await.unwrap();
    })
    .await;
    let program = program().with("STARGATE_STORE", database.url());
    let worker = ready_worker(&program).await;
    let store: SharedStore = Arc::new(Postgres::connect(database.url(), options()).await.unwrap());
    killed_at_random(&program, worker, &store).await;
    drop((program, store));
    database.remove().await;
}

async fn killed_at_random(program: &Program, first: Running, store: &SharedStore) {
    let mut workers = vec![first];
    while workers.len() < WORKERS {
        workers.push(ready_worker(program).await);
    }
    let mut jobs = Vec::new();
    let mut killed_at: HashMap<u32, Timestamp> = HashMap::new();
    for kill in 0..kills() {
        jobs.extend(enqueue(store, JOBS_A_KILL).await);
        // The moment of the kill is to be a random one.
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..150))).await;
        let victim = &mut workers[kill % WORKERS];
        victim.kill();
        killed_at.insert(victim.id(), store.now().await.unwrap());
        *victim = program.start(&["worker"]);
    }
    all_done(store, &jobs).await;
    let mut recoveries = Vec::new();
    for job in &jobs {
        recoveries.extend(check_timeline(store, *job, &killed_at).await);
    }
    let runs = std::fs::read_to_string(program.home().join("runs.log")).unwrap();
    for job in &jobs {
        assert!(runs.lines().any(|line| line == job.id.to_string()), "job {} is done but never ran", job.id);
    }
    recoveries.sort_unstable();
    let slowest = recoveries.last().expect("no kill hit a running job: the test shows nothing");
    let late = recoveries.iter().filter(|took| **took > LEASE + RECOVERY_MAX).count();
    println!(
        "{} jobs, {} kills, {} recoveries: none lost, none completed twice; the slowest after {slowest:?}, {late} later than promised",
        jobs.len(),
        kills(),
        recoveries.len()
    );
}

async fn all_done(store: &SharedStore, jobs: &[Enqueued]) {
    eventually(PATIENCE, "all jobs to be done", || async {
        for job in jobs {
            let job = store.job(job.id).await.unwrap().ok_or_else(|| format!("job {} is gone", job.id))?;
            if job.state != State::Done {
                return Err(format!("{job:?}"));
            }
        }
        Ok(())
    })
    .await;
}

/// One end and no gap. Answers how long after the kill each recovery came; on a machine that does other things as well
/// that is a figure, not a verdict.
async fn check_timeline(
    store: &SharedStore,
    job: Enqueued,
    killed_at: &HashMap<u32, Timestamp>,
) -> Vec<Duration> {
    let events = store.events(job.id, 0, 10_000).await.unwrap();
    let names: Vec<&str> = events.iter().map(|event| event.event.as_str()).collect();
    assert!(
        events.iter().map(|event| event.seq).eq(1..=events.len() as u32),
        "job {}: a gap in {names:?}",
        job.id
    );
    assert_eq!(names.iter().filter(|name| **name == "done").count(), 1, "job {}: {names:?}", job.id);
    assert_eq!(names.last(), Some(&"done"), "job {}: {names:?}", job.id);
    let recoveries = events.iter().filter(|event| event.event == "requeued:stale");
    let took = |recovery: &Event| {
        let data: serde_json::Value = serde_json::from_str(recovery.data.get()).unwrap();
        let worker = data["worker"].as_str().unwrap();
        let process: u32 =
            worker.split(':').nth(1).and_then(|id| id.parse().ok()).expect("host:process:random");
        let killed = killed_at
            .get(&process)
            .unwrap_or_else(|| panic!("{worker} was not killed, yet lost job {}", job.id));
        recovery.at.duration_since(*killed).unsigned_abs()
    };
    recoveries.map(took).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_falls_over_in_mid_run_loses_nothing_and_the_worker_lives_on() {
    let cluster = Cluster::start();
    let program = program().with("STARGATE_STORE", cluster.url());
    let mut worker = ready_worker(&program).await;
    let options = postgres::Options { migrate: true, ..postgres::Options::default() };
    let store: SharedStore = Arc::new(Postgres::connect(&cluster.url(), options).await.unwrap());
    let jobs = enqueue(&store, 200).await;
    eventually(PATIENCE, "a job in progress", || async {
        let held: u64 = store.queues().await.unwrap().iter().map(|queue| queue.processing).sum();
        if held > 0 { Ok(()) } else { Err("none held".into()) }
    })
    .await;
    for _ in 0..3 {
        cluster.crash();
        cluster.up();
    }
    // The connections of this test were cut as well; the store makes new ones.
    eventually(PATIENCE, "an answer of the restarted database", || async {
        store.check().await.map_err(|error| error.to_string())
    })
    .await;
    all_done(&store, &jobs).await;
    assert!(worker.is_running(), "the worker ended; its log:\n{}", worker.log());
    worker.terminate();
    assert!(worker.ended(PATIENCE).await.success(), "{}", worker.log());
}
