//! Between rows and what the contract speaks of.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::value::RawValue;
use stargate_queue::event::Spine;
use stargate_queue::{Job, JobError, JobId, Json, Stage, State};
use tokio_postgres::Row;

/// The number of a state in `job_history`.
pub(super) fn state_number(state: State) -> i16 {
    match state {
        State::Queued => 0,
        State::Processing => 1,
        State::Done => 2,
        State::Failed => 3,
        State::Cancelled => 4,
    }
}

/// The state with this number in `job_history`.
pub(super) fn state(number: i16) -> State {
    match number {
        3 => State::Failed,
        4 => State::Cancelled,
        _ => State::Done,
    }
}

/// JSON that the database has checked already.
pub(super) fn json(text: String) -> Json {
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// As the database counts spans.
pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// As the database keeps leases.
pub(super) fn millis(span: Duration) -> i32 {
    i32::try_from(span.as_millis()).unwrap_or(i32::MAX).max(1)
}

/// The time from one instant to a later one; zero if it is earlier.
pub(super) fn span(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// A count, which is never negative.
pub(super) fn count(row: &Row, column: usize) -> u64 {
    u64::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}

/// A number that the schema keeps above zero.
pub(super) fn small(row: &Row, column: usize) -> u16 {
    u16::try_from(row.get::<_, i16>(column)).unwrap_or(0)
}

fn sequence(row: &Row, column: usize) -> u32 {
    u32::try_from(row.get::<_, i32>(column)).unwrap_or(0)
}

/// A job with the columns of `job_page.sql`.
pub(super) fn job(row: &Row) -> (Job, Spine) {
    let stage = row.get::<_, Option<i16>>(4).and_then(Stage::from_number);
    let error: Option<&str> = row.get(13);
    let job = Job {
        id: JobId(row.get(0)),
        kind: row.get(1),
        queue: row.get(2),
        state: stage.map_or_else(|| state(row.get::<_, Option<i16>>(5).unwrap_or(2)), Stage::state),
        stage,
        priority: row.get(6),
        attempt_count: small(row, 7),
        max_attempts: small(row, 8),
        crash_count: small(row, 9),
        progress: u8::try_from(row.get::<_, i16>(10)).unwrap_or(0),
        payload: json(row.get(11)),
        result: row.get::<_, Option<String>>(12).map(json),
        error: error.and_then(|text| serde_json::from_str::<JobError>(text).ok()),
        worker: row.get(14),
        run_at: row.get(15),
        created_at: row.get(16),
        started_at: row.get(17),
        finished_at: row.get(18),
        lease_expires_at: row.get(19),
        unique_key: row.get(20),
        limit_key: Some(row.get::<_, String>(3)).filter(|key| !key.is_empty()),
        trace_id: row.get(21),
        cancel_requested: row.get(22),
    };
    (job, Spine { last_seq: sequence(row, 23), started_seq: sequence(row, 24) })
}
