//! Workers: their beats, and what becomes of the jobs of those that fell silent.
//!
//! A job's lease ends at its worker's last beat plus the lease the job was given. Anybody's claim recovers what has
//! expired, so no single rescuer can stall. A beat that comes too late recovers its own worker's jobs before it counts.

use serde_json::json;
use stargate_base::ErrorClass;
use stargate_queue::event::REQUEUED_STALE;
use stargate_queue::store::{Beat, Recovered, WorkerSpec};
use stargate_queue::{Error, JobError, JobId, Stage, State, WorkerId};

use super::error::Step;
use super::session::{Session, millis, sql};
use super::settle::{End, Extra, finish, moved, started_event};

/// Jobs of one silent worker recovered by one claim at most; the next claim goes on.
const RECOVER_MAX: u32 = 1000;

/// A worker that has not been given up.
pub(super) struct Worker {
    pub(super) id: i64,
    beat_at: i64,
    lease_min: i64,
    lease_max: i64,
}

/// The workers that have not been given up, none of them with a beat that is yet to come.
pub(super) fn workers(s: &Session<'_>) -> Step<Vec<Worker>> {
    let mut list = s.conn.prepare_cached(sql!("worker_here"))?;
    let rows = list.query_map([], |row| {
        let lease = |column| row.get::<_, i64>(column).map(|ms| ms.saturating_mul(1000));
        Ok(Worker { id: row.get(0)?, beat_at: row.get(1)?, lease_min: lease(2)?, lease_max: lease(3)? })
    })?;
    let mut workers: Vec<Worker> = rows.collect::<Result<_, _>>()?;
    let mut ahead = workers
        .iter_mut()
        .filter(|worker| worker.beat_at > s.now.saturating_add(worker.lease_min))
        .peekable();
    if ahead.peek().is_some() {
        s.conn.prepare_cached(sql!("worker_reset"))?.execute([s.now])?;
        ahead.for_each(|worker| worker.beat_at = s.now);
    }
    Ok(workers)
}

/// Recovers the jobs whose lease has expired and gives up workers that were silent for too long. The asking worker
/// is not given up: it has just shown that it lives. Its expired jobs are recovered to the last one, because what it is
/// given now counts as a beat.
pub(super) fn expired(s: &mut Session<'_>, workers: &[Worker], asking: WorkerId) -> Step<Vec<Recovered>> {
    let mut recovered = Vec::new();
    let now = s.now;
    for worker in workers.iter().filter(|worker| worker.beat_at.saturating_add(worker.lease_min) <= now) {
        if worker.id == asking.0 {
            recover_all(s, worker, &mut recovered)?;
            continue;
        }
        recover_some(s, worker, &mut recovered)?;
        if worker.beat_at.saturating_add(worker.lease_max) <= s.now {
            s.conn.prepare_cached(sql!("worker_gone"))?.execute((worker.id, s.now))?;
        }
    }
    s.wake |= !recovered.is_empty();
    Ok(recovered)
}

/// Recovers expired jobs of a worker, not too many at once; how many there were.
fn recover_some(s: &mut Session<'_>, worker: &Worker, recovered: &mut Vec<Recovered>) -> Step<usize> {
    let lost = lost_jobs(s, worker)?;
    for lost in &lost {
        recovered.push(recover(s, worker, lost)?);
    }
    Ok(lost.len())
}

/// Recovers all expired jobs of a worker.
fn recover_all(s: &mut Session<'_>, worker: &Worker, recovered: &mut Vec<Recovered>) -> Step<()> {
    while recover_some(s, worker, recovered)? > 0 {}
    Ok(())
}

/// A job that its worker has abandoned.
struct Lost {
    id: i64,
    lane: i64,
    attempt: u16,
    max_attempts: u16,
    crash_count: u16,
    has_children: bool,
    cancel_requested: bool,
    last_seq: i64,
    started_seq: i64,
    started_at: Option<i64>,
    run_at: i64,
}

