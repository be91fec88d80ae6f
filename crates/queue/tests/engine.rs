//! What a worker process promises, case by case, each on both stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use stargate_base::{Backoff, ErrorClass, Tasks};
use stargate_queue::handler::{Failure, Registry};
use stargate_queue::limits::Limit;
use stargate_queue::pressure::{Load, PressureConfig};
use stargate_queue::schedule::Schedule;
use stargate_queue::store::Cancelled;
use stargate_queue::{
    Context, Due, Job, JobId, NewJob, Pool, PoolConfig, PoolHandle, Profile, SharedStore, State, explain,
    scheduler,
};
use stargate_testkit::eventually;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::faulty::Faulty;
use crate::stores::on_both_stores;

/// Long enough for a loaded machine; nothing waits so long when it works.
const PATIENCE: Duration = Duration::from_secs(20);

on_both_stores!(
    a_backlog_is_drained_and_each_job_runs_once,
    a_delayed_job_starts_when_it_is_due,
    a_transient_error_is_retried_and_then_exhausted,
    poison_fails_at_once_with_the_attempt_count_unchanged,
    a_panic_is_transient_and_the_slot_lives_on,
    a_payload_of_the_wrong_type_is_poison,
    a_handler_that_takes_too_long_is_stopped,
    a_running_job_is_cancelled,
    progress_is_kept_and_shown_in_order,
    a_graceful_stop_lets_handlers_finish_and_hands_the_rest_back,
    nothing_begins_after_the_order_to_stop,
    what_waits_behind_a_handler_that_turned_slow_goes_back,
    what_outlives_the_shutdown_timeout_goes_to_another_worker_within_a_second,
    handlers_that_block_every_thread_do_not_lose_their_lease,
    a_worker_that_cannot_beat_stops_its_own_job,
    a_claim_whose_answer_was_lost_is_given_back,
    a_stop_does_not_wait_for_an_answer_that_never_comes,
    an_outcome_waits_for_a_store_that_is_away,
    an_outcome_waits_for_a_store_that_needs_an_operator,
    an_outcome_that_comes_after_the_lease_is_not_taken_and_the_job_runs_again,
    a_kind_runs_no_more_jobs_at_once_than_its_profile_allows,
    a_limit_key_holds_over_two_workers,
    a_schedule_fires_once_though_two_processes_look,
    a_schedule_in_an_unknown_zone_holds_up_no_other,
    explain_names_what_holds_a_job_back,
    a_handler_can_enqueue_more_work,
    a_deep_queue_on_a_loaded_machine_pauses_claiming_but_not_for_ever,
);

/// Times that fit a test.
fn quick() -> PoolConfig {
    PoolConfig {
        heartbeat: Duration::from_millis(200),
        lease: Duration::from_millis(1500),
        poll: Duration::from_secs(1),
        shutdown_timeout: Duration::from_secs(10),
        stop_grace: Duration::from_millis(200),
        // Pausing under load is a case of its own; the machine that runs the tests may be a busy one.
        pressure: PressureConfig { load_threshold: 1e9, ..PressureConfig::default() },
        ..PoolConfig::default()
    }
}

/// Retries at once.
fn hasty() -> Profile {
    let backoff = Backoff {
        first: Duration::from_millis(10),
        factor: 1.0,
        cap: Duration::from_millis(10),
        jitter: 0.0,
    };
    Profile { max_attempts: 3, backoff, ..Profile::default() }
}

/// A pool that runs until it is stopped.
struct Worker {
    stop: CancellationToken,
    tasks: Tasks,
    handle: PoolHandle,
}

impl Worker {
    async fn start(store: &SharedStore, registry: Registry, config: PoolConfig) -> Self {
        Self::start_until(CancellationToken::new(), store, registry, config).await
    }

    async fn start_until(
        stop: CancellationToken,
        store: &SharedStore,
        registry: Registry,
        config: PoolConfig,
    ) -> Self {
        let pool = Pool::start(store.clone(), registry, config).await.unwrap();
        let (tasks, handle) = (Tasks::new(), pool.handle());
        tasks.spawn(pool.run(stop.clone()));
        Self { stop, tasks, handle }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.ended().await;
    }

    async fn ended(self) {
        self.tasks.join().await;
    }
}

async fn enqueue(store: &SharedStore, kind: &str) -> JobId {
    enqueue_job(store, NewJob::of(kind, &json!({})).unwrap()).await
}

