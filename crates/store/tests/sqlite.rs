//! What is particular to SQLite: several handles on one file, errors of the disk, speed of listings.
//! What both stores promise is in the conformance suite.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use stargate_base::clock::ManualClock;
use stargate_base::{Clock, ErrorClass};
use stargate_queue::limits::Limit;
use stargate_queue::schedule::Schedule;
use stargate_queue::store::{
    Cancelled, Claim, ClaimRequest, ClaimedJob, JobFilter, KindSlots, Note, Once, Outcome, PauseTarget,
    PurgeRequest, Settlement, Verdict, WorkerSpec,
};
use stargate_queue::{Due, Error, Job, JobError, JobId, KindSpec, NewJob, Profile, State, Store, WorkerId};
use stargate_store::sqlite::{Options, Sqlite};

const LEASE: Duration = Duration::from_secs(30);

struct Bench {
    store: Sqlite,
    clock: ManualClock,
    worker: WorkerId,
    dir: tempfile::TempDir,
}

async fn open(path: &Path, clock: Clock) -> Sqlite {
    Sqlite::open(path, Options { clock }).await.unwrap()
}

async fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let store = open(&dir.path().join("s.db"), Clock::Manual(clock.clone())).await;
    let worker = ready(&store).await;
    Bench { store, clock, worker, dir }
}

async fn ready(store: &Sqlite) -> WorkerId {
    let kinds = ["a", "b"].map(|name| KindSpec::new(name, &Profile::default()).unwrap());
    store.kinds_register(kinds.into()).await.unwrap();
    worker(store).await
}

async fn worker(store: &Sqlite) -> WorkerId {
    let spec = WorkerSpec {
        name: "w".into(),
        kinds: vec!["a".into(), "b".into()],
        queues: vec![],
        concurrency: 10,
        lease_min: LEASE,
        lease_max: LEASE,
    };
    store.worker_register(spec).await.unwrap()
}

fn request(worker: WorkerId, limit: u32) -> ClaimRequest {
    let slots = |kind: &str| KindSlots { kind: kind.into(), slots: 10_000, lease: LEASE };
    ClaimRequest { worker, limit, queues: vec![], kinds: vec![slots("a"), slots("b")] }
}

fn new(kind: &str) -> NewJob {
    NewJob::of(kind, &serde_json::json!({ "x": 1 })).unwrap()
}

fn done(job: &ClaimedJob) -> Settlement {
    Settlement { fence: job.fence, outcome: Outcome::Done { result: None } }
}

fn boom() -> JobError {
    JobError::new("BOOM", ErrorClass::RetryableTransient, "boom")
}

impl Bench {
    async fn add(&self, job: NewJob) -> JobId {
        self.store.enqueue(vec![job]).await.unwrap()[0].id
    }
    async fn claim(&self, limit: u32) -> Claim {
        self.store.claim(request(self.worker, limit)).await.unwrap()
    }
    async fn settle(&self, job: &ClaimedJob, outcome: Outcome) -> Verdict {
        self.store.settle(vec![Settlement { fence: job.fence, outcome }]).await.unwrap()[0]
    }
    async fn job(&self, id: JobId) -> Job {
        self.store.job(id).await.unwrap().unwrap()
    }
    async fn events(&self, id: JobId) -> String {
        let events = self.store.events(id, 0, 100).await.unwrap();
        let seqs: Vec<u32> = events.iter().map(|e| e.seq).collect();
        assert_eq!(seqs, (1..=u32::try_from(seqs.len()).unwrap()).collect::<Vec<_>>());
        events.into_iter().map(|e| e.event).collect::<Vec<_>>().join(" ")
    }
    async fn counts(&self) -> (u64, u64, u64, u64, u64) {
        let queues = self.store.queues().await.unwrap();
        let sum = |f: fn(&stargate_queue::store::QueueCounts) -> u64| queues.iter().map(f).sum();
        (sum(|q| q.ready), sum(|q| q.delayed), sum(|q| q.blocked), sum(|q| q.processing), sum(|q| q.failed))
    }
}

