//! apalis on Postgres.

use std::time::Duration;

use anyhow::{Result, anyhow};
use apalis::layers::WorkerBuilderExt as _;
use apalis::prelude::{BoxDynError, ParallelizeExt as _, TaskBuilder, TaskSink as _, WorkerBuilder};
use apalis_postgres::{Config, PgPool, PostgresStorage};
use peer_kit::{Operation, faults};

const QUEUE: &str = "noop";

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Noop {
    id: u64,
}

async fn noop(job: Noop) -> Result<(), BoxDynError> {
    peer_kit::handle(job.id).await;
    Ok(())
}

/// On a thread of its own: the compiler does not see that a worker with handlers on tasks may move between threads.
async fn worker(pool: PgPool) -> Result<()> {
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(run(pool))).await?
}

async fn run(pool: PgPool) -> Result<()> {
    let config = Config::default().queue(QUEUE);
    let storage = PostgresStorage::<Noop>::new(&pool);
    let batch = match peer_kit::settings().as_str() {
        "default" => {
            let worker = WorkerBuilder::new("bench").backend(storage.with_config(config)).build(noop);
            return worker.run().await.map_err(|error| anyhow!("{error}"));
        }
        // That of its own example with a larger one, which is faster.
        "batches of 500" => 500,
        _ => 100,
    };
    // Its example `basic`: batches, no lock for each task, notifications, handlers on tasks of their own.
    let config = config.batch_size(batch).lock_tasks(false);
    let config = config.heartbeat_interval(Duration::from_secs(1)).missed_heartbeats(10);
    let worker = WorkerBuilder::new("bench")
        .backend(storage.with_config(config).with_pubsub())
        .parallelize(tokio::spawn)
        .build(noop);
    worker.run().await.map_err(|error| anyhow!("{error}"))
}

/// Under a name that no worker before it had: one that is started again under the same name is taken for the dead one, and
/// keeps its jobs locked.
async fn worker_under_faults(pool: &PgPool) -> Result<()> {
    let mut config = Config::default().queue(QUEUE);
    if faults::rescue_is_prompt() {
        let missed = faults::SILENCE.as_secs() / faults::BEAT.as_secs();
        config = config.heartbeat_interval(faults::BEAT).missed_heartbeats(usize::try_from(missed)?);
    }
    let worker = WorkerBuilder::new(format!("worker-{}", std::process::id()))
        .backend(PostgresStorage::<Noop>::new(pool).with_config(config))
        .concurrency(faults::AT_ONCE)
        .build(noop);
    worker.run().await.map_err(|error| anyhow!("{error}"))
}

async fn enqueue_many(pool: &PgPool, ids: Vec<u64>) -> Result<()> {
    let tasks = ids
        .into_iter()
        .map(|id| Ok(TaskBuilder::new(serde_json::to_vec(&Noop { id })?).build()))
        .collect::<Result<Vec<_>>>()?;
    let mut transaction = pool.begin().await?;
    apalis_postgres::queries::push_tasks(&mut *transaction, QUEUE, tasks).await?;
    transaction.commit().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let (operation, jobs) = peer_kit::arguments()?;
    let pool = &PgPool::connect(&peer_kit::url()?).await?;
    let storage = PostgresStorage::<Noop>::new(pool).with_config(Config::default().queue(QUEUE));
    let one = |id| {
        let mut storage = storage.clone();
        async move { storage.push(Noop { id }).await.map_err(|error| anyhow!("{error}")) }
    };
    match operation {
        Operation::Setup => PostgresStorage::setup(pool).await?,
        Operation::Insert => peer_kit::insert(jobs, one, |ids| enqueue_many(pool, ids)).await?,
        Operation::Drain => peer_kit::drain(jobs, worker(pool.clone())).await?,
        Operation::Work => peer_kit::work(jobs, worker(pool.clone())).await?,
        Operation::Produce => peer_kit::produce(jobs, one).await?,
        Operation::Enqueue => faults::enqueue(jobs, one).await?,
        Operation::Serve => faults::serve(worker_under_faults(pool)).await?,
    }
    std::process::exit(0)
}
