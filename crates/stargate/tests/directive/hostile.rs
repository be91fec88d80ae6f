//! Sources that misbehave: how each misbehaviour is treated, that nothing is skipped without a record, and that the rows
//! are those of the source once it behaves.

use std::collections::HashSet;

use serde_json::Value;
use stargate_testkit::source_server::{Data, Fault, SourceServer};

use crate::stage::{Kind, Stage, Wishes, total};

/// Long enough for a source that is well on a busy machine.
const TIMEOUT: &str = "timeout = \"4s\"";
const TOTAL: &str = "total = \"/total\"";

/// How pages are asked for.
const CURSOR: &str = "pagination = { type = \"cursor\", param = \"after\", next = \"/next\" }";
const LINK: &str = "pagination = { type = \"link\" }";
const OFFSET: &str = "pagination = { type = \"offset\", param = \"offset\" }";
const PAGE: &str = "pagination = { type = \"page\", param = \"page\" }";

/// Without a number of items that it asks for.
fn sizeless(server: &SourceServer, paging: &str, more: &str) -> Wishes {
    let source =
        format!("type = \"http\"\nurl = \"{}\"\nrecords = \"/items\"\n{paging}\n{more}", server.url());
    Wishes { source: Some(source), ..Wishes::default() }
}

fn asking(server: &SourceServer, paging: &str, more: &str) -> Wishes {
    sizeless(server, paging, &format!("page_size_param = \"limit\"\n{more}"))
}

async fn staged(kind: Kind, server: SourceServer, paging: &str, more: &str) -> Stage {
    let wishes = asking(&server, paging, more);
    Stage::wishing(kind, server, &wishes).await
}

impl Stage {
    /// Waits for the end of the run of a job.
    async fn ends(&self, job: &str, outcome: &str) -> Value {
        self.run_is(|run| run["run_id"] == job && run["outcome"] == outcome).await
    }

    /// Every change is announced once, and no row was written twice.
    async fn assert_announced_once(&self, items: u64) {
        let outbox = self.own("directive_outbox");
        assert_eq!(self.number(&format!("select count(*) from {outbox}")).await, items, "announcements");
        assert_eq!(self.number("select count(*) from items where version <> 1").await, 0);
    }
}

/// What passes, with its code and the seconds that the run waits.
fn passing() -> Vec<(Fault, &'static str, f64)> {
    vec![
        (Fault::status(429).with_header("retry-after", "9"), "SOURCE_STATUS", 9.0),
        (Fault::status(503), "SOURCE_STATUS", 30.0),
        (Fault::status(500), "SOURCE_STATUS", 30.0),
        (Fault::json(b"\x00\xff\xfe no JSON".to_vec()), "SOURCE_GARBLED", 30.0),
        (Fault::html(), "SOURCE_GARBLED", 30.0),
        (Fault::Truncate, "SOURCE_GARBLED", 30.0),
        (Fault::json("{\"items\":[{\"id\":1,\"title\":\"cut\"},"), "SOURCE_GARBLED", 30.0),
        (Fault::Close, "SOURCE_UNREACHABLE", 30.0),
        (Fault::Hang, "SOURCE_TIMEOUT", 30.0),
        (Fault::HangInside, "SOURCE_TIMEOUT", 30.0),
    ]
}

/// One run, and between any two of its pages something else goes wrong.
async fn everything_that_passes(kind: Kind, paging: &str) {
    const ITEMS: u64 = 1500;
    let stage = staged(kind, SourceServer::start(ITEMS), paging, TIMEOUT).await;
    let faults = passing();
    // Each fault is followed by the same page as it should be.
    for (request, (fault, ..)) in (2..).step_by(2).zip(&faults) {
        stage.server.fault_at(request, fault.clone());
    }
    let worker = crate::retries::ready_worker(&stage).await;
    let job = stage.enqueue();
    let mut before = 0;
    for (attempt, (fault, code, delay)) in (1..).zip(&faults) {
        let waited = stage.waits(&job, attempt).await;
        let expected = ("RetryableTransient".to_owned(), (*code).to_owned(), *delay);
        assert_eq!(waited, expected, "{fault:?}\n{}", worker.log());
        // What the cursor has passed is there, and nothing of the page that failed.
        let run = stage.run_is(|run| run["waiting_for"].is_string()).await;
        let created = run["created"].as_u64().unwrap();
        assert!(created > before, "no page between two faults: {run}");
        assert_eq!(run["cursor"]["processed_count"], created);
        let rows = stage.query("select count(*), max(number) from items").await;
        assert_eq!(rows[0], [created.to_string(), (created - 1).to_string()], "{fault:?}");
        before = created;
        stage.make_due(&job).await;
    }
    let run = stage.ends(&job, "succeeded").await;
    assert_eq!((run["created"].as_u64(), total(&run)), (Some(ITEMS), ITEMS), "{run}");
    stage.assert_equal_to_the_source().await;
    stage.assert_announced_once(ITEMS).await;
    stage.remove().await;
}

