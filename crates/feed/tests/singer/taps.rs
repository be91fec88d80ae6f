//! Real taps, as they come from PyPI (`cargo xtask services` installs them).

use std::time::Instant;

use serde_json::{Value, json};
use stargate_directive::Pointer;
use stargate_directive::source::Feed;
use stargate_testkit::postgres::Database;
use stargate_testkit::source_server::SourceServer;

use crate::bench::{Bench, Log, Seen, page, read};

/// A tap's program. Without it the test fails and says how to get it: a suite is never skipped.
fn program(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("no Singer tap for tests: run `cargo xtask test`, or `cargo xtask services start` and export what it prints ({variable})")
    })
}

fn ids(pages: &[Seen]) -> Vec<u64> {
    let id = |record: &String| serde_json::from_str::<Value>(record).unwrap()["id"].as_u64().unwrap();
    pages.iter().flat_map(|page| &page.records).map(id).collect()
}

async fn all(feed: Box<dyn Feed>, size: u32) -> Vec<Seen> {
    let mut feed = feed;
    let (begin, (pages, error)) = (Instant::now(), read(&mut *feed, size).await);
    feed.close().await;
    assert!(error.is_none(), "{error:?}");
    tracing::info!(records = ids(&pages).len(), took = ?begin.elapsed(), "read");
    pages
}

#[tokio::test]
async fn tap_jsonl_gives_every_line_once_and_its_bookmark() {
    const COUNT: u64 = 2500;
    let log = Log::listen();
    let bench = Bench::new();
    let lines: String =
        (0..COUNT).map(|id| format!("{}\n", json!({"id": id, "title": format!("Zeile {id} ä")}))).collect();
    bench.write("items.jsonl", &lines);
    let source = format!(
        "command = [\"{}\"]\nconfig = {{ path = \"items.jsonl\", stream_name = \"items\", primary_keys = [\"id\"] }}",
        program("STARGATE_TEST_TAP_JSONL")
    );
    let pages = all(bench.open_tap(&source, &Pointer::Null).await.unwrap(), 500).await;
    assert_eq!(ids(&pages), (0..COUNT).collect::<Vec<_>>());
    let second: Value = serde_json::from_str(&pages[0].records[1]).unwrap();
    assert_eq!(second["title"], "Zeile 1 ä");
    let state = pages.last().unwrap().next.clone().unwrap();
    assert!(state["bookmarks"]["items"].is_object(), "{state}");
    let log = log.text();
    assert!(
        log.contains("tap=\"tap-jsonl\"") && log.contains("Beginning sync"),
        "its stderr is in the log: {log}"
    );

    // Nothing has changed since: the tap takes its state back and goes through.
    let again = all(bench.open_tap(&source, &state).await.unwrap(), 500).await;
    assert!(again.last().unwrap().is_last);
}

#[tokio::test]
async fn tap_rest_api_reads_a_paged_api_with_a_token_from_the_environment() {
    const COUNT: u64 = 250;
    let server = SourceServer::start(COUNT);
    let bench = Bench::new().set("API_TOKEN", "token-of-the-test");
    let source = format!(
        "command = [\"{}\"]\nstream = \"items\"\n[source.config]\napi_url = \"{}\"\n\
         next_page_token_path = \"$.next\"\npagination_next_page_param = \"after\"\n\
         headers = {{ Authorization = \"Bearer ${{env:API_TOKEN}}\" }}\n\
         streams = [{{ name = \"items\", path = \"/items\", records_path = \"$.items[*]\", primary_keys = [\"id\"], \
         params = {{ limit = 100 }} }}]",
        program("STARGATE_TEST_TAP_REST"),
        server.origin()
    );
    let pages = all(bench.open_tap(&source, &Pointer::Null).await.unwrap(), 100).await;
    let mut seen = ids(&pages);
    seen.sort_unstable();
    assert_eq!(seen, (0..COUNT).collect::<Vec<_>>());
    let requests = server.requests();
    assert!(requests.len() >= 3, "{requests:?}");
    let token = Some("Bearer token-of-the-test");
    assert!(requests.iter().all(|request| request.header("authorization") == token), "{requests:?}");
}

/// One table, incremental by a column, as `--discover` writes it and an operator selects it.
const CATALOG: &str = r#"{"streams":[{"tap_stream_id":"public-items","stream":"public-items","table_name":"items",
"replication_method":"INCREMENTAL","replication_key":"updated_at","key_properties":["id"],
"schema":{"type":"object","properties":{"id":{"type":["integer"]},"title":{"type":["string","null"]},
"updated_at":{"type":["string"],"format":"date-time"}}},
"metadata":[{"breadcrumb":[],"metadata":{"selected":true,"schema-name":"public","table-key-properties":["id"],
"replication-method":"INCREMENTAL","replication-key":"updated_at"}}]}]}"#;

#[tokio::test]
async fn tap_postgres_goes_on_at_its_state_after_it_was_cut_off() {
    // It says a state after each 10,000 records.
    const STATE_AFTER: u64 = 10_000;
    const COUNT: u64 = 12_000;
    let database = Database::create_empty().await;
    let client = database.client().await;
    client
        .batch_execute(&format!(
            "create table items (id bigint primary key, title text, updated_at timestamptz not null);
             insert into items select n, 'item ' || n, timestamptz '2026-01-01' + n * interval '1 second'
             from generate_series(1, {COUNT}) n"
        ))
        .await
        .unwrap();
    let at = url::Url::parse(database.url()).unwrap();
    let bench = Bench::new().set("PG_PASSWORD", "not-asked-for");
    bench.write("catalog.json", CATALOG);
    let source = format!(
        "command = [\"{}\"]\ncatalog = \"catalog.json\"\nconfig = {{ host = \"{}\", port = {}, user = \"{}\", \
         password = \"${{env:PG_PASSWORD}}\", database = \"{}\", filter_schemas = [\"public\"] }}",
        program("STARGATE_TEST_TAP_POSTGRES"),
        at.host_str().unwrap(),
        at.port().unwrap(),
        at.username(),
        at.path().trim_start_matches('/')
    );
    let mut feed = bench.open_tap(&source, &Pointer::Null).await.unwrap();
    let mut pages = Vec::new();
    while pages.last().is_none_or(|page: &Seen| page.next.is_none()) {
        pages.push(page(&mut *feed, 400).await.unwrap());
    }
    feed.close().await;
    assert_eq!(
        ids(&pages),
        (1..=STATE_AFTER).collect::<Vec<_>>(),
        "all before the state, and nothing after it"
    );

    let state = pages.last().unwrap().next.clone().unwrap();
    let rest = all(bench.open_tap(&source, &state).await.unwrap(), 500).await;
    // Its bookmark is inclusive: the row at it comes again.
    assert_eq!(ids(&rest), (STATE_AFTER..=COUNT).collect::<Vec<_>>());
    let end = rest.last().unwrap().next.clone().unwrap();
    assert_ne!(end, state);

    client
        .batch_execute("update items set title = 'new', updated_at = timestamptz '2026-02-01' where id = 7")
        .await
        .unwrap();
    let changed = all(bench.open_tap(&source, &end).await.unwrap(), 500).await;
    assert_eq!(ids(&changed), [COUNT, 7]);
    drop(client);
    database.remove().await;
}
