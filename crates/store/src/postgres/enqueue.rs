//! Taking jobs in. Calls that come while a statement is under way are put together into the next: one statement, one
//! commit, one notification for all of them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use stargate_base::Epoch;
use stargate_base::clock::wall;
use stargate_queue::store::{Enqueued, Once};
use stargate_queue::{Due, Error, JobId, NewJob, Result};
use tokio::sync::{Semaphore, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::{Param, Session};
use super::error::{again, transient};
use super::rows::micros;
use super::{Inner, leadership, sql};
use crate::terms::column;

/// Calls that may wait at once; more wait before the door.
const WAITING_MAX: usize = 512;
/// Jobs put together into one statement.
const TOGETHER_JOBS_MAX: usize = 5000;
/// Bytes of payload put together into one statement.
const TOGETHER_BYTES_MAX: usize = 4 << 20;
/// How often a unique key is looked for that others insert and finish at the same time.
const UNIQUE_ROUNDS_MAX: u32 = 10;

const OPERATION: &str = "enqueue";

/// An insert that ends in `from new`, and holds the epoch that its last parameter names until it has committed. It does
/// not matter when the function is run: if it refuses, nothing of the statement stays.
macro_rules! held {
    ($name:literal, $epoch:literal) => {
        concat!(sql!($name), "cross join stargate.leader_hold(", $epoch, "::bigint) held")
    };
}

/// Calls that wait for the statement under way.
#[derive(Debug)]
pub(super) struct Batcher {
    queue: Mutex<Queue>,
    door: Semaphore,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Call>,
    running: bool,
}

#[derive(Debug)]
struct Call {
    /// The term of the leader who accepts the jobs. What is put together is refused together, so all have the same.
    guard: Option<Epoch>,
    jobs: Vec<NewJob>,
    bytes: usize,
    answer: oneshot::Sender<Result<Vec<Enqueued>>>,
}

impl Default for Batcher {
    fn default() -> Self {
        Self { queue: Mutex::default(), door: Semaphore::new(WAITING_MAX) }
    }
}

impl Batcher {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next calls to be served together; none ends the run.
    fn take(&self) -> Vec<Call> {
        let mut queue = self.lock();
        let (mut calls, mut jobs, mut bytes) = (Vec::new(), 0, 0);
        while let Some(call) = queue.waiting.front() {
            let alone = |call: &Call| call.jobs.iter().any(|job| !job.after.is_empty());
            let fits =
                jobs + call.jobs.len() <= TOGETHER_JOBS_MAX && bytes + call.bytes <= TOGETHER_BYTES_MAX;
            let apart = |last: &Call| alone(last) || last.guard != call.guard;
            if !calls.is_empty() && (!fits || alone(call) || calls.last().is_some_and(apart)) {
                break;
            }
            (jobs, bytes) = (jobs + call.jobs.len(), bytes + call.bytes);
            calls.extend(queue.waiting.pop_front());
        }
        queue.running = !calls.is_empty();
        calls
    }
}

/// Lets the next call start a run if this one ends early, with its runtime.
struct Running {
    inner: Arc<Inner>,
    ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.inner.batcher.lock().running = false;
        }
    }
}

/// Accepts jobs, all or none.
pub(super) async fn enqueue(
    inner: &Arc<Inner>,
    guard: Option<Epoch>,
    jobs: Vec<NewJob>,
) -> Result<Vec<Enqueued>> {
    check(inner, &jobs)?;
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let _place = inner.batcher.door.acquire().await.map_err(|e| transient(OPERATION, e))?;
    let bytes = jobs.iter().map(|job| job.payload.get().len()).sum();
    let (answer, answered) = oneshot::channel();
    let start = {
        let mut queue = inner.batcher.lock();
        queue.waiting.push_back(Call { guard, jobs, bytes, answer });
        !std::mem::replace(&mut queue.running, true)
    };
    if start {
        // In a task of its own: a caller that gives up must not take others' jobs with it.
        let inner = inner.clone();
        inner.tasks.clone().spawn(run(inner));
    }
    answered.await.map_err(|e| transient(OPERATION, e))?
}

/// Serves calls until none waits.
async fn run(inner: Arc<Inner>) {
    let mut running = Running { inner, ended: false };
    loop {
        let calls = running.inner.batcher.take();
        if calls.is_empty() {
            // The run was ended under the queue's lock; by now somebody else may have begun the next.
            running.ended = true;
            return;
        }
        serve(&running.inner, calls).await;
    }
}

