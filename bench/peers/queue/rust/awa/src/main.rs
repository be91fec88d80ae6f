//! awa.

use std::time::Duration;

use anyhow::Result;
use awa::{Client, InsertOpts, JobArgs, JobResult, QueueConfig, QueueStorage, QueueStorageConfig};
use peer_kit::Operation;
use sqlx_08::PgPool;
use sqlx_08::postgres::PgPoolOptions;

const QUEUE: &str = "noop";
/// Those of its own benchmark at a fixed rate.
const CONNECTIONS: u32 = 24;
const WORKERS: u32 = 1024;

#[derive(Debug, serde::Serialize, serde::Deserialize, JobArgs)]
struct Noop {
    id: u64,
}

fn options() -> InsertOpts {
    InsertOpts { queue: QUEUE.into(), ..Default::default() }
}

async fn worker(pool: PgPool) -> Result<()> {
    let queue = match peer_kit::settings().as_str() {
        "default" => QueueConfig::default(),
        _ => QueueConfig {
            max_workers: WORKERS,
            poll_interval: Duration::from_millis(50),
            deadline_duration: Duration::ZERO,
            ..QueueConfig::default()
        },
    };
    let client = Client::builder(pool)
        .queue(QUEUE, queue)
        .register::<Noop, _, _>(|job, _| async move {
            peer_kit::started(job.id);
            Ok(JobResult::Completed)
        })
        .build()?;
    client.start().await?;
    std::future::pending().await
}

async fn setup(pool: &PgPool, store: &QueueStorage) -> Result<()> {
    awa::migrations::run(pool).await?;
    // What the first worker would do: jobs are there before it is.
    store.install(pool).await?;
    Ok(())
}

/// The call that its documentation recommends for many.
async fn enqueue_many(pool: &PgPool, store: &QueueStorage, ids: Vec<u64>) -> Result<()> {
    let jobs = ids
        .into_iter()
        .map(|id| awa::model::insert::params_with(&Noop { id }, options()))
        .collect::<Result<Vec<_>, _>>()?;
    store.enqueue_params_copy(pool, &jobs).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let (operation, jobs) = peer_kit::arguments()?;
    let pool = match peer_kit::settings().as_str() {
        "default" => PgPool::connect(&peer_kit::url()?).await?,
        _ => PgPoolOptions::new().max_connections(CONNECTIONS).connect(&peer_kit::url()?).await?,
    };
    let (pool, store) = (&pool, &QueueStorage::new(QueueStorageConfig::default())?);
    let one = |id| async move {
        awa::insert_with(pool, &Noop { id }, options()).await?;
        Ok(())
    };
    match operation {
        Operation::Setup => setup(pool, store).await?,
        Operation::Insert => peer_kit::insert(jobs, one, |ids| enqueue_many(pool, store, ids)).await?,
        Operation::Drain => peer_kit::drain(jobs, worker(pool.clone())).await?,
        Operation::Work => peer_kit::work(jobs, worker(pool.clone())).await?,
        Operation::Produce => peer_kit::produce(jobs, one).await?,
    }
    std::process::exit(0)
}