#[tokio::test]
async fn a_job_runs_is_retried_and_ends_with_a_gapless_timeline() {
    let b = bench().await;
    let id = b.add(new("a")).await;
    assert_eq!(b.counts().await, (1, 0, 0, 0, 0));
    let claim = b.claim(10).await;
    assert_eq!(claim.jobs.len(), 1);
    assert_eq!(b.claim(10).await.jobs.len(), 0, "given out twice");
    let job = &claim.jobs[0];
    let notes = (0..2).map(|n| Note {
        fence: job.fence,
        progress: Some(40 + n),
        event: Some(("progress".into(), serde_json::value::to_raw_value(&serde_json::json!({})).unwrap())),
    });
    assert_eq!(b.store.note(notes.collect()).await.unwrap(), [Verdict::Accepted; 2]);
    let outcome = Outcome::Retry { error: boom(), delay: Duration::from_secs(30) };
    assert_eq!(b.settle(job, outcome).await, Verdict::Accepted);
    assert_eq!(b.settle(job, Outcome::Done { result: None }).await, Verdict::Stale);
    assert_eq!(b.counts().await, (0, 1, 0, 0, 0));
    let look = b.claim(10).await.next_look;
    assert_eq!(look, Some(Duration::from_secs(30)));
    b.clock.advance(Duration::from_secs(30));
    let second = b.claim(10).await.jobs;
    assert_eq!((second[0].fence.attempt, second[0].progress), (2, 41));
    let twice = b.store.settle(vec![done(&second[0]), done(&second[0])]).await.unwrap();
    assert_eq!(twice, [Verdict::Accepted, Verdict::Stale]);
    assert_eq!(b.events(id).await, "created processing progress progress requeued:retry processing done");
    assert_eq!(b.job(id).await.state, State::Done);
    assert_eq!(b.counts().await, (0, 0, 0, 0, 0));
}

#[tokio::test]
async fn an_abandoned_job_is_recovered_until_it_has_cost_too_many_workers() {
    let b = bench().await;
    let id = b.add(new("a")).await;
    for crash in 1..=3 {
        let silent = worker(&b.store).await;
        let claimed = b.store.claim(request(silent, 1)).await.unwrap().jobs;
        assert_eq!((claimed.len(), claimed[0].fence.attempt), (1, crash), "crash {crash}");
        let other = worker(&b.store).await;
        let look = b.store.claim(request(other, 1)).await.unwrap();
        assert_eq!((look.jobs.len(), look.next_look), (0, Some(LEASE)), "crash {crash}");
        b.clock.advance(LEASE - Duration::from_millis(1));
        let early = b.store.claim(request(other, 0)).await.unwrap();
        assert_eq!(early.recovered.len(), 0, "crash {crash}: recovered before the lease ended");
        b.clock.advance(Duration::from_millis(1));
        let claim = b.store.claim(request(other, 0)).await.unwrap();
        let became: Vec<State> = claim.recovered.iter().map(|one| one.became).collect();
        assert_eq!(became, [if crash == 3 { State::Failed } else { State::Queued }], "crash {crash}");
        assert_eq!(b.settle(&claimed[0], Outcome::Done { result: None }).await, Verdict::Stale);
        assert!(!b.store.beat(silent).await.unwrap().known, "crash {crash}: the lost worker was not told");
        assert_eq!(b.store.claim(request(silent, 1)).await.unwrap().jobs.len(), 0, "given to a lost worker");
        assert_eq!(b.job(id).await.crash_count, crash, "crash {crash}");
    }
    let job = b.job(id).await;
    assert_eq!((job.state, job.error.unwrap().code.as_str()), (State::Failed, "WORKER_LOST"));
    let stale = "processing requeued:stale";
    assert_eq!(b.events(id).await, format!("created {stale} {stale} processing failed"));
    assert_eq!(b.counts().await, (0, 0, 0, 0, 1));
}

#[tokio::test]
async fn a_worker_lost_on_the_last_attempt_exhausts_it_and_a_requested_cancellation_is_kept() {
    let b = bench().await;
    let last = b.add(NewJob { max_attempts: Some(1), ..new("a") }).await;
    let cancelled = b.add(new("a")).await;
    assert_eq!(b.claim(2).await.jobs.len(), 2);
    b.store.cancel(cancelled).await.unwrap();
    b.clock.advance(LEASE);
    let other = worker(&b.store).await;
    assert_eq!(b.store.claim(request(other, 5)).await.unwrap().recovered.len(), 2);
    assert_eq!(b.job(last).await.error.unwrap().code, "RETRIES_EXHAUSTED");
    assert_eq!(b.job(cancelled).await.state, State::Cancelled);
}

