//! A trace goes from whoever enqueues through the handler to what the handler calls.

use std::time::Duration;

use serde_json::{Value, json};
use stargate_testkit::eventually;
use stargate_testkit::process::{Program, Running, free_port, get};

use crate::collector::Collector;
use crate::{PATIENCE, configured};

/// SpanKind of the protocol.
const SERVER: i32 = 2;
const PRODUCER: i32 = 4;
const CONSUMER: i32 = 5;
const ERROR: i32 = 2;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

const KINDS: &str = r#"
[kinds."show"]
exec = ["sh", "-c", 'echo "{\"result\":{\"parent\":\"$TRACEPARENT\"}}"']
[kinds."fail"]
exec = ["sh", "-c", "exit 75"]
max_attempts = 2
backoff = "10ms"
"#;

fn program(endpoint: &str, more: &str) -> Program {
    let program =
        configured(&format!("[otel]\nendpoint = \"{endpoint}\"\nservice_name = \"jobs\"\n{more}{KINDS}"));
    program.with("OTEL_BSP_SCHEDULE_DELAY", "100").with("STARGATE_INSTANCE", "node-a")
}

async fn enqueue(node: &Running, kind: &str, traceparent: Option<&str>) -> String {
    let mut request = reqwest::Client::new().post(format!("http://{}/api/v1/jobs", node.address()));
    if let Some(traceparent) = traceparent {
        request = request.header("traceparent", traceparent);
    }
    let body = json!({"kind": kind, "payload": {"password": "canary-in-a-payload"}});
    let answer = request.json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 201);
    answer.json::<Value>().await.unwrap()["id"].to_string()
}

