//! The timeline of a job.
//!
//! Every event has a per-job sequence number. Three of them are not rows: `created`, the `processing` of the
//! current attempt and the final event are read off the job itself, so that a job that simply succeeds writes no
//! event rows at all. When an attempt ends without ending the job, its `processing` event becomes a row, written
//! by the same statement that requeues the job.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::job::{Job, Json, State};

/// Accepted. Always sequence number 1.
pub const CREATED: &str = "created";
/// Claimed by a worker.
pub const PROCESSING: &str = "processing";
/// The percentage rose.
pub const PROGRESS: &str = "progress";
/// Its worker's lease ran out; somebody else may take it.
pub const REQUEUED_STALE: &str = "requeued:stale";
/// The attempt failed; it will be tried again.
pub const REQUEUED_RETRY: &str = "requeued:retry";
/// An operator had a failed job run again.
pub const REQUEUED_OPERATOR: &str = "requeued:operator";
/// An operator had a failed job run again with another payload; its data has the one before.
pub const EDITED: &str = "edited";
/// Its worker shut down; the attempt does not count.
pub const ABORTED_SHUTDOWN: &str = "aborted:shutdown";
/// Ended well.
pub const DONE: &str = "done";
/// Ended badly.
pub const FAILED: &str = "failed";
/// Ended by an operator.
pub const CANCELLED: &str = "cancelled";
/// An operator asked for the end of a running job.
pub const CANCEL_REQUESTED: &str = "cancel:requested";

/// The longest name of a handler's own event.
pub const NAME_BYTES_MAX: usize = 100;
/// The largest data of one event: 16 KiB.
pub const DATA_BYTES_MAX: usize = 16 << 10;
/// The largest payload that an `edited` event repeats: 16 KiB.
pub const BEFORE_BYTES_MAX: usize = 16 << 10;

/// One entry of a job's timeline.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// Position in this job's timeline, from 1.
    pub seq: u32,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// What happened.
    pub event: String,
    /// Details, an object.
    pub data: Json,
}

/// The sequence numbers a job carries beside its own columns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spine {
    /// The number of the last event.
    pub last_seq: u32,
    /// The number of the current attempt's `processing` event; 0 when that is a row or there was none.
    pub started_seq: u32,
}

/// Puts the stored rows and what the job itself tells into one ordered timeline.
pub fn timeline(job: &Job, spine: Spine, mut rows: Vec<Event>) -> Vec<Event> {
    rows.push(Event {
        seq: 1,
        at: job.created_at,
        event: CREATED.to_owned(),
        data: raw(&serde_json::json!({ "kind": job.kind, "queue": job.queue })),
    });
    if let (Some(at), seq @ 1..) = (job.started_at, spine.started_seq) {
        let data = processing_data(job.attempt_count, job.worker.as_deref());
        rows.push(Event { seq, at, event: PROCESSING.to_owned(), data });
    }
    if let Some(at) = job.finished_at {
        let event = match job.state {
            State::Failed => FAILED,
            State::Cancelled => CANCELLED,
            _ => DONE,
        };
        let data = match &job.error {
            Some(error) if job.state != State::Done => raw(
                &serde_json::json!({ "code": error.code, "class": error.class, "message": error.message }),
            ),
            _ => raw(&serde_json::json!({})),
        };
        rows.push(Event { seq: spine.last_seq, at, event: event.to_owned(), data });
    }
    rows.sort_by_key(|event| event.seq);
    rows
}

/// The data of a `processing` event; both stores write the same when it becomes a row.
pub fn processing_data(attempt: u16, worker: Option<&str>) -> Json {
    raw(&serde_json::json!({ "attempt": attempt, "worker": worker }))
}

/// The data of an `edited` event: the payload that was replaced, or what it can be known by if it is over
/// [`BEFORE_BYTES_MAX`].
pub fn edited_data(before: &str) -> Json {
    if before.len() <= BEFORE_BYTES_MAX
        && let Ok(data) = RawValue::from_string(format!("{{\"before\":{before}}}"))
    {
        return data;
    }
    let sha256: String = Sha256::digest(before.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    raw(&serde_json::json!({ "before_bytes": before.len(), "before_sha256": sha256 }))
}

fn raw(value: &serde_json::Value) -> Json {
    RawValue::from_string(value.to_string()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_payload_is_kept_as_it_was_or_as_what_it_can_be_known_by() {
        assert_eq!(
            edited_data(r#"{"n": 12345678901234567890.10}"#).get(),
            r#"{"before":{"n": 12345678901234567890.10}}"#
        );
        let fits = format!("\"{}\"", "x".repeat(BEFORE_BYTES_MAX - 2));
        assert!(edited_data(&fits).get().contains("xxx"));
        let large = edited_data(&format!("{fits} "));
        assert!(large.get().len() < 200 && large.get().contains("\"before_bytes\":16385"), "{large}");
    }
}
