//! A live SQLite store is taken to Postgres with nothing lost.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI16, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use stargate_access::audit::{NewAction, Source};
use stargate_access::{Audit as _, Grant, NewToken, Role, Tokens as _};
use stargate_base::clock::ManualClock;
use stargate_base::{Clock, Epoch};
use stargate_directive::{Advance, Begin, Directives as _, Expected, Put};
use stargate_queue::intake::{Claim, LinkFilter, LinkTurn, NewLink, Terms};
use stargate_queue::leadership::overlaps;
use stargate_queue::limits::Limit;
use stargate_queue::schedule::Schedule;
use stargate_queue::store::{ClaimedJob, Enqueued, Note, Once, Outcome, PauseTarget, Settlement, Verdict};
use stargate_queue::{Due, Error, JobId, KindSpec, NewJob, Result, State, Store, WorkerId};
use stargate_repo::{NewPush, NewWebhook, Occasion, Pushes as _, RefUpdate};
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_store::transfer::{Moved, Report, abort_move, move_to_postgres};
use stargate_testkit::fixture::{LEASE, OTHER, WORK, claim_request, failed, retry_in, worker_spec};
use stargate_testkit::postgres::Database;
use stargate_testkit::{eventually, ingest, start_of_time};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_postgres::Client;

const TARGET: &str = "postgres://somewhere/jobs";

/// The next job's priority, so that it is claimed before those that were given back.
static URGENT: AtomicI16 = AtomicI16::new(1000);

struct Pair {
    from: Arc<Sqlite>,
    to: Arc<Postgres>,
    clock: Clock,
    path: PathBuf,
    database: Database,
    _folder: tempfile::TempDir,
}

async fn connect(url: &str, clock: Clock) -> Postgres {
    let options = postgres::Options { clock, migrate: true, ..postgres::Options::default() };
    Postgres::connect(url, options).await.unwrap()
}

async fn open(path: &Path, clock: Clock) -> Sqlite {
    Sqlite::open(path, sqlite::Options { clock }).await.unwrap()
}

async fn pair(clock: Clock) -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    let from = Arc::new(open(&path, clock.clone()).await);
    let kinds = [WORK, OTHER].map(|name| KindSpec { name: name.to_owned(), max_attempts: 5, max_crashes: 3 });
    from.kinds_register(kinds.into()).await.unwrap();
    let database = Database::create(async |url| connect(&url, Clock::default()).await.close().await).await;
    let to = Arc::new(connect(database.url(), clock.clone()).await);
    Pair { from, to, clock, path, database, _folder: folder }
}

fn manual() -> (ManualClock, Clock) {
    let clock = ManualClock::at(start_of_time());
    (clock.clone(), Clock::Manual(clock))
}

impl Pair {
    async fn transfer(&self) -> Result<Report> {
        move_to_postgres(&self.from, &self.to, TARGET, |_| Ok(())).await
    }

    async fn close(self) {
        drop((self.from, self.to));
        self.database.remove().await;
    }

    async fn frozen(&self, why: &str) {
        let refused = self.from.enqueue(vec![new("frozen")]).await;
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{why}: {refused:?}");
    }

    /// What a process that died in the middle of a move leaves behind.
    async fn die_in(&self, table: &'static str) {
        let (from, to) = (self.from.clone(), self.to.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let fatal = move |moved: Moved| {
                assert_ne!(moved.table, table, "the process dies here");
                Ok(())
            };
            move_to_postgres(&from, &to, TARGET, fatal).await
        });
        assert!(task.join_next().await.unwrap().is_err(), "the move should have died in {table}");
    }

    fn meta(&self, key: &str, value: &str) {
        let file = rusqlite::Connection::open(&self.path).unwrap();
        file.execute("update meta set value = ?2 where key = ?1", (key, value)).unwrap();
    }
}

fn new(text: &str) -> NewJob {
    NewJob::of(WORK, &json!({ "text": text })).unwrap()
}

async fn add(store: &dyn Store, job: NewJob) -> JobId {
    store.enqueue(vec![job]).await.unwrap()[0].id
}

async fn settle(store: &dyn Store, job: &ClaimedJob, outcome: Outcome) {
    let verdicts = store.settle(vec![Settlement { fence: job.fence, outcome }]).await.unwrap();
    assert_eq!(verdicts, [Verdict::Accepted]);
}

