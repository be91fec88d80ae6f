//! A running node in place of the store: what the API gives producers, readers and operators.
//!
//! The commands work on [`Store`] and do not notice. What a node refuses fails as it would beside the store, with the
//! same exit code: a [`Failure`] travels inside `Error::Store` and is taken out again where commands end. What only
//! workers and the leader do cannot be done through here and says so.

mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::Method;
use serde::de::DeserializeOwned;
use stargate_base::{Epoch, ErrorClass};
use stargate_queue::event::Event;
use stargate_queue::intake::{self, Link, LinkFilter, LinkTurn, Linked, NewLink};
use stargate_queue::job::{Fence, WorkerId};
use stargate_queue::kind::KindSpec;
use stargate_queue::leadership::TermRow;
use stargate_queue::limits::{Limit, LimitState};
use stargate_queue::schedule::Schedule;
use stargate_queue::store::{
    Activity, Beat, Cancelled, Claim, ClaimRequest, Counted, Enqueued, FailureGroup, Found, JobFilter, Note,
    Once, PauseTarget, PurgeReport, PurgeRequest, QueueCounts, Settlement, Store, StoreFacts, StoreHealth,
    Verdict, WakeMethod, WorkerRow, WorkerSpec,
};
use stargate_queue::{Error, Job, JobId, Json, NewJob, Result, SharedStore, State};
use stargate_web::api::types;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::node::Node;
pub(crate) use wire::BulkDone;
use wire::NewJobBody;

/// What this kind of store is called.
pub(crate) const NAME: &str = "node";

/// A running node in place of the store.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    node: Arc<Node>,
    /// Nobody wakes anybody over HTTP; kept so that receivers do not see the end.
    wakes: watch::Sender<u64>,
}

impl Remote {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, wakes: watch::Sender::new(0) }
    }

    async fn read<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, String)]) -> Result<T> {
        self.node.read(path, query).await.map_err(carried)
    }

    async fn post<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T> {
        self.node.change(Method::POST, path, None::<&()>).await.map_err(carried)
    }

    /// Sends one job, under a key that makes it safe to send it again. What the producer did not name is named here: an
    /// answer that is lost on the way must not become a second job.
    async fn send(&self, key: &str, job: &NewJob) -> Result<Enqueued> {
        let body: wire::EnqueuedBody =
            self.node.change_once(&["jobs"], &NewJobBody::from(job), key).await.map_err(carried)?;
        Ok(body.into())
    }

    /// Removes something; false if it was not there.
    async fn remove(&self, path: &[&str]) -> Result<bool> {
        let removed: Result<serde_json::Value, Failure> =
            self.node.change(Method::DELETE, path, None::<&()>).await;
        match removed {
            Ok(_) => Ok(true),
            Err(failure) if failure.code == "NOT_FOUND" => Ok(false),
            Err(failure) => Err(carried(failure)),
        }
    }

    async fn stats(&self) -> Result<wire::Stats> {
        self.read(&["stats"], &[]).await
    }
}

/// Hands a failure through the types of the queue.
pub(crate) fn carried(failure: Failure) -> Error {
    Error::Store {
        operation: "be asked",
        class: ErrorClass::RetryableTransient,
        hint: None,
        source: Box::new(failure),
    }
}

/// What cannot be done through a node.
fn beside_only<T>(what: &str) -> Result<T> {
    Err(carried(
        Failure::input(format!("a node does not let others {what}"))
            .help("that is done beside the store: leave --url and STARGATE_URL out"),
    ))
}

/// Where a pause or its end is asked for.
fn target(target: &PauseTarget) -> (&'static str, &str) {
    match target {
        PauseTarget::Queue(name) => ("queues", name),
        PauseTarget::Kind(name) => ("kinds", name),
    }
}

/// A refusal of what was asked about one job, in the variant that commands look for.
fn about(id: JobId, error: Error) -> Error {
    let Error::Store { source, .. } = &error else { return error };
    let Some(failure) = source.downcast_ref::<Failure>() else { return error };
    match failure.code.as_str() {
        "NOT_FOUND" => Error::NotFound { what: "job", name: id.to_string() },
        "WRONG_STATE" => match wrong_state(id, &failure.message) {
            Some(wrong) => wrong,
            None => error,
        },
        _ => error,
    }
}

/// `job 7 is done; only failed jobs …`
fn wrong_state(job: JobId, message: &str) -> Option<Error> {
    let rest = message.strip_prefix(&format!("job {job} is "))?;
    let (state, problem) = rest.split_once("; ")?;
    Some(Error::WrongState { job, state: state.parse().ok()?, problem: problem.to_owned() })
}

