//! How executions end, and what they report meanwhile. Every write is fenced by job, attempt and token (INV-2), and by
//! a lease that has not run out.
//!
//! Jobs that simply end take one statement for the whole batch. Whatever else there is, dependents above all, goes
//! through one transaction.

use std::collections::HashSet;

use serde_json::json;
use stargate_queue::event::{ABORTED_SHUTDOWN, REQUEUED_RETRY, REQUEUED_STALE};
use stargate_queue::store::{Note, Outcome, Settlement, Verdict};
use stargate_queue::{Fence, JobError, Json, Result, State};
use tokio_postgres::types::Type;

use super::connect::Session;
use super::enqueue::finish;
use super::error::{again, transient};
use super::rows::{micros, state_number};
use super::{Inner, sql};

/// Executions settled by one statement.
const TOGETHER_MAX: usize = 5000;

const OPERATION: &str = "record outcomes";

/// The end of a job.
pub(super) struct End {
    pub(super) fence: Fence,
    pub(super) state: State,
    pub(super) result: Option<Json>,
    pub(super) error: Option<JobError>,
}

/// Who ends executions.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum By {
    /// Their worker, while their leases last.
    Worker,
    /// Somebody who found that their leases have run out; a worker is lost with each of them.
    Rescuer,
}

/// The end of an execution that is not the end of its job.
pub(super) struct Back {
    fence: Fence,
    /// Due so much later; its old due time holds when absent.
    delay_us: Option<i64>,
    refund: bool,
    crashes: i16,
    error: Option<String>,
    event: &'static str,
    data: String,
}

impl Back {
    fn new(fence: Fence, event: &'static str, data: serde_json::Value) -> Self {
        Self { fence, delay_us: None, refund: false, crashes: 0, error: None, event, data: data.to_string() }
    }

    fn retry(fence: Fence, error: &JobError, delay: std::time::Duration) -> Self {
        let data = json!({ "attempt": fence.attempt, "code": error.code, "class": error.class,
                           "message": error.message, "delay_ms": delay.as_millis() as u64 });
        let error = Some(error_json(error));
        Self { delay_us: Some(micros(delay)), error, ..Self::new(fence, REQUEUED_RETRY, data) }
    }

    /// Its worker was lost; the attempt counts.
    pub(super) fn stale(fence: Fence, worker: &str) -> Self {
        let data = json!({ "attempt": fence.attempt, "worker": worker });
        Self { crashes: 1, ..Self::new(fence, REQUEUED_STALE, data) }
    }

    fn aborted(fence: Fence) -> Self {
        Self { refund: true, ..Self::new(fence, ABORTED_SHUTDOWN, json!({ "attempt": fence.attempt })) }
    }
}

/// An error as its column keeps it.
fn error_json(error: &JobError) -> String {
    error.to_kept()
}

/// A batch sorted by what is to be done.
#[derive(Default)]
struct Work {
    ends: Vec<End>,
    backs: Vec<Back>,
    releases: Vec<Fence>,
}

impl Work {
    /// Whether jobs may be ready by it that have been due for long: handed back as due as they were, or waiting for those that end.
    fn frees_old_jobs(&self) -> bool {
        !self.ends.is_empty()
            || !self.releases.is_empty()
            || self.backs.iter().any(|back| back.delay_us.is_none())
    }

    fn add(&mut self, Settlement { fence, outcome }: Settlement) {
        let end = |state, result, error| End { fence, state, result, error };
        match outcome {
            Outcome::Done { result } => self.ends.push(end(State::Done, result, None)),
            Outcome::Failed { error } => self.ends.push(end(State::Failed, None, Some(error))),
            Outcome::Cancelled => self.ends.push(end(State::Cancelled, None, None)),
            Outcome::Retry { error, delay } => self.backs.push(Back::retry(fence, &error, delay)),
            Outcome::Released => self.releases.push(fence),
            Outcome::Aborted => self.backs.push(Back::aborted(fence)),
        }
    }
}

