//! Every kind of source and sink, from one end to the other.

use std::path::Path;
use std::time::Duration;

use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::source_server::{Fault, SourceServer};

use crate::stage::{Kind, PATIENCE, Stage, Wishes, total};

const INCREMENTAL: &str = "mode = \"incremental\"";

/// A stage whose source is not its server.
async fn staged(kind: Kind, top: &'static str, source: &str) -> Stage {
    let wishes = Wishes { top, source: Some(source.to_owned()), ..Wishes::default() };
    Stage::wishing(kind, SourceServer::start(0), &wishes).await
}

impl Stage {
    /// The rows are the numbers of a range with their titles, each written once.
    async fn assert_has(&self, count: u64) {
        let rows = self.query("select number, title, version from items order by number").await;
        assert_eq!(rows.len() as u64, count);
        for (number, row) in (1..).zip(&rows) {
            assert_eq!(row[..], [number.to_string(), format!("item {number}"), "1".to_owned()]);
        }
    }

    /// A worker dies at a step, and the next one ends the run.
    async fn killed_at(&self, step: &str) -> serde_json::Value {
        self.enqueue();
        let mut worker = self.program.start_with(&["worker"], &[("STARGATE_TEST_DIE_AT_STEP", step)]);
        eventually(PATIENCE, "the worker to die", || {
            let answer = if worker.is_running() { Err(worker.log()) } else { Ok(()) };
            async { answer }
        })
        .await;
        assert!(self.last_run().unwrap()["outcome"].is_null(), "it died in mid-run");
        let mut next = crate::retries::ready_worker(self).await;
        let run = self.run_is(|run| run["outcome"] == "succeeded").await;
        // So that the next run does not wait for it.
        next.terminate();
        next.ended(PATIENCE).await;
        run
    }
}