/// A filter as the API reads it in a body.
pub(crate) fn bulk_filter(filter: &JobFilter) -> types::bulk::BulkFilter {
    let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
    types::bulk::BulkFilter {
        state: Some(states.join(",")).filter(|states| !states.is_empty()),
        kind: filter.kind.clone(),
        queue: filter.queue.clone(),
        since: filter.since.map(|since| since.to_string()),
        until: filter.until.map(|until| until.to_string()),
        limit_key: filter.limit_key.clone(),
        code: filter.code.clone(),
        q: filter.search.clone(),
    }
}

/// A filter as the API reads it in a URL.
fn query(filter: &JobFilter) -> Vec<(&'static str, String)> {
    let mut query = vec![("limit", filter.limit.to_string())];
    if !filter.states.is_empty() {
        let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        query.push(("state", states.join(",")));
    }
    let texts = [
        ("kind", &filter.kind),
        ("queue", &filter.queue),
        ("limit_key", &filter.limit_key),
        ("code", &filter.code),
        ("q", &filter.search),
    ];
    query.extend(texts.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))));
    query.extend(filter.since.map(|since| ("since", since.to_string())));
    query.extend(filter.until.map(|until| ("until", until.to_string())));
    query.extend(filter.before.map(|before| ("before", before.to_string())));
    query
}

#[async_trait]
impl Store for Remote {
    fn facts(&self) -> StoreFacts {
        StoreFacts { name: NAME, wake: WakeMethod::Poll }
    }

    fn wakes(&self) -> watch::Receiver<u64> {
        self.wakes.subscribe()
    }

    async fn check(&self) -> Result<StoreHealth> {
        let started = Instant::now();
        self.stats().await?;
        Ok(StoreHealth { round_trip: started.elapsed(), schema: 0 })
    }

    /// The node itself decides under which term it writes.
    fn under(&self, _: Epoch) -> SharedStore {
        Arc::new(self.clone())
    }

    async fn epoch(&self) -> Result<Option<Epoch>> {
        let leader: wire::Leader = self.read(&["leader"], &[("terms", "1".to_owned())]).await?;
        Ok(leader.epoch)
    }

    async fn term_begin(&self, _: &str, _: Option<&str>, _: Option<Epoch>) -> Result<Epoch> {
        beside_only("begin a term")
    }

    async fn term_end(&self, _: Epoch, _: &str) -> Result<()> {
        beside_only("end a term")
    }

