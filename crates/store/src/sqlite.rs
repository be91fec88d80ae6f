//! Jobs kept in one SQLite file.
//!
//! ```text
//!   callers ──▶ queue ──▶ writer thread ──▶ one connection, group commit, synchronous=FULL
//!   callers ──▶ a few reading connections (WAL: they neither wait for the writer nor hold it up)
//!   watch thread ──▶ data version: what other processes commit
//! ```
//!
//! Several processes may use the same file. They take turns at a lock file beside it, so none of them ever sees
//! `SQLITE_BUSY`; who does not get its turn within seconds gets an error that names who keeps it. What a commit has
//! answered survives any crash (INV-1). If the disk is full or fails, the commands concerned get the error and nothing of
//! them is kept.

mod audit;
mod choose;
mod claim;
mod connection;
mod diagnose;
mod directive;
mod enqueue;
pub(crate) mod error;
pub(crate) mod export;
mod leadership;
mod limit;
mod link;
mod list;
mod lock;
mod migrate;
mod operate;
mod overview;
mod push;
mod push_head;
mod read;
mod recover;
mod rows;
mod session;
mod settle;
pub(crate) mod sink;
mod token;
mod watch;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::OptionalExtension as _;
use stargate_base::clock::wall;
use stargate_base::{Clock, Epoch};
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
    StoreHealth, Verdict, WakeMethod, WorkerRow, WorkerSpec,
};
use stargate_queue::{
    Error, Fence, Job, JobId, Json, KindSpec, NewJob, Result, SharedStore, State, Store, WorkerId,
};
use tokio::sync::watch as signal;

use crate::activity::Ledger;
use read::Readers;
use session::{Session, sql};
use watch::Watch;
use writer::{MOVED_TO, Rank, Writer};

/// How a SQLite store is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where the time comes from; tests set their own.
    pub clock: Clock,
}

/// Jobs kept in one SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    // Fields are dropped in this order: the watch looks at what the writer shares.
    watch: Arc<Watch>,
    writer: Arc<Writer>,
    readers: Arc<Readers>,
    clock: Clock,
    ledger: Arc<Ledger>,
    /// The term of the leader whose writes these are.
    guard: Option<Epoch>,
}

impl Sqlite {
    /// Opens the file, made and migrated when needed.
    pub async fn open(path: &Path, options: Options) -> Result<Self> {
        let path = path.to_owned();
        let opening = tokio::task::spawn_blocking(move || {
            let writer = Writer::start(path.clone(), options.clock.clone())?;
            let watch = Arc::new(Watch::start(&path, writer.shared())?);
            let readers = Arc::new(Readers::new(path, options.clock.clone()));
            let (writer, ledger) = (Arc::new(writer), Arc::default());
            Ok(Self { watch, writer, readers, clock: options.clock, ledger, guard: None })
        });
        opening.await.unwrap_or_else(|_| Err(error::writer_lost("open the database")))
    }