async fn serve(inner: &Inner, calls: Vec<Call>) {
    let guard = calls.first().and_then(|call| call.guard);
    let all: Vec<&NewJob> = calls.iter().flat_map(|call| &call.jobs).collect();
    match insert(inner, guard, &all).await {
        Ok(enqueued) => {
            let mut rest = enqueued.into_iter();
            for call in calls {
                let mine = rest.by_ref().take(call.jobs.len()).collect();
                let _ = call.answer.send(Ok(mine));
            }
        }
        // One of them is wrong, and none was accepted. Each on its own then, so that only that one hears of it.
        Err(error) if calls.len() > 1 && is_somebodys_fault(&error) => {
            for call in calls {
                let jobs: Vec<&NewJob> = call.jobs.iter().collect();
                let answer = insert(inner, guard, &jobs).await;
                let _ = call.answer.send(answer);
            }
        }
        Err(Error::Deposed { epoch, current }) => {
            for call in calls {
                let _ = call.answer.send(Err(Error::Deposed { epoch, current }));
            }
        }
        Err(error) => {
            // The error cannot be copied; the first caller gets it, the others its meaning.
            let text = error.to_string();
            let class = error.class();
            let mut first = Some(error);
            for call in calls {
                let error = first.take().unwrap_or_else(|| Error::Store {
                    operation: OPERATION,
                    class,
                    hint: None,
                    source: text.clone().into(),
                });
                let _ = call.answer.send(Err(error));
            }
        }
    }
}

/// Whether the error is about the jobs and not about the connection.
fn is_somebodys_fault(error: &Error) -> bool {
    error.class() != stargate_base::ErrorClass::RetryableTransient
}

/// Checks everything that can be checked without the store.
pub(super) fn check(inner: &Inner, jobs: &[NewJob]) -> Result<()> {
    // Due times are compared loosely enough for this host's clock; what decides later is the store's.
    let now = inner.clock.for_statement().unwrap_or_else(stargate_base::clock::wall);
    jobs.iter().try_for_each(|job| job.check(now))
}

async fn insert(inner: &Inner, guard: Option<Epoch>, jobs: &[&NewJob]) -> Result<Vec<Enqueued>> {
    let simple = jobs.iter().all(|job| job.unique_key.is_none() && job.after.is_empty());
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.enqueue.session().await?;
        // A lane that a guarded call makes must go if the call is refused: that takes a transaction.
        let result = if simple && (guard.is_none() || inner.lanes.remembered(jobs).is_some()) {
            insert_plain(inner, &mut s, guard, jobs).await
        } else {
            insert_in_transaction(inner, &mut s, guard, jobs).await
        };
        if result.is_err() {
            inner.lanes.forget(jobs);
        }
        if !again(&result, tries) {
            return result;
        }
    }
}

/// One statement that commits by itself.
async fn insert_plain(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    jobs: &[&NewJob],
) -> Result<Vec<Enqueued>> {
    let lanes = inner.lanes.of_jobs(s, jobs).await?;
    let ids = insert_simple(inner, s, guard, jobs, &lanes, Notice::Lane).await?;
    if are_old(inner, jobs) {
        inner.floors.forget();
    }
    inner.calls.lanes(&lanes);
    Ok(ids.into_iter().map(|id| Enqueued { id: JobId(id), existing: false }).collect())
}

/// What other processes are told of new jobs.
#[derive(Clone, Copy, PartialEq)]
enum Notice {
    /// Their lane, if it is one. Only for a statement that commits by itself: what a transaction inserts is as old as that, and
    /// may have to be looked for below a floor.
    Lane,
    /// That there is something.
    Anything,
}

impl Notice {
    fn text(self, inner: &Inner, lanes: &[i32]) -> String {
        match (self, lanes) {
            (Self::Lane, [lane]) => format!("{} {lane}", inner.own),
            _ => inner.own.clone(),
        }
    }
}

