//! One execution as the handlers of this crate see it: what they need of a `Context`, without its store, so that
//! they can be tried without an engine.

use std::future::Future;
use std::time::Duration;

use serde_json::Value;
use stargate_artifact::scratch::{self, Scratch};
use stargate_base::chain;
use stargate_queue::context::Context;
use stargate_queue::handler::Failure;
use stargate_queue::job::JobId;
use tokio_util::sync::CancellationToken;

/// How much of a timeline is looked through for something that stands near its begin.
const EARLIER_MAX: u32 = 100;

/// What is shown of an error where there is one line for it. A server may answer with pages.
const MESSAGE_CHARS_MAX: usize = 300;

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
        shortened(Failure::new(SCRATCH_UNAVAILABLE, class, chain(&error)))
    })
}

/// The same failure with a message that can be read at a glance; all of it is the detail.
pub(crate) fn shortened(mut failure: Failure) -> Failure {
    let error = &mut failure.error;
    if let Some((end, _)) = error.message.char_indices().nth(MESSAGE_CHARS_MAX) {
        let short = format!("{}…", error.message[..end].trim_end());
        let whole = std::mem::replace(&mut error.message, short);
        error.detail.get_or_insert(whole);
    }
    failure
}

/// The answer of a handler that was asked to stop. The engine knows why it asked and records that.
pub(crate) fn stopped() -> Failure {
    Failure::transient("stopped")
}

#[cfg(test)]
mod tests {
    use stargate_base::ErrorClass;

    use super::*;

    #[test]
    fn a_long_message_is_cut_and_kept_as_detail() {
        let long = "ü".repeat(MESSAGE_CHARS_MAX + 1);
        let failure = shortened(Failure::new("X", ErrorClass::Fatal, long.clone()));
        assert_eq!(failure.error.message.chars().count(), MESSAGE_CHARS_MAX + 1);
        assert!(failure.error.message.ends_with('…'));
        assert_eq!(failure.error.detail, Some(long));
        let short = Failure::new("X", ErrorClass::Fatal, "ü".repeat(MESSAGE_CHARS_MAX));
        assert_eq!(shortened(short.clone()), short);
    }
}
