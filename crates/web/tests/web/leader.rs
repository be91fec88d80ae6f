//! Only the leader writes; every node reads, and tells where it stands.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Request;
use futures::channel::mpsc;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use stargate_base::Epoch;
use stargate_leader::boot::ManualClock;
use stargate_web::Scope;

use crate::fixture::{Fixture, send};
use crate::nodes::{Node, Plan, WRITES, contents, prepare};
use crate::openapi::operations;

/// Routes that change something and are not in [`WRITES`], because they need more than a job, a queue and a kind. That a
/// standby refuses them is tested below.
const OTHER_WRITES: [&str; 17] = [
    "DELETE /limits/{pattern}",
    "DELETE /schedules/{name}",
    "POST /directives/{name}/quarantine/retry",
    "POST /directives/{name}/runs",
    "POST /failures/requeue",
    "POST /jobs/bulk",
    "POST /leader/step-down",
    "POST /mirror/dead-letters/purge",
    "POST /mirror/dead-letters/requeue",
    "POST /mirror/{repo}/verify",
    "POST /quarantine/{id}/resolve",
    "POST /quarantine/{id}/retry",
    "POST /runs/{id}/cancel",
    "POST /schedules/{name}/fire",
    "PUT /directives/{name}/cursor",
    "PUT /limits/{pattern}",
    "PUT /schedules/{name}",
];

#[test]
fn the_list_of_writes_is_complete() {
    // A new route that writes must be added to a list, and is then tested below and in `forward.rs`.
    let changes = operations().into_iter().filter(|operation| !operation.method.is_safe());
    let written: BTreeSet<String> =
        changes.map(|operation| format!("{} {}", operation.method, operation.template)).collect();
    let listed = WRITES.iter().map(|(path, ..)| {
        let path = path.strip_prefix("/api/v1").unwrap();
        let parts: Vec<&str> = path.split('/').collect();
        match parts[..] {
            ["", "jobs", id, verb] if id != "batch" => format!("POST /jobs/{{id}}/{verb}"),
            ["", what, _, verb] => format!("POST /{what}/{{name}}/{verb}"),
            _ => format!("POST {path}"),
        }
    });
    let listed: BTreeSet<String> = listed.chain(OTHER_WRITES.map(str::to_owned)).collect();
    assert_eq!(written, listed);
}

#[tokio::test]
async fn a_standby_refuses_every_route_that_changes_something() {
    let f = prepare().await;
    let _a = Node::start(&f, Plan::sharing("a", f.dir.path()).at("http://a.example:1")).leads().await;
    let b = Node::start(&f, Plan::sharing("b", f.dir.path())).follows("a").await;
    for operation in operations().into_iter().filter(|operation| !operation.method.is_safe()) {
        let what = format!("{} {}", operation.method, operation.path);
        let request = Request::builder().method(operation.method).uri(operation.path);
        let request = request.header("content-type", "application/json").body(Body::from("{}")).unwrap();
        let answer = send(&b.router, request).await.expect(503);
        assert_eq!(answer.code(), "NOT_LEADER", "{what}");
        assert_eq!(answer.header("x-stargate-leader"), "http://a.example:1", "{what}");
    }
    let audit = f.get("/api/v1/audit").await.expect(200).json();
    assert_eq!(audit["actions"], json!([]), "what was refused is no action");
}

#[tokio::test]
async fn a_standby_refuses_every_write_and_names_the_leader() {
    let f = prepare().await;
    let _a = Node::start(&f, Plan::sharing("a", f.dir.path()).at("http://a.example:1")).leads().await;
    let b = Node::start(&f, Plan::sharing("b", f.dir.path())).follows("a").await;
    let before = contents(&f).await;
    for (path, body, _) in WRITES {
        let answer = b.post(path, body).await.expect(503);
        assert_eq!(answer.code(), "NOT_LEADER", "{path}");
        assert_eq!(answer.header("retry-after"), "1");
        assert_eq!(answer.header("x-stargate-leader"), "http://a.example:1");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(message, "b does not lead: send this to the leader, a at http://a.example:1");
    }
    assert_eq!(contents(&f).await, before);
}

#[tokio::test]
async fn a_node_that_knows_no_leader_refuses_too_and_names_none() {
    let f = prepare().await;
    let (node, _service) = Node::idle(&f, Plan::alone("a").forwarding());
    for (path, body, _) in WRITES {
        let answer = node.post(path, body).await.expect(503);
        assert_eq!(answer.code(), "NOT_LEADER", "{path}");
        assert!(!answer.headers.contains_key("x-stargate-leader"));
    }
}

