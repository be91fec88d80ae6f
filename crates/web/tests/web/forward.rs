//! A standby that is told to forward passes writes on to the leader, once.

use axum::body::{Body, Bytes};
use futures::stream;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::fixture::{Answer, Fixture, PATIENCE};
use crate::nodes::{Node, Plan, WRITES, contents, prepare, socket};

const JOBS: &str = "/api/v1/jobs";
const GREET: &str = r#"{"kind":"greet"}"#;

/// A leader that listens, and a standby that forwards to it.
async fn pair(f: &Fixture) -> (Node, Node, crate::nodes::Listening) {
    let (listener, address) = socket().await;
    let a = Node::start(f, Plan::sharing("a", f.dir.path()).at(address)).leads().await;
    let listening = a.listen(listener);
    let b = Node::start(f, Plan::sharing("b", f.dir.path()).at("http://b.example").forwarding());
    (a, b.follows("a").await, listening)
}

/// A standby that forwards to a leader with this address.
async fn behind(f: &Fixture, address: &str) -> (Node, Node) {
    let a = Node::start(f, Plan::sharing("a", f.dir.path()).at(address)).leads().await;
    let b = Node::start(f, Plan::sharing("b", f.dir.path()).at("http://b.example").forwarding());
    (a, b.follows("a").await)
}

#[tokio::test]
async fn every_write_is_passed_on_and_done_by_the_leader() {
    let f = prepare().await;
    let (_a, b, _listening) = pair(&f).await;
    for (path, body, status) in WRITES {
        let before = contents(&f).await;
        b.post(path, body).await.expect(status);
        assert_ne!(contents(&f).await, before, "{path}");
    }
}

