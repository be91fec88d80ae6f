//! What a node answers, as the engine's own types.
//!
//! Fields that a node does not send are left at what is true of most: nodes of other versions are read too.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_base::{Epoch, ErrorClass};
use stargate_queue::event::Event;
use stargate_queue::job::{Json, Stage, WorkerId};
use stargate_queue::leadership::TermRow;
use stargate_queue::limits::Limit;
use stargate_queue::schedule::Schedule;
use stargate_queue::store::{Activity, Enqueued, FailureGroup, QueueCounts, WorkerRow};
use stargate_queue::{Due, Job, JobError, JobId, NewJob, Result, State};
use stargate_web::api::types::plans;

/// A job. Its last events may stand beside it.
#[derive(Debug, Deserialize)]
pub(crate) struct JobBody {
    id: JobId,
    kind: String,
    queue: String,
    state: State,
    #[serde(default)]
    stage: Option<Stage>,
    priority: i16,
    attempt_count: u16,
    max_attempts: u16,
    crash_count: u16,
    progress: u8,
    payload: Json,
    result: Option<Json>,
    error: Option<JobError>,
    worker: Option<String>,
    run_at: Timestamp,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    lease_expires_at: Option<Timestamp>,
    unique_key: Option<String>,
    limit_key: Option<String>,
    trace_id: Option<String>,
    #[serde(default)]
    cancel_requested: bool,
}

impl From<JobBody> for Job {
    fn from(body: JobBody) -> Self {
        let stage = body.stage.or_else(|| guessed(body.state, body.run_at));
        Self {
            id: body.id,
            kind: body.kind,
            queue: body.queue,
            state: body.state,
            stage,
            priority: body.priority,
            attempt_count: body.attempt_count,
            max_attempts: body.max_attempts,
            crash_count: body.crash_count,
            progress: body.progress,
            payload: body.payload,
            result: body.result,
            error: body.error,
            worker: body.worker,
            run_at: body.run_at,
            created_at: body.created_at,
            started_at: body.started_at,
            finished_at: body.finished_at,
            lease_expires_at: body.lease_expires_at,
            unique_key: body.unique_key,
            limit_key: body.limit_key,
            trace_id: body.trace_id,
            cancel_requested: body.cancel_requested,
        }
    }
}

