//! Workers: their beats, and what becomes of the jobs of those that fell silent.
//!
//! A job's lease ends at its worker's last beat plus the lease the job was given. Anybody's claim recovers what has
//! expired, so no single rescuer can stall. A beat that comes too late recovers its own worker's jobs before it counts.

use stargate_base::ErrorClass;
use stargate_queue::store::{Beat, Recovered, WorkerRow, WorkerSpec};
use stargate_queue::{Error, Fence, JobError, JobId, LeaseToken, Result, State, WorkerId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::Session;
use super::enqueue::finish;
use super::error::{again, transient};
use super::rows::{count, millis, small};
use super::settle::{self, Back, By, End};
use super::{Inner, sql};

const OPERATION: &str = "recover abandoned jobs";

/// Looks at the jobs of a late worker that come to nothing before its beat fails.
const IN_VAIN_MAX: u32 = 5;

/// A number of a worker as its column keeps it; one that does not fit was never given out.
pub(super) fn number(worker: WorkerId) -> i32 {
    i32::try_from(worker.0).unwrap_or(0)
}

/// Recovers the jobs whose lease has expired and gives up workers that were silent for too long.
pub(super) async fn recover(inner: &Inner, asking: Option<WorkerId>) -> Result<Vec<Recovered>> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.readers.session().await?;
        s.begin().await?;
        let result = recover_within(inner, &mut s, asking).await;
        let result = finish(&mut s, result).await;
        if !again(&result, tries) {
            if result.as_ref().is_ok_and(|recovered| !recovered.is_empty()) {
                inner.wake_for_old();
            }
            return result;
        }
    }
}

async fn recover_within(
    inner: &Inner,
    s: &mut Session<'_>,
    asking: Option<WorkerId>,
) -> Result<Vec<Recovered>> {
    let now = inner.clock.for_statement();
    s.rows(OPERATION, sql!("worker_reset"), &[(&now, Type::TIMESTAMPTZ)]).await?;
    let rows = s.rows(OPERATION, sql!("worker_silent"), &[(&now, Type::TIMESTAMPTZ)]).await?;
    let silent: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    if silent.is_empty() {
        return Ok(Vec::new());
    }
    let recovered = recover_jobs(inner, s, &silent).await?.recovered;
    let asking = asking.map_or(0, number);
    let params =
        [(&now as _, Type::TIMESTAMPTZ), (&silent as _, Type::INT4_ARRAY), (&asking as _, Type::INT4)];
    s.rows(OPERATION, sql!("worker_gone"), &params).await?;
    Ok(recovered)
}

/// What a look at the expired jobs of some workers came to.
struct Round {
    recovered: Vec<Recovered>,
    /// Expired jobs that were found; no more of them at a time than the statement's limit.
    found: usize,
}

/// Recovers expired jobs of workers that the caller has locked.
async fn recover_jobs(inner: &Inner, s: &mut Session<'_>, workers: &[i32]) -> Result<Round> {
    let now = inner.clock.for_statement();
    let params = [(&now as _, Type::TIMESTAMPTZ), (&workers as _, Type::INT4_ARRAY)];
    let lost: Vec<Lost> =
        s.rows(OPERATION, sql!("job_expired"), &params).await?.iter().map(Lost::of).collect();
    let (mut ends, mut backs, mut recovered) = (Vec::new(), Vec::new(), Vec::new());
    for lost in &lost {
        let became = match fate(lost) {
            Fate::Cancelled => {
                ends.push(End { fence: lost.fence, state: State::Cancelled, result: None, error: None });
                State::Cancelled
            }
            Fate::Failed(error) => {
                ends.push(End { fence: lost.fence, state: State::Failed, result: None, error: Some(error) });
                State::Failed
            }
            Fate::Queued => {
                backs.push(Back::stale(lost.fence, &lost.worker));
                State::Queued
            }
        };
        recovered.push(Recovered { job: lost.fence.job, kind: lost.kind.clone(), became });
    }
    let mut done = settle::end(inner, s, &ends, By::Rescuer).await?;
    done.extend(settle::back(inner, s, &backs, By::Rescuer).await?);
    // Settled by its worker, or asked to be cancelled, since we looked: the next claim looks again.
    recovered.retain(|one| done.contains(&one.job.0));
    if !recovered.is_empty() {
        inner.notify(s).await?;
    }
    Ok(Round { recovered, found: lost.len() })
}

