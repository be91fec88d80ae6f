//! What goes over the wire. Stable: fields are added, never renamed.

pub mod access;
pub mod bulk;
pub mod directives;
pub mod failures;
pub mod leader;
pub mod live;
pub mod mirror;
pub mod plans;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stargate_queue::event;
use stargate_queue::explain;
use stargate_queue::job::{self, Json};
use stargate_queue::store;
use utoipa::ToSchema;

use crate::redact::Sight;

/// A job.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its name.
    pub id: i64,
    /// What is to be done.
    pub kind: String,
    /// Where it waits.
    pub queue: String,
    /// `queued`, `processing`, `done`, `failed` or `cancelled`.
    pub state: String,
    /// Higher runs first.
    pub priority: i16,
    /// Executions started so far.
    pub attempt_count: u16,
    /// Executions allowed.
    pub max_attempts: u16,
    /// Workers lost while running it.
    pub crash_count: u16,
    /// Percentage; 100 when done.
    pub progress: u8,
    /// Input.
    #[schema(value_type = Value)]
    pub payload: Json,
    /// Output, when done.
    #[schema(value_type = Option<Value>)]
    pub result: Option<Json>,
    /// The last error, also while it waits for a retry.
    pub error: Option<JobError>,
    /// Name of the worker that runs it or ran it last.
    pub worker: Option<String>,
    /// When it is or was due.
    pub run_at: Timestamp,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When its last execution began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When its lease ends unless the worker beats again.
    pub lease_expires_at: Option<Timestamp>,
    /// Deduplicates while unfinished.
    pub unique_key: Option<String>,
    /// Whose limits it falls under.
    pub limit_key: Option<String>,
    /// Trace context of the enqueuer.
    pub trace_id: Option<String>,
}

/// Why a job failed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct JobError {
    /// Stable code.
    pub code: String,
    /// `RetryableTransient`, `Conflict`, `ValidationFailure` or `Fatal`.
    pub class: String,
    /// One line for people.
    pub message: String,
    /// More of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Job {
    /// A job as somebody may see it.
    pub(crate) fn of(job: job::Job, sight: Sight<'_>) -> Self {
        Self {
            id: job.id.0,
            state: job.state.as_str().to_owned(),
            priority: job.priority,
            attempt_count: job.attempt_count,
            max_attempts: job.max_attempts,
            crash_count: job.crash_count,
            progress: job.percent(),
            payload: sight.json(job.payload),
            result: job.result.map(|result| sight.json(result)),
            error: job.error.map(JobError::from),
            worker: job.worker,
            run_at: job.run_at,
            created_at: job.created_at,
            started_at: job.started_at,
            finished_at: job.finished_at,
            lease_expires_at: job.lease_expires_at,
            unique_key: job.unique_key,
            limit_key: job.limit_key,
            trace_id: job.trace_id,
            kind: job.kind,
            queue: job.queue,
        }
    }
}

impl From<job::JobError> for JobError {
    fn from(error: job::JobError) -> Self {
        let class = error.class.as_str().to_owned();
        Self { code: error.code, class, message: error.message, detail: error.detail }
    }
}

/// One entry of a timeline.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Position in this job's timeline, from 1.
    pub seq: u32,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub event: String,
    /// Details, an object.
    #[schema(value_type = Value)]
    pub data: Json,
}

impl Event {
    /// An event as somebody may see it.
    pub(crate) fn of(event: event::Event, sight: Sight<'_>) -> Self {
        Self { seq: event.seq, at: event.at, event: event.event, data: sight.json(event.data) }
    }
}

/// Why a job does not run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The job.
    pub job: i64,
    /// Its state.
    pub state: String,
    /// One line that answers the question.
    pub summary: String,
    /// What holds it back, most decisive first; empty when it can start any moment or has ended.
    pub reasons: Vec<Reason>,
}

/// One thing that holds a job back.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// What.
    pub text: String,
    /// The command that would change it, where there is one.
    pub command: Option<String>,
}

impl From<explain::Explanation> for Explanation {
    fn from(found: explain::Explanation) -> Self {
        let reason = |reason: explain::Reason| Reason { text: reason.text, command: reason.command };
        Self {
            job: found.job.0,
            state: found.state.as_str().to_owned(),
            summary: found.summary,
            reasons: found.reasons.into_iter().map(reason).collect(),
        }
    }
}

/// A job with its last events.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobWithEvents {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// Its last events, oldest first.
    pub events: Vec<Event>,
}

/// A page of jobs.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct JobPage {
    /// Newest first.
    pub jobs: Vec<Job>,
    /// What to pass as `before` for the next page; null on the last.
    pub next_before: Option<i64>,
    /// Whether everything was looked at. With `q` or `code` a page may be short, or empty, because it was looked at a
    /// bounded number of jobs only: go on with `next_before`.
    #[serde(default)]
    pub scanned_all: bool,
}

/// A timeline, or the part that was asked for.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    /// In order.
    pub events: Vec<Event>,
}