    /// Ends the threads and closes the file, unless leaders still have it under their epochs; what was accepted is
    /// committed first. Dropping does the same, but on the calling thread.
    pub async fn close(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    /// The same store, for writes of a leader's term that must end with it.
    #[must_use]
    pub fn led(&self, epoch: Epoch) -> Self {
        Self {
            watch: Arc::clone(&self.watch),
            writer: Arc::clone(&self.writer),
            readers: Arc::clone(&self.readers),
            clock: self.clock.clone(),
            ledger: Arc::clone(&self.ledger),
            guard: Some(epoch),
        }
    }

    /// Refuses every further write, in all processes: the store was moved to `target`, named as people know it.
    pub async fn freeze(&self, target: &str) -> Result<()> {
        let target = target.to_owned();
        self.writer
            .write(Rank::Moved, "freeze itself", move |s| {
                s.conn.prepare_cached(sql!("meta_put"))?.execute((MOVED_TO, target))?;
                Ok(())
            })
            .await
    }

    /// Takes writes again.
    pub async fn unfreeze(&self) -> Result<()> {
        self.writer
            .write(Rank::Moved, "take writes again", |s| {
                s.conn.prepare_cached(sql!("meta_remove"))?.execute([MOVED_TO])?;
                s.wake = true;
                Ok(())
            })
            .await
    }

    /// Where the store was moved to, if it was.
    pub async fn moved_to(&self) -> Result<Option<String>> {
        self.readers
            .read("tell where it was moved", |r| {
                let mut get = r.conn.prepare_cached(sql!("meta_get"))?;
                Ok(get.query_row([MOVED_TO], |row| row.get(0)).optional()?)
            })
            .await
    }

    /// Has the writer do something that a leader must not do when its term is over.
    async fn write<T, F>(&self, operation: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session<'_>) -> error::Step<T> + Send + 'static,
    {
        let guard = self.guard;
        let judged = move |s: &mut Session<'_>| {
            leadership::judge(s.conn, guard)?;
            work(s)
        };
        self.writer.write(Rank::Normal, operation, judged).await
    }

    /// Checks new jobs before the writer is bothered. SQLite's clock is this host's clock.
    fn check_new(&self, jobs: &[NewJob]) -> Result<()> {
        let now = self.clock.for_statement().unwrap_or_else(wall);
        jobs.iter().try_for_each(|job| job.check(now))
    }
}

#[async_trait]
impl Store for Sqlite {
    fn facts(&self) -> StoreFacts {
        StoreFacts { name: "sqlite", wake: WakeMethod::DataVersion }
    }

    fn wakes(&self) -> signal::Receiver<u64> {
        self.writer.wakes()
    }

    async fn check(&self) -> Result<StoreHealth> {
        let begun = Instant::now();
        let schema = self.readers.read("tell its schema", |r| migrate::version(r.conn)).await?;
        match schema {
            found if found > migrate::KNOWN => Err(Error::SchemaTooNew { found, known: migrate::KNOWN }),
            found if found < migrate::KNOWN => Err(Error::SchemaTooOld { found, known: migrate::KNOWN }),
            schema => Ok(StoreHealth { round_trip: begun.elapsed(), schema }),
        }
    }

    fn under(&self, epoch: Epoch) -> SharedStore {
        Arc::new(self.led(epoch))
    }

    async fn epoch(&self) -> Result<Option<Epoch>> {
        self.readers.read("tell the epoch", |r| leadership::current(r.conn)).await
    }

    async fn term_begin(
        &self,
        instance: &str,
        address: Option<&str>,
        expected: Option<Epoch>,
    ) -> Result<Epoch> {
        check_term(instance, address)?;
        let (instance, address) = (instance.to_owned(), address.map(str::to_owned));
        let begin = move |s: &mut Session<'_>| leadership::begin(s, &instance, address.as_deref(), expected);
        self.writer.write(Rank::First, "begin a term", begin).await
    }

    async fn term_end(&self, epoch: Epoch, reason: &str) -> Result<()> {
        check_reason(reason)?;
        let reason = reason.to_owned();
        self.writer.write(Rank::First, "end the term", move |s| leadership::end(s, epoch, &reason)).await
    }

    async fn terms(&self, limit: u32) -> Result<Vec<TermRow>> {
        self.readers.read("list terms", move |r| leadership::list(r.conn, limit)).await
    }

    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        self.check_new(&jobs)?;
        self.write("enqueue", move |s| enqueue::enqueue(s, &jobs)).await
    }

    async fn enqueue_once(&self, once: Once, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        self.check_new(&jobs)?;
        self.write("enqueue", move |s| enqueue::enqueue_once(s, &once, &jobs)).await
    }

    async fn kinds_register(&self, kinds: Vec<KindSpec>) -> Result<()> {
        self.writer.write(Rank::Normal, "register kinds", move |s| operate::kinds_register(s, &kinds)).await
    }

    async fn kinds(&self) -> Result<Vec<KindSpec>> {
        self.readers.read("list kinds", |r| session::kinds(r.conn)).await
    }

