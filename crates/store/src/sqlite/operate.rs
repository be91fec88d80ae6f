//! What operators do: retry, cancel, pause, purge; and what workers and schedules enter.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _};
use serde_json::json;
use serde_json::value::RawValue;
use stargate_queue::event::{CANCEL_REQUESTED, EDITED, FAILED, REQUEUED_OPERATOR, edited_data};
use stargate_queue::schedule::Schedule;
use stargate_queue::store::{Cancelled, PauseTarget, PurgeReport, PurgeRequest};
use stargate_queue::{Error, JobError, JobId, KindSpec, NewJob, Stage, State};

use super::enqueue::enqueue;
use super::error::{Failure, Step};
use super::rows::{micros, span_micros, state, state_number};
use super::session::{Lane, Session, sql};
use super::settle::{End, Extra, finish, started_event};

/// Forgotten idempotency keys removed by one purge.
const ONCE_PURGE: i64 = 10_000;
/// How long an idempotency key is remembered: 24 h.
const ONCE_AGE: i64 = 24 * 3600 * 1_000_000;

/// A failed job as its retry needs it.
struct Failed {
    lane: i64,
    started_seq: i64,
    last_seq: i64,
    attempt: u16,
    started_at: Option<i64>,
    finished_at: i64,
    worker: Option<i64>,
    unique_key: Option<String>,
    error: Option<String>,
    /// Read only where it is replaced.
    payload: Option<String>,
}

/// Has a failed job run again, with another payload where one is given.
pub(super) fn retry(s: &mut Session<'_>, JobId(id): JobId, payload: Option<&str>) -> Step<()> {
    let Some(failed) = failed(s, id, payload.is_some())? else {
        let problem = "only failed jobs can be retried".to_owned();
        return Err(Error::WrongState { job: JobId(id), state: state_of(s, id)?, problem }.into());
    };
    if let Some(key) = &failed.unique_key {
        let mut find = s.conn.prepare_cached(sql!("job_by_unique_key"))?;
        if let Some(other) = find.query_row([key], |row| row.get::<_, i64>(0)).optional()? {
            let problem = format!("job {other} has the unique key {key:?} of job {id} and is not finished");
            return Err(Error::Conflict { problem }.into());
        }
    }
    let blockers = open_parents(s, id)?;
    started_event(s, id, failed.started_seq, failed.started_at, failed.attempt, failed.worker)?;
    let error: Option<JobError> = failed.error.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let data = error.map_or_else(
        || json!({}),
        |error| json!({ "code": error.code, "class": error.class, "message": error.message }),
    );
    let mut seq = failed.last_seq;
    s.event(id, seq, failed.finished_at, FAILED, &data.to_string())?;
    if let Some(before) = &failed.payload {
        seq += 1;
        s.event(id, seq, s.now, EDITED, edited_data(before).get())?;
    }
    seq += 1;
    s.event(id, seq, s.now, REQUEUED_OPERATOR, "{}")?;
    let stage = if blockers > 0 { Stage::Blocked } else { Stage::Ready };
    let mut back = s.conn.prepare_cached(sql!("job_retry"))?;
    back.execute((id, stage as i16, blockers, s.now, payload, seq))?;
    s.conn.prepare_cached(sql!("job_history_delete"))?.execute([id])?;
    s.failed(failed.lane, -1);
    s.enter(failed.lane, stage);
    s.wake = true;
    Ok(())
}

/// Has failed jobs run again; those that wait now. Parents come first: a job whose parent has not been retried is
/// refused.
pub(super) fn retry_many(s: &mut Session<'_>, ids: &[JobId]) -> Step<Vec<JobId>> {
    let mut order: Vec<JobId> = ids.to_vec();
    order.sort_unstable();
    order.dedup();
    let mut retried = HashSet::new();
    for id in order {
        if possible(retry(s, id, None))?.is_some() {
            retried.insert(id);
        }
    }
    Ok(ids.iter().filter(|id| retried.remove(id)).copied().collect())
}

/// Cancels jobs; what was done to those with which it could be done. Children come first: a parent's end would fail
/// them.
pub(super) fn cancel_many(s: &mut Session<'_>, ids: &[JobId]) -> Step<Vec<(JobId, Cancelled)>> {
    let mut order: Vec<JobId> = ids.to_vec();
    order.sort_unstable_by(|a, b| b.cmp(a));
    order.dedup();
    let mut cancelled = HashMap::new();
    for id in order {
        if let Some(done) = possible(cancel(s, id))? {
            cancelled.insert(id, done);
        }
    }
    Ok(ids.iter().filter_map(|id| Some((*id, cancelled.remove(id)?))).collect())
}