async fn enqueue_job(store: &SharedStore, job: NewJob) -> JobId {
    store.enqueue(vec![job]).await.unwrap()[0].id
}

async fn until(store: &SharedStore, id: JobId, state: State) -> Job {
    eventually(PATIENCE, &format!("job {id} to be {state}"), || async {
        let job = store.job(id).await.unwrap().ok_or("gone")?;
        if job.state == state { Ok(job) } else { Err(format!("{job:?}")) }
    })
    .await
}

async fn timeline(store: &SharedStore, id: JobId) -> String {
    let events = store.events(id, 0, 1000).await.unwrap();
    events.into_iter().map(|event| event.event).collect::<Vec<_>>().join(" ")
}

async fn a_backlog_is_drained_and_each_job_runs_once(store: SharedStore) {
    let runs = Arc::new(AtomicUsize::new(0));
    let mut registry = Registry::new();
    let counter = runs.clone();
    let count = move |_: Context, _: serde_json::Value| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, Failure>(()) }
    };
    registry.handle("count", Profile::default(), count).unwrap();
    store.kinds_register(registry.specs()).await.unwrap();
    let jobs = (0..2000).map(|n| NewJob::of("count", &n).unwrap()).collect();
    let ids = store.enqueue(jobs).await.unwrap();
    let worker = Worker::start(&store, registry, quick()).await;
    eventually(PATIENCE, "an empty queue", || async {
        let left: u64 = store.queues().await.unwrap().iter().map(|q| q.ready + q.processing).sum();
        if left == 0 { Ok(()) } else { Err(format!("{left} left")) }
    })
    .await;
    worker.stop().await;
    assert_eq!(runs.load(Ordering::SeqCst), 2000);
    for id in ids {
        assert_eq!(store.job(id.id).await.unwrap().unwrap().state, State::Done);
    }
    assert!(store.workers().await.unwrap().iter().all(|w| !w.alive), "a stopped worker has left");
}

async fn a_delayed_job_starts_when_it_is_due(store: SharedStore) {
    let mut registry = Registry::new();
    registry
        .handle("noop", Profile::default(), async |_: Context, _: serde_json::Value| Ok::<_, Failure>(()))
        .unwrap();
    let poll = PoolConfig { poll: Duration::from_secs(600), ..quick() };
    let worker = Worker::start(&store, registry, poll).await;
    let delayed = NewJob { due: Due::In(Duration::from_millis(700)), ..NewJob::of("noop", &1).unwrap() };
    let id = enqueue_job(&store, delayed).await;
    let job = until(&store, id, State::Done).await;
    assert!(job.started_at.unwrap() >= job.run_at, "started before it was due: {job:?}");
    worker.stop().await;
}

async fn a_transient_error_is_retried_and_then_exhausted(store: SharedStore) {
    let mut registry = Registry::new();
    let fail = async |_: Context, _: serde_json::Value| Err::<(), _>(Failure::transient("no route to host"));
    registry.handle("fail", hasty(), fail).unwrap();
    let worker = Worker::start(&store, registry, quick()).await;
    let id = enqueue(&store, "fail").await;
    let job = until(&store, id, State::Failed).await;
    let error = job.error.unwrap();
    assert_eq!((job.attempt_count, error.code.as_str()), (3, "RETRIES_EXHAUSTED"));
    assert!(error.message.contains("no route to host"), "{}", error.message);
    let expected = "created processing requeued:retry processing requeued:retry processing failed";
    assert_eq!(timeline(&store, id).await, expected);
    worker.stop().await;
}

async fn poison_fails_at_once_with_the_attempt_count_unchanged(store: SharedStore) {
    let mut registry = Registry::new();
    let refuse = async |_: Context, _: serde_json::Value| {
        Err::<(), _>(Failure::new("INPUT_TOO_LARGE", ErrorClass::ValidationFailure, "3 GB"))
    };
    registry.handle("refuse", hasty(), refuse).unwrap();
    let worker = Worker::start(&store, registry, quick()).await;
    let id = enqueue(&store, "refuse").await;
    let job = until(&store, id, State::Failed).await;
    assert_eq!((job.attempt_count, job.error.unwrap().code.as_str()), (1, "INPUT_TOO_LARGE"));
    worker.stop().await;
}

