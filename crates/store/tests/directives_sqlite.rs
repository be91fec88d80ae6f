//! What of directives is SQLite's own: its sinks as people read them, and what it cannot do.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use std::path::PathBuf;

use stargate_base::Clock;
use stargate_base::clock::ManualClock;
use stargate_directive::file::is_own_table;
use stargate_directive::item::{Advance, Batch, ColumnType, Item, Rows, Value};
use stargate_directive::outbox::OutboxId;
use stargate_directive::run::{Begin, Lease};
use stargate_directive::{Directives, Expected};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::ingest::{TOPIC, batch, item, items, new_run, page, table_of};
use stargate_testkit::start_of_time;

struct Opened {
    store: Sqlite,
    lease: Lease,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

async fn open() -> Opened {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.db");
    let options = sqlite::Options { clock: Clock::Manual(ManualClock::at(start_of_time())) };
    let store = Sqlite::open(&path, options).await.unwrap();
    let Begin::Begun { lease, .. } = store.run_begin(new_run("r1")).await.unwrap() else { panic!("held") };
    Opened { store, lease, path, _folder: folder }
}

impl Opened {
    /// A batch of one item without mapped columns.
    fn write_to(&self, table: &str) -> Batch {
        let item = Item { columns: Vec::new(), ..item("1", "a") };
        let rows = Rows::Here { table: table_of(table, &[]), items: vec![item].into(), topic: None };
        Batch { rows, ..batch(&self.lease, "b1", Vec::new(), Advance::Still) }
    }

    fn look(&self, text: &str) -> Vec<String> {
        let connection = rusqlite::Connection::open(&self.path).unwrap();
        let mut statement = connection.prepare(text).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<rusqlite::Result<_>>().unwrap()
    }
}

#[tokio::test]
async fn times_are_texts_that_people_read_and_that_sort() {
    let o = open().await;
    let at = |text: &str| Value::Timestamp(text.parse().unwrap());
    let one = |entity: &str, value| Item { columns: vec![value], ..item(entity, "a") };
    let given = vec![
        one("1", at("2026-02-03T04:05:06Z")),
        one("2", at("2026-02-03T06:05:06.5+01:00")),
        one("3", Value::Null),
    ];
    let rows = Rows::Here {
        table: table_of("things", &[("seen", ColumnType::Timestamp)]),
        items: given.into(),
        topic: None,
    };
    o.store.persist(Batch { rows, ..o.write_to("things") }).await.unwrap();
    let seen = o.look("select coalesce(seen, 'none') from things order by entity_id");
    assert_eq!(seen, ["2026-02-03T04:05:06.000000Z", "2026-02-03T05:05:06.500000Z", "none"]);
    assert_eq!(o.look("select distinct created_at from things"), ["2031-03-05T12:00:00.000000Z"]);
}

#[tokio::test]
async fn the_stores_own_tables_and_sqlites_names_are_no_sinks() {
    let o = open().await;
    for name in ["job", "kv", "directive_sink", "job_event", "sqlite_mine"] {
        let refused = o.store.persist(o.write_to(name)).await.expect_err(name);
        assert_eq!(refused.code(), "INVALID", "{refused}");
    }
    o.store.persist(o.write_to("jobs")).await.unwrap();
}

#[tokio::test]
async fn a_column_that_somebody_took_away_comes_back_and_a_fixed_one_is_missed() {
    let o = open().await;
    let table = table_of("things", &[("title", ColumnType::Text), ("size", ColumnType::Integer)]);
    let given = |request: &str, title| {
        let rows = Rows::Here { table: table.clone(), items: vec![item("1", title)].into(), topic: None };
        Batch { rows, ..batch(&o.lease, request, Vec::new(), Advance::Still) }
    };
    o.store.persist(given("b1", "a")).await.unwrap();
    o.look("alter table things drop column title");
    o.store.persist(given("b2", "b")).await.unwrap();
    assert_eq!(o.look("select title from things"), ["b"]);
    o.look("alter table things drop column updated_at");
    let refused = o.store.persist(given("b3", "c")).await.expect_err("a column is gone");
    assert!(refused.code() == "INVALID" && refused.to_string().contains("updated_at"), "{refused}");
}

#[tokio::test]
async fn notifications_need_postgres() {
    let o = open().await;
    o.store.persist(batch(&o.lease, "b1", items(0..1, "a"), page(Expected::Absent, 1))).await.unwrap();
    let id: OutboxId = o.store.outbox_next(TOPIC, None, 1).await.unwrap()[0].id;
    let refused = o.store.outbox_notify("changes", id).await.expect_err("SQLite cannot");
    assert!(refused.code() == "INVALID" && refused.to_string().contains("Postgres"), "{refused}");
    assert_eq!(o.store.outbox_next(TOPIC, None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn pages_of_new_and_of_unchanged_items_are_counted_and_their_pace_is_told() {
    const PAGES: u32 = 40;
    const PAGE: u32 = 500;
    let o = open().await;
    let mut cursor = Expected::Absent;
    for (round, what) in ["new", "unchanged"].into_iter().enumerate() {
        let begun = std::time::Instant::now();
        let mut found = stargate_directive::Counts::default();
        for number in 0..PAGES {
            let given = items(number * PAGE..(number + 1) * PAGE, "a title of some length");
            let request = format!("{round}-{number}");
            let written = o.store.persist(batch(&o.lease, &request, given, page(cursor, 1))).await.unwrap();
            found += written.counts;
            cursor = Expected::Version(written.cursor_version.unwrap());
        }
        let rows = u64::from(PAGES * PAGE);
        println!("{what}: {:.0} rows/s", f64::from(PAGES * PAGE) / begun.elapsed().as_secs_f64());
        let expected = if round == 0 { (rows, 0) } else { (0, rows) };
        assert_eq!((found.created, found.unchanged), expected);
    }
}

/// Sinks lie beside the store's own tables here. A table that a later schema adds must have a name that no sink can have:
/// one that begins with a word that is reserved already, or with `stargate_`.
#[tokio::test(flavor = "multi_thread")]
async fn no_sink_can_have_a_name_that_the_store_uses() {
    let opened = open().await;
    let connection = rusqlite::Connection::open(&opened.path).unwrap();
    let mut list = connection.prepare("select name from sqlite_schema").unwrap();
    let names: Vec<String> =
        list.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap();
    assert!(names.len() > 30, "{names:?}");
    let free: Vec<&String> = names.iter().filter(|name| !is_own_table(name)).collect();
    assert!(free.is_empty(), "{free:?}");
}