/// What a waiting job waits for, as far as it can be seen from outside.
fn guessed(state: State, run_at: Timestamp) -> Option<Stage> {
    match state {
        State::Queued if run_at > stargate_base::clock::wall() => Some(Stage::Delayed),
        State::Queued => Some(Stage::Ready),
        State::Processing => Some(Stage::Processing),
        State::Done | State::Failed | State::Cancelled => None,
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct JobPage {
    pub(super) jobs: Vec<JobBody>,
    pub(super) next_before: Option<JobId>,
    /// A node that does not say does not search, and has always looked at everything.
    #[serde(default = "yes")]
    pub(super) scanned_all: bool,
}

fn yes() -> bool {
    true
}

/// One entry of a timeline.
#[derive(Debug, Deserialize)]
pub(super) struct EventBody {
    seq: u32,
    at: Timestamp,
    event: String,
    data: Json,
}

impl From<EventBody> for Event {
    fn from(body: EventBody) -> Self {
        Self { seq: body.seq, at: body.at, event: body.event, data: body.data }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct EventPage {
    pub(super) events: Vec<EventBody>,
}

/// A job to be enqueued.
#[derive(Debug, Serialize)]
pub(super) struct NewJobBody<'a> {
    kind: &'a str,
    payload: &'a Json,
    queue: &'a str,
    priority: i16,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_key: Option<&'a str>,
    #[serde(skip_serializing_if = "<[JobId]>::is_empty")]
    after: &'a [JobId],
}

impl<'a> From<&'a NewJob> for NewJobBody<'a> {
    fn from(job: &'a NewJob) -> Self {
        let (delay, run_at) = match job.due {
            Due::Now => (None, None),
            Due::In(delay) => (Some(delay.as_secs_f64()), None),
            Due::At(at) => (None, Some(at)),
        };
        Self {
            kind: &job.kind,
            payload: &job.payload,
            queue: &job.queue,
            priority: job.priority,
            delay,
            run_at,
            unique_key: job.unique_key.as_deref(),
            max_attempts: job.max_attempts,
            limit_key: job.limit_key.as_deref(),
            after: &job.after,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct EnqueuedBody {
    id: JobId,
    existing: bool,
}

impl From<EnqueuedBody> for Enqueued {
    fn from(body: EnqueuedBody) -> Self {
        Self { id: body.id, existing: body.existing }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct CancelledBody {
    pub(super) outcome: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct QueueBody {
    queue: String,
    ready: u64,
    delayed: u64,
    blocked: u64,
    processing: u64,
    failed: u64,
    paused: bool,
}

impl From<QueueBody> for QueueCounts {
    fn from(body: QueueBody) -> Self {
        Self {
            queue: body.queue,
            ready: body.ready,
            delayed: body.delayed,
            blocked: body.blocked,
            processing: body.processing,
            failed: body.failed,
            paused: body.paused,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Queues {
    pub(super) queues: Vec<QueueBody>,
}

#[derive(Debug, Deserialize)]
pub(super) struct KindBody {
    pub(super) kind: String,
    pub(super) max_attempts: u16,
    pub(super) max_crashes: u16,
    pub(super) paused: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Kinds {
    pub(super) kinds: Vec<KindBody>,
}

#[derive(Debug, Deserialize)]
pub(super) struct WorkerBody {
    id: WorkerId,
    name: String,
    kinds: Vec<String>,
    queues: Vec<String>,
    concurrency: usize,
    started_at: Timestamp,
    beat_at: Timestamp,
    holding: u64,
    alive: bool,
}

impl From<WorkerBody> for WorkerRow {
    fn from(body: WorkerBody) -> Self {
        Self {
            id: body.id,
            name: body.name,
            kinds: body.kinds,
            queues: body.queues,
            concurrency: body.concurrency,
            started_at: body.started_at,
            beat_at: body.beat_at,
            holding: body.holding,
            alive: body.alive,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Workers {
    pub(super) workers: Vec<WorkerBody>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Stats {
    pub(super) now: Timestamp,
    pub(super) jobs: Counts,
    oldest_ready_sec: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Counts {
    pub(super) ready: u64,
}

impl Stats {
    pub(super) fn oldest_ready(&self) -> Option<Duration> {
        self.oldest_ready_sec.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Leader {
    pub(super) epoch: Option<Epoch>,
    pub(super) terms: Vec<TermBody>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TermBody {
    epoch: Epoch,
    instance: String,
    address: Option<String>,
    began_at: Timestamp,
    ended_at: Option<Timestamp>,
    reason: Option<String>,
}

impl From<TermBody> for TermRow {
    fn from(body: TermBody) -> Self {
        Self {
            epoch: body.epoch,
            instance: body.instance,
            address: body.address,
            began_at: body.began_at,
            ended_at: body.ended_at,
            reason: body.reason,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Failures {
    pub(super) failures: Vec<FailureBody>,
}

#[derive(Debug, Deserialize)]
pub(super) struct FailureBody {
    kind: String,
    code: String,
    class: ErrorClass,
    count: u64,
    newest: JobId,
    last_at: Timestamp,
    oldest_at: Timestamp,
    message: String,
    queues: Vec<String>,
}

impl From<FailureBody> for FailureGroup {
    fn from(body: FailureBody) -> Self {
        Self {
            kind: body.kind,
            code: body.code,
            class: body.class,
            count: body.count,
            newest: body.newest,
            last_at: body.last_at,
            oldest_at: body.oldest_at,
            message: body.message,
            queues: body.queues,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct ActivityBody {
    pub(super) buckets: Vec<Bucket>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Bucket {
    from: Timestamp,
    done: u64,
    failed: u64,
    cancelled: u64,
    wait_p50_ms: Option<u64>,
    wait_p95_ms: Option<u64>,
    #[serde(default = "yes")]
    complete: bool,
}

impl From<Bucket> for Activity {
    fn from(body: Bucket) -> Self {
        Self {
            from: body.from,
            done: body.done,
            failed: body.failed,
            cancelled: body.cancelled,
            wait_p50_ms: body.wait_p50_ms,
            wait_p95_ms: body.wait_p95_ms,
            complete: body.complete,
        }
    }
}

/// A schedule to be put.
#[derive(Debug, Serialize)]
pub(super) struct NewScheduleBody<'a> {
    cron: &'a str,
    time_zone: &'a str,
    kind: &'a str,
    queue: &'a str,
    payload: &'a Json,
    priority: i16,
}

impl<'a> From<&'a Schedule> for NewScheduleBody<'a> {
    fn from(schedule: &'a Schedule) -> Self {
        Self {
            cron: &schedule.cron,
            time_zone: &schedule.time_zone,
            kind: &schedule.kind,
            queue: &schedule.queue,
            payload: &schedule.payload,
            priority: schedule.priority,
        }
    }
}

pub(super) fn schedule(body: plans::Schedule) -> Schedule {
    Schedule {
        name: body.name,
        cron: body.cron,
        time_zone: body.time_zone,
        kind: body.kind,
        queue: body.queue,
        payload: body.payload,
        priority: body.priority,
        next_at: body.next_at,
        last_at: body.last_at,
    }
}

pub(super) fn limit(body: plans::Limit) -> Result<Limit> {
    let rate = body.rate.as_deref().map(str::parse).transpose()?;
    Ok(Limit { pattern: body.pattern, concurrency: body.concurrency, rate, weight: body.weight })
}

/// What was done to many jobs, or would be.
#[derive(Debug, Deserialize)]
pub(crate) struct BulkDone {
    pub(crate) matched: u64,
    pub(crate) changed: u64,
    pub(crate) more: bool,
    pub(crate) sample: Vec<JobBody>,
}
