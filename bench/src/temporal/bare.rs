//! The least that a workflow with an activity for each page can do: call one that does nothing, again and again.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use temporalio_client::{WorkflowGetResultOptions, WorkflowStartOptions};
use temporalio_common::worker::WorkerDeploymentOptions;
use temporalio_macros::{activities, workflow, workflow_methods};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use temporalio_sdk::runtime::RuntimeOptions;
use temporalio_sdk::{
    ActivityOptions, Runtime, Worker, WorkerOptions, WorkflowContext, WorkflowContextView, WorkflowResult,
};
use tokio::runtime::Handle;

use super::server::Server;

const QUEUE: &str = "bare";
const SECOND_QUEUE: &str = "bare:steps";
const ACTIVITY_MAX: Duration = Duration::from_secs(60);
/// Calls before those that are measured.
const WARM: u32 = 5;

pub(super) struct Bare<'a> {
    pub(super) server: &'a Server,
    pub(super) activities: u32,
}

/// What the workflow does.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Calls {
    count: u32,
    queue: String,
}

/// Calls an activity in a loop.
#[workflow]
pub(crate) struct BareLoop {
    calls: Calls,
}

#[workflow_methods]
impl BareLoop {
    #[init]
    pub(crate) fn new(_: &WorkflowContextView, calls: Calls) -> Self {
        Self { calls }
    }

    #[run(name = "stargate.bench.bare")]
    pub(crate) async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<u32> {
        let Calls { count, queue } = ctx.state(|state| state.calls.clone());
        let mut called = 0;
        while called < count {
            let options =
                ActivityOptions::with_start_to_close_timeout(ACTIVITY_MAX).task_queue(queue.clone()).build();
            called = ctx.execute_activity(BareActivities::next, called, options).await?;
        }
        Ok(called)
    }
}

pub(crate) struct BareActivities;

#[activities]
impl BareActivities {
    #[activity(name = "stargate.bench.next")]
    pub(crate) async fn next(_: ActivityContext, number: u32) -> Result<u32, ActivityError> {
        Ok(number + 1)
    }
}

impl Bare<'_> {
    /// Seconds of the workflow, as the server tells them.
    pub(super) async fn run(&self, two_queues: bool) -> Result<f64> {
        let runtime = Runtime::from_current_tokio(RuntimeOptions::default())?;
        let queue = if two_queues { SECOND_QUEUE } else { QUEUE };
        let build = || WorkerDeploymentOptions::from_build_id(env!("CARGO_PKG_VERSION").to_owned());
        let mut options = vec![WorkerOptions::new(QUEUE).register_workflow::<BareLoop>()?];
        if two_queues {
            options.push(WorkerOptions::new(SECOND_QUEUE));
        }
        let last = options.pop().context("no worker")?.register_activities(BareActivities);
        options.push(last);
        let workers = options
            .into_iter()
            .map(|options| {
                let options = options.deployment_options(build()).build();
                Worker::new(&runtime, self.server.client.clone(), options)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let stops: Vec<_> = workers.iter().map(Worker::shutdown_handle).collect();
        let working = tokio::task::spawn_blocking(move || work(workers));
        let measured = async {
            self.calls(WARM, queue).await?;
            self.calls(self.activities, queue).await
        }
        .await;
        stops.iter().for_each(|stop| stop());
        working.await??;
        measured
    }

    async fn calls(&self, count: u32, queue: &str) -> Result<f64> {
        let id = format!("bare-{:016x}", rand::random::<u64>());
        let calls = Calls { count, queue: queue.to_owned() };
        let options = WorkflowStartOptions::new(QUEUE, id.as_str()).build();
        let started = self.server.client.start_workflow(BareLoop::run, calls, options).await?;
        let called = started.get_result(WorkflowGetResultOptions::default()).await?;
        anyhow::ensure!(called == count, "{called} activities, not {count}");
        self.server.took(&id, started.run_id().context("it has no run")?).await
    }
}

/// Runs workers, which may not move between threads, until they are told to stop.
fn work(mut workers: Vec<Worker>) -> Result<()> {
    Handle::current().block_on(try_join_all(workers.iter_mut().map(Worker::run)))?;
    Ok(())
}
