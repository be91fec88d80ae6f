//! underway.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use jiff::{Span, ToSpan as _};
use peer_kit::{Operation, faults};
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
        peer_kit::handle(input.id).await;
        Ok(())
    }

    /// A task whose heartbeat is older than this counts as stalled. It is stored with the task when that is enqueued.
    fn heartbeat(&self) -> Span {
        if faults::rescue_is_prompt() { span(faults::SILENCE) } else { 30.seconds() }
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

fn span(time: Duration) -> Span {
    Span::try_from(time).expect("a few seconds are a span")
}

/// Each look of a worker adds one task to those that run at once, and by default it looks once a minute. So there are as
/// many workers as tasks are to run at once.
async fn workers_under_faults(queue: Arc<Queue<Noop>>) -> Result<()> {
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..faults::AT_ONCE {
        let mut worker = Worker::new(queue.clone(), Noop);
        worker.set_concurrency_limit(1);
        workers.spawn(async move {
            if faults::rescue_is_prompt() {
                worker.run_every(span(faults::BEAT)).await
            } else {
                worker.run().await
            }
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(())
}

/// A worker keeps two connections to listen; a task needs one and now and then a second.
fn connections(operation: &Operation) -> Result<u32> {
    Ok(match operation {
        Operation::Serve => u32::try_from(4 * faults::AT_ONCE)?,
        _ if peer_kit::settings() == "default" => 10,
        _ => 36,
    })
}

#[tokio::main]
async fn main() -> Result<()> {
    let (operation, jobs) = peer_kit::arguments()?;
    let pool =
        &PgPoolOptions::new().max_connections(connections(&operation)?).connect(&peer_kit::url()?).await?;
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
        Operation::Enqueue => faults::enqueue(jobs, one).await?,
        Operation::Serve => faults::serve(workers_under_faults(queue.clone())).await?,
    }
    std::process::exit(0)
}