fn lost_jobs(s: &Session<'_>, worker: &Worker) -> Step<Vec<Lost>> {
    let silence_ms = (s.now - worker.beat_at) / 1000;
    let mut list = s.conn.prepare_cached(sql!("job_expired"))?;
    let rows = list.query_map((worker.id, silence_ms, RECOVER_MAX), |row| {
        Ok(Lost {
            id: row.get(0)?,
            lane: row.get(1)?,
            attempt: row.get(2)?,
            max_attempts: row.get(3)?,
            crash_count: row.get(4)?,
            has_children: row.get(5)?,
            cancel_requested: row.get(6)?,
            last_seq: row.get(7)?,
            started_seq: row.get(8)?,
            started_at: row.get(9)?,
            run_at: row.get(10)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What an expired lease makes of a job.
enum Fate {
    Cancelled,
    Failed(JobError),
    Queued,
}

fn fate(lost: &Lost, max_crashes: u16) -> Fate {
    if lost.cancel_requested {
        Fate::Cancelled
    } else if lost.crash_count.saturating_add(1) >= max_crashes {
        let message =
            format!("its worker was lost {} times while running it", lost.crash_count.saturating_add(1));
        Fate::Failed(JobError::new("WORKER_LOST", ErrorClass::Fatal, message))
    } else if lost.attempt >= lost.max_attempts {
        let message = format!("its worker was lost during attempt {} of {}", lost.attempt, lost.max_attempts);
        Fate::Failed(JobError::new("RETRIES_EXHAUSTED", ErrorClass::RetryableTransient, message))
    } else {
        Fate::Queued
    }
}

fn recover(s: &mut Session<'_>, worker: &Worker, lost: &Lost) -> Step<Recovered> {
    let kind = s.lane(lost.lane)?.kind.to_string();
    let max_crashes = s.kind(&kind)?.max_crashes;
    if lost.cancel_requested {
        s.conn.prepare_cached(sql!("job_cancel_remove"))?.execute((worker.id, lost.id))?;
    }
    let end = |state| End {
        id: lost.id,
        lane: lost.lane,
        from: Stage::Processing,
        has_children: lost.has_children,
        state,
    };
    let became = match fate(lost, max_crashes) {
        Fate::Cancelled => {
            finish(s, &end(State::Cancelled), Extra { crashed: true, ..Extra::default() })?;
            State::Cancelled
        }
        Fate::Failed(error) => {
            finish(s, &end(State::Failed), Extra { crashed: true, error: Some(&error), result: None })?;
            State::Failed
        }
        Fate::Queued => {
            requeue(s, worker, lost)?;
            State::Queued
        }
    };
    Ok(Recovered { job: JobId(lost.id), kind, became })
}

fn requeue(s: &mut Session<'_>, worker: &Worker, lost: &Lost) -> Step<()> {
    started_event(s, lost.id, lost.started_seq, lost.started_at, lost.attempt, Some(worker.id))?;
    let data = json!({ "attempt": lost.attempt, "worker": s.worker_name(Some(worker.id))? });
    s.event(lost.id, lost.last_seq + 1, s.now, REQUEUED_STALE, &data.to_string())?;
    s.conn.prepare_cached(sql!("job_requeue"))?.execute((
        lost.id,
        Stage::Ready as i16,
        0,
        1,
        lost.last_seq + 1,
        lost.run_at,
        None::<String>,
    ))?;
    moved(s, lost.lane, Stage::Ready)
}

/// A claim counts as a beat when the last one is some time ago, so that the new jobs get their full lease.
pub(super) fn freshen(s: &Session<'_>, worker: &Worker) -> Step<()> {
    if s.now - worker.beat_at > worker.lease_min / 4 {
        s.conn.prepare_cached(sql!("worker_beat"))?.execute((worker.id, s.now, true))?;
    }
    Ok(())
}

/// When the next lease of another worker expires unless it beats.
pub(super) fn next_expiry(s: &Session<'_>, workers: &[Worker], asking: WorkerId) -> Step<Option<i64>> {
    let mut next: Option<i64> = None;
    for worker in workers.iter().filter(|worker| worker.id != asking.0) {
        let mut at = worker.beat_at.saturating_add(worker.lease_min);
        let lease: Option<i64> = if at > s.now {
            let any: bool =
                s.conn.prepare_cached(sql!("job_held_any"))?.query_row([worker.id], |row| row.get(0))?;
            any.then_some(worker.lease_min)
        } else {
            // The shortest lease it might have given has ended; only its jobs know when theirs do.
            let mut min = s.conn.prepare_cached(sql!("job_held_lease_min"))?;
            min.query_row([worker.id], |row| row.get::<_, Option<i64>>(0))?.map(|ms| ms.saturating_mul(1000))
        };
        if let Some(lease) = lease {
            at = worker.beat_at.saturating_add(lease);
            next = Some(next.map_or(at, |next| next.min(at)));
        }
    }
    Ok(next)
}

/// Enters a worker.
pub(super) fn register(s: &Session<'_>, worker: &WorkerSpec) -> Step<WorkerId> {
    let list = |names: &[String]| serde_json::to_string(names).expect("text always serialises");
    let id = s.conn.prepare_cached(sql!("worker_insert"))?.query_row(
        (
            &worker.name,
            list(&worker.kinds),
            list(&worker.queues),
            i64::try_from(worker.concurrency).unwrap_or(i64::MAX),
            millis(worker.lease_min),
            millis(worker.lease_max),
            s.now,
        ),
        |row| row.get(0),
    )?;
    Ok(WorkerId(id))
}

/// Takes a worker out that holds no jobs.
pub(super) fn remove(s: &Session<'_>, worker: WorkerId) -> Step<()> {
    if s.conn.prepare_cached(sql!("worker_gone"))?.execute((worker.0, s.now))? > 0 {
        return Ok(());
    }
    let holds: bool = s.conn.prepare_cached(sql!("job_held_any"))?.query_row([worker.0], |row| row.get(0))?;
    if holds {
        let problem = format!("worker {worker} still holds jobs; settle them or let its lease end");
        return Err(Error::Conflict { problem }.into());
    }
    Ok(())
}

/// Keeps the leases of a worker alive that have not run out.
pub(super) fn beat(s: &mut Session<'_>, worker: WorkerId) -> Step<Beat> {
    let mut beat = Beat { known: true, ..Beat::default() };
    if s.conn.prepare_cached(sql!("worker_beat"))?.execute((worker.0, s.now, false))? == 0 {
        let Some(late) = workers(s)?.into_iter().find(|known| known.id == worker.0) else {
            return Ok(Beat::default());
        };
        recover_all(s, &late, &mut beat.recovered)?;
        s.wake |= !beat.recovered.is_empty();
        s.conn.prepare_cached(sql!("worker_beat"))?.execute((worker.0, s.now, true))?;
    }
    let asked: Vec<(i64, bool)> = {
        let mut list = s.conn.prepare_cached(sql!("job_cancel_list"))?;
        list.query_map([worker.0], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?
    };
    for (job, held) in asked {
        if held {
            beat.cancels.push(JobId(job));
        } else {
            s.conn.prepare_cached(sql!("job_cancel_remove"))?.execute((worker.0, job))?;
        }
    }
    Ok(beat)
}
