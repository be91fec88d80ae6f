//! The contract between the engine and the place where jobs are kept.
//!
//! Two adapters keep it, SQLite and Postgres, with the same meaning (INV-9). Each numbered rule is a case of the
//! conformance suite in `testkit`, run on both.
//!
//! # Rules
//!
//! Enqueue
//!  1. When `enqueue` has answered, the jobs survive any crash (INV-1).
//!  2. A batch is accepted whole or not at all.
//!  3. While an unfinished job holds a `unique_key`, enqueueing with that key answers that job.
//!  4. A job with `after` runs only when all parents are done; a parent that fails or is cancelled fails it with
//!     `DEPENDENCY_FAILED`, and its own dependents with it.
//!  5. A kind that nobody registered is refused.
//!
//! Claim
//!  6. A job is given to one worker at a time: the second claimer gets nothing.
//!  7. Priority, then due time, then id.
//!  8. A job is not given out before its due time, nor while its queue or kind is paused.
//!  9. The attempt is counted at the claim, once.
//! 10. A job whose lease has expired is claimable by anybody's next claim; it gets `requeued:stale`, its
//!     `crash_count` rises; at `max_crashes` it fails with `WORKER_LOST`, at `max_attempts` with
//!     `RETRIES_EXHAUSTED`; if its cancellation was requested it is cancelled.
//! 11. Jobs with a `limit_key` are given out within that key's concurrency and rate, over all workers, and
//!     keys share by weight.
//!
//! Running jobs
//! 12. A settlement or note whose fence does not match, or whose lease has run out by the store's clock, changes
//!     nothing and is answered `Stale`, also when nobody else has taken the job yet (INV-2).
//! 13. `Done`, `Failed` and `Cancelled` end the job; `Retry` makes it due after its delay.
//! 14. `Released` and `Aborted` give the attempt back and make the job claimable at once.
//! 15. A beat keeps all leases of a worker alive that have not run out; it never revives one that has, but recovers
//!     it as a claim does (rule 10). A worker that has been given up is told so. `cancellations` tells the same jobs as a beat,
//!     and changes nothing.
//!
//! A lease ends at the last beat of its worker plus the duration it was claimed with. Nobody can tell from outside
//! whether a silent worker died, was suspended or could not reach the store: a store that is away for longer than a
//! lease makes the jobs that were running lose theirs, and each of them counts a crash. Leases should be longer than the
//! store's usual restart.
//!
//! Operators
//! 16. Only failed jobs can be retried; history and attempt count are kept, and the job gets as many further
//!     attempts as it had been given.
//! 17. Cancelling a waiting job ends it at once; cancelling a running one asks its worker.
//! 18. Events are numbered from 1 without gaps, in the order in which they happened.
//! 19. A schedule's due instant is fired once, however many processes try.
//!
//! Sources
//! 20. `links_accept` enters jobs and their links together or not at all. The job is blocked until its link is held.
//! 21. An item that has a link is not entered again: while it is only accepted, link and job take on the new values;
//!     afterwards nothing changes, and the answer tells how far it is.
//! 22. A link turns only if its mark is the one named: what was accepted anew meanwhile stays. Links turn from accepted
//!     to held to disowned and never back; closing removes them.
//! 23. A finished job is not purged while it has a link.
//!
//! Leadership
//! 24. A write through `under(e)` takes effect only if `e` was the newest epoch when it committed, and no end of that term was
//!     recorded; otherwise it changes nothing and is answered `Deposed`. That goes for a higher `e` too: the store was set back, and does not know of
//!     that term any more. The comparison is part of the transaction that writes (INV-3).
//! 25. Guarded like this are `enqueue`, `enqueue_once`, `retry`, `retry_edited`, `retry_many`, `cancel`, `cancel_many`,
//!     `pause`, `resume`, `limit_set`, `limit_remove`, `schedule_put`, `schedule_remove`, `schedule_fire` and `purge`, when
//!     they are called through `under`. What a worker's lease fences, and what processes say about themselves, is not. Nor is a write without a
//!     term: a command that opens the store itself, a job that enqueues or purges under its lease, and the intake, which
//!     cancels the job of an item that is not its own any more, on whichever node that is found.
//! 26. `term_begin` raises the epoch only from the one its caller saw: a late one cannot depose a later term.
//! 27. Terms never overlap: a term begins at the store's time and ends the one before it at that same time, if that is
//!     still open. The end of a term is recorded once.
//! 28. Reading through `under` is the same as without.
//!
//! Overviews
//! 29. `jobs`, `jobs_found` and `jobs_count` let the same jobs through: those that fit every field of the filter.
//! 30. `jobs_found` looks at no more than `SCAN_MAX` rows when it has to look at them one by one, and not for long. Going
//!     on from `next_before` until there is none finds every job once that was there all the while.
//! 31. `jobs_count` never counts beyond `up_to`. Where `jobs_found` would end its look early it does too, and says so.
//! 32. `retry_many` and `cancel_many` do to each job what `retry` and `cancel` do, in one transaction. A job that is not
//!     there, or with which it cannot be done, is left out of the answer and stays as it is. The answers have the order of
//!     the input.
//! 33. `retry_edited` is a `retry` with another payload; the timeline gets `edited`, with the payload before.
//! 34. `failures` counts each of the newest `FAILURES_SCAN_MAX` failed jobs in one group, by kind and code.
//! 35. `activity` counts each job that ended in the bucket of its end, unless it is marked as not complete. What was
//!     purged or retried since may be counted or not.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stargate_base::Epoch;
use tokio::sync::watch;