/// Adds a job, has it claimed before all others and settles it.
async fn run(store: &dyn Store, worker: WorkerId, job: NewJob, outcome: Option<Outcome>) -> JobId {
    let id = add(store, NewJob { priority: URGENT.fetch_add(1, Ordering::Relaxed), ..job }).await;
    let claimed = store.claim(claim_request(worker, 1)).await.unwrap().jobs.remove(0);
    assert_eq!(claimed.fence.job, id);
    let event = Some((
        "note".to_owned(),
        serde_json::value::to_raw_value(&json!({ "half": "é \u{1f680}" })).unwrap(),
    ));
    store.note(vec![Note { fence: claimed.fence, progress: Some(50), event }]).await.unwrap();
    if let Some(outcome) = outcome {
        settle(store, &claimed, outcome).await;
    }
    id
}

/// Two terms of leadership, the second still open.
async fn lead(store: &dyn Store) {
    let first = store.term_begin("node-é", Some("http://one:8080"), None).await.unwrap();
    store.term_begin("two", None, Some(first)).await.unwrap();
}

/// Jobs in every stage and state, and one of everything else.
async fn fill(store: &dyn Store) -> WorkerId {
    let limit = Limit {
        pattern: "tenant:*".into(),
        concurrency: Some(2),
        rate: Some("10/m".parse().unwrap()),
        weight: 3,
    };
    store.limit_set(limit).await.unwrap();
    lead(store).await;
    store.pause(PauseTarget::Queue("nights".into())).await.unwrap();
    store.pause(PauseTarget::Kind("unknown".into())).await.unwrap();
    let schedule = Schedule {
        name: "nightly".into(),
        cron: "0 3 * * *".into(),
        time_zone: "Europe/Berlin".into(),
        kind: WORK.into(),
        queue: "nights".into(),
        payload: serde_json::value::to_raw_value(&json!({ "all": true })).unwrap(),
        priority: 7,
        next_at: Some(start_of_time() + Duration::from_micros(3_600_000_001)),
        last_at: Some(start_of_time()),
    };
    store.schedule_put(schedule).await.unwrap();
    let gone = store.worker_register(worker_spec("gone", LEASE, LEASE)).await.unwrap();
    store.worker_remove(gone).await.unwrap();
    let worker = store.worker_register(worker_spec("source", LEASE, LEASE)).await.unwrap();
    let odd: Box<serde_json::value::RawValue> = serde_json::from_str(
        r#"{ "escape": "\u00e9\n", "quote": "\"\\", "big": 12345678901234567890.5,  "é": "🚀" }"#,
    )
    .unwrap();
    let result = serde_json::value::to_raw_value(&json!([1, "two"])).ok();
    run(store, worker, NewJob::new(WORK, odd), Some(Outcome::Done { result })).await;
    let broken = run(store, worker, new("failed"), Some(failed())).await;
    run(store, worker, new("cancelled"), Some(Outcome::Cancelled)).await;
    run(store, worker, new("retried"), Some(retry_in(Duration::from_secs(500)))).await;
    run(store, worker, new("released"), Some(Outcome::Aborted)).await;
    let keyed =
        NewJob { limit_key: Some("tenant:7".into()), trace_id: Some("00-ab-cd-01".into()), ..new("running") };
    let parent = run(store, worker, keyed, None).await;
    let asked = run(store, worker, new("asked to stop"), None).await;
    store.cancel(asked).await.unwrap();
    add(store, NewJob { after: vec![parent, asked], ..new("blocked") }).await;
    add(store, NewJob { after: vec![broken], ..new("dependency failed") }).await;
    let retried = run(store, worker, new("failed and tried again"), Some(failed())).await;
    store.retry(retried).await.unwrap();
    add(store, NewJob { due: Due::In(Duration::from_secs(90)), ..new("delayed") }).await;
    add(
        store,
        NewJob { unique_key: Some("only one".into()), queue: "nights".into(), priority: 3, ..new("unique") },
    )
    .await;
    add(
        store,
        NewJob {
            limit_key: Some("tenant:8".into()),
            kind: OTHER.into(),
            max_attempts: Some(9),
            ..new("keyed")
        },
    )
    .await;
    let once = Once { key: "request 1".into(), fingerprint: "f".into() };
    store.enqueue_once(once, vec![new("once"), new("twice")]).await.unwrap();
    let terms = Terms { retry_count: 0, retry_delay_s: 3, retry_backoff: false, retry_delay_max_s: None };
    let link = |item: &str| NewLink { item: item.into(), mark: "é 1".into(), terms, job: new(item) };
    store.links_accept("elsewhere", vec![link("x/1"), link("x/2")]).await.unwrap();
    let claim = Claim { item: "x/2".into(), mark: "é 1".into() };
    store.links_turn("elsewhere", vec![claim], LinkTurn::Hold).await.unwrap();
    worker
}