/// Inserts jobs that have neither unique keys nor parents, by the shortest statement that does; the ids in their order.
async fn insert_simple(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    jobs: &[&NewJob],
    lanes: &[i32],
    notice: Notice,
) -> Result<Vec<i64>> {
    if !jobs.iter().all(|job| job.due == Due::Now && job.trace_id.is_none()) {
        let rows = insert_rows(inner, s, guard, jobs, lanes, &vec![0; jobs.len()]).await?;
        Ok(rows.into_iter().map(|(id, _)| id).collect())
    } else if let Some((job, lane)) = alike(jobs, lanes) {
        insert_alike(inner, s, guard, jobs, (job, lane), notice).await
    } else {
        insert_ready(inner, s, guard, jobs, lanes, notice).await
    }
}

/// One of the jobs and its lane, if the others differ in nothing but their payloads.
fn alike<'a>(jobs: &[&'a NewJob], lanes: &[i32]) -> Option<(&'a NewJob, i32)> {
    let (first, lane) = (*jobs.first()?, *lanes.first()?);
    let same = |job: &&NewJob| job.priority == first.priority && job.max_attempts == first.max_attempts;
    (jobs.iter().all(same) && lanes.iter().all(|other| *other == lane)).then_some((first, lane))
}

/// Inserts jobs that are due at once, need nothing else and are all like `job`; the ids in their order.
async fn insert_alike(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    jobs: &[&NewJob],
    (job, lane): (&NewJob, i32),
    notice: Notice,
) -> Result<Vec<i64>> {
    let now = inner.clock.for_statement();
    let payloads: Vec<&str> = jobs.iter().map(|job| job.payload.get()).collect();
    let attempts = job.max_attempts.map(u16::cast_signed);
    let who = notice.text(inner, &[lane]);
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&lane as _, Type::INT4),
        (&payloads as _, Type::TEXT_ARRAY),
        (&job.priority as _, Type::INT2),
        (&attempts as _, Type::INT2),
        (&who as _, Type::TEXT),
    ];
    let (plain, held) = (sql!("job_insert_alike"), held!("job_insert_alike", "$7"));
    inserted(&rows_held(s, guard, plain, held, &params).await?, jobs.len())
}

/// Inserts jobs that are due at once and need nothing else; the ids in their order.
async fn insert_ready(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    jobs: &[&NewJob],
    lanes: &[i32],
    notice: Notice,
) -> Result<Vec<i64>> {
    let now = inner.clock.for_statement();
    let mut distinct: Vec<i32> = Vec::new();
    let mut places: HashMap<i32, i32> = HashMap::new();
    let which: Vec<i32> = lanes
        .iter()
        .map(|lane| {
            *places.entry(*lane).or_insert_with(|| {
                distinct.push(*lane);
                i32::try_from(distinct.len()).unwrap_or(i32::MAX)
            })
        })
        .collect();
    let who = notice.text(inner, &distinct);
    let payloads: Vec<&str> = jobs.iter().map(|job| job.payload.get()).collect();
    let priorities: Vec<i16> = jobs.iter().map(|job| job.priority).collect();
    let attempts: Vec<Option<i16>> = jobs.iter().map(|job| job.max_attempts.map(u16::cast_signed)).collect();
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&distinct as _, Type::INT4_ARRAY),
        (&which as _, Type::INT4_ARRAY),
        (&payloads as _, Type::TEXT_ARRAY),
        (&priorities as _, Type::INT2_ARRAY),
        (&attempts as _, Type::INT2_ARRAY),
        (&who as _, Type::TEXT),
    ];
    let (plain, held) = (sql!("job_insert_ready"), held!("job_insert_ready", "$8"));
    inserted(&rows_held(s, guard, plain, held, &params).await?, jobs.len())
}

/// The ids that an insert has answered, as many as there were jobs.
fn inserted(rows: &[Row], jobs: usize) -> Result<Vec<i64>> {
    let ids: Option<Vec<i64>> = rows.first().and_then(|row| row.get(0));
    ids.filter(|ids| ids.len() == jobs).ok_or_else(|| transient(OPERATION, "the insert answered too few ids"))
}

async fn insert_in_transaction(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    jobs: &[&NewJob],
) -> Result<Vec<Enqueued>> {
    ensure_lanes(inner, s, guard, jobs).await?;
    leadership::begin(s, guard).await?;
    let result = insert_within(inner, s, jobs).await;
    finish(s, result).await.inspect(|_| wake_for(inner, jobs))
}