use crate::error::Result;
use crate::event::Event;
use crate::intake::{self, Link, LinkFilter, LinkTurn, Linked, NewLink};
use crate::job::{Fence, Job, JobError, JobId, Json, NewJob, State, WorkerId};
use crate::kind::KindSpec;
use crate::leadership::TermRow;
use crate::limits::{Limit, LimitState};
pub use crate::listing::{Activity, Counted, FailureGroup, Found, JobFilter, PAGE_MAX, SCAN_MAX};
use crate::schedule::Schedule;

/// A store shared by everything in the process.
pub type SharedStore = Arc<dyn Store>;

/// Where jobs are kept. The module text has the rules.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug + 'static {
    /// What kind of store this is and how it wakes sleepers.
    fn facts(&self) -> StoreFacts;

    /// Changes whenever there may be something to claim or to cancel: an enqueue in this process, a
    /// notification from another.
    fn wakes(&self) -> watch::Receiver<u64>;

    /// Answers when the store is reachable and has the right schema.
    async fn check(&self) -> Result<StoreHealth>;

    // Leadership

    /// The same store as a leader sees it: guarded writes are refused with `Error::Deposed` unless this is the newest
    /// epoch, and its term goes on. Everything else is as before.
    fn under(&self, epoch: Epoch) -> SharedStore;

    /// The epoch of the newest term, if there ever was one.
    async fn epoch(&self) -> Result<Option<Epoch>>;

    /// Begins a term: raises the epoch by one from `expected`, which is what `epoch` answered before, and ends the term
    /// before it if its node did not. `Error::Conflict` if another was issued since.
    async fn term_begin(
        &self,
        instance: &str,
        address: Option<&str>,
        expected: Option<Epoch>,
    ) -> Result<Epoch>;

    /// Records the end of a term, once, when nobody writes in it any more; a report about an older term or one that has ended
    /// changes nothing.
    async fn term_end(&self, epoch: Epoch, reason: &str) -> Result<()>;

    /// The newest terms, newest first, at most `limit` and never more than [`TERMS_MAX`](crate::leadership::TERMS_MAX).
    async fn terms(&self, limit: u32) -> Result<Vec<TermRow>>;

    // Producers

    /// Accepts jobs, all or none. The answers are in the order of the input.
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>>;

    /// As `enqueue`, but a repeated key with the same fingerprint answers the first result for 24 h, and with
    /// another fingerprint is a conflict.
    async fn enqueue_once(&self, once: Once, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>>;

    // Workers

    /// Makes kinds known; a kind that is known gets the new values.
    async fn kinds_register(&self, kinds: Vec<KindSpec>) -> Result<()>;

    /// The known kinds, by name.
    async fn kinds(&self) -> Result<Vec<KindSpec>>;

    /// Enters a worker process; its lease begins now.
    async fn worker_register(&self, worker: WorkerSpec) -> Result<WorkerId>;

    /// Takes a worker out that holds no jobs any more.
    async fn worker_remove(&self, worker: WorkerId) -> Result<()>;

    /// Keeps the leases of the worker alive that have not run out, recovers the others, and tells which of its jobs
    /// are to be cancelled.
    async fn beat(&self, worker: WorkerId) -> Result<Beat>;

    /// Which jobs of the worker are to be cancelled. Writes nothing and keeps no lease alive, so it may be asked often.
    async fn cancellations(&self, worker: WorkerId) -> Result<Vec<JobId>>;

    /// Whether this execution holds its job: the fence matches and the lease has not run out.
    async fn holds(&self, fence: Fence) -> Result<bool>;

    /// The executions that this worker holds: those for which `holds` is true.
    async fn owned(&self, worker: WorkerId) -> Result<Vec<Fence>>;

    /// Gives out jobs, recovering expired leases and promoting due jobs on the way.
    async fn claim(&self, request: ClaimRequest) -> Result<Claim>;

    /// Records how executions ended. Each is judged by its own fence.
    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Verdict>>;

    /// Records progress and events of running jobs. Each is judged by its own fence.
    async fn note(&self, notes: Vec<Note>) -> Result<Vec<Verdict>>;

    // Sources

    /// Enters items of a source as jobs that do not run yet, all or none. The answers are in the order of the input.
    async fn links_accept(&self, source: &str, links: Vec<NewLink>) -> Result<Vec<Linked>>;

    /// Turns the links with these items and marks; answers how many turned.
    async fn links_turn(&self, source: &str, claims: Vec<intake::Claim>, turn: LinkTurn) -> Result<u64>;

    /// A page of links, by item.
    async fn links(&self, filter: LinkFilter) -> Result<Vec<Link>>;

    // Readers and operators

    /// One job.
    async fn job(&self, id: JobId) -> Result<Option<Job>>;

    /// A page of jobs, newest first: what `jobs_found` finds.
    async fn jobs(&self, filter: JobFilter) -> Result<Vec<Job>>;

    /// A page of jobs, newest first, and where the next one begins.
    async fn jobs_found(&self, filter: JobFilter) -> Result<Found>;

    /// How many jobs the filter lets through, counted no further than `up_to`. Its `limit` says nothing here.
    async fn jobs_count(&self, filter: JobFilter, up_to: u64) -> Result<Counted>;

    /// What the newest failed jobs failed with, by kind and code, the largest group first; at most `limit` groups.
    async fn failures(&self, limit: u32) -> Result<Vec<FailureGroup>>;

    /// What ended in the time up to the store's now, cut into buckets of equal length, oldest first.
    async fn activity(&self, window: Duration, buckets: u32) -> Result<Vec<Activity>>;

    /// The timeline of a job after a sequence number, at most `limit` entries.
    async fn events(&self, id: JobId, after_seq: u32, limit: u32) -> Result<Vec<Event>>;

    /// The parents a job waits for or waited for, with their states.
    async fn parents(&self, id: JobId) -> Result<Vec<(JobId, State)>>;

    /// Has a failed job run again.
    async fn retry(&self, id: JobId) -> Result<()>;

    /// Has a failed job run again, with another payload.
    async fn retry_edited(&self, id: JobId, payload: Json) -> Result<()>;

    /// Has failed jobs run again, at most [`BULK_MAX`](crate::bulk::BULK_MAX) of them; answers those that wait now.
    async fn retry_many(&self, ids: Vec<JobId>) -> Result<Vec<JobId>>;

    /// Ends a waiting job, or asks the worker of a running one to stop.
    async fn cancel(&self, id: JobId) -> Result<Cancelled>;

    /// As `cancel`, for at most [`BULK_MAX`](crate::bulk::BULK_MAX) jobs; answers what was done to those that could be
    /// cancelled.
    async fn cancel_many(&self, ids: Vec<JobId>) -> Result<Vec<(JobId, Cancelled)>>;

    /// Stops giving out jobs of a queue or kind.
    async fn pause(&self, target: PauseTarget) -> Result<()>;

    /// Gives out jobs of a queue or kind again; false if it was not paused.
    async fn resume(&self, target: PauseTarget) -> Result<bool>;

    /// What is paused.
    async fn pauses(&self) -> Result<Vec<PauseTarget>>;

    /// Jobs per queue and stage. Where counting takes long, an answer may be as old as [`COUNTS_AGE_MAX`]; where it takes long
    /// because the dead cannot be removed, as [`COUNTS_AGE_DEAD_MAX`].
    async fn queues(&self) -> Result<Vec<QueueCounts>>;

    /// Jobs that wait and could run (ready), counted no further than `up_to`.
    async fn depth(&self, up_to: u64) -> Result<u64>;

    /// Age of the oldest job that could run now but does not; where it takes long to find, as it was no longer than
    /// [`COUNTS_AGE_DEAD_MAX`] ago.
    async fn oldest_ready(&self) -> Result<Option<Duration>>;

    /// The workers the store knows.
    async fn workers(&self) -> Result<Vec<WorkerRow>>;

    /// Sets the limits of all keys that match a pattern (exact, or a prefix that ends in `*`).
    async fn limit_set(&self, limit: Limit) -> Result<()>;

    /// Removes a limit; false if there was none with this pattern.
    async fn limit_remove(&self, pattern: &str) -> Result<bool>;

    /// The limits, most specific first.
    async fn limits(&self) -> Result<Vec<Limit>>;

    /// The present use of one key.
    async fn limit_state(&self, key: &str) -> Result<Option<LimitState>>;

    /// Adds or replaces a schedule. One with the same cron expression and time zone goes on waiting for its instant.
    async fn schedule_put(&self, schedule: Schedule) -> Result<()>;

    /// Removes a schedule; false if there was none of that name.
    async fn schedule_remove(&self, name: &str) -> Result<bool>;

    /// All schedules by name.
    async fn schedules(&self) -> Result<Vec<Schedule>>;

    /// If the schedule still waits for the instant `due` and that instant has come, enqueues its job and moves
    /// it on to `next`, in one transaction. `None` when somebody else was faster.
    async fn schedule_fire(
        &self,
        name: &str,
        due: Timestamp,
        next: Option<Timestamp>,
    ) -> Result<Option<JobId>>;

    /// The store's time.
    async fn now(&self) -> Result<Timestamp>;

    /// Removes finished jobs and audited actions beyond their retention, at most `batch` of each.
    async fn purge(&self, request: PurgeRequest) -> Result<PurgeReport>;

    /// What a look at the store's own health finds, good and bad. For people, at their request: it may take seconds.
    async fn diagnose(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
}

/// Something found by a look at the store's health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// Whether something should be done.
    pub level: Level,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Finding {
    /// Nothing to do.
    pub fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, level: Level::Ok, detail: detail.into(), remedy: None }
    }

    /// Works, but will hurt.
    pub fn warn(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, level: Level::Warn, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    /// Does not work.
    pub fn fail(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, level: Level::Fail, detail: detail.into(), remedy: Some(remedy.into()) }
    }
}