#[tokio::test]
async fn what_passes_is_waited_for_and_nothing_is_skipped_by_cursor_on_sqlite() {
    everything_that_passes(Kind::Sqlite, CURSOR).await;
}

#[tokio::test]
async fn what_passes_is_waited_for_and_nothing_is_skipped_by_cursor_on_postgres() {
    everything_that_passes(Kind::Postgres, CURSOR).await;
}

#[tokio::test]
async fn what_passes_is_waited_for_and_nothing_is_skipped_by_link() {
    everything_that_passes(Kind::Sqlite, LINK).await;
}

#[tokio::test]
async fn what_passes_is_waited_for_and_nothing_is_skipped_by_offset() {
    everything_that_passes(Kind::Sqlite, OFFSET).await;
}

#[tokio::test]
async fn what_passes_is_waited_for_and_nothing_is_skipped_by_page() {
    everything_that_passes(Kind::Sqlite, PAGE).await;
}

#[tokio::test]
async fn what_does_not_pass_fails_the_run_at_once_and_the_next_one_goes_on_behind_it() {
    let elsewhere = Fault::status(302).with_header("location", "http://127.0.0.2:1/items");
    let cases = [
        (Fault::status(404), "Fatal", "SOURCE_STATUS"),
        (Fault::status(403), "Fatal", "SOURCE_REFUSED"),
        (elsewhere, "Fatal", "SOURCE_REDIRECT"),
        // Back to where the run began: without end.
        (Fault::json(r#"{"items":[],"next":"99"}"#), "Fatal", "SOURCE_LOOP"),
        (Fault::json(r#"{"items":{"id":1}}"#), "ValidationFailure", "SOURCE_SHAPE"),
        (Fault::json(r#"{"items":[],"next":{"page":2}}"#), "ValidationFailure", "SOURCE_SHAPE"),
    ];
    let stage = staged(Kind::Sqlite, SourceServer::start(300), CURSOR, TIMEOUT).await;
    let _worker = crate::retries::ready_worker(&stage).await;
    // The second page, until all has gone wrong with it that can.
    for (request, (fault, class, code)) in (2..).zip(&cases) {
        stage.server.fault_at(request, fault.clone());
        let job = stage.enqueue();
        let run = stage.ends(&job, "failed").await;
        let error = run["error"].as_str().unwrap();
        assert!(error.starts_with(&format!("{code}: ")), "{fault:?}: {error}");
        let shown: Value =
            serde_json::from_str(&stage.program.answer(&["job", "show", &job, "--json"])).unwrap();
        assert_eq!((&shown["error"]["class"], &shown["error"]["code"]), (&(*class).into(), &(*code).into()));
        assert_eq!(shown["attempt_count"], 1, "it is not tried again");
        assert_eq!(stage.number("select count(*) from items").await, 100);
        let cursor = stage.json(&["cursor", "show", "issues"]);
        assert_eq!(cursor["cursor"]["value"]["processed_count"], 100, "{cursor}");
    }
    let run = stage.run();
    assert_eq!((&run["created"], total(&run)), (&200.into(), 200), "{run}");
    stage.assert_equal_to_the_source().await;
    stage.assert_announced_once(300).await;
    stage.remove().await;
}

async fn repeated(kind: Kind, paging: &str) {
    // Within a page, across its border, and all of it once more.
    let mut data = Data::new(300);
    let twice = data.ids.iter().flat_map(|id| [*id, *id]);
    data.ids = twice.chain(data.ids.iter().rev().copied()).collect();
    let records = data.ids.len() as u64;
    let stage = staged(kind, SourceServer::with_data(data), paging, TOTAL).await;
    let run = stage.run();
    assert_eq!((run["created"].as_u64(), total(&run)), (Some(300), records), "each is accounted for: {run}");
    assert_eq!(run["unchanged"], records - 300);
    stage.assert_equal_to_the_source().await;
    stage.assert_announced_once(300).await;
    stage.remove().await;
}

#[tokio::test]
async fn repeated_records_are_accounted_for_and_written_once_by_offset_on_sqlite() {
    repeated(Kind::Sqlite, OFFSET).await;
}

#[tokio::test]
async fn repeated_records_are_accounted_for_and_written_once_by_page_on_postgres() {
    repeated(Kind::Postgres, PAGE).await;
}

#[tokio::test]
async fn another_order_is_no_change() {
    for paging in [CURSOR, LINK, OFFSET, PAGE] {
        let stage = staged(Kind::Sqlite, SourceServer::start(250), paging, TOTAL).await;
        assert_eq!(stage.run()["created"], 250);
        stage.server.edit(|data| data.ids.reverse());
        let run = stage.run();
        assert_eq!((&run["unchanged"], total(&run)), (&250.into(), 250), "{paging}: {run}");
        stage.assert_equal_to_the_source().await;
        stage.assert_announced_once(250).await;
        stage.remove().await;
    }
}

/// Stops a run of 300 items before its third page, changes the source, and lets it go on.
async fn changed_in_mid_run(stage: &Stage, change: impl FnOnce(&mut Data)) -> String {
    stage.server.fault_at(3, Fault::status(500));
    let job = stage.enqueue();
    stage.waits(&job, 1).await;
    stage.server.edit(change);
    stage.make_due(&job).await;
    job
}

/// Everything that the source has is there; what it has no longer may be.
async fn assert_nothing_is_missing(stage: &Stage) {
    let rows = stage.query("select number from items").await;
    let there: HashSet<u64> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
    let missing: Vec<u64> =
        stage.server.edit(|data| data.ids.iter().copied().filter(|id| !there.contains(id)).collect());
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn records_that_change_places_in_mid_run_are_there_after_the_next_run_at_the_latest() {
    for paging in [OFFSET, PAGE] {
        let stage = staged(Kind::Sqlite, SourceServer::start(300), paging, TOTAL).await;
        let _worker = crate::retries::ready_worker(&stage).await;
        let job = changed_in_mid_run(&stage, |data| data.ids.rotate_right(100)).await;
        let first = stage.ends(&job, "succeeded").await;
        // There are as many as there should be: nobody can tell. But the counts show that something came twice.
        assert_eq!((&first["created"], &first["unchanged"]), (&200.into(), &100.into()), "{paging}: {first}");
        let second = stage.run();
        assert_eq!(
            (&second["created"], &second["unchanged"]),
            (&100.into(), &200.into()),
            "{paging}: {second}"
        );
        stage.assert_equal_to_the_source().await;
        stage.assert_announced_once(300).await;
        stage.remove().await;
    }
    // Behind the last that was read there is nothing any more, and that are too few.
    for paging in [CURSOR, LINK] {
        let stage = staged(Kind::Sqlite, SourceServer::start(300), paging, TOTAL).await;
        let _worker = crate::retries::ready_worker(&stage).await;
        let job = changed_in_mid_run(&stage, |data| data.ids.rotate_right(100)).await;
        assert_eq!(stage.waits(&job, 2).await.1, "SOURCE_INCOMPLETE", "{paging}");
        stage.make_due(&job).await;
        assert_eq!(stage.ends(&job, "succeeded").await["created"], 300, "{paging}");
        stage.assert_equal_to_the_source().await;
        stage.assert_announced_once(300).await;
        stage.remove().await;
    }
}

#[tokio::test]
async fn another_page_size_in_mid_run_does_not_matter_where_pages_have_no_number() {
    for paging in [CURSOR, LINK, OFFSET] {
        for size in [37, 250] {
            let server = SourceServer::start(300);
            // The source decides how large pages are.
            let wishes = sizeless(&server, paging, TIMEOUT);
            let stage = Stage::wishing(Kind::Sqlite, server, &wishes).await;
            let _worker = crate::retries::ready_worker(&stage).await;
            let job = changed_in_mid_run(&stage, |data| data.page_default = size).await;
            let run = stage.ends(&job, "succeeded").await;
            assert_eq!((&run["created"], total(&run)), (&300.into(), 300), "{paging}, {size}: {run}");
            stage.assert_equal_to_the_source().await;
            stage.remove().await;
        }
    }
}

#[tokio::test]
async fn another_page_size_in_mid_run_moves_numbered_pages_and_they_are_read_again() {
    // Smaller, so that borders move; larger, so that they move; so large that the next page seems to be the end.
    for (size, code) in [(37, "SOURCE_SHIFTED"), (120, "SOURCE_SHIFTED"), (300, "SOURCE_INCOMPLETE")] {
        let server = SourceServer::start(600);
        let wishes = sizeless(&server, PAGE, TOTAL);
        let stage = Stage::wishing(Kind::Sqlite, server, &wishes).await;
        let _worker = crate::retries::ready_worker(&stage).await;
        let job = changed_in_mid_run(&stage, |data| data.page_default = size).await;
        let (class, told, _) = stage.waits(&job, 2).await;
        assert_eq!((class.as_str(), told.as_str()), ("RetryableTransient", code), "{size}");
        stage.run_is(|run| run["cursor"]["source_pointer"].is_null()).await;
        stage.make_due(&job).await;
        let run = stage.ends(&job, "succeeded").await;
        assert_eq!((&run["created"], &run["failed"]), (&600.into(), &0.into()), "{size}: {run}");
        assert_eq!(run["cursor"]["processed_count"], 600);
        stage.assert_equal_to_the_source().await;
        stage.assert_announced_once(600).await;
        stage.remove().await;
    }
}

#[tokio::test]
async fn a_record_that_goes_in_mid_run_moves_the_others_and_they_are_read_again() {
    for paging in [OFFSET, PAGE] {
        let stage = staged(Kind::Sqlite, SourceServer::start(300), paging, TOTAL).await;
        let _worker = crate::retries::ready_worker(&stage).await;
        // One that was read: all behind it move forward, and the one at the border would be passed over.
        let job = changed_in_mid_run(&stage, |data| data.remove(7)).await;
        let (class, code, _) = stage.waits(&job, 2).await;
        assert_eq!((class.as_str(), code.as_str()), ("RetryableTransient", "SOURCE_SHIFTED"), "{paging}");
        stage.make_due(&job).await;
        let run = stage.ends(&job, "succeeded").await;
        assert_eq!(run["created"], 300, "{paging}: {run}");
        assert_nothing_is_missing(&stage).await;
        stage.remove().await;
    }
    // Where the source itself says what comes next, nothing moves.
    for paging in [CURSOR, LINK] {
        let stage = staged(Kind::Sqlite, SourceServer::start(300), paging, TOTAL).await;
        let _worker = crate::retries::ready_worker(&stage).await;
        let job = changed_in_mid_run(&stage, |data| data.remove(199)).await;
        let run = stage.ends(&job, "succeeded").await;
        assert_eq!((&run["created"], total(&run)), (&300.into(), 300), "{paging}: {run}");
        assert_nothing_is_missing(&stage).await;
        stage.remove().await;
    }
}

/// The page from 100 to 199, without its last ten.
fn lossy() -> Fault {
    let data = Data::new(300);
    let items: Vec<String> = (100..190).map(|id| data.item(id)).collect();
    Fault::json(format!(r#"{{"items":[{}],"next":"199","total":300}}"#, items.join(",")))
}

async fn dropped_between_pages(kind: Kind) {
    let stage = staged(kind, SourceServer::start(300), CURSOR, TOTAL).await;
    stage.server.fault_at(2, lossy());
    let _worker = crate::retries::ready_worker(&stage).await;
    let job = stage.enqueue();
    let (class, code, delay) = stage.waits(&job, 1).await;
    assert_eq!((class.as_str(), code.as_str(), delay), ("RetryableTransient", "SOURCE_INCOMPLETE", 30.0));
    let run = stage.run_is(|run| run["waiting_for"].is_string()).await;
    assert!(run["waiting_for"].as_str().unwrap().contains("ended after 290 of 300 records"), "{run}");
    assert!(run["outcome"].is_null() && run["cursor"]["source_pointer"].is_null(), "{run}");
    stage.make_due(&job).await;
    let run = stage.ends(&job, "succeeded").await;
    assert_eq!((&run["created"], &run["updated"]), (&300.into(), &0.into()), "{run}");
    assert_eq!(run["cursor"]["processed_count"], 300);
    stage.assert_equal_to_the_source().await;
    stage.assert_announced_once(300).await;
    stage.remove().await;
}

#[tokio::test]
async fn records_that_a_source_drops_are_missed_and_asked_for_again_on_sqlite() {
    dropped_between_pages(Kind::Sqlite).await;
}

#[tokio::test]
async fn records_that_a_source_drops_are_missed_and_asked_for_again_on_postgres() {
    dropped_between_pages(Kind::Postgres).await;
}

#[tokio::test]
async fn a_source_that_always_has_fewer_records_than_it_says_never_succeeds() {
    for paging in [CURSOR, LINK, OFFSET, PAGE] {
        let mut data = Data::new(150);
        data.total = Some(151);
        let stage = staged(Kind::Sqlite, SourceServer::with_data(data), paging, TOTAL).await;
        let _worker = crate::retries::ready_worker(&stage).await;
        let job = stage.enqueue();
        for attempt in 1..=2 {
            let (class, code, delay) = stage.waits(&job, attempt).await;
            println!("{paging}: pass {attempt}, then {delay} s");
            assert_eq!(
                (class.as_str(), code.as_str()),
                ("RetryableTransient", "SOURCE_INCOMPLETE"),
                "{paging}"
            );
            stage.make_due(&job).await;
        }
        stage.waits(&job, 3).await;
        stage.server.edit(|data| data.total = None);
        stage.make_due(&job).await;
        assert_eq!(stage.ends(&job, "succeeded").await["created"], 150, "{paging}");
        stage.assert_equal_to_the_source().await;
        stage.remove().await;
    }
}
