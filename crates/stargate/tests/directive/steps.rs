//! The seven steps, as the log tells them.

use serde_json::Value;
use stargate_testkit::source_server::SourceServer;

use crate::stage::{Place, Stage};

/// The steps in the order of the document.
const STEPS: [&str; 7] = [
    "AcquireContext",
    "ResolveCursor",
    "FetchSourceData",
    "Transform",
    "Persist",
    "AdvanceCursor",
    "Finalize",
];

/// What every record of a run has, as the document lists it.
const FIELDS: [&str; 7] =
    ["agent", "directive", "workflow_id", "run_id", "tenant_id", "project_id", "cursor"];

/// The records of a worker's log that are about a run.
pub(crate) fn records(log: &str) -> Vec<Value> {
    let parsed = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.filter(|record| field(record, "agent") == "meta-worker").collect()
}

/// A field of a log record.
pub(crate) fn field<'r>(record: &'r Value, name: &str) -> &'r str {
    let found = record.get("fields").and_then(|fields| fields.get(name)).or_else(|| record.get(name));
    found.and_then(Value::as_str).unwrap_or_default()
}

fn steps_of(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| field(record, "step")).filter(|step| !step.is_empty()).collect()
}

pub(crate) async fn are_taken_and_logged_in_their_order(place: Place) {
    let stage = Stage::new(place, SourceServer::start(250)).await;
    let mut worker = stage.worker();
    worker.ready().await;
    stage.begin();
    stage.run_is(|run| run["outcome"] == "succeeded").await;
    let log = worker.log();
    let records = records(&log);
    let steps = steps_of(&records);
    let firsts: Vec<usize> =
        STEPS.iter().map(|step| steps.iter().position(|other| other == step).expect(step)).collect();
    assert!(firsts.is_sorted(), "{steps:?}");
    assert_eq!(steps.last(), Some(&"Finalize"));
    // Each page goes through the four steps in the middle, one after the other.
    for page in 1..=3 {
        let of_page = |record: &&Value| {
            let fields = record.get("fields").unwrap_or(record);
            fields["page"].as_u64() == Some(page) && !field(record, "step").is_empty()
        };
        let taken: Vec<&str> = records.iter().filter(of_page).map(|record| field(record, "step")).collect();
        assert_eq!(taken, STEPS[2..6], "page {page}");
    }
    for record in &records {
        let fields = record.get("fields").unwrap_or(record);
        for name in FIELDS {
            assert!(fields.get(name).is_some(), "{name} in {record}");
        }
        assert_eq!((field(record, "directive"), field(record, "tenant_id")), ("issues", "acme"));
    }
    let levels = |step: &str| {
        let of = records.iter().filter(|record| field(record, "step") == step);
        of.map(|record| field(record, "level").to_owned()).collect::<Vec<_>>()
    };
    for step in STEPS {
        assert!(levels(step).iter().all(|level| level == "INFO"), "{step}: {:?}", levels(step));
    }
    stage.remove().await;
}

pub(crate) async fn what_is_unchanged_is_said_and_not_written(place: Place) {
    let stage = Stage::new(place, SourceServer::start(120)).await;
    stage.run();
    let written = stage.query("select number, version, updated_at from items order by number").await;
    let mut worker = stage.worker();
    worker.ready().await;
    stage.begin();
    let run = stage.run_is(|run| run["outcome"] == "succeeded" && run["unchanged"] == 120).await;
    assert_eq!((&run["created"], &run["updated"]), (&0.into(), &0.into()));
    let log = worker.log();
    let unchanged: Vec<Value> =
        records(&log).into_iter().filter(|record| field(record, "outcome") == "unchanged").collect();
    assert!(
        !unchanged.is_empty() && unchanged.iter().all(|record| field(record, "level") == "INFO"),
        "{log}"
    );
    assert_eq!(stage.query("select number, version, updated_at from items order by number").await, written);
    stage.remove().await;
}
