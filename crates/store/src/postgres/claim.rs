//! Giving out jobs. Normally one statement; promotion and recovery come before it when it says that they are due.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use rand::RngExt as _;
use stargate_queue::store::{CLAIM_MAX, Claim, ClaimRequest, ClaimedJob, KindSlots};
use stargate_queue::{Fence, JobId, LeaseToken, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::Session;
use super::error::again;
use super::floors::{Look, Taken};
use super::lanes::Lane;
use super::rows::{json, millis, small, span};
use super::{Inner, claim_lane, recover, sql, vacuum};

/// How often a claim stands back for promotion and recovery before it takes what is there.
const UPKEEP_ROUNDS: u32 = 2;
/// Statements that promote due jobs before one claim, a thousand jobs each.
const PROMOTE_ROUNDS: u32 = 5;

const OPERATION: &str = "give out jobs";

/// What every row of the claim's answer begins with.
struct Head {
    keyed: bool,
    due_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    token_at: Option<Timestamp>,
    now: Timestamp,
    /// Whether the asking worker's last beat is some time ago; absent when it has been given up.
    fading: Option<bool>,
    /// Whether it is as long ago as the shortest of its leases.
    silent: bool,
}

impl Head {
    fn of(row: &Row) -> Self {
        Self {
            keyed: row.get(0),
            due_at: row.get(1),
            expires_at: row.get(2),
            token_at: row.get(3),
            now: row.get(4),
            fading: row.get(5),
            silent: row.get::<_, Option<bool>>(17).unwrap_or(false),
        }
    }

    fn is_past(&self, instant: Option<Timestamp>) -> bool {
        instant.is_some_and(|instant| instant <= self.now)
    }
}

/// Gives out jobs.
pub(super) async fn claim(inner: &Arc<Inner>, request: &ClaimRequest) -> Result<Claim> {
    if let Some(lane) = inner.calls.only_lane(request) {
        let jobs = claim_lane::claim(inner, request, lane).await?;
        if !jobs.is_empty() {
            vacuum::count(inner, jobs.len());
            // The general claim comes right after; it also knows when to look again.
            return Ok(Claim { jobs, next_look: Some(Duration::ZERO), ..Claim::default() });
        }
        // Whoever called may have committed late: then the job lies below where such a claim looks.
        inner.floors.owe();
    }
    let round = inner.calls.begin();
    if round.heard_of_anything() {
        inner.floors.owe();
    }
    let claim = claim_anywhere(inner, request).await?;
    let given = |kind: &str| claim.jobs.iter().filter(|job| *job.kind == *kind).count();
    let has_slots = |kind: &KindSlots| given(&kind.kind) < kind.slots as usize;
    if claim.jobs.len() < request.limit.min(CLAIM_MAX) as usize && request.kinds.iter().all(has_slots) {
        inner.calls.caught_up(&round, request);
        vacuum::caught_up(inner);
    }
    Ok(claim)
}

async fn claim_anywhere(inner: &Arc<Inner>, request: &ClaimRequest) -> Result<Claim> {
    let mut ask = Ask::new(request);
    let mut claim = Claim::default();
    let mut placed: Vec<Placed> = Vec::new();
    let mut upkeep_left = UPKEEP_ROUNDS;
    let mut keyed = inner.keyed.load(Ordering::Relaxed);
    loop {
        let mut s = inner.claim.session().await?;
        let look = inner.floors.look(request);
        let (head, rows) = match take(inner, &mut s, &ask, &look, keyed, upkeep_left > 0).await {
            // What was given out already must reach the worker.
            Err(_) if !placed.is_empty() => break,
            taken => taken?,
        };
        inner.keyed.store(head.keyed, Ordering::Relaxed);
        if head.fading.is_none() {
            break;
        }
        if head.silent && upkeep_left > 0 {
            upkeep_left -= 1;
            claim.recovered.extend(recover::beat_on(inner, &mut s, ask.worker).await?.recovered);
            continue;
        }
        let (due, expired) = (head.is_past(head.due_at), head.is_past(head.expires_at));
        if upkeep_left > 0 && (due || expired) {
            upkeep_left -= 1;
            if due {
                let first = promote(inner, &mut s).await?;
                inner.floors.forget_before(head.now, first);
            }
            drop(s);
            if expired {
                claim.recovered.extend(recover::recover(inner, Some(request.worker)).await?);
            }
            continue;
        }
        if head.keyed && !keyed {
            keyed = true;
            continue;
        }
        let new = place(inner, &mut s, &head, ask.token, &rows).await?;
        if head.fading == Some(true) && !new.is_empty() {
            count_as_beat(inner, &mut s, ask.worker).await;
        }
        let exhausted = ask.subtract(&new);
        if !keyed {
            let full = exhausted || ask.limit == 0;
            inner.floors.taken(&look, head.now, new.iter().map(Placed::taken), full);
            inner.floors.delayed(&look, head.now, head.due_at);
        }
        let more = keyed && exhausted && !new.is_empty() && ask.limit > 0;
        placed.extend(new);
        // Within one statement a key's room may go to jobs that then find no slot for their kind; without those kinds
        // others get it.
        if more {
            upkeep_left = 0;
            continue;
        }
        if ask.limit > 0 {
            let next = [head.due_at, head.expires_at, head.token_at].into_iter().flatten().min();
            // With limit keys everything is read, and nothing is owed.
            let below = if keyed { None } else { inner.floors.owed_in(request) };
            claim.next_look = next.map(|at| span(head.now, at)).into_iter().chain(below).min();
        }
        break;
    }
    vacuum::count(inner, placed.len());
    placed.sort_by(Placed::order);
    claim.jobs = placed.into_iter().map(|placed| placed.job).collect();
    Ok(claim)
}

/// A claim counts as a beat when the last one is some time ago, so that the new jobs get their full lease.
async fn count_as_beat(inner: &Inner, s: &mut Session<'_>, worker: i32) {
    // What was given out counts even if this fails: the next beat makes up for it.
    if let Err(error) = recover::beat_on(inner, s, worker).await {
        tracing::debug!(error = &error as &dyn std::error::Error, "a claim could not count as a beat");
    }
}

/// What is still asked for.
struct Ask<'r> {
    worker: i32,
    token: i64,
    limit: i32,
    queues: &'r [String],
    kinds: Vec<&'r str>,
    slots: Vec<i32>,
    leases: Vec<i32>,
}

