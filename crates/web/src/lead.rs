//! Who may write: the leader, under its epoch (INV-3).
//!
//! ```text
//!  route ─▶ Reader ─────────────────────────▶ store        everywhere
//!        ─▶ Writer::write ─▶ guard ─▶ under(epoch) ─▶ store  on the leader
//! ```
//!
//! Routes get nothing else: [`Reader`] has no method that changes anything, and what a [`Writer`] gives out is compared
//! with the newest epoch by the store. The guard is taken for the write alone, after the body was read, so that a slow
//! client does not hold up a node that is to step down.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::HeaderValue;
use axum::http::request::Parts;
use jiff::Timestamp;
use stargate_leader::{Holder, Leadership};
use stargate_queue::event::Event;
use stargate_queue::explain::{Explanation, explain, explain_under};
use stargate_queue::leadership::TermRow;
use stargate_queue::limits::Limit;
use stargate_queue::pressure::PressureConfig;
use stargate_queue::schedule::Schedule;
use stargate_queue::store::{
    Activity, Counted, FailureGroup, Found, JobFilter, PauseTarget, QueueCounts, StoreFacts, StoreHealth,
    WorkerRow,
};
use stargate_queue::{Error, Job, JobId, KindSpec, Result as StoreResult, SharedStore};
use tokio::sync::watch;

use crate::app::Shared;
use crate::error::{Problem, Result};
use crate::forward;

/// The store, for looking.
#[derive(Debug, Clone)]
pub(crate) struct Reader(SharedStore);

impl Reader {
    pub(crate) fn new(store: SharedStore) -> Self {
        Self(store)
    }

    pub(crate) fn facts(&self) -> StoreFacts {
        self.0.facts()
    }

    pub(crate) fn wakes(&self) -> watch::Receiver<u64> {
        self.0.wakes()
    }

    pub(crate) async fn check(&self) -> StoreResult<StoreHealth> {
        self.0.check().await
    }

    pub(crate) async fn job(&self, id: JobId) -> StoreResult<Option<Job>> {
        self.0.job(id).await
    }

    pub(crate) async fn jobs(&self, filter: JobFilter) -> StoreResult<Vec<Job>> {
        self.0.jobs(filter).await
    }

    pub(crate) async fn jobs_found(&self, filter: JobFilter) -> StoreResult<Found> {
        self.0.jobs_found(filter).await
    }

    pub(crate) async fn jobs_count(&self, filter: JobFilter, up_to: u64) -> StoreResult<Counted> {
        self.0.jobs_count(filter, up_to).await
    }

    pub(crate) async fn failures(&self, limit: u32) -> StoreResult<Vec<FailureGroup>> {
        self.0.failures(limit).await
    }

    pub(crate) async fn activity(&self, window: Duration, buckets: u32) -> StoreResult<Vec<Activity>> {
        self.0.activity(window, buckets).await
    }

    pub(crate) async fn explain(
        &self,
        id: JobId,
        pressure: Option<&PressureConfig>,
    ) -> StoreResult<Explanation> {
        match pressure {
            Some(pressure) => explain_under(self.0.as_ref(), id, pressure).await,
            None => explain(self.0.as_ref(), id).await,
        }
    }

    pub(crate) async fn schedules(&self) -> StoreResult<Vec<Schedule>> {
        self.0.schedules().await
    }

    pub(crate) async fn limits(&self) -> StoreResult<Vec<Limit>> {
        self.0.limits().await
    }

    pub(crate) async fn events(&self, id: JobId, after_seq: u32, limit: u32) -> StoreResult<Vec<Event>> {
        self.0.events(id, after_seq, limit).await
    }

    pub(crate) async fn queues(&self) -> StoreResult<Vec<QueueCounts>> {
        self.0.queues().await
    }

    pub(crate) async fn depth(&self, up_to: u64) -> StoreResult<u64> {
        self.0.depth(up_to).await
    }

    pub(crate) async fn oldest_ready(&self) -> StoreResult<Option<Duration>> {
        self.0.oldest_ready().await
    }

