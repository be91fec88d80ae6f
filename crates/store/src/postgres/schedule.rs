//! Durable schedules.

use jiff::Timestamp;
use stargate_base::Epoch;
use stargate_queue::schedule::Schedule;
use stargate_queue::{JobId, NewJob, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::Session;
use super::enqueue::{finish, insert_within};
use super::error::again;
use super::rows::json;
use super::{Inner, leadership, sql};

/// Adds or replaces a schedule.
pub(super) async fn put(inner: &Inner, guard: Option<Epoch>, schedule: &Schedule) -> Result<()> {
    let payload = schedule.payload.get();
    let params = [
        (&schedule.name as _, Type::TEXT),
        (&schedule.cron as _, Type::TEXT),
        (&schedule.time_zone as _, Type::TEXT),
        (&schedule.kind as _, Type::TEXT),
        (&schedule.queue as _, Type::TEXT),
        (&payload as _, Type::TEXT),
        (&schedule.priority as _, Type::INT2),
        (&schedule.next_at as _, Type::TIMESTAMPTZ),
        (&schedule.last_at as _, Type::TIMESTAMPTZ),
    ];
    let mut s = inner.readers.session().await?;
    leadership::write(&mut s, guard, "keep the schedule", sql!("schedule_put"), &params).await.map(drop)
}

/// Removes a schedule.
pub(super) async fn remove(inner: &Inner, guard: Option<Epoch>, name: &str) -> Result<bool> {
    let mut s = inner.readers.session().await?;
    let params = [(&name as _, Type::TEXT)];
    let removed =
        leadership::write(&mut s, guard, "remove the schedule", sql!("schedule_remove"), &params).await?;
    Ok(!removed.is_empty())
}

/// All schedules by name.
pub(super) async fn list(inner: &Inner) -> Result<Vec<Schedule>> {
    let rows = inner.readers.session().await?.rows("list schedules", sql!("schedule_list"), &[]).await?;
    let schedule = |row: &Row| Schedule {
        name: row.get(0),
        cron: row.get(1),
        time_zone: row.get(2),
        kind: row.get(3),
        queue: row.get(4),
        payload: json(row.get(5)),
        priority: row.get(6),
        next_at: row.get(7),
        last_at: row.get(8),
    };
    Ok(rows.iter().map(schedule).collect())
}

/// Fires a schedule if it still waits for the instant `due` and that has come.
pub(super) async fn fire(
    inner: &Inner,
    guard: Option<Epoch>,
    name: &str,
    due: Timestamp,
    next: Option<Timestamp>,
) -> Result<Option<JobId>> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.readers.session().await?;
        leadership::begin(&mut s, guard).await?;
        let result = fire_within(inner, &mut s, name, due, next).await;
        let result = finish(&mut s, result).await;
        if !again(&result, tries) {
            inner.wake();
            return result;
        }
    }
}

async fn fire_within(
    inner: &Inner,
    s: &mut Session<'_>,
    name: &str,
    due: Timestamp,
    next: Option<Timestamp>,
) -> Result<Option<JobId>> {
    let now = inner.clock.for_statement();
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&name as _, Type::TEXT),
        (&due as _, Type::TIMESTAMPTZ),
        (&next as _, Type::TIMESTAMPTZ),
    ];
    let rows = s.rows("fire the schedule", sql!("schedule_fire"), &params).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let job = NewJob {
        queue: row.get(1),
        priority: row.get(3),
        ..NewJob::new(row.get::<_, String>(0), json(row.get(2)))
    };
    let enqueued = insert_within(inner, s, &[&job]).await;
    // The lane may have been made by this very transaction, of which nobody knows yet whether it will commit.
    inner.lanes.forget(&[&job]);
    Ok(enqueued?.first().map(|one| one.id))
}
