//! A fresh store with a hand-driven clock, and the short words in which cases speak to it.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use stargate_base::ErrorClass;
use stargate_queue::event::Event;
use stargate_queue::store::{
    Claim, ClaimRequest, ClaimedJob, KindSlots, Outcome, Settlement, Verdict, WorkerSpec,
};
use stargate_queue::{Fence, Job, JobError, JobId, KindSpec, NewJob, SharedStore, State, WorkerId};
use tokio::task::JoinSet;

use crate::postgres::Database;
use crate::{ManualClock, start_of_time};

/// The kind that most cases use: 5 attempts, 3 crashes.
pub const WORK: &str = "work";
/// A second kind with the same profile.
pub const OTHER: &str = "other";
/// The lease of every worker that does not say otherwise.
pub const LEASE: Duration = Duration::from_secs(30);
/// Recovery has to begin no later than this after a lease has run out.
pub const RECOVERY_SLACK: Duration = Duration::from_secs(2);

/// Opens the same storage once more, as another process would.
pub type Another = Box<dyn Fn() -> Pin<Box<dyn Future<Output = SharedStore> + Send>> + Send + Sync>;
/// Removes the storage.
pub type Remove = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A fresh store with a hand-driven clock.
pub struct Fixture {
    /// The store.
    pub store: SharedStore,
    /// Its clock, also of every other handle on it.
    pub clock: ManualClock,
    another: Another,
    remove: Remove,
}

