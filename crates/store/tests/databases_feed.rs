//! Queries as sources of directives, on a real SQLite file and a real Postgres server.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use stargate_base::{ErrorClass, Secret};
use stargate_directive::Pointer;
use stargate_directive::source::{Databases as _, Feed, Page, SourceError};
use stargate_store::databases::{Drivers, Own};
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::proxy::Proxy;

/// How long the loaded machine may take for a page.
const PATIENCE: Duration = Duration::from_secs(60);

/// A database with a table that a test fills, and what opens feeds on it.
enum Place {
    Sqlite(tempfile::TempDir),
    Postgres(tempfile::TempDir, Database),
}

impl Place {
    async fn both() -> [Self; 2] {
        let folder = || tempfile::tempdir().unwrap();
        [Self::Sqlite(folder()), Self::Postgres(folder(), Database::create_empty().await)]
    }

    fn url(&self) -> String {
        match self {
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path().join("s.db").display()),
            Self::Postgres(_, database) => database.url().to_owned(),
        }
    }

    fn folder(&self) -> &Path {
        match self {
            Self::Sqlite(folder) | Self::Postgres(folder, _) => folder.path(),
        }
    }

    async fn run(&self, sql: &str) {
        match self {
            Self::Sqlite(folder) => {
                rusqlite::Connection::open(folder.path().join("s.db")).unwrap().execute_batch(sql).unwrap();
            }
            Self::Postgres(_, database) => database.client().await.batch_execute(sql).await.unwrap(),
        }
    }

    fn drivers(&self) -> Drivers {
        Drivers::new(Own::Sqlite("nowhere.db".into()), self.folder())
    }

    async fn feed(&self, query: &str, from: &Pointer) -> Box<dyn Feed> {
        self.drivers().feed(Some(&Secret::new(self.url())), query, "w", from).await.unwrap()
    }

    /// The error of the first page.
    async fn refusal(&self, query: &str) -> SourceError {
        let mut feed = self.feed(query, &Pointer::Null).await;
        let error = feed.page(10).await.unwrap_err();
        feed.close().await;
        error
    }

    async fn remove(self) {
        if let Self::Postgres(_, database) = self {
            database.remove().await;
        }
    }
}

const QUERY: &str = "select id, w from item";

fn records(page: &mut Page) -> Vec<Value> {
    page.records
        .by_ref()
        .map(|record| serde_json::from_str(record.unwrap().unwrap().get()).unwrap())
        .collect()
}

/// The watermarks of a page.
fn marks(page: &mut Page) -> Vec<Value> {
    records(page).iter().map(|record| record["w"].clone()).collect()
}