#[tokio::test]
async fn released_leaves_no_trace_and_aborted_gives_the_attempt_back() {
    let b = bench().await;
    let id = b.add(new("a")).await;
    let job = b.claim(1).await.jobs.remove(0);
    b.settle(&job, Outcome::Released).await;
    assert_eq!(b.events(id).await, "created");
    let job = b.claim(1).await.jobs.remove(0);
    assert_eq!(job.fence.attempt, 1);
    b.settle(&job, Outcome::Aborted).await;
    let job = b.claim(1).await.jobs.remove(0);
    assert_eq!(job.fence.attempt, 1);
    b.settle(&job, Outcome::Failed { error: boom() }).await;
    assert_eq!(b.events(id).await, "created processing aborted:shutdown processing failed");
    b.store.retry(id).await.unwrap();
    assert_eq!(b.counts().await, (1, 0, 0, 0, 0));
    assert_eq!(b.job(id).await.max_attempts, 6);
    let job = b.claim(1).await.jobs.remove(0);
    assert_eq!(b.settle(&job, Outcome::Done { result: None }).await, Verdict::Accepted);
    let expected = "created processing aborted:shutdown processing failed requeued:operator processing done";
    assert_eq!(b.events(id).await, expected);
    assert!(matches!(b.store.retry(id).await, Err(Error::WrongState { .. })));
}

#[tokio::test]
async fn children_wait_for_their_parents_and_fail_with_them() {
    let b = bench().await;
    let good = b.add(new("a")).await;
    let bad = b.add(NewJob { priority: 5, ..new("a") }).await;
    let child = b.add(NewJob { after: vec![good, good], ..new("b") }).await;
    let both = b.add(NewJob { after: vec![good, bad], ..new("b") }).await;
    let grandchild = b.add(NewJob { after: vec![both], ..new("b") }).await;
    assert_eq!(b.counts().await, (2, 0, 3, 0, 0));
    let jobs = b.claim(10).await.jobs;
    assert_eq!(jobs.iter().map(|j| j.fence.job).collect::<Vec<_>>(), [bad, good]);
    b.settle(&jobs[0], Outcome::Failed { error: boom() }).await;
    b.settle(&jobs[1], Outcome::Done { result: None }).await;
    assert_eq!(b.counts().await, (1, 0, 0, 0, 3));
    assert_eq!(b.job(grandchild).await.error.unwrap().code, "DEPENDENCY_FAILED");
    assert_eq!(b.store.parents(both).await.unwrap(), [(good, State::Done), (bad, State::Failed)]);
    assert_eq!(b.claim(10).await.jobs[0].fence.job, child);
    let late = b.add(NewJob { after: vec![bad], ..new("b") }).await;
    assert_eq!(b.events(late).await, "created failed");
    let unknown = b.store.enqueue(vec![new("a"), NewJob { after: vec![JobId(999)], ..new("b") }]).await;
    assert!(matches!(unknown, Err(Error::NotFound { .. })));
    assert_eq!(b.counts().await, (0, 0, 0, 1, 4), "a refused batch leaves nothing");
    assert!(matches!(b.store.retry(both).await, Err(Error::WrongState { .. })), "its parent failed");
    b.store.retry(bad).await.unwrap();
    b.store.retry(both).await.unwrap();
    assert_eq!(b.counts().await, (1, 0, 1, 1, 2));
}

#[tokio::test]
async fn keys_share_by_weight_and_keep_to_concurrency_and_rate() {
    let b = bench().await;
    let limit =
        |pattern: &str, weight| Limit { pattern: pattern.into(), concurrency: None, rate: None, weight };
    b.store.limit_set(limit("heavy", 3)).await.unwrap();
    let keyed = |key: &str| NewJob { limit_key: Some(key.into()), ..new("a") };
    b.store.enqueue((0..40).map(|_| keyed("light")).collect()).await.unwrap();
    b.store.enqueue((0..40).map(|_| keyed("heavy")).collect()).await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..10 {
        jobs.extend(b.claim(4).await.jobs);
    }
    let heavy = jobs.iter().filter(|job| job.fence.job.0 > 40).count();
    assert_eq!(heavy, 30);
    b.store.settle(jobs.iter().map(done).collect()).await.unwrap();
    assert_eq!(b.store.limit_state("heavy").await.unwrap().unwrap().running, 0);
    b.store
        .limit_set(Limit { concurrency: Some(2), rate: Some("10/s".parse().unwrap()), ..limit("*", 1) })
        .await
        .unwrap();
    let rest = b.claim(100).await.jobs;
    assert_eq!(rest.len(), 12, "two of light by concurrency, ten of heavy which has a rule of its own");
}

