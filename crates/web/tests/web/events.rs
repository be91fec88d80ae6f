//! The timeline, as JSON and live.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use futures::StreamExt as _;
use serde_json::{Value, json};
use stargate_queue::store::{Note, Outcome};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::fixture::Fixture;

/// The messages of a stream: id, type and data.
fn messages(text: &str) -> Vec<(String, String, Value)> {
    let field = |block: &str, name: &str| {
        block
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
            .unwrap_or_default()
    };
    let blocks = text.split("\n\n").filter(|block| block.contains("data"));
    blocks
        .map(|block| {
            (field(block, "id"), field(block, "event"), serde_json::from_str(&field(block, "data")).unwrap())
        })
        .collect()
}

fn live(id: i64, last: Option<&str>) -> Request<Body> {
    let mut request = Request::get(format!("/api/v1/jobs/{id}/events")).header("accept", "text/event-stream");
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    request.body(Body::empty()).unwrap()
}

async fn done_job(f: &Fixture) -> i64 {
    let id = f.job(r#"{"kind":"greet"}"#).await;
    let claimed = f.claim(f.worker().await).await;
    let data = serde_json::value::RawValue::from_string("{\r\n\"a\":\n1}".into()).unwrap();
    let note = Note { fence: claimed[0].fence, progress: None, event: Some(("source:ready".into(), data)) };
    f.store.note(vec![note]).await.unwrap();
    f.settle(&claimed[0], Outcome::Done { result: None }).await;
    id
}

#[tokio::test]
async fn the_timeline_is_numbered_from_one_and_can_be_read_from_anywhere() {
    let f = Fixture::new().await;
    let id = done_job(&f).await;
    let all = f.get(&format!("/api/v1/jobs/{id}/events")).await.expect(200).json();
    let names: Vec<&str> =
        all["events"].as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["created", "processing", "source:ready", "done"]);
    let seqs: Vec<u64> =
        all["events"].as_array().unwrap().iter().map(|e| e["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
    let rest = f.get(&format!("/api/v1/jobs/{id}/events?after=2&limit=1")).await.expect(200).json();
    assert_eq!(rest["events"][0]["seq"], 3);
    assert_eq!(rest["events"].as_array().unwrap().len(), 1);
    assert_eq!(f.get(&format!("/api/v1/jobs/{id}/events?after=x")).await.expect(422).code(), "INVALID");
}

#[tokio::test]
async fn the_stream_of_a_finished_job_replays_and_ends() {
    let f = Fixture::new().await;
    let id = done_job(&f).await;
    let answer = f.send(live(id, None)).await.expect(200);
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let messages = messages(&answer.text);
    let ids: Vec<&str> = messages.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!(ids, ["1", "2", "3", "4", ""]);
    assert_eq!(messages[2].2["data"], json!({ "a": 1 }));
    assert_eq!((messages[4].1.as_str(), &messages[4].2), ("end", &json!({ "state": "done" })));
}

#[tokio::test]
async fn a_client_that_comes_back_gets_only_what_it_missed() {
    let f = Fixture::new().await;
    let id = done_job(&f).await;
    let answer = f.send(live(id, Some("3"))).await.expect(200);
    let ids: Vec<String> = messages(&answer.text).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(ids, ["4", ""]);
    assert_eq!(messages(&f.send(live(id, Some("4"))).await.text).len(), 1, "only the end is left");
    assert_eq!(messages(&f.send(live(id, Some("nonsense"))).await.text).len(), 5);
}

#[tokio::test]
async fn events_arrive_while_the_job_runs_and_the_stream_ends_with_it() {
    let f = Fixture::new().await;
    let id = f.job(r#"{"kind":"greet"}"#).await;
    let response = f.router.clone().oneshot(live(id, None)).await.unwrap();
    let mut body = response.into_body().into_data_stream();
    let mut text = String::new();
    let (mut claimed, mut settled) = (None, false);
    let follow = async {
        while let Some(chunk) = body.next().await {
            text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
            if claimed.is_none() && text.contains("\"created\"") {
                claimed = Some(f.claim(f.worker().await).await.remove(0));
            }
            if let Some(job) = claimed.as_ref().filter(|_| !settled && text.contains("\"processing\"")) {
                f.settle(job, Outcome::Done { result: None }).await;
                settled = true;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), follow).await.expect("the stream does not end");
    let names: Vec<Value> = messages(&text).into_iter().map(|(_, _, data)| data["event"].clone()).collect();
    assert_eq!(names[..3], [json!("created"), json!("processing"), json!("done")], "{text}");
}

#[tokio::test]
async fn the_end_of_a_long_timeline_is_shown_with_the_job() {
    let f = Fixture::new().await;
    let id = f.job(r#"{"kind":"greet"}"#).await;
    let claimed = f.claim(f.worker().await).await;
    for total in [900_u64, 1001, 1002, 2002, 4444] {
        let last = |job: &Value| job["events"].as_array().unwrap().last().unwrap()["seq"].as_u64().unwrap();
        let so_far = last(&f.get(&format!("/api/v1/jobs/{id}")).await.json());
        let data = serde_json::value::RawValue::from_string("{}".into()).unwrap();
        let note = Note { fence: claimed[0].fence, progress: None, event: Some(("n".into(), data)) };
        f.store.note((so_far..total).map(|_| note.clone()).collect()).await.unwrap();
        let job = f.get(&format!("/api/v1/jobs/{id}")).await.json();
        let seqs: Vec<u64> =
            job["events"].as_array().unwrap().iter().map(|e| e["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, (total - 19..=total).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_shutdown_ends_open_streams_and_the_server() {
    let f = Fixture::new().await;
    let id = f.job(r#"{"kind":"greet"}"#).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let client = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET /api/v1/jobs/{id}/events HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let (mut text, mut buffer) = (String::new(), [0; 4096]);
        loop {
            let read = stream.read(&mut buffer).await.unwrap();
            if read == 0 {
                return;
            }
            text.push_str(&String::from_utf8_lossy(&buffer[..read]));
            if text.contains("created") {
                stop.cancel();
            }
        }
    };
    let server = stargate_web::serve(listener, f.app.clone(), stargate_web::Scope::Full, None, stop.clone());
    let both = async { tokio::join!(server, client) };
    tokio::time::timeout(Duration::from_secs(4), both).await.expect("the stream held it up");
}