async fn a_panic_is_transient_and_the_slot_lives_on(store: SharedStore) {
    let runs = Arc::new(AtomicUsize::new(0));
    let mut registry = Registry::new();
    let counter = runs.clone();
    let panics_once = move |_: Context, _: serde_json::Value| {
        let first = counter.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            assert!(!first, "boom");
            Ok::<_, Failure>(())
        }
    };
    registry.handle("panic", hasty(), panics_once).unwrap();
    let worker = Worker::start(&store, registry, PoolConfig { concurrency: 1, ..quick() }).await;
    let id = enqueue(&store, "panic").await;
    until(&store, id, State::Done).await;
    let events = store.events(id, 0, 100).await.unwrap();
    let retry = events.iter().find(|event| event.event == "requeued:retry").expect("a retry");
    assert!(retry.data.get().contains("PANIC") && retry.data.get().contains("boom"), "{}", retry.data);
    worker.stop().await;
}

async fn a_payload_of_the_wrong_type_is_poison(store: SharedStore) {
    #[derive(serde::Deserialize)]
    struct Wanted {
        #[expect(dead_code, reason = "only its absence matters")]
        repo: String,
    }
    let mut registry = Registry::new();
    registry.handle("typed", hasty(), async |_: Context, _: Wanted| Ok::<_, Failure>(())).unwrap();
    let worker = Worker::start(&store, registry, quick()).await;
    let id = enqueue(&store, "typed").await;
    let error = until(&store, id, State::Failed).await.error.unwrap();
    assert_eq!((error.code.as_str(), error.class), ("PAYLOAD_INVALID", ErrorClass::ValidationFailure));
    assert!(error.message.contains("repo"), "{}", error.message);
    worker.stop().await;
}

async fn a_handler_that_takes_too_long_is_stopped(store: SharedStore) {
    let mut registry = Registry::new();
    let profile = Profile { timeout: Duration::from_millis(50), max_attempts: 1, ..hasty() };
    registry
        .handle("hang", profile, async |_: Context, _: serde_json::Value| {
            std::future::pending::<()>().await;
            Ok::<_, Failure>(())
        })
        .unwrap();
    let worker = Worker::start(&store, registry, quick()).await;
    let id = enqueue(&store, "hang").await;
    let error = until(&store, id, State::Failed).await.error.unwrap();
    assert_eq!(error.code, "RETRIES_EXHAUSTED");
    assert!(error.message.contains("TIMEOUT"), "{}", error.message);
    worker.stop().await;
}

/// A handler that says when it began and waits to be told to stop.
fn until_stopped(registry: &mut Registry, kind: &str) -> Arc<Notify> {
    let began = Arc::new(Notify::new());
    let signal = began.clone();
    let wait = move |context: Context, _: serde_json::Value| {
        let signal = signal.clone();
        async move {
            signal.notify_one();
            context.stopping().cancelled().await;
            Err::<(), _>(Failure::transient("stopped"))
        }
    };
    registry.handle(kind, hasty(), wait).unwrap();
    began
}

async fn a_running_job_is_cancelled(store: SharedStore) {
    let mut registry = Registry::new();
    let began = until_stopped(&mut registry, "wait");
    let worker = Worker::start(&store, registry, quick()).await;
    let id = enqueue(&store, "wait").await;
    began.notified().await;
    assert_eq!(store.cancel(id).await.unwrap(), Cancelled::Requested);
    let job = until(&store, id, State::Cancelled).await;
    assert_eq!(job.attempt_count, 1);
    worker.stop().await;
}

