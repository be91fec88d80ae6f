//! What goes wrong with JSON APIs ends in the right class, without secrets, and the same page can be asked for again.

use std::time::Duration;

use stargate_base::ErrorClass::{Fatal, RetryableTransient, ValidationFailure};
use stargate_directive::Pointer;
use stargate_directive::source::SourceError;
use stargate_testkit::source_server::{Fault, SourceServer};

use crate::fixture::{CURSOR, KEY, LINK, TOKEN, TOTAL, api, ids, open, take, take_all};

/// What the second page fails with; then the rest is read, and all of it is there once.
async fn failed(fault: Fault, keys: &str) -> SourceError {
    let server = SourceServer::start(50);
    server.fault_at(2, fault);
    let mut feed = open(&api(&server, &format!("{CURSOR}\n{keys}")), &Pointer::Null).await;
    let mut pages = vec![take(&mut feed, 20).await.unwrap()];
    let error = take(&mut feed, 20).await.unwrap_err();
    assert!(!error.restart);
    pages.extend(take_all(&mut feed, &[20]).await.unwrap());
    assert_eq!(ids(&pages), (0..50).collect::<Vec<_>>());
    error
}

#[tokio::test]
async fn a_source_that_wants_to_be_left_alone_says_for_how_long() {
    let seconds = failed(Fault::status(429).with_header("retry-after", "7"), "").await;
    assert_eq!((seconds.class, seconds.code), (RetryableTransient, "SOURCE_STATUS"));
    assert_eq!((seconds.retry_after, seconds.limited), (Some(Duration::from_secs(7)), true));
    let date =
        failed(Fault::status(503).with_header("retry-after", "Thu, 01 Jan 2099 00:00:00 GMT"), "").await;
    assert_eq!(
        (date.retry_after, date.limited),
        (Some(Duration::from_secs(3600)), true),
        "capped to an hour"
    );
    let silent = failed(Fault::status(429), "").await;
    assert_eq!((silent.retry_after, silent.limited), (None, true));
}

#[tokio::test]
async fn a_403_that_tells_of_a_limit_is_waited_for_like_a_429() {
    for (name, value, wait) in [
        ("retry-after", "7", Some(7)),
        ("x-ratelimit-remaining", "0", None),
        ("ratelimit-remaining", "0", None),
    ] {
        let error = failed(Fault::status(403).with_header(name, value), "").await;
        assert_eq!((error.class, error.code), (RetryableTransient, "SOURCE_STATUS"), "{name}");
        assert_eq!((error.retry_after, error.limited), (wait.map(Duration::from_secs), true), "{name}");
    }
    let reset = Fault::status(403).with_header("x-ratelimit-remaining", "0");
    let reset = failed(reset.with_header("x-ratelimit-reset", "4070908800"), "").await;
    assert_eq!(reset.retry_after, Some(Duration::from_secs(3600)), "in 2099, capped to an hour");
    let left = failed(Fault::status(403).with_header("x-ratelimit-remaining", "4999"), "").await;
    assert_eq!((left.class, left.code), (Fatal, "SOURCE_REFUSED"), "there was room left");
}

#[tokio::test]
async fn each_status_ends_in_its_class() {
    for (status, class, code) in [
        (500, RetryableTransient, "SOURCE_STATUS"),
        (408, RetryableTransient, "SOURCE_STATUS"),
        (401, Fatal, "SOURCE_REFUSED"),
        (403, Fatal, "SOURCE_REFUSED"),
        (404, Fatal, "SOURCE_STATUS"),
    ] {
        let body = Fault::Answer { status, headers: Vec::new(), body: b"{\"why\":\n\"so\"}".to_vec() };
        let error = failed(body, "").await;
        assert_eq!((error.class, error.code, error.limited), (class, code, false), "{status}");
        assert!(error.message.contains(&status.to_string()) && error.message.contains("so"), "{error}");
    }
}