/// A job that its worker has abandoned.
struct Lost {
    fence: Fence,
    max_attempts: u16,
    crash_count: u16,
    cancel_requested: bool,
    kind: String,
    max_crashes: u16,
    worker: String,
}

impl Lost {
    fn of(row: &Row) -> Self {
        Self {
            fence: fence(row),
            max_attempts: small(row, 3),
            crash_count: small(row, 4),
            cancel_requested: row.get(5),
            kind: row.get(6),
            max_crashes: small(row, 7),
            worker: row.get(8),
        }
    }
}

fn fence(row: &Row) -> Fence {
    Fence { job: JobId(row.get(0)), attempt: small(row, 1), token: LeaseToken(row.get(2)) }
}

/// What an expired lease makes of a job.
enum Fate {
    Cancelled,
    Failed(JobError),
    Queued,
}

fn fate(lost: &Lost) -> Fate {
    let crashes = lost.crash_count.saturating_add(1);
    if lost.cancel_requested {
        Fate::Cancelled
    } else if crashes >= lost.max_crashes {
        let message = format!("its worker was lost {crashes} times while running it");
        Fate::Failed(JobError::new("WORKER_LOST", ErrorClass::Fatal, message))
    } else if lost.fence.attempt >= lost.max_attempts {
        let message =
            format!("its worker was lost during attempt {} of {}", lost.fence.attempt, lost.max_attempts);
        Fate::Failed(JobError::new("RETRIES_EXHAUSTED", ErrorClass::RetryableTransient, message))
    } else {
        Fate::Queued
    }
}

/// Enters a worker.
pub(super) async fn register(inner: &Inner, worker: &WorkerSpec) -> Result<WorkerId> {
    let now = inner.clock.for_statement();
    let concurrency = i32::try_from(worker.concurrency).unwrap_or(i32::MAX);
    let (lease_min, lease_max) = (millis(worker.lease_min), millis(worker.lease_max));
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&worker.name as _, Type::TEXT),
        (&worker.kinds as _, Type::TEXT_ARRAY),
        (&worker.queues as _, Type::TEXT_ARRAY),
        (&concurrency as _, Type::INT4),
        (&lease_min as _, Type::INT4),
        (&lease_max as _, Type::INT4),
    ];
    let mut s = inner.readers.session().await?;
    let id: i32 = s.value("register the worker", sql!("worker_insert"), &params).await?;
    Ok(WorkerId(i64::from(id)))
}

/// Takes a worker out that holds no jobs.
pub(super) async fn remove(inner: &Inner, worker: WorkerId) -> Result<()> {
    let mut s = inner.readers.session().await?;
    s.begin().await?;
    let holds_jobs = remove_within(inner, &mut s, number(worker)).await;
    if finish(&mut s, holds_jobs).await? {
        let problem = format!("worker {worker} still holds jobs; settle them or let its lease end");
        return Err(Error::Conflict { problem });
    }
    Ok(())
}

/// Whether it holds jobs, and so stays. It is locked first, and only then looked at: a claim that nobody waits for any more may still
/// be under way in the server. Its jobs would belong to a worker that is gone, and nobody looks for the jobs of those.
async fn remove_within(inner: &Inner, s: &mut Session<'_>, worker: i32) -> Result<bool> {
    const OPERATION: &str = "remove the worker";
    let now = inner.clock.for_statement();
    s.rows(OPERATION, sql!("worker_lock"), &[(&worker, Type::INT4)]).await?;
    let params = [(&now as _, Type::TIMESTAMPTZ), (&worker as _, Type::INT4)];
    s.value(OPERATION, sql!("worker_remove"), &params).await
}

/// Keeps the leases of a worker alive that have not run out.
pub(super) async fn beat(inner: &Inner, worker: WorkerId) -> Result<Beat> {
    beat_on(inner, &mut inner.beat.session().await?, number(worker)).await
}

/// As [`beat`], on a connection that the caller has. One statement, unless the worker was silent for the shortest of
/// its leases: then a transaction recovers what has run out first.
pub(super) async fn beat_on(inner: &Inner, s: &mut Session<'_>, worker: i32) -> Result<Beat> {
    if let Some(beat) = beat_row(inner, s, worker, Silence::Short).await? {
        return Ok(beat);
    }
    let mut tries = 0;
    loop {
        tries += 1;
        s.begin().await?;
        let result = beat_late(inner, s, worker).await;
        let result = finish(s, result).await;
        if again(&result, tries) {
            continue;
        }
        if result.as_ref().is_ok_and(|beat| !beat.recovered.is_empty()) {
            inner.wake_for_old();
        }
        return result;
    }
}

