//! Real servers on local addresses.

use std::net::Ipv4Addr;

use stargate_base::clock;
use stargate_repo::{
    DeliveryId, NewWebhook, Occasion, PushEvent, PushEventId, RefUpdate, Webhook, WebhookId,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::clip::SSRF_BLOCKED;
use crate::http::tests::serve_once;
use crate::http::{HTTP_REJECTED, HTTP_UNAVAILABLE, HTTP_UNREACHABLE, signature};

/// Stands for a host of the internet.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const KEY: &str = "hmac-canary";
const PATH: &str = "/services/path-canary/a%2Fpart%2Dcanary?token=query%2Bcanary";

fn delivery(url: &str, secret_ref: Option<&str>) -> Delivery {
    let update =
        RefUpdate { ref_name: "refs/heads/main".into(), old_oid: "a".repeat(40), new_oid: "b".repeat(40) };
    let event = PushEvent {
        id: PushEventId(7),
        repo: "team/app".into(),
        update,
        pusher: Some("ann".into()),
        request_id: "r1".into(),
        epoch: None,
        received_at: clock::wall(),
        created_at: clock::wall(),
        processed_at: None,
    };
    let hook = NewWebhook {
        repo: None,
        url: url.into(),
        secret_ref: secret_ref.map(str::to_owned),
        events: vec![Occasion::Push],
    };
    let hook = Webhook { id: WebhookId(3), hook, created_at: clock::wall() };
    Delivery { id: DeliveryId(42), event, hook, delivered_at: None }
}

fn secrets() -> Secrets {
    Arc::new(|name| match name {
        "HOOK" => Some(Secret::new(KEY)),
        "EMPTY" => Some(Secret::new("")),
        _ => None,
    })
}

/// Calls hosts beside it, and waits as long as a loaded machine may need.
fn neighbour() -> HttpCourier {
    HttpCourier::new(&Settings { allow_private: true, ..Settings::default() }, secrets()).unwrap()
}

fn waiting(timeout: Duration) -> HttpCourier {
    let settings = Settings { allow_private: true, timeout, ..Settings::default() };
    HttpCourier::new(&settings, secrets()).unwrap()
}

async fn listen(address: Ipv4Addr) -> (TcpListener, String) {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let url = format!("http://{}{PATH}", listener.local_addr().unwrap());
    (listener, url)
}

/// Delivers to a server that answers with this head and body.
async fn call(head: &str, body: &str, secret_ref: Option<&str>) -> (Result<(), Failure>, String) {
    let (listener, url) = listen(Ipv4Addr::LOCALHOST).await;
    let answer =
        format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let (courier, delivery) = (neighbour(), delivery(&url, secret_ref));
    tokio::join!(courier.deliver(&delivery), serve_once(listener, answer))
}

/// A connection whose request has been read: an answer that comes before it is none.
async fn asked(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        request.push(stream.read_u8().await.unwrap());
    }
    stream
}

async fn is_contacted(listener: &TcpListener) -> bool {
    tokio::time::timeout(Duration::ZERO, listener.accept()).await.is_ok()
}

#[track_caller]
fn assert_hides(failure: &Failure) {
    let text = format!("{failure:?}");
    assert!(!text.contains("canary"), "{text}");
    assert!(!text.contains("services"), "{text}");
}

#[tokio::test]
async fn a_delivery_carries_its_number_its_event_and_a_signature_that_can_be_verified() {
    let (result, request) = call("204 No Content", "", Some("HOOK")).await;
    result.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with(&format!("POST {PATH} HTTP/1.1\r\n")), "{head}");
    for line in [
        "x-stargate-delivery: 42",
        "x-stargate-event: push",
        "idempotency-key: 42",
        "content-type: application/json",
        concat!("user-agent: stargate/", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(head.lines().any(|l| l == line), "{line} is not in {head}");
    }
    let header = head.lines().find_map(|line| line.strip_prefix("x-stargate-signature: ")).unwrap();
    let time = header.strip_prefix("t=").unwrap().split(',').next().unwrap().parse().unwrap();
    assert_eq!(header, signature(&Secret::new(KEY), time, body));
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["delivery"], &body["event"]), (&42.into(), &"push".into()));
    assert_eq!((&body["repo"], &body["ref"]), (&"team/app".into(), &"refs/heads/main".into()));
}