    async fn worker_register(&self, worker: WorkerSpec) -> Result<WorkerId> {
        self.writer.write(Rank::First, "register the worker", move |s| recover::register(s, &worker)).await
    }

    async fn worker_remove(&self, worker: WorkerId) -> Result<()> {
        self.writer.write(Rank::Normal, "remove the worker", move |s| recover::remove(s, worker)).await
    }

    async fn beat(&self, worker: WorkerId) -> Result<Beat> {
        self.writer.write(Rank::Beat, "keep the leases alive", move |s| recover::beat(s, worker)).await
    }

    async fn cancellations(&self, worker: WorkerId) -> Result<Vec<JobId>> {
        self.readers.read("list cancellations", move |r| read::cancellations(r, worker)).await
    }

    async fn holds(&self, fence: Fence) -> Result<bool> {
        self.readers.read("tell who holds the job", move |r| read::holds(r, fence)).await
    }

    async fn owned(&self, worker: WorkerId) -> Result<Vec<Fence>> {
        self.readers.read("list the worker's jobs", move |r| read::owned(r, worker)).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claim> {
        self.writer.write(Rank::Normal, "give out jobs", move |s| claim::claim(s, &request)).await
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Verdict>> {
        self.writer.write(Rank::Normal, "record outcomes", move |s| settle::settle(s, &settlements)).await
    }

    async fn note(&self, notes: Vec<Note>) -> Result<Vec<Verdict>> {
        self.writer.write(Rank::Normal, "record progress", move |s| settle::note(s, &notes)).await
    }

    async fn links_accept(&self, source: &str, links: Vec<NewLink>) -> Result<Vec<Linked>> {
        let now = self.clock.for_statement().unwrap_or_else(wall);
        links.iter().try_for_each(|link| link.job.check(now))?;
        let source = source.to_owned();
        self.writer
            .write(Rank::Normal, "accept items of a source", move |s| link::accept(s, &source, &links))
            .await
    }

    async fn links_turn(&self, source: &str, claims: Vec<SourceClaim>, turn: LinkTurn) -> Result<u64> {
        let source = source.to_owned();
        self.writer
            .write(Rank::Normal, "turn the links of a source", move |s| link::turn(s, &source, &claims, turn))
            .await
    }

    async fn links(&self, filter: LinkFilter) -> Result<Vec<Link>> {
        self.readers.read("list the items of a source", move |r| link::list(r.conn, &filter)).await
    }

    async fn job(&self, id: JobId) -> Result<Option<Job>> {
        self.readers.read("read the job", move |r| Ok(read::job(r.conn, id)?.map(|(job, _)| job))).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<Job>> {
        Ok(self.jobs_found(filter).await?.jobs)
    }

    async fn jobs_found(&self, filter: JobFilter) -> Result<Found> {
        self.readers.read("list jobs", move |r| list::found(r.conn, &filter)).await
    }

    async fn jobs_count(&self, filter: JobFilter, up_to: u64) -> Result<Counted> {
        self.readers.read("count jobs", move |r| list::count(r.conn, &filter, up_to)).await
    }

    async fn failures(&self, limit: u32) -> Result<Vec<FailureGroup>> {
        self.readers.read("group failed jobs", move |r| overview::failures(r.conn, limit)).await
    }

    async fn activity(&self, window: Duration, buckets: u32) -> Result<Vec<Activity>> {
        check_activity(window, buckets)?;
        let ledger = Arc::clone(&self.ledger);
        let told = move |r: &read::Reader<'_>| overview::activity(r, &ledger, window, buckets);
        self.readers.read("tell what ended", told).await
    }

    async fn events(&self, id: JobId, after_seq: u32, limit: u32) -> Result<Vec<Event>> {
        self.readers.read("read the timeline", move |r| read::events(r.conn, id, after_seq, limit)).await
    }

    async fn parents(&self, id: JobId) -> Result<Vec<(JobId, State)>> {
        self.readers.read("list parents", move |r| read::parents(r.conn, id)).await
    }

    async fn retry(&self, id: JobId) -> Result<()> {
        self.write("retry the job", move |s| operate::retry(s, id, None)).await
    }

    async fn retry_edited(&self, id: JobId, payload: Json) -> Result<()> {
        check_json_size("payload", payload.get())?;
        self.write("retry the job", move |s| operate::retry(s, id, Some(payload.get()))).await
    }

    async fn retry_many(&self, ids: Vec<JobId>) -> Result<Vec<JobId>> {
        check_ids(&ids)?;
        self.write("retry the jobs", move |s| operate::retry_many(s, &ids)).await
    }

    async fn cancel(&self, id: JobId) -> Result<Cancelled> {
        self.write("cancel the job", move |s| operate::cancel(s, id)).await
    }

    async fn cancel_many(&self, ids: Vec<JobId>) -> Result<Vec<(JobId, Cancelled)>> {
        check_ids(&ids)?;
        self.write("cancel the jobs", move |s| operate::cancel_many(s, &ids)).await
    }

    async fn pause(&self, target: PauseTarget) -> Result<()> {
        let (PauseTarget::Queue(name) | PauseTarget::Kind(name)) = &target;
        check_name("pause", name)?;
        self.write("pause", move |s| operate::pause(s, &target)).await
    }

    async fn resume(&self, target: PauseTarget) -> Result<bool> {
        self.write("resume", move |s| operate::resume(s, &target)).await
    }

    async fn pauses(&self) -> Result<Vec<PauseTarget>> {
        self.readers.read("list what is paused", |r| operate::pauses(r.conn)).await
    }

    async fn queues(&self) -> Result<Vec<QueueCounts>> {
        self.readers.read("count jobs", |r| read::queues(r.conn)).await
    }

    async fn depth(&self, up_to: u64) -> Result<u64> {
        self.readers.read("count ready jobs", move |r| read::depth(r, up_to)).await
    }

    async fn oldest_ready(&self) -> Result<Option<Duration>> {
        self.readers.read("find the oldest ready job", read::oldest_ready).await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>> {
        self.readers.read("list workers", read::workers).await
    }

    async fn limit_set(&self, limit: Limit) -> Result<()> {
        limit.check()?;
        self.write("set the limit", move |s| limit::set(s, &limit)).await
    }

    async fn limit_remove(&self, pattern: &str) -> Result<bool> {
        let pattern = pattern.to_owned();
        self.write("remove the limit", move |s| limit::remove(s, &pattern)).await
    }

    async fn limits(&self) -> Result<Vec<Limit>> {
        self.readers.read("list limits", |r| session::limits(r.conn)).await
    }

    async fn limit_state(&self, key: &str) -> Result<Option<LimitState>> {
        let key = key.to_owned();
        self.readers.read("read the limit", move |r| limit::state(r.conn, &key, r.now)).await
    }

    async fn schedule_put(&self, schedule: Schedule) -> Result<()> {
        schedule.check()?;
        self.write("keep the schedule", move |s| operate::schedule_put(s, &schedule)).await
    }

    async fn schedule_remove(&self, name: &str) -> Result<bool> {
        let name = name.to_owned();
        self.write("remove the schedule", move |s| operate::schedule_remove(s, &name)).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        self.readers.read("list schedules", |r| read::schedules(r.conn)).await
    }

    async fn schedule_fire(
        &self,
        name: &str,
        due: Timestamp,
        next: Option<Timestamp>,
    ) -> Result<Option<JobId>> {
        let name = name.to_owned();
        self.write("fire the schedule", move |s| operate::schedule_fire(s, &name, due, next)).await
    }

    async fn now(&self) -> Result<Timestamp> {
        self.readers.read("tell the time", |r| Ok(rows::instant(r.now))).await
    }

    async fn purge(&self, request: PurgeRequest) -> Result<PurgeReport> {
        self.write("purge", move |s| operate::purge(s, &request)).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        diagnose::diagnose(self).await
    }
}
