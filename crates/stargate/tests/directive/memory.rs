//! Items that are far larger than usual: what a worker takes for them.

use std::time::Instant;

use serde_json::Value;
use stargate_testkit::eventually;
use stargate_testkit::process::Running;
use stargate_testkit::source_server::{Data, SourceServer};

use crate::stage::{Kind, PATIENCE, Stage, Wishes};
use crate::steps::{field, records};

/// For the long form: how much the source has.
const GIB: &str = "STARGATE_TEST_DIRECTIVE_GIB";
const ITEM_BYTES: usize = 1_000_000;
/// What the source has in the short form.
const ITEMS: u64 = 300;
/// The worker's resident memory at its highest.
const WORKER_MAX: u64 = 200_000_000;
/// What one batch may hold.
const BATCH_MAX: u64 = 50_000_000;

fn large(count: u64) -> SourceServer {
    let filling = "x".repeat(ITEM_BYTES);
    let mut data = Data::generated(count, move |id, _| {
        format!(r#"{{"id":{id},"title":"item {id}","filling":"{filling}"}}"#)
    });
    data.page_max = usize::MAX;
    SourceServer::with_data(data)
}

/// The resident memory of a process at its highest so far.
fn high_water(process: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
    kib * 1024
}

/// Items that the log says were written together.
fn batches(log: &str) -> Vec<u64> {
    let all = records(log);
    let persisted = all.iter().filter(|record| field(record, "step") == "Persist");
    persisted.map(|record| record.get("fields").unwrap_or(record)["created"].as_u64().unwrap_or(0)).collect()
}

async fn large_items(kind: Kind) {
    let gib: Option<u64> = std::env::var(GIB).ok().map(|gib| gib.parse().expect(GIB));
    let items = gib.map_or(ITEMS, |gib| gib * 1024 * 1024 * 1024 / ITEM_BYTES as u64);
    let wishes = Wishes { top: "page_size = 500", ..Wishes::default() };
    let stage = Stage::wishing(kind, large(items), &wishes).await;
    // Nobody dies here: a worker that is only slow is to keep its run.
    std::fs::write(stage.file("stargate.toml"), "[worker]\nlease = \"60s\"\npoll = \"200ms\"\n").unwrap();
    let mut worker = stage.worker();
    worker.ready().await;
    let idle = high_water(&worker);
    let begin = Instant::now();
    stage.enqueue();
    // As long as it gets on.
    let mut before = 0;
    let run: Value = loop {
        let run =
            stage.run_is(|run| run["outcome"].is_string() || run["created"].as_u64() > Some(before)).await;
        before = run["created"].as_u64().unwrap();
        if run["outcome"].is_string() {
            break run;
        }
    };
    assert_eq!((&run["outcome"], run["created"].as_u64()), (&"succeeded".into(), Some(items)), "{run}");
    let took = begin.elapsed();
    let batches = batches(&worker.log());
    let (peak, batch) = (high_water(&worker), batches.iter().max().copied().unwrap_or(0) * ITEM_BYTES as u64);
    let sizes: Vec<String> = stage
        .server
        .requests()
        .iter()
        .take(8)
        .map(|request| request.param("limit").unwrap_or_default().to_owned())
        .collect();
    println!(
        "{kind:?}: {items} items of {ITEM_BYTES} bytes in {took:?}: resident {} MB at most ({} MB before the run), \
         {} batches of {} MB at most, pages of {}",
        peak / 1_000_000,
        idle / 1_000_000,
        batches.len(),
        batch / 1_000_000,
        sizes.join(", ")
    );
    assert_eq!(batches.iter().sum::<u64>(), items, "every batch is in the log");
    assert!(batch < BATCH_MAX, "a batch of {batch} bytes");
    assert!(peak < WORKER_MAX, "{peak} bytes resident");
    assert_eq!(stage.number("select count(*) from items").await, items);
    // What was spilled is gone.
    eventually(PATIENCE, "an empty scratch folder", async || {
        let left: Vec<_> = std::fs::read_dir(stage.file("scratch")).into_iter().flatten().flatten().collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    stage.remove().await;
}

#[tokio::test]
async fn large_items_do_not_fill_the_memory_of_the_worker_on_sqlite() {
    large_items(Kind::Sqlite).await;
}

#[tokio::test]
async fn large_items_do_not_fill_the_memory_of_the_worker_on_postgres() {
    large_items(Kind::Postgres).await;
}