async fn progress_is_kept_and_shown_in_order(store: SharedStore) {
    let mut registry = Registry::new();
    let report = async |context: Context, _: serde_json::Value| {
        context.event("source:ready", &json!({ "bytes": 12 })).await;
        for percent in [1, 1, 50, 20, 100] {
            context.progress(percent).await;
        }
        context.event("uploaded", &json!({})).await;
        Ok::<_, Failure>("result")
    };
    registry.handle("report", hasty(), report).unwrap();
    let worker = Worker::start(&store, registry, quick()).await;
    let id = enqueue(&store, "report").await;
    let job = until(&store, id, State::Done).await;
    let expected = "created processing source:ready progress progress progress uploaded done";
    assert_eq!(timeline(&store, id).await, expected);
    let events = store.events(id, 0, 100).await.unwrap();
    let shown: Vec<&str> = events.iter().filter(|e| e.event == "progress").map(|e| e.data.get()).collect();
    assert_eq!(
        shown.iter().map(|d| d.replace(' ', "")).collect::<Vec<_>>(),
        [r#"{"pct":1}"#, r#"{"pct":50}"#, r#"{"pct":99}"#]
    );
    assert_eq!(job.result.unwrap().get(), "\"result\"");
    worker.stop().await;
}

async fn a_graceful_stop_lets_handlers_finish_and_hands_the_rest_back(store: SharedStore) {
    let began = Arc::new(Notify::new());
    let finish = Arc::new(Notify::new());
    let mut registry = Registry::new();
    let (signal, gate) = (began.clone(), finish.clone());
    let wait = move |_: Context, _: serde_json::Value| {
        let (signal, gate) = (signal.clone(), gate.clone());
        async move {
            signal.notify_one();
            gate.notified().await;
            Ok::<_, Failure>(())
        }
    };
    registry.handle("wait", hasty(), wait).unwrap();
    let worker = Worker::start(&store, registry, PoolConfig { concurrency: 1, ..quick() }).await;
    let first = enqueue(&store, "wait").await;
    began.notified().await;
    let second = enqueue(&store, "wait").await;
    worker.stop.cancel();
    finish.notify_one();
    worker.stop().await;
    assert_eq!(store.job(first).await.unwrap().unwrap().state, State::Done);
    let job = store.job(second).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempt_count), (State::Queued, 0), "{job:?}");
    assert_eq!(timeline(&store, second).await, "created");
}

/// A slot that comes free at the same instant finds a full buffer, which has not been handed back yet.
async fn nothing_begins_after_the_order_to_stop(store: SharedStore) {
    let (stop, late) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let mut registry = Registry::new();
    let (token, counter) = (stop.clone(), late.clone());
    let run = move |_: Context, halt: bool| {
        counter.fetch_add(usize::from(token.is_cancelled()), Ordering::SeqCst);
        if halt {
            token.cancel();
        }
        async { Ok::<_, Failure>(()) }
    };
    registry.handle("run", hasty(), run).unwrap();
    store.kinds_register(registry.specs()).await.unwrap();
    // The first ones are fast, so that the worker buffers the others.
    let jobs = (0..400).map(|n| NewJob::of("run", &(n == 200)).unwrap()).collect();
    let ids = store.enqueue(jobs).await.unwrap();
    let config = PoolConfig { concurrency: 1, ..quick() };
    Worker::start_until(stop.clone(), &store, registry, config).await.ended().await;
    assert_eq!(late.load(Ordering::SeqCst), 0, "handlers began after the stop");
    let job = store.job(ids[201].id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempt_count), (State::Queued, 0), "{job:?}");
}

/// They could run elsewhere, and hold places under limits meanwhile.
async fn what_waits_behind_a_handler_that_turned_slow_goes_back(store: SharedStore) {
    const FAST: usize = 300;
    let (began, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let mut registry = Registry::new();
    let (signal, gate) = (began.clone(), finish.clone());
    let run = move |_: Context, slow: bool| {
        let (signal, gate) = (signal.clone(), gate.clone());
        async move {
            if slow {
                signal.notify_one();
                gate.notified().await;
            }
            Ok::<_, Failure>(())
        }
    };
    registry.handle("run", hasty(), run).unwrap();
    store.kinds_register(registry.specs()).await.unwrap();
    // The first ones are fast, so that the worker keeps a stock; the few behind the slow one are far from filling it.
    let jobs = (0..FAST + 4).map(|n| NewJob::of("run", &(n == FAST)).unwrap()).collect();
    let ids = store.enqueue(jobs).await.unwrap();
    let worker = Worker::start(&store, registry, PoolConfig { concurrency: 1, ..quick() }).await;
    began.notified().await;
    let behind = ids[FAST + 3].id;
    until(&store, behind, State::Processing).await;
    let job = until(&store, behind, State::Queued).await;
    assert_eq!((job.attempt_count, timeline(&store, behind).await.as_str()), (0, "created"), "{job:?}");
    finish.notify_one();
    until(&store, behind, State::Done).await;
    worker.stop().await;
}

async fn what_outlives_the_shutdown_timeout_goes_to_another_worker_within_a_second(store: SharedStore) {
    let mut registry = Registry::new();
    let began = until_stopped(&mut registry, "wait");
    let config = PoolConfig { shutdown_timeout: Duration::from_millis(100), ..quick() };
    let worker = Worker::start(&store, registry, config).await;
    let id = enqueue(&store, "wait").await;
    began.notified().await;
    worker.stop().await;
    let job = store.job(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempt_count), (State::Queued, 0), "the attempt is given back: {job:?}");
    assert_eq!(timeline(&store, id).await, "created processing aborted:shutdown");

    let mut registry = Registry::new();
    registry.handle("wait", hasty(), async |_: Context, _: serde_json::Value| Ok::<_, Failure>(())).unwrap();
    let worker = Worker::start(&store, registry, quick()).await;
    until(&store, id, State::Done).await;
    assert_eq!(timeline(&store, id).await, "created processing aborted:shutdown processing done");
    worker.stop().await;
}