fn append(path: &Path, text: &str) {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Lines of a format, one of them broken.
fn lines(format: &str, numbers: std::ops::RangeInclusive<u64>) -> String {
    let line = |number: u64| match format {
        "csv" => format!("{number},\"item {number}\"\n"),
        _ => format!("{{\"id\":{number},\"title\":\"item {number}\"}}\n"),
    };
    numbers.map(line).collect()
}

async fn file(kind: Kind, format: &str) {
    let name = format!("items.{format}");
    let stage = staged(kind, INCREMENTAL, &format!("type = \"file\"\npath = \"{name}\"")).await;
    let path = stage.file("directives").join(&name);
    if format == "csv" {
        append(&path, "id,title\n");
    }
    append(&path, &lines(format, 1..=250));
    append(&path, if format == "csv" { "no number,\"broken\"\n" } else { "{\"id\":\n" });
    append(&path, &lines(format, 251..=430));
    let run = stage.killed_at("AdvanceCursor:2").await;
    assert_eq!((&run["created"], &run["failed"], total(&run)), (&430.into(), &1.into(), 431), "{run}");
    stage.assert_has(430).await;
    let aside = stage.json(&["quarantine", "list", "issues"]);
    assert_eq!(aside.as_array().unwrap().len(), 1, "{aside}");
    // The second run reads what was added.
    append(&path, &lines(format, 431..=440));
    let run = stage.run();
    assert_eq!((&run["created"], total(&run)), (&10.into(), 10), "{run}");
    stage.assert_has(440).await;
    stage.remove().await;
}

#[tokio::test]
async fn a_file_of_json_lines_is_ingested_and_then_what_was_added_on_sqlite() {
    file(Kind::Sqlite, "jsonl").await;
}

#[tokio::test]
async fn a_file_of_comma_separated_values_is_ingested_and_then_what_was_added_on_postgres() {
    file(Kind::Postgres, "csv").await;
}

/// A query of another database; `write` executes a statement there.
async fn query(stage: Stage, write: impl AsyncFn(String)) {
    write("create table people (id bigint primary key, title text, seen bigint not null)".to_owned()).await;
    let rows = |numbers: std::ops::RangeInclusive<u64>| {
        let row = |number| format!("({number}, 'item {number}', {})", number * 10);
        let rows: Vec<String> = numbers.map(row).collect();
        format!("insert into people (id, title, seen) values {}", rows.join(", "))
    };
    write(rows(1..=430)).await;
    let run = stage.killed_at("AdvanceCursor:3").await;
    // Whoever goes on begins with the last watermark once more: rows may have been added with it.
    assert_eq!((&run["created"], &run["unchanged"], total(&run)), (&430.into(), &1.into(), 431), "{run}");
    stage.assert_has(430).await;
    // The second run reads what is new, and the last row once more.
    write(rows(431..=440)).await;
    let run = stage.run();
    assert_eq!((&run["created"], &run["unchanged"], total(&run)), (&10.into(), &1.into(), 11), "{run}");
    stage.assert_has(440).await;
    // A row that changed comes again, because its watermark rises.
    write("update people set title = 'another', seen = 10000 where id = 7".to_owned()).await;
    let run = stage.run();
    assert_eq!((&run["updated"], &run["unchanged"], total(&run)), (&1.into(), &1.into(), 2), "{run}");
    assert_eq!(stage.query("select title, version from items where number = 7").await, [["another", "2"]]);
    stage.remove().await;
}

const QUERY: &str = "type = \"sql\"\nurl = \"${env:PEOPLE_URL}\"\nquery = \"select id, title, seen from people\"\nwatermark = \"seen\"";

#[tokio::test]
async fn a_query_of_sqlite_is_read_into_postgres_and_then_what_is_new() {
    let stage = staged(Kind::Postgres, INCREMENTAL, QUERY).await;
    let path = stage.file("people.db");
    let stage = stage.with("PEOPLE_URL", &format!("sqlite:{}", path.display()));
    let connection = rusqlite::Connection::open(&path).unwrap();
    query(stage, async |sql| connection.execute_batch(&sql).unwrap()).await;
}

#[tokio::test]
async fn a_query_of_postgres_is_read_into_sqlite_and_then_what_is_new() {
    let database = Database::create_empty().await;
    let stage = staged(Kind::Sqlite, INCREMENTAL, QUERY).await.with("PEOPLE_URL", database.url());
    let client = database.client().await;
    query(stage, async |sql| client.batch_execute(&sql).await.unwrap()).await;
    drop(client);
    database.remove().await;
}

/// The rows go to another database than the cursor: first they, then it.
async fn elsewhere(stage: &Stage, count: impl AsyncFn(&str) -> u64) {
    stage.write(&Wishes { sink: "url = \"${env:ROWS_URL}\"", ..Wishes::default() });
    let text = std::fs::read_to_string(stage.file("directives/issues.toml")).unwrap();
    let text = text.replace("outbox = \"items.changed\"\n", "");
    std::fs::write(stage.file("directives/issues.toml"), text).unwrap();
    // The rows of the second page are there, and nothing here knows of them.
    let run = stage.killed_at("Persist:2").await;
    assert_eq!(run["cursor"]["processed_count"], 450, "{run}");
    assert_eq!(run["failed"], 0);
    assert_eq!(total(&run), 450, "{run}");
    assert_eq!(
        count("select count(*) from items where version = 1 and title = 'item ' || number").await,
        450
    );
    stage.server.edit(|data| data.touch(3));
    let id = stage.server.edit(|data| data.push());
    let run = stage.run();
    assert_eq!(
        (&run["created"], &run["updated"], &run["unchanged"]),
        (&1.into(), &1.into(), &449.into()),
        "{run}"
    );
    assert_eq!(count(&format!("select count(*) from items where number = {id}")).await, 1);
    assert_eq!(count("select max(version) from items").await, 2);
}

#[tokio::test]
async fn rows_go_to_another_database_and_the_cursor_follows_from_sqlite_to_postgres() {
    let database = Database::create_empty().await;
    let stage = Stage::new(Kind::Sqlite, SourceServer::start(450)).await.with("ROWS_URL", database.url());
    let client = database.client().await;
    elsewhere(&stage, async |sql| {
        let row = client.query_one(sql, &[]).await.unwrap();
        u64::try_from(row.get::<_, i64>(0)).unwrap()
    })
    .await;
    drop(client);
    stage.remove().await;
    database.remove().await;
}

#[tokio::test]
async fn rows_go_to_another_database_and_the_cursor_follows_from_postgres_to_sqlite() {
    let stage = Stage::new(Kind::Postgres, SourceServer::start(450)).await;
    let path = stage.file("rows.db");
    let stage = stage.with("ROWS_URL", &format!("sqlite:{}", path.display()));
    elsewhere(&stage, async |sql| {
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap().try_into().unwrap()
    })
    .await;
    stage.remove().await;
}

/// A tap's program. Without it the test fails and says how to get it: a suite is never skipped.
fn tap(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("no Singer tap for tests: run `cargo xtask test`, or `cargo xtask services start` and export what it prints ({variable})")
    })
}