impl std::fmt::Debug for Fixture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fixture").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Fixture {
    /// A fresh store in a file `stargate.db` of a folder of its own; `open` is the adapter's.
    pub async fn in_folder<F, Fut>(open: F) -> Self
    where
        F: Fn(PathBuf, ManualClock) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = SharedStore> + Send + 'static,
    {
        let folder = tempfile::tempdir().expect("a folder for the store");
        let path = folder.path().join("stargate.db");
        let clock = ManualClock::at(start_of_time());
        let store = open(path.clone(), clock.clone()).await;
        let also = clock.clone();
        let another: Another = Box::new(move || Box::pin(open(path.clone(), also.clone())));
        let remove = Box::pin(async move { folder.close().expect("the folder of the store is removed") });
        Self::new(store, clock, another, remove).await
    }

    /// A fresh store in a Postgres database of its own; `open` is the adapter's and migrates what is empty.
    pub async fn in_postgres<F, Fut>(open: F) -> Self
    where
        F: Fn(String, ManualClock) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = SharedStore> + Send + 'static,
    {
        let clock = ManualClock::at(start_of_time());
        let template_clock = clock.clone();
        let database = Database::create(async |url| drop(open(url, template_clock).await)).await;
        let url = database.url().to_owned();
        let store = open(url.clone(), clock.clone()).await;
        let also = clock.clone();
        let another: Another = Box::new(move || Box::pin(open(url.clone(), also.clone())));
        Self::new(store, clock, another, Box::pin(database.remove())).await
    }

    /// Wraps a store that was just opened and registers [`WORK`] and [`OTHER`].
    pub async fn new(store: SharedStore, clock: ManualClock, another: Another, remove: Remove) -> Self {
        let kinds =
            [WORK, OTHER].map(|name| KindSpec { name: name.to_owned(), max_attempts: 5, max_crashes: 3 });
        store.kinds_register(kinds.into()).await.expect("two kinds");
        Self { store, clock, another, remove }
    }

    /// Opens the same storage once more, as another process would.
    pub async fn another(&self) -> SharedStore {
        (self.another)().await
    }

    /// Closes the store and removes its storage.
    pub async fn close(self) {
        drop(self.store);
        self.remove.await;
    }

    /// The store's time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Moves the clock back.
    pub fn jump_back(&self, by: Duration) {
        self.clock.set(self.clock.now() - by);
    }

    /// Moves the clock so far that every lease of a silent worker must be recovered by the next claim.
    pub fn expire(&self) {
        self.clock.advance(LEASE + RECOVERY_SLACK);
    }

    /// Registers a kind with its own bounds.
    pub async fn kind(&self, name: &str, max_attempts: u16, max_crashes: u16) {
        let kind = KindSpec { name: name.to_owned(), max_attempts, max_crashes };
        self.store.kinds_register(vec![kind]).await.expect("a kind");
    }

    /// Enqueues one job that must be accepted.
    pub async fn enqueue(&self, job: NewJob) -> JobId {
        self.enqueue_all(vec![job]).await[0]
    }

    /// Enqueues jobs that must be accepted.
    pub async fn enqueue_all(&self, jobs: Vec<NewJob>) -> Vec<JobId> {
        let count = jobs.len();
        let answers = self.store.enqueue(jobs).await.expect("good jobs are accepted");
        assert_eq!(answers.len(), count, "one answer for each enqueued job");
        answers.into_iter().map(|answer| answer.id).collect()
    }

    /// Registers a worker with the usual lease.
    pub async fn worker(&self, name: &str) -> WorkerId {
        self.worker_with(name, LEASE, LEASE).await
    }

    /// Registers a worker with its own leases.
    pub async fn worker_with(&self, name: &str, lease_min: Duration, lease_max: Duration) -> WorkerId {
        self.store.worker_register(worker_spec(name, lease_min, lease_max)).await.expect("a worker registers")
    }

    /// What a worker that serves both kinds is given.
    pub async fn claim(&self, worker: WorkerId, limit: u32) -> Claim {
        self.claim_as(claim_request(worker, limit)).await
    }

    /// What a request is given.
    pub async fn claim_as(&self, request: ClaimRequest) -> Claim {
        let limit = request.limit as usize;
        let claim = self.store.claim(request).await.expect("a claim is answered");
        assert!(claim.jobs.len() <= limit, "asked for {limit} jobs and got {}", claim.jobs.len());
        claim
    }

    /// The ids of the jobs a worker is given, in their order.
    pub async fn claim_ids(&self, worker: WorkerId, limit: u32) -> Vec<JobId> {
        ids(&self.claim(worker, limit).await.jobs)
    }

    /// The one job there is for this worker.
    pub async fn claim_one(&self, worker: WorkerId) -> ClaimedJob {
        let mut jobs = self.claim(worker, 1).await.jobs;
        assert_eq!(jobs.len(), 1, "a claimable job was not given out at {}", self.now());
        jobs.remove(0)
    }

    /// Checks that there is nothing for this worker.
    pub async fn nothing_for(&self, worker: WorkerId, why: &str) {
        let jobs = self.claim(worker, 100).await.jobs;
        assert!(jobs.is_empty(), "{why}, but the store gave out {:?} at {}", ids(&jobs), self.now());
    }

    /// Settles one execution.
    pub async fn settle(&self, fence: Fence, outcome: Outcome) -> Verdict {
        let verdicts =
            self.store.settle(vec![Settlement { fence, outcome }]).await.expect("a settlement is answered");
        assert_eq!(verdicts.len(), 1, "one verdict for one settlement");
        verdicts[0]
    }

    /// Settles one execution that must be the current one.
    pub async fn accept(&self, fence: Fence, outcome: Outcome) {
        let text = format!("{outcome:?}");
        let verdict = self.settle(fence, outcome).await;
        assert_eq!(verdict, Verdict::Accepted, "{text} for the current execution {fence:?}");
    }

    /// Ends one execution well.
    pub async fn done(&self, fence: Fence) {
        self.accept(fence, Outcome::Done { result: None }).await;
    }

    /// A job that must be there.
    pub async fn job(&self, id: JobId) -> Job {
        let job = self.store.job(id).await.expect("a job is read");
        job.unwrap_or_else(|| panic!("job {id} was accepted and is gone"))
    }

    /// Checks a job's state.
    pub async fn is(&self, id: JobId, state: State, why: &str) {
        let job = self.job(id).await;
        assert_eq!(job.state, state, "job {id} {why}; it reads {job:?}");
    }

    /// Checks a job's failure.
    pub async fn failed_with(&self, id: JobId, code: &str) {
        let job = self.job(id).await;
        assert_eq!(job.state, State::Failed, "job {id} should have failed with {code}; it reads {job:?}");
        assert_eq!(job.error.as_ref().map(|e| e.code.as_str()), Some(code), "error of job {id}: {job:?}");
        assert!(job.finished_at.is_some(), "failed job {id} has no end");
    }

    /// The whole timeline; its numbers must have no gap.
    pub async fn events(&self, id: JobId) -> Vec<Event> {
        let events = self.store.events(id, 0, 10_000).await.expect("a timeline is read");
        let numbers: Vec<u32> = events.iter().map(|event| event.seq).collect();
        let names: Vec<&str> = events.iter().map(|event| event.event.as_str()).collect();
        let expected: Vec<u32> = (1..).take(events.len()).collect();
        assert_eq!(numbers, expected, "events of job {id} are numbered from 1 without gaps: {names:?}");
        events
    }

    /// The names of the timeline, joined by blanks.
    pub async fn timeline(&self, id: JobId) -> String {
        let events = self.events(id).await;
        events.into_iter().map(|event| event.event).collect::<Vec<_>>().join(" ")
    }

    /// Everything the store tells about a job, to compare before and after.
    pub async fn all_of(&self, id: JobId) -> String {
        let job = self.store.job(id).await.expect("a job is read");
        let events = self.store.events(id, 0, 10_000).await.expect("a timeline is read");
        format!("{job:#?}\n{events:#?}")
    }
}

