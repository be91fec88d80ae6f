//! What is tried again and when. The timeline of the job tells how long a run waits; then the test takes the place of
//! the clock and lets it be due at once.

use serde_json::Value;
use stargate_testkit::eventually;
use stargate_testkit::process::Running;
use stargate_testkit::source_server::{Fault, SourceServer};

use crate::stage::{Kind, PATIENCE, Place, Stage, Wishes};
use crate::steps::{field, records};

impl Stage {
    /// Waits until the job waits after so many attempts; answers class, code and seconds.
    pub(crate) async fn waits(&self, job: &str, attempts: u64) -> (String, String, f64) {
        eventually(PATIENCE, "the job to wait", async || {
            let events = self.program.answer(&["job", "events", job, "--json"]);
            let events: Vec<Value> = serde_json::from_str(&events).unwrap();
            let retry = events.iter().rev().find(|event| event["event"] == "requeued:retry");
            match retry.map(|event| &event["data"]) {
                Some(data) if data["attempt"] == attempts => {
                    let text = |name: &str| data[name].as_str().unwrap().to_owned();
                    Ok((text("class"), text("code"), data["delay_ms"].as_f64().unwrap() / 1000.0))
                }
                _ => Err(format!("{events:?}")),
            }
        })
        .await
    }

    /// The clock moves: what waits is due.
    pub(crate) async fn make_due(&self, job: &str) {
        let zero = if self.is_sqlite() { "0" } else { "to_timestamp(0)" };
        let jobs = self.own("job");
        self.execute(&format!("update {jobs} set run_at = {zero} where id = {job} and stage = 1")).await;
    }
}

pub(crate) async fn ready_worker(stage: &Stage) -> Running {
    let mut worker = stage.worker();
    worker.ready().await;
    worker
}

/// WARN records about retries: class, and what the log says of the delay.
fn warnings(worker: &Running) -> Vec<(String, f64)> {
    let is_retry =
        |record: &Value| field(record, "level") == "WARN" && !field(record, "error_class").is_empty();
    let delay = |record: &Value| {
        let fields = record.get("fields").unwrap_or(record);
        fields["delay_ms"].as_f64().unwrap_or_default() / 1000.0
    };
    let all = records(&worker.log());
    all.iter().filter(|r| is_retry(r)).map(|r| (field(r, "error_class").to_owned(), delay(r))).collect()
}

async fn transient_failures(kind: Kind) {
    let stage = Stage::new(kind, SourceServer::start(150)).await;
    stage.server.script(|_| Some(Fault::status(500)));
    let worker = ready_worker(&stage).await;
    let job = stage.enqueue();
    for (attempt, expected) in (1..).zip([30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]) {
        let (class, code, delay) = stage.waits(&job, attempt).await;
        assert_eq!((class.as_str(), code.as_str(), delay), ("RetryableTransient", "SOURCE_STATUS", expected));
        if attempt == 7 {
            stage.server.heal();
        }
        stage.make_due(&job).await;
    }
    let run = stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_eq!((&run["created"], &run["error"]), (&150.into(), &Value::Null));
    let warned = warnings(&worker);
    let delays: Vec<f64> = warned.iter().map(|(_, delay)| *delay).collect();
    assert_eq!(delays, [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]);
    assert!(warned.iter().all(|(class, _)| class == "RetryableTransient"), "{warned:?}");
    stage.remove().await;
}

#[tokio::test]
async fn transient_failures_wait_half_a_minute_doubling_to_ten_on_sqlite() {
    transient_failures(Kind::Sqlite).await;
}

#[tokio::test]
async fn transient_failures_wait_half_a_minute_doubling_to_ten_on_postgres() {
    transient_failures(Kind::Postgres).await;
}

#[tokio::test]
async fn what_the_source_asks_for_takes_the_place_of_the_delay_and_pages_shrink() {
    let wishes = Wishes { top: "page_size = 400", ..Wishes::default() };
    let stage = Stage::wishing(Kind::Sqlite, SourceServer::start(1000), &wishes).await;
    stage.server.fault_at(2, Fault::status(429).with_header("retry-after", "7"));
    let _worker = ready_worker(&stage).await;
    let job = stage.enqueue();
    let (class, code, delay) = stage.waits(&job, 1).await;
    assert_eq!((class.as_str(), code.as_str(), delay), ("RetryableTransient", "SOURCE_STATUS", 7.0));
    let waiting = stage.run_is(|run| run["waiting_for"].is_string()).await;
    assert_eq!((&waiting["page_size"], &waiting["created"]), (&200.into(), &400.into()), "{waiting}");
    stage.make_due(&job).await;
    let run = stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_eq!(run["created"], 1000);
    let asked: Vec<String> = stage
        .server
        .requests()
        .iter()
        .map(|request| request.param("limit").unwrap_or_default().to_owned())
        .collect();
    assert_eq!(asked[..3], ["400", "400", "200"], "{asked:?}");
    stage.remove().await;
}

