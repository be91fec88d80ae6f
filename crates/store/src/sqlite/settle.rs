//! How executions end, and what they report meanwhile. Every write is fenced by job, attempt and token (INV-2), and by
//! a lease that has not run out.

use std::collections::HashMap;

use rusqlite::{CachedStatement, OptionalExtension as _};
use serde_json::json;
use stargate_queue::event::{ABORTED_SHUTDOWN, PROCESSING, REQUEUED_RETRY, processing_data};
use stargate_queue::store::{Note, Outcome, Settlement, Verdict};
use stargate_queue::{Fence, JobError, Stage, State};

use super::enqueue::{dependency_failed, error_json, stage_for};
use super::error::Step;
use super::rows::{span_micros, state_number};
use super::session::{Session, millis, sql};

/// What is needed of a job that a worker holds.
struct Held {
    lane: i64,
    has_children: bool,
    cancel_requested: bool,
    last_seq: i64,
    started_seq: i64,
    started_at: Option<i64>,
    worker: Option<i64>,
    run_at: i64,
    lease_ms: i64,
}

/// Records how executions ended. Of two settlements with the same fence the first wins.
pub(super) fn settle(s: &mut Session<'_>, settlements: &[Settlement]) -> Step<Vec<Verdict>> {
    let mut look = s.conn.prepare_cached(sql!("job_fenced"))?;
    let mut mover = Mover::new(s)?;
    let mut beats = Beats::default();
    let mut verdicts = Vec::with_capacity(settlements.len());
    for Settlement { fence, outcome } in settlements {
        let held = held(&mut look, fence)?;
        let Some(held) = held.map(|held| beats.keep(s, held)).transpose()?.flatten() else {
            verdicts.push(Verdict::Stale);
            continue;
        };
        settle_one(s, &mut mover, fence, &held, outcome)?;
        verdicts.push(Verdict::Accepted);
    }
    Ok(verdicts)
}

/// The last beats of workers, each looked up once for a batch.
#[derive(Default)]
struct Beats(HashMap<i64, i64>);

impl Beats {
    /// Passes a job on whose lease has not run out.
    fn keep(&mut self, s: &Session<'_>, held: Held) -> Step<Option<Held>> {
        let Some(worker) = held.worker else { return Ok(None) };
        let beat_at = match self.0.get(&worker) {
            Some(beat_at) => *beat_at,
            None => {
                let mut look = s.conn.prepare_cached(sql!("worker_beat_at"))?;
                let beat_at = look.query_row([worker], |row| row.get(0))?;
                self.0.insert(worker, beat_at);
                beat_at
            }
        };
        let ends_at = beat_at.saturating_add(held.lease_ms.saturating_mul(1000));
        Ok((ends_at > s.now).then_some(held))
    }
}

fn held(look: &mut CachedStatement<'_>, fence: &Fence) -> Step<Option<Held>> {
    let held = look.query_row((fence.job.0, fence.attempt, fence.token.0), |row| {
        Ok(Held {
            lane: row.get(0)?,
            has_children: row.get(1)?,
            cancel_requested: row.get(2)?,
            last_seq: row.get(3)?,
            started_seq: row.get(4)?,
            started_at: row.get(5)?,
            worker: row.get(6)?,
            run_at: row.get(7)?,
            lease_ms: row.get(8)?,
        })
    });
    Ok(held.optional()?)
}

fn settle_one(
    s: &mut Session<'_>,
    mover: &mut Mover<'_>,
    fence: &Fence,
    held: &Held,
    outcome: &Outcome,
) -> Step<()> {
    let id = fence.job.0;
    if held.cancel_requested {
        s.conn.prepare_cached(sql!("job_cancel_remove"))?.execute((held.worker, id))?;
    }
    let end =
        |state| End { id, lane: held.lane, from: Stage::Processing, has_children: held.has_children, state };
    match outcome {
        Outcome::Done { result } => {
            let result = result.as_deref().map(|result| result.get());
            mover.finish(s, &end(State::Done), Extra { result, ..Extra::default() })
        }
        Outcome::Failed { error } => {
            mover.finish(s, &end(State::Failed), Extra { error: Some(error), ..Extra::default() })
        }
        // Whoever asked for its end does not want it to run again.
        Outcome::Cancelled => mover.finish(s, &end(State::Cancelled), Extra::default()),
        _ if held.cancel_requested => mover.finish(s, &end(State::Cancelled), Extra::default()),
        Outcome::Retry { error, delay } => {
            let run_at = s.now + span_micros(*delay);
            let data = json!({ "attempt": fence.attempt, "code": error.code, "class": error.class,
                               "message": error.message, "delay_ms": millis(*delay) });
            let back = Back { run_at, error: Some(error), ..Back::from(held) };
            requeue(s, fence, held, REQUEUED_RETRY, &data, &back)
        }
        // With events after the start it did leave a trace; the numbers must not be given out again.
        Outcome::Released if held.last_seq == held.started_seq => {
            s.conn.prepare_cached(sql!("job_release"))?.execute((id, held.started_seq - 1))?;
            moved(s, held.lane, Stage::Ready)
        }
        Outcome::Released | Outcome::Aborted => {
            let data = json!({ "attempt": fence.attempt });
            let back = Back { refund: true, ..Back::from(held) };
            requeue(s, fence, held, ABORTED_SHUTDOWN, &data, &back)
        }
    }
}

/// With what a job goes back into its queue.
struct Back<'e> {
    run_at: i64,
    refund: bool,
    error: Option<&'e JobError>,
}

impl From<&Held> for Back<'_> {
    fn from(held: &Held) -> Self {
        Self { run_at: held.run_at, refund: false, error: None }
    }
}

