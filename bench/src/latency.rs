//! From the acknowledged enqueue to the start of the handler.
//!
//! Both ends read the machine's monotonic clock, so that two processes can be compared. The enqueue counts as
//! acknowledged when its call returns; a start can come before that, and then counts as negative.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use stargate_base::Tasks;
use stargate_queue::{Pool, SharedStore};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio_util::sync::CancellationToken;

use crate::report::{Goal, line, percentile};
use crate::{noop, raw};

const WARM_UP: usize = 20;
/// Jobs that are started one by one; the first of them warm up and do not count.
pub(crate) const JOBS: usize = 200 + WARM_UP;
pub(crate) const GAP: Duration = Duration::from_millis(20);

pub(crate) type Starts = Arc<Mutex<Vec<(u64, f64)>>>;

pub(crate) fn monotonic_ms() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// Enqueues single jobs and prints when each call returned.
pub(crate) async fn produce(store: &str, jobs: usize) -> Result<()> {
    let returned = match store.strip_prefix("raw:") {
        Some(url) => raw::enqueue_singly(url, jobs).await?,
        None => enqueue_singly(&noop::open(store).await?, jobs).await?,
    };
    for (id, returned) in returned {
        println!("{id} {returned}");
    }
    Ok(())
}

async fn enqueue_singly(store: &SharedStore, jobs: usize) -> Result<Vec<(u64, f64)>> {
    let mut returned = Vec::with_capacity(jobs);
    for id in 0..jobs as u64 {
        tokio::time::sleep(GAP).await;
        store.enqueue(vec![noop::job(id)?]).await?;
        returned.push((id, monotonic_ms()));
    }
    Ok(returned)
}

/// An idle pool with default settings that notes when jobs start.
async fn idle_pool(store: &SharedStore) -> Result<(Starts, CancellationToken, Tasks)> {
    let starts = Starts::default();
    let noted = starts.clone();
    let registry = noop::registry(move |id| noted.lock().unwrap().push((id, monotonic_ms())))?;
    let pool = Pool::start(store.clone(), registry, noop::config()).await?;
    let (stop, tasks) = (CancellationToken::new(), Tasks::new());
    tasks.spawn(pool.run(stop.clone()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok((starts, stop, tasks))
}

pub(crate) async fn in_process(store: &str, p50: &Goal) -> Result<()> {
    let store = noop::open(store).await?;
    let (starts, stop, tasks) = idle_pool(&store).await?;
    let returned = enqueue_singly(&store, JOBS).await?;
    print("in process", &mut all_started(&returned, &starts).await?, p50, &Goal::None);
    stop.cancel();
    tasks.join().await;
    Ok(())
}

pub(crate) async fn across_processes(url: &str, p50: &Goal, p99: &Goal) -> Result<()> {
    print("across processes", &mut measured_across_processes(url).await?, p50, p99);
    Ok(())
}

/// How long each job waited for its start, with the producer in another process.
pub(crate) async fn measured_across_processes(url: &str) -> Result<Vec<f64>> {
    let store = noop::open(url).await?;
    let (starts, stop, tasks) = idle_pool(&store).await?;
    let returned = produced_elsewhere(url).await?;
    let waits = all_started(&returned, &starts).await?;
    stop.cancel();
    tasks.join().await;
    Ok(waits)
}

/// The same with the raw client on both sides.
pub(crate) async fn raw_across_processes(url: &str) -> Result<()> {
    let starts = Starts::default();
    let tasks = Tasks::new();
    let worker = tasks.spawn(raw::listen_and_claim(url.to_owned(), starts.clone()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let returned = produced_elsewhere(&format!("raw:{url}")).await?;
    let mut waits = all_started(&returned, &starts).await?;
    print("across processes, raw client", &mut waits, &Goal::None, &Goal::None);
    worker.abort();
    Ok(())
}

/// Has another process enqueue single jobs; answers when each call returned.
async fn produced_elsewhere(store: &str) -> Result<Vec<(u64, f64)>> {
    #[expect(clippy::disallowed_methods, reason = "the producer must be another process")]
    let mut child = tokio::process::Command::new(std::env::current_exe()?)
        .args(["producer", store, &(JOBS).to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut returned = Vec::new();
    while let Some(text) = lines.next_line().await? {
        let (id, at) = text.split_once(' ').context("a malformed line")?;
        returned.push((id.parse()?, at.parse()?));
    }
    child.wait().await?;
    Ok(returned)
}

async fn all_started(returned: &[(u64, f64)], starts: &Starts) -> Result<Vec<f64>> {
    while starts.lock().unwrap().len() < returned.len() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let waits = waits(returned, &starts.lock().unwrap());
    anyhow::ensure!(waits.iter().all(|wait| wait.is_finite()), "a job never started");
    Ok(waits)
}

/// From each answered enqueue to the start of its job; infinite where there was none.
pub(crate) fn waits(returned: &[(u64, f64)], starts: &[(u64, f64)]) -> Vec<f64> {
    let starts: std::collections::HashMap<u64, f64> = starts.iter().copied().collect();
    let wait = |(id, at): &(u64, f64)| starts.get(id).map_or(f64::INFINITY, |start| start - at);
    returned[WARM_UP.min(returned.len())..].iter().map(wait).collect()
}

fn print(what: &str, waits: &mut [f64], p50: &Goal, p99: &Goal) {
    line(&format!("start {what}, p50"), percentile(waits, 50), "ms", p50);
    line(&format!("start {what}, p99"), percentile(waits, 99), "ms", p99);
}