#[tokio::test]
async fn the_leader_does_every_write() {
    let f = prepare().await;
    let a = Node::start(&f, Plan::alone("a")).leads().await;
    for (path, body, status) in WRITES {
        let before = contents(&f).await;
        a.post(path, body).await.expect(status);
        assert_ne!(contents(&f).await, before, "{path} changes nothing, so this list proves nothing");
    }
}

#[tokio::test]
async fn every_node_serves_reads() {
    let f = prepare().await;
    let a = Node::start(&f, Plan::sharing("a", f.dir.path())).leads().await;
    let b = Node::start(&f, Plan::sharing("b", f.dir.path()).forwarding()).follows("a").await;
    for path in [
        "/api/v1/jobs",
        "/api/v1/jobs/1",
        "/api/v1/jobs/1/events",
        "/api/v1/queues",
        "/api/v1/kinds",
        "/api/v1/workers",
        "/api/v1/stats",
        "/api/v1/leader",
        "/healthz",
        "/readyz",
        "/metrics",
    ] {
        for node in [&a, &b] {
            node.get(path).await.expect(200);
        }
    }
}

#[tokio::test]
async fn a_deposed_leader_writes_nothing_and_steps_down() {
    for (path, body, _) in WRITES {
        let f = prepare().await;
        let a = Node::start(&f, Plan::alone("a")).leads().await;
        let epoch = a.leadership.current().unwrap().epoch;
        f.store.term_begin("rival", None, Some(epoch)).await.unwrap();
        let before = contents(&f).await;
        assert!(a.leadership.is_leader(), "it does not know yet");
        let answer = a.post(path, body).await.expect(503);
        assert_eq!(answer.code(), "NOT_LEADER", "{path}");
        assert_eq!(answer.header("retry-after"), "1");
        assert_eq!(contents(&f).await, before, "{path}");
        a.until(|node| node.current().is_none_or(|term| term.epoch != epoch)).await;
    }
}