    pub(crate) async fn kinds(&self) -> StoreResult<Vec<KindSpec>> {
        self.0.kinds().await
    }

    pub(crate) async fn pauses(&self) -> StoreResult<Vec<PauseTarget>> {
        self.0.pauses().await
    }

    pub(crate) async fn workers(&self) -> StoreResult<Vec<WorkerRow>> {
        self.0.workers().await
    }

    pub(crate) async fn terms(&self, limit: u32) -> StoreResult<Vec<TermRow>> {
        self.0.terms(limit).await
    }

    pub(crate) async fn now(&self) -> StoreResult<Timestamp> {
        self.0.now().await
    }
}

/// The store, for changing something. As an argument of a route it refuses the request on a node that does not lead,
/// before its body is read.
#[derive(Debug)]
pub(crate) struct Writer(Shared);

/// Why nothing was written, or nobody knows whether.
#[derive(Debug)]
pub(crate) enum Refused {
    /// This node does not lead, or its term ended meanwhile.
    ByTerm(Problem),
    /// What the store said.
    ByStore(Error),
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::ByTerm(problem) => problem,
            Refused::ByStore(error) => error.into(),
        }
    }
}

impl FromRequestParts<Shared> for Writer {
    type Rejection = Problem;

    async fn from_request_parts(_parts: &mut Parts, shared: &Shared) -> Result<Self> {
        match &shared.leadership {
            Some(leadership) if !leadership.is_leader() => Err(not_leader(leadership)),
            _ => Ok(Self(shared.clone())),
        }
    }
}

impl Writer {
    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// Has something done as leader that is more than a write. Stepping down waits for it, and drops it where it stands
    /// when the term is over.
    pub(crate) async fn carry_out<T, F>(&self, work: impl FnOnce(SharedStore) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let store = &self.0.reader.0;
        let Some(leadership) = &self.0.leadership else { return work(store.clone()).await };
        let guard = leadership.guard().map_err(|_| not_leader(leadership))?;
        let done = guard.run(work(store.under(guard.epoch()))).await;
        done.map_err(|_| Problem::outcome_unknown("this node ceased to lead while it worked"))?
    }

    /// Writes as leader. Stepping down waits for it, and drops it where it stands when the term is over.
    pub(crate) async fn write<T, F>(
        &self,
        work: impl FnOnce(SharedStore) -> F,
    ) -> std::result::Result<T, Refused>
    where
        F: Future<Output = StoreResult<T>>,
    {
        let store = &self.0.reader.0;
        let Some(leadership) = &self.0.leadership else {
            return work(store.clone()).await.map_err(Refused::ByStore);
        };
        let guard = leadership.guard().map_err(|_| Refused::ByTerm(not_leader(leadership)))?;
        let written = guard.run(work(store.under(guard.epoch()))).await.map_err(|_| {
            // The store may have got it before.
            Refused::ByTerm(Problem::outcome_unknown("this node ceased to lead while it wrote"))
        })?;
        written.map_err(|error| {
            if matches!(error, Error::Deposed { .. }) {
                tracing::warn!(%error, "the store refused a write of this term; stepping down");
                guard.deposed();
            }
            Refused::ByStore(error)
        })
    }
}

/// The leader, if it is known and another node.
pub(crate) fn other_leader(leadership: &Leadership) -> Option<Holder> {
    leadership.known_leader().filter(|leader| leader.instance != leadership.instance().instance)
}

/// The answer to a write on a node that does not lead.
pub(crate) fn not_leader(leadership: &Leadership) -> Problem {
    let instance = &leadership.instance().instance;
    let Some(leader) = other_leader(leadership) else {
        let message = format!("{instance} does not lead, and does not know who does; try again");
        return Problem::not_leader(message, None);
    };
    let address = leader.address.as_deref().filter(|address| forward::base(address).is_some());
    let header = address.and_then(|address| HeaderValue::from_str(address).ok());
    Problem::not_leader(format!("{instance} does not lead: send this to the leader, {leader}"), header)
}
