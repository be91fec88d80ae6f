//! Running one job: the handler with its timeout, its panics, its reasons to stop, and what becomes of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use stargate_base::ErrorClass;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::context::Context;
use crate::handler::{Entry, Failure, HandlerResult};
use crate::job::{JobError, check_json_size};
use crate::local::{Stop, StopReason, Waiting};
use crate::pool::Engine;
use crate::retry::{self, Label};
use crate::store::{ClaimedJob, Outcome, Settlement};
use crate::trace;
use crate::{exemplar, metrics};

/// At shutdown handlers had the shutdown timeout to end by themselves, and another worker is to take the job
/// within a second.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// How a handler ended.
enum Ending {
    /// It was told to stop while it waited in the buffer.
    NotBegun,
    /// It did not stop in time and was dropped.
    Dropped,
    /// It panicked with this text.
    Panicked(String),
    /// It answered.
    Answered(HandlerResult),
}

impl Ending {
    fn of(ended: std::thread::Result<HandlerResult>) -> Self {
        match ended {
            Ok(answer) => Self::Answered(answer),
            Err(panic) => Self::Panicked(panic_text(&*panic)),
        }
    }
}

impl Engine {
    /// Runs one job after the other until the buffer is closed.
    pub(crate) async fn run_slot(self: Arc<Self>, stop: CancellationToken) {
        while let Some(waiting) = self.buffer.pop().await {
            if stop.is_cancelled() {
                // A slot that came free before the buffer was handed back: nothing begins after the order to stop.
                let fence = waiting.job.fence;
                self.reporter.settle(Settlement { fence, outcome: Outcome::Released }).await;
                self.buffer.finished();
                continue;
            }
            self.running.fetch_add(1, Ordering::AcqRel);
            self.run_job(waiting).await;
            self.running.fetch_sub(1, Ordering::AcqRel);
            self.buffer.finished();
            self.room.notify_one();
        }
    }

    async fn run_job(&self, Waiting { mut job, stop }: Waiting) {
        let fence = job.fence;
        let Some(entry) = self.kinds.get(&job.kind) else {
            // The claim names the kinds, so this cannot happen; if it does, somebody else may know the kind.
            self.reporter.settle(Settlement { fence, outcome: Outcome::Released }).await;
            return;
        };
        let max_attempts = job.max_attempts;
        let name = Arc::clone(&job.kind);
        let kind = self.metrics.kind(&name);
        if let Some(kind) = kind {
            kind.wait.record(job.waited.as_secs_f64());
            kind.in_flight.increment(1.0);
        }
        self.metrics.inflight.increment(1.0);
        let traced = trace::begin(&mut job, &self.config.name);
        // Every line that the handler logs says which job it is about.
        let span = log_span(&job);
        let began = Instant::now();
        let (ending, retry_in) = self.execute(entry, job, &stop).instrument(span.clone()).await;
        let took = began.elapsed();
        self.metrics.inflight.decrement(1.0);
        self.pace.record(took);
        let tries = Tries { attempt: fence.attempt, max_attempts, retry_in };
        let (outcome, label) = resolve(entry, tries, ending, stop.reason());
        if let Some(kind) = kind {
            kind.in_flight.decrement(1.0);
            kind.duration.record(took.as_secs_f64());
            if let Some(traced) = &traced {
                exemplar::note(metrics::DURATION, &name, took.as_secs_f64(), traced.context());
            }
            label.into_iter().for_each(|label| kind.ended(label));
        }
        span.in_scope(|| log(&fence, &outcome));
        trace::end(traced, &outcome);
        self.reporter.settle(Settlement { fence, outcome }).await;
    }

    /// How the handler ended, and the delay it set for the next attempt.
    async fn execute(&self, entry: &Entry, job: ClaimedJob, stop: &Stop) -> (Ending, Option<Duration>) {
        if stop.reason().is_some() {
            return (Ending::NotBegun, None);
        }
        let timeout = entry.profile.timeout;
        let detail = entry.profile.timeline;
        let context =
            Context::new(job, detail, timeout, stop.clone(), self.reporter.clone(), self.store.clone());
        let work = AssertUnwindSafe(entry.handler.run(context.clone())).catch_unwind();
        tokio::pin!(work);
        tokio::select! {
            biased;
            ended = &mut work => return (Ending::of(ended), context.retry_delay()),
            () = stop.token().cancelled() => {}
            () = tokio::time::sleep(timeout) => stop.request(StopReason::Timeout),
        }
        // A handler may clean up after the signal; after the grace it is dropped where it stands.
        let grace = match stop.reason() {
            Some(StopReason::Shutdown) => self.config.stop_grace.min(SHUTDOWN_GRACE),
            _ => self.config.stop_grace,
        };
        let ending = tokio::time::timeout(grace, work).await.map_or(Ending::Dropped, Ending::of);
        (ending, context.retry_delay())
    }
}

