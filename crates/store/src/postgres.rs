//! Jobs kept in a Postgres database, in the schema `stargate`.
//!
//! ```text
//!   claim ───▶ a connection of its own: one statement, commit without waiting for the disk
//!   settle ──▶ a connection of its own: one durable statement for a batch
//!   beat ────▶ a connection of its own, driven by the runtime that beats
//!   enqueue ─▶ calls put together ──▶ a connection of its own
//!   terms ───▶ a connection of its own: nobody who reads keeps a node from leading
//!   directives ─▶ a few connections: a large batch holds up no other directive
//!   readers, operators ──▶ a few connections
//!   overviews ──▶ a connection of its own
//!   LISTEN ──▶ a connection of its own, perhaps past a pooler
//! ```
//!
//! So nothing a producer or an operator does can hold up the bookkeeping of running jobs. Connections are made when
//! first used and replaced when they break; while the server is away every call answers an error of the class
//! `RetryableTransient`. What an enqueue or a settlement has answered survives any crash (INV-1); a claim that is lost
//! in one only makes the job claimable again.

mod audit;
mod bulk;
mod calls;
mod claim;
mod claim_lane;
pub(crate) mod connect;
mod counts;
mod diagnose;
mod directive;
mod enqueue;
pub(crate) mod error;
mod floors;
pub(crate) mod import;
mod lanes;
mod leadership;
mod link;
mod list;
mod listen;
mod migrate;
mod operate;
mod overview;
mod push;
mod push_head;
mod recover;
mod rows;
mod schedule;
mod settle;
pub(crate) mod sink;
pub(crate) mod sink_copy;
pub(crate) mod sink_rows;
mod tls;
mod token;
mod vacuum;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use rand::RngExt as _;
use stargate_base::{Clock, Epoch, Tasks};
use stargate_queue::bulk::check_ids;
use stargate_queue::event::Event;
use stargate_queue::intake::{Claim as SourceClaim, Link, LinkFilter, LinkTurn, Linked, NewLink};
use stargate_queue::job::{check_json_size, check_name};
use stargate_queue::leadership::{TermRow, check_reason, check_term};
use stargate_queue::limits::{Limit, LimitState};
use stargate_queue::listing::check_activity;
use stargate_queue::schedule::Schedule;
use stargate_queue::store::{
    Activity, Beat, Cancelled, Claim, ClaimRequest, Counted, Enqueued, FailureGroup, Finding, Found,
    JobFilter, Note, Once, PauseTarget, PurgeReport, PurgeRequest, QueueCounts, Settlement, StoreFacts,
    StoreHealth, Verdict, WorkerRow, WorkerSpec,
};
use stargate_queue::{
    Fence, Job, JobId, Json, KindSpec, NewJob, Result, SharedStore, State, Store, WorkerId,
};
use tokio::sync::watch;
use tokio_postgres::types::Type;

use crate::activity::Ledger;
use calls::Calls;
use connect::{Connector, Line, Lines, Planning, Session};

/// The text of a statement.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/postgres/", $name, ".sql"))
    };
}
use sql;

/// Connections for readers and operators.
const READERS: usize = 3;
/// Connections for directives.
const DIRECTIVES: usize = 4;

/// How a Postgres store is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where the time comes from; tests set their own.
    pub clock: Clock,
    /// Brings the schema up to date on opening; without it an old schema is refused.
    pub migrate: bool,
    /// A direct connection for LISTEN, when the URL leads to a pooler in transaction mode.
    pub listen_url: Option<String>,
    /// The URL leads to a pooler that does not keep prepared statements. Found out by itself when absent, at the cost
    /// of one failed statement.
    pub pooled: bool,
    /// How long a statement, or the wait for a connection, may take before the call answers a transient error; 30 s
    /// when absent.
    pub statement_timeout: Option<Duration>,
    /// For a process that writes once and ends: nothing is listened for, which saves two connections, and statements are
    /// sent whole, which saves a round trip each.
    pub brief: bool,
    /// Claims remember from the beginning what they have taken, and not only when vacuums do not help; for tests.
    pub floors: bool,
}

/// Jobs kept in a Postgres database.
#[derive(Debug)]
pub struct Postgres {
    open: Arc<Open>,
    inner: Arc<Inner>,
    ear: Arc<listen::Ear>,
    /// The term of the leader whose writes these are.
    guard: Option<Epoch>,
}

