//! Reading: a few connections of their own, never through the writer. WAL lets them read while it writes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _};
use stargate_base::Clock;
use stargate_queue::event::{Event, Spine, timeline};
use stargate_queue::schedule::Schedule;
use stargate_queue::store::{QueueCounts, WorkerRow};
use stargate_queue::{Error, Fence, Job, JobId, LeaseToken, Result, State, WorkerId};
use tokio::sync::Semaphore;

use super::connection;
use super::error::{Step, writer_lost};
use super::operate::{parents as parent_rows, pause_names};
use super::rows::{instant, json, names, read_job, read_schedule, span};
use super::session::{Lane, now, sql};

/// Connections that read at once.
const READERS: usize = 4;
/// Steps that the search for the oldest ready job takes at most: lanes times priorities in use.
const OLDEST_STEPS_MAX: usize = 50_000;

/// A few connections that only read.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    clock: Clock,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Semaphore,
}

/// A connection and the store's time.
pub(super) struct Reader<'c> {
    pub(super) conn: &'c Connection,
    pub(super) now: i64,
}

impl Readers {
    pub(super) fn new(path: PathBuf, clock: Clock) -> Self {
        Self { path, clock, idle: Arc::default(), permits: Semaphore::new(READERS) }
    }

    /// The database file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `read` in one snapshot, outside the async threads; `operation` follows "the store could not".
    pub(super) async fn read<T, F>(&self, operation: &'static str, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Reader<'_>) -> Step<T> + Send + 'static,
    {
        let _permit = self.permits.acquire().await.map_err(|_| writer_lost(operation))?;
        let (path, clock, idle) = (self.path.clone(), self.clock.clone(), Arc::clone(&self.idle));
        let reading = tokio::task::spawn_blocking(move || {
            let kept = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let conn = match kept {
                Some(conn) => conn,
                None => connection::reading(&path)?,
            };
            let answer = snapshot(&conn, &clock, read);
            // A connection that failed may be in any state; the next reader opens a new one.
            if conn.is_autocommit() {
                idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
            }
            answer
        });
        match reading.await {
            Ok(answer) => answer.map_err(|failure| failure.into_error(operation)),
            Err(panicked) => Err(Error::Store {
                operation,
                class: stargate_base::ErrorClass::RetryableTransient,
                hint: None,
                source: Box::new(panicked),
            }),
        }
    }
}

