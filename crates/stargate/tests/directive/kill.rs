//! Workers that are killed: at every step, between pages, anywhere.

use std::time::Duration;

use rand::RngExt as _;
use stargate_testkit::eventually;
use stargate_testkit::process::Running;
use stargate_testkit::source_server::SourceServer;

use crate::stage::{Kind, PATIENCE, Stage, Wishes, total};

/// For the long form: kills per store.
const KILLS: &str = "STARGATE_TEST_DIRECTIVE_KILLS";

/// Rows are those of the source, each announced once, and the counts add up to what there is.
async fn assert_exactly_once(stage: &Stage, items: u64) {
    stage.assert_equal_to_the_source().await;
    let outbox = stage.own("directive_outbox");
    let announced =
        stage.query(&format!("select key, count(*) from {outbox} group by key having count(*) > 1")).await;
    assert!(announced.is_empty(), "announced twice: {announced:?}");
    assert_eq!(stage.number(&format!("select count(*) from {outbox}")).await, items);
    assert_eq!(stage.number("select count(*) from items where version <> 1").await, 0);
    let run = stage.last_run().unwrap();
    assert_eq!((run["created"].as_u64(), total(&run)), (Some(items), items), "{run}");
    let cursor = &run["cursor"];
    assert_eq!(
        (&cursor["source_pointer"], cursor["processed_count"].as_u64()),
        (&serde_json::Value::Null, Some(items))
    );
    let show = stage.json(&["cursor", "show", "issues"]);
    assert_eq!(show["cursor"]["value"], *cursor);
    assert_eq!(show["partial"], serde_json::Value::Null);
}

async fn died(worker: &mut Running) {
    eventually(PATIENCE, "the worker to die", || {
        let answer = if worker.is_running() { Err("lives".to_owned()) } else { Ok(()) };
        async { answer }
    })
    .await;
}

async fn killed_at_every_step(kind: Kind) {
    let stage = Stage::new(kind, SourceServer::start(700)).await;
    stage.enqueue();
    for at in [
        "AcquireContext",
        "ResolveCursor",
        "FetchSourceData",
        "FetchSourceData:2",
        "Transform",
        "Transform:2",
        "Persist",
        "Persist:2",
        "AdvanceCursor",
        "AdvanceCursor:2",
        "Finalize",
    ] {
        let mut worker = stage.program.start_with(&["worker"], &[("STARGATE_TEST_DIE_AT_STEP", at)]);
        died(&mut worker).await;
    }
    let mut worker = stage.worker();
    worker.ready().await;
    stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_exactly_once(&stage, 700).await;
    stage.remove().await;
}

#[tokio::test]
async fn a_worker_killed_at_every_step_leaves_rows_and_cursor_that_agree_on_sqlite() {
    killed_at_every_step(Kind::Sqlite).await;
}

#[tokio::test]
async fn a_worker_killed_at_every_step_leaves_rows_and_cursor_that_agree_on_postgres() {
    killed_at_every_step(Kind::Postgres).await;
}

#[tokio::test]
async fn a_worker_killed_after_each_page_fetches_no_page_twice() {
    let wishes = Wishes { top: "concurrency = 1", ..Wishes::default() };
    let stage = Stage::wishing(Kind::Sqlite, SourceServer::start(500), &wishes).await;
    stage.enqueue();
    for page in 1..=5 {
        let mut worker =
            stage.program.start_with(&["worker"], &[("STARGATE_TEST_DIE_AT_STEP", "AdvanceCursor")]);
        died(&mut worker).await;
        assert_eq!(stage.last_run().unwrap()["pages"], page);
    }
    let before = stage.server.request_count();
    let mut worker = stage.worker();
    worker.ready().await;
    stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_eq!(stage.server.request_count(), before, "the source had ended");
    assert_exactly_once(&stage, 500).await;
    stage.remove().await;
}

/// Kills at moments that nobody chose, until so many hit a run that was under way.
async fn killed_anywhere(kind: Kind) {
    let long: Option<u64> = std::env::var(KILLS).ok().map(|kills| kills.parse().expect(KILLS));
    let (kills, items) = long.map_or((6, 3000), |kills| (kills, 20_000));
    let server = SourceServer::start(items);
    // Slow enough that a run outlives its workers.
    server.script(|_| Some(stargate_testkit::source_server::Fault::Delay(Duration::from_millis(5))));
    let stage = Stage::wishing(kind, server, &Wishes { top: "page_size = 50", ..Wishes::default() }).await;
    stage.enqueue();
    let (mut hit, mut before) = (0, 0);
    while hit < kills {
        let mut worker = stage.worker();
        worker.ready().await;
        // A few requests further, and then some.
        let goal = before + rand::rng().random_range(1..=(items / 50 / kills.max(2)).max(2));
        eventually(PATIENCE, "a few more requests", async || {
            let count = stage.server.request_count();
            if count >= goal || stage.last_run().is_some_and(|run| run["outcome"] == "succeeded") {
                Ok(())
            } else {
                Err(count.to_string())
            }
        })
        .await;
        std::thread::sleep(Duration::from_micros(rand::rng().random_range(0..8000)));
        worker.kill();
        before = stage.server.request_count();
        if stage.last_run().is_some_and(|run| run["outcome"] == "succeeded") {
            break;
        }
        hit += 1;
    }
    let mut worker = stage.worker();
    worker.ready().await;
    stage.run_is(|run| run["outcome"] == "succeeded").await;
    println!("{kind:?}: {hit} kills over {items} items, {} requests", stage.server.request_count());
    assert_exactly_once(&stage, items).await;
    stage.remove().await;
}

#[tokio::test]
async fn workers_killed_anywhere_neither_lose_nor_repeat_anything_on_sqlite() {
    killed_anywhere(Kind::Sqlite).await;
}

#[tokio::test]
async fn workers_killed_anywhere_neither_lose_nor_repeat_anything_on_postgres() {
    killed_anywhere(Kind::Postgres).await;
}