fn links() -> LinkFilter {
    LinkFilter { source: "elsewhere".into(), job: None, ended: false, after: None, limit: 10 }
}

/// Where [`answers`] speaks of the workers.
const WORKERS: usize = 11;

/// Everything a store answers, to compare two of them.
async fn answers(store: &dyn Store) -> Vec<String> {
    let mut pauses = store.pauses().await.unwrap();
    pauses.sort();
    let mut all = vec![
        format!("{:?}", store.kinds().await.unwrap()),
        format!("{:?}", store.limits().await.unwrap()),
        format!("{:?}", store.limit_state("tenant:7").await.unwrap()),
        format!("{:?}", store.limit_state("tenant:8").await.unwrap()),
        format!("{pauses:?}"),
        format!("{:?}", store.schedules().await.unwrap()),
        format!("{:?}", store.queues().await.unwrap()),
        format!("{:?}", store.depth(1000).await.unwrap()),
        format!("{:?}", store.oldest_ready().await.unwrap()),
        format!("{:?}", store.links(links()).await.unwrap()),
        format!("{:?} {:?}", store.epoch().await.unwrap(), store.terms(100).await.unwrap()),
        format!("{:?}", store.workers().await.unwrap()),
    ];
    let mut states = 0;
    for id in 1..=100 {
        let Some(job) = store.job(JobId(id)).await.unwrap() else { continue };
        states |= 1 << job.state as u32;
        let events = store.events(JobId(id), 0, 1000).await.unwrap();
        all.push(format!("{job:#?} {events:#?} {:?}", store.parents(JobId(id)).await.unwrap()));
    }
    assert_eq!(states, 0b1_1111, "the jobs are to be in every state");
    all
}

/// A row in each table that has nothing to do with jobs. What becomes of them is in `transfer_tables.rs`.
async fn fill_tables(from: &Sqlite) {
    let hook = NewWebhook {
        repo: None,
        url: "https://example.com/".to_owned(),
        secret_ref: None,
        events: vec![Occasion::Push],
    };
    from.webhook_put(hook).await.unwrap();
    let update = RefUpdate {
        ref_name: "refs/heads/main".to_owned(),
        old_oid: "0".repeat(40),
        new_oid: "a".repeat(40),
    };
    let push = NewPush {
        repo: "a".to_owned(),
        pusher: None,
        request_id: "r".to_owned(),
        epoch: None,
        default_branch: None,
        updates: vec![update],
        at: start_of_time(),
        trace_id: None,
    };
    let events = from.record(push).await.unwrap();
    from.process(events[0]).await.unwrap();
    from.add(NewToken::issue("a", vec![Grant::EVERYTHING], None).unwrap().0).await.unwrap();
    let action = NewAction {
        actor: "a".to_owned(),
        token: None,
        role: Role::Admin,
        action: "job.retry".to_owned(),
        target: "7".to_owned(),
        detail: serde_json::json!({}),
        request_id: None,
        source: Source::Cli,
    };
    from.begin(action).await.unwrap();
    fill_directives(from).await;
}

/// The same for directives. What becomes of them is in `transfer_directives.rs`.
async fn fill_directives(from: &Sqlite) {
    let Begin::Begun { lease, .. } = from.run_begin(ingest::new_run("r1")).await.unwrap() else {
        panic!("the lease is free")
    };
    let mut batch = ingest::batch(&lease, "b1", ingest::items(0..1, "a"), Advance::Still);
    batch.rejects = vec![ingest::reject(json!("bad"), None)];
    from.persist(batch).await.unwrap();
    let put = ingest::put(&ingest::key("x"), Some(json!(1)), Expected::Absent, "q");
    from.kv_put(Put { spec_ref: Some("why".to_owned()), ..put }).await.unwrap();
}

/// The server ends a transaction of ours in which nothing is heard for 5 s. A move waits for longer than that wherever the old
/// store is large.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_outlives_a_source_that_takes_its_time() {
    let pair = pair(Clock::default()).await;
    add(&*pair.from, new("moved")).await;
    let look = pair.database.client().await;
    let mut is_first = true;
    let report = move_to_postgres(&pair.from, &pair.to, TARGET, |_| {
        if std::mem::take(&mut is_first) {
            tokio::task::block_in_place(|| Handle::current().block_on(until_it_stood_still(&look)));
        }
        Ok(())
    });
    let report = report.await.unwrap();
    assert!(!is_first && report.tables.iter().any(|moved| moved.rows > 0), "{report:?}");
    drop(look);
    pair.close().await;
}

