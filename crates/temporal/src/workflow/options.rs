//! How the activities are called.

use std::time::Duration;

use temporalio_sdk::{ActivityCancellationType, ActivityOptions, WorkflowCancellationToken};
use temporalio_workflow::RetryPolicy;

use crate::plan::{Fetch, Plan, Retry};

/// Reading a directive and a cursor.
const SHORT_MAX: Duration = Duration::from_secs(120);
/// Without a heartbeat for so long the worker that reads them is dead.
const BEGIN_SILENCE_MAX: Duration = Duration::from_secs(5);
/// An end is one transaction, and is tried again.
const END_MAX: Duration = Duration::from_secs(30);
/// A stretch; whether it lives is told by its heartbeats.
const STRETCH_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// A page of somebody else.
const FETCH_MAX: Duration = Duration::from_secs(600);
/// Heartbeats of a directive after which a stretch without one is given to another worker.
const HEARTBEATS_MISSED: u32 = 3;
/// What a stretch without a heartbeat is granted at least: they come every second, on a machine that is busy, too.
const HEARTBEAT_TIMEOUT_MIN: Duration = Duration::from_secs(5);
/// The waits for failures that do not say themselves how long to wait: a worker died, and another can go on at once.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_CAP: Duration = Duration::from_secs(2);

/// A foreign activity whose answer is too large for the cluster: asking the same again cannot help.
pub(super) const TOO_LARGE: &str = "PayloadsTooLarge";

/// Trying again is the business of the steps: they say how long to wait, and when not at all.
fn steps_retry() -> RetryPolicy {
    RetryPolicy::builder()
        .initial_interval(RETRY_FIRST)
        .maximum_interval(RETRY_CAP)
        .non_retryable_error_types([TOO_LARGE])
        .build()
}

/// Without a heartbeat for so long, whoever executes an activity is dead.
fn silence_max(plan: &Plan) -> Duration {
    (Duration::from_millis(plan.heartbeat_ms) * HEARTBEATS_MISSED).max(HEARTBEAT_TIMEOUT_MIN)
}

pub(super) fn begin(queue: String) -> ActivityOptions {
    ActivityOptions::with_start_to_close_timeout(SHORT_MAX)
        .task_queue(queue)
        .heartbeat_timeout(BEGIN_SILENCE_MAX)
        .retry_policy(steps_retry())
        .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
        .build()
}

pub(super) fn pages(queue: String, plan: &Plan, breaking: WorkflowCancellationToken) -> ActivityOptions {
    ActivityOptions::with_start_to_close_timeout(STRETCH_MAX)
        .task_queue(queue)
        .heartbeat_timeout(silence_max(plan))
        .retry_policy(steps_retry())
        .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
        .cancellation_token(breaking)
        .build()
}

/// It is called when the workflow has been cancelled, and is not cancelled with it.
pub(super) fn end(queue: String) -> ActivityOptions {
    ActivityOptions::with_start_to_close_timeout(END_MAX)
        .task_queue(queue)
        .retry_policy(steps_retry())
        .cancellation_token(WorkflowCancellationToken::new())
        .build()
}

/// Somebody else's: nobody waits for it when it is cancelled, since it writes nothing. A page that takes long needs
/// heartbeats, like a stretch.
pub(super) fn fetch(source: &Fetch, plan: &Plan, breaking: WorkflowCancellationToken) -> ActivityOptions {
    let Retry { first_ms, factor, cap_ms, attempts_max } = source.retry;
    let retry = RetryPolicy::builder()
        .initial_interval(Duration::from_millis(first_ms))
        .backoff_coefficient(factor)
        .maximum_interval(Duration::from_millis(cap_ms))
        .maximum_attempts(attempts_max)
        .non_retryable_error_types(["ValidationFailure", "Fatal", TOO_LARGE])
        .build();
    ActivityOptions::with_start_to_close_timeout(FETCH_MAX)
        .task_queue(source.task_queue.clone())
        .heartbeat_timeout(silence_max(plan))
        .retry_policy(retry)
        .cancellation_token(breaking)
        .build()
}