/// Records how executions ended.
pub(super) async fn settle(inner: &Inner, settlements: Vec<Settlement>) -> Result<Vec<Verdict>> {
    let fences: Vec<Fence> = settlements.iter().map(|one| one.fence).collect();
    let mut accepted: HashSet<Fence> = HashSet::with_capacity(fences.len());
    for group in groups(settlements, |one| one.fence, TOGETHER_MAX, Repeats::Dropped) {
        let asked: Vec<Fence> = group.iter().map(|one| one.fence).collect();
        let mut work = Work::default();
        group.into_iter().for_each(|one| work.add(one));
        let done = settle_group(inner, work).await?;
        accepted.extend(asked.into_iter().filter(|fence| done.contains(&fence.job.0)));
    }
    // Of several settlements with the same fence only the first was made.
    Ok(fences
        .iter()
        .map(|fence| if accepted.remove(fence) { Verdict::Accepted } else { Verdict::Stale })
        .collect())
}

/// What becomes of a fence that was in the batch before.
#[derive(Clone, Copy, PartialEq)]
enum Repeats {
    Dropped,
    Kept,
}

/// Splits a batch so that no group has two fences of one job: the statements answer by job.
fn groups<T>(batch: Vec<T>, fence: impl Fn(&T) -> Fence, most: usize, repeats: Repeats) -> Vec<Vec<T>> {
    let mut groups: Vec<(std::collections::HashMap<i64, Fence>, Vec<T>)> = Vec::new();
    'items: for item in batch {
        let fence = fence(&item);
        for (jobs, group) in &mut groups {
            match jobs.get(&fence.job.0) {
                Some(there) if *there == fence => {
                    if repeats == Repeats::Kept {
                        group.push(item);
                    }
                    continue 'items;
                }
                None if group.len() < most => {
                    jobs.insert(fence.job.0, fence);
                    group.push(item);
                    continue 'items;
                }
                _ => {}
            }
        }
        groups.push(([(fence.job.0, fence)].into(), vec![item]));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Settles fences of different jobs; answers the jobs that were.
async fn settle_group(inner: &Inner, mut work: Work) -> Result<HashSet<i64>> {
    let mut done = HashSet::new();
    let mut tries = 0;
    if work.backs.is_empty() && work.releases.is_empty() {
        loop {
            tries += 1;
            let mut s = inner.settle.session().await?;
            let result = end_rows(inner, &mut s, &work.ends, By::Worker, Children::LeaveAlone).await;
            if again(&result, tries) {
                continue;
            }
            done.extend(result?.ended);
            break;
        }
        if done.len() == work.ends.len() {
            return Ok(done);
        }
        // Stale, or with dependents.
        work.ends.retain(|end| !done.contains(&end.fence.job.0));
    }
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.settle.session().await?;
        s.begin().await?;
        let result = settle_within(inner, &mut s, &work).await;
        let result = finish(&mut s, result).await;
        if again(&result, tries) {
            continue;
        }
        done.extend(result?);
        if work.frees_old_jobs() {
            inner.wake_for_old();
        } else {
            inner.wake();
        }
        return Ok(done);
    }
}

async fn settle_within(inner: &Inner, s: &mut Session<'_>, work: &Work) -> Result<Vec<i64>> {
    let mut done = end(inner, s, &work.ends, By::Worker).await?;
    let ended = done.len();
    done.extend(release(inner, s, &work.releases).await?);
    // With events after the start it did leave a trace: then it was aborted.
    let left = work.releases.iter().filter(|fence| !done.contains(&fence.job.0));
    let left: Vec<Back> = left.map(|fence| Back::aborted(*fence)).collect();
    done.extend(back(inner, s, &left, By::Worker).await?);
    done.extend(back(inner, s, &work.backs, By::Worker).await?);
    let given_back = done.len() > ended;
    // Whoever asked for its end does not want it to run again.
    let others = work.backs.iter().map(|back| back.fence).chain(work.releases.iter().copied());
    let cancelled: Vec<End> = others
        .filter(|fence| !done.contains(&fence.job.0))
        .map(|fence| End { fence, state: State::Cancelled, result: None, error: None })
        .collect();
    done.extend(end(inner, s, &cancelled, By::Worker).await?);
    if given_back {
        inner.notify(s).await?;
    }
    Ok(done)
}