/// Until the transaction has stood still for longer than others may, or is gone.
async fn until_it_stood_still(look: &Client) {
    let idle = "select max(extract(epoch from clock_timestamp() - state_change))::float8 from pg_stat_activity \
                where datname = current_database() and state = 'idle in transaction'";
    eventually(Duration::from_secs(30), "a long silence of the transaction", || async {
        match look.query_one(idle, &[]).await.unwrap().get::<_, Option<f64>>(0) {
            Some(seconds) if seconds < 5.5 => Err(format!("{seconds} s")),
            _ => Ok(()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_stores_give_the_same_answers_after_the_move() {
    let (_, clock) = manual();
    let pair = pair(clock).await;
    let worker = fill(&*pair.from).await;
    fill_tables(&pair.from).await;
    let before = answers(&*pair.from).await;
    let mut seen = Vec::new();
    let report = move_to_postgres(&pair.from, &pair.to, TARGET, |moved| {
        seen.push(moved.table);
        Ok(())
    });
    let report = report.await.unwrap();
    assert!(report.tables.iter().all(|moved| moved.rows == moved.rows_total && moved.rows > 0), "{report:?}");
    assert!(!report.earlier);
    assert_eq!(report.tables.len(), seen.len(), "each table fits into one batch: {seen:?}");

    let after = answers(&*pair.to).await;
    for (ours, theirs) in before.iter().zip(&after) {
        assert_eq!(ours, theirs, "left SQLite, right Postgres");
    }
    assert_eq!(before.len(), after.len());
    assert_eq!(answers(&*pair.from).await, before, "the source can still be read");

    pair.frozen("the source was moved").await;
    assert!(
        matches!(pair.from.beat(worker).await, Err(Error::Conflict { .. })),
        "workers are told at their beat"
    );
    let other = open(&pair.path, pair.clock.clone()).await;
    let refused = other.enqueue(vec![new("from another process")]).await;
    assert!(matches!(&refused, Err(Error::Conflict { problem }) if problem.contains(TARGET)), "{refused:?}");

    // Keys still stand for what they stood for, and numbers go on where they were.
    let same = |first: &[Enqueued]| first.iter().all(|one| one.existing && one.id.0 < 100);
    let once = Once { key: "request 1".into(), fingerprint: "f".into() };
    let repeated = pair.to.enqueue_once(once, vec![new("once"), new("twice")]).await.unwrap();
    assert!(repeated.len() == 2 && same(&repeated), "{repeated:?}");
    let unique = NewJob { unique_key: Some("only one".into()), ..new("unique") };
    let unique = pair.to.enqueue(vec![unique]).await.unwrap();
    assert!(same(&unique), "{unique:?}");
    // A unique key that was taken has cost Postgres a number.
    let last = i64::try_from(before.len() - WORKERS - 1).unwrap();
    let first = add(&*pair.to, new("the first one here")).await;
    assert!((last + 1..last + 5).contains(&first.0), "{first} follows {last}");
    let lane = NewJob { queue: "days".into(), ..new("a new lane") };
    assert!(add(&*pair.to, lane).await > first);
    let next = pair.to.worker_register(worker_spec("next", LEASE, LEASE)).await.unwrap();
    assert!(next.0 > worker.0, "{next:?} after {worker:?}");
    drop(other);
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_jobs_are_recovered_at_the_target_when_their_lease_ends() {
    let (time, clock) = manual();
    let pair = pair(clock).await;
    let worker = pair.from.worker_register(worker_spec("source", LEASE, LEASE)).await.unwrap();
    let id = run(&*pair.from, worker, new("running"), None).await;
    let asked = run(&*pair.from, worker, new("asked to stop"), None).await;
    pair.from.cancel(asked).await.unwrap();
    // A worker waits at the target already; its number is another's in the source.
    let kinds = [WORK, OTHER].map(|name| KindSpec { name: name.to_owned(), max_attempts: 5, max_crashes: 3 });
    pair.to.kinds_register(kinds.into()).await.unwrap();
    let waiting = pair.to.worker_register(worker_spec("target", LEASE, LEASE)).await.unwrap();
    let outside = connect(pair.database.url(), pair.clock.clone()).await;
    let mut wakes = outside.wakes();
    wakes.mark_unchanged();
    pair.transfer().await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), wakes.changed())
        .await
        .expect("the target is told")
        .unwrap();

    let names: Vec<(String, u64)> =
        pair.to.workers().await.unwrap().into_iter().map(|worker| (worker.name, worker.holding)).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.contains(&("source".into(), 2)) && names.contains(&("target".into(), 0)), "{names:?}");
    assert_eq!(pair.to.job(id).await.unwrap().unwrap().worker.as_deref(), Some("source"));
    assert!(
        pair.to.claim(claim_request(waiting, 10)).await.unwrap().jobs.is_empty(),
        "the lease still holds"
    );

    time.advance(LEASE + Duration::from_secs(2));
    pair.to.beat(waiting).await.unwrap();
    let claim = pair.to.claim(claim_request(waiting, 10)).await.unwrap();
    assert_eq!(claim.recovered.len(), 2, "{:?}", claim.recovered);
    assert_eq!(claim.jobs.iter().map(|job| job.fence.job).collect::<Vec<_>>(), [id]);
    settle(&*pair.to, &claim.jobs[0], Outcome::Done { result: None }).await;
    assert_eq!(pair.to.job(id).await.unwrap().unwrap().state, State::Done);
    assert_eq!(pair.to.job(asked).await.unwrap().unwrap().state, State::Cancelled);
    drop(outside);
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_was_accepted_during_the_move_is_at_the_target() {
    let pair = pair(Clock::default()).await;
    let accepted = Arc::new(AtomicUsize::new(0));
    let mut producers = JoinSet::new();
    for n in 0..6 {
        // Half of them as another process would.
        let store =
            if n % 2 == 0 { pair.from.clone() } else { Arc::new(open(&pair.path, Clock::default()).await) };
        let accepted = accepted.clone();
        producers.spawn(async move {
            let mut ids = Vec::new();
            loop {
                match store.enqueue((0..5).map(|i| new(&format!("{n} {i}"))).collect()).await {
                    Ok(answers) => {
                        accepted.fetch_add(answers.len(), Ordering::Relaxed);
                        ids.extend(answers.into_iter().map(|one| one.id));
                    }
                    Err(Error::Conflict { .. }) => return ids,
                    Err(error) => panic!("a producer was not told of the move: {error}"),
                }
            }
        });
    }
    eventually(Duration::from_secs(30), "some jobs before the move", || {
        let accepted = accepted.load(Ordering::Relaxed);
        async move { if accepted > 300 { Ok(()) } else { Err(format!("{accepted} accepted")) } }
    })
    .await;
    pair.transfer().await.unwrap();
    let ids: Vec<JobId> = producers.join_all().await.into_iter().flatten().collect();
    assert_eq!(ids.len(), accepted.load(Ordering::Relaxed));
    let client = pair.database.client().await;
    let row = client
        .query_one("select count(*), coalesce(sum(id), 0)::bigint from stargate.job", &[])
        .await
        .unwrap();
    let sum: i64 = ids.iter().map(|id| id.0).sum();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (i64::try_from(ids.len()).unwrap(), sum));
    drop(client);
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_fails_leaves_both_stores_as_they_were() {
    let (_, clock) = manual();
    let pair = pair(clock).await;
    fill(&*pair.from).await;
    let before = answers(&*pair.from).await;
    let stop = |moved: Moved| match moved.table {
        "job_event" => Err(Error::invalid("move", "was stopped")),
        _ => Ok(()),
    };
    let failed = move_to_postgres(&pair.from, &pair.to, TARGET, stop).await;
    assert!(matches!(failed, Err(Error::Invalid { .. })), "{failed:?}");
    assert_eq!(answers(&*pair.from).await, before);
    let id = add(&*pair.from, new("accepted again")).await;
    assert!(pair.to.job(id).await.unwrap().is_none() && pair.to.kinds().await.unwrap().is_empty());
    let refused = abort_move(&pair.from, None).await;
    assert!(matches!(refused, Err(Error::Conflict { .. })), "there is nothing to abort: {refused:?}");

    pair.transfer().await.expect("trying again moves everything");
    assert!(pair.to.job(id).await.unwrap().is_some());
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_whose_process_died_is_completed_by_the_next_one() {
    let (_, clock) = manual();
    let pair = pair(clock).await;
    fill(&*pair.from).await;
    let before = answers(&*pair.from).await;
    pair.die_in("job").await;
    pair.frozen("nobody was there to thaw it").await;
    assert!(pair.to.kinds().await.unwrap().is_empty(), "nothing of it can be seen");
    pair.transfer().await.expect("the next one completes it");
    let after = answers(&*pair.to).await;
    assert_eq!(before.len(), after.len());
    for (n, (ours, theirs)) in before.iter().zip(&after).enumerate() {
        // The first run had set workers' numbers aside; they are not given out again.
        assert!(n == WORKERS || ours == theirs, "SQLite: {ours}\nPostgres: {theirs}");
    }
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_whose_process_died_can_be_aborted() {
    let (_, clock) = manual();
    let pair = pair(clock).await;
    fill(&*pair.from).await;
    pair.die_in("job").await;
    pair.frozen("nobody was there to thaw it").await;
    abort_move(&pair.from, None).await.unwrap();
    add(&*pair.from, new("accepted again")).await;
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_around_the_commit_is_resolved_by_asking_the_target() {
    let (_, clock) = manual();
    let pair = pair(clock).await;
    fill(&*pair.from).await;
    let moved = pair.transfer().await.unwrap();
    // As if the process had died after the target's commit.
    pair.meta("move", "deciding 0123456789abcdef");
    let unsure = abort_move(&pair.from, None).await;
    assert!(matches!(&unsure, Err(Error::Conflict { problem }) if problem.contains("--to")), "{unsure:?}");
    let elsewhere = move_to_postgres(&pair.from, &pair.to, "postgres://elsewhere/jobs", |_| Ok(())).await;
    assert!(
        matches!(&elsewhere, Err(Error::Conflict { problem }) if problem.contains(TARGET)),
        "{elsewhere:?}"
    );
    let known = abort_move(&pair.from, Some(&pair.to)).await;
    assert!(matches!(&known, Err(Error::Conflict { problem }) if problem.contains("committed")), "{known:?}");
    pair.meta("move", "deciding 0123456789abcdef");
    let again = pair.transfer().await.unwrap();
    assert_eq!(again, Report { earlier: true, ..moved });
    pair.frozen("the jobs are at the target").await;
    let complete = abort_move(&pair.from, None).await;
    assert!(
        matches!(&complete, Err(Error::Conflict { problem }) if problem.contains("complete")),
        "{complete:?}"
    );

    // As if it had died before: the target knows nothing.
    let empty = Database::create(async |url| connect(&url, Clock::default()).await.close().await).await;
    let other = connect(empty.url(), pair.clock.clone()).await;
    pair.meta("move", "deciding 0123456789abcdef");
    abort_move(&pair.from, Some(&other)).await.unwrap();
    add(&*pair.from, new("accepted again")).await;
    drop(other);
    empty.remove().await;
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_holds_jobs_is_refused_and_the_source_goes_on() {
    let pair = pair(Clock::default()).await;
    let kind = KindSpec { name: WORK.to_owned(), max_attempts: 5, max_crashes: 3 };
    pair.to.kinds_register(vec![kind]).await.unwrap();
    let theirs = add(&*pair.to, new("theirs")).await;
    let refused = pair.transfer().await;
    assert!(matches!(&refused, Err(Error::Conflict { problem }) if problem.contains("empty")), "{refused:?}");
    add(&*pair.from, new("never refused")).await;
    assert!(pair.to.job(theirs).await.unwrap().is_some());
    pair.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_with_leaders_of_its_own_keeps_its_history_and_no_epoch_is_issued_twice() {
    for (ours, theirs) in [(3, 1), (1, 3)] {
        let pair = pair(Clock::default()).await;
        for (store, count) in [(&*pair.from as &dyn Store, ours), (&*pair.to as &dyn Store, theirs)] {
            let mut seen = None;
            for _ in 0..count {
                seen = Some(store.term_begin("node", None, seen).await.unwrap());
            }
        }
        let before = pair.to.terms(100).await.unwrap();
        let leader = pair.to.under(before[0].epoch);
        pair.transfer().await.unwrap();
        assert_eq!(pair.to.terms(100).await.unwrap(), before);
        assert_eq!(pair.to.epoch().await.unwrap(), Some(Epoch::new(3)), "the higher of both");
        let written = leader.pause(PauseTarget::Kind("x".into())).await;
        assert_eq!(written.is_ok(), theirs == 3, "{written:?}");
        let next = pair.to.term_begin("next", None, Some(Epoch::new(3))).await.unwrap();
        assert_eq!(next, Epoch::new(4));
        assert_eq!(overlaps(&pair.to.terms(100).await.unwrap()), []);
        drop(leader);
        pair.close().await;
    }
}
