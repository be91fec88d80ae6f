//! awa.

use std::time::Duration;

use anyhow::Result;
use awa::{
    Client, ClientBuilder, InsertOpts, JobArgs, JobResult, QueueConfig, QueueStorage, QueueStorageConfig,
};
use peer_kit::{Operation, faults};
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
    run(client(pool, queue)).await
}

fn client(pool: PgPool, queue: QueueConfig) -> ClientBuilder {
    Client::builder(pool).queue(QUEUE, queue).register::<Noop, _, _>(|job, _| async move {
        peer_kit::handle(job.id).await;
        Ok(JobResult::Completed)
    })
}

async fn run(client: ClientBuilder) -> Result<()> {
    let client = client.build()?;
    client.start().await?;
    std::future::pending().await
}

/// Only a leader rescues, and a worker that was killed may have been it: the next one is elected as promptly.
async fn worker_under_faults(pool: PgPool) -> Result<()> {
    let at_once = u32::try_from(faults::AT_ONCE)?;
    let mut client = client(pool, QueueConfig { max_workers: at_once, ..QueueConfig::default() });
    if faults::rescue_is_prompt() {
        client = client
            .heartbeat_interval(faults::BEAT)
            .heartbeat_staleness(faults::SILENCE)
            .heartbeat_rescue_interval(faults::BEAT)
            .leader_election_interval(faults::BEAT)
            .leader_check_interval(faults::BEAT);
    }
    run(client).await
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
        Operation::Enqueue => faults::enqueue(jobs, one).await?,
        Operation::Serve => faults::serve(worker_under_faults(pool.clone())).await?,
    }
    std::process::exit(0)
}