/// Ends jobs within the caller's transaction and tells their dependents; answers those that ended.
pub(super) async fn end(inner: &Inner, s: &mut Session<'_>, ends: &[End], by: By) -> Result<Vec<i64>> {
    if ends.is_empty() {
        return Ok(Vec::new());
    }
    let done = end_rows(inner, s, ends, by, Children::Told).await?;
    if !done.parents.is_empty() {
        let of =
            |id: &i64| ends.iter().find(|end| end.fence.job.0 == *id).map_or(State::Failed, |end| end.state);
        let parents: Vec<(i64, State)> = done.parents.iter().map(|id| (*id, of(id))).collect();
        tell_children(inner, s, &parents).await?;
    }
    Ok(done.ended)
}

/// Releases or fails the dependents of jobs that have ended.
pub(super) async fn tell_children(
    inner: &Inner,
    s: &mut Session<'_>,
    parents: &[(i64, State)],
) -> Result<()> {
    let now = inner.clock.for_statement();
    let (well, badly): (Vec<_>, Vec<_>) = parents.iter().partition(|(_, state)| *state == State::Done);
    if !well.is_empty() {
        let ids: Vec<i64> = well.iter().map(|(id, _)| *id).collect();
        let params = [(&now as _, Type::TIMESTAMPTZ), (&ids as _, Type::INT8_ARRAY)];
        s.rows(OPERATION, sql!("job_unblock"), &params).await?;
        inner.floors.forget();
    }
    if !badly.is_empty() {
        let ids: Vec<i64> = badly.iter().map(|(id, _)| *id).collect();
        let states: Vec<i16> = badly.iter().map(|(_, state)| state_number(*state)).collect();
        let params =
            [(&now as _, Type::TIMESTAMPTZ), (&ids as _, Type::INT8_ARRAY), (&states as _, Type::INT2_ARRAY)];
        s.rows(OPERATION, sql!("job_children_fail"), &params).await?;
    }
    inner.notify(s).await
}

/// What to do with jobs that others wait for.
#[derive(Clone, Copy, PartialEq)]
enum Children {
    LeaveAlone,
    Told,
}

struct Ended {
    ended: Vec<i64>,
    /// Those of them that others wait for.
    parents: Vec<i64>,
}

async fn end_rows(
    inner: &Inner,
    s: &mut Session<'_>,
    ends: &[End],
    by: By,
    children: Children,
) -> Result<Ended> {
    let now = inner.clock.for_statement();
    let (ids, attempts, tokens) = columns(ends.iter().map(|end| end.fence));
    let states: Vec<i16> = ends.iter().map(|end| state_number(end.state)).collect();
    let results: Vec<Option<&str>> =
        ends.iter().map(|end| end.result.as_deref().map(|json| json.get())).collect();
    let errors: Vec<Option<String>> = ends.iter().map(|end| end.error.as_ref().map(error_json)).collect();
    let all = children == Children::Told;
    let (crashes, expired) = (i16::from(by == By::Rescuer), by == By::Rescuer);
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&ids as _, Type::INT8_ARRAY),
        (&attempts as _, Type::INT2_ARRAY),
        (&tokens as _, Type::INT8_ARRAY),
        (&states as _, Type::INT2_ARRAY),
        (&results as _, Type::TEXT_ARRAY),
        (&errors as _, Type::TEXT_ARRAY),
        (&all as _, Type::BOOL),
        (&crashes as _, Type::INT2),
        (&expired as _, Type::BOOL),
    ];
    let rows = s.rows(OPERATION, sql!("job_finish"), &params).await?;
    let row = rows.first().ok_or_else(|| transient(OPERATION, "no answer to the settlement"))?;
    Ok(Ended { ended: row.get(0), parents: row.get(1) })
}