/// Stops what runs in the background when the last one who uses the store is gone.
#[derive(Debug)]
struct Open(Tasks);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What calls and the tasks they start share.
#[derive(Debug)]
struct Inner {
    clock: Clock,
    claim: Line,
    settle: Line,
    beat: Line,
    enqueue: Line,
    leadership: Line,
    readers: Lines,
    directives: Lines,
    /// Tables that directives write to.
    sinks: sink::Sinks,
    expectations: sink_copy::Expectations,
    /// For what takes long and that nobody waits for.
    spare: Line,
    /// For charts, which may read many rows: those who turn pages do not wait behind them.
    overview: Line,
    ledger: Ledger,
    counts: counts::Counts,
    lanes: lanes::Lanes,
    batcher: enqueue::Batcher,
    vacuum: vacuum::Vacuum,
    floors: floors::Floors,
    calls: Arc<Calls>,
    /// What the notifications of this process say, so that it can tell them from others'.
    own: String,
    /// Whether ready jobs with limit keys were seen last.
    keyed: AtomicBool,
    /// How far a purge has come that goes on, by the number of the state.
    purged: Mutex<HashMap<i16, Timestamp>>,
    tasks: Tasks,
}

impl Inner {
    /// Wakes the sleepers of this process.
    fn wake(&self) {
        self.calls.anywhere();
    }

    /// The same for jobs that may have been due long ago.
    fn wake_for_old(&self) {
        self.floors.forget();
        self.wake();
    }

    /// Wakes the sleepers of other processes, when the transaction commits.
    async fn notify(&self, s: &mut Session<'_>) -> Result<()> {
        s.rows("notify others", sql!("notify"), &[(&self.own, Type::TEXT)]).await.map(drop)
    }
}

impl Postgres {
    /// Connects, brings the schema up to date if asked to, and begins to listen for new jobs.
    pub async fn connect(url: &str, options: Options) -> Result<Self> {
        let tasks = Tasks::new();
        let patience = options.statement_timeout.unwrap_or(connect::STATEMENT_TIMEOUT);
        let make = |url: &str, planning, pooled| -> Result<Arc<Connector>> {
            let connector = Connector::new(url, planning, pooled, patience, tasks.clone())?;
            Ok(Arc::new(if options.brief { connector.sending_whole() } else { connector }))
        };
        let connector = make(url, Planning::Fitted, options.pooled)?;
        let steady = make(url, Planning::Steady, options.pooled)?;
        let ordered = make(url, Planning::Ordered, options.pooled)?;
        let listening = match &options.listen_url {
            Some(direct) => make(direct, Planning::Fitted, false)?,
            None => connector.clone(),
        };
        let line = || Line::new(steady.clone());
        let (own, calls) = (format!("{:016x}", rand::rng().random::<u64>()), Arc::new(Calls::new()));
        let inner = Inner {
            clock: options.clock,
            claim: Line::new(ordered),
            settle: line(),
            beat: line(),
            enqueue: line(),
            leadership: line(),
            readers: Lines::new(&connector, READERS),
            directives: Lines::new(&steady, DIRECTIVES),
            sinks: sink::Sinks::default(),
            expectations: sink_copy::Expectations::default(),
            spare: line(),
            overview: line(),
            ledger: Ledger::default(),
            counts: counts::Counts::default(),
            lanes: lanes::Lanes::default(),
            batcher: enqueue::Batcher::default(),
            vacuum: vacuum::Vacuum::default(),
            floors: floors::Floors::new(options.floors),
            calls: calls.clone(),
            own: own.clone(),
            keyed: AtomicBool::new(false),
            purged: Mutex::default(),
            tasks: tasks.clone(),
        };
        if options.migrate {
            migrate::run(&inner.enqueue).await?;
        } else {
            // On a connection that is needed next by those who write once and end.
            migrate::fits(migrate::version(&mut inner.readers.session().await?).await?)?;
        }
        let ear = listen::Ear::new(listening, connector, own, calls, tasks);
        if !options.brief {
            ear.start().await;
        }
        let open = Arc::new(Open(inner.tasks.clone()));
        Ok(Self { inner: Arc::new(inner), ear: Arc::new(ear), guard: None, open })
    }