#[tokio::test]
async fn the_same_idempotency_key_means_the_same_under_a_term() {
    let f = Fixture::new().await;
    let a = Node::start(&f, Plan::alone("a")).leads().await;
    let key = [("idempotency-key", "k")];
    let id = a.post_with("/api/v1/jobs", &key, r#"{"kind":"greet"}"#).await.expect(201).json()["id"].clone();
    let again = a.post_with("/api/v1/jobs", &key, r#"{"kind":"greet"}"#).await.expect(200).json();
    assert_eq!(again, json!({ "id": id, "existing": true }));
    let other = a.post_with("/api/v1/jobs", &key, r#"{"kind":"greet","priority":1}"#).await.expect(409);
    assert_eq!(other.code(), "IDEMPOTENCY_MISMATCH");
}

#[tokio::test]
async fn a_slow_client_does_not_hold_up_a_step_down_and_its_write_is_refused() {
    let f = Fixture::new().await;
    // Once it has stepped down, it stays so for the rest of the test.
    let plan = Plan { retry_every: Duration::from_secs(600), ..Plan::alone("a") };
    let a = Node::start(&f, plan).leads().await;
    let (mut sender, receiver) = mpsc::channel::<std::io::Result<Bytes>>(1);
    let (started, has_started) = tokio::sync::oneshot::channel::<()>();
    let mut started = Some(started);
    let body = receiver.inspect(move |_| {
        // Being asked for the body means that the route was entered as leader.
        started.take().map(|started| started.send(()));
    });
    let request = a.post("/api/v1/jobs", Body::from_stream(body));
    let steps_down = async {
        sender.send(Ok(Bytes::from_static(b"{\"kind\":"))).await.unwrap();
        has_started.await.unwrap();
        let view = a.post("/api/v1/leader/step-down", "").await.expect(200).json();
        assert_eq!(view["role"], "standby", "{view}");
        sender.send(Ok(Bytes::from_static(b"\"greet\"}"))).await.unwrap();
        drop(sender);
    };
    let (answer, ()) = tokio::join!(request, steps_down);
    assert_eq!(answer.expect(503).code(), "NOT_LEADER");
    assert_eq!(f.store.depth(10).await.unwrap(), 0);
}

#[tokio::test]
async fn a_write_that_outlives_its_term_is_of_unknown_outcome() {
    let f = Fixture::new().await;
    let clock = ManualClock::default();
    let plan = Plan { clock: Arc::new(clock.clone()), ..Plan::alone("a") };
    let a = Node::start(&f, plan).leads().await;
    // Somebody else writes, so this write has to wait.
    let other = rusqlite::Connection::open(f.dir.path().join("stargate.db")).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let mut request = std::pin::pin!(a.post("/api/v1/jobs", r#"{"kind":"greet"}"#));
    // The whole body is there, so the first look gets as far as the store.
    assert!(futures::poll!(&mut request).is_pending());
    clock.advance(Duration::from_secs(60));
    let answer = request.await.expect(502);
    assert_eq!(answer.code(), "OUTCOME_UNKNOWN");
    assert!(answer.text.contains("Idempotency-Key"), "{}", answer.text);
    other.execute_batch("rollback").unwrap();
    a.until(|node| !node.is_leader()).await;
}

/// The fields of a health report that tell the role.
fn role(report: &Value) -> [&Value; 4] {
    ["role", "leader", "leader_address", "epoch"].map(|field| report.get(field).unwrap_or(&Value::Null))
}

#[tokio::test]
async fn health_tells_the_role_at_each_stage() {
    let f = Fixture::new().await;
    let clock = ManualClock::default();
    let plan = Plan { clock: Arc::new(clock.clone()), ..Plan::sharing("a", f.dir.path()).at("http://a") };
    let (a, service) = Node::idle(&f, plan);
    let nobody = [&json!("standby"), &Value::Null, &Value::Null, &Value::Null];
    for path in ["/healthz", "/readyz"] {
        let report = a.get(path).await.expect(200).json();
        assert_eq!(role(&report), nobody, "{report}");
        assert_eq!(report.get("lease_expires_in_ms"), Some(&Value::Null), "{report}");
    }
    let stop = stargate_base::Tasks::new();
    let running = stop.spawn(service.run(stop.stopping()));
    let a = a.leads().await;
    let b = Node::start(&f, Plan::sharing("b", f.dir.path())).follows("a").await;
    for path in ["/healthz", "/readyz"] {
        let report = a.get(path).await.expect(200).json();
        assert_eq!(role(&report), [&json!("leader"), &json!("a"), &json!("http://a"), &json!(1)], "{report}");
        // The time to live less the margin; this clock stands still.
        assert_eq!(report["lease_expires_in_ms"], 28_000, "{report}");
        let report = b.get(path).await.expect(200).json();
        assert_eq!(role(&report), [&json!("standby"), &json!("a"), &json!("http://a"), &Value::Null]);
        assert!(report["lease_expires_in_ms"].as_u64().is_some(), "{report}");
    }
    // The service is gone and nobody tells that the term is over: the clock does.
    running.abort();
    clock.advance(Duration::from_millis(27_999));
    assert_eq!(a.get("/healthz").await.json()["role"], "leader");
    a.get("/readyz?role=leader").await.expect(200);
    clock.advance(Duration::from_millis(1));
    let report = a.get("/readyz").await.expect(200).json();
    assert_eq!(role(&report), nobody, "{report}");
    a.get("/readyz?role=leader").await.expect(503);
    assert_eq!(a.post("/api/v1/jobs", r#"{"kind":"greet"}"#).await.expect(503).code(), "NOT_LEADER");
}

#[tokio::test]
async fn a_load_balancer_finds_the_leader_and_only_the_leader() {
    let f = Fixture::new().await;
    let a = Node::start(&f, Plan::sharing("a", f.dir.path())).leads().await;
    let b = Node::start(&f, Plan::sharing("b", f.dir.path())).follows("a").await;
    let report = a.get("/readyz?role=leader").await.expect(200).json();
    let check = |report: &Value| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == "leader").cloned().unwrap()
    };
    assert_eq!(check(&report)["ok"], true);
    let report = b.get("/readyz?role=leader").await.expect(503).json();
    assert_eq!((&report["status"], &report["role"]), (&json!("failing"), &json!("standby")));
    assert_eq!(check(&report), json!({ "name": "leader", "ok": false, "detail": "a leads" }));
    for wrong in ["standby", "", "LEADER", "leader&role=leader"] {
        let answer = a.get(&format!("/readyz?role={wrong}")).await.expect(400);
        assert_eq!(answer.code(), "BAD_REQUEST", "{wrong}");
    }
    a.get("/readyz?x=1").await.expect(200);
}

#[tokio::test]
async fn a_process_that_takes_no_part_writes_and_tells_no_role() {
    let f = prepare().await;
    for (path, body, status) in WRITES {
        f.post(path, body).await.expect(status);
    }
    for path in ["/healthz", "/readyz"] {
        let report = f.get(path).await.expect(200).json();
        for field in ["role", "leader", "leader_address", "epoch", "lease_expires_in_ms"] {
            assert!(report.get(field).is_none(), "{report}");
        }
    }
    let report = f.get("/readyz?role=leader").await.expect(503);
    assert!(report.text.contains("takes no part"), "{}", report.text);
    let view = f.get("/api/v1/leader").await.expect(200).json();
    assert_eq!((&view["role"], &view["leader"], &view["phase"]), (&Value::Null, &Value::Null, &Value::Null));
    assert_eq!(f.post("/api/v1/leader/step-down", "").await.expect(503).code(), "NOT_LEADER");
    // A worker that campaigns has health, and no API.
    let (worker, _service) = Node::idle(&f, Plan::alone("w"));
    let status = stargate_web::router(worker.app.clone(), Scope::Status);
    let request = axum::http::Request::get("/healthz").body(Body::empty()).unwrap();
    assert_eq!(send(&status, request).await.expect(200).json()["role"], "standby");
}

#[tokio::test]
async fn who_leads_is_told_with_the_terms() {
    let f = Fixture::new().await;
    let a = Node::start(&f, Plan::sharing("a", f.dir.path()).at("http://a")).leads().await;
    let b = Node::start(&f, Plan::sharing("b", f.dir.path())).follows("a").await;
    for (node, name, role, phase) in [(&a, "a", "leader", "leader"), (&b, "b", "standby", "standby")] {
        let view = node.view().await;
        let leader = json!({ "instance": "a", "address": "http://a" });
        assert_eq!((&view["instance"], &view["leader"]), (&json!(name), &leader), "{view}");
        assert_eq!((&view["role"], &view["phase"]), (&json!(role), &json!(phase)), "{view}");
        assert_eq!((&view["epoch"], &view["backend"]), (&json!(1), &json!("file")), "{view}");
        assert_eq!((&view["trouble"], &view["overlaps"]), (&Value::Null, &json!([])), "{view}");
        assert!(view["lease_expires_in_ms"].as_u64().is_some_and(|left| left > 0), "{view}");
        let term = &view["terms"][0];
        assert_eq!((&term["epoch"], &term["instance"]), (&json!(1), &json!("a")), "{view}");
        assert_eq!((&term["address"], &term["ended_at"]), (&json!("http://a"), &Value::Null), "{view}");
        assert!(term["began_at"].is_string(), "{view}");
    }
}

#[tokio::test]
async fn a_node_steps_down_when_asked_and_another_takes_over() {
    let f = Fixture::new().await;
    let a = Node::start(&f, Plan::sharing("a", f.dir.path())).leads().await;
    let b = Node::start(&f, Plan::sharing("b", f.dir.path()).forwarding()).follows("a").await;
    // About this very node: not passed on.
    assert_eq!(b.post("/api/v1/leader/step-down", "").await.expect(503).code(), "NOT_LEADER");
    assert!(a.leadership.is_leader());
    let view = a.post("/api/v1/leader/step-down", "").await.expect(200).json();
    assert_eq!((&view["instance"], &view["role"]), (&json!("a"), &json!("standby")), "{view}");
    let b = b.leads().await;
    b.post("/api/v1/jobs", r#"{"kind":"greet"}"#).await.expect(201);
    let view = b.view().await;
    assert_eq!((&view["epoch"], &view["overlaps"]), (&json!(2), &json!([])), "{view}");
    assert_eq!(
        (&view["terms"][1]["instance"], &view["terms"][1]["reason"]),
        (&json!("a"), &json!("step-down"))
    );
}

#[tokio::test]
async fn the_number_of_terms_has_bounds_that_the_answer_names() {
    let f = Fixture::new().await;
    let mut epoch: Option<Epoch> = None;
    for _ in 0..25 {
        epoch = Some(f.store.term_begin("n", None, epoch).await.unwrap());
    }
    let terms = async |query: &str| {
        let view = f.get(&format!("/api/v1/leader{query}")).await.expect(200).json();
        assert_eq!(view["terms"][0]["epoch"], 25, "newest first");
        assert_eq!(view["overlaps"], json!([]), "{view}");
        view["terms"].as_array().unwrap().len()
    };
    assert_eq!(terms("").await, 20);
    assert_eq!(terms("?terms=1").await, 1);
    assert_eq!(terms("?terms=500").await, 25);
    for wrong in ["0", "501", "-1", "many", "", "99999999999"] {
        let answer = f.get(&format!("/api/v1/leader?terms={wrong}")).await.expect(422);
        assert_eq!(answer.code(), "INVALID", "{wrong}");
        assert!(answer.text.contains("1 to 500"), "{}", answer.text);
    }
    assert_eq!(f.get("/api/v1/leader?term=1").await.expect(422).code(), "INVALID");
}
