//! What overviews cost with very many jobs, half of them waiting and half of them ended within the last hour. By default
//! there are few and only the answers are checked. In the long form each has to come within 50 ms of processor time or so:
//!
//! ```console
//! $ STARGATE_TEST_JOBS=1000000 cargo test -p stargate-store --test overview -- --test-threads 1 --nocapture
//! ```

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]
#![expect(clippy::print_stdout, reason = "the times are what the long form is for")]

use std::path::Path;
use std::time::{Duration, Instant};

use stargate_base::clock::wall;
use stargate_queue::store::{Counted, JobFilter, Store};
use stargate_queue::{KindSpec, State};
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::postgres::Database;

/// How long the best of a few answers may take in the long form.
const MOST: Duration = Duration::from_millis(50);
const LONG: i64 = 500_000;
/// Of twenty jobs that ended one has failed.
const FAILED_EVERY: i64 = 20;
const LANES: i64 = 50;

fn jobs() -> i64 {
    std::env::var("STARGATE_TEST_JOBS").map_or(20_000, |text| text.parse().unwrap())
}

const SQLITE: &str = "
    with recursive n (n) as (select 0 union all select n + 1 from n where n < 49)
    insert into lane (id, queue, kind, limit_key, ready, failed)
    select n + 1, 'q' || (n % 10), 'k' || (n % 5), 'tenant ' || n, :half / 50, 0 from n;
    with recursive n (n) as (select 1 union all select n + 1 from n where n < :half)
    insert into job (id, lane_id, stage, priority, max_attempts, run_at, created_at, payload)
    select n, 1 + n % 50, 0, 0, 5, :now, :now - 3500000000 - (:half - n) * :step, '{\"id\":' || n || ',\"name\":\"Customer ' || n || '\"}' from n;
    with recursive n (n) as (select 1 union all select n + 1 from n where n < :half)
    insert into job_history (id, lane_id, state, priority, attempt, max_attempts, crash_count, progress, last_seq, started_seq,
                             run_at, created_at, started_at, finished_at, payload, error)
    select :half + n, 1 + (n / 20) % 50, case when n % 20 = 0 then 3 else 2 end, 0, 1, 5, 0, 0, 3, 2,
           :now - (:half - n) * :step, :now - (:half - n) * :step, :now - (:half - n) * :step + n % 997 * 1000,
           :now - (:half - n) * :step, '{\"id\":' || n || ',\"name\":\"Customer ' || n || '\"}',
           case when n % 20 = 0 then '{\"code\":\"CODE_' || (n % 7) || '\",\"class\":\"Fatal\",\"message\":\"it broke\"}' end from n;
    update counter set value = :half * 2 where name = 'job_id';
    analyze;";

fn fill_sqlite(file: &Path, jobs: i64) {
    let raw = rusqlite::Connection::open(file).unwrap();
    let now: i64 = wall().as_microsecond();
    let half = jobs / 2;
    let step = 3_500_000_000 / half;
    let script = [(":half", half), (":now", now), (":step", step)]
        .iter()
        .fold(SQLITE.to_owned(), |text, (name, value)| text.replace(name, &value.to_string()));
    raw.execute_batch(&format!("begin; {script} commit;")).unwrap();
}

const POSTGRES: &str = "
    insert into stargate.lane (queue, kind, limit_key)
    select 'q' || n % 10, 'k' || n % 5, 'tenant ' || n from generate_series(0, 49) n;
    insert into stargate.job (lane_id, stage, max_attempts, run_at, created_at, payload)
    select 1 + n % 50, 0, 5, now(), now() - interval '3500 seconds' - (:half - n) * :step * interval '1 microsecond',
           json_build_object('id', n, 'name', 'Customer ' || n) from generate_series(1, :half) n;
    insert into stargate.job_history (id, run_at, created_at, started_at, finished_at, lane_id, last_seq, started_seq, state,
           priority, attempt, max_attempts, crash_count, progress, cancel_requested, payload, error)
    select :half + n, t, t, t + n % 997 * interval '1 millisecond', t, 1 + (n / 20) % 50, 3, 2,
           case when n % 20 = 0 then 3 else 2 end, 0, 1, 5, 0, 0, false, json_build_object('id', n, 'name', 'Customer ' || n),
           case when n % 20 = 0 then json_build_object('code', 'CODE_' || n % 7, 'class', 'Fatal', 'message', 'it broke') end
      from (select n, now() - (:half - n) * :step * interval '1 microsecond' as t from generate_series(1, :half) n) n;
    select setval(pg_get_serial_sequence('stargate.job', 'id'), :half * 2);
    analyze;";

async fn fill_postgres(database: &Database, jobs: i64) {
    let half = jobs / 2;
    let step = 3_500_000_000 / half;
    let script = POSTGRES.replace(":half", &half.to_string()).replace(":step", &format!("{step}::bigint"));
    database.client().await.batch_execute(&script).await.unwrap();
}

