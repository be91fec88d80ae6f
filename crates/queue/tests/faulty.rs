//! A store that misbehaves on command: refuses beats, loses the answers of claims, is away altogether.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use stargate_base::{Epoch, ErrorClass};
use stargate_queue::event::Event;
use stargate_queue::intake::{self, Link, LinkFilter, LinkTurn, Linked, NewLink};
use stargate_queue::leadership::TermRow;
use stargate_queue::limits::{Limit, LimitState};
use stargate_queue::schedule::Schedule;
use stargate_queue::store::*;
use stargate_queue::{
    Error, Fence, Job, JobId, Json, KindSpec, NewJob, Result, SharedStore, State, Store, WorkerId,
};
use tokio::sync::{Notify, watch};

/// Passes everything on, unless told otherwise.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: SharedStore,
    pub(crate) refuse_beats: AtomicBool,
    pub(crate) lose_claim_answers: AtomicBool,
    pub(crate) refuse_settlements: AtomicBool,
    /// What a worker holds is asked for, and there is no answer.
    pub(crate) never_tells_holdings: AtomicBool,
    pub(crate) holdings_asked: Notify,
    /// The first schedule is in a zone that this machine has never heard of.
    pub(crate) zone_is_unknown: AtomicBool,
    /// As a store does that an operator has to see to, or that is being moved, in turn.
    pub(crate) needs_operator: AtomicBool,
    /// How often it said so.
    pub(crate) refusals: AtomicUsize,
}

impl Faulty {
    pub(crate) fn new(inner: SharedStore) -> Self {
        let off = || AtomicBool::new(false);
        Self {
            inner,
            refuse_beats: off(),
            lose_claim_answers: off(),
            refuse_settlements: off(),
            never_tells_holdings: off(),
            holdings_asked: Notify::new(),
            zone_is_unknown: off(),
            needs_operator: off(),
            refusals: AtomicUsize::new(0),
        }
    }
}

fn away() -> Error {
    trouble(ErrorClass::RetryableTransient)
}

fn trouble(class: ErrorClass) -> Error {
    let source = std::io::Error::other("the test took the store away");
    Error::Store { operation: "answer", class, hint: None, source: source.into() }
}

#[async_trait]
impl Store for Faulty {
    fn facts(&self) -> StoreFacts {
        self.inner.facts()
    }

    fn wakes(&self) -> watch::Receiver<u64> {
        self.inner.wakes()
    }

    async fn check(&self) -> Result<StoreHealth> {
        self.inner.check().await
    }

    fn under(&self, epoch: Epoch) -> SharedStore {
        self.inner.under(epoch)
    }

    async fn epoch(&self) -> Result<Option<Epoch>> {
        self.inner.epoch().await
    }

    async fn term_begin(
        &self,
        instance: &str,
        address: Option<&str>,
        expected: Option<Epoch>,
    ) -> Result<Epoch> {
        self.inner.term_begin(instance, address, expected).await
    }

    async fn term_end(&self, epoch: Epoch, reason: &str) -> Result<()> {
        self.inner.term_end(epoch, reason).await
    }