/// Whether something should be done about a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing to do.
    Ok,
    /// Works, but will hurt.
    Warn,
    /// Does not work.
    Fail,
}

/// What kind of store this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreFacts {
    /// `sqlite` or `postgres`.
    pub name: &'static str,
    /// How a job enqueued by another process is noticed.
    pub wake: WakeMethod,
}

/// How a job enqueued by another process is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeMethod {
    /// Postgres LISTEN/NOTIFY on a connection of its own.
    Notify,
    /// A watch on SQLite's data version.
    DataVersion,
    /// Polling only, because LISTEN does not get through (PgBouncer in transaction mode).
    Poll,
}

/// The answer of a reachable store.
#[derive(Debug, Clone, Copy)]
pub struct StoreHealth {
    /// Time of one round trip.
    pub round_trip: Duration,
    /// Schema version.
    pub schema: i64,
}

/// The answer to one enqueued job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enqueued {
    /// The job.
    pub id: JobId,
    /// Whether it was there already, by its `unique_key` or the idempotency key.
    pub existing: bool,
}

/// A client's key for "do this once".
#[derive(Debug, Clone)]
pub struct Once {
    /// The key the client chose.
    pub key: String,
    /// Hash of the request it stands for.
    pub fingerprint: String,
}

/// A worker process as it introduces itself.
#[derive(Debug, Clone)]
pub struct WorkerSpec {
    /// Host, process id and a random part, so that a restarted process is another worker.
    pub name: String,
    /// Kinds it serves.
    pub kinds: Vec<String>,
    /// Queues it serves; empty means all.
    pub queues: Vec<String>,
    /// Handlers it runs at once.
    pub concurrency: usize,
    /// The shortest lease it will ask for; silence beyond that makes others look at its jobs.
    pub lease_min: Duration,
    /// The longest lease it will ask for; silence beyond that and the worker is given up as a whole.
    pub lease_max: Duration,
}

