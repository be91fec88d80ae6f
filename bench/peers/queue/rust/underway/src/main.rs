//! underway.

use std::sync::Arc;

use anyhow::Result;
use jiff::ToSpan as _;
use peer_kit::Operation;
use sqlx_08::postgres::PgPoolOptions;
use sqlx_08::{Postgres, Transaction};
use underway::{Queue, Task, Worker};

#[derive(serde::Serialize, serde::Deserialize)]
struct Input {
    id: u64,
}

struct Noop;

impl Task for Noop {
    type Input = Input;
    type Output = ();

    async fn execute(&self, _: Transaction<'_, Postgres>, input: Input) -> underway::task::Result<()> {
        peer_kit::started(input.id);
        Ok(())
    }
}

async fn worker(queue: Arc<Queue<Noop>>) -> Result<()> {
    let mut worker = Worker::new(queue, Noop);
    if peer_kit::settings() == "default" {
        return Ok(worker.run().await?);
    }
    // A loop is started with each look, so a look must come often for the limit to be reached.
    worker.set_concurrency_limit(16);
    Ok(worker.run_every(10.milliseconds()).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let (operation, jobs) = peer_kit::arguments()?;
    let connections = if peer_kit::settings() == "default" { 10 } else { 36 };
    let pool = &PgPoolOptions::new().max_connections(connections).connect(&peer_kit::url()?).await?;
    if let Operation::Setup = operation {
        underway::run_migrations(pool).await?;
    }
    let queue: Arc<Queue<Noop>> = Arc::new(Queue::builder().name("noop").pool(pool.clone()).build().await?);
    let queue = &queue;
    let one = |id| async move {
        queue.enqueue(pool, &Noop, &Input { id }).await?;
        Ok(())
    };
    let many = |ids: Vec<u64>| async move {
        let inputs: Vec<Input> = ids.into_iter().map(|id| Input { id }).collect();
        queue.enqueue_multi(pool, &Noop, &inputs).await?;
        Ok(())
    };
    match operation {
        Operation::Setup => (),
        Operation::Insert => peer_kit::insert(jobs, one, many).await?,
        Operation::Drain => peer_kit::drain(jobs, worker(queue.clone())).await?,
        Operation::Work => peer_kit::work(jobs, worker(queue.clone())).await?,
        Operation::Produce => peer_kit::produce(jobs, one).await?,
    }
    std::process::exit(0)
}