#[tokio::test]
async fn a_rate_says_when_the_next_start_is_allowed() {
    let b = bench().await;
    let rate = Some("2/s".parse().unwrap());
    b.store.limit_set(Limit { pattern: "k".into(), concurrency: None, rate, weight: 1 }).await.unwrap();
    let keyed = NewJob { limit_key: Some("k".into()), ..new("a") };
    b.store.enqueue(vec![keyed; 10]).await.unwrap();
    let claim = b.claim(10).await;
    assert_eq!((claim.jobs.len(), claim.next_look), (2, Some(Duration::from_millis(500))));
    b.clock.advance(Duration::from_millis(500));
    assert_eq!(b.claim(10).await.jobs.len(), 1);
}

#[tokio::test]
async fn cancelling_ends_a_waiting_job_and_asks_for_a_running_one() {
    let b = bench().await;
    let waiting = b.add(NewJob { due: Due::In(Duration::from_secs(9)), ..new("a") }).await;
    let running = b.add(new("a")).await;
    let job = b.claim(1).await.jobs.remove(0);
    assert_eq!(b.store.cancel(waiting).await.unwrap(), Cancelled::Ended);
    assert_eq!(b.store.cancel(running).await.unwrap(), Cancelled::Requested);
    assert_eq!(b.store.cancel(running).await.unwrap(), Cancelled::Requested);
    assert_eq!(b.store.beat(b.worker).await.unwrap().cancels, [running]);
    b.settle(&job, Outcome::Aborted).await;
    assert_eq!(b.store.beat(b.worker).await.unwrap().cancels, []);
    assert_eq!(b.events(running).await, "created processing cancel:requested cancelled");
    assert!(matches!(b.store.cancel(running).await, Err(Error::WrongState { .. })));
    assert!(matches!(b.store.cancel(JobId(77)).await, Err(Error::NotFound { .. })));
    assert_eq!(b.counts().await, (0, 0, 0, 0, 0));
}

#[tokio::test]
async fn keys_make_jobs_once_and_unknown_kinds_are_refused() {
    let b = bench().await;
    let unique = NewJob { unique_key: Some("u".into()), ..new("a") };
    let first = b.store.enqueue(vec![unique.clone(), unique.clone()]).await.unwrap();
    assert_eq!((first[0].id, first[0].existing, first[1].existing), (first[1].id, false, true));
    let once = Once { key: "k".into(), fingerprint: "f".into() };
    let one = b.store.enqueue_once(once.clone(), vec![new("a")]).await.unwrap();
    let two = b.store.enqueue_once(once.clone(), vec![new("a")]).await.unwrap();
    assert_eq!((one[0].id, two[0].existing), (two[0].id, true));
    let other = b.store.enqueue_once(Once { fingerprint: "g".into(), ..once }, vec![new("a")]).await;
    assert!(matches!(other, Err(Error::Conflict { .. })));
    assert!(matches!(b.store.enqueue(vec![new("nobody")]).await, Err(Error::UnknownKind { .. })));
}

