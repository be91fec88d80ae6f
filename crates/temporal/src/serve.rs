//! Workers: what polls the queues and executes workflows and activities.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join;
use stargate_base::chain;
use temporalio_common::telemetry::TelemetryOptions;
use temporalio_common::telemetry::metrics::CoreMeter;
use temporalio_common::worker::WorkerDeploymentOptions;
use temporalio_sdk::runtime::RuntimeOptions;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::activities::{Activities, Host};
use crate::cluster::Cluster;
use crate::error::{Error, Result};
use crate::metrics::Bridge;
use crate::workflow::{DirectiveWorkflow, ScheduledWorkflow};
use crate::{search, steps_queue};

/// Histories are written by code of this version; without it the program would be read to make one.
const BUILD_ID: &str = env!("CARGO_PKG_VERSION");
/// At most so long a heartbeat of an activity is kept back; in its answer the activity is told to stop.
const HEARTBEAT_THROTTLE_MAX: Duration = Duration::from_secs(1);
/// How long a workflow's task waits for the worker that knows the workflow before another gets it.
const STICKY_MAX: Duration = Duration::from_secs(5);
/// Workflows that a worker keeps in memory.
const WORKFLOWS_CACHED_MAX: usize = 200;
/// Tasks of workflows that a worker executes at once; they only decide.
const WORKFLOW_TASKS_MAX: usize = 20;
/// Queues of one process; each has a thread.
const QUEUES_MAX: usize = 64;

const ACTIVITIES_MAX: usize = 10;
const PAGES_PER_ACTIVITY: u64 = 100;
const GRACEFUL: Duration = Duration::from_secs(25);

/// How workers work.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The queues of directives.
    pub queues: Vec<String>,
    /// Stretches that are executed at once, of each queue.
    pub activities_max: usize,
    /// Pages of a stretch.
    pub pages_per_activity: u64,
    /// How long a stretch may take to come to a safe state when the worker stops.
    pub graceful: Duration,
    /// Whether what the SDK measures is recorded with the metrics of the program.
    pub metrics: bool,
    /// Events after which a workflow continues as new; `None` is when the cluster suggests it.
    pub history_events_max: Option<u32>,
}

impl ServeOptions {
    /// The usual, for these queues.
    pub fn new(queues: Vec<String>) -> Self {
        Self {
            queues,
            activities_max: ACTIVITIES_MAX,
            pages_per_activity: PAGES_PER_ACTIVITY,
            graceful: GRACEFUL,
            metrics: false,
            history_events_max: None,
        }
    }
}

/// Works until it is told to stop, or a worker ends by itself.
pub async fn serve(
    cluster: Cluster,
    host: Arc<dyn Host>,
    options: ServeOptions,
    stop: CancellationToken,
) -> Result<()> {
    if options.queues.is_empty() || options.queues.len() > QUEUES_MAX {
        let problem = format!("names {} queues; one to {QUEUES_MAX} can be polled", options.queues.len());
        return Err(Error::Setting { field: "queues", problem });
    }
    let searchable = search::register(&cluster.client, &cluster.place).await;
    let runtime = runtime(options.metrics)?;
    // Ends the others when one ends by itself, and all of them with whoever waits here.
    let stop = stop.child_token();
    let _guard = stop.clone().drop_guard();
    let mut workers = JoinSet::new();
    for queue in &options.queues {
        let steps = Activities {
            host: host.clone(),
            pages_per_activity: options.pages_per_activity.max(1),
            history_events_max: options.history_events_max,
            searchable,
            stop: stop.clone(),
        };
        let workflows = worker(&runtime, &cluster, queue, workflow_worker(queue)?)?;
        let activities = worker(&runtime, &cluster, queue, steps_worker(queue, steps, &options))?;
        spawn(&mut workers, queue, [workflows, activities], stop.clone());
    }
    tracing::info!(
        queues = options.queues.join(", "),
        cluster = cluster.address(),
        "polling the Temporal cluster"
    );
    let mut outcome = Ok(());
    while let Some(ended) = workers.join_next().await {
        stop.cancel();
        outcome = outcome.and(ended.unwrap_or_else(|panic| Err(Error::worker("?", panic))));
    }
    outcome
}

fn runtime(with_metrics: bool) -> Result<Runtime> {
    let telemetry = match with_metrics {
        true => TelemetryOptions::builder().metrics(Arc::new(Bridge) as Arc<dyn CoreMeter>).build(),
        false => TelemetryOptions::default(),
    };
    let wrong = |problem: String| Error::Setting { field: "temporal", problem };
    let options = RuntimeOptions::builder().telemetry_options(telemetry).build().map_err(wrong)?;
    Runtime::from_current_tokio(options).map_err(|error| wrong(chain(&error)))
}

fn worker(runtime: &Runtime, cluster: &Cluster, queue: &str, options: WorkerOptions) -> Result<Worker> {
    Worker::new(runtime, cluster.client.clone(), options).map_err(|error| Error::worker(queue, chain(&error)))
}

/// Polls only for tasks of workflows: activities of this queue belong to other languages.
fn workflow_worker(queue: &str) -> Result<WorkerOptions> {
    let options = WorkerOptions::new(queue)
        .register_workflow::<DirectiveWorkflow>()
        .and_then(|options| options.register_workflow::<ScheduledWorkflow>())
        .map_err(|error| Error::worker(queue, chain(&error)))?;
    Ok(options
        .deployment_options(WorkerDeploymentOptions::from_build_id(BUILD_ID.to_owned()))
        .max_cached_workflows(WORKFLOWS_CACHED_MAX)
        .sticky_queue_schedule_to_start_timeout(STICKY_MAX)
        .tuner(slots(1))
        .build())
}

/// Polls only for our activities.
fn steps_worker(queue: &str, steps: Activities, options: &ServeOptions) -> WorkerOptions {
    WorkerOptions::new(steps_queue(queue))
        .register_activities(steps)
        .deployment_options(WorkerDeploymentOptions::from_build_id(BUILD_ID.to_owned()))
        .max_heartbeat_throttle_interval(HEARTBEAT_THROTTLE_MAX)
        .graceful_shutdown_period(options.graceful)
        .tuner(slots(options.activities_max.max(1)))
        .build()
}

fn slots(activities: usize) -> TunerHolder {
    TunerHolder::builder()
        .workflow_task_slot_supplier(FixedSizeSlotSupplier::new(WORKFLOW_TASKS_MAX))
        .activity_task_slot_supplier(FixedSizeSlotSupplier::new(activities))
        .local_activity_task_slot_supplier(FixedSizeSlotSupplier::new(1))
        .nexus_task_slot_supplier(FixedSizeSlotSupplier::new(1))
        .build()
}

/// Runs the workers of a queue on a thread of their own: they may not move between threads. What they start for
/// activities runs on the threads of the program.
fn spawn(
    threads: &mut JoinSet<Result<()>>,
    queue: &str,
    [mut workflows, mut activities]: [Worker; 2],
    stop: CancellationToken,
) {
    let runtime = Handle::current();
    let queue = queue.to_owned();
    threads.spawn_blocking(move || {
        let outcome = runtime.block_on(async {
            let (stop_workflows, stop_activities) =
                (workflows.shutdown_handle(), activities.shutdown_handle());
            let mut work = std::pin::pin!(try_join(workflows.run(), activities.run()));
            tokio::select! {
                outcome = &mut work => return outcome,
                () = stop.cancelled() => {}
            }
            stop_activities();
            stop_workflows();
            work.await
        });
        outcome.map(drop).map_err(|error| Error::worker(&queue, chain(&error)))
    });
}
