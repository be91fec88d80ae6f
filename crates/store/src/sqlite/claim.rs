//! Giving out jobs: promotes what is due, recovers what was abandoned, then takes the best jobs of all lanes.

use std::time::Duration;

use rand::RngExt as _;
use stargate_queue::store::{Claim, ClaimRequest, ClaimedJob};
use stargate_queue::{Fence, JobId, LeaseToken, Stage};

use super::choose::{self, Chosen};
use super::error::Step;
use super::recover;
use super::rows::span;
use super::session::{Session, millis, sql};

/// Due jobs made ready by one claim at most; the next claim goes on.
const PROMOTE_MAX: u32 = 5000;

/// Gives out jobs.
pub(super) fn claim(s: &mut Session<'_>, request: &ClaimRequest) -> Step<Claim> {
    promote(s)?;
    let workers = recover::workers(s)?;
    let mut claim = Claim { recovered: recover::expired(s, &workers, request.worker)?, ..Claim::default() };
    s.flush()?;
    // A worker that was given up must not hold jobs: its lease has ended already.
    let Some(me) = workers.iter().find(|worker| worker.id == request.worker.0) else { return Ok(claim) };
    let chosen = choose::choose(s, request)?;
    if !chosen.jobs.is_empty() {
        recover::freshen(s, me)?;
        claim.jobs = take(s, request, &chosen)?;
    }
    if claim.jobs.len() < request.limit as usize {
        claim.next_look = next_look(s, &workers, request, chosen.next_token)?;
    }
    Ok(claim)
}

/// Makes due jobs ready.
fn promote(s: &mut Session<'_>) -> Step<()> {
    if first_due(s)?.is_none_or(|due| due > s.now) {
        return Ok(());
    }
    let mut update = s.conn.prepare_cached(sql!("job_promote"))?;
    let lanes: Vec<i64> =
        update.query_map((s.now, PROMOTE_MAX), |row| row.get(0))?.collect::<Result<_, _>>()?;
    for lane in lanes {
        s.leave(lane, Stage::Delayed);
        s.enter(lane, Stage::Ready);
    }
    Ok(())
}

fn first_due(s: &Session<'_>) -> Step<Option<i64>> {
    Ok(s.conn.prepare_cached(sql!("job_due_first"))?.query_row([], |row| row.get(0))?)
}

/// Hands the chosen jobs to the worker.
fn take(s: &mut Session<'_>, request: &ClaimRequest, chosen: &Chosen) -> Step<Vec<ClaimedJob>> {
    let token: i64 = rand::rng().random();
    let mut update = s.conn.prepare_cached(sql!("job_claim"))?;
    let mut read = s.conn.prepare_cached(sql!("job_claim_read"))?;
    let mut jobs = Vec::with_capacity(chosen.jobs.len());
    for (id, lane) in &chosen.jobs {
        let lane = &chosen.lanes[*lane];
        let lease = request.kinds[lane.kind].lease;
        update.execute((id, request.worker.0, millis(lease), token, s.now))?;
        jobs.push(read.query_row([id], |row| {
            let attempt = row.get(0)?;
            let run_at: i64 = row.get(3)?;
            Ok(ClaimedJob {
                fence: Fence { job: JobId(*id), attempt, token: LeaseToken(token) },
                kind: lane.lane.kind.clone(),
                queue: lane.lane.queue.clone(),
                payload: super::rows::json(row, 4)?,
                max_attempts: row.get(1)?,
                progress: row.get(2)?,
                waited: span(s.now - run_at),
                trace_id: row.get(5)?,
            })
        })?);
        s.leave(lane.lane.id, Stage::Ready);
        s.enter(lane.lane.id, Stage::Processing);
    }
    Ok(jobs)
}

/// When there may be something although nobody called: a due job, an abandoned one, a rate limit's next token.
fn next_look(
    s: &Session<'_>,
    workers: &[recover::Worker],
    request: &ClaimRequest,
    next_token: Option<i64>,
) -> Step<Option<Duration>> {
    let lease = recover::next_expiry(s, workers, request.worker)?;
    let next = [first_due(s)?, lease, next_token].into_iter().flatten().min();
    Ok(next.map(|at| span(at - s.now)))
}