#[tokio::test]
async fn the_answer_is_the_leaders_under_the_callers_request_id() {
    let f = Fixture::new().await;
    let (a, b, _listening) = pair(&f).await;
    let headers = [
        ("idempotency-key", "k"),
        ("x-request-id", "r-1"),
        // A page of this node, which the leader would take for one of another site.
        ("origin", "http://b.example"),
        ("host", "b.example"),
    ];
    let answer = b.post_with(JOBS, &headers, GREET).await.expect(201);
    let id = answer.json()["id"].as_i64().unwrap();
    assert_eq!(answer.header("location"), format!("/api/v1/jobs/{id}"));
    assert_eq!(answer.header("x-request-id"), "r-1");
    let again = a.post_with(JOBS, &headers[..1], GREET).await.expect(200).json();
    assert_eq!(again, json!({ "id": id, "existing": true }));
    let refused = b.post_with(JOBS, &headers, r#"{"kind":"greet","priority":1}"#).await.expect(409);
    assert_eq!(refused.code(), "IDEMPOTENCY_MISMATCH");
    assert_eq!(b.post(JOBS, "{").await.expect(400).code(), "MALFORMED_JSON");
    let missing = b.post("/api/v1/jobs/99/retry", "").await.expect(404);
    assert_eq!(missing.code(), "NOT_FOUND");
}

#[tokio::test]
async fn a_page_of_another_site_is_refused_before_anything_is_passed_on() {
    let f = prepare().await;
    let (_a, b, _listening) = pair(&f).await;
    let before = contents(&f).await;
    let headers = [("origin", "http://evil.example"), ("host", "b.example")];
    let answer = b.post_with("/api/v1/queues/default/pause", &headers, "").await.expect(403);
    assert_eq!(answer.code(), "CROSS_ORIGIN");
    assert_eq!(contents(&f).await, before);
}

#[tokio::test]
async fn what_was_passed_on_is_not_passed_on_again() {
    let f = prepare().await;
    let (_a, b, _listening) = pair(&f).await;
    let before = contents(&f).await;
    for (path, body, _) in WRITES {
        let answer = b.post_with(path, &[("x-stargate-forwarded", "c")], body).await.expect(503);
        assert_eq!(answer.code(), "NOT_LEADER", "{path}");
        assert!(answer.header("x-stargate-leader").starts_with("http://127.0.0.1:"));
    }
    assert_eq!(contents(&f).await, before);
}

#[tokio::test]
async fn an_address_that_leads_to_another_standby_ends_there() {
    let f = prepare().await;
    let (listener, address) = socket().await;
    // The leader tells a wrong address: that of a standby, which forwards as well.
    let (_a, b) = behind(&f, &address).await;
    let c = Node::start(&f, Plan::sharing("c", f.dir.path()).forwarding()).follows("a").await;
    let _listening = c.listen(listener);
    let before = contents(&f).await;
    let answer = b.post(JOBS, GREET).await.expect(503);
    assert_eq!(answer.code(), "NOT_LEADER");
    assert!(answer.text.contains("c does not lead"), "{}", answer.text);
    assert_eq!(contents(&f).await, before);
}

#[tokio::test]
async fn two_nodes_with_one_address_do_not_forward_to_themselves() {
    let f = prepare().await;
    let (_a, b) = behind(&f, "http://b.example").await;
    let answer = b.post(JOBS, GREET).await.expect(503);
    assert!(answer.text.contains("b does not lead"), "{}", answer.text);
}

#[tokio::test]
async fn an_address_that_is_no_http_address_is_not_called_and_not_handed_out() {
    for address in ["ftp://a.example", "a.example:8080", "http://user:word@a.example"] {
        let f = Fixture::new().await;
        let (_a, b) = behind(&f, address).await;
        let answer = b.post(JOBS, GREET).await.expect(503);
        assert_eq!(answer.code(), "NOT_LEADER");
        assert!(!answer.headers.contains_key("x-stargate-leader"), "{address}");
    }
}

#[tokio::test]
async fn a_leader_that_cannot_be_reached_has_done_nothing() {
    let f = Fixture::new().await;
    let (listener, address) = socket().await;
    drop(listener);
    let (_a, b) = behind(&f, &address).await;
    let answer = b.post(JOBS, GREET).await.expect(503);
    assert_eq!(answer.code(), "NOT_LEADER");
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(answer.header("x-stargate-leader"), address);
}

/// A leader that takes a request and dies, after it has sent this much of an answer.
async fn dying_leader(listener: TcpListener, says: &str) -> String {
    let (mut stream, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    while !request.ends_with(GREET.as_bytes()) {
        let bytes = tokio::time::timeout(PATIENCE, stream.read(&mut chunk)).await.unwrap().unwrap();
        assert_ne!(bytes, 0, "the request broke off: {}", String::from_utf8_lossy(&request));
        request.extend_from_slice(&chunk[..bytes]);
    }
    stream.write_all(says.as_bytes()).await.unwrap();
    String::from_utf8(request).unwrap().to_ascii_lowercase()
}

#[tokio::test]
async fn a_leader_that_dies_before_its_answer_is_whole_leaves_the_outcome_open() {
    let half =
        "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 26\r\n\r\n{\"id\":1,";
    for says in ["", "HTTP/1.1 201 Cre", half] {
        let f = Fixture::new().await;
        let (listener, address) = socket().await;
        let (_a, b) = behind(&f, &address).await;
        let headers = [
            ("authorization", "Bearer token-1"),
            ("connection", "keep-alive, x-mine"),
            ("x-mine", "1"),
            ("x-request-id", "r-2"),
        ];
        let request = b.post_with(JOBS, &headers, GREET);
        let (answer, seen) = tokio::join!(request, dying_leader(listener, says));
        let answer: Answer = answer.expect(502);
        assert_eq!(answer.code(), "OUTCOME_UNKNOWN", "after {says:?}");
        assert!(answer.text.contains("Idempotency-Key"), "{}", answer.text);
        assert!(seen.starts_with("post /api/v1/jobs http/1.1\r\n"), "{seen}");
        for line in [
            "x-stargate-forwarded: b",
            "x-request-id: r-2",
            "authorization: bearer token-1",
            "content-length: 16",
        ] {
            assert!(seen.contains(&format!("\r\n{line}\r\n")), "no {line} in {seen}");
        }
        assert!(!seen.contains("x-mine"), "{seen}");
        assert!(!answer.text.contains("token-1"));
    }
}

#[tokio::test]
async fn a_body_is_bounded_on_its_way_through() {
    let f = Fixture::new().await;
    let (_a, b, _listening) = pair(&f).await;
    let large = vec![b' '; stargate_web::api::JOB_BYTES_MAX + 1];
    let declared = b.post(JOBS, large.clone()).await.expect(413);
    assert_eq!(declared.code(), "BODY_TOO_LARGE");
    let pieces: Vec<std::io::Result<Bytes>> =
        large.chunks(64 << 10).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let undeclared = b.post(JOBS, Body::from_stream(stream::iter(pieces))).await.expect(413);
    assert_eq!(undeclared.code(), "BODY_TOO_LARGE");
    // The limit of a batch is higher, and a body without a declared length arrives whole.
    let mut batch = br#"{"jobs":[{"kind":"greet"}]}"#.to_vec();
    batch.resize(3 << 20, b' ');
    let pieces: Vec<std::io::Result<Bytes>> =
        batch.chunks(64 << 10).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let answer = b.post("/api/v1/jobs/batch", Body::from_stream(stream::iter(pieces))).await.expect(201);
    assert_eq!(answer.json()["created"], 1);
    let broken = stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("gone"))]);
    assert_eq!(b.post(JOBS, Body::from_stream(broken)).await.expect(400).code(), "BAD_REQUEST");
}