/// Whether some may have been due for a while when they are accepted. The clock of this machine need not be the server's.
fn are_old(inner: &Inner, jobs: &[&NewJob]) -> bool {
    const CLOCKS_APART: jiff::SignedDuration = jiff::SignedDuration::from_secs(5);
    let is_old = |at: Timestamp| at < inner.clock.for_statement().unwrap_or_else(wall) + CLOCKS_APART;
    jobs.iter().any(|job| matches!(job.due, Due::At(at) if is_old(at)))
}

fn wake_for(inner: &Inner, jobs: &[&NewJob]) {
    if are_old(inner, jobs) {
        inner.wake_for_old();
    } else {
        inner.wake();
    }
}

/// Makes lanes that are missing: they stay even if the transaction that follows does not. Whatever a leader makes is part
/// of its guarded transaction.
async fn ensure_lanes(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    jobs: &[&NewJob],
) -> Result<()> {
    match guard {
        None => inner.lanes.of_jobs(s, jobs).await.map(drop),
        Some(_) => Ok(()),
    }
}

/// Ends a transaction as its work ended.
pub(super) async fn finish<T>(s: &mut Session<'_>, result: Result<T>) -> Result<T> {
    match result {
        Ok(value) => s.commit().await.map(|()| value),
        Err(error) => {
            // If even that fails, dropping the session closes the connection, with the same effect.
            let _ = s.rollback().await;
            Err(error)
        }
    }
}

/// Inserts jobs of any sort within the caller's transaction, in their order: of two with the same unique key the first
/// becomes the job.
pub(super) async fn insert_within(
    inner: &Inner,
    s: &mut Session<'_>,
    jobs: &[&NewJob],
) -> Result<Vec<Enqueued>> {
    let lanes = inner.lanes.of_jobs(s, jobs).await?;
    let mut enqueued: Vec<Option<Enqueued>> = vec![None; jobs.len()];
    let mut from = 0;
    while from < jobs.len() {
        // Jobs with parents one by one, those between them together.
        let to = (from..jobs.len()).find(|n| !jobs[*n].after.is_empty()).unwrap_or(jobs.len());
        if from < to {
            insert_run(inner, s, jobs, &lanes, from..to, &mut enqueued).await?;
        }
        if to < jobs.len() {
            enqueued[to] = Some(insert_child(inner, s, jobs[to], lanes[to]).await?);
        }
        from = to + 1;
    }
    enqueued.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| {
        transient(OPERATION, "a unique key is being enqueued and finished by others all the time")
    })
}

/// Inserts jobs that something other than a parent holds back, within the caller's transaction; their ids in order.
pub(super) async fn insert_blocked(inner: &Inner, s: &mut Session<'_>, jobs: &[&NewJob]) -> Result<Vec<i64>> {
    let lanes = inner.lanes.of_jobs(s, jobs).await?;
    let rows = insert_rows(inner, s, None, jobs, &lanes, &vec![1; jobs.len()]).await?;
    Ok(rows.into_iter().map(|(id, _)| id).collect())
}

/// Inserts jobs without parents.
async fn insert_run(
    inner: &Inner,
    s: &mut Session<'_>,
    jobs: &[&NewJob],
    lanes: &[i32],
    run: std::ops::Range<usize>,
    enqueued: &mut [Option<Enqueued>],
) -> Result<()> {
    let mut open: Vec<usize> = run.collect();
    for _ in 0..UNIQUE_ROUNDS_MAX {
        if open.is_empty() {
            break;
        }
        let these: Vec<&NewJob> = open.iter().map(|n| jobs[*n]).collect();
        let in_lanes: Vec<i32> = open.iter().map(|n| lanes[*n]).collect();
        if these.iter().all(|job| job.unique_key.is_none()) {
            let ids = insert_simple(inner, s, None, &these, &in_lanes, Notice::Anything).await?;
            for (n, id) in open.iter().zip(ids) {
                enqueued[*n] = Some(Enqueued { id: JobId(id), existing: false });
            }
            break;
        }
        let new = insert_rows(inner, s, None, &these, &in_lanes, &vec![0; these.len()]).await?;
        assign(enqueued, jobs, &open, new);
        answer_existing(s, enqueued, jobs, &open).await?;
        open.retain(|n| enqueued[*n].is_none());
    }
    Ok(())
}

