//! What is counted and logged about directives, held against the document.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use stargate_testkit::eventually;
use stargate_testkit::process::{Running, get};
use stargate_testkit::source_server::{Data, Fault, SourceServer};

use crate::stage::{Kind, PATIENCE, Stage, Wishes};
use crate::steps::{field, records};

/// The metrics of directives with their labels, as the document lists them.
const METRICS: [(&str, &[&str]); 5] = [
    ("worker_runs_total", &["directive", "outcome"]),
    ("worker_batch_processed_total", &["directive", "result"]),
    ("worker_retry_attempts_total", &["code", "error_class"]),
    ("worker_cursor_lag_seconds", &["directive"]),
    ("kv_conflicts_total", &[]),
];

/// The values of the label `result`.
const RESULTS: [&str; 4] = ["created", "updated", "unchanged", "failed"];

/// The steps at whose boundary the document wants a record.
const BOUNDARIES: [&str; 4] = ["AcquireContext", "ResolveCursor", "Persist", "Finalize"];

/// What every record of a run has, by the document.
const FIELDS: [&str; 7] =
    ["agent", "directive", "workflow_id", "run_id", "tenant_id", "project_id", "cursor"];

/// A conflict is met once, however long the test takes.
const ONCE: Wishes = Wishes {
    top: "[retry]\nconflict_first = \"10m\"\nconflict_max = \"10m\"",
    source: None,
    item: "",
    sink: "",
};

/// One line of what Prometheus reads.
#[derive(Debug, Clone)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let pairs = labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_owned(), value.trim_matches('"').to_owned()))
    };
    Some(Sample {
        name: name.to_owned(),
        labels: pairs.map(pair).collect::<Option<_>>()?,
        value: value.parse().ok()?,
    })
}

async fn samples(worker: &Running) -> Vec<Sample> {
    let (status, text) = get(worker.address(), "/metrics").await.unwrap();
    assert_eq!(status, 200);
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let is = |sample: &&Sample| {
        sample.name == name
            && labels.iter().all(|(name, value)| sample.labels.get(*name).is_some_and(|v| v == value))
    };
    samples.iter().filter(is).map(|sample| sample.value).sum()
}