async fn handlers_that_block_every_thread_do_not_lose_their_lease(store: SharedStore) {
    let mut registry = Registry::new();
    let block = async |_: Context, _: serde_json::Value| {
        // Longer than the lease, on every thread of the runtime: only a thread of its own can still beat.
        let until = Instant::now() + Duration::from_millis(2500);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        Ok::<_, Failure>(())
    };
    registry.handle("block", hasty(), block).unwrap();
    let worker = Worker::start(&store, registry, quick()).await;
    let a = enqueue(&store, "block").await;
    let b = enqueue(&store, "block").await;
    for id in [a, b] {
        let job = until(&store, id, State::Done).await;
        assert_eq!((job.attempt_count, job.crash_count), (1, 0), "{job:?}");
    }
    worker.stop().await;
}

async fn a_worker_that_cannot_beat_stops_its_own_job(store: SharedStore) {
    let faulty = Arc::new(Faulty::new(store.clone()));
    let mut registry = Registry::new();
    let began = until_stopped(&mut registry, "wait");
    let shared: SharedStore = faulty.clone();
    let config = PoolConfig { shutdown_timeout: Duration::from_millis(100), ..quick() };
    let worker = Worker::start(&shared, registry, config).await;
    let id = enqueue(&store, "wait").await;
    began.notified().await;
    faulty.refuse_beats.store(true, Ordering::SeqCst);
    // The worker stops the job by itself; its claims still get through, so it takes it again.
    began.notified().await;
    let job = store.job(id).await.unwrap().unwrap();
    assert_eq!(job.attempt_count, 2, "{job:?}");
    assert!(worker.handle.status().degraded, "more than three beats failed");
    let timeline = timeline(&store, id).await;
    assert!(timeline.starts_with("created processing requeued:"), "{timeline}");
    faulty.refuse_beats.store(false, Ordering::SeqCst);
    worker.stop().await;
}

async fn a_claim_whose_answer_was_lost_is_given_back(store: SharedStore) {
    let faulty = Arc::new(Faulty::new(store.clone()));
    let mut registry = Registry::new();
    registry.handle("noop", hasty(), async |_: Context, _: serde_json::Value| Ok::<_, Failure>(())).unwrap();
    faulty.lose_claim_answers.store(true, Ordering::SeqCst);
    let shared: SharedStore = faulty.clone();
    let worker = Worker::start(&shared, registry, quick()).await;
    let id = enqueue(&store, "noop").await;
    let job = until(&store, id, State::Done).await;
    assert!(!faulty.lose_claim_answers.load(Ordering::SeqCst), "an answer was lost");
    assert_eq!((job.attempt_count, job.crash_count), (1, 0), "given back, not waited for: {job:?}");
    worker.stop().await;
}

async fn a_stop_does_not_wait_for_an_answer_that_never_comes(store: SharedStore) {
    let faulty = Arc::new(Faulty::new(store.clone()));
    for fault in [&faulty.lose_claim_answers, &faulty.never_tells_holdings] {
        fault.store(true, Ordering::SeqCst);
    }
    let mut registry = Registry::new();
    telling(&mut registry, "work");
    let shared: SharedStore = faulty.clone();
    let worker = Worker::start(&shared, registry, quick()).await;
    let id = enqueue(&store, "work").await;
    faulty.holdings_asked.notified().await;
    tokio::time::timeout(PATIENCE, worker.stop()).await.expect("it ends");
    let job = store.job(id).await.unwrap().unwrap();
    assert_ne!(job.state, State::Done, "left to another: {job:?}");
}

