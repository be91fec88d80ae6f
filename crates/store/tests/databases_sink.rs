//! Rows of directives in another database than the store's, on a real SQLite file and a real Postgres server.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use serde_json::json;
use serde_json::value::to_raw_value;
use stargate_base::{ErrorClass, Secret};
use stargate_directive::item::{Column, ColumnType, Value};
use stargate_directive::source::{Databases as _, ForeignSink, Owner, SourceError};
use stargate_directive::{Counts, Item, Table};
use stargate_store::databases::{Drivers, Own};
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::proxy::Proxy;

/// How long the loaded machine may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A database that is not the store's.
struct Place {
    folder: tempfile::TempDir,
    database: Option<Database>,
}

impl Place {
    async fn both() -> [Self; 2] {
        let folder = || tempfile::tempdir().unwrap();
        let database = Database::create_empty().await;
        [Self { folder: folder(), database: None }, Self { folder: folder(), database: Some(database) }]
    }

    fn url(&self) -> String {
        let file = || format!("sqlite:{}", self.folder.path().join("s.db").display());
        self.database.as_ref().map_or_else(file, |database| database.url().to_owned())
    }

    async fn sink(&self) -> Box<dyn ForeignSink> {
        let drivers = Drivers::new(Own::Sqlite("nowhere.db".into()), self.folder.path());
        drivers.sink(&Secret::new(self.url())).await.unwrap()
    }

    async fn run(&self, sql: &str) {
        match &self.database {
            None => self.sqlite().execute_batch(sql).unwrap(),
            Some(database) => database.client().await.batch_execute(sql).await.unwrap(),
        }
    }

    fn sqlite(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.folder.path().join("s.db")).unwrap()
    }

    /// One text for each row.
    async fn texts(&self, sql: &str) -> Vec<String> {
        match &self.database {
            None => {
                let connection = self.sqlite();
                let mut statement = connection.prepare(sql).unwrap();
                statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
            }
            Some(database) => {
                let rows = database.client().await.query(sql, &[]).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
        }
    }

    /// Whether the table of these tests has a column.
    async fn has_column(&self, name: &str) -> bool {
        let text = match self.database {
            None => format!("select name from pragma_table_info('issue') where name = '{name}'"),
            Some(_) => format!(
                "select column_name::text from information_schema.columns
                 where table_name = 'issue' and column_name = '{name}'"
            ),
        };
        !self.texts(&text).await.is_empty()
    }

    async fn remove(self) {
        if let Some(database) = self.database {
            database.remove().await;
        }
    }
}

fn owner() -> Owner {
    Owner { tenant: "acme".to_owned(), project: "core".to_owned(), directive: "issues".to_owned() }
}

fn table() -> Table {
    let column = |name: &str, kind| Column { name: name.to_owned(), kind };
    Table {
        name: "issue".to_owned(),
        columns: vec![
            column("title", ColumnType::Text),
            column("size", ColumnType::Integer),
            column("share", ColumnType::Float),
            column("open", ColumnType::Boolean),
            column("at", ColumnType::Timestamp),
            column("more", ColumnType::Json),
        ],
    }
}

fn item(id: u32, content: u8) -> Item {
    let body = to_raw_value(&json!({ "id": id, "content": content })).unwrap();
    let columns = vec![
        Value::Text(format!("ü {content}")),
        Value::Integer(i64::MAX),
        if id.is_multiple_of(2) { Value::Null } else { Value::Float(0.1) },
        Value::Boolean(true),
        Value::Timestamp("2026-01-02T03:04:05.678901Z".parse().unwrap()),
        Value::Json(to_raw_value(&json!([1, "a"])).unwrap()),
    ];
    Item { entity_id: format!("e{id}"), hash: [content; 32], body, columns }
}

fn counts(created: u64, updated: u64, unchanged: u64) -> Counts {
    Counts { created, updated, unchanged, failed: 0 }
}

