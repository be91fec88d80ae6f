//! One execution as the handlers of this crate see it: what they need of a `Context`, without its store, so that
//! they can be tried without an engine.

use std::future::Future;
use std::time::Duration;

use serde_json::Value;
use stargate_queue::context::Context;
use stargate_queue::handler::Failure;
use stargate_queue::job::JobId;
use tokio_util::sync::CancellationToken;

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
}

impl Reports for Context {
    async fn progress(&self, percent: u8) {
        Context::progress(self, percent).await;
    }

    async fn event(&self, name: &str, data: &Value) {
        Context::event(self, name, data).await;
    }
}

/// The answer of a handler that was asked to stop. The engine knows why it asked and records that.
pub(crate) fn stopped() -> Failure {
    Failure::transient("stopped")
}