#[tokio::test]
async fn pauses_schedules_and_purge_do_what_they_say() {
    let b = bench().await;
    b.store.pause(PauseTarget::Kind("a".into())).await.unwrap();
    b.add(new("a")).await;
    assert_eq!(b.claim(1).await.jobs.len(), 0);
    assert_eq!(b.store.oldest_ready().await.unwrap(), None);
    assert!(b.store.resume(PauseTarget::Kind("a".into())).await.unwrap());
    assert!(!b.store.resume(PauseTarget::Kind("a".into())).await.unwrap());
    b.clock.advance(Duration::from_secs(3));
    assert_eq!(b.store.oldest_ready().await.unwrap(), Some(Duration::from_secs(3)));
    assert_eq!(b.store.depth(5).await.unwrap(), 1);
    let job = b.claim(1).await.jobs.remove(0);
    b.settle(&job, Outcome::Done { result: None }).await;
    let due: Timestamp = b.clock.now();
    let schedule = Schedule {
        name: "s".into(),
        cron: "* * * * *".into(),
        time_zone: "UTC".into(),
        kind: "b".into(),
        queue: "default".into(),
        payload: serde_json::value::to_raw_value(&1).unwrap(),
        priority: 0,
        next_at: Some(due),
        last_at: None,
    };
    b.store.schedule_put(schedule).await.unwrap();
    assert!(b.store.schedule_fire("s", due, None).await.unwrap().is_some());
    assert!(b.store.schedule_fire("s", due, None).await.unwrap().is_none());
    assert_eq!(b.store.schedules().await.unwrap()[0].last_at, Some(due));
    b.clock.advance(Duration::from_secs(100));
    let age = Duration::from_secs(50);
    let report = b
        .store
        .purge(PurgeRequest { done_age: age, failed_age: age, batch: 10, ..PurgeRequest::default() })
        .await
        .unwrap();
    assert_eq!((report.done, report.failed), (1, 0));
    assert!(b.store.job(job.fence.job).await.unwrap().is_none());
}

#[tokio::test]
async fn a_store_that_was_moved_refuses_writes_in_every_process_and_says_where_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    let (one, two) = (open(&path, Clock::Store).await, open(&path, Clock::Store).await);
    ready(&one).await;
    one.freeze("postgres://db/jobs").await.unwrap();
    let error = two.enqueue(vec![new("a")]).await.unwrap_err();
    assert!(error.to_string().contains("postgres://db/jobs"), "{error}");
    assert_eq!(error.class(), ErrorClass::Conflict);
    assert!(two.job(JobId(1)).await.unwrap().is_none(), "reading is allowed");
    two.unfreeze().await.unwrap();
    one.enqueue(vec![new("a")]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_handles_on_one_file_never_get_in_each_others_way() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    let handles = [Arc::new(open(&path, Clock::Store).await), Arc::new(open(&path, Clock::Store).await)];
    ready(&handles[0]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for store in handles.iter().flat_map(|store| [Arc::clone(store), Arc::clone(store)]) {
        tasks.spawn(async move {
            let me = worker(&store).await;
            let mut ended = 0;
            for _ in 0..50 {
                store.enqueue(vec![new("a"); 20]).await.unwrap();
                let jobs = store.claim(request(me, 20)).await.unwrap().jobs;
                assert!(store.beat(me).await.unwrap().known);
                let verdicts = store.settle(jobs.iter().map(done).collect()).await.unwrap();
                assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted));
                ended += verdicts.len();
            }
            ended
        });
    }
    let ended: usize = tasks.join_all().await.into_iter().sum();
    let queues = handles[1].queues().await.unwrap();
    assert_eq!((ended as u64 + queues[0].ready, queues[0].processing), (4000, 0));
}

#[tokio::test]
async fn a_commit_of_another_process_wakes_and_a_beat_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    let (one, two) = (open(&path, Clock::Store).await, open(&path, Clock::Store).await);
    let me = ready(&one).await;
    let mut wakes = two.wakes();
    // The first look of the watch may fall before or after the registration; neither is a reason to wake.
    one.beat(me).await.unwrap();
    assert!(
        tokio::time::timeout(Duration::from_millis(50), wakes.changed()).await.is_err(),
        "woken by a beat"
    );
    one.enqueue(vec![new("a")]).await.unwrap();
    tokio::time::timeout(Duration::from_secs(5), wakes.changed()).await.expect("not woken").unwrap();
}