/// A worker as the store knows it.
#[derive(Debug, Clone)]
pub struct WorkerRow {
    /// Its id.
    pub id: WorkerId,
    /// Its name.
    pub name: String,
    /// Kinds it serves.
    pub kinds: Vec<String>,
    /// Queues it serves; empty means all.
    pub queues: Vec<String>,
    /// Handlers it runs at once.
    pub concurrency: usize,
    /// When it registered.
    pub started_at: Timestamp,
    /// Its last beat.
    pub beat_at: Timestamp,
    /// Jobs it holds.
    pub holding: u64,
    /// Whether its beat is recent enough.
    pub alive: bool,
}

/// The answer to a beat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beat {
    /// False when the store has given this worker up: its jobs belong to others now.
    pub known: bool,
    /// Jobs of this worker whose end an operator asked for.
    pub cancels: Vec<JobId>,
    /// What became of jobs of this worker whose leases had run out before the beat.
    pub recovered: Vec<Recovered>,
}

/// The most jobs a store gives out at once.
pub const CLAIM_MAX: u32 = 1000;

/// What a worker asks for.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Who asks.
    pub worker: WorkerId,
    /// At most so many jobs, and never more than [`CLAIM_MAX`].
    pub limit: u32,
    /// From these queues; empty means all.
    pub queues: Vec<String>,
    /// Of these kinds.
    pub kinds: Vec<KindSlots>,
}