/// A job to be enqueued.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    /// What is to be done.
    pub kind: String,
    /// Input; `null` by default.
    #[schema(value_type = Option<Value>)]
    pub payload: Option<Box<RawValue>>,
    /// Where it waits; `default` by default.
    pub queue: Option<String>,
    /// Higher runs first; 0 by default.
    pub priority: Option<i16>,
    /// How long to wait: seconds, or a text such as `5m`.
    pub delay: Option<Delay>,
    /// When to run, instead of `delay`.
    pub run_at: Option<String>,
    /// Deduplicates while unfinished.
    pub unique_key: Option<String>,
    /// Executions allowed.
    pub max_attempts: Option<u16>,
    /// Whose limits it falls under.
    pub limit_key: Option<String>,
    /// Jobs that must be done before.
    #[serde(default)]
    pub after: Vec<i64>,
}

/// How long to wait.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected seconds or a duration such as \"5m\"")]
pub enum Delay {
    /// In seconds.
    Seconds(f64),
    /// As text.
    Text(String),
}

/// How a job is to be retried; without a body it runs as it was.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Another input than the one it failed with. The timeline keeps the old one.
    #[schema(value_type = Option<Value>)]
    pub payload: Option<Box<RawValue>>,
}

/// A queue that was paused or resumed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct QueuePaused {
    /// The queue.
    pub queue: String,
    /// Whether it is paused now.
    pub paused: bool,
}

/// A kind that was paused or resumed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct KindPaused {
    /// The kind.
    pub kind: String,
    /// Whether it is paused now.
    pub paused: bool,
}

/// Jobs to be enqueued, all or none.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// The jobs.
    pub jobs: Vec<NewJob>,
}

/// The answer to one enqueue.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Enqueued {
    /// The job.
    pub id: i64,
    /// Whether it was there already.
    pub existing: bool,
}

/// The answer to a batch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchEnqueued {
    /// The jobs, in the order of the request.
    pub ids: Vec<i64>,
    /// How many of them are new.
    pub created: usize,
    /// How many of them were there already.
    pub existing: usize,
}

/// The answer to a cancellation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Cancelled {
    /// The job.
    pub id: i64,
    /// `ended`, or `requested` when a worker has been asked to stop.
    pub outcome: String,
}

/// A queue.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Queue {
    /// Its name.
    pub queue: String,
    /// Jobs that could run now.
    pub ready: u64,
    /// Jobs due later.
    pub delayed: u64,
    /// Jobs waiting for others.
    pub blocked: u64,
    /// Jobs held by workers.
    pub processing: u64,
    /// Jobs that failed and are kept.
    pub failed: u64,
    /// Whether it is paused.
    pub paused: bool,
}

impl From<store::QueueCounts> for Queue {
    fn from(counts: store::QueueCounts) -> Self {
        Self {
            queue: counts.queue,
            ready: counts.ready,
            delayed: counts.delayed,
            blocked: counts.blocked,
            processing: counts.processing,
            failed: counts.failed,
            paused: counts.paused,
        }
    }
}

/// All queues.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Queues {
    /// By name.
    pub queues: Vec<Queue>,
}

/// A kind.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Kind {
    /// Its name.
    pub kind: String,
    /// Executions allowed for jobs that do not say.
    pub max_attempts: u16,
    /// Workers a job of it may take down.
    pub max_crashes: u16,
    /// Whether it is paused.
    pub paused: bool,
}

/// All kinds.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Kinds {
    /// By name.
    pub kinds: Vec<Kind>,
}

/// A worker process.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Its id.
    pub id: i64,
    /// Host, process and a random part.
    pub name: String,
    /// Kinds it serves.
    pub kinds: Vec<String>,
    /// Queues it serves; empty means all.
    pub queues: Vec<String>,
    /// Handlers it runs at once.
    pub concurrency: usize,
    /// When it registered.
    pub started_at: Timestamp,
    /// Its last beat.
    pub beat_at: Timestamp,
    /// Jobs it holds.
    pub holding: u64,
    /// Whether its beat is recent enough.
    pub alive: bool,
}

impl From<store::WorkerRow> for Worker {
    fn from(row: store::WorkerRow) -> Self {
        Self {
            id: row.id.0,
            name: row.name,
            kinds: row.kinds,
            queues: row.queues,
            concurrency: row.concurrency,
            started_at: row.started_at,
            beat_at: row.beat_at,
            holding: row.holding,
            alive: row.alive,
        }
    }
}

/// All workers.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Workers {
    /// By id.
    pub workers: Vec<Worker>,
}

/// How it goes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// This node.
    pub instance: String,
    /// This program.
    pub version: String,
    /// `sqlite` or `postgres`.
    pub store: String,
    /// How jobs of other processes are noticed: `notify`, `data_version` or `poll`.
    pub wake: String,
    /// The store's time.
    pub now: Timestamp,
    /// Jobs in all queues together.
    pub jobs: JobCounts,
    /// Age of the oldest job that could run now but does not.
    pub oldest_ready_sec: Option<f64>,
    /// Workers whose beat is recent.
    pub workers_alive: usize,
    /// Handlers they can run at once.
    pub capacity: usize,
}

/// Jobs in all queues together.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct JobCounts {
    /// Could run now.
    pub ready: u64,
    /// Due later.
    pub delayed: u64,
    /// Waiting for others.
    pub blocked: u64,
    /// Held by workers.
    pub processing: u64,
    /// Failed and kept.
    pub failed: u64,
}