/// 120 items: the version of each tells whether it can become an item.
fn source() -> SourceServer {
    SourceServer::with_data(Data::generated(120, |id, version| match (id, version) {
        (7, _) => r#"{"id":7,"title":{"wrong":true}}"#.to_owned(),
        _ => format!(r#"{{"id":{id},"title":"item {id} of version {version}"}}"#),
    }))
}

/// A run of each outcome, and everything that the metrics tell apart.
async fn eventful(stage: &Stage) {
    stage.server.fault_at(1, Fault::status(503));
    let job = stage.enqueue();
    stage.waits(&job, 1).await;
    stage.make_due(&job).await;
    stage.run_is(|run| run["outcome"] == "succeeded").await;
    stage.server.edit(|data| [11, 12, 13].map(|id| data.touch(id)));
    stage.run();
    stage.server.fault_next(Fault::status(401));
    let failed = stage.enqueue();
    stage.run_is(|run| run["run_id"] == failed.as_str() && run["outcome"] == "failed").await;
    stage.server.fault_next(Fault::Hang);
    let cancelled = stage.enqueue();
    stage.run_is(|run| run["run_id"] == cancelled.as_str()).await;
    stage.json(&["cancel", "issues"]);
    // Somebody holds the lease: a conflict.
    let (value, forever) = (r#"{"run":"other","worker":"elsewhere"}"#, "9000000000000000");
    stage
        .execute(&format!("update kv set value = '{value}', expires_at = {forever} where key like '%/run'"))
        .await;
    let held = stage.enqueue();
    assert_eq!(stage.waits(&held, 1).await.1, "RUN_HELD");
}

#[tokio::test]
async fn the_metrics_are_those_of_the_document_with_its_labels_and_the_right_values() {
    let stage = Stage::wishing(Kind::Sqlite, source(), &ONCE).await;
    let worker = crate::retries::ready_worker(&stage).await;
    eventful(&stage).await;
    // Ages are looked at from time to time.
    let found = eventually(PATIENCE, "the age of the cursor", async || {
        let found = samples(&worker).await;
        let is_told = found.iter().any(|sample| sample.name == "worker_cursor_lag_seconds");
        if is_told { Ok(found) } else { Err(format!("{} samples", found.len())) }
    })
    .await;
    for (name, labels) in METRICS {
        let of: Vec<&Sample> = found.iter().filter(|sample| sample.name == name).collect();
        assert!(!of.is_empty(), "{name} is missing");
        for sample in of {
            let has: BTreeSet<&str> = sample.labels.keys().map(String::as_str).collect();
            assert_eq!(has, labels.iter().copied().collect(), "the labels of {name}");
        }
    }
    let results = |result| {
        value(&found, "worker_batch_processed_total", &[("directive", "issues"), ("result", result)])
    };
    assert_eq!(RESULTS.map(results), [119.0, 3.0, 116.0, 2.0]);
    let runs = |outcome| value(&found, "worker_runs_total", &[("directive", "issues"), ("outcome", outcome)]);
    assert_eq!(["succeeded", "failed", "cancelled"].map(runs), [2.0, 1.0, 1.0]);
    let retries =
        |code, class| value(&found, "worker_retry_attempts_total", &[("code", code), ("error_class", class)]);
    assert_eq!(retries("SOURCE_STATUS", "RetryableTransient"), 1.0);
    assert_eq!(retries("RUN_HELD", "Conflict"), 1.0);
    assert_eq!(value(&found, "kv_conflicts_total", &[]), 1.0);
    let lag = value(&found, "worker_cursor_lag_seconds", &[("directive", "issues")]);
    assert!((0.0..3600.0).contains(&lag), "{lag}");
    let outcomes = found.iter().filter(|sample| sample.name == "worker_batch_processed_total");
    let told: BTreeSet<&str> = outcomes.map(|sample| sample.labels["result"].as_str()).collect();
    assert_eq!(told, RESULTS.into_iter().collect());
    stage.remove().await;
}

#[tokio::test]
async fn the_log_has_the_levels_and_fields_of_the_document() {
    let stage = Stage::wishing(Kind::Sqlite, source(), &ONCE).await;
    let worker = crate::retries::ready_worker(&stage).await;
    eventful(&stage).await;
    let all = records(&worker.log());
    let of_runs = all.iter().filter(|record| !field(record, "run_id").is_empty());
    for record in of_runs {
        let fields = record.get("fields").unwrap_or(record);
        for name in FIELDS {
            assert!(fields.get(name).is_some(), "{name} is missing in {record}");
        }
        assert_eq!(field(record, "agent"), "meta-worker");
    }
    let with = |name: &str, wanted: &str| -> Vec<&Value> {
        all.iter().filter(|record| field(record, name) == wanted).collect()
    };
    // INFO at step boundaries.
    for step in BOUNDARIES {
        let at_info = with("step", step).into_iter().filter(|record| field(record, "level") == "INFO");
        assert!(at_info.count() > 0, "{step}");
    }
    // WARN on retries with error_class.
    for class in ["RetryableTransient", "Conflict"] {
        let retries = with("error_class", class);
        assert!(!retries.is_empty(), "{class}");
        assert!(retries.iter().all(|record| field(record, "level") == "WARN"), "{retries:?}");
    }
    // ERROR on ValidationFailure.
    let invalid = with("error_class", "ValidationFailure");
    assert!(
        !invalid.is_empty() && invalid.iter().all(|record| field(record, "level") == "ERROR"),
        "{invalid:?}"
    );
    // FATAL on unrecoverable conditions: a field of an error record.
    let fatal = with("severity", "FATAL");
    assert_eq!(fatal.len(), 1, "{fatal:?}");
    assert_eq!((field(fatal[0], "level"), field(fatal[0], "error_class")), ("ERROR", "Fatal"));
    // Outcomes that the document names.
    for outcome in ["unchanged", "cancelled"] {
        let said = with("outcome", outcome);
        assert!(!said.is_empty() && said.iter().all(|record| field(record, "level") == "INFO"), "{outcome}");
    }
    stage.remove().await;
}