#[tokio::test]
async fn a_hook_without_a_secret_is_not_signed() {
    let (result, request) = call("200 OK", "thanks", None).await;
    result.unwrap();
    assert!(!request.contains("signature"), "{request}");
}

#[tokio::test]
async fn refusals_are_final_and_overload_is_not() {
    let (elsewhere, _) = listen(Ipv4Addr::LOCALHOST).await;
    let redirect = format!("307 Elsewhere\r\nlocation: http://{}/", elsewhere.local_addr().unwrap());
    for (head, code, class) in [
        ("400 Bad Request", HTTP_REJECTED, ErrorClass::ValidationFailure),
        ("401 Unauthorized", HTTP_REJECTED, ErrorClass::ValidationFailure),
        ("404 Not Found\r\nretry-after: 7", HTTP_REJECTED, ErrorClass::ValidationFailure),
        ("410 Gone", HTTP_REJECTED, ErrorClass::ValidationFailure),
        (&redirect, HTTP_REJECTED, ErrorClass::ValidationFailure),
        ("408 Request Timeout", HTTP_UNAVAILABLE, ErrorClass::RetryableTransient),
        ("425 Too Early", HTTP_UNAVAILABLE, ErrorClass::RetryableTransient),
        ("429 Too Many Requests", HTTP_UNAVAILABLE, ErrorClass::RetryableTransient),
        ("500 Oops", HTTP_UNAVAILABLE, ErrorClass::RetryableTransient),
        ("503 Service Unavailable", HTTP_UNAVAILABLE, ErrorClass::RetryableTransient),
    ] {
        let failure = call(head, "because", None).await.0.unwrap_err();
        assert_eq!((failure.error.code.as_str(), failure.error.class), (code, class), "{head}");
        assert_eq!(failure.error.detail.as_deref(), Some("because"));
        assert_eq!(failure.retry_after, None, "{head}");
        assert_eq!(failure.error.message.contains("not followed"), head.starts_with('3'), "{failure:?}");
    }
    assert!(!is_contacted(&elsewhere).await, "the redirect was followed");
    let busy = call("429 Busy\r\nretry-after: 7", "", None).await.0.unwrap_err();
    assert_eq!(busy.retry_after, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn private_addresses_are_blocked_before_they_are_contacted_unless_they_are_allowed() {
    let (inside, _) = listen(Ipv4Addr::LOCALHOST).await;
    let port = inside.local_addr().unwrap().port();
    let strict = HttpCourier::new(&Settings::default(), secrets()).unwrap();
    let pretending = Reach::Pretend(OUTSIDE.into());
    let outgoing = HttpCourier::reaching(pretending, TIMEOUT, secrets()).unwrap();
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"] {
        for courier in [&strict, &outgoing] {
            let delivery = delivery(&format!("http://{host}:{port}{PATH}"), Some("HOOK"));
            let failure = courier.deliver(&delivery).await.unwrap_err();
            assert_eq!(failure.error.code, SSRF_BLOCKED, "{host}: {failure:?}");
            assert_eq!(failure.error.class, ErrorClass::ValidationFailure);
            assert!(failure.error.message.contains("webhooks.allow_private"), "{failure:?}");
            assert_hides(&failure);
        }
    }
    assert!(!is_contacted(&inside).await, "the private server was contacted");

    let ok = || "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned();
    let allowed = delivery(&format!("http://localhost:{port}{PATH}"), None);
    let courier = neighbour();
    let (result, _) = tokio::join!(courier.deliver(&allowed), serve_once(inside, ok()));
    result.unwrap();
    let (outside, url) = listen(OUTSIDE).await;
    let public = delivery(&url, None);
    let (result, _) = tokio::join!(outgoing.deliver(&public), serve_once(outside, ok()));
    result.unwrap();
}

#[tokio::test]
async fn neither_the_secret_nor_the_path_is_in_a_failure() {
    let echo = format!(
        "Cannot POST {PATH}; a/part-canary, query+canary, query%2Bcanary, \\/services\\/path-canary, {KEY}"
    );
    let refused = call("404 Not Found", &echo, Some("HOOK")).await.0.unwrap_err();
    assert!(refused.error.detail.as_deref().unwrap().starts_with("Cannot POST ***; ***"), "{refused:?}");
    let closed = delivery(&format!("http://127.0.0.1:1{PATH}"), Some("HOOK"));
    let closed = neighbour().deliver(&closed).await.unwrap_err();
    assert_eq!(closed.error.code, HTTP_UNREACHABLE);
    assert_eq!(closed.error.class, ErrorClass::RetryableTransient);
    for failure in [refused, closed] {
        assert_hides(&failure);
        assert!(failure.error.message.contains("http://127.0.0.1:"), "{failure:?}");
    }
    assert!(!format!("{:?}", neighbour()).contains("canary"));
}

#[tokio::test]
async fn a_secret_that_is_cut_at_the_end_of_a_long_answer_is_not_shown_either() {
    for shift in (0..PATH.len() + KEY.len()).step_by(3) {
        let filler = "ü-".repeat(2000);
        let long = format!("{}{PATH}{KEY}{filler}", &filler[..4095 - shift]);
        let failure = call("400 Bad Request", &long, Some("HOOK")).await.0.unwrap_err();
        let detail = failure.error.detail.unwrap();
        assert!((3000..=4096).contains(&detail.len()), "{}", detail.len());
        assert!(detail.chars().all(|c| "ü-*?".contains(c)), "{shift}: {}", &detail[3000..]);
    }
}

#[tokio::test]
async fn an_answer_without_end_is_read_to_a_bound() {
    let (listener, url) = listen(Ipv4Addr::LOCALHOST).await;
    let endless = async {
        let mut stream = asked(&listener).await;
        let head = "HTTP/1.1 500 Oops\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        // Ends when the client leaves.
        while stream.write_all(&[b'x'; 8192]).await.is_ok() {}
    };
    let (courier, delivery) = (neighbour(), delivery(&url, None));
    let (result, ()) = tokio::join!(courier.deliver(&delivery), endless);
    let failure = result.unwrap_err();
    assert_eq!(failure.error.code, HTTP_UNAVAILABLE);
    assert!(failure.error.detail.unwrap().len() <= 4096);
}

#[tokio::test]
async fn a_secret_that_is_not_there_needs_an_operator_and_nothing_is_sent() {
    let (listener, url) = listen(Ipv4Addr::LOCALHOST).await;
    for name in ["OTHER", "EMPTY"] {
        let failure = neighbour().deliver(&delivery(&url, Some(name))).await.unwrap_err();
        assert_eq!((failure.error.code.as_str(), failure.error.class), (SECRET_MISSING, ErrorClass::Fatal));
        let expected = format!("webhook 3 is signed with the secret {name}, which");
        assert!(failure.error.message.starts_with(&expected), "{failure:?}");
        assert!(failure.error.message.contains("[webhooks.secrets]"), "{failure:?}");
        assert_hides(&failure);
    }
    assert!(!is_contacted(&listener).await);
}

#[tokio::test]
async fn a_server_that_takes_too_long_is_a_transient_failure() {
    let (listener, url) = listen(Ipv4Addr::LOCALHOST).await;
    let (courier, delivery) = (waiting(Duration::from_millis(50)), delivery(&url, None));
    let (result, _connection) = tokio::join!(courier.deliver(&delivery), listener.accept());
    let failure = result.unwrap_err();
    assert_eq!(failure.error.code, HTTP_UNREACHABLE);
    assert!(failure.error.message.contains("in time"), "{}", failure.error.message);
    assert_hides(&failure);
}

#[tokio::test]
async fn a_refusal_whose_body_never_ends_is_still_that_refusal() {
    let (listener, url) = listen(Ipv4Addr::LOCALHOST).await;
    let silent = async {
        let mut stream = asked(&listener).await;
        let head = "HTTP/1.1 400 Bad Request\r\ncontent-length: 100\r\n\r\nhalf";
        stream.write_all(head.as_bytes()).await.unwrap();
        // Until the client leaves.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    };
    let (courier, delivery) = (waiting(Duration::from_secs(3)), delivery(&url, None));
    let (result, ()) = tokio::join!(courier.deliver(&delivery), silent);
    assert_eq!(result.unwrap_err().error.code, HTTP_REJECTED);
}

#[tokio::test]
async fn a_hook_that_could_not_be_entered_today_is_refused_without_repeating_its_address() {
    for url in ["canary", "ftp://example.com/canary", "https://user:canary@example.com/"] {
        let failure = neighbour().deliver(&delivery(url, None)).await.unwrap_err();
        assert_eq!(failure.error.class, ErrorClass::ValidationFailure, "{url}");
        assert!(failure.error.message.starts_with("webhook 3: url "), "{failure:?}");
        assert_hides(&failure);
    }
}