#[tokio::test]
async fn what_is_not_a_database_or_cannot_be_opened_is_refused_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.db");
    std::fs::write(&text, "this is certainly not a database file, it is text".repeat(100)).unwrap();
    let error = Sqlite::open(&text, Options::default()).await.unwrap_err();
    assert!(error.to_string().contains("not a SQLite database"), "{error}");
    let error = Sqlite::open(&dir.path().join("no/such/dir.db"), Options::default()).await.unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    let path = dir.path().join("newer.db");
    drop(open(&path, Clock::Store).await);
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute("insert into migration values (999, 'future', '', 0)", []).unwrap();
    drop(raw);
    let error = Sqlite::open(&path, Options::default()).await.unwrap_err();
    assert!(matches!(error, Error::SchemaTooNew { found: 999, .. }), "{error}");
}

#[tokio::test]
async fn listings_filter_by_everything_and_page_by_id() {
    let b = bench().await;
    for n in 0..30 {
        let kind = if n % 3 == 0 { "b" } else { "a" };
        b.add(NewJob { queue: format!("q{}", n % 2), ..new(kind) }).await;
        b.clock.advance(Duration::from_secs(1));
    }
    let jobs = b.claim(10).await.jobs;
    let outcomes = jobs.iter().enumerate().map(|(n, job)| {
        let outcome =
            if n % 2 == 0 { Outcome::Done { result: None } } else { Outcome::Failed { error: boom() } };
        Settlement { fence: job.fence, outcome }
    });
    b.store.settle(outcomes.collect()).await.unwrap();
    b.claim(5).await;
    let all = b.store.jobs(JobFilter { limit: 1000, ..JobFilter::default() }).await.unwrap();
    assert_eq!(all.iter().map(|j| j.id.0).collect::<Vec<_>>(), (1..=30).rev().collect::<Vec<_>>());
    for states in [
        vec![],
        vec![State::Queued],
        vec![State::Processing],
        vec![State::Done],
        vec![State::Failed, State::Queued],
    ] {
        for kind in [None, Some("a".to_owned())] {
            for queue in [None, Some("q1".to_owned())] {
                for since in [None, Some(all[25].created_at), Some(all[3].created_at)] {
                    let expected: Vec<i64> = all
                        .iter()
                        .filter(|j| states.is_empty() || states.contains(&j.state))
                        .filter(|j| kind.as_ref().is_none_or(|k| *k == j.kind))
                        .filter(|j| queue.as_ref().is_none_or(|q| *q == j.queue))
                        .filter(|j| since.is_none_or(|s| j.created_at >= s))
                        .map(|j| j.id.0)
                        .collect();
                    let mut filter = JobFilter {
                        states: states.clone(),
                        kind: kind.clone(),
                        queue: queue.clone(),
                        since,
                        limit: 4,
                        ..JobFilter::default()
                    };
                    let mut found = Vec::new();
                    loop {
                        let page = b.store.jobs(filter.clone()).await.unwrap();
                        found.extend(page.iter().map(|j| j.id.0));
                        match page.last() {
                            Some(last) if page.len() == 4 => filter.before = Some(last.id),
                            _ => break,
                        }
                    }
                    assert_eq!(found, expected, "{filter:?}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_enqueue_is_fast_enough_to_wait_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("s.db"), Clock::Store).await;
    ready(&store).await;
    let begun = Instant::now();
    for _ in 0..20 {
        store.enqueue(vec![new("a")]).await.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_file_does_not_grow_with_the_jobs_that_went_through_it() {
    const ROUND: u32 = 500;
    const ROUNDS: usize = 8;
    let b = bench().await;
    let file = rusqlite::Connection::open(b.dir.path().join("s.db")).unwrap();
    let pages = || file.query_row("pragma page_count", [], |row| row.get::<_, i64>(0)).unwrap();
    let mut sizes = Vec::new();
    for _ in 0..ROUNDS {
        let worker = worker(&b.store).await;
        b.store.enqueue((0..ROUND).map(|_| new("a")).collect()).await.unwrap();
        let jobs = b.store.claim(request(worker, ROUND)).await.unwrap().jobs;
        assert_eq!(jobs.len(), ROUND as usize);
        b.store.settle(jobs.iter().map(done).collect()).await.unwrap();
        b.clock.advance(Duration::from_secs(15 * 86_400));
        assert_eq!(b.store.purge(PurgeRequest::default()).await.unwrap().done, u64::from(ROUND));
        sizes.push(pages());
    }
    // Without room that is used again each round would add as much as the first.
    assert!(sizes[ROUNDS - 1] <= sizes[1] * 3 / 2, "{sizes:?}");
}
