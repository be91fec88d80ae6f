//! One execution as the handlers of this crate see it: what they need of a `Context`, without its store, so that
//! they can be tried without an engine.

use std::future::Future;
use std::time::Duration;

use serde_json::Value;
use stargate_artifact::scratch::{self, Scratch};
use stargate_queue::context::Context;
use stargate_queue::handler::Failure;
use stargate_queue::job::JobId;
use tokio_util::sync::CancellationToken;

/// How much of a timeline is looked through for something that stands near its begin.
const EARLIER_MAX: u32 = 100;

/// What is to be run.
#[derive(Debug, Clone)]
pub(crate) struct Execution<'a> {
    pub(crate) job: JobId,
    pub(crate) attempt: u16,
    pub(crate) kind: &'a str,
    pub(crate) queue: &'a str,
    pub(crate) payload: &'a str,
    pub(crate) trace_id: Option<&'a str>,
    pub(crate) timeout: Duration,
    pub(crate) stopping: CancellationToken,
}

impl<'a> Execution<'a> {
    pub(crate) fn of(context: &'a Context) -> Self {
        Self {
            job: context.job(),
            attempt: context.attempt(),
            kind: context.kind(),
            queue: context.queue(),
            payload: context.payload().get(),
            trace_id: context.trace_id(),
            timeout: context.timeout(),
            stopping: context.stopping().clone(),
        }
    }
}

/// Where a running handler reports to.
pub(crate) trait Reports: Sync {
    /// The percentage rose.
    fn progress(&self, percent: u8) -> impl Future<Output = ()> + Send;
    /// Something for the timeline.
    fn event(&self, name: &str, data: &Value) -> impl Future<Output = ()> + Send;
    /// The data of the first event of that name in the timeline, which an earlier attempt may have left.
    fn earlier(&self, name: &str) -> impl Future<Output = Option<Value>> + Send;
    /// Whether the execution still holds its job, asked before anything outside the store becomes visible.
    fn holds(&self) -> impl Future<Output = bool> + Send;
}

impl Reports for Context {
    async fn progress(&self, percent: u8) {
        Context::progress(self, percent).await;
    }

    async fn event(&self, name: &str, data: &Value) {
        Context::event(self, name, data).await;
    }

    async fn earlier(&self, name: &str) -> Option<Value> {
        let events = self.store().events(self.job(), 0, EARLIER_MAX).await.ok()?;
        let event = events.into_iter().find(|event| event.event == name)?;
        serde_json::from_str(event.data.get()).ok()
    }

    async fn holds(&self) -> bool {
        Context::holds(self).await
    }
}

/// No scratch directory could be made, or it could not be written.
pub(crate) const SCRATCH_UNAVAILABLE: &str = "SCRATCH_UNAVAILABLE";

/// A scratch directory for an execution.
pub(crate) async fn scratch(root: &scratch::Root, execution: &Execution<'_>) -> Result<Scratch, Failure> {
    root.enter(&execution.job.to_string(), execution.attempt).await.map_err(|error| {
        let class = error.class();
        Failure::new(SCRATCH_UNAVAILABLE, class, chain(&error))
    })
}

/// An error with all its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        message.push_str(": ");
        message.push_str(&inner.to_string());
        source = inner.source();
    }
    message
}

/// The answer of a handler that was asked to stop. The engine knows why it asked and records that.
pub(crate) fn stopped() -> Failure {
    Failure::transient("stopped")
}
