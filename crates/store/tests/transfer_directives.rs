//! Directives go along when a store is moved: values, runs, what is kept aside, announcements, and the tables they write.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stargate_base::Clock;
use stargate_base::clock::ManualClock;
use stargate_directive::item::{Advance, Batch, ColumnType, Item, Rows, Table, Value};
use stargate_directive::kv::{Expected, Put};
use stargate_directive::run::{Begin, End, Lease, Outcome};
use stargate_directive::{Directives, Standing};
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_store::transfer::move_to_postgres;
use stargate_testkit::ingest::{
    RUN_LEASE, TOPIC, batch, counts, everything, item, items, key, new_run, page, put, raw, reject, run_of,
    table_of,
};
use stargate_testkit::postgres::Database;
use stargate_testkit::start_of_time;

const TARGET: &str = "postgres://somewhere/jobs";
/// More than a page of the copy.
const MANY: u32 = 2500;

struct Pair {
    from: Sqlite,
    to: Postgres,
    database: Database,
    clock: ManualClock,
    folder: tempfile::TempDir,
}

async fn connect(url: &str, clock: Clock) -> Postgres {
    let options = postgres::Options { clock, migrate: true, ..postgres::Options::default() };
    Postgres::connect(url, options).await.unwrap()
}

async fn pair() -> Pair {
    let clock = ManualClock::at(start_of_time());
    let folder = tempfile::tempdir().unwrap();
    let options = sqlite::Options { clock: Clock::Manual(clock.clone()) };
    let from = Sqlite::open(&folder.path().join("s.db"), options).await.unwrap();
    let database = Database::create(async |url| connect(&url, Clock::default()).await.close().await).await;
    let to = connect(database.url(), Clock::Manual(clock.clone())).await;
    Pair { from, to, database, clock, folder }
}

async fn begin(store: &impl Directives, id: &str, directive: &str) -> Lease {
    match store.run_begin(run_of(id, "acme", directive)).await.unwrap() {
        Begin::Begun { lease, .. } => lease,
        held @ Begin::Held { .. } => panic!("{held:?}"),
    }
}

fn typed() -> Arc<Table> {
    let columns = [
        ("a_text", ColumnType::Text),
        ("a_float", ColumnType::Float),
        ("a_flag", ColumnType::Boolean),
        ("a_time", ColumnType::Timestamp),
        ("a_json", ColumnType::Json),
        ("a_number", ColumnType::Integer),
    ];
    table_of("typed", &columns)
}

fn typed_items() -> Vec<Item> {
    let values = vec![
        Value::Text("é \"q\" \\ \n".to_owned()),
        Value::Float(0.1 + 0.2),
        Value::Boolean(true),
        Value::Timestamp("2026-02-03T04:05:06.123456Z".parse().unwrap()),
        Value::Json(raw(&json!({ "a": ["é", null] }))),
        Value::Integer(i64::MIN),
    ];
    let nulls = (0..6).map(|_| Value::Null).collect();
    vec![Item { columns: values, ..item("1", "a") }, Item { columns: nulls, ..item("2 é", "a") }]
}

/// Two runs, one that ended and one under way, with one of everything.
async fn fill(from: &Sqlite, clock: &ManualClock) -> (Lease, Batch) {
    let ended = begin(from, "r0", "pulls").await;
    let rows = Rows::Here { table: typed(), items: typed_items().into(), topic: None };
    let first = Batch { rows, ..batch(&ended, "b1", Vec::new(), page(Expected::Absent, 2)) };
    from.persist(first).await.unwrap();
    from.run_end(&ended, End { outcome: Outcome::Failed, error: Some("é".to_owned()) }).await.unwrap();
    clock.advance(Duration::from_micros(1_234_567));
    let lease = begin(from, "r1", "issues").await;
    let mut last = batch(&lease, "b1", items(0..MANY, "a é"), page(Expected::Absent, u64::from(MANY)));
    last.rejects = vec![reject(json!({ "bad": "\u{0} é" }), Some("x")), reject(json!(7), None)];
    from.persist(last.clone()).await.unwrap();
    let waiting = from.outbox_next(TOPIC, None, 10).await.unwrap();
    from.outbox_done(waiting[0].id).await.unwrap();
    from.outbox_failed(waiting[1].id, "503").await.unwrap();
    let kept = from.quarantine(everything()).await.unwrap();
    from.quarantine_resolve(kept[0].id).await.unwrap();
    let by_hand =
        Put { spec_ref: Some("why".to_owned()), ..put(&key("x"), Some(json!(1)), Expected::Absent, "q") };
    from.kv_put(by_hand).await.unwrap();
    from.kv_put(put(&key("gone"), Some(json!(1)), Expected::Absent, "q")).await.unwrap();
    from.kv_put(put(&key("gone"), None, Expected::Version(1), "q2")).await.unwrap();
    (lease, last)
}