/// Gives jobs back to their queues within the caller's transaction; answers those that were.
pub(super) async fn back(inner: &Inner, s: &mut Session<'_>, backs: &[Back], by: By) -> Result<Vec<i64>> {
    if backs.is_empty() {
        return Ok(Vec::new());
    }
    let now = inner.clock.for_statement();
    let (ids, attempts, tokens) = columns(backs.iter().map(|back| back.fence));
    let delays: Vec<Option<i64>> = backs.iter().map(|back| back.delay_us).collect();
    let refunds: Vec<bool> = backs.iter().map(|back| back.refund).collect();
    let crashes: Vec<i16> = backs.iter().map(|back| back.crashes).collect();
    let errors: Vec<Option<&str>> = backs.iter().map(|back| back.error.as_deref()).collect();
    let events: Vec<&str> = backs.iter().map(|back| back.event).collect();
    let data: Vec<&str> = backs.iter().map(|back| back.data.as_str()).collect();
    let expired = by == By::Rescuer;
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&ids as _, Type::INT8_ARRAY),
        (&attempts as _, Type::INT2_ARRAY),
        (&tokens as _, Type::INT8_ARRAY),
        (&delays as _, Type::INT8_ARRAY),
        (&refunds as _, Type::BOOL_ARRAY),
        (&crashes as _, Type::INT2_ARRAY),
        (&errors as _, Type::TEXT_ARRAY),
        (&events as _, Type::TEXT_ARRAY),
        (&data as _, Type::TEXT_ARRAY),
        (&expired as _, Type::BOOL),
    ];
    s.value(OPERATION, sql!("job_requeue"), &params).await
}

async fn release(inner: &Inner, s: &mut Session<'_>, fences: &[Fence]) -> Result<Vec<i64>> {
    if fences.is_empty() {
        return Ok(Vec::new());
    }
    let now = inner.clock.for_statement();
    let (ids, attempts, tokens) = columns(fences.iter().copied());
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&ids as _, Type::INT8_ARRAY),
        (&attempts as _, Type::INT2_ARRAY),
        (&tokens as _, Type::INT8_ARRAY),
    ];
    s.value(OPERATION, sql!("job_release"), &params).await
}

fn columns(fences: impl Iterator<Item = Fence>) -> (Vec<i64>, Vec<i16>, Vec<i64>) {
    let mut columns = (Vec::new(), Vec::new(), Vec::new());
    for fence in fences {
        columns.0.push(fence.job.0);
        columns.1.push(fence.attempt.cast_signed());
        columns.2.push(fence.token.0);
    }
    columns
}

/// Records progress and events of running jobs.
pub(super) async fn note(inner: &Inner, notes: Vec<Note>) -> Result<Vec<Verdict>> {
    let fences: Vec<Fence> = notes.iter().map(|note| note.fence).collect();
    let mut accepted: HashSet<Fence> = HashSet::new();
    for group in groups(notes, |note| note.fence, TOGETHER_MAX, Repeats::Kept) {
        let noted: Vec<i64> = note_group(inner, &group).await?;
        accepted.extend(group.iter().map(|note| note.fence).filter(|fence| noted.contains(&fence.job.0)));
    }
    Ok(fences.iter().map(|f| if accepted.contains(f) { Verdict::Accepted } else { Verdict::Stale }).collect())
}

async fn note_group(inner: &Inner, notes: &[Note]) -> Result<Vec<i64>> {
    let now = inner.clock.for_statement();
    let (ids, attempts, tokens) = columns(notes.iter().map(|note| note.fence));
    let progress: Vec<Option<i16>> =
        notes.iter().map(|note| note.progress.map(|p| i16::from(p.min(100)))).collect();
    let events: Vec<Option<&str>> =
        notes.iter().map(|n| n.event.as_ref().map(|(name, _)| name.as_str())).collect();
    let data: Vec<Option<&str>> =
        notes.iter().map(|n| n.event.as_ref().map(|(_, data)| data.get())).collect();
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&ids as _, Type::INT8_ARRAY),
        (&attempts as _, Type::INT2_ARRAY),
        (&tokens as _, Type::INT8_ARRAY),
        (&progress as _, Type::INT2_ARRAY),
        (&events as _, Type::TEXT_ARRAY),
        (&data as _, Type::TEXT_ARRAY),
    ];
    let mut s = inner.settle.session().await?;
    s.value("record progress", sql!("job_note"), &params).await
}