/// A handler that says when it ran.
fn telling(registry: &mut Registry, kind: &str) -> Arc<Notify> {
    let ran = Arc::new(Notify::new());
    let signal = ran.clone();
    let work = move |_: Context, _: serde_json::Value| {
        signal.notify_one();
        async { Ok::<_, Failure>(()) }
    };
    registry.handle(kind, hasty(), work).unwrap();
    ran
}

/// As long as beats get through the lease lasts, and the outcome is in time.
async fn an_outcome_waits_for_a_store_that_is_away(store: SharedStore) {
    let faulty = Arc::new(Faulty::new(store.clone()));
    let mut registry = Registry::new();
    let ran = telling(&mut registry, "work");
    let shared: SharedStore = faulty.clone();
    let worker = Worker::start(&shared, registry, quick()).await;
    faulty.refuse_settlements.store(true, Ordering::SeqCst);
    let id = enqueue(&store, "work").await;
    ran.notified().await;
    assert_eq!(store.job(id).await.unwrap().unwrap().state, State::Processing);
    faulty.refuse_settlements.store(false, Ordering::SeqCst);
    let job = until(&store, id, State::Done).await;
    assert_eq!(job.attempt_count, 1, "the work was not repeated");
    worker.stop().await;
}

/// Mounted read-only, locked out by its own rules, being restored or moved: what is wrong is not the outcome.
async fn an_outcome_waits_for_a_store_that_needs_an_operator(store: SharedStore) {
    let faulty = Arc::new(Faulty::new(store.clone()));
    let mut registry = Registry::new();
    let ran = telling(&mut registry, "work");
    let shared: SharedStore = faulty.clone();
    let worker = Worker::start(&shared, registry, quick()).await;
    faulty.needs_operator.store(true, Ordering::SeqCst);
    let id = enqueue(&store, "work").await;
    ran.notified().await;
    eventually(PATIENCE, "the outcome to be told again and again", || async {
        let refusals = faulty.refusals.load(Ordering::SeqCst);
        if refusals >= 5 { Ok(()) } else { Err(format!("{refusals} times")) }
    })
    .await;
    faulty.needs_operator.store(false, Ordering::SeqCst);
    let job = until(&store, id, State::Done).await;
    assert_eq!((job.attempt_count, job.crash_count), (1, 0), "neither lost nor repeated: {job:?}");
    worker.stop().await;
}

async fn an_outcome_that_comes_after_the_lease_is_not_taken_and_the_job_runs_again(store: SharedStore) {
    let faulty = Arc::new(Faulty::new(store.clone()));
    let mut registry = Registry::new();
    let ran = telling(&mut registry, "work");
    let shared: SharedStore = faulty.clone();
    let worker = Worker::start(&shared, registry, quick()).await;
    for refuse in [&faulty.refuse_settlements, &faulty.refuse_beats] {
        refuse.store(true, Ordering::SeqCst);
    }
    let id = enqueue(&store, "work").await;
    ran.notified().await;
    // Neither its outcome nor a beat gets through for a lease; then the worker's own claim recovers the job.
    ran.notified().await;
    for refuse in [&faulty.refuse_beats, &faulty.refuse_settlements] {
        refuse.store(false, Ordering::SeqCst);
    }
    let job = until(&store, id, State::Done).await;
    assert!(job.attempt_count >= 2 && job.crash_count >= 1, "the lost lease counts as a crash: {job:?}");
    let timeline = timeline(&store, id).await;
    assert!(timeline.starts_with("created processing requeued:stale processing"), "{timeline}");
    worker.stop().await;
}