#[tokio::test]
async fn answers_that_are_no_json_are_garbled_and_shown() {
    let html = failed(Fault::html(), "").await;
    assert_eq!((html.class, html.code), (RetryableTransient, "SOURCE_GARBLED"));
    assert!(html.message.contains("text/html") && html.message.contains("<h1>Sign in"), "{html}");
    for fault in [Fault::Truncate, Fault::json("{\"items\":[{\"id\":1},"), Fault::json("")] {
        let error = failed(fault.clone(), "").await;
        assert_eq!((error.class, error.code), (RetryableTransient, "SOURCE_GARBLED"), "{fault:?}");
    }
    let broken = failed(Fault::json("no gzip").with_header("content-encoding", "gzip"), "").await;
    assert_eq!((broken.class, broken.code), (RetryableTransient, "SOURCE_GARBLED"));
}

#[tokio::test]
async fn json_of_another_shape_needs_its_maintainer() {
    let cases = [
        ("{\"error\":\"x\"}", "\"/items\", there is nothing"),
        ("{\"items\":{}}", "\"/items\", there is an object"),
        ("[]", "\"/items\", there is nothing"),
        ("{\"items\":[],\"next\":true,\"total\":1}", "\"/next\", there is true or false"),
        ("{\"items\":[],\"next\":{},\"total\":1}", "\"/next\", there is an object"),
        ("{\"items\":[],\"next\":\"a\"}", "\"/total\", there is nothing"),
        ("{\"items\":[],\"next\":\"a\",\"total\":\"many\"}", "\"/total\", there is text"),
    ];
    for (body, expected) in cases {
        let error = failed(Fault::json(body), TOTAL).await;
        assert_eq!((error.class, error.code), (ValidationFailure, "SOURCE_SHAPE"), "{body}");
        assert!(error.message.contains(expected), "{body}: {error}");
    }
}

#[tokio::test]
async fn a_source_that_hangs_is_given_up_after_its_time() {
    for fault in [Fault::Hang, Fault::HangInside] {
        let error = failed(fault.clone(), "timeout = \"2s\"").await;
        assert_eq!((error.class, error.code), (RetryableTransient, "SOURCE_TIMEOUT"), "{fault:?}");
    }
}

#[tokio::test]
async fn a_source_that_is_not_there_may_come_back() {
    let closed = failed(Fault::Close, "").await;
    assert_eq!((closed.class, closed.code), (RetryableTransient, "SOURCE_UNREACHABLE"));
    let server = SourceServer::start(1);
    let source = api(&server, "");
    drop(server);
    let error = take(&mut open(&source, &Pointer::Null).await, 1).await.unwrap_err();
    assert_eq!((error.class, error.code), (RetryableTransient, "SOURCE_UNREACHABLE"));
    let unknown = "type = \"http\"\nurl = \"http://no-such-host.invalid/\"";
    let error = take(&mut open(unknown, &Pointer::Null).await, 1).await.unwrap_err();
    assert_eq!((error.class, error.code), (RetryableTransient, "SOURCE_UNREACHABLE"));
}

#[tokio::test]
async fn redirects_stay_at_home_with_the_headers() {
    let (server, stranger) = (SourceServer::start(50), SourceServer::start(50));
    let headers = "headers = { authorization = \"Bearer ${env:TOKEN}\" }";
    let to = |place: &str| Fault::status(307).with_header("location", place);
    server.fault_at(1, to("/items?limit=3"));
    let mut feed = open(&api(&server, headers), &Pointer::Null).await;
    assert_eq!(take(&mut feed, 7).await.unwrap().records.len(), 3);
    assert_eq!(server.requests()[1].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));

    for place in [stranger.url(), "ftp://127.0.0.1/items".to_owned(), server.url().replace("http:", "https:")]
    {
        server.fault_next(to(&place));
        let error = take(&mut feed, 7).await.unwrap_err();
        assert_eq!((error.class, error.code), (Fatal, "SOURCE_REDIRECT"), "{place}");
    }
    assert_eq!(stranger.request_count(), 0);

    let before = server.request_count();
    server.script(move |_| Some(to("/items")));
    let error = take(&mut feed, 7).await.unwrap_err();
    assert_eq!((error.class, error.code), (Fatal, "SOURCE_REDIRECT"));
    assert_eq!(server.request_count() - before, 6);
}