const ROWS: &str = "select entity_id || ' ' || version || ' ' || title from issue order by entity_id";

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_created_updated_and_left_alone_as_in_the_store() {
    for place in Place::both().await {
        let sink = place.sink().await;
        let first = vec![item(1, 1), item(2, 1), item(3, 1)];
        assert_eq!(sink.upsert(&owner(), 1, &table(), first.clone()).await.unwrap(), counts(3, 0, 0));
        assert_eq!(
            sink.upsert(&owner(), 1, &table(), first.clone()).await.unwrap(),
            counts(0, 0, 3),
            "written again"
        );
        let second = vec![item(2, 2), item(3, 1), item(4, 1)];
        assert_eq!(sink.upsert(&owner(), 1, &table(), second.clone()).await.unwrap(), counts(1, 1, 1));
        // Another process, which knows nothing of the table yet.
        let other = place.sink().await;
        assert_eq!(other.upsert(&owner(), 1, &table(), second.clone()).await.unwrap(), counts(0, 0, 3));
        assert_eq!(place.texts(ROWS).await, ["e1 1 ü 1", "e2 2 ü 2", "e3 1 ü 1", "e4 1 ü 1"]);
        let another = Owner { directive: "others".to_owned(), ..owner() };
        assert_eq!(sink.upsert(&another, 1, &table(), first.clone()).await.unwrap(), counts(3, 0, 0));
        assert_eq!(sink.upsert(&owner(), 1, &table(), vec![]).await.unwrap(), counts(0, 0, 0));
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_are_added_when_they_are_named_and_a_dropped_table_is_made_anew() {
    for place in Place::both().await {
        let sink = place.sink().await;
        let mut narrow = table();
        narrow.columns.truncate(1);
        let mut one = item(1, 1);
        one.columns.truncate(1);
        assert_eq!(sink.upsert(&owner(), 1, &narrow, vec![one]).await.unwrap(), counts(1, 0, 0));
        assert_eq!(sink.upsert(&owner(), 1, &table(), vec![item(1, 2)]).await.unwrap(), counts(0, 1, 0));
        place.run("drop table issue").await;
        assert_eq!(sink.upsert(&owner(), 1, &table(), vec![item(1, 2)]).await.unwrap(), counts(1, 0, 0));
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_somebody_else_is_refused_and_left_as_it_is() {
    for place in Place::both().await {
        place.run("create table issue (title text); insert into issue values ('mine')").await;
        let error = place.sink().await.upsert(&owner(), 1, &table(), vec![item(1, 1)]).await.unwrap_err();
        assert_eq!((error.class, error.code), (ErrorClass::Fatal, "SINK_REFUSED"), "{error}");
        assert!(error.message.contains("name another table"), "{error}");
        assert_eq!(place.texts("select title from issue").await, ["mine"]);
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_not_there_afterwards_is_rolled_back() {
    let [sqlite, postgres] = Place::both().await;
    for place in [&sqlite, &postgres] {
        place.sink().await.upsert(&owner(), 1, &table(), vec![item(1, 1)]).await.unwrap();
    }
    sqlite
        .run(
            "create trigger t after insert on issue when new.entity_id = 'e3'
             begin update issue set hash = 'x' where entity_id = 'e3'; end",
        )
        .await;
    postgres
        .run(
            "create function f() returns trigger language plpgsql as
             'begin if new.entity_id = ''e3'' then new.hash = ''x''; end if; return new; end';
             create trigger t before insert on issue for each row execute function f()",
        )
        .await;
    for place in [sqlite, postgres] {
        let items = vec![item(2, 1), item(3, 1)];
        let error = place.sink().await.upsert(&owner(), 1, &table(), items.clone()).await.unwrap_err();
        assert_eq!((error.class, error.code), (ErrorClass::Fatal, "SINK_COUNTS"), "{error}");
        assert_eq!(place.texts(ROWS).await, ["e1 1 ü 1"], "nothing of the batch stays");
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_stands_twice_is_refused_before_anything_is_written() {
    for place in Place::both().await {
        let error =
            place.sink().await.upsert(&owner(), 1, &table(), vec![item(1, 1), item(1, 2)]).await.unwrap_err();
        assert_eq!((error.class, error.code), (ErrorClass::Fatal, "SINK_REFUSED"), "{error}");
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_holder_of_the_lease_is_refused_and_changes_nothing() {
    const FENCES: &str = "select tenant_id || '/' || project_id || '/' || directive || ' ' || version
                          from stargate_fence order by 1";
    for place in Place::both().await {
        let (paused, sink) = (place.sink().await, place.sink().await);
        assert_eq!(paused.upsert(&owner(), 5, &table(), vec![item(1, 1)]).await.unwrap(), counts(1, 0, 0));
        assert_eq!(sink.upsert(&owner(), 7, &table(), vec![item(1, 2)]).await.unwrap(), counts(0, 1, 0));
        // The paused one knows the table; another one would have to widen it first, which must not stay either.
        let mut wider = table();
        wider.columns.push(Column { name: "late".to_owned(), kind: ColumnType::Text });
        let mut late = item(2, 1);
        late.columns.push(Value::Null);
        let newcomer = place.sink().await;
        let refused = [
            paused.upsert(&owner(), 5, &table(), vec![item(1, 1), item(2, 1)]).await.unwrap_err(),
            paused.upsert(&owner(), 6, &table(), Vec::new()).await.unwrap_err(),
            newcomer.upsert(&owner(), 6, &wider, vec![late]).await.unwrap_err(),
        ];
        for error in refused {
            assert_eq!((error.class, error.code), (ErrorClass::Conflict, "SINK_FENCED"), "{error}");
            assert!(error.message.contains("nothing was written"), "{error}");
            assert!(error.message.contains("from the table stargate_fence"), "{error}");
        }
        assert_eq!(place.texts(ROWS).await, ["e1 2 ü 2"]);
        assert_eq!(place.texts(FENCES).await, ["acme/core/issues 7"]);
        assert!(!place.has_column("late").await);
        // The same one goes on, and so does whoever comes after it; others are not concerned.
        assert_eq!(sink.upsert(&owner(), 7, &table(), vec![item(1, 3)]).await.unwrap(), counts(0, 1, 0));
        assert_eq!(paused.upsert(&owner(), 8, &table(), vec![item(2, 1)]).await.unwrap(), counts(1, 0, 0));
        let another = Owner { tenant: "other".to_owned(), ..owner() };
        assert_eq!(sink.upsert(&another, 1, &table(), vec![item(1, 1)]).await.unwrap(), counts(1, 0, 0));
        assert_eq!(place.texts(FENCES).await, ["acme/core/issues 8", "other/core/issues 1"]);
        // What the message says to do when the store was set up anew.
        place.run("delete from stargate_fence where tenant_id = 'acme'").await;
        assert_eq!(sink.upsert(&owner(), 1, &table(), vec![item(2, 1)]).await.unwrap(), counts(0, 0, 1));
        place.run("drop table stargate_fence").await;
        assert_eq!(sink.upsert(&owner(), 2, &table(), vec![item(2, 1)]).await.unwrap(), counts(0, 0, 1));
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_fails_does_not_raise_the_fence() {
    for place in Place::both().await {
        let sink = place.sink().await;
        sink.upsert(&owner(), 1, &table(), vec![item(1, 1)]).await.unwrap();
        place.run("create unique index titles on issue (title)").await;
        sink.upsert(&owner(), 9, &table(), vec![item(2, 1)]).await.unwrap_err();
        place.run("drop index titles").await;
        assert_eq!(sink.upsert(&owner(), 2, &table(), vec![item(2, 1)]).await.unwrap(), counts(1, 0, 0));
        place.remove().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_holder_that_waits_for_a_newer_one_is_refused_when_that_has_committed() {
    let [_, place] = Place::both().await;
    let sink = place.sink().await;
    sink.upsert(&owner(), 5, &table(), vec![item(1, 1)]).await.unwrap();
    let database = place.database.as_ref().unwrap();
    let mut holder = database.client().await;
    let newer = holder.transaction().await.unwrap();
    newer
        .batch_execute("update stargate_fence set version = 7; update issue set title = 'newer'")
        .await
        .unwrap();
    let release = async {
        eventually(PATIENCE, "a batch that waits for the fence", || async {
            let waiting = "select count(*) from pg_stat_activity
                           where datname = current_database() and wait_event_type = 'Lock'";
            let waiting: i64 = database.client().await.query_one(waiting, &[]).await.unwrap().get(0);
            if waiting == 1 { Ok(()) } else { Err(format!("{waiting} wait")) }
        })
        .await;
        newer.commit().await.unwrap();
    };
    let (owner, table) = (owner(), table());
    let (written, ()) = tokio::join!(sink.upsert(&owner, 5, &table, vec![item(1, 2)]), release);
    let error = written.unwrap_err();
    assert_eq!((error.class, error.code), (ErrorClass::Conflict, "SINK_FENCED"), "{error}");
    assert_eq!(place.texts(ROWS).await, ["e1 1 newer"]);
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_transient_and_the_sink_goes_on_when_it_is_back() {
    let [_, place] = Place::both().await;
    let mut url = url::Url::parse(&place.url()).unwrap();
    let target = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(5432));
    let proxy = Proxy::start(&target).await;
    let address: std::net::SocketAddr = proxy.address().parse().unwrap();
    url.set_ip_host(address.ip()).unwrap();
    url.set_port(Some(address.port())).unwrap();
    url.set_password(Some("hunter2")).unwrap();
    let drivers = Drivers::new(Own::Sqlite("nowhere.db".into()), place.folder.path());
    let sink = drivers.sink(&Secret::new(url)).await.unwrap();
    assert_eq!(sink.upsert(&owner(), 1, &table(), vec![item(1, 1)]).await.unwrap(), counts(1, 0, 0));
    proxy.cut();
    let error: SourceError = sink.upsert(&owner(), 1, &table(), vec![item(2, 1)]).await.unwrap_err();
    assert_eq!((error.class, error.code), (ErrorClass::RetryableTransient, "SINK_UNREACHABLE"), "{error}");
    assert!(!format!("{error} {error:?} {sink:?}").contains("hunter2"));
    proxy.forward();
    assert_eq!(
        sink.upsert(&owner(), 1, &table(), vec![item(1, 1), item(2, 1)]).await.unwrap(),
        counts(1, 0, 1)
    );
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_cut_off_in_the_middle_leaves_nothing_and_the_next_try_writes_it() {
    let [_, place] = Place::both().await;
    let sink = place.sink().await;
    sink.upsert(&owner(), 1, &table(), vec![item(1, 1)]).await.unwrap();
    // Rows can be read and not be written: the batch stops between the two.
    let database = place.database.as_ref().unwrap();
    let mut holder = database.client().await;
    let lock = holder.transaction().await.unwrap();
    lock.batch_execute("lock table issue in share row exclusive mode").await.unwrap();
    let (owner, table, batch) = (owner(), table(), vec![item(1, 2), item(2, 1)]);
    let kill = async {
        eventually(PATIENCE, "a batch that waits for the lock", || async {
            let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                       where datname = current_database() and wait_event_type = 'Lock'";
            let ended: i64 = database.client().await.query_one(end, &[]).await.unwrap().get(0);
            if ended == 1 { Ok(()) } else { Err(format!("{ended} wait")) }
        })
        .await;
    };
    let (written, ()) = tokio::join!(sink.upsert(&owner, 1, &table, batch.clone()), kill);
    let error = written.unwrap_err();
    assert_eq!((error.class, error.code), (ErrorClass::RetryableTransient, "SINK_UNREACHABLE"), "{error}");
    lock.rollback().await.unwrap();
    assert_eq!(place.texts(ROWS).await, ["e1 1 ü 1"]);
    assert_eq!(sink.upsert(&owner, 1, &table, batch.clone()).await.unwrap(), counts(1, 1, 0));
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_write_and_a_file_that_cannot_be_are_refused() {
    let [sqlite, postgres] = Place::both().await;
    let role = format!("writer_{}", std::process::id());
    postgres.run(&format!("create role {role} login; revoke create on schema public from public")).await;
    let mut url = url::Url::parse(&postgres.url()).unwrap();
    url.set_username(&role).unwrap();
    let nowhere = sqlite.folder.path().join("no/such/folder.db");
    for url in [url.to_string(), format!("sqlite:{}", nowhere.display())] {
        let drivers = Drivers::new(Own::Sqlite("nowhere.db".into()), sqlite.folder.path());
        let sink = drivers.sink(&Secret::new(url)).await.unwrap();
        let error = sink.upsert(&owner(), 1, &table(), vec![item(1, 1)]).await.unwrap_err();
        assert_eq!((error.class, error.code), (ErrorClass::Fatal, "SINK_REFUSED"), "{error}");
    }
    postgres.run(&format!("drop role {role}")).await;
    postgres.remove().await;
}
