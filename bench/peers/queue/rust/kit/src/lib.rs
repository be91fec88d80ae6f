//! What every peer does the same way: the clock, the counting, and the answers on stdout.
//!
//! A peer is started with an operation and a number of jobs. The environment says the rest: `DATABASE_URL`,
//! `PEER_SETTINGS` (`default` or a name of better ones), `PEER_LEFT` (SQL that counts what is not done) and
//! `PEER_BOUND_SEC`. `kit.mjs` and the program for procrastinate answer the same.
//!
//! Two operations, `enqueue` and `serve`, are for the comparison under faults, and [`faults`] has them.

pub mod faults;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Jobs in one call, where there is a call for many.
const BATCH: u64 = 1000;
/// Jobs that are timed when they are enqueued one by one.
const SINGLY: u64 = 1000;
const GAP: Duration = Duration::from_millis(20);

static STARTED: AtomicU64 = AtomicU64::new(0);
static FIRST: OnceLock<Instant> = OnceLock::new();
/// When each job started; kept where that is asked for.
static STARTS: OnceLock<Mutex<HashMap<u64, f64>>> = OnceLock::new();

/// What is asked for.
pub enum Operation {
    Setup,
    Insert,
    Drain,
    Work,
    Produce,
    Enqueue,
    Serve,
}

/// The operation and its number of jobs.
pub fn arguments() -> Result<(Operation, u64)> {
    let mut words = std::env::args().skip(1);
    let operation = match words.next().as_deref() {
        Some("setup") => Operation::Setup,
        Some("insert") => Operation::Insert,
        Some("drain") => Operation::Drain,
        Some("work") => Operation::Work,
        Some("produce") => Operation::Produce,
        Some("enqueue") => Operation::Enqueue,
        Some("serve") => Operation::Serve,
        other => anyhow::bail!("no such operation: {other:?}"),
    };
    Ok((operation, words.next().map_or(Ok(0), |number| number.parse())?))
}

pub fn url() -> Result<String> {
    variable("DATABASE_URL")
}

/// `default`, or the name of better ones.
pub fn settings() -> String {
    variable("PEER_SETTINGS").unwrap_or_else(|_| "default".to_owned())
}

fn variable(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set"))
}

fn bound() -> Result<Duration> {
    Ok(Duration::from_secs(variable("PEER_BOUND_SEC")?.parse()?))
}

/// The machine's clock, which other processes read as well.
fn monotonic_ms() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// All that a handler does: in the benchmark the start is noted, under faults there is some work.
pub async fn handle(id: u64) {
    match faults::effects() {
        None => started(id),
        Some(effects) => faults::step(effects, id).await,
    }
}

fn started(id: u64) {
    FIRST.get_or_init(Instant::now);
    if let Some(starts) = STARTS.get() {
        starts.lock().unwrap().entry(id).or_insert_with(monotonic_ms);
    }
    STARTED.fetch_add(1, Ordering::Relaxed);
}

/// Runs a worker until the database says that nothing is left, or the bound has passed.
pub async fn drain(jobs: u64, worker: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let begun = Instant::now();
    // On tasks of their own, so that a timer of one never wakes the other.
    let watch = tokio::spawn(watch(jobs, begun));
    tokio::spawn(stop_on_failure(worker));
    let (left, end) = watch.await??;
    let seconds = (end - *FIRST.get().unwrap_or(&begun)).as_secs_f64();
    println!("{}", serde_json::json!({ "jobs": jobs - left, "seconds": seconds }));
    Ok(())
}

/// What is left, and when that was known.
async fn watch(jobs: u64, begun: Instant) -> Result<(u64, Instant)> {
    let (client, connection) = tokio_postgres::connect(&url()?, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    let (bound, question) = (bound()?, variable("PEER_LEFT")?);
    loop {
        let late = FIRST.get().unwrap_or(&begun).elapsed() > bound;
        if late || STARTED.load(Ordering::Relaxed) >= jobs {
            let left: i64 = client.query_one(&question, &[]).await?.get(0);
            if late || left == 0 {
                return Ok((u64::try_from(left)?, Instant::now()));
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn stop_on_failure(worker: impl Future<Output = Result<()>>) {
    if let Err(error) = worker.await {
        eprintln!("the worker failed: {error:#}");
        std::process::exit(1);
    }
}

/// Runs a worker until so many jobs have started, or the bound has passed, and says when each did.
pub async fn work(jobs: u64, worker: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let starts = STARTS.get_or_init(Mutex::default);
    let (begun, bound) = (Instant::now(), bound()?);
    tokio::spawn(stop_on_failure(worker));
    println!("READY");
    while (starts.lock().unwrap().len() as u64) < jobs && begun.elapsed() < bound {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let starts: Vec<(u64, f64)> = starts.lock().unwrap().iter().map(|(id, at)| (*id, *at)).collect();
    println!("{}", serde_json::json!({ "times": starts }));
    Ok(())
}

/// Enqueues jobs one by one, some time apart, and says when each call returned.
pub async fn produce<F: Future<Output = Result<()>>>(jobs: u64, mut one: impl FnMut(u64) -> F) -> Result<()> {
    let mut returned = Vec::new();
    for id in 0..jobs {
        tokio::time::sleep(GAP).await;
        one(id).await?;
        returned.push((id, monotonic_ms()));
    }
    println!("{}", serde_json::json!({ "times": returned }));
    Ok(())
}

/// Enqueues and takes the time: one by one with default settings, as most users do, and in batches with others.
pub async fn insert<F, G>(
    jobs: u64,
    mut one: impl FnMut(u64) -> F,
    mut many: impl FnMut(Vec<u64>) -> G,
) -> Result<()>
where
    F: Future<Output = Result<()>>,
    G: Future<Output = Result<()>>,
{
    let singly = if settings() == "default" { jobs.min(SINGLY) } else { 0 };
    let began = Instant::now();
    for id in 0..singly {
        one(id).await?;
    }
    let mut took = (singly, began.elapsed());
    for start in (singly..jobs).step_by(BATCH as usize) {
        many((start..jobs.min(start + BATCH)).collect()).await?;
    }
    if singly == 0 {
        took = (jobs, began.elapsed());
    }
    println!("{}", serde_json::json!({ "jobs": took.0, "seconds": took.1.as_secs_f64() }));
    Ok(())
}