impl<'r> Ask<'r> {
    fn new(request: &'r ClaimRequest) -> Self {
        Self {
            worker: recover::number(request.worker),
            token: rand::rng().random(),
            limit: request.limit.min(CLAIM_MAX).cast_signed(),
            queues: &request.queues,
            kinds: request.kinds.iter().map(|kind| kind.kind.as_str()).collect(),
            slots: request.kinds.iter().map(|kind| kind.slots.min(CLAIM_MAX).cast_signed()).collect(),
            leases: request.kinds.iter().map(|kind| millis(kind.lease)).collect(),
        }
    }

    /// Takes off what was given; whether a kind has no slot left.
    fn subtract(&mut self, given: &[Placed]) -> bool {
        for placed in given {
            self.limit -= 1;
            if let Some(n) = self.kinds.iter().position(|kind| **kind == *placed.job.kind) {
                self.slots[n] -= 1;
            }
        }
        self.slots.contains(&0)
    }
}

/// Runs the statement; one row without a job tells of the state of things.
async fn take(
    inner: &Inner,
    s: &mut Session<'_>,
    ask: &Ask<'_>,
    look: &Look,
    keyed: bool,
    upkeep: bool,
) -> Result<(Head, Vec<Row>)> {
    let now = inner.clock.for_statement();
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&ask.worker as _, Type::INT4),
        (&ask.limit as _, Type::INT4),
        (&ask.queues as _, Type::TEXT_ARRAY),
        (&ask.kinds as _, Type::TEXT_ARRAY),
        (&ask.slots as _, Type::INT4_ARRAY),
        (&ask.leases as _, Type::INT4_ARRAY),
        (&ask.token as _, Type::INT8),
        (&upkeep as _, Type::BOOL),
    ];
    let (statement, params) = if keyed {
        (sql!("job_claim_keyed"), params.to_vec())
    } else {
        (sql!("job_claim"), params.into_iter().chain(look.params()).collect())
    };
    let mut tries = 0;
    loop {
        tries += 1;
        let result = s.rows(OPERATION, statement, &params).await;
        if again(&result, tries) {
            continue;
        }
        let rows = result?;
        let head = rows.first().map(Head::of);
        let head = head.ok_or_else(|| super::error::transient(OPERATION, "the claim answered nothing"))?;
        return Ok((head, rows));
    }
}