    /// The same store, for writes of a leader's term that must end with it.
    #[must_use]
    pub fn led(&self, epoch: Epoch) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            ear: Arc::clone(&self.ear),
            guard: Some(epoch),
            open: Arc::clone(&self.open),
        }
    }

    /// Closes the connections and waits for what drives them.
    pub async fn close(self) {
        let tasks = self.inner.tasks.clone();
        drop(self);
        tasks.join().await;
    }
}

#[async_trait]
impl Store for Postgres {
    fn facts(&self) -> StoreFacts {
        StoreFacts { name: "postgres", wake: self.ear.method() }
    }

    fn wakes(&self) -> watch::Receiver<u64> {
        self.inner.calls.subscribe()
    }

    async fn check(&self) -> Result<StoreHealth> {
        let mut s = self.inner.readers.session().await?;
        let begun = Instant::now();
        s.rows("answer", sql!("clock_now"), &[(&None::<Timestamp>, Type::TIMESTAMPTZ)]).await?;
        let round_trip = begun.elapsed();
        let schema = migrate::version(&mut s).await?;
        migrate::fits(schema)?;
        Ok(StoreHealth { round_trip, schema })
    }

    fn under(&self, epoch: Epoch) -> SharedStore {
        Arc::new(self.led(epoch))
    }

    async fn epoch(&self) -> Result<Option<Epoch>> {
        leadership::epoch(&self.inner).await
    }

    async fn term_begin(
        &self,
        instance: &str,
        address: Option<&str>,
        expected: Option<Epoch>,
    ) -> Result<Epoch> {
        check_term(instance, address)?;
        leadership::term_begin(&self.inner, instance, address, expected).await
    }

    async fn term_end(&self, epoch: Epoch, reason: &str) -> Result<()> {
        check_reason(reason)?;
        leadership::term_end(&self.inner, epoch, reason).await
    }

