//! The job that does nothing, and a pool that runs it with default settings.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use stargate_base::Tasks;
use stargate_queue::pressure::PressureConfig;
use stargate_queue::{Context, Failure, NewJob, Pool, PoolConfig, Profile, Registry, SharedStore};
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use tokio_util::sync::CancellationToken;

/// The kind of the job that does nothing.
pub(crate) const KIND: &str = "bench:noop";

/// Opens `sqlite:PATH` or a Postgres URL.
pub(crate) async fn open(store: &str) -> Result<SharedStore> {
    Ok(match store.strip_prefix("sqlite:") {
        Some(path) => Arc::new(Sqlite::open(Path::new(path), sqlite::Options::default()).await?),
        None => {
            let options = postgres::Options { migrate: true, ..postgres::Options::default() };
            Arc::new(Postgres::connect(store, options).await?)
        }
    })
}

pub(crate) fn registry(on_start: impl Fn(u64) + Send + Sync + 'static) -> Result<Registry> {
    let mut registry = Registry::new();
    let on_start = Arc::new(on_start);
    let noop = move |_: Context, payload: Payload| {
        on_start(payload.id);
        async { Ok::<_, Failure>(()) }
    };
    registry.handle(KIND, Profile::default(), noop)?;
    Ok(registry)
}

/// As small as the rivals' in the same comparison.
#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct Payload {
    pub(crate) id: u64,
}

pub(crate) fn job(id: u64) -> Result<NewJob> {
    Ok(NewJob::of(KIND, &Payload { id })?)
}

/// Enqueues in batches of 1,000; answers jobs per second.
pub(crate) async fn insert(store: &SharedStore, jobs: usize) -> Result<f64> {
    store.kinds_register(registry(|_| ())?.specs()).await?;
    let began = Instant::now();
    for start in (0..jobs).step_by(1000) {
        let batch = (start..jobs.min(start + 1000)).map(|id| job(id as u64)).collect::<Result<Vec<_>>>()?;
        store.enqueue(batch).await?;
    }
    Ok(jobs as f64 / began.elapsed().as_secs_f64())
}

/// Enqueues single jobs, each as soon as the one before is answered; answers jobs per second.
pub(crate) async fn enqueue_awaited(store: &SharedStore, warm_up: usize, jobs: usize) -> Result<f64> {
    for id in 0..warm_up {
        store.enqueue(vec![job(id as u64)?]).await?;
    }
    let began = Instant::now();
    for id in 0..jobs {
        store.enqueue(vec![job(id as u64)?]).await?;
    }
    Ok(jobs as f64 / began.elapsed().as_secs_f64())
}

/// Default settings, except that claiming never pauses: the load average still remembers the runs before this one.
pub(crate) fn config() -> PoolConfig {
    let pressure = PressureConfig { load_threshold: f64::MAX, ..PressureConfig::default() };
    PoolConfig { pressure, ..PoolConfig::default() }
}

/// Runs the whole backlog with default settings, from the first start until the store itself says that nothing is
/// left; answers jobs per second.
pub(crate) async fn drain(store: &SharedStore, jobs: usize) -> Result<f64> {
    let first = Arc::new(std::sync::OnceLock::new());
    let started = Arc::new(AtomicUsize::new(0));
    let (begin, count) = (first.clone(), started.clone());
    let registry = registry(move |_| {
        begin.get_or_init(Instant::now);
        count.fetch_add(1, Ordering::Relaxed);
    })?;
    let stop = CancellationToken::new();
    let tasks = Tasks::new();
    let pool = Pool::start(store.clone(), registry, config()).await?;
    tasks.spawn(pool.run(stop.clone()));
    while started.load(Ordering::Relaxed) < jobs || unfinished(store).await? > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = first.get().context("no job started")?.elapsed();
    stop.cancel();
    tasks.join().await;
    Ok(jobs as f64 / took.as_secs_f64())
}

pub(crate) async fn unfinished(store: &SharedStore) -> Result<u64> {
    Ok(store
        .queues()
        .await?
        .iter()
        .map(|queue| queue.ready + queue.delayed + queue.blocked + queue.processing)
        .sum())
}