/// Matches new ids with the jobs they are for: those with a unique key by that, the others by their order.
fn assign(
    enqueued: &mut [Option<Enqueued>],
    jobs: &[&NewJob],
    open: &[usize],
    new: Vec<(i64, Option<String>)>,
) {
    let mut by_key: HashMap<String, i64> = HashMap::new();
    let mut in_order = VecDeque::new();
    for (id, key) in new {
        match key {
            Some(key) => {
                by_key.insert(key, id);
            }
            None => in_order.push_back(id),
        }
    }
    for n in open {
        let id = match &jobs[*n].unique_key {
            // Taken out, so that a second job with the key is answered as existing.
            Some(key) => by_key.remove(key),
            None => in_order.pop_front(),
        };
        enqueued[*n] = id.map(|id| Enqueued { id: JobId(id), existing: false });
    }
}

async fn answer_existing(
    s: &mut Session<'_>,
    enqueued: &mut [Option<Enqueued>],
    jobs: &[&NewJob],
    open: &[usize],
) -> Result<()> {
    let missing: Vec<usize> = open.iter().copied().filter(|n| enqueued[*n].is_none()).collect();
    let keys: Vec<&str> = missing.iter().filter_map(|n| jobs[*n].unique_key.as_deref()).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let rows = s.rows(OPERATION, sql!("job_by_unique_key"), &[(&keys, Type::TEXT_ARRAY)]).await?;
    let held: HashMap<&str, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    for n in missing {
        let id = jobs[n].unique_key.as_deref().and_then(|key| held.get(key));
        enqueued[n] = id.map(|id| Enqueued { id: JobId(*id), existing: true });
    }
    Ok(())
}

/// Inserts one job behind its parents.
async fn insert_child(inner: &Inner, s: &mut Session<'_>, job: &NewJob, lane: i32) -> Result<Enqueued> {
    let now = inner.clock.for_statement();
    let parents: Vec<i64> = job.after.iter().map(|id| id.0).collect();
    let rows = s.rows(OPERATION, sql!("job_parent_lock"), &[(&parents, Type::INT8_ARRAY)]).await?;
    let row = rows.first().ok_or_else(|| transient(OPERATION, "no answer about the parents"))?;
    let (open, broken, broken_state): (i32, Option<i64>, Option<i16>) = (row.get(0), row.get(1), row.get(2));
    let blockers = if broken.is_some() { 0 } else { i16::try_from(open).unwrap_or(i16::MAX) };
    for _ in 0..UNIQUE_ROUNDS_MAX {
        let new = insert_rows(inner, s, None, &[job], &[lane], &[blockers]).await?;
        if let Some((id, _)) = new.first() {
            let params = [(id as _, Type::INT8), (&parents as _, Type::INT8_ARRAY)];
            s.rows(OPERATION, sql!("job_parent_insert"), &params).await?;
            if let (Some(parent), Some(state)) = (broken, broken_state) {
                let (ids, causes, states) = (vec![*id], vec![parent], vec![state]);
                let params = [
                    (&now as _, Type::TIMESTAMPTZ),
                    (&ids as _, Type::INT8_ARRAY),
                    (&causes as _, Type::INT8_ARRAY),
                    (&states as _, Type::INT2_ARRAY),
                ];
                s.rows(OPERATION, sql!("job_dependency_fail"), &params).await?;
            }
            return Ok(Enqueued { id: JobId(*id), existing: false });
        }
        let mut existing = [None];
        answer_existing(s, &mut existing, &[job], &[0]).await?;
        if let [Some(existing)] = existing {
            return Ok(existing);
        }
    }
    Err(transient(OPERATION, "a unique key is being enqueued and finished by others all the time"))
}