#[tokio::test]
async fn a_password_in_the_address_goes_along_with_a_redirect() {
    let server = SourceServer::start(5);
    server.fault_at(1, Fault::status(302).with_header("location", "/items"));
    let source = api(&server, "").replace("http://", "http://user:${env:TOKEN}@");
    assert_eq!(take(&mut open(&source, &Pointer::Null).await, 7).await.unwrap().records.len(), 5);
    let sent: Vec<_> =
        server.requests().iter().map(|r| r.header("authorization").map(str::to_owned)).collect();
    assert!(sent[0].as_ref().is_some_and(|value| value.starts_with("Basic ")), "{sent:?}");
    assert_eq!(sent[0], sent[1]);
}

#[tokio::test]
async fn links_stay_at_home_too() {
    let (server, stranger) = (SourceServer::start(50), SourceServer::start(50));
    let link = format!("<{}>; rel=\"next\"", stranger.url());
    server.fault_at(1, Fault::Headers(vec![("link".to_owned(), link)]));
    let error = take(&mut open(&api(&server, LINK), &Pointer::Null).await, 7).await.unwrap_err();
    assert_eq!((error.class, error.code), (Fatal, "SOURCE_REDIRECT"));
    assert_eq!(stranger.request_count(), 0);
}

#[tokio::test]
async fn a_link_header_that_cannot_be_read_is_no_end() {
    for link in
        ["<unclosed; rel=next", "</b>; rel=\"next", "/items; rel=next", "</a>; rel=prev </b>; rel=next"]
    {
        let server = SourceServer::start(50);
        let page = Fault::json(r#"{"items":[{"id":0}]}"#).with_header("link", link);
        server.fault_at(1, page);
        let error = take(&mut open(&api(&server, LINK), &Pointer::Null).await, 7).await.unwrap_err();
        assert_eq!((error.class, error.code), (ValidationFailure, "SOURCE_SHAPE"), "{link}");
        assert!(error.message.contains("the header Link"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_tells_the_address_back_shows_no_secret_of_it() {
    let server = SourceServer::start(50);
    let source = format!(
        "type = \"http\"\nurl = \"{}/${{env:TOKEN}}/items?key=${{env:KEY}}\"\nrecords = \"/items\"",
        server.origin().replace("http://", "http://${env:TOKEN}:x@")
    );
    let encoded = KEY.replace('/', "%2F").replace('=', "%3D");
    let echoes = [
        format!("Cannot GET /{TOKEN}/items"),
        format!("bad key {KEY}"),
        format!("bad query ?key={encoded}"),
        format!("bad query ?key={}", encoded.to_lowercase()),
    ];
    for echo in echoes {
        server.fault_next(Fault::Answer {
            status: 404,
            headers: Vec::new(),
            body: echo.clone().into_bytes(),
        });
        let error = take(&mut open(&source, &Pointer::Null).await, 7).await.unwrap_err();
        for secret in [TOKEN, "5e1f", "do~not"] {
            assert!(!format!("{error} {error:?}").contains(secret), "{echo}: {error}");
        }
    }
}

#[tokio::test]
async fn secrets_are_in_no_error() {
    let server = SourceServer::start(50);
    let url = server.url().replace("http://", "http://user:${env:TOKEN}@");
    let source = format!(
        "type = \"http\"\nurl = \"{url}?key=${{env:TOKEN}}\"\nrecords = \"/items\"\ntimeout = \"2s\"\n\
         headers = {{ authorization = \"Bearer ${{env:TOKEN}}\" }}"
    );
    let echo = format!("you sent Bearer {TOKEN} to ?key={TOKEN}");
    let faults = [
        Fault::body(&format!("text/{TOKEN}"), echo.clone()),
        Fault::Answer { status: 403, headers: Vec::new(), body: echo.into_bytes() },
        Fault::json("{}"),
        Fault::Close,
        Fault::Truncate,
        Fault::Hang,
        Fault::status(302).with_header("location", &format!("http://other.invalid/?key={TOKEN}")),
    ];
    let mut feed = open(&source, &Pointer::Null).await;
    assert!(!format!("{feed:?}").contains(TOKEN));
    for fault in faults {
        server.fault_next(fault.clone());
        let error = take(&mut feed, 7).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains(TOKEN), "{fault:?}: {error}");
        assert!(error.message.contains("/items") && !error.message.contains("items?"), "{error}");
    }
}