/// A kind in a claim.
#[derive(Debug, Clone)]
pub struct KindSlots {
    /// The kind.
    pub kind: String,
    /// At most so many jobs of it.
    pub slots: u32,
    /// The lease its jobs are given.
    pub lease: Duration,
}

/// The answer to a claim.
#[derive(Debug, Default)]
pub struct Claim {
    /// The jobs, in the order in which they should start.
    pub jobs: Vec<ClaimedJob>,
    /// What became of expired leases found on the way.
    pub recovered: Vec<Recovered>,
    /// When to look again although nobody called: the next due time or lease expiry. Told only when fewer jobs
    /// than the limit were found.
    pub next_look: Option<Duration>,
}

/// A job given to a worker.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// Names this execution in every later write.
    pub fence: Fence,
    /// What is to be done.
    pub kind: Arc<str>,
    /// Where it waited.
    pub queue: Arc<str>,
    /// Input.
    pub payload: Json,
    /// Executions allowed.
    pub max_attempts: u16,
    /// Last percentage reported by an earlier attempt.
    pub progress: u8,
    /// How long it could have run already: from its due time to the claim.
    pub waited: Duration,
    /// Trace context of the enqueuer.
    pub trace_id: Option<String>,
}

/// What became of an expired lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The job.
    pub job: JobId,
    /// Its kind.
    pub kind: String,
    /// What it became.
    pub became: State,
}

