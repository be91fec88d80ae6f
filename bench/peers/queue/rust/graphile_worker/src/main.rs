//! graphile_worker, the crate.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use graphile_worker::{
    Database, IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext,
    WorkerOptions, WorkerUtils,
};
use peer_kit::{Operation, faults};

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Noop {
    id: u64,
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _: WorkerContext) -> impl IntoTaskHandlerResult {
        peer_kit::handle(self.id).await;
        Ok::<(), String>(())
    }
}

async fn worker() -> Result<()> {
    let options = WorkerOptions::default().database_url(&peer_kit::url()?).define_job::<Noop>();
    let soon = Duration::from_millis(5);
    let options = match peer_kit::settings().as_str() {
        // The "throughput-oriented worker" of its documentation.
        "best" => options
            .concurrency(16)
            .poll_interval(Duration::from_millis(500))
            .complete_job_batch_delay(soon)
            .fail_job_batch_delay(soon)
            .local_queue(LocalQueueConfig::default().with_size(100).with_ttl(Duration::from_secs(60))),
        // Those of its own benchmark.
        "own benchmark" => options
            .concurrency(500)
            .poll_interval(soon)
            .complete_job_batch_delay(soon)
            .fail_job_batch_delay(soon)
            .local_queue(LocalQueueConfig::default().with_size(5000)),
        _ => options,
    };
    Arc::new(options.init().await?).run().await?;
    Ok(())
}

/// By default a worker that finds a backlog begins as many jobs as may run at once and looks again a second later, and what
/// would be measured is that: it looks twice as often, as in its documentation.
/// Recovery is off unless one of its times is set. A job that was recovered may run at once.
async fn worker_under_faults() -> Result<()> {
    let options = WorkerOptions::default().database_url(&peer_kit::url()?).define_job::<Noop>();
    let mut options = options.concurrency(faults::AT_ONCE).poll_interval(Duration::from_millis(500));
    if faults::rescue_is_prompt() {
        options = options
            .heartbeat_interval(faults::BEAT)
            .sweep_interval(faults::BEAT)
            .sweep_threshold(faults::SILENCE)
            .recovery_delay(Duration::ZERO);
    }
    Arc::new(options.init().await?).run().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let (operation, jobs) = peer_kit::arguments()?;
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(4).connect(&peer_kit::url()?).await?;
    let utils = &WorkerUtils::new(Database::from(pool), "graphile_worker");
    let one = |id| async move {
        utils.add_job(Noop { id }, JobSpec::default()).await?;
        Ok(())
    };
    let many = |ids: Vec<u64>| async move {
        let job = |id| RawJobSpec {
            identifier: "noop".into(),
            payload: serde_json::json!({ "id": id }),
            spec: JobSpec::default(),
        };
        utils.add_raw_jobs(&ids.into_iter().map(job).collect::<Vec<_>>()).await?;
        Ok(())
    };
    match operation {
        Operation::Setup => utils.migrate().await?,
        Operation::Insert => peer_kit::insert(jobs, one, many).await?,
        Operation::Drain => peer_kit::drain(jobs, worker()).await?,
        Operation::Work => peer_kit::work(jobs, worker()).await?,
        Operation::Produce => peer_kit::produce(jobs, one).await?,
        Operation::Enqueue => faults::enqueue(jobs, one).await?,
        Operation::Serve => faults::serve(worker_under_faults()).await?,
    }
    std::process::exit(0)
}