#[tokio::test]
async fn a_tap_that_reads_lines_is_run_as_it_comes() {
    let source = format!(
        "type = \"singer\"\ncommand = [\"{}\"]\nconfig = {{ path = \"items.jsonl\", stream_name = \"items\", primary_keys = [\"id\"] }}",
        tap("STARGATE_TEST_TAP_JSONL")
    );
    let stage = staged(Kind::Sqlite, "", &source).await;
    stage.write(&Wishes { source: Some(source), item: "hash = [\"/title\"]", ..Wishes::default() });
    append(&stage.file("directives/items.jsonl"), &lines("jsonl", 1..=430));
    let run = stage.run();
    assert_eq!((&run["created"], total(&run)), (&430.into(), 430), "{run}");
    stage.assert_has(430).await;
    assert_eq!(stage.run()["unchanged"], 430);
    stage.remove().await;
}

/// One table, incremental by a column, as `--discover` writes it and an operator selects it.
const CATALOG: &str = r#"{"streams":[{"tap_stream_id":"public-people","stream":"public-people","table_name":"people",
"replication_method":"INCREMENTAL","replication_key":"seen","key_properties":["id"],
"schema":{"type":"object","properties":{"id":{"type":["integer"]},"title":{"type":["string","null"]},
"seen":{"type":["integer"]}}},
"metadata":[{"breadcrumb":[],"metadata":{"selected":true,"schema-name":"public","table-key-properties":["id"],
"replication-method":"INCREMENTAL","replication-key":"seen"}}]}]}"#;

#[tokio::test]
async fn a_tap_goes_on_at_its_state_after_a_kill_and_in_the_next_run() {
    // It says a state after each 10,000 records.
    const COUNT: u64 = 11_000;
    let database = Database::create_empty().await;
    let client = database.client().await;
    let fill = |from: u64, to: u64| {
        format!("insert into people select n, 'item ' || n, n from generate_series({from}, {to}) n")
    };
    let table = "create table people (id bigint primary key, title text, seen bigint not null)";
    client.batch_execute(&format!("{table}; {}", fill(1, COUNT))).await.unwrap();
    let at = url::Url::parse(database.url()).unwrap();
    let source = format!(
        "type = \"singer\"\ncommand = [\"{}\"]\ncatalog = \"catalog.json\"\nconfig = {{ host = \"{}\", port = {}, \
         user = \"{}\", password = \"${{env:PG_PASSWORD}}\", database = \"{}\", filter_schemas = [\"public\"] }}",
        tap("STARGATE_TEST_TAP_POSTGRES"),
        at.host_str().unwrap(),
        at.port().unwrap(),
        at.username(),
        at.path().trim_start_matches('/')
    );
    let top = "mode = \"incremental\"\npage_size = 500";
    let stage = staged(Kind::Sqlite, top, &source).await.with("PG_PASSWORD", "not-asked-for");
    std::fs::write(stage.file("directives/catalog.json"), CATALOG).unwrap();
    // In the middle of records of which the tap has not yet said where to go on.
    let run = stage.killed_at("AdvanceCursor:3").await;
    assert_eq!(run["created"], COUNT, "{run}");
    stage.assert_has(COUNT).await;
    let state = stage.json(&["cursor", "show", "issues"])["cursor"]["value"]["source_pointer"].clone();
    assert!(state["bookmarks"]["public-people"].is_object(), "{state}");
    client.batch_execute(&fill(COUNT + 1, COUNT + 5)).await.unwrap();
    let run = stage.run();
    // Its bookmark is inclusive: the row at it comes again.
    assert_eq!((&run["created"], &run["unchanged"], total(&run)), (&5.into(), &1.into(), 6), "{run}");
    stage.assert_has(COUNT + 5).await;
    drop(client);
    stage.remove().await;
    database.remove().await;
}