/// Everything the contract tells.
async fn all_of(store: &impl Directives) -> String {
    let mut announced = Vec::new();
    while let page = store.outbox_next(TOPIC, announced.last().map(|(id, _)| *id), 500).await.unwrap()
        && !page.is_empty()
    {
        announced.extend(page.into_iter().map(|one| (one.id, format!("{one:?}"))));
    }
    assert_eq!(announced.len(), MANY as usize - 1);
    format!(
        "{:#?}\n{:#?}\n{:#?}\n{:#?}\n{:#?}\n{announced:#?}",
        store.kv_list("", None, 100).await.unwrap(),
        store.kv_overrides("", 100).await.unwrap(),
        store.runs(None, None, 100).await.unwrap(),
        store.quarantine(everything()).await.unwrap(),
        store.outbox_waiting().await.unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn directives_are_moved_with_their_tables() {
    let p = pair().await;
    let (lease, last) = fill(&p.from, &p.clock).await;
    let report = move_to_postgres(&p.from, &p.to, TARGET, |_| Ok(())).await.unwrap();
    let rows: Vec<(&str, u64)> =
        report.tables.iter().rev().take(7).map(|moved| (moved.table, moved.rows)).collect();
    let many = u64::from(MANY);
    let expected = [
        ("sinks", many + 2),
        ("directive_sink", 2),
        ("directive_outbox", many),
        ("directive_quarantine", 2),
        ("directive_run", 2),
        ("kv_override", 1),
        ("kv", 6),
    ];
    assert_eq!(rows, expected);
    assert_eq!(all_of(&p.from).await, all_of(&p.to).await);

    let told = p.to.persist(last.clone()).await.unwrap();
    assert!(!told.first, "the answer to the last batch is still known");
    assert_eq!(p.to.run_beat(&lease, RUN_LEASE, Default::default()).await.unwrap(), Standing::Held);
    let newest = p.to.outbox_next(TOPIC, None, 500).await.unwrap().last().unwrap().id;
    let again = batch(&lease, "b2", items(0..MANY + 1, "a é"), page(Expected::Version(1), 1));
    assert_eq!(p.to.persist(again).await.unwrap().counts, counts(1, 0, many, 0), "every hash arrived");
    assert!(newest.0 < i64::from(MANY) + 1);
    let next = begin(&p.to, "r2", "pulls").await;
    let rows = Rows::Here { table: typed(), items: typed_items().into(), topic: None };
    let same = Batch { rows, ..batch(&next, "b1", Vec::new(), page(Expected::Version(1), 2)) };
    assert_eq!(p.to.persist(same).await.unwrap().counts, counts(0, 0, 2, 0));
    let stored = p.to.kv_put(put(&key("gone"), Some(json!(2)), Expected::Absent, "q3")).await.unwrap();
    assert_eq!(format!("{stored:?}"), "Stored { version: 3 }", "versions go on");

    let client = p.database.client().await;
    let row = client
        .query_one("select a_text, a_float, a_flag, a_json::text, a_number, extract(epoch from a_time)::text from typed where entity_id = '1'", &[])
        .await
        .unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, f64>(1)), ("é \"q\" \\ \n", 0.1 + 0.2));
    assert_eq!((row.get::<_, bool>(2), row.get::<_, i64>(4)), (true, i64::MIN));
    assert_eq!(
        (row.get::<_, &str>(3), row.get::<_, &str>(5)),
        ("{\"a\": [\"é\", null]}", "1770091506.123456")
    );
    drop((client, p.from, p.to, p.folder));
    p.database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_announcements_are_not_given_out_again_by_the_target() {
    let p = pair().await;
    let lease = begin(&p.from, "r1", "issues").await;
    p.from.persist(batch(&lease, "b1", items(0..5, "a"), Advance::Still)).await.unwrap();
    let old: Vec<_> = p.from.outbox_next(TOPIC, None, 10).await.unwrap().iter().map(|one| one.id).collect();
    for id in &old {
        p.from.outbox_done(*id).await.unwrap();
    }
    p.clock.advance(stargate_directive::store::OUTBOX_KEPT + Duration::from_secs(1));
    p.from.outbox_done(old[0]).await.unwrap();
    move_to_postgres(&p.from, &p.to, TARGET, |_| Ok(())).await.unwrap();
    let lease = begin(&p.to, "r1", "issues").await;
    p.to.persist(batch(&lease, "b2", items(5..6, "a"), Advance::Still)).await.unwrap();
    let new = p.to.outbox_next(TOPIC, None, 10).await.unwrap();
    assert!(new.len() == 1 && new[0].id > old[4], "{new:?} after {old:?}");
    drop((p.from, p.to, p.folder));
    p.database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_the_same_name_at_the_target_stops_the_move_whole() {
    let p = pair().await;
    let lease = begin(&p.from, "r1", "issues").await;
    p.from.persist(batch(&lease, "b1", items(0..5, "a"), Advance::Still)).await.unwrap();
    let client = p.database.client().await;
    client.batch_execute("create table items (mine text)").await.unwrap();
    let refused = move_to_postgres(&p.from, &p.to, TARGET, |_| Ok(())).await.unwrap_err();
    assert_eq!(refused.code(), "INVALID");
    assert!(p.to.runs(None, None, 10).await.unwrap().is_empty());
    p.from
        .persist(batch(&lease, "b2", items(5..6, "a"), Advance::Still))
        .await
        .expect("this store still takes writes");
    client.batch_execute("drop table items").await.unwrap();
    move_to_postgres(&p.from, &p.to, TARGET, |_| Ok(())).await.unwrap();
    drop((client, p.from, p.to, p.folder));
    p.database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_ran_directives_is_not_moved_to() {
    let p = pair().await;
    assert!(matches!(p.to.run_begin(new_run("r1")).await.unwrap(), Begin::Begun { .. }));
    let refused = move_to_postgres(&p.from, &p.to, TARGET, |_| Ok(())).await.unwrap_err();
    assert_eq!(refused.code(), "CONFLICT");
    drop((p.from, p.to, p.folder));
    p.database.remove().await;
}