/// Waits until a job has ended.
async fn ended(program: &Program, id: &str) -> Value {
    eventually(PATIENCE, "the end of the job", || async {
        let job: Value = serde_json::from_str(&program.answer(&["job", "show", id, "--json"])).unwrap();
        let over = matches!(job["state"].as_str(), Some("done" | "failed"));
        if over { Ok(job) } else { Err(job.to_string()) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_from_the_request_through_the_handler_to_its_program() {
    let collector = Collector::start().await;
    let program =
        program(&collector.endpoint, "headers = \"x-team=ours,authorization=Bearer canary-of-ours\"\n");
    let mut node = program.start(&["up", "--log", "json"]);
    node.ready().await;
    let id = enqueue(&node, "show", Some(&format!("00-{TRACE}-{CALLER}-01"))).await;
    let job = ended(&program, &id).await;
    let server = collector.spans("POST /api/v1/jobs", 1).await.remove(0);
    let run = collector.spans("run show", 1).await.remove(0);
    assert_eq!((server.kind, server.trace.as_str(), server.parent.as_str()), (SERVER, TRACE, CALLER));
    assert_eq!((run.kind, run.trace.as_str(), run.parent.as_str()), (CONSUMER, TRACE, server.span.as_str()));
    assert_eq!(job["result"]["parent"], format!("00-{TRACE}-{}-01", run.span), "{job}");
    assert_eq!(job["trace_id"], format!("00-{TRACE}-{}-01", server.span), "{job}");
    assert_eq!(server.attribute("http.response.status_code"), "201");
    assert_eq!(
        (run.attribute("messaging.message.id"), run.attribute("stargate.kind")),
        (id.as_str(), "show")
    );
    assert_eq!((run.attribute("stargate.attempt"), run.attribute("stargate.outcome")), ("1", "done"));
    for pair in [("service.name", "jobs"), ("service.instance.id", "node-a")] {
        assert!(run.resource.iter().any(|(name, value)| (name.as_str(), value.as_str()) == pair), "{run:?}");
    }
    let heads = collector.heads();
    assert!(heads[0].starts_with("POST /v1/traces ") && heads[0].contains("x-team: ours"), "{heads:?}");
    // INV-8: neither what is worked on nor what we identify ourselves with is told, or logged.
    assert!(!collector.was_told("canary"));
    let (_, metrics) = get(node.address(), "/metrics").await.unwrap();
    assert!(!node.log().contains("canary") && !metrics.contains("canary"), "{}", node.log());
    let healthy = |name: &str| collector.all().iter().any(|span| span.name.contains(name));
    assert!(!healthy("/readyz") && !healthy("/metrics"), "nobody looks at traces of health checks");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_is_a_span_and_a_failed_one_has_its_code() {
    let collector = Collector::start().await;
    let program = program(&collector.endpoint, "");
    let mut node = program.start(&["up", "--log", "json"]);
    node.ready().await;
    let id = enqueue(&node, "fail", None).await;
    ended(&program, &id).await;
    let runs = collector.spans("run fail", 2).await;
    let server = collector.spans("POST /api/v1/jobs", 1).await.remove(0);
    for run in &runs {
        assert_eq!(
            (run.trace.as_str(), run.parent.as_str(), run.status),
            (&*server.trace, &*server.span, ERROR)
        );
    }
    assert_eq!(runs[0].attribute("error.type"), "EXEC_FAILED");
    assert_eq!(
        (runs[0].attribute("stargate.outcome"), runs[1].attribute("stargate.outcome")),
        ("retry", "failed")
    );
    assert_ne!(runs[0].span, runs[1].span);
    let line = node.log();
    let line = line.lines().find(|line| line.contains("job failed")).unwrap().to_owned();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["span"]["trace_id"], server.trace, "log lines lead to traces: {line}");
    assert_eq!(line["span"]["kind"], "fail", "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_part_of_the_trace_of_its_caller_and_tells_before_it_ends() {
    let collector = Collector::start().await;
    let program = program(&collector.endpoint, "").with("TRACEPARENT", format!("00-{TRACE}-{CALLER}-01"));
    let id = program.answer(&["job", "enqueue", "show"]);
    let span = collector.spans("enqueue show", 1).await.remove(0);
    assert_eq!((span.kind, span.trace.as_str(), span.parent.as_str()), (PRODUCER, TRACE, CALLER));
    let job: Value = serde_json::from_str(&program.answer(&["job", "show", &id, "--json"])).unwrap();
    assert_eq!(job["trace_id"], format!("00-{TRACE}-{}-01", span.span));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_sampled_is_not_told_but_goes_on_as_such() {
    let collector = Collector::start().await;
    let program = program(&collector.endpoint, "sample_ratio = 0.0\n");
    let mut node = program.start(&["up"]);
    node.ready().await;
    let job = ended(&program, &enqueue(&node, "show", None).await).await;
    assert!(job["result"]["parent"].as_str().unwrap().ends_with("-00"), "{job}");
    // Whoever began a trace has decided, and not we.
    let id = enqueue(&node, "show", Some(&format!("00-{TRACE}-{CALLER}-01"))).await;
    ended(&program, &id).await;
    assert_eq!(collector.spans("run show", 1).await[0].trace, TRACE);
    assert!(collector.all().iter().all(|span| span.trace == TRACE), "{:?}", collector.all());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_costs_spans_and_nothing_else() {
    let program = program(&format!("http://127.0.0.1:{}", free_port()), "headers = \"a=canary\"\n");
    let mut node = program.start(&["up"]);
    node.ready().await;
    for _ in 0..3 {
        let job = ended(&program, &enqueue(&node, "show", None).await).await;
        assert_eq!(job["state"], "done");
    }
    eventually(PATIENCE, "lost batches are counted", || async {
        let (_, text) = get(node.address(), "/metrics").await.unwrap();
        let counted = text.contains("otel_exports_failed_total{reason=\"unreachable\"}");
        if counted { Ok(()) } else { Err(node.log()) }
    })
    .await;
    node.terminate();
    assert!(node.ended(Duration::from_secs(30)).await.success(), "{}", node.log());
    assert_eq!(node.log().matches("does not take our spans").count(), 1, "said once: {}", node.log());
    assert!(!node.log().contains("canary"), "{}", node.log());
    let checks = program.run(&["doctor", "--json"]);
    let checks: Value = serde_json::from_slice(&checks.stdout).unwrap();
    let traces = checks.as_array().unwrap().iter().find(|check| check["check"] == "traces").unwrap();
    assert_eq!(traces["verdict"], "warn", "{traces}");
}
