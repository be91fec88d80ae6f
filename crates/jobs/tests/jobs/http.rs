//! Servers as handlers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stargate_base::{ErrorClass, Secret};
use stargate_jobs::http::{self, Http};
use stargate_queue::State;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::fixture::{Fixture, profile, result};

/// Answers the connections one after the other and returns what each was sent.
async fn serve(listener: TcpListener, answers: &[&str]) -> Vec<String> {
    // The payload of these tests ends with this mark.
    serve_until(listener, "end\"}", answers).await
}

/// The same for requests that end with a mark.
pub(crate) async fn serve_until(listener: TcpListener, mark: &str, answers: &[&str]) -> Vec<String> {
    let mut requests = Vec::new();
    for answer in answers {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut text, mut buffer) = (String::new(), [0; 4096]);
        while !text.ends_with(mark) {
            let read = stream.read(&mut buffer).await.unwrap();
            assert_ne!(read, 0, "the client left after {text:?}");
            text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
        stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        requests.push(text);
    }
    requests
}

async fn fixture() -> (Fixture, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let handler = Http::new(&url, http::client().unwrap()).unwrap().with_secret(Secret::new("key"));
    let f = Fixture::start(|_, r| r.register("notify", profile(), Arc::new(handler)).unwrap()).await;
    (f, listener)
}

#[tokio::test]
async fn an_overloaded_server_is_asked_again_and_its_answer_becomes_the_result() {
    let (f, listener) = fixture().await;
    let answers = [
        "503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",
        "200 OK\r\ncontent-type: application/json\r\ncontent-length: 8\r\n\r\n{\"ok\":1}",
    ];
    let both = async { tokio::join!(f.run("notify", json!({ "mark": "end" })), serve(listener, &answers)) };
    let (job, requests) = tokio::time::timeout(Duration::from_secs(30), both).await.expect("not done");
    assert_eq!((result(&job), job.attempt_count), (json!({ "ok": 1 }), 2));
    for (request, attempt) in requests.iter().zip(["1", "2"]) {
        assert!(request.contains(&format!("x-stargate-attempt: {attempt}\r\n")), "{request}");
        assert!(request.contains(&format!("idempotency-key: {}\r\n", job.id)), "{request}");
        assert!(request.contains("x-stargate-signature: t="), "{request}");
    }
    f.stop().await;
}

#[tokio::test]
async fn a_refusal_fails_the_job_at_once() {
    let (f, listener) = fixture().await;
    let answers = ["422 Unprocessable\r\ncontent-length: 7\r\n\r\nbad end"];
    let (job, _) = tokio::join!(f.run("notify", json!({ "mark": "end" })), serve(listener, &answers));
    let error = job.error.unwrap();
    assert_eq!((job.state, job.attempt_count), (State::Failed, 1));
    assert_eq!((error.code.as_str(), error.class), (http::HTTP_REJECTED, ErrorClass::ValidationFailure));
    assert_eq!(error.detail.as_deref(), Some("bad end"));
    f.stop().await;
}
