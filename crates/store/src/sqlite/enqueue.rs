//! Taking jobs in.

use rusqlite::{CachedStatement, OptionalExtension as _};
use stargate_base::ErrorClass;
use stargate_queue::store::{Enqueued, Once};
use stargate_queue::{Due, Error, JobError, JobId, NewJob, Stage, State};

use super::error::Step;
use super::rows::{micros, span_micros, state};
use super::session::{Session, sql};

/// How long an idempotency key is remembered: 24 h.
const ONCE_AGE: i64 = 24 * 3600 * 1_000_000;
/// Forgotten keys removed on the way.
const ONCE_PURGE: i64 = 10;

/// What the parents of a new job mean for it.
enum Parents {
    /// So many are unfinished.
    Open(i64),
    /// This one has failed or was cancelled.
    Broken(i64, State),
}

/// Accepts jobs, all or none.
pub(super) fn enqueue(s: &mut Session<'_>, jobs: &[NewJob]) -> Step<Vec<Enqueued>> {
    let first = s.take_ids(jobs.len())?;
    let mut insert = s.conn.prepare_cached(sql!("job_insert"))?;
    let mut enqueued = Vec::with_capacity(jobs.len());
    for (id, job) in (first..).zip(jobs) {
        enqueued.push(enqueue_one(s, &mut insert, id, job)?);
    }
    Ok(enqueued)
}

fn enqueue_one(
    s: &mut Session<'_>,
    insert: &mut CachedStatement<'_>,
    id: i64,
    job: &NewJob,
) -> Step<Enqueued> {
    let max_attempts = job.max_attempts.unwrap_or(s.kind(&job.kind)?.max_attempts);
    if let Some(key) = &job.unique_key {
        let mut find = s.conn.prepare_cached(sql!("job_by_unique_key"))?;
        if let Some(id) = find.query_row([key], |row| row.get(0)).optional()? {
            return Ok(Enqueued { id: JobId(id), existing: true });
        }
    }
    let lane = s.lane_of(&job.queue, &job.kind, job.limit_key.as_deref().unwrap_or_default())?.id;
    let run_at = match job.due {
        Due::Now => s.now,
        Due::In(delay) => s.now + span_micros(delay),
        Due::At(at) => micros(at),
    };
    let enqueued = Enqueued { id: JobId(id), existing: false };
    let blockers = match parents(s, id, &job.after)? {
        Parents::Open(count) => count,
        Parents::Broken(parent, state) => {
            let error = error_json(&dependency_failed(parent, state));
            s.conn.prepare_cached(sql!("job_insert_failed"))?.execute((
                id,
                lane,
                job.priority,
                max_attempts,
                run_at,
                s.now,
                job.payload.get(),
                &job.unique_key,
                &job.trace_id,
                error,
            ))?;
            s.failed(lane, 1);
            return Ok(enqueued);
        }
    };
    let stage = stage_for(blockers, run_at, s.now);
    insert.execute((
        id,
        lane,
        stage as i16,
        job.priority,
        max_attempts,
        blockers,
        run_at,
        s.now,
        job.payload.get(),
        &job.unique_key,
        &job.trace_id,
    ))?;
    s.enter(lane, stage);
    s.wake |= stage != Stage::Blocked;
    Ok(enqueued)
}

/// Where a job that nobody holds belongs.
pub(super) fn stage_for(blockers: i64, run_at: i64, now: i64) -> Stage {
    match (blockers, run_at) {
        (1.., _) => Stage::Blocked,
        (_, at) if at > now => Stage::Delayed,
        _ => Stage::Ready,
    }
}

/// Notes the parents of a new job and finds out what they mean for it.
fn parents(s: &Session<'_>, id: i64, after: &[JobId]) -> Step<Parents> {
    let mut parents = Parents::Open(0);
    if after.is_empty() {
        return Ok(parents);
    }
    let mut after = after.to_vec();
    after.sort_unstable();
    after.dedup();
    let mut look = s.conn.prepare_cached(sql!("job_parent_state"))?;
    let mut note = s.conn.prepare_cached(sql!("job_parent_insert"))?;
    let mut mark = s.conn.prepare_cached(sql!("job_parent_mark"))?;
    for JobId(parent) in after {
        let found: Option<i64> = look.query_row([parent], |row| row.get(0)).optional()?;
        let Some(found) = found.map(state) else {
            return Err(Error::NotFound { what: "job", name: parent.to_string() }.into());
        };
        note.execute((id, parent))?;
        match (found, &mut parents) {
            (State::Queued | State::Processing, open) => {
                mark.execute([parent])?;
                if let Parents::Open(count) = open {
                    *count += 1;
                }
            }
            (State::Failed | State::Cancelled, Parents::Open(_)) => parents = Parents::Broken(parent, found),
            _ => {}
        }
    }
    Ok(parents)
}

/// Why a job whose parent did not succeed is failed.
pub(super) fn dependency_failed(parent: i64, became: State) -> JobError {
    JobError::new(
        "DEPENDENCY_FAILED",
        ErrorClass::Fatal,
        format!("job {parent}, which this one waits for, is {became}"),
    )
}

/// An error as its column keeps it.
pub(super) fn error_json(error: &JobError) -> String {
    error.to_kept()
}

/// As [`enqueue`], once per key.
pub(super) fn enqueue_once(s: &mut Session<'_>, once: &Once, jobs: &[NewJob]) -> Step<Vec<Enqueued>> {
    let found: Option<(String, String)> = s
        .conn
        .prepare_cached(sql!("idempotency_get"))?
        .query_row((&once.key, s.now - ONCE_AGE), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((fingerprint, job_ids)) = found {
        if fingerprint != once.fingerprint {
            let problem = format!("the idempotency key {:?} was used for another request", once.key);
            return Err(Error::Conflict { problem }.into());
        }
        let ids: Vec<i64> = serde_json::from_str(&job_ids).unwrap_or_default();
        return Ok(ids.into_iter().map(|id| Enqueued { id: JobId(id), existing: true }).collect());
    }
    let enqueued = enqueue(s, jobs)?;
    let ids: Vec<i64> = enqueued.iter().map(|one| one.id.0).collect();
    let ids = serde_json::to_string(&ids).expect("numbers always serialise");
    s.conn.prepare_cached(sql!("idempotency_put"))?.execute((&once.key, &once.fingerprint, ids, s.now))?;
    s.conn.prepare_cached(sql!("idempotency_purge"))?.execute((s.now - ONCE_AGE, ONCE_PURGE))?;
    Ok(enqueued)
}