/// Inserts rows in order; answers id and unique key of those that were. The guard is for a statement that commits by
/// itself; a transaction has its own.
async fn insert_rows(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    jobs: &[&NewJob],
    lanes: &[i32],
    blockers: &[i16],
) -> Result<Vec<(i64, Option<String>)>> {
    let now = inner.clock.for_statement();
    let payloads: Vec<&str> = jobs.iter().map(|job| job.payload.get()).collect();
    let priorities: Vec<i16> = jobs.iter().map(|job| job.priority).collect();
    let run_at: Vec<Option<Timestamp>> = jobs
        .iter()
        .map(|job| match job.due {
            Due::At(at) => Some(at),
            Due::Now | Due::In(_) => None,
        })
        .collect();
    let delays: Vec<i64> = jobs
        .iter()
        .map(|job| match job.due {
            Due::In(delay) => micros(delay),
            Due::Now | Due::At(_) => 0,
        })
        .collect();
    let attempts: Vec<Option<i16>> = jobs.iter().map(|job| job.max_attempts.map(u16::cast_signed)).collect();
    let unique: Vec<Option<&str>> = jobs.iter().map(|job| job.unique_key.as_deref()).collect();
    let traces: Vec<Option<&str>> = jobs.iter().map(|job| job.trace_id.as_deref()).collect();
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&lanes as _, Type::INT4_ARRAY),
        (&payloads as _, Type::TEXT_ARRAY),
        (&priorities as _, Type::INT2_ARRAY),
        (&run_at as _, Type::TIMESTAMPTZ_ARRAY),
        (&delays as _, Type::INT8_ARRAY),
        (&attempts as _, Type::INT2_ARRAY),
        (&unique as _, Type::TEXT_ARRAY),
        (&traces as _, Type::TEXT_ARRAY),
        (&blockers as _, Type::INT2_ARRAY),
        (&inner.own as _, Type::TEXT),
    ];
    let (plain, held) = (sql!("job_insert"), held!("job_insert", "$12"));
    let rows = rows_held(s, guard, plain, held, &params).await?;
    let row = rows.first().ok_or_else(|| transient(OPERATION, "no answer to the insert"))?;
    let ids: Option<Vec<i64>> = row.get(0);
    let keys: Option<Vec<Option<String>>> = row.get(1);
    Ok(ids.unwrap_or_default().into_iter().zip(keys.unwrap_or_default()).collect())
}

/// Runs a statement that commits by itself: the plain one, or for a leader the one that holds the epoch until it has
/// committed, in the same round trip.
async fn rows_held(
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    plain: &'static str,
    held: &'static str,
    params: &[Param<'_>],
) -> Result<Vec<Row>> {
    let Some(epoch) = guard else { return s.rows(OPERATION, plain, params).await };
    let epoch = column(Some(epoch));
    let mut params = params.to_vec();
    params.push((&epoch, Type::INT8));
    s.rows(OPERATION, held, &params).await
}

/// As [`enqueue`], once per key.
pub(super) async fn enqueue_once(
    inner: &Inner,
    guard: Option<Epoch>,
    once: Once,
    jobs: Vec<NewJob>,
) -> Result<Vec<Enqueued>> {
    check(inner, &jobs)?;
    let jobs: Vec<&NewJob> = jobs.iter().collect();
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.readers.session().await?;
        ensure_lanes(inner, &mut s, guard, &jobs).await?;
        leadership::begin(&mut s, guard).await?;
        let result = once_within(inner, &mut s, &once, &jobs).await;
        let result = finish(&mut s, result).await;
        if result.is_err() {
            inner.lanes.forget(&jobs);
        }
        if !again(&result, tries) {
            wake_for(inner, &jobs);
            return result;
        }
    }
}

async fn once_within(
    inner: &Inner,
    s: &mut Session<'_>,
    once: &Once,
    jobs: &[&NewJob],
) -> Result<Vec<Enqueued>> {
    let now = inner.clock.for_statement();
    let key = (&once.key as _, Type::TEXT);
    let params = [(&now as _, Type::TIMESTAMPTZ), key.clone(), (&once.fingerprint as _, Type::TEXT)];
    let taken = s.rows(OPERATION, sql!("idempotency_put"), &params).await?;
    if !taken.is_empty() {
        let enqueued = insert_within(inner, s, jobs).await?;
        let ids: Vec<i64> = enqueued.iter().map(|one| one.id.0).collect();
        s.rows(OPERATION, sql!("idempotency_fill"), &[key, (&ids, Type::INT8_ARRAY)]).await?;
        return Ok(enqueued);
    }
    let rows = s.rows(OPERATION, sql!("idempotency_get"), &[key]).await?;
    let row = rows.first().ok_or_else(|| transient(OPERATION, "the idempotency key has just been purged"))?;
    if row.get::<_, &str>(0) != once.fingerprint {
        let problem = format!("the idempotency key {:?} was used for another request", once.key);
        return Err(Error::Conflict { problem });
    }
    let ids: Vec<i64> = row.get(1);
    Ok(ids.into_iter().map(|id| Enqueued { id: JobId(id), existing: true }).collect())
}