/// What was done to one job of many; none if it could not be done.
fn possible<T>(done: Step<T>) -> Step<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(Failure::Answer(Error::WrongState { .. } | Error::NotFound { .. } | Error::Conflict { .. })) => {
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

fn failed(s: &Session<'_>, id: i64, with_payload: bool) -> Step<Option<Failed>> {
    let mut look = s.conn.prepare_cached(sql!("job_retry_look"))?;
    let found = look.query_row((id, with_payload), |row| {
        Ok(Failed {
            lane: row.get(0)?,
            started_seq: row.get(1)?,
            last_seq: row.get(2)?,
            attempt: row.get(3)?,
            started_at: row.get(4)?,
            finished_at: row.get(5)?,
            worker: row.get(6)?,
            unique_key: row.get(7)?,
            error: row.get(8)?,
            payload: row.get(9)?,
        })
    });
    Ok(found.optional()?)
}

/// The parents a retried job has to wait for. One that did not succeed has to be retried first.
fn open_parents(s: &Session<'_>, id: i64) -> Step<i64> {
    let mut open = 0;
    for (parent, found) in parents(s.conn, id)? {
        match found {
            State::Queued | State::Processing => {
                s.conn.prepare_cached(sql!("job_parent_mark"))?.execute([parent])?;
                open += 1;
            }
            State::Done => {}
            State::Failed | State::Cancelled => {
                let problem = format!("it waits for job {parent}, which is {found}; retry that one first");
                return Err(Error::WrongState { job: JobId(id), state: State::Failed, problem }.into());
            }
        }
    }
    Ok(open)
}

/// The parents of a job that still exist, with their states.
pub(super) fn parents(conn: &Connection, id: i64) -> Step<Vec<(i64, State)>> {
    let mut list = conn.prepare_cached(sql!("job_parent_list"))?;
    let rows = list.query_map([id], |row| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?)))?;
    let rows: Vec<(i64, Option<i64>)> = rows.collect::<Result<_, _>>()?;
    Ok(rows.into_iter().filter_map(|(parent, found)| Some((parent, state(found?)))).collect())
}

fn state_of(s: &Session<'_>, id: i64) -> Step<State> {
    let mut look = s.conn.prepare_cached(sql!("job_parent_state"))?;
    let found: Option<i64> = look.query_row([id], |row| row.get(0)).optional()?;
    found.map(state).ok_or_else(|| Error::NotFound { what: "job", name: id.to_string() }.into())
}

/// Ends a waiting job, or asks the worker of a running one to stop.
pub(super) fn cancel(s: &mut Session<'_>, JobId(id): JobId) -> Step<Cancelled> {
    type Found = (i64, i16, bool, Option<i64>);
    let mut look = s.conn.prepare_cached(sql!("job_cancel_look"))?;
    let found: Option<Found> =
        look.query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(5)?))).optional()?;
    let Some((lane, stage, has_children, worker)) = found else {
        let problem = "it has ended and cannot be cancelled".to_owned();
        return Err(Error::WrongState { job: JobId(id), state: state_of(s, id)?, problem }.into());
    };
    let stage = Stage::from_number(stage).unwrap_or(Stage::Ready);
    if stage != Stage::Processing {
        let end = End { id, lane, from: stage, has_children, state: State::Cancelled };
        finish(s, &end, Extra::default())?;
        return Ok(Cancelled::Ended);
    }
    let mut request = s.conn.prepare_cached(sql!("job_cancel_request"))?;
    // A second request changes nothing.
    if let Some(seq) = request.query_row([id], |row| row.get(0)).optional()? {
        s.event(id, seq, s.now, CANCEL_REQUESTED, "{}")?;
        s.conn.prepare_cached(sql!("job_cancel_insert"))?.execute((worker, id))?;
    }
    s.wake = true;
    Ok(Cancelled::Requested)
}

/// What is paused, by name.
#[derive(Debug, Default)]
pub(super) struct Paused {
    queues: HashSet<String>,
    kinds: HashSet<String>,
}

impl Paused {
    /// Whether jobs of a lane are held back.
    pub(super) fn hold(&self, lane: &Lane) -> bool {
        self.queues.contains(&*lane.queue) || self.kinds.contains(&*lane.kind)
    }
}

/// What is paused, by name.
pub(super) fn pause_names(conn: &Connection) -> Step<Paused> {
    let mut paused = Paused::default();
    for target in pauses(conn)? {
        match target {
            PauseTarget::Queue(name) => paused.queues.insert(name),
            PauseTarget::Kind(name) => paused.kinds.insert(name),
        };
    }
    Ok(paused)
}