async fn prepare(store: &dyn Store) {
    let kind = |number| KindSpec { name: format!("k{number}"), max_attempts: 5, max_crashes: 3 };
    store.kinds_register((0..5).map(kind).collect()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn overviews_of_very_many_jobs_are_right_and_quick_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.db");
    let store = Sqlite::open(&file, sqlite::Options::default()).await.unwrap();
    prepare(&store).await;
    fill_sqlite(&file, jobs());
    ask_everything(&store, jobs()).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overviews_of_very_many_jobs_are_right_and_quick_on_postgres() {
    let options = || postgres::Options { migrate: true, ..postgres::Options::default() };
    let database =
        Database::create(async |url| Postgres::connect(&url, options()).await.unwrap().close().await).await;
    let store = Postgres::connect(database.url(), options()).await.unwrap();
    prepare(&store).await;
    fill_postgres(&database, jobs()).await;
    ask_everything(&store, jobs()).await;
    store.close().await;
    database.remove().await;
}

/// The best of a few answers; what else the machine does is not the store's fault.
async fn timed<T>(what: &str, mut ask: impl AsyncFnMut() -> T) -> T {
    let (mut best, mut first, mut answer) = (Duration::MAX, None, None);
    for _ in 0..8 {
        let begun = Instant::now();
        answer = Some(ask().await);
        best = best.min(begun.elapsed());
        first.get_or_insert(begun.elapsed());
    }
    println!("{what:40} {best:>12.1?}, the first {:.1?}", first.unwrap());
    if jobs() >= LONG {
        assert!(best <= MOST, "{what} took {best:?}");
    }
    answer.unwrap()
}

fn filters() -> Vec<(&'static str, JobFilter)> {
    let base = || JobFilter { limit: 50, ..JobFilter::default() };
    let ago = |minutes: i64| Some(wall() - jiff::SignedDuration::from_mins(minutes));
    let text = |text: &str| Some(text.to_owned());
    vec![
        ("all", base()),
        ("queued", JobFilter { states: vec![State::Queued], ..base() }),
        ("processing", JobFilter { states: vec![State::Processing], ..base() }),
        ("done", JobFilter { states: vec![State::Done], ..base() }),
        ("failed", JobFilter { states: vec![State::Failed], ..base() }),
        ("kind", JobFilter { kind: text("k1"), ..base() }),
        ("queue, done", JobFilter { queue: text("q3"), states: vec![State::Done], ..base() }),
        ("limit key", JobFilter { limit_key: text("tenant 17"), ..base() }),
        ("half an hour", JobFilter { since: ago(40), until: ago(10), ..base() }),
        ("code", JobFilter { code: text("CODE_3"), states: vec![State::Failed], ..base() }),
        ("code and kind", JobFilter { code: text("CODE_3"), kind: text("k2"), ..base() }),
        ("a code that no job has", JobFilter { code: text("NONE"), states: vec![State::Failed], ..base() }),
        ("text in every job", JobFilter { search: text("customer"), ..base() }),
        ("text in no job", JobFilter { search: text("needle"), ..base() }),
    ]
}

async fn ask_everything(store: &dyn Store, jobs: i64) {
    let half = u64::try_from(jobs / 2).unwrap();
    let failed = half / FAILED_EVERY.unsigned_abs();
    for (name, filter) in filters() {
        let found =
            timed(&format!("page, {name}"), async || store.jobs_found(filter.clone()).await.unwrap()).await;
        let none = ["needle", "NONE"]
            .iter()
            .any(|none| filter.search.as_deref() == Some(none) || filter.code.as_deref() == Some(none))
            || filter.states == [State::Processing];
        assert_eq!(found.jobs.is_empty(), none, "{name}");
        timed(&format!("count to 10000, {name}"), async || {
            store.jobs_count(filter.clone(), 10_000).await.unwrap()
        })
        .await;
    }
    let everything = store.jobs_count(JobFilter::default(), u64::MAX).await.unwrap();
    assert_eq!(everything, Counted { count: half * 2, scanned_all: true });

    let groups = timed("failures", async || store.failures(50).await.unwrap()).await;
    let counted: u64 = groups.iter().map(|group| group.count).sum();
    assert_eq!(counted, failed.min(20_000));

    let queues = timed("queues", async || store.queues().await.unwrap()).await;
    assert_eq!(queues.len(), 10);
    assert_eq!(queues.iter().map(|queue| queue.ready).sum::<u64>(), half / LANES.unsigned_abs() * 50);

    let hour = Duration::from_secs(3600);
    let begun = Instant::now();
    let mut calls = 1;
    while !store.activity(hour, 60).await.unwrap().iter().all(|bucket| bucket.complete) {
        calls += 1;
        assert!(calls < 1000, "it does not get further back");
    }
    println!("activity, all of the hour: {:?} in {calls} calls", begun.elapsed());
    let told = timed("activity", async || store.activity(hour, 60).await.unwrap()).await;
    let (done, bad): (u64, u64) =
        told.iter().fold((0, 0), |(done, failed), bucket| (done + bucket.done, failed + bucket.failed));
    // The first minute is cut off, and the test takes time.
    assert!(done + bad > half * 9 / 10 && done + bad <= half, "{done} {bad} of {half}");
    assert!(told.iter().filter_map(|bucket| bucket.wait_p50_ms).all(|wait| wait <= 1050), "{told:?}");
}