async fn beat_late(inner: &Inner, s: &mut Session<'_>, worker: i32) -> Result<Beat> {
    let mut recovered = Vec::new();
    if !s.rows(OPERATION, sql!("worker_lock"), &[(&worker, Type::INT4)]).await?.is_empty() {
        let mut in_vain = 0;
        loop {
            let round = recover_jobs(inner, s, &[worker]).await?;
            if round.found == 0 {
                break;
            }
            // Settled, or asked to be cancelled, since we looked: the next look knows.
            in_vain = if round.recovered.is_empty() { in_vain + 1 } else { 0 };
            if in_vain >= IN_VAIN_MAX {
                return Err(transient(OPERATION, "the jobs of the worker are being changed by others"));
            }
            recovered.extend(round.recovered);
        }
    }
    let beat = beat_row(inner, s, worker, Silence::Any).await?;
    Ok(Beat { recovered, ..beat.unwrap_or_default() })
}

/// For how long a worker may have been silent when it beats.
#[derive(Clone, Copy, PartialEq)]
enum Silence {
    /// Less than the shortest of its leases.
    Short,
    Any,
}

/// The beat itself; `None` when the worker was silent for too long.
async fn beat_row(inner: &Inner, s: &mut Session<'_>, worker: i32, silence: Silence) -> Result<Option<Beat>> {
    const OPERATION: &str = "keep the leases alive";
    let (now, any) = (inner.clock.for_statement(), silence == Silence::Any);
    let params = [(&now as _, Type::TIMESTAMPTZ), (&worker as _, Type::INT4), (&any as _, Type::BOOL)];
    let rows = s.rows(OPERATION, sql!("worker_beat"), &params).await?;
    let row = rows.first().ok_or_else(|| transient(OPERATION, "no answer to the beat"))?;
    let (beaten, known): (bool, bool) = (row.get(0), row.get(1));
    if !known {
        return Ok(Some(Beat::default()));
    }
    let cancels: Vec<i64> = row.get(2);
    let cancels = cancels.into_iter().map(JobId).collect();
    Ok(beaten.then_some(Beat { known, cancels, recovered: Vec::new() }))
}

/// Jobs that a worker holds and is to end.
pub(super) async fn cancellations(inner: &Inner, worker: WorkerId) -> Result<Vec<JobId>> {
    let mut s = inner.beat.session().await?;
    let rows =
        s.rows("list cancellations", sql!("job_cancel_list"), &[(&number(worker), Type::INT4)]).await?;
    Ok(rows.iter().filter(|row| row.get(1)).map(|row| JobId(row.get(0))).collect())
}

/// Whether an execution holds its job. Asked where outcomes are recorded: no reader or operator holds it up.
pub(super) async fn holds(inner: &Inner, fence: Fence) -> Result<bool> {
    let (now, attempt) = (inner.clock.for_statement(), fence.attempt.cast_signed());
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&fence.job.0 as _, Type::INT8),
        (&attempt as _, Type::INT2),
        (&fence.token.0 as _, Type::INT8),
    ];
    inner.settle.session().await?.value("tell who holds the job", sql!("job_holds"), &params).await
}

/// The executions a worker holds.
pub(super) async fn owned(inner: &Inner, worker: WorkerId) -> Result<Vec<Fence>> {
    let (now, id) = (inner.clock.for_statement(), number(worker));
    let mut s = inner.readers.session().await?;
    let params = [(&now as _, Type::TIMESTAMPTZ), (&id as _, Type::INT4)];
    let rows = s.rows("list the worker's jobs", sql!("job_owned"), &params).await?;
    Ok(rows.iter().map(fence).collect())
}

/// The workers that are still counted on.
pub(super) async fn workers(inner: &Inner) -> Result<Vec<WorkerRow>> {
    let now = inner.clock.for_statement();
    let mut s = inner.readers.session().await?;
    let rows = s.rows("list workers", sql!("worker_list"), &[(&now, Type::TIMESTAMPTZ)]).await?;
    let worker = |row: &Row| WorkerRow {
        id: WorkerId(i64::from(row.get::<_, i32>(0))),
        name: row.get(1),
        kinds: row.get(2),
        queues: row.get(3),
        concurrency: usize::try_from(row.get::<_, i32>(4)).unwrap_or(0),
        started_at: row.get(5),
        beat_at: row.get(6),
        holding: count(row, 7),
        alive: row.get(8),
    };
    Ok(rows.iter().map(worker).collect())
}
