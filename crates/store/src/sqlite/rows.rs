//! From rows to the queue's types, and times to numbers and back.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::{FromSqlError, Type};
use serde_json::value::RawValue;
use stargate_queue::event::Spine;
use stargate_queue::limits::{Limit, Rate};
use stargate_queue::schedule::Schedule;
use stargate_queue::{Job, JobError, JobId, Json, Stage, State};

type Column<T> = rusqlite::Result<T>;

/// Microseconds since 1970, as the columns keep it.
pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

/// The instant of a column; a number out of range is as good as the far future.
pub(super) fn instant(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
}

/// A span of time between two columns; nothing when it would be negative.
pub(super) fn span(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// A duration in the unit of the columns.
pub(super) fn span_micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}

/// The number of a state in the database.
pub(super) fn state_number(state: State) -> i64 {
    match state {
        State::Queued => 0,
        State::Processing => 1,
        State::Done => 2,
        State::Failed => 3,
        State::Cancelled => 4,
    }
}

/// The state with this number.
pub(super) fn state(number: i64) -> State {
    match number {
        0 => State::Queued,
        1 => State::Processing,
        2 => State::Done,
        3 => State::Failed,
        _ => State::Cancelled,
    }
}

/// A column of JSON.
pub(super) fn json(row: &Row<'_>, column: usize) -> Column<Json> {
    let text: String = row.get(column)?;
    RawValue::from_string(text).map_err(|error| wrong(column, error))
}

/// One job and its place in the timeline, from `job_get.sql` or `job_history_get.sql`.
pub(super) fn read_job(row: &Row<'_>) -> Column<(Job, Spine)> {
    let stage: Option<i16> = row.get(4)?;
    let stage = stage.and_then(Stage::from_number);
    let finished: Option<i64> = row.get(3)?;
    let error: Option<String> = row.get(12)?;
    let error: Option<JobError> =
        error.map(|text| serde_json::from_str(&text)).transpose().map_err(|error| wrong(12, error))?;
    let result: Option<String> = row.get(11)?;
    let time = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(instant));
    let job = Job {
        id: JobId(row.get(0)?),
        kind: row.get(1)?,
        queue: row.get(2)?,
        state: stage.map_or_else(|| state(finished.unwrap_or_default()), Stage::state),
        stage,
        priority: row.get(5)?,
        attempt_count: row.get(6)?,
        max_attempts: row.get(7)?,
        crash_count: row.get(8)?,
        progress: row.get(9)?,
        payload: json(row, 10)?,
        result: result.map(RawValue::from_string).transpose().map_err(|error| wrong(11, error))?,
        error,
        worker: row.get(13)?,
        run_at: instant(row.get(14)?),
        created_at: instant(row.get(15)?),
        started_at: time(16)?,
        finished_at: time(17)?,
        lease_expires_at: time(18)?,
        unique_key: row.get(19)?,
        limit_key: row.get(20)?,
        trace_id: row.get(21)?,
        cancel_requested: row.get(22)?,
    };
    Ok((job, Spine { last_seq: row.get(23)?, started_seq: row.get(24)? }))
}

/// A limit from `limit_rule_list.sql`.
pub(super) fn read_limit(row: &Row<'_>) -> Column<Limit> {
    Ok(Limit {
        pattern: row.get(0)?,
        concurrency: row.get(1)?,
        rate: rate(row.get(2)?, row.get(3)?),
        weight: row.get(4)?,
    })
}

/// A rate from its two columns.
pub(super) fn rate(count: Option<u32>, per_ms: Option<i64>) -> Option<Rate> {
    let per_ms = u64::try_from(per_ms?).ok()?;
    Some(Rate { count: count?, per: Duration::from_millis(per_ms) })
}

/// A schedule from `schedule_list.sql`.
pub(super) fn read_schedule(row: &Row<'_>) -> Column<Schedule> {
    let time = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(instant));
    Ok(Schedule {
        name: row.get(0)?,
        cron: row.get(1)?,
        time_zone: row.get(2)?,
        kind: row.get(3)?,
        queue: row.get(4)?,
        payload: json(row, 5)?,
        priority: row.get(6)?,
        next_at: time(7)?,
        last_at: time(8)?,
    })
}

/// A list of names kept as JSON.
pub(super) fn names(row: &Row<'_>, column: usize) -> Column<Vec<String>> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| wrong(column, error))
}

/// A column that does not hold what it should.
pub(super) fn wrong(column: usize, error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(
        column,
        Type::Text,
        Box::new(FromSqlError::Other(Box::new(error))),
    )
}