/// Processes whose working directory is a folder: taps are started in that of their directive.
fn living_in(folder: &Path) -> Vec<String> {
    let folder = folder.canonicalize().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lives = processes
        .filter(|process| std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == folder));
    lives.map(|process| process.file_name().to_string_lossy().into_owned()).collect()
}

async fn gone(folder: &Path) {
    eventually(PATIENCE, "the end of the tap", async || {
        let left = living_in(folder);
        if left.is_empty() { Ok(()) } else { Err(format!("processes {left:?}")) }
    })
    .await;
}

async fn with_a_slow_tap(kind: Kind) -> Stage {
    let server = SourceServer::start(500);
    let source = format!(
        "type = \"singer\"\ncommand = [\"{}\"]\nstream = \"items\"\n[source.config]\napi_url = \"{}\"\n\
         next_page_token_path = \"$.next\"\npagination_next_page_param = \"after\"\n\
         streams = [{{ name = \"items\", path = \"/items\", records_path = \"$.items[*]\", primary_keys = [\"id\"], \
         params = {{ limit = 100 }} }}]",
        tap("STARGATE_TEST_TAP_REST"),
        server.origin()
    );
    let wishes = Wishes {
        top: "page_size = 50",
        source: Some(source),
        item: "hash = [\"/title\"]",
        ..Wishes::default()
    };
    Stage::wishing(kind, server, &wishes).await
}

#[tokio::test]
async fn a_tap_ends_with_the_worker_that_is_killed_and_the_next_one_loses_nothing() {
    let stage = with_a_slow_tap(Kind::Postgres).await;
    stage.server.script(|_| Some(Fault::Delay(Duration::from_millis(300))));
    let mut worker = crate::retries::ready_worker(&stage).await;
    stage.enqueue();
    stage.run_is(|run| run["created"].as_u64() >= Some(50)).await;
    let folder = stage.file("directives");
    assert!(!living_in(&folder).is_empty(), "the tap runs");
    worker.kill();
    gone(&folder).await;
    let _next = crate::retries::ready_worker(&stage).await;
    let run = stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_eq!(run["created"], 500, "{run}");
    stage.assert_equal_to_the_source().await;
    gone(&folder).await;
    stage.remove().await;
}

#[tokio::test]
async fn a_tap_that_hangs_is_ended_with_its_run() {
    let stage = with_a_slow_tap(Kind::Sqlite).await;
    stage.server.fault_at(3, Fault::Hang);
    let _worker = crate::retries::ready_worker(&stage).await;
    stage.enqueue();
    stage.run_is(|run| run["created"].as_u64() >= Some(50)).await;
    let folder = stage.file("directives");
    assert!(!living_in(&folder).is_empty(), "the tap runs");
    let run = stage.json(&["cancel", "issues"]);
    assert_eq!(run["outcome"], "cancelled");
    gone(&folder).await;
    let next = stage.run();
    assert_eq!(total(&next), 500, "{next}");
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}