    async fn terms(&self, limit: u32) -> Result<Vec<TermRow>> {
        self.inner.terms(limit).await
    }

    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        self.inner.enqueue(jobs).await
    }

    async fn enqueue_once(&self, once: Once, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        self.inner.enqueue_once(once, jobs).await
    }

    async fn kinds_register(&self, kinds: Vec<KindSpec>) -> Result<()> {
        self.inner.kinds_register(kinds).await
    }

    async fn kinds(&self) -> Result<Vec<KindSpec>> {
        self.inner.kinds().await
    }

    async fn worker_register(&self, worker: WorkerSpec) -> Result<WorkerId> {
        self.inner.worker_register(worker).await
    }

    async fn worker_remove(&self, worker: WorkerId) -> Result<()> {
        self.inner.worker_remove(worker).await
    }

    async fn beat(&self, worker: WorkerId) -> Result<Beat> {
        if self.refuse_beats.load(Ordering::SeqCst) {
            return Err(away());
        }
        self.inner.beat(worker).await
    }

    async fn cancellations(&self, worker: WorkerId) -> Result<Vec<JobId>> {
        self.inner.cancellations(worker).await
    }

    async fn holds(&self, fence: Fence) -> Result<bool> {
        self.inner.holds(fence).await
    }

    async fn owned(&self, worker: WorkerId) -> Result<Vec<Fence>> {
        if self.never_tells_holdings.load(Ordering::SeqCst) {
            self.holdings_asked.notify_one();
            return std::future::pending().await;
        }
        self.inner.owned(worker).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Claim> {
        let claim = self.inner.claim(request).await?;
        let lost = !claim.jobs.is_empty() && self.lose_claim_answers.swap(false, Ordering::SeqCst);
        if lost { Err(away()) } else { Ok(claim) }
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Verdict>> {
        if self.refuse_settlements.load(Ordering::SeqCst) {
            return Err(away());
        }
        if self.needs_operator.load(Ordering::SeqCst) {
            let moved = Error::Conflict { problem: "this store was moved".to_owned() };
            let is_moved = self.refusals.fetch_add(1, Ordering::SeqCst) % 2 == 1;
            return Err(if is_moved { moved } else { trouble(ErrorClass::Fatal) });
        }
        self.inner.settle(settlements).await
    }

    async fn note(&self, notes: Vec<Note>) -> Result<Vec<Verdict>> {
        self.inner.note(notes).await
    }

    async fn links_accept(&self, source: &str, links: Vec<NewLink>) -> Result<Vec<Linked>> {
        self.inner.links_accept(source, links).await
    }

    async fn links_turn(&self, source: &str, claims: Vec<intake::Claim>, turn: LinkTurn) -> Result<u64> {
        self.inner.links_turn(source, claims, turn).await
    }

    async fn links(&self, filter: LinkFilter) -> Result<Vec<Link>> {
        self.inner.links(filter).await
    }

    async fn job(&self, id: JobId) -> Result<Option<Job>> {
        self.inner.job(id).await
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<Job>> {
        self.inner.jobs(filter).await
    }

    async fn jobs_found(&self, filter: JobFilter) -> Result<Found> {
        self.inner.jobs_found(filter).await
    }

    async fn jobs_count(&self, filter: JobFilter, up_to: u64) -> Result<Counted> {
        self.inner.jobs_count(filter, up_to).await
    }

    async fn failures(&self, limit: u32) -> Result<Vec<FailureGroup>> {
        self.inner.failures(limit).await
    }

    async fn activity(&self, window: Duration, buckets: u32) -> Result<Vec<Activity>> {
        self.inner.activity(window, buckets).await
    }

    async fn events(&self, id: JobId, after_seq: u32, limit: u32) -> Result<Vec<Event>> {
        self.inner.events(id, after_seq, limit).await
    }

    async fn parents(&self, id: JobId) -> Result<Vec<(JobId, State)>> {
        self.inner.parents(id).await
    }

    async fn retry(&self, id: JobId) -> Result<()> {
        self.inner.retry(id).await
    }

    async fn retry_edited(&self, id: JobId, payload: Json) -> Result<()> {
        self.inner.retry_edited(id, payload).await
    }

    async fn retry_many(&self, ids: Vec<JobId>) -> Result<Vec<JobId>> {
        self.inner.retry_many(ids).await
    }

    async fn cancel(&self, id: JobId) -> Result<Cancelled> {
        self.inner.cancel(id).await
    }

    async fn cancel_many(&self, ids: Vec<JobId>) -> Result<Vec<(JobId, Cancelled)>> {
        self.inner.cancel_many(ids).await
    }

    async fn pause(&self, target: PauseTarget) -> Result<()> {
        self.inner.pause(target).await
    }

    async fn resume(&self, target: PauseTarget) -> Result<bool> {
        self.inner.resume(target).await
    }

    async fn pauses(&self) -> Result<Vec<PauseTarget>> {
        self.inner.pauses().await
    }

    async fn queues(&self) -> Result<Vec<QueueCounts>> {
        self.inner.queues().await
    }

    async fn depth(&self, up_to: u64) -> Result<u64> {
        self.inner.depth(up_to).await
    }

    async fn oldest_ready(&self) -> Result<Option<Duration>> {
        self.inner.oldest_ready().await
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>> {
        self.inner.workers().await
    }

    async fn limit_set(&self, limit: Limit) -> Result<()> {
        self.inner.limit_set(limit).await
    }

    async fn limit_remove(&self, pattern: &str) -> Result<bool> {
        self.inner.limit_remove(pattern).await
    }

    async fn limits(&self) -> Result<Vec<Limit>> {
        self.inner.limits().await
    }

    async fn limit_state(&self, key: &str) -> Result<Option<LimitState>> {
        self.inner.limit_state(key).await
    }

    async fn schedule_put(&self, schedule: Schedule) -> Result<()> {
        self.inner.schedule_put(schedule).await
    }

    async fn schedule_remove(&self, name: &str) -> Result<bool> {
        self.inner.schedule_remove(name).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        let mut schedules = self.inner.schedules().await?;
        if self.zone_is_unknown.load(Ordering::SeqCst)
            && let Some(first) = schedules.first_mut()
        {
            first.time_zone = "Mars/Olympus".to_owned();
        }
        Ok(schedules)
    }

    async fn schedule_fire(
        &self,
        name: &str,
        due: Timestamp,
        next: Option<Timestamp>,
    ) -> Result<Option<JobId>> {
        self.inner.schedule_fire(name, due, next).await
    }

    async fn now(&self) -> Result<Timestamp> {
        self.inner.now().await
    }

    async fn purge(&self, request: PurgeRequest) -> Result<PurgeReport> {
        self.inner.purge(request).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.inner.diagnose().await
    }
}