fn requeue(
    s: &mut Session<'_>,
    fence: &Fence,
    held: &Held,
    event: &str,
    data: &serde_json::Value,
    back: &Back<'_>,
) -> Step<()> {
    let id = fence.job.0;
    started_event(s, id, held.started_seq, held.started_at, fence.attempt, held.worker)?;
    s.event(id, held.last_seq + 1, s.now, event, &data.to_string())?;
    let stage = stage_for(0, back.run_at, s.now);
    s.conn.prepare_cached(sql!("job_requeue"))?.execute((
        id,
        stage as i16,
        back.refund,
        0,
        held.last_seq + 1,
        back.run_at,
        back.error.map(error_json),
    ))?;
    moved(s, held.lane, stage)
}

/// The attempt ended but the job did not: its `processing` event becomes a row.
pub(super) fn started_event(
    s: &mut Session<'_>,
    id: i64,
    seq: i64,
    at: Option<i64>,
    attempt: u16,
    worker: Option<i64>,
) -> Step<()> {
    if seq > 0 {
        let name = s.worker_name(worker)?;
        let data = processing_data(attempt, name.as_deref());
        s.event(id, seq, at.unwrap_or(s.now), PROCESSING, data.get())?;
    }
    Ok(())
}

/// Counts a job from a worker's hands back into its lane.
pub(super) fn moved(s: &mut Session<'_>, lane: i64, to: Stage) -> Step<()> {
    s.leave(lane, Stage::Processing);
    s.enter(lane, to);
    s.wake = true;
    s.release(lane)
}

/// The end of a job.
pub(super) struct End {
    pub(super) id: i64,
    pub(super) lane: i64,
    pub(super) from: Stage,
    pub(super) has_children: bool,
    pub(super) state: State,
}

/// What may come with the end of a job.
#[derive(Default)]
pub(super) struct Extra<'e> {
    pub(super) result: Option<&'e str>,
    pub(super) error: Option<&'e JobError>,
    /// Whether its worker was lost.
    pub(super) crashed: bool,
}

/// Ends a job: moves it into the history and tells its children.
pub(super) fn finish(s: &mut Session<'_>, end: &End, extra: Extra<'_>) -> Step<()> {
    Mover::new(s)?.finish(s, end, extra)
}

/// The statements that move jobs into the history, looked up once for a batch.
struct Mover<'c> {
    insert: CachedStatement<'c>,
    delete: CachedStatement<'c>,
}

impl<'c> Mover<'c> {
    fn new(s: &Session<'c>) -> Step<Self> {
        Ok(Self {
            insert: s.conn.prepare_cached(sql!("job_finish"))?,
            delete: s.conn.prepare_cached(sql!("job_delete"))?,
        })
    }

    fn finish(&mut self, s: &mut Session<'_>, end: &End, extra: Extra<'_>) -> Step<()> {
        self.finish_one(s, end, &extra)?;
        if !end.has_children {
            return Ok(());
        }
        // Children of children, without recursion: chains may be long.
        let mut ended = vec![(end.id, end.state)];
        while let Some((parent, state)) = ended.pop() {
            for (child, lane, has_children) in blocked_children(s, parent)? {
                if state == State::Done {
                    unblock(s, child, lane)?;
                    continue;
                }
                let error = dependency_failed(parent, state);
                let end = End { id: child, lane, from: Stage::Blocked, has_children, state: State::Failed };
                self.finish_one(s, &end, &Extra { error: Some(&error), ..Extra::default() })?;
                if has_children {
                    ended.push((child, State::Failed));
                }
            }
        }
        Ok(())
    }

    fn finish_one(&mut self, s: &mut Session<'_>, end: &End, extra: &Extra<'_>) -> Step<()> {
        self.insert.execute((
            end.id,
            state_number(end.state),
            extra.crashed,
            s.now,
            extra.result,
            extra.error.map(error_json),
        ))?;
        self.delete.execute([end.id])?;
        s.leave(end.lane, end.from);
        if end.state == State::Failed {
            s.failed(end.lane, 1);
        }
        if end.from == Stage::Processing {
            s.release(end.lane)?;
        }
        Ok(())
    }
}

fn blocked_children(s: &Session<'_>, parent: i64) -> Step<Vec<(i64, i64, bool)>> {
    let mut list = s.conn.prepare_cached(sql!("job_children_blocked"))?;
    let rows = list.query_map([parent], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn unblock(s: &mut Session<'_>, child: i64, lane: i64) -> Step<()> {
    let stage: i16 =
        s.conn.prepare_cached(sql!("job_unblock"))?.query_row((child, s.now), |row| row.get(0))?;
    if let Some(stage) = Stage::from_number(stage).filter(|stage| *stage != Stage::Blocked) {
        s.leave(lane, Stage::Blocked);
        s.enter(lane, stage);
        s.wake = true;
    }
    Ok(())
}

/// Records progress and events of running jobs.
pub(super) fn note(s: &mut Session<'_>, notes: &[Note]) -> Step<Vec<Verdict>> {
    let mut write = s.conn.prepare_cached(sql!("job_note"))?;
    let mut verdicts = Vec::with_capacity(notes.len());
    for Note { fence, progress, event } in notes {
        let seq: Option<i64> = write
            .query_row((fence.job.0, fence.attempt, fence.token.0, event.is_some(), progress, s.now), |row| {
                row.get(0)
            })
            .optional()?;
        if let (Some(seq), Some((name, data))) = (seq, event) {
            s.event(fence.job.0, seq, s.now, name, data.get())?;
        }
        verdicts.push(if seq.is_some() { Verdict::Accepted } else { Verdict::Stale });
    }
    Ok(verdicts)
}