#[tokio::test]
async fn five_conflicts_are_waited_for_and_the_sixth_is_fatal() {
    let stage = Stage::new(Kind::Sqlite, SourceServer::start(10)).await;
    // Somebody holds the lease of the directive, and lives.
    stage.run();
    stage
        .execute(
            "update kv set value = '{\"run\":\"other\",\"worker\":\"elsewhere\"}', expires_at = 9000000000000000 \
             where key like '%/run'",
        )
        .await;
    let worker = ready_worker(&stage).await;
    let job = stage.enqueue();
    for (attempt, expected) in (1..).zip([5.0, 10.0, 20.0, 40.0, 60.0]) {
        let (class, code, delay) = stage.waits(&job, attempt).await;
        assert_eq!((class.as_str(), code.as_str()), ("Conflict", "RUN_HELD"));
        assert!((expected * 0.8..=expected * 1.2).contains(&delay), "{delay} for {expected}");
        stage.make_due(&job).await;
    }
    let failed = eventually(PATIENCE, "the job to fail", async || {
        let job: Value =
            serde_json::from_str(&stage.program.answer(&["job", "show", &job, "--json"])).unwrap();
        if job["state"] == "failed" { Ok(job) } else { Err(job.to_string()) }
    })
    .await;
    assert_eq!(failed["error"]["code"], "CONFLICT_EXHAUSTED");
    assert_eq!(failed["error"]["class"], "Fatal");
    let log = worker.log();
    let fatal = records(&log).into_iter().find(|record| field(record, "severity") == "FATAL");
    assert_eq!(field(&fatal.expect("a FATAL record"), "level"), "ERROR");
    stage.remove().await;
}

pub(crate) async fn what_needs_an_operator_fails_at_once(place: Place) {
    let stage = Stage::new(place, SourceServer::start(300)).await;
    stage.server.fault_at(3, Fault::status(401));
    let worker = ready_worker(&stage).await;
    stage.begin();
    let run = stage.run_is(|run| run["outcome"] == "failed").await;
    assert_eq!((&run["created"], &run["pages"]), (&200.into(), &2.into()));
    assert!(run["error"].as_str().unwrap().starts_with("SOURCE_REFUSED: "), "{run}");
    let log = worker.log();
    let fatal = records(&log).into_iter().find(|record| field(record, "severity") == "FATAL").expect("FATAL");
    assert_eq!((field(&fatal, "level"), field(&fatal, "error_class")), ("ERROR", "Fatal"));
    assert!(warnings(&worker).is_empty(), "nothing is tried again");
    let again = stage.run();
    assert_eq!((&again["created"], &again["unchanged"]), (&100.into(), &0.into()), "only what was missing");
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}

#[tokio::test]
async fn a_page_that_is_not_as_described_fails_the_run_as_a_validation_failure() {
    let stage = Stage::new(Kind::Sqlite, SourceServer::start(10)).await;
    stage.server.fault_at(1, Fault::json(r#"{"error":"no such list"}"#));
    let _worker = ready_worker(&stage).await;
    let job = stage.enqueue();
    let run = stage.run_is(|run| run["outcome"] == "failed").await;
    assert!(run["error"].as_str().unwrap().starts_with("SOURCE_SHAPE: "), "{run}");
    let job: Value = serde_json::from_str(&stage.program.answer(&["job", "show", &job, "--json"])).unwrap();
    assert_eq!((&job["error"]["class"], &job["attempt_count"]), (&"ValidationFailure".into(), &1.into()));
    stage.remove().await;
}

/// A wait that is longer than an execution stays for: the engine has to come back.
pub(crate) async fn what_the_source_asks_for_is_waited_for(place: Place) {
    let stage = Stage::new(place, SourceServer::start(300)).await;
    stage.server.fault_at(2, Fault::status(503).with_header("retry-after", "6"));
    let worker = ready_worker(&stage).await;
    stage.begin();
    let waiting = stage.run_is(|run| run["waiting_for"].is_string()).await;
    assert_eq!((&waiting["created"], &waiting["outcome"]), (&100.into(), &Value::Null), "{waiting}");
    let run = stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_eq!((&run["created"], &run["unchanged"]), (&300.into(), &0.into()), "{run}");
    assert_eq!(warnings(&worker), [("RetryableTransient".to_owned(), 6.0)]);
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}