    async fn terms(&self, limit: u32) -> Result<Vec<TermRow>> {
        leadership::terms(&self.inner, limit).await
    }

    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        enqueue::enqueue(&self.inner, self.guard, jobs).await
    }

    async fn enqueue_once(&self, once: Once, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        enqueue::enqueue_once(&self.inner, self.guard, once, jobs).await
    }

    async fn kinds_register(&self, kinds: Vec<KindSpec>) -> Result<()> {
        operate::kinds_register(&self.inner, &kinds).await
    }

    async fn kinds(&self) -> Result<Vec<KindSpec>> {
        operate::kinds(&mut self.inner.readers.session().await?).await
    }

    async fn worker_register(&self, worker: WorkerSpec) -> Result<WorkerId> {
        recover::register(&self.inner, &worker).await
    }

    async fn worker_remove(&self, worker: WorkerId) -> Result<()> {
        recover::remove(&self.inner, worker).await
    }

    async fn beat(&self, worker: WorkerId) -> Result<Beat> {
        recover::beat(&self.inner, worker).await
    }

    async fn cancellations(&self, worker: WorkerId) -> Result<Vec<JobId>> {
        recover::cancellations(&self.inner, worker).await
    }

    async fn holds(&self, fence: Fence) -> Result<bool> {
        recover::holds(&self.inner, fence).await
    }

    async fn owned(&self, worker: WorkerId) -> Result<Vec<Fence>> {
        recover::owned(&self.inner, worker).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claim> {
        claim::claim(&self.inner, &request).await
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Verdict>> {
        settle::settle(&self.inner, settlements).await
    }

    async fn note(&self, notes: Vec<Note>) -> Result<Vec<Verdict>> {
        settle::note(&self.inner, notes).await
    }

    async fn links_accept(&self, source: &str, links: Vec<NewLink>) -> Result<Vec<Linked>> {
        link::accept(&self.inner, source, &links).await
    }

    async fn links_turn(&self, source: &str, claims: Vec<SourceClaim>, turn: LinkTurn) -> Result<u64> {
        link::turn(&self.inner, source, &claims, turn).await
    }

    async fn links(&self, filter: LinkFilter) -> Result<Vec<Link>> {
        link::list(&self.inner, &filter).await
    }

    async fn job(&self, id: JobId) -> Result<Option<Job>> {
        operate::job(&self.inner, id).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<Job>> {
        Ok(self.jobs_found(filter).await?.jobs)
    }

    async fn jobs_found(&self, filter: JobFilter) -> Result<Found> {
        list::found(&self.inner, &filter).await
    }

    async fn jobs_count(&self, filter: JobFilter, up_to: u64) -> Result<Counted> {
        list::count(&self.inner, &filter, up_to).await
    }

    async fn failures(&self, limit: u32) -> Result<Vec<FailureGroup>> {
        overview::failures(&self.inner, limit).await
    }

    async fn activity(&self, window: Duration, buckets: u32) -> Result<Vec<Activity>> {
        check_activity(window, buckets)?;
        overview::activity(&self.inner, window, buckets).await
    }

    async fn events(&self, id: JobId, after_seq: u32, limit: u32) -> Result<Vec<Event>> {
        operate::events(&self.inner, id, after_seq, limit).await
    }

    async fn parents(&self, id: JobId) -> Result<Vec<(JobId, State)>> {
        operate::parents(&self.inner, id).await
    }

    async fn retry(&self, id: JobId) -> Result<()> {
        bulk::retry(&self.inner, self.guard, id, None).await
    }

    async fn retry_edited(&self, id: JobId, payload: Json) -> Result<()> {
        check_json_size("payload", payload.get())?;
        bulk::retry(&self.inner, self.guard, id, Some(&payload)).await
    }

    async fn retry_many(&self, ids: Vec<JobId>) -> Result<Vec<JobId>> {
        check_ids(&ids)?;
        bulk::retry_many(&self.inner, self.guard, &ids).await
    }

    async fn cancel(&self, id: JobId) -> Result<Cancelled> {
        bulk::cancel(&self.inner, self.guard, id).await
    }

    async fn cancel_many(&self, ids: Vec<JobId>) -> Result<Vec<(JobId, Cancelled)>> {
        check_ids(&ids)?;
        bulk::cancel_many(&self.inner, self.guard, &ids).await
    }

    async fn pause(&self, target: PauseTarget) -> Result<()> {
        let (PauseTarget::Queue(name) | PauseTarget::Kind(name)) = &target;
        check_name("pause", name)?;
        operate::pause(&self.inner, self.guard, &target).await
    }

    async fn resume(&self, target: PauseTarget) -> Result<bool> {
        operate::resume(&self.inner, self.guard, &target).await
    }

    async fn pauses(&self) -> Result<Vec<PauseTarget>> {
        operate::pauses(&self.inner).await
    }

    async fn queues(&self) -> Result<Vec<QueueCounts>> {
        counts::queues(&self.inner).await
    }

    async fn depth(&self, up_to: u64) -> Result<u64> {
        operate::depth(&self.inner, up_to).await
    }

    async fn oldest_ready(&self) -> Result<Option<Duration>> {
        counts::oldest_ready(&self.inner).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>> {
        recover::workers(&self.inner).await
    }

    async fn limit_set(&self, limit: Limit) -> Result<()> {
        limit.check()?;
        operate::limit_set(&self.inner, self.guard, &limit).await
    }

    async fn limit_remove(&self, pattern: &str) -> Result<bool> {
        operate::limit_remove(&self.inner, self.guard, pattern).await
    }

    async fn limits(&self) -> Result<Vec<Limit>> {
        operate::limits(&self.inner).await
    }

    async fn limit_state(&self, key: &str) -> Result<Option<LimitState>> {
        operate::limit_state(&self.inner, key).await
    }

    async fn schedule_put(&self, schedule: Schedule) -> Result<()> {
        schedule.check()?;
        schedule::put(&self.inner, self.guard, &schedule).await
    }

    async fn schedule_remove(&self, name: &str) -> Result<bool> {
        schedule::remove(&self.inner, self.guard, name).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        schedule::list(&self.inner).await
    }

    async fn schedule_fire(
        &self,
        name: &str,
        due: Timestamp,
        next: Option<Timestamp>,
    ) -> Result<Option<JobId>> {
        schedule::fire(&self.inner, self.guard, name, due, next).await
    }

    async fn now(&self) -> Result<Timestamp> {
        let now = self.inner.clock.for_statement();
        let mut s = self.inner.readers.session().await?;
        s.value("tell the time", sql!("clock_now"), &[(&now, Type::TIMESTAMPTZ)]).await
    }

    async fn purge(&self, request: PurgeRequest) -> Result<PurgeReport> {
        operate::purge(&self.inner, self.guard, &request).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        diagnose::diagnose(self).await
    }
}