/// Makes due jobs ready; since when the first was due.
async fn promote(inner: &Inner, s: &mut Session<'_>) -> Result<Option<Timestamp>> {
    let now = inner.clock.for_statement();
    let mut first = None;
    for _ in 0..PROMOTE_ROUNDS {
        let rows = s.rows("promote due jobs", sql!("job_promote"), &[(&now, Type::TIMESTAMPTZ)]).await?;
        let Some(row) = rows.first() else { break };
        first = first.or(row.get(1));
        if row.get::<_, i64>(0) < 1000 {
            break;
        }
    }
    Ok(first)
}

/// A claimed job and what decides its place.
struct Placed {
    job: ClaimedJob,
    lane: i32,
    key: Arc<str>,
    weight: i32,
    priority: i16,
    start: f64,
    run_at: Timestamp,
}

impl Placed {
    fn of(row: &Row, lane: &Lane, head: &Head, token: i64) -> Self {
        let run_at = row.get(14);
        let job = ClaimedJob {
            fence: Fence { job: JobId(row.get(8)), attempt: small(row, 10), token: LeaseToken(token) },
            kind: lane.kind.clone(),
            queue: lane.queue.clone(),
            payload: json(row.get(15)),
            max_attempts: small(row, 11),
            progress: u8::try_from(row.get::<_, i16>(12)).unwrap_or(0),
            waited: span(run_at, head.now),
            trace_id: row.get(16),
        };
        Self {
            job,
            lane: row.get(9),
            key: lane.limit_key.clone(),
            weight: row.get::<_, Option<i32>>(7).unwrap_or(1).max(1),
            priority: row.get(13),
            start: row.get::<_, Option<f64>>(6).unwrap_or(0.0),
            run_at,
        }
    }

    fn taken(&self) -> Taken {
        let job = &self.job;
        let (queue, kind) = (job.queue.clone(), job.kind.clone());
        Taken { lane: self.lane, queue, kind, priority: self.priority, run_at: self.run_at }
    }

    /// Priority, then the virtual time of the limit key, then due time, then id.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let by_start = self.start.total_cmp(&other.start);
        let due = |placed: &Self| (placed.run_at, placed.job.fence.job);
        other.priority.cmp(&self.priority).then(by_start).then_with(|| due(self).cmp(&due(other)))
    }
}

/// The jobs of an answer with their places.
async fn place(
    inner: &Inner,
    s: &mut Session<'_>,
    head: &Head,
    token: i64,
    rows: &[Row],
) -> Result<Vec<Placed>> {
    let mut ids: Vec<i32> = rows.iter().filter_map(|row| row.get::<_, Option<i32>>(9)).collect();
    ids.sort_unstable();
    ids.dedup();
    let lanes = inner.lanes.named(s, &ids).await?;
    let placed =
        |row: &Row| lanes.get(&row.get::<_, Option<i32>>(9)?).map(|lane| Placed::of(row, lane, head, token));
    let mut placed: Vec<Placed> = rows.iter().filter_map(placed).collect();
    placed.sort_by(Placed::order);
    // Each further job of a key starts one step later in its virtual time.
    let mut before: HashMap<Arc<str>, f64> = HashMap::new();
    if placed.iter().any(|placed| !placed.key.is_empty()) {
        for placed in &mut placed {
            let served = before.entry(placed.key.clone()).or_insert(0.0);
            placed.start += *served / f64::from(placed.weight);
            *served += 1.0;
        }
    }
    Ok(placed)
}