/// How an execution ended.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// Which execution.
    pub fence: Fence,
    /// How it ended.
    pub outcome: Outcome,
}

/// How an execution ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Well.
    Done {
        /// The handler's result.
        result: Option<Json>,
    },
    /// Badly, but it may run again after the delay.
    Retry {
        /// What went wrong.
        error: JobError,
        /// How long to wait, by the store's clock.
        delay: Duration,
    },
    /// Badly, for good.
    Failed {
        /// What went wrong.
        error: JobError,
    },
    /// Stopped because an operator asked.
    Cancelled,
    /// Never started: handed back from the local buffer. Leaves no trace in the timeline.
    Released,
    /// Stopped by shutdown: `aborted:shutdown`.
    Aborted,
}

/// Something a running job reports.
#[derive(Debug, Clone)]
pub struct Note {
    /// Which execution.
    pub fence: Fence,
    /// New percentage to keep on the job, if any.
    pub progress: Option<u8>,
    /// Event for the timeline, if any: name and data (an object).
    pub event: Option<(String, Json)>,
}

/// Whether a fenced write took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It did.
    Accepted,
    /// The execution is no longer the current one; nothing was changed.
    Stale,
}

/// What a cancellation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// The job had not started and has ended.
    Ended,
    /// The worker has been asked to stop.
    Requested,
}

/// A queue or a kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PauseTarget {
    /// All jobs of a queue.
    Queue(String),
    /// All jobs of a kind.
    Kind(String),
}

/// Jobs of one queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// The queue.
    pub queue: String,
    /// Claimable now (or paused).
    pub ready: u64,
    /// Due later.
    pub delayed: u64,
    /// Waiting for parents.
    pub blocked: u64,
    /// Held by workers.
    pub processing: u64,
    /// Failed and kept.
    pub failed: u64,
    /// Whether the queue is paused.
    pub paused: bool,
}

/// How old the counts of `queues` may be in a store with very many jobs.
pub const COUNTS_AGE_MAX: Duration = Duration::from_secs(10);

/// How old they may be while a transaction that is held open keeps the dead where they are: to step over all of them costs more
/// from hour to hour.
pub const COUNTS_AGE_DEAD_MAX: Duration = Duration::from_secs(120);

const DAY: Duration = Duration::from_secs(86_400);

/// What to remove.
#[derive(Debug, Clone, Copy)]
pub struct PurgeRequest {
    /// Done and cancelled jobs that ended so long ago.
    pub done_age: Duration,
    /// Failed jobs that ended so long ago.
    pub failed_age: Duration,
    /// Audited actions that were begun so long ago.
    pub actions_age: Duration,
    /// At most so many jobs in one call, and as many actions.
    pub batch: u32,
}

impl Default for PurgeRequest {
    fn default() -> Self {
        Self { done_age: 14 * DAY, failed_age: 30 * DAY, actions_age: 400 * DAY, batch: 5000 }
    }
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PurgeReport {
    /// Done and cancelled jobs.
    pub done: u64,
    /// Failed jobs.
    pub failed: u64,
    /// Audited actions.
    pub actions: u64,
}

impl PurgeReport {
    /// Whether one call has removed all there was to remove.
    pub fn is_short(self, request: PurgeRequest) -> bool {
        let batch = u64::from(request.batch);
        self.done + self.failed < batch && self.actions < batch
    }
}
