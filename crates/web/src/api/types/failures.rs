//! Failed jobs by their cause, and what went on lately.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_queue::store;
use utoipa::ToSchema;

/// Failed jobs of one kind with one code.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct FailureGroup {
    /// Their kind.
    pub kind: String,
    /// Their error's code.
    pub code: String,
    /// Its class.
    pub class: String,
    /// How many there are.
    pub count: u64,
    /// The newest of them.
    pub newest: i64,
    /// What that one said.
    pub message: String,
    /// When the last failed.
    pub last_at: Timestamp,
    /// When the first failed.
    pub oldest_at: Timestamp,
    /// The queues they are in.
    pub queues: Vec<String>,
}

impl From<store::FailureGroup> for FailureGroup {
    fn from(group: store::FailureGroup) -> Self {
        Self {
            kind: group.kind,
            code: group.code,
            class: group.class.as_str().to_owned(),
            count: group.count,
            newest: group.newest.0,
            message: group.message,
            last_at: group.last_at,
            oldest_at: group.oldest_at,
            queues: group.queues,
        }
    }
}

/// Failed jobs by their cause.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Failures {
    /// Most first.
    pub failures: Vec<FailureGroup>,
}

/// Which failed jobs are to run again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequeueFailures {
    /// Their kind.
    pub kind: String,
    /// Their error's code.
    pub code: String,
    /// Retry one first, and the others only when that one is done.
    #[serde(default)]
    pub canary: bool,
}

/// Failed jobs that run again, or will.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct FailuresRequeued {
    /// Jobs that match, counted to 10000.
    pub matched: u64,
    /// The job that goes first and decides about the others.
    pub canary: Option<i64>,
    /// The job of kind `jobs:retry_matching` that retries the others, with progress.
    pub job: Option<i64>,
}

/// What went on in a stretch of time.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Bucket {
    /// When it begins.
    pub from: Timestamp,
    /// Jobs done in it.
    pub done: u64,
    /// Jobs failed in it.
    pub failed: u64,
    /// Jobs cancelled in it.
    pub cancelled: u64,
    /// How long half of the jobs waited at most that began in it.
    pub wait_p50_ms: Option<u64>,
    /// How long 95 % of them waited at most.
    pub wait_p95_ms: Option<u64>,
    /// False while it was not yet looked so far back: the counts are too low, and right a little later.
    pub complete: bool,
}

impl From<store::Activity> for Bucket {
    fn from(activity: store::Activity) -> Self {
        Self {
            from: activity.from,
            done: activity.done,
            failed: activity.failed,
            cancelled: activity.cancelled,
            wait_p50_ms: activity.wait_p50_ms,
            wait_p95_ms: activity.wait_p95_ms,
            complete: activity.complete,
        }
    }
}

/// What went on lately.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Activity {
    /// How long it was looked back.
    pub window_sec: f64,
    /// How long each stretch is.
    pub bucket_sec: f64,
    /// Oldest first.
    pub buckets: Vec<Bucket>,
}