/// A job of kind [`WORK`] with everything by default.
pub fn job() -> NewJob {
    NewJob::of(WORK, &json!({ "n": 1 })).expect("a payload that serialises")
}

/// A job under a limit key.
pub fn keyed(key: &str) -> NewJob {
    NewJob { limit_key: Some(key.to_owned()), ..job() }
}

/// A worker that serves both kinds in all queues.
pub fn worker_spec(name: &str, lease_min: Duration, lease_max: Duration) -> WorkerSpec {
    WorkerSpec {
        name: name.to_owned(),
        kinds: vec![WORK.to_owned(), OTHER.to_owned()],
        queues: Vec::new(),
        concurrency: 100,
        lease_min,
        lease_max,
    }
}

/// A claim of both kinds in all queues with the usual lease.
pub fn claim_request(worker: WorkerId, limit: u32) -> ClaimRequest {
    let kinds = [WORK, OTHER].map(|kind| KindSlots { kind: kind.to_owned(), slots: limit, lease: LEASE });
    ClaimRequest { worker, limit, queues: Vec::new(), kinds: kinds.into() }
}

/// The ids of claimed jobs in their order.
pub fn ids(jobs: &[ClaimedJob]) -> Vec<JobId> {
    jobs.iter().map(|job| job.fence.job).collect()
}

/// A transient error.
pub fn transient() -> JobError {
    JobError::new("UPSTREAM_BUSY", ErrorClass::RetryableTransient, "the other side is busy")
}

/// A retry after a delay.
pub fn retry_in(delay: Duration) -> Outcome {
    Outcome::Retry { error: transient(), delay }
}

/// A failure for good.
pub fn failed() -> Outcome {
    Outcome::Failed { error: JobError::new("BROKEN", ErrorClass::Fatal, "it is broken") }
}

/// One of each way in which an execution can end.
pub fn every_outcome() -> Vec<Outcome> {
    let result = serde_json::value::to_raw_value(&json!({ "forged": true })).ok();
    vec![
        Outcome::Done { result },
        retry_in(Duration::ZERO),
        retry_in(Duration::from_secs(5)),
        failed(),
        Outcome::Cancelled,
        Outcome::Released,
        Outcome::Aborted,
    ]
}

/// Runs the same task many times at once and waits for all.
pub async fn race<T, F, Fut>(count: usize, task: F) -> Vec<T>
where
    F: Fn(usize) -> Fut,
    Fut: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let mut tasks = JoinSet::new();
    for number in 0..count {
        tasks.spawn(task(number));
    }
    tasks.join_all().await
}