/// What is paused.
pub(super) fn pauses(conn: &Connection) -> Step<Vec<PauseTarget>> {
    let mut list = conn.prepare_cached(sql!("pause_list"))?;
    let rows = list.query_map([], |row| {
        let (scope, name): (String, String) = (row.get(0)?, row.get(1)?);
        Ok(if scope == "queue" { PauseTarget::Queue(name) } else { PauseTarget::Kind(name) })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Stops giving out jobs of a queue or kind.
pub(super) fn pause(s: &Session<'_>, target: &PauseTarget) -> Step<()> {
    s.conn.prepare_cached(sql!("pause_put"))?.execute(columns(target))?;
    Ok(())
}

/// Gives out jobs of a queue or kind again.
pub(super) fn resume(s: &mut Session<'_>, target: &PauseTarget) -> Step<bool> {
    let resumed = s.conn.prepare_cached(sql!("pause_remove"))?.execute(columns(target))? > 0;
    s.wake |= resumed;
    Ok(resumed)
}

fn columns(target: &PauseTarget) -> (&'static str, &str) {
    match target {
        PauseTarget::Queue(name) => ("queue", name),
        PauseTarget::Kind(name) => ("kind", name),
    }
}

/// Makes kinds known.
pub(super) fn kinds_register(s: &mut Session<'_>, kinds: &[KindSpec]) -> Step<()> {
    let mut put = s.conn.prepare_cached(sql!("kind_put"))?;
    for kind in kinds {
        put.execute((&kind.name, kind.max_attempts, kind.max_crashes))?;
    }
    s.forget_foreign();
    Ok(())
}

/// Adds or replaces a schedule.
pub(super) fn schedule_put(s: &Session<'_>, schedule: &Schedule) -> Step<()> {
    s.conn.prepare_cached(sql!("schedule_put"))?.execute((
        &schedule.name,
        &schedule.cron,
        &schedule.time_zone,
        &schedule.kind,
        &schedule.queue,
        schedule.payload.get(),
        schedule.priority,
        schedule.next_at.map(micros),
        schedule.last_at.map(micros),
    ))?;
    Ok(())
}

/// Removes a schedule.
pub(super) fn schedule_remove(s: &Session<'_>, name: &str) -> Step<bool> {
    Ok(s.conn.prepare_cached(sql!("schedule_remove"))?.execute([name])? > 0)
}

/// Fires a schedule if it still waits for the instant `due` and that has come.
pub(super) fn schedule_fire(
    s: &mut Session<'_>,
    name: &str,
    due: Timestamp,
    next: Option<Timestamp>,
) -> Step<Option<JobId>> {
    type Fired = (String, String, String, i16);
    let mut fire = s.conn.prepare_cached(sql!("schedule_fire"))?;
    let fired: Option<Fired> = fire
        .query_row((name, micros(due), next.map(micros), s.now), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((kind, queue, payload, priority)) = fired else { return Ok(None) };
    let payload = RawValue::from_string(payload)
        .map_err(|error| Error::invalid("payload", format!("of schedule {name} is not JSON: {error}")))?;
    let job = NewJob { queue, priority, ..NewJob::new(kind, payload) };
    Ok(enqueue(s, &[job])?.first().map(|enqueued| enqueued.id))
}

/// Removes finished jobs and audited actions beyond their retention.
pub(super) fn purge(s: &mut Session<'_>, request: &PurgeRequest) -> Step<PurgeReport> {
    let mut left = request.batch;
    let mut report = PurgeReport::default();
    for (state, age) in [
        (State::Done, request.done_age),
        (State::Cancelled, request.done_age),
        (State::Failed, request.failed_age),
    ] {
        let removed = purge_state(s, state, s.now - span_micros(age), left)?;
        left -= removed;
        match state {
            State::Failed => report.failed += u64::from(removed),
            _ => report.done += u64::from(removed),
        }
    }
    s.conn.prepare_cached(sql!("idempotency_purge"))?.execute((s.now - ONCE_AGE, ONCE_PURGE))?;
    let oldest = span_micros(request.done_age.max(request.failed_age));
    s.conn.prepare_cached(sql!("worker_purge"))?.execute([s.now - oldest])?;
    let mut actions = s.conn.prepare_cached(sql!("audit_purge"))?;
    report.actions = actions.execute((s.now - span_micros(request.actions_age), request.batch))? as u64;
    Ok(report)
}

fn purge_state(s: &mut Session<'_>, state: State, before: i64, most: u32) -> Step<u32> {
    let found: Vec<(i64, i64)> = {
        let mut find = s.conn.prepare_cached(sql!("job_purge_find"))?;
        let rows =
            find.query_map((state_number(state), before, most), |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    let mut job = s.conn.prepare_cached(sql!("job_history_delete"))?;
    let mut events = s.conn.prepare_cached(sql!("job_event_purge"))?;
    let mut parents = s.conn.prepare_cached(sql!("job_parent_purge"))?;
    for (id, lane) in &found {
        job.execute([id])?;
        events.execute([id])?;
        parents.execute([id])?;
        if state == State::Failed {
            s.failed(*lane, -1);
        }
    }
    Ok(u32::try_from(found.len()).unwrap_or(most))
}