    async fn terms(&self, limit: u32) -> Result<Vec<TermRow>> {
        let leader: wire::Leader = self.read(&["leader"], &[("terms", limit.to_string())]).await?;
        Ok(leader.terms.into_iter().map(TermRow::from).collect())
    }

    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        let key = format!("cli-{}", ulid::Ulid::generate());
        self.enqueue_once(Once { key, fingerprint: String::new() }, jobs).await
    }

    /// The node makes a fingerprint of its own, of the very bytes that it gets.
    async fn enqueue_once(&self, once: Once, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        match jobs.as_slice() {
            [job] => Ok(vec![self.send(&once.key, job).await?]),
            _ => beside_only("enqueue several jobs with one command"),
        }
    }

    async fn kinds_register(&self, _: Vec<KindSpec>) -> Result<()> {
        beside_only("make kinds known")
    }

    async fn kinds(&self) -> Result<Vec<KindSpec>> {
        let kinds: wire::Kinds = self.read(&["kinds"], &[]).await?;
        let spec = |kind: wire::KindBody| KindSpec {
            name: kind.kind,
            max_attempts: kind.max_attempts,
            max_crashes: kind.max_crashes,
        };
        Ok(kinds.kinds.into_iter().map(spec).collect())
    }

    async fn worker_register(&self, _: WorkerSpec) -> Result<WorkerId> {
        beside_only("run its jobs")
    }

    async fn worker_remove(&self, _: WorkerId) -> Result<()> {
        beside_only("run its jobs")
    }

    async fn beat(&self, _: WorkerId) -> Result<Beat> {
        beside_only("run its jobs")
    }

    async fn cancellations(&self, _: WorkerId) -> Result<Vec<JobId>> {
        beside_only("run its jobs")
    }

    async fn holds(&self, _: Fence) -> Result<bool> {
        beside_only("run its jobs")
    }

    async fn owned(&self, _: WorkerId) -> Result<Vec<Fence>> {
        beside_only("run its jobs")
    }

    async fn claim(&self, _: ClaimRequest) -> Result<Claim> {
        beside_only("run its jobs")
    }

    async fn settle(&self, _: Vec<Settlement>) -> Result<Vec<Verdict>> {
        beside_only("run its jobs")
    }

    async fn note(&self, _: Vec<Note>) -> Result<Vec<Verdict>> {
        beside_only("run its jobs")
    }

    async fn links_accept(&self, _: &str, _: Vec<NewLink>) -> Result<Vec<Linked>> {
        beside_only("take over jobs of other queues")
    }

    async fn links_turn(&self, _: &str, _: Vec<intake::Claim>, _: LinkTurn) -> Result<u64> {
        beside_only("take over jobs of other queues")
    }

    async fn links(&self, _: LinkFilter) -> Result<Vec<Link>> {
        beside_only("take over jobs of other queues")
    }

    async fn job(&self, id: JobId) -> Result<Option<Job>> {
        let body: Result<wire::JobBody> = self.read(&["jobs", &id.to_string()], &[]).await;
        match body.map_err(|error| about(id, error)) {
            Ok(body) => Ok(Some(body.into())),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn jobs(&self, filter: JobFilter) -> Result<Vec<Job>> {
        Ok(self.jobs_found(filter).await?.jobs)
    }

    async fn jobs_found(&self, filter: JobFilter) -> Result<Found> {
        let page: wire::JobPage = self.read(&["jobs"], &query(&filter)).await?;
        Ok(Found {
            jobs: page.jobs.into_iter().map(Job::from).collect(),
            next_before: page.next_before,
            scanned_all: page.scanned_all,
        })
    }

    async fn jobs_count(&self, _: JobFilter, _: u64) -> Result<Counted> {
        beside_only("count its jobs; 'job retry --dry-run' and 'job cancel --dry-run' tell how many match")
    }

    async fn failures(&self, limit: u32) -> Result<Vec<FailureGroup>> {
        let found: wire::Failures = self.read(&["failures"], &[("limit", limit.to_string())]).await?;
        Ok(found.failures.into_iter().map(FailureGroup::from).collect())
    }

    async fn activity(&self, window: Duration, buckets: u32) -> Result<Vec<Activity>> {
        let query = [("window", format!("{}s", window.as_secs())), ("buckets", buckets.to_string())];
        let found: wire::ActivityBody = self.read(&["activity"], &query).await?;
        Ok(found.buckets.into_iter().map(Activity::from).collect())
    }

    async fn events(&self, id: JobId, after_seq: u32, limit: u32) -> Result<Vec<Event>> {
        let query = [("after", after_seq.to_string()), ("limit", limit.to_string())];
        let page: Result<wire::EventPage> = self.read(&["jobs", &id.to_string(), "events"], &query).await;
        let page = page.map_err(|error| about(id, error))?;
        Ok(page.events.into_iter().map(Event::from).collect())
    }

    async fn parents(&self, _: JobId) -> Result<Vec<(JobId, State)>> {
        Ok(Vec::new())
    }

    async fn retry(&self, id: JobId) -> Result<()> {
        let job: Result<wire::JobBody> = self.post(&["jobs", &id.to_string(), "retry"]).await;
        job.map(drop).map_err(|error| about(id, error))
    }

    async fn retry_edited(&self, id: JobId, payload: Json) -> Result<()> {
        #[derive(serde::Serialize)]
        struct Edited<'a> {
            payload: &'a Json,
        }
        let (id_text, body) = (id.to_string(), Edited { payload: &payload });
        let job: Result<wire::JobBody, Failure> =
            self.node.change(Method::POST, &["jobs", &id_text, "retry"], Some(&body)).await;
        job.map(drop).map_err(|failure| about(id, carried(failure)))
    }

    async fn retry_many(&self, _: Vec<JobId>) -> Result<Vec<JobId>> {
        beside_only("retry jobs by a list; it does so by a filter")
    }

    async fn cancel_many(&self, _: Vec<JobId>) -> Result<Vec<(JobId, Cancelled)>> {
        beside_only("cancel jobs by a list; it does so by a filter")
    }

    async fn cancel(&self, id: JobId) -> Result<Cancelled> {
        let body: Result<wire::CancelledBody> = self.post(&["jobs", &id.to_string(), "cancel"]).await;
        let body = body.map_err(|error| about(id, error))?;
        Ok(if body.outcome == "ended" { Cancelled::Ended } else { Cancelled::Requested })
    }

    async fn pause(&self, paused: PauseTarget) -> Result<()> {
        let (what, name) = target(&paused);
        self.post::<serde_json::Value>(&[what, name, "pause"]).await.map(drop)
    }

    async fn resume(&self, resumed: PauseTarget) -> Result<bool> {
        // The API answers how it is now, so how it was has to be asked first.
        let was_paused = self.pauses().await?.contains(&resumed);
        let (what, name) = target(&resumed);
        self.post::<serde_json::Value>(&[what, name, "resume"]).await?;
        Ok(was_paused)
    }

    async fn pauses(&self) -> Result<Vec<PauseTarget>> {
        let queues = self.queues().await?.into_iter().filter(|queue| queue.paused);
        let kinds: wire::Kinds = self.read(&["kinds"], &[]).await?;
        let kinds = kinds.kinds.into_iter().filter(|kind| kind.paused);
        let queues = queues.map(|queue| PauseTarget::Queue(queue.queue));
        Ok(queues.chain(kinds.map(|kind| PauseTarget::Kind(kind.kind))).collect())
    }

    async fn queues(&self) -> Result<Vec<QueueCounts>> {
        let queues: wire::Queues = self.read(&["queues"], &[]).await?;
        Ok(queues.queues.into_iter().map(QueueCounts::from).collect())
    }

    async fn depth(&self, up_to: u64) -> Result<u64> {
        Ok(self.stats().await?.jobs.ready.min(up_to))
    }

    async fn oldest_ready(&self) -> Result<Option<Duration>> {
        Ok(self.stats().await?.oldest_ready())
    }

    async fn workers(&self) -> Result<Vec<WorkerRow>> {
        let workers: wire::Workers = self.read(&["workers"], &[]).await?;
        Ok(workers.workers.into_iter().map(WorkerRow::from).collect())
    }

    async fn limit_set(&self, limit: Limit) -> Result<()> {
        let rate = limit.rate.map(|rate| rate.to_string());
        let body = serde_json::json!({
            "concurrency": limit.concurrency, "rate": rate, "weight": limit.weight,
        });
        let set: Result<types::plans::Limit, Failure> =
            self.node.change(Method::PUT, &["limits", &limit.pattern], Some(&body)).await;
        set.map(drop).map_err(carried)
    }

    async fn limit_remove(&self, pattern: &str) -> Result<bool> {
        self.remove(&["limits", pattern]).await
    }

    async fn limits(&self) -> Result<Vec<Limit>> {
        let found: types::plans::Limits = self.read(&["limits"], &[]).await?;
        found.limits.into_iter().map(wire::limit).collect()
    }

    async fn limit_state(&self, _: &str) -> Result<Option<LimitState>> {
        beside_only("look at one limit key")
    }

    /// The node reckons the next instant itself.
    async fn schedule_put(&self, schedule: Schedule) -> Result<()> {
        let body = wire::NewScheduleBody::from(&schedule);
        let put: Result<types::plans::Schedule, Failure> =
            self.node.change(Method::PUT, &["schedules", &schedule.name], Some(&body)).await;
        put.map(drop).map_err(carried)
    }

    async fn schedule_remove(&self, name: &str) -> Result<bool> {
        self.remove(&["schedules", name]).await
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        let found: types::plans::Schedules = self.read(&["schedules"], &[]).await?;
        Ok(found.schedules.into_iter().map(wire::schedule).collect())
    }

    async fn schedule_fire(&self, _: &str, _: Timestamp, _: Option<Timestamp>) -> Result<Option<JobId>> {
        beside_only("fire schedules")
    }

    async fn now(&self) -> Result<Timestamp> {
        Ok(self.stats().await?.now)
    }

    async fn purge(&self, _: PurgeRequest) -> Result<PurgeReport> {
        beside_only("remove jobs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_state_is_read_from_what_the_node_says() {
        let error = wrong_state(JobId(7), "job 7 is done; only failed jobs can be retried");
        let Some(Error::WrongState { state, problem, .. }) = error else { panic!("{error:?}") };
        assert_eq!((state, problem.as_str()), (State::Done, "only failed jobs can be retried"));
        assert!(wrong_state(JobId(7), "something else").is_none());
    }

    #[test]
    fn what_a_node_refused_is_what_the_command_ends_with() {
        let refused =
            Failure::new(crate::failure::Exit::NotLeader, "NOT_LEADER", "ask another").help("there");
        let failure = Failure::from(carried(refused));
        assert_eq!((failure.code.as_str(), failure.message.as_str()), ("NOT_LEADER", "ask another"));
        assert_eq!((failure.exit, failure.help.as_deref()), (crate::failure::Exit::NotLeader, Some("there")));
    }
}
