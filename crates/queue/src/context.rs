//! What a running handler is given: its job, ways to report, and the signal to stop.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::event;
use crate::job::{Fence, JobId, Json, NewJob, check_json_size};
use crate::kind::Detail;
use crate::local::{Stop, StopReason};
use crate::progress::{Report, Throttle};
use crate::reporter::Reporter;
use crate::store::{ClaimedJob, Enqueued, Note, SharedStore};

/// One execution of a job, as its handler sees it.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    job: ClaimedJob,
    detail: Detail,
    timeout: Duration,
    stop: Stop,
    throttle: Mutex<Throttle>,
    retry_in: OnceLock<Duration>,
    reporter: Reporter,
    store: SharedStore,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("job", &self.inner.job.fence).finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn new(
        job: ClaimedJob,
        detail: Detail,
        timeout: Duration,
        stop: Stop,
        reporter: Reporter,
        store: SharedStore,
    ) -> Self {
        let throttle = Mutex::new(Throttle::starting_at(job.progress));
        let retry_in = OnceLock::new();
        Self { inner: Arc::new(Inner { job, detail, timeout, stop, throttle, retry_in, reporter, store }) }
    }

    /// The job.
    pub fn job(&self) -> JobId {
        self.inner.job.fence.job
    }

    /// Which execution of it, from 1.
    pub fn attempt(&self) -> u16 {
        self.inner.job.fence.attempt
    }

    /// What every fenced write about this execution must carry.
    pub fn fence(&self) -> Fence {
        self.inner.job.fence
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        &self.inner.job.kind
    }

    /// The queue it came from.
    pub fn queue(&self) -> &str {
        &self.inner.job.queue
    }

    /// The input.
    pub fn payload(&self) -> &Json {
        &self.inner.job.payload
    }

    /// Trace context to hand on: of this execution where spans are collected, else of the enqueuer.
    pub fn trace_id(&self) -> Option<&str> {
        self.inner.job.trace_id.as_deref()
    }

    /// How long this execution may take.
    pub fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    /// Cancelled when the execution must stop: timeout, cancellation, lost lease, shutdown.
    pub fn stopping(&self) -> &CancellationToken {
        self.inner.stop.token()
    }

    /// Whether it must stop because somebody cancelled the job, and not for another reason.
    pub fn is_cancelled(&self) -> bool {
        self.inner.stop.reason() == Some(StopReason::Cancelled)
    }

    /// Whether the store still counts this execution as the one that holds the job. Ask before anything outside the
    /// store becomes visible, such as a published file; a store that cannot be asked counts as no.
    pub async fn holds(&self) -> bool {
        self.inner.store.holds(self.fence()).await.unwrap_or(false)
    }

    /// Sets how long to wait before the next attempt, should this one fail, in place of the kind's backoff: also when it
    /// panics or takes too long. The first call counts; a failure that has a delay of its own keeps it.
    pub fn retry_in(&self, delay: Duration) {
        let _ = self.inner.retry_in.set(delay);
    }

    /// What was set by [`Context::retry_in`].
    pub(crate) fn retry_delay(&self) -> Option<Duration> {
        self.inner.retry_in.get().copied()
    }

    /// Reports a percentage. Repeats and small steps are thinned out; it never falls, and stays at 99 until the
    /// job is done.
    pub async fn progress(&self, percent: u8) {
        let report = self.throttle().offer(percent, Instant::now());
        let Report::Send(percent) = report else { return };
        let event = (self.inner.detail == Detail::Full)
            .then(|| (event::PROGRESS.to_owned(), raw(&serde_json::json!({ "pct": percent }))));
        self.note(Some(percent), event).await;
    }

    /// Adds an event to the timeline. `data` should be an object; names and data over the limits are cut off.
    pub async fn event(&self, name: &str, data: &serde_json::Value) {
        if self.inner.detail == Detail::States {
            return;
        }
        let name: String = name.chars().filter(|c| *c != '\0').take(event::NAME_BYTES_MAX).collect();
        let mut data = raw(data);
        if data.get().len() > event::DATA_BYTES_MAX {
            data = raw(&serde_json::json!({ "truncated_bytes": data.get().len() }));
        } else if let Err(refusal) = check_json_size("data", data.get()) {
            data = raw(&serde_json::json!({ "refused": refusal.to_string() }));
        }
        self.note(None, Some((name, data))).await;
    }

    /// Enqueues further jobs.
    pub async fn enqueue(&self, jobs: Vec<NewJob>) -> crate::Result<Vec<Enqueued>> {
        self.inner.store.enqueue(jobs).await
    }

    /// The store, for handlers that look at the queue itself.
    pub fn store(&self) -> &SharedStore {
        &self.inner.store
    }

    async fn note(&self, progress: Option<u8>, event: Option<(String, Json)>) {
        self.inner.reporter.note(Note { fence: self.inner.job.fence, progress, event }).await;
    }

    fn throttle(&self) -> std::sync::MutexGuard<'_, Throttle> {
        self.inner.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn raw(value: &serde_json::Value) -> Json {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| serde_json::value::RawValue::NULL.to_owned())
}