/// Where an execution stands among its job's.
#[derive(Clone, Copy)]
struct Tries {
    attempt: u16,
    max_attempts: u16,
    /// Takes the place of the kind's backoff.
    retry_in: Option<Duration>,
}

/// What becomes of an execution, and how it is counted.
fn resolve(
    entry: &Entry,
    Tries { attempt, max_attempts, retry_in }: Tries,
    ending: Ending,
    reason: Option<StopReason>,
) -> (Outcome, Option<Label>) {
    let failed = |mut failure: Failure| {
        failure.retry_after = failure.retry_after.or(retry_in);
        if !failure.error.class.is_poison() && attempt < max_attempts {
            let (code, class) = (failure.error.code.clone(), failure.error.class.as_str());
            ::metrics::counter!(metrics::RETRIES, "code" => code, "error_class" => class).increment(1);
        }
        let (outcome, label) = retry::decide(&entry.profile, attempt, max_attempts, failure);
        (outcome, Some(label))
    };
    match (ending, reason) {
        (Ending::NotBegun, Some(StopReason::Cancelled)) => (Outcome::Cancelled, None),
        (Ending::NotBegun, _) => (Outcome::Released, None),
        // Finished well just before it was told to stop: the work is done, so it counts.
        (Ending::Answered(Ok(result)), _) => match result
            .as_ref()
            .map(|json| check_json_size("result", json.get()))
        {
            Some(Err(error)) => failed(Failure::new("RESULT_REFUSED", ErrorClass::Fatal, error.to_string())),
            _ => (Outcome::Done { result }, Some(Label::Ok)),
        },
        (_, Some(StopReason::Cancelled)) => (Outcome::Cancelled, None),
        (Ending::Answered(Err(failure)), _) if failure.is_not_begun() => (Outcome::Released, None),
        (_, Some(StopReason::Shutdown)) => (Outcome::Aborted, None),
        // If another worker has the job by now, the fence keeps this from changing anything. If nobody has, because
        // the heartbeats came through again, it must not stay ours for ever.
        (_, Some(StopReason::Lost)) => {
            let message =
                "heartbeats did not get through, so the worker stopped the job before its lease ended";
            let failure = Failure::new(retry::LEASE_LOST, ErrorClass::RetryableTransient, message);
            failed(failure.with_retry_after(Duration::ZERO))
        }
        (ending, Some(StopReason::Timeout)) => {
            let message = format!("took longer than {:?}", entry.profile.timeout);
            let mut error = JobError::new(retry::TIMEOUT, ErrorClass::RetryableTransient, message);
            if let Ending::Answered(Err(failure)) = ending {
                error.detail = failure.error.detail;
            }
            failed(error.into())
        }
        (Ending::Answered(Err(failure)), None) => failed(failure),
        (Ending::Panicked(text), None) => {
            failed(Failure::new(retry::PANIC, ErrorClass::RetryableTransient, text))
        }
        (Ending::Dropped, None) => failed(Failure::transient("stopped for no known reason")),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "the handler panicked".to_owned())
}

/// What log lines about an execution have in common.
fn log_span(job: &ClaimedJob) -> tracing::Span {
    let fence = &job.fence;
    let trace = trace::context(job.trace_id.as_deref(), fence.job, fence.attempt);
    let trace_id = trace.map(|context| context.trace_id());
    tracing::info_span!("job", job = %fence.job, kind = &*job.kind, attempt = fence.attempt, trace_id)
}

fn log(fence: &crate::job::Fence, outcome: &Outcome) {
    match outcome {
        Outcome::Failed { error } => {
            tracing::error!(job = %fence.job, attempt = fence.attempt, code = error.code, error_class = %error.class,
                message = error.message, "job failed");
        }
        Outcome::Retry { error, delay } => {
            tracing::warn!(job = %fence.job, attempt = fence.attempt, code = error.code, error_class = %error.class,
                message = error.message, delay_ms = delay.as_millis(), "job will be tried again");
        }
        Outcome::Cancelled => tracing::info!(job = %fence.job, "job cancelled"),
        Outcome::Aborted => tracing::warn!(job = %fence.job, "job aborted by shutdown"),
        Outcome::Done { .. } | Outcome::Released => {}
    }
}