/// How many handlers run at once, and how many ever did.
#[derive(Clone, Default)]
struct Crowd {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Crowd {
    fn handle(&self, registry: &mut Registry, kind: &str, profile: Profile) {
        let crowd = self.clone();
        let work = move |_: Context, _: serde_json::Value| {
            let crowd = crowd.clone();
            async move {
                crowd.most.fetch_max(crowd.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                crowd.now.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Failure>(())
            }
        };
        registry.handle(kind, profile, work).unwrap();
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

async fn a_kind_runs_no_more_jobs_at_once_than_its_profile_allows(store: SharedStore) {
    let crowd = Crowd::default();
    let mut registry = Registry::new();
    crowd.handle(&mut registry, "few", Profile { concurrency: Some(2), ..hasty() });
    store.kinds_register(registry.specs()).await.unwrap();
    let jobs = (0..100).map(|n| NewJob::of("few", &n).unwrap()).collect();
    let ids = store.enqueue(jobs).await.unwrap();
    let worker = Worker::start(&store, registry, PoolConfig { concurrency: 8, ..quick() }).await;
    for id in ids {
        until(&store, id.id, State::Done).await;
    }
    assert!(crowd.most() <= 2, "{} ran at once", crowd.most());
    worker.stop().await;
}

async fn a_limit_key_holds_over_two_workers(store: SharedStore) {
    let crowd = Crowd::default();
    let registry = || {
        let mut registry = Registry::new();
        crowd.handle(&mut registry, "tenant", hasty());
        registry
    };
    store.kinds_register(registry().specs()).await.unwrap();
    let limit = Limit { pattern: "acme".into(), concurrency: Some(3), rate: None, weight: 1 };
    store.limit_set(limit).await.unwrap();
    let job = |n: i32| NewJob { limit_key: Some("acme".into()), ..NewJob::of("tenant", &n).unwrap() };
    let ids = store.enqueue((0..60).map(job).collect()).await.unwrap();
    let one = Worker::start(&store, registry(), quick()).await;
    let two = Worker::start(&store, registry(), quick()).await;
    for id in ids {
        until(&store, id.id, State::Done).await;
    }
    assert!(crowd.most() <= 3, "{} ran at once", crowd.most());
    one.stop().await;
    two.stop().await;
}

async fn a_schedule_fires_once_though_two_processes_look(store: SharedStore) {
    let mut registry = Registry::new();
    registry.handle("tick", hasty(), async |_: Context, _: serde_json::Value| Ok::<_, Failure>(())).unwrap();
    store.kinds_register(registry.specs()).await.unwrap();
    let now = store.now().await.unwrap();
    store.schedule_put(hourly("hourly", now)).await.unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    assert_eq!(scheduler::run_once(&*store, &stop).await.unwrap().fired, [], "it is to stop");
    let stop = CancellationToken::new();
    let (one, two) = tokio::join!(scheduler::run_once(&*store, &stop), scheduler::run_once(&*store, &stop));
    let fired = one.unwrap().fired.len() + two.unwrap().fired.len();
    assert_eq!(fired, 1);
    let schedule = store.schedules().await.unwrap().remove(0);
    assert!(schedule.next_at.unwrap() > now && schedule.last_at.is_some(), "{schedule:?}");
    assert_eq!(scheduler::run_once(&*store, &stop).await.unwrap().fired, []);
}

/// Due at `now`, for the kind `tick`.
fn hourly(name: &str, now: jiff::Timestamp) -> Schedule {
    Schedule {
        name: name.into(),
        cron: "0 * * * *".into(),
        time_zone: "UTC".into(),
        kind: "tick".into(),
        queue: "default".into(),
        payload: serde_json::value::to_raw_value(&json!({})).unwrap(),
        priority: 0,
        next_at: Some(now),
        last_at: None,
    }
}

async fn a_schedule_in_an_unknown_zone_holds_up_no_other(store: SharedStore) {
    let mut registry = Registry::new();
    registry.handle("tick", hasty(), async |_: Context, _: serde_json::Value| Ok::<_, Failure>(())).unwrap();
    store.kinds_register(registry.specs()).await.unwrap();
    let now = store.now().await.unwrap();
    for name in ["a", "b"] {
        store.schedule_put(hourly(name, now)).await.unwrap();
    }
    let faulty = Faulty::new(Arc::clone(&store));
    faulty.zone_is_unknown.store(true, Ordering::SeqCst);
    let stop = CancellationToken::new();
    assert_eq!(scheduler::run_once(&faulty, &stop).await.unwrap().fired.len(), 1);
    let schedules = store.schedules().await.unwrap();
    let fired: Vec<bool> = schedules.iter().map(|schedule| schedule.last_at.is_some()).collect();
    assert_eq!(fired, [false, true], "{schedules:?}");
    assert_eq!(scheduler::run_once(&*store, &stop).await.unwrap().fired.len(), 1, "where the zone is known");
}

async fn explain_names_what_holds_a_job_back(store: SharedStore) {
    let mut registry = Registry::new();
    let began = until_stopped(&mut registry, "wait");
    let worker = Worker::start(&store, registry, quick()).await;
    store.pause(stargate_queue::store::PauseTarget::Queue("default".into())).await.unwrap();
    let id = enqueue(&store, "wait").await;
    let paused = explain::explain(&*store, id).await.unwrap();
    assert_eq!(paused.reasons[0].command.as_deref(), Some("stargate queue resume default"), "{paused:?}");
    let child = NewJob { after: vec![id], ..NewJob::of("wait", &1).unwrap() };
    let child = enqueue_job(&store, child).await;
    let blocked = explain::explain(&*store, child).await.unwrap();
    assert!(blocked.reasons[0].text.contains(&format!("job {id}")), "{blocked:?}");
    store.resume(stargate_queue::store::PauseTarget::Queue("default".into())).await.unwrap();
    began.notified().await;
    assert!(explain::explain(&*store, id).await.unwrap().summary.contains("running"));
    store.cancel(id).await.unwrap();
    until(&store, id, State::Cancelled).await;
    until(&store, child, State::Failed).await;
    let ended = explain::explain(&*store, child).await.unwrap();
    assert!(ended.summary.contains("DEPENDENCY_FAILED"), "{ended:?}");
    worker.stop().await;
}

async fn a_handler_can_enqueue_more_work(store: SharedStore) {
    let mut registry = Registry::new();
    let fan_out = async |context: Context, levels: u32| {
        let jobs = (0..2)
            .filter(|_| levels > 0)
            .map(|_| NewJob::of("fan", &(levels - 1)).unwrap())
            .collect::<Vec<_>>();
        if !jobs.is_empty() {
            context.enqueue(jobs).await?;
        }
        Ok::<_, Failure>(())
    };
    registry.handle("fan", hasty(), fan_out).unwrap();
    let worker = Worker::start(&store, registry, quick()).await;
    enqueue_job(&store, NewJob::of("fan", &4).unwrap()).await;
    eventually(PATIENCE, "31 done jobs", || async {
        let done = store
            .jobs(stargate_queue::store::JobFilter { states: vec![State::Done], ..Default::default() })
            .await
            .unwrap();
        if done.len() == 31 { Ok(()) } else { Err(format!("{} done", done.len())) }
    })
    .await;
    worker.stop().await;
}

async fn a_deep_queue_on_a_loaded_machine_pauses_claiming_but_not_for_ever(store: SharedStore) {
    let mut registry = Registry::new();
    registry.handle("noop", hasty(), async |_: Context, _: serde_json::Value| Ok::<_, Failure>(())).unwrap();
    store.kinds_register(registry.specs()).await.unwrap();
    let ids = store.enqueue((0..20).map(|n| NewJob::of("noop", &n).unwrap()).collect()).await.unwrap();
    let load = Arc::new(AtomicUsize::new(9));
    let read = load.clone();
    let pressure = PressureConfig {
        high_watermark: 4,
        load_threshold: 8.0,
        pause_interval: Duration::from_secs(1),
        load: Load::from_fn(move || read.load(Ordering::Relaxed) as f64),
    };
    let last = ids[19].id;
    let config = PoolConfig { pressure: pressure.clone(), buffer_max: 0, concurrency: 2, ..quick() };
    let worker = Worker::start(&store, registry, config).await;
    eventually(PATIENCE, "a pause", || async {
        let told = worker.handle.pressure();
        let paused = worker.handle.status().paused_by_pressure && told.pause_left.is_some();
        paused.then_some(()).ok_or_else(|| told.to_string())
    })
    .await;
    // The queue stays deep for eight pauses: time enough to ask.
    let why = explain::explain_under(&*store, last, &pressure).await.unwrap();
    assert!(why.summary.contains("on this machine pauses 1 s before each claim"), "{why:?}");
    assert_eq!(explain::explain(&*store, last).await.unwrap().reasons, [], "nothing else holds it back");
    until(&store, ids[0].id, State::Done).await;
    assert!(worker.handle.status().paused_by_pressure, "one claim is let through under pressure");
    load.store(0, Ordering::Relaxed);
    for id in ids {
        until(&store, id.id, State::Done).await;
    }
    let eased = worker.handle.pressure();
    assert!(!worker.handle.status().paused_by_pressure && eased.pause_left.is_none(), "{eased}");
    worker.stop().await;
}