/// Reads to the end: the watermarks of each page, and the last pointer.
async fn read_all(mut feed: Box<dyn Feed>, size: u32) -> (Vec<Vec<Value>>, Pointer) {
    let mut pages = Vec::new();
    loop {
        let mut page = feed.page(size).await.unwrap();
        pages.push(marks(&mut page));
        if page.is_last {
            feed.close().await;
            return (pages, page.next.unwrap());
        }
        assert!(pages.len() < 1000, "the feed does not end");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_holds_all_rows_of_its_last_watermark() {
    for place in Place::both().await {
        place.run("create table item (id integer, w integer)").await;
        place.run("insert into item values (1,1),(2,1),(3,2),(4,2),(5,2),(6,3),(7,4),(8,4)").await;
        let (pages, next) = read_all(place.feed(QUERY, &Pointer::Null).await, 2).await;
        assert_eq!(json!(pages), json!([[1, 1], [2, 2, 2], [3, 4, 4]]), "{}", place.url());
        let (pages, _) = read_all(place.feed(QUERY, &Pointer::Null).await, 100).await;
        assert_eq!(json!(pages), json!([[1, 1, 2, 2, 2, 3, 4, 4]]));
        let (pages, again) = read_all(place.feed(QUERY, &next).await, 2).await;
        assert_eq!(json!(pages), json!([[4, 4]]), "the last watermark is read again");
        assert_eq!(again, next);
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_taken_up_in_the_middle_sees_what_got_the_last_watermark_meanwhile() {
    for place in Place::both().await {
        place.run("create table item (id integer, w integer)").await;
        place.run("insert into item values (1,1),(2,2),(3,3)").await;
        let mut feed = place.feed(QUERY, &Pointer::Null).await;
        let mut page = feed.page(2).await.unwrap();
        assert_eq!(json!(marks(&mut page)), json!([1, 2]));
        assert!(!page.is_last);
        feed.close().await;
        place.run("insert into item values (4,2)").await;
        let (pages, _) = read_all(place.feed(QUERY, &page.next.unwrap()).await, 2).await;
        assert_eq!(json!(pages), json!([[2, 2], [3]]));
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_added_while_a_feed_is_read_is_left_to_the_next_and_not_lost() {
    for place in Place::both().await {
        place.run("create table item (id integer, w integer)").await;
        place.run("insert into item values (1,1),(2,2),(3,3)").await;
        let mut feed = place.feed(QUERY, &Pointer::Null).await;
        assert_eq!(json!(marks(&mut feed.page(1).await.unwrap())), json!([1]));
        assert_eq!(json!(marks(&mut feed.page(2).await.unwrap())), json!([2, 3]));
        // The highest watermark of then gets another row, and there is a higher one.
        place.run("insert into item values (4,3),(5,4)").await;
        let page = feed.page(1).await.unwrap();
        assert!(page.is_last);
        assert_eq!(page.records.count(), 0);
        feed.close().await;
        let (pages, _) = read_all(place.feed(QUERY, &page.next.unwrap()).await, 10).await;
        assert_eq!(json!(pages), json!([[3, 3, 4]]));
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_source_has_one_empty_page_and_leaves_the_pointer_where_it_was() {
    for place in Place::both().await {
        place.run("create table item (id integer, w integer)").await;
        let (pages, next) = read_all(place.feed(QUERY, &Pointer::Null).await, 10).await;
        assert_eq!((json!(pages), next), (json!([[]]), Pointer::Null));
        let from = json!({ "after": 7 });
        place.run("insert into item values (1,1)").await;
        let (pages, next) = read_all(place.feed(QUERY, &from).await, 10).await;
        assert_eq!(json!(pages), json!([[]]), "what is before the pointer is not read");
        assert!(next == from || next == json!({ "after": "7" }), "{next}");
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_a_watermark_are_refused_with_their_number_and_a_remedy() {
    for place in Place::both().await {
        place.run("create table item (id integer, w integer)").await;
        place.run("insert into item values (1,1),(2,null),(3,null)").await;
        let error = place.refusal(QUERY).await;
        assert_eq!((error.class, error.code), (ErrorClass::ValidationFailure, "SOURCE_SHAPE"));
        assert!(error.message.starts_with("2 rows") && error.message.contains("COALESCE"), "{error}");
        let mended = "select id, coalesce(w, 0) as w from item;";
        let (pages, _) = read_all(place.feed(mended, &Pointer::Null).await, 10).await;
        assert_eq!(json!(pages), json!([[0, 0, 1]]));
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watermarks_of_postgres_compare_as_the_database_compares_them() {
    let place = Place::Postgres(tempfile::tempdir().unwrap(), Database::create_empty().await);
    place.run("create type mood as enum ('sad', 'ok', 'happy')").await;
    for (kind, values) in [
        ("timestamptz", &["2026-01-01 00:00:00.000001+02", "2026-01-01 00:00:00.000002+02", "infinity"][..]),
        ("timestamp", &["2026-01-01 00:00:00.123456", "2026-01-01 00:00:00.123457"]),
        ("date", &["0001-01-01", "2026-11-16"]),
        ("interval", &["1 day", "1 month 2 hours"]),
        ("bigint", &["-9223372036854775808", "9", "10", "9007199254740993", "9223372036854775807"]),
        ("numeric", &["-1e30", "0.1", "0.10000000000000000000000001", "9", "10", "NaN"]),
        ("float8", &["-Infinity", "0.1", "0.30000000000000004", "1e300"]),
        ("uuid", &["00000000-0000-0000-0000-00000000000a", "f0000000-0000-0000-0000-000000000000"]),
        ("text collate \"C\"", &["", "10", "9", "Z", "a", "it's \"quoted\"", "ä"]),
        ("text collate \"en-x-icu\"", &["a", "A", "b", "ä z", "Z"]),
        ("char(3)", &["a", "abc", "b"]),
        ("bytea", &["\\x00", "\\x00ff", "\\x7f"]),
        ("mood", &["sad", "ok", "happy"]),
    ] {
        place.run("drop table if exists item").await;
        place.run(&format!("create table item (id serial, w {kind})")).await;
        for value in values.iter().rev() {
            place.run(&format!("insert into item (w) values ('{}')", value.replace('\'', "''"))).await;
        }
        // The database's own order, and each page from a pointer that went through text.
        let order = database_order(&place).await;
        assert_eq!(order.len(), values.len());
        let (mut from, mut seen) = (Pointer::Null, Vec::new());
        for number in 0..values.len() {
            let mut feed = place.feed(QUERY, &from).await;
            // The one before comes again.
            let mut page = feed.page(if number == 0 { 1 } else { 2 }).await.unwrap();
            seen.push(records(&mut page).last().unwrap()["id"].clone());
            from = serde_json::from_str(&page.next.unwrap().to_string()).unwrap();
            feed.close().await;
        }
        assert_eq!(seen, order, "{kind}");
        let (pages, _) = read_all(place.feed(QUERY, &Pointer::Null).await, 1).await;
        assert_eq!(pages.len(), values.len(), "{kind}: {pages:?}");
    }
    place.remove().await;
}

async fn database_order(place: &Place) -> Vec<Value> {
    let Place::Postgres(_, database) = place else { panic!("only for Postgres") };
    let rows = database.client().await.query("select id from item order by w", &[]).await.unwrap();
    rows.iter().map(|row| json!(row.get::<_, i32>(0))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn watermarks_of_sqlite_keep_their_types_and_the_columns_collation() {
    let place = Place::Sqlite(tempfile::tempdir().unwrap());
    place.run("create table item (id integer, w)").await;
    place
        .run(
            "insert into item values (1, -9.5), (2, 1), (3, 1.5), (4, 9007199254740993), (5, '1'), (6, 'a'),
             (7, 0.1), (8, 0.30000000000000004)",
        )
        .await;
    let (pages, _) = read_all(place.feed(QUERY, &Pointer::Null).await, 1).await;
    let expected =
        json!([[-9.5], [0.1], [0.30000000000000004], [1], [1.5], [9_007_199_254_740_993_i64], ["1"], ["a"]]);
    assert_eq!(json!(pages), expected);
    let (mut from, mut seen) = (Pointer::Null, Vec::new());
    for number in 0..8 {
        let mut feed = place.feed(QUERY, &from).await;
        let mut page = feed.page(if number == 0 { 1 } else { 2 }).await.unwrap();
        seen.push(records(&mut page).last().unwrap()["id"].clone());
        from = serde_json::from_str(&page.next.unwrap().to_string()).unwrap();
        feed.close().await;
    }
    assert_eq!(json!(seen), json!([1, 7, 8, 2, 3, 4, 5, 6]));

    place.run("drop table item; create table item (id integer, w text collate nocase)").await;
    place.run("insert into item values (1, 'a'), (2, 'A'), (3, 'b'), (4, 'B')").await;
    let (pages, _) = read_all(place.feed(QUERY, &Pointer::Null).await, 1).await;
    assert_eq!(
        pages.iter().map(Vec::len).collect::<Vec<_>>()[..2],
        [2, 2],
        "equal under the collation: {pages:?}"
    );

    place
        .run("drop table item; create table item (id integer, w blob); insert into item values (1, x'00')")
        .await;
    let error = place.refusal(QUERY).await;
    assert_eq!(error.code, "SOURCE_SHAPE", "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_become_records_with_nothing_lost() {
    let [sqlite, postgres] = Place::both().await;
    let all = "select * from item";
    sqlite.run("create table item (w integer, n integer, r real, t text, b blob, z text)").await;
    sqlite
        .run("insert into item values (1, 9223372036854775807, 0.1, 'ü\"\n', x'00ff', null), (2, 0, 9e999, cast(x'ff' as text), x'', '')")
        .await;
    let mut feed = sqlite.feed(all, &Pointer::Null).await;
    let records: Vec<_> = feed.page(10).await.unwrap().records.map(Result::unwrap).collect();
    feed.close().await;
    assert_eq!(
        records[0].as_ref().unwrap().get(),
        r#"{"w":1,"n":9223372036854775807,"r":0.1,"t":"ü\"\n","b":"\\x00ff","z":null}"#
    );
    let garbled = records[1].as_ref().unwrap_err();
    assert!(garbled.problem.contains("column t") && garbled.problem.contains("UTF-8"), "{garbled:?}");

    postgres
        .run(
            "create table item (w timestamptz, n bigint, d numeric, t text, b bytea, u uuid, j jsonb, a int[]);
             insert into item values ('2026-01-02 03:04:05.678901+02', 9007199254740993, 0.10000000000000000000000001,
             'ü\"', '\\x00ff', '00000000-0000-0000-0000-00000000000a', '{\"a\": [1]}', '{1,2}')",
        )
        .await;
    let mut feed = postgres.feed(all, &Pointer::Null).await;
    let record = feed.page(10).await.unwrap().records.next().unwrap().unwrap().unwrap();
    feed.close().await;
    assert_eq!(
        record.get(),
        r#"{"w":"2026-01-02T01:04:05.678901+00:00","n":9007199254740993,"d":0.10000000000000000000000001,"t":"ü\"","b":"\\x00ff","u":"00000000-0000-0000-0000-00000000000a","j":{"a": [1]},"a":[1,2]}"#
    );
    postgres.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_query_is_refused_with_the_databases_words_and_the_place() {
    for place in Place::both().await {
        place.run("create table item (id integer, w integer)").await;
        for (query, words) in [
            ("select id,\n  oops from item", "oops"),
            ("selec id, w from item", "syntax error"),
            ("select id from item", "w"),
            ("select * from nowhere", "nowhere"),
            ("select 1 as w; select 2 as w", ""),
        ] {
            let error = place.refusal(query).await;
            assert_eq!((error.class, error.code), (ErrorClass::ValidationFailure, "SOURCE_QUERY"), "{error}");
            assert!(error.message.contains(words), "{error}");
            assert!(!error.message.contains("stargate_row ("), "{error}");
        }
        let error = place.refusal("select id,\n  oops from item").await;
        assert!(error.message.contains("line 2, column 3"), "{error}");
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_writes_is_refused_and_has_changed_nothing() {
    let [sqlite, postgres] = Place::both().await;
    for place in [&sqlite, &postgres] {
        place.run("create table item (id integer, w integer); insert into item values (1, 1), (2, 2)").await;
    }
    postgres
        .run(
            "create sequence s;
             create function eat() returns int language sql as 'delete from item returning id'",
        )
        .await;
    let everywhere = [
        "delete from item returning id, w",
        "select 1 as w) as stargate_row; delete from item; --",
        "with d as (delete from item returning *) select * from d",
    ];
    let on_postgres =
        ["select eat() as id, w from item", "select nextval('s') as w", "select id, w from item for update"];
    let queries = everywhere.iter().flat_map(|query| [(&sqlite, *query), (&postgres, *query)]);
    for (place, query) in queries.chain(on_postgres.iter().map(|query| (&postgres, *query))) {
        let error = place.refusal(query).await;
        assert_eq!(
            (error.class, error.code),
            (ErrorClass::ValidationFailure, "SOURCE_QUERY"),
            "{query}: {error}"
        );
        let (pages, _) = read_all(place.feed(QUERY, &Pointer::Null).await, 10).await;
        assert_eq!(json!(pages), json!([[1, 2]]), "{query}");
    }
    postgres.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_is_told_so_and_no_password_is_shown() {
    let place = Place::Postgres(tempfile::tempdir().unwrap(), Database::create_empty().await);
    place.run("create table item (id integer, w integer); insert into item values (1, 1)").await;
    let role = format!("reader_{}", std::process::id());
    place.run(&format!("create role {role} login password 'hunter2'")).await;
    let as_user = |user: &str| {
        let mut url = url::Url::parse(&place.url()).unwrap();
        url.set_username(user).unwrap();
        url.set_password(Some("hunter2")).unwrap();
        Secret::new(url)
    };
    for user in [role.as_str(), "nobody_of_that_name"] {
        let mut feed = place.drivers().feed(Some(&as_user(user)), QUERY, "w", &Pointer::Null).await.unwrap();
        let error = feed.page(10).await.unwrap_err();
        assert_eq!((error.class, error.code), (ErrorClass::Fatal, "SOURCE_REFUSED"), "{error}");
        assert!(!format!("{error} {error:?} {feed:?}").contains("hunter2"));
        feed.close().await;
    }
    place.run(&format!("drop role {role}")).await;
    for wrong in
        ["postgres://u:hunter2@h:notaport/d", "postgres://u:hunter2@h/d?sslmode=odd", "mysql://u:hunter2@h/d"]
    {
        let opened = place.drivers().feed(Some(&Secret::new(wrong)), QUERY, "w", &Pointer::Null).await;
        let error = opened.unwrap_err();
        assert_eq!((error.class, error.code), (ErrorClass::Fatal, "SOURCE_SETTING"), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_between_or_in_pages_costs_a_retry_and_no_row() {
    let place = Place::Postgres(tempfile::tempdir().unwrap(), Database::create_empty().await);
    place.run("create table item (id integer, w integer); insert into item select g, g from generate_series(1, 6) g").await;
    let mut url = url::Url::parse(&place.url()).unwrap();
    let target = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(5432));
    let proxy = Proxy::start(&target).await;
    let (host, port) =
        proxy.address().rsplit_once(':').map(|(h, p)| (h.to_owned(), p.parse().unwrap())).unwrap();
    url.set_host(Some(&host)).unwrap();
    url.set_port(Some(port)).unwrap();
    let drivers = place.drivers().with_page_time_max(Duration::from_secs(8));
    let mut feed = drivers.feed(Some(&Secret::new(url)), QUERY, "w", &Pointer::Null).await.unwrap();
    assert_eq!(json!(marks(&mut feed.page(2).await.unwrap())), json!([1, 2]));
    proxy.cut();
    let error = feed.page(2).await.unwrap_err();
    assert_eq!((error.class, error.code), (ErrorClass::RetryableTransient, "SOURCE_UNREACHABLE"), "{error}");
    proxy.forward();
    assert_eq!(json!(marks(&mut feed.page(2).await.unwrap())), json!([3, 4]));
    proxy.stall();
    let error = feed.page(2).await.unwrap_err();
    assert_eq!((error.class, error.code), (ErrorClass::RetryableTransient, "SOURCE_TIMEOUT"), "{error}");
    proxy.cut();
    proxy.forward();
    let drivers_page = tokio::time::timeout(PATIENCE, feed.page(2)).await.unwrap();
    assert_eq!(json!(marks(&mut drivers_page.unwrap())), json!([5, 6]));
    tokio::time::timeout(PATIENCE, feed.close()).await.unwrap();
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_given_up_in_the_middle_of_a_page_is_closed_and_its_query_ended() {
    let endless = "with recursive n(w) as (select 1 union all select w + 1 from n) select w from n";
    for place in Place::both().await {
        place.run("create table item (id integer, w integer)").await;
        let url = Secret::new(place.url());
        let drivers = place.drivers().with_page_time_max(Duration::from_secs(2));
        let mut feed = drivers.feed(Some(&url), endless, "w", &Pointer::Null).await.unwrap();
        let error = feed.page(10).await.unwrap_err();
        assert_eq!((error.class, error.code), (ErrorClass::RetryableTransient, "SOURCE_TIMEOUT"), "{error}");
        feed.close().await;
        let mut feed = place.drivers().feed(Some(&url), endless, "w", &Pointer::Null).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(500), feed.page(10)).await.is_err());
        tokio::time::timeout(PATIENCE, feed.close()).await.unwrap();
        if let Place::Postgres(_, database) = &place {
            eventually(PATIENCE, "the end of the query on the server", || still_asked(database)).await;
        }
        place.remove().await;
    }
}

/// Whether the server still works for a feed.
async fn still_asked(database: &Database) -> Result<(), String> {
    let count = "select count(*) from pg_stat_activity
                 where datname = current_database() and state = 'active' and query like '%recursive n(w)%'
                   and pid <> pg_backend_pid()";
    let active: i64 = database.client().await.query_one(count, &[]).await.unwrap().get(0);
    if active == 0 { Ok(()) } else { Err(format!("{active} queries")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_missing_may_appear_and_one_that_is_none_is_refused() {
    let place = Place::Sqlite(tempfile::tempdir().unwrap());
    let mut feed = place.feed(QUERY, &Pointer::Null).await;
    let error = feed.page(10).await.unwrap_err();
    assert_eq!((error.class, error.code), (ErrorClass::RetryableTransient, "SOURCE_UNREACHABLE"), "{error}");
    assert!(!place.folder().join("s.db").exists(), "a source is not made by being read");
    place.run("create table item (id integer, w integer); insert into item values (1, 1)").await;
    assert_eq!(json!(marks(&mut feed.page(10).await.unwrap())), json!([1]));
    feed.close().await;
    std::fs::write(place.folder().join("s.db"), "this is no database, it is a text ".repeat(100)).unwrap();
    let error = place.refusal(QUERY).await;
    assert_eq!((error.class, error.code), (ErrorClass::Fatal, "SOURCE_SETTING"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_url_the_stores_own_database_is_read() {
    for place in Place::both().await {
        place.run("create table item (id integer, w integer); insert into item values (1, 1)").await;
        let own = match &place {
            Place::Sqlite(folder) => Own::Sqlite(folder.path().join("s.db")),
            Place::Postgres(_, database) => Own::Postgres { url: Secret::new(database.url()), pooled: true },
        };
        let drivers = Drivers::new(own, place.folder());
        let feed = drivers.feed(None, QUERY, "w", &Pointer::Null).await.unwrap();
        assert_eq!(json!(read_all(feed, 10).await.0), json!([[1]]));
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_in_between_does_not_matter() {
    let place = Place::Postgres(tempfile::tempdir().unwrap(), Database::create_empty().await);
    place
        .run("create table item (id integer, w integer); insert into item values (1, 1), (2, 2), (3, 3)")
        .await;
    let pooler = std::env::var("STARGATE_TEST_PGBOUNCER_URL").unwrap_or_else(|_| {
        panic!("no PgBouncer for tests: run `cargo xtask test`, or `cargo xtask services` and export what it prints")
    });
    let (mut url, pooler) = (url::Url::parse(&place.url()).unwrap(), url::Url::parse(&pooler).unwrap());
    url.set_host(pooler.host_str()).unwrap();
    url.set_port(pooler.port()).unwrap();
    let url = Secret::new(url);
    // Two at once share the pooler's connections.
    let read = async |size| {
        read_all(place.drivers().feed(Some(&url), QUERY, "w", &Pointer::Null).await.unwrap(), size).await
    };
    let (one, two) = tokio::join!(read(1), read(2));
    assert_eq!(json!([one.0, two.0]), json!([[[1], [2], [3]], [[1, 2], [3]]]));
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_too_large_for_memory_is_read_all_the_same() {
    for place in Place::both().await {
        place.run("create table item (id integer, w integer, x text)").await;
        let rows = match &place {
            Place::Sqlite(_) => {
                "with recursive g(n) as (select 1 union all select n + 1 from g where n < 24)
                 insert into item select n, n, replace(hex(zeroblob(524288)), '0', 'x') from g"
            }
            Place::Postgres(..) => {
                "insert into item select n, n, repeat('x', 1048576) from generate_series(1, 24) n"
            }
        };
        place.run(rows).await;
        let mut feed = place.feed("select * from item", &Pointer::Null).await;
        let mut page = feed.page(100).await.unwrap();
        feed.close().await;
        let records = records(&mut page);
        assert_eq!(records.len(), 24);
        for (record, n) in records.iter().zip(1..) {
            assert_eq!((&record["id"], record["x"].as_str().unwrap().len()), (&json!(n), 1 << 20));
        }
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_another_source_is_refused() {
    for place in Place::both().await {
        for from in [json!(7), json!({ "page": 3 }), json!({ "after": null }), json!([])] {
            let url = Secret::new(place.url());
            let error = place.drivers().feed(Some(&url), QUERY, "w", &from).await.unwrap_err();
            assert_eq!((error.class, error.code), (ErrorClass::Fatal, "SOURCE_POINTER"), "{from}: {error}");
        }
        place.remove().await;
    }
}