fn snapshot<T>(conn: &Connection, clock: &Clock, read: impl FnOnce(&Reader<'_>) -> Step<T>) -> Step<T> {
    let snapshot = conn.unchecked_transaction()?;
    let now = now(conn, clock)?;
    let answer = read(&Reader { conn, now });
    snapshot.finish()?;
    answer
}

/// One job and its place in the timeline.
pub(super) fn job(conn: &Connection, JobId(id): JobId) -> Step<Option<(Job, Spine)>> {
    let hot = conn.prepare_cached(sql!("job_get"))?.query_row([id], read_job).optional()?;
    match hot {
        Some(found) => Ok(Some(found)),
        None => Ok(conn.prepare_cached(sql!("job_history_get"))?.query_row([id], read_job).optional()?),
    }
}

/// One job that must exist.
fn job_there(conn: &Connection, id: JobId) -> Step<(Job, Spine)> {
    job(conn, id)?.ok_or_else(|| Error::NotFound { what: "job", name: id.to_string() }.into())
}

/// The timeline of a job after a sequence number.
pub(super) fn events(conn: &Connection, id: JobId, after_seq: u32, limit: u32) -> Step<Vec<Event>> {
    let (job, spine) = job_there(conn, id)?;
    let mut list = conn.prepare_cached(sql!("job_event_list"))?;
    let rows = list.query_map((id.0, after_seq, limit), |row| {
        Ok(Event { seq: row.get(0)?, at: instant(row.get(1)?), event: row.get(2)?, data: json(row, 3)? })
    })?;
    let mut events = timeline(&job, spine, rows.collect::<Result<_, _>>()?);
    events.retain(|event| event.seq > after_seq);
    events.truncate(limit as usize);
    Ok(events)
}

/// The parents of a job with their states.
pub(super) fn parents(conn: &Connection, id: JobId) -> Step<Vec<(JobId, State)>> {
    job_there(conn, id)?;
    Ok(parent_rows(conn, id.0)?.into_iter().map(|(parent, state)| (JobId(parent), state)).collect())
}

/// Whether an execution holds its job.
pub(super) fn holds(r: &Reader<'_>, fence: Fence) -> Step<bool> {
    let mut look = r.conn.prepare_cached(sql!("job_holds"))?;
    Ok(look.query_row((fence.job.0, fence.attempt, fence.token.0, r.now), |row| row.get(0))?)
}

/// Jobs that a worker holds and is to end.
pub(super) fn cancellations(r: &Reader<'_>, worker: WorkerId) -> Step<Vec<JobId>> {
    let mut list = r.conn.prepare_cached(sql!("job_cancel_list"))?;
    let rows = list.query_map([worker.0], |row| Ok(row.get::<_, bool>(1)?.then_some(JobId(row.get(0)?))))?;
    Ok(rows.filter_map(Result::transpose).collect::<Result<_, _>>()?)
}

/// The executions a worker holds.
pub(super) fn owned(r: &Reader<'_>, worker: WorkerId) -> Step<Vec<Fence>> {
    let mut list = r.conn.prepare_cached(sql!("job_owned"))?;
    let rows = list.query_map((worker.0, r.now), |row| {
        Ok(Fence { job: JobId(row.get(0)?), attempt: row.get(1)?, token: LeaseToken(row.get(2)?) })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Jobs per queue and stage.
pub(super) fn queues(conn: &Connection) -> Step<Vec<QueueCounts>> {
    let mut list = conn.prepare_cached(sql!("queue_counts"))?;
    let rows = list.query_map([], |row| {
        let count = |column| row.get::<_, i64>(column).map(|count| u64::try_from(count).unwrap_or(0));
        Ok(QueueCounts {
            queue: row.get(0)?,
            ready: count(1)?,
            delayed: count(2)?,
            blocked: count(3)?,
            processing: count(4)?,
            failed: count(5)?,
            paused: row.get(6)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Jobs that could run, counted no further than `up_to`.
pub(super) fn depth(reader: &Reader<'_>, up_to: u64) -> Step<u64> {
    let up_to = i64::try_from(up_to).unwrap_or(i64::MAX);
    let depth: i64 =
        reader.conn.prepare_cached(sql!("depth"))?.query_row((up_to, reader.now), |row| row.get(0))?;
    Ok(u64::try_from(depth).unwrap_or(0))
}

/// Age of the oldest job that could run now; paused ones cannot.
pub(super) fn oldest_ready(reader: &Reader<'_>) -> Step<Option<Duration>> {
    let conn = reader.conn;
    let paused = pause_names(conn)?;
    let mut next_lane = conn.prepare_cached(sql!("lane_next_ready"))?;
    let mut next_priority = conn.prepare_cached(sql!("lane_oldest_ready"))?;
    let due: Option<i64> = conn.prepare_cached(sql!("job_due_first"))?.query_row([], |row| row.get(0))?;
    let mut oldest = due.filter(|due| *due <= reader.now);
    let (mut lane, mut steps) = (0_i64, 0);
    while let Some(id) = next_lane.query_row([lane], |row| row.get(0)).optional()? {
        lane = id;
        steps += 1;
        if paused.hold(&lane_row(conn, id)?) {
            continue;
        }
        let mut priority = i64::MAX;
        while steps < OLDEST_STEPS_MAX
            && let Some((lower, run_at)) =
                next_priority.query_row((lane, priority), |row| Ok((row.get(0)?, row.get(1)?))).optional()?
        {
            priority = lower;
            steps += 1;
            oldest = Some(oldest.map_or(run_at, |oldest: i64| oldest.min(run_at)));
        }
    }
    Ok(oldest.map(|at| span(reader.now - at)))
}

fn lane_row(conn: &Connection, id: i64) -> Step<Lane> {
    Ok(conn.prepare_cached(sql!("lane_get"))?.query_row([id], |row| {
        let text = |column| row.get::<_, String>(column).map(Arc::from);
        Ok(Lane { id, queue: text(0)?, kind: text(1)?, key: text(2)? })
    })?)
}

/// The workers that have not been given up.
pub(super) fn workers(reader: &Reader<'_>) -> Step<Vec<WorkerRow>> {
    let mut list = reader.conn.prepare_cached(sql!("worker_list"))?;
    let rows = list.query_map([reader.now], |row| {
        let count = |column| row.get::<_, i64>(column).map(|count| usize::try_from(count).unwrap_or(0));
        Ok(WorkerRow {
            id: WorkerId(row.get(0)?),
            name: row.get(1)?,
            kinds: names(row, 2)?,
            queues: names(row, 3)?,
            concurrency: count(4)?,
            started_at: instant(row.get(5)?),
            beat_at: instant(row.get(6)?),
            holding: count(7)?.try_into().unwrap_or(0),
            alive: row.get(8)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// All schedules by name.
pub(super) fn schedules(conn: &Connection) -> Step<Vec<Schedule>> {
    let mut list = conn.prepare_cached(sql!("schedule_list"))?;
    let rows = list.query_map([], read_schedule)?;
    Ok(rows.collect::<Result<_, _>>()?)
}
