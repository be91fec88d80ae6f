//! A real server on a local port, without an engine.

use stargate_queue::job::JobId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::*;

/// Answers one connection with a fixed text and returns what it was sent.
pub(crate) async fn serve_once(listener: TcpListener, answer: String) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request);
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
        if read == 0 || body.zip(length).is_some_and(|(have, want)| have >= want.trim().parse().unwrap()) {
            break;
        }
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    String::from_utf8(request).unwrap()
}

fn execution(payload: &str) -> Execution<'_> {
    Execution {
        job: JobId(42),
        attempt: 3,
        kind: "notify",
        queue: "default",
        payload,
        trace_id: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        timeout: Duration::from_secs(20),
        stopping: CancellationToken::new(),
    }
}

fn http(url: &str) -> Http {
    Http::new(url, client().unwrap()).unwrap()
}

/// Calls a server that answers with this head and body.
async fn call(head: &str, body: &str, change: impl FnOnce(Http) -> Http) -> (HandlerResult, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://user:pass-word-1@{}/secret-path?token=abcdef", listener.local_addr().unwrap());
    let answer =
        format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let http = change(http(&url));
    let execution = execution(r#"{"n":1}"#);
    tokio::join!(http.execute(&execution), serve_once(listener, answer))
}

fn json(result: &HandlerResult) -> &str {
    result.as_ref().unwrap().as_ref().unwrap().get()
}

#[tokio::test]
async fn the_call_carries_the_job_and_the_answer_becomes_the_result() {
    let (result, request) =
        call("200 OK\r\ncontent-type: application/json; charset=utf-8", r#"{"ok":1}"#, |h| h).await;
    assert_eq!(json(&result), r#"{"ok":1}"#);
    assert!(request.starts_with("POST /secret-path?token=abcdef HTTP/1.1"), "{request}");
    for line in [
        "x-stargate-job-id: 42",
        "x-stargate-attempt: 3",
        "x-stargate-kind: notify",
        "idempotency-key: 42",
        "content-type: application/json",
        "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ] {
        assert!(request.contains(line), "{line} is not in {request}");
    }
    assert!(request.ends_with(r#"{"n":1}"#));
    assert!(!request.contains("x-stargate-signature"));
}

#[tokio::test]
async fn a_body_that_is_no_json_is_no_result() {
    for head in ["200 OK\r\ncontent-type: text/html", "200 OK", "200 OK\r\ncontent-type: application/json"] {
        let (result, _) = call(head, "<p>hello</p>", |h| h).await;
        assert!(matches!(result, Ok(None)), "{head}: {result:?}");
    }
    let large = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX));
    let (result, _) = call("200 OK\r\ncontent-type: application/json", &large, |h| h).await;
    assert!(matches!(result, Ok(None)));
}

#[tokio::test]
async fn a_signed_body_can_be_verified() {
    let secret = Secret::new("key");
    let (result, request) = call("204 No Content", "", |h| h.with_secret(secret.clone())).await;
    assert!(result.unwrap().is_none());
    let header = request.lines().find_map(|line| line.strip_prefix("x-stargate-signature: ")).unwrap();
    let time = header.strip_prefix("t=").unwrap().split(',').next().unwrap().parse().unwrap();
    assert_eq!(header, signature(&secret, time, r#"{"n":1}"#));
}

#[test]
fn the_signature_is_the_documented_one() {
    // printf '1700000000.{}' | openssl dgst -sha256 -hmac key
    let expected = "t=1700000000,v1=9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae";
    assert_eq!(signature(&Secret::new("key"), 1_700_000_000, "{}"), expected);
}

#[tokio::test]
async fn refusals_are_final_and_overload_is_not() {
    for (head, code, class) in [
        ("400 Bad Request", HTTP_REJECTED, ErrorClass::ValidationFailure),
        ("404 Not Found", HTTP_REJECTED, ErrorClass::ValidationFailure),
        ("302 Found\r\nlocation: http://127.0.0.1:1/", HTTP_REJECTED, ErrorClass::ValidationFailure),
        ("408 Request Timeout", HTTP_UNAVAILABLE, ErrorClass::RetryableTransient),
        ("429 Too Many Requests", HTTP_UNAVAILABLE, ErrorClass::RetryableTransient),
        ("503 Service Unavailable", HTTP_UNAVAILABLE, ErrorClass::RetryableTransient),
    ] {
        let failure = call(head, "because", |h| h).await.0.unwrap_err();
        assert_eq!((failure.error.code.as_str(), failure.error.class), (code, class), "{head}");
        assert_eq!(failure.error.detail.as_deref(), Some("because"));
        assert_eq!(failure.retry_after, None);
    }
    let busy = call("503 Busy\r\nretry-after: 7", "", |h| h).await.0.unwrap_err();
    assert_eq!(busy.retry_after, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn nothing_secret_is_in_an_error() {
    let change = |h: Http| {
        let token = Secret::new("Bearer tok-en-123");
        h.with_secret(Secret::new("hmac-key-1")).with_header("authorization", &token).unwrap()
    };
    let echo = "you sent Bearer tok-en-123 (tok-en-123) and pass-word-1, hmac-key-1";
    let refused = call("401 Unauthorized", echo, change).await.0.unwrap_err();
    let closed =
        change(http("http://user:pass-word-1@127.0.0.1:1/secret-path")).execute(&execution("1")).await;
    let closed = closed.unwrap_err();
    assert_eq!(closed.error.code, HTTP_UNREACHABLE);
    assert_eq!(closed.error.class, ErrorClass::RetryableTransient);
    for failure in [refused, closed] {
        let text = format!("{failure:?}");
        for secret in ["tok-en-123", "pass-word-1", "hmac-key-1", "secret-path", "abcdef", "user"] {
            assert!(!text.replace("you sent", "").contains(secret), "{secret} is in {text}");
        }
        assert!(text.contains("127.0.0.1"), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_left_when_the_job_must_stop() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = http(&format!("http://{}/", listener.local_addr().unwrap()));
    let execution = execution("{}");
    let stopper = async {
        let connection = listener.accept().await.unwrap();
        execution.stopping.cancel();
        connection
    };
    let (result, _connection) = tokio::join!(http.execute(&execution), stopper);
    assert_eq!(result.unwrap_err().error.message, "stopped");
}

#[tokio::test]
async fn a_server_that_takes_too_long_is_a_transient_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = http(&format!("http://{}/", listener.local_addr().unwrap()));
    let execution = Execution { timeout: Duration::from_millis(50), ..execution("{}") };
    let (result, _connection) = tokio::join!(http.execute(&execution), listener.accept());
    let failure = result.unwrap_err();
    assert_eq!(failure.error.code, HTTP_UNREACHABLE);
    assert!(failure.error.message.contains("in time"), "{}", failure.error.message);
}

#[test]
fn retry_after_is_read_as_seconds_or_date_and_capped_to_an_hour() {
    let now: Timestamp = "2015-10-21T07:28:00Z".parse().unwrap();
    let delay = |text| retry_delay(text, now).map(|delay| delay.as_secs());
    assert_eq!(delay("120"), Some(120));
    assert_eq!(delay("999999999"), Some(3600));
    assert_eq!(delay("Wed, 21 Oct 2015 07:28:30 GMT"), Some(30));
    assert_eq!(delay("Thu, 22 Oct 2015 07:28:30 GMT"), Some(3600));
    assert_eq!(delay("Wed, 21 Oct 2015 07:27:00 GMT"), None);
    for nonsense in ["", "-1", "soon", "1.5"] {
        assert_eq!(delay(nonsense), None, "{nonsense:?}");
    }
}

#[test]
fn addresses_and_headers_that_cannot_work_are_refused_without_repeating_them() {
    for url in ["", "/hook", "ftp://host/", "http://", "file:///etc/passwd"] {
        let error = Http::new(url, client().unwrap()).unwrap_err().to_string();
        assert!(error.contains("http://127.0.0.1"), "{url}: {error}");
    }
    let error = http("http://host/").with_header("x-token", &Secret::new("a\nb")).unwrap_err().to_string();
    assert!(error.contains("x-token") && !error.contains('\n'));
}
