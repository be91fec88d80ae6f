//! A browser's session: the token in a cookie, changes only from our own page, and headers that keep browsers from harm.

use axum::http::Method;
use stargate_access::Policy;
use stargate_web::Options;

use crate::access::Guarded;
use crate::fixture::Fixture;

const PAUSE: &str = "/api/v1/queues/default/pause";

#[tokio::test]
async fn a_cookie_lets_in_as_the_header_does_and_changes_only_from_our_own_page() {
    let guarded = Guarded::new(Policy::Tokens).await;
    let token = guarded.token("operate:*").await;
    let cookie = format!("theme=dark; stargate_session={}", token.reveal());
    let with = async |method, path: &str, more: &[(&str, &str)]| {
        let headers = [&[("cookie", cookie.as_str()), ("host", "node:8080")][..], more].concat();
        guarded.call(method, path, &headers, "").await
    };
    with(Method::GET, "/api/v1/jobs", &[]).await.expect(200);
    with(Method::GET, "/api/v1/jobs", &[("sec-fetch-site", "cross-site")]).await.expect(200);
    for foreign in [
        &[][..],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://node:8080"), ("sec-fetch-site", "cross-site")],
    ] {
        let refused = with(Method::POST, PAUSE, foreign).await.expect(403);
        assert_eq!(refused.code(), "CROSS_ORIGIN", "{foreign:?}");
    }
    assert!(guarded.fixture.store.pauses().await.unwrap().is_empty(), "something was paused");
    with(Method::POST, PAUSE, &[("sec-fetch-site", "same-origin")]).await.expect(200);
    with(Method::POST, PAUSE, &[("origin", "http://node:8080")]).await.expect(200);
}

#[tokio::test]
async fn a_cookie_that_is_no_token_lets_nobody_in_and_a_header_needs_no_origin() {
    let guarded = Guarded::new(Policy::Tokens).await;
    let token = guarded.token("operate:*").await;
    for cookie in ["stargate_session=nonsense", "stargate_session=", "other=sg_x"] {
        guarded.call(Method::GET, "/api/v1/jobs", &[("cookie", cookie)], "").await.expect(401);
    }
    let bearer = format!("Bearer {}", token.reveal());
    guarded.call(Method::POST, PAUSE, &[("authorization", &bearer)], "").await.expect(200);
}

#[tokio::test]
async fn without_tokens_only_names_of_this_machine_are_answered_to() {
    let guarded = Guarded::new(Policy::Open).await;
    for host in ["127.0.0.1:8080", "[::1]:8080", "localhost:8080", "a.localhost"] {
        guarded.call(Method::GET, "/api/v1/jobs", &[("host", host)], "").await.expect(200);
    }
    let rebound = [
        ("host", "evil.example:8080"),
        ("origin", "http://evil.example:8080"),
        ("sec-fetch-site", "same-origin"),
    ];
    for (method, path) in [
        (Method::GET, "/"),
        (Method::GET, "/api/v1/jobs"),
        (Method::POST, PAUSE),
        (Method::GET, "/metrics"),
        (Method::GET, "/nothing"),
    ] {
        let refused = guarded.call(method, path, &rebound, "").await.expect(421);
        assert_eq!(refused.code(), "FOREIGN_HOST", "{path}");
    }
    assert!(guarded.fixture.store.pauses().await.unwrap().is_empty(), "something was paused");
    let bearer = format!("Bearer {}", guarded.token("operate:*").await.reveal());
    let with_token = [&rebound[..], &[("authorization", bearer.as_str())]].concat();
    guarded.call(Method::POST, PAUSE, &with_token, "").await.expect(200);
    guarded.call(Method::POST, PAUSE, &rebound, "").await.expect(401);
}

#[tokio::test]
async fn every_answer_tells_browsers_what_they_may_not_do() {
    let f = Fixture::new().await;
    for path in ["/api/v1/jobs", "/api/v1/nothing", "/healthz", "/metrics", "/nothing"] {
        let answer = f.get(path).await;
        let policy = answer.header("content-security-policy");
        for part in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"]
        {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), value, "{path}");
        }
    }
}

#[tokio::test]
async fn below_a_sub_path_everything_is_there_twice_and_links_have_it() {
    let options = Options { base_path: "/tools/stargate".to_owned(), ..Options::default() };
    let f = Fixture::with(|app| app.options = options).await;
    for base in ["", "/tools/stargate"] {
        let answer = f.post(&format!("{base}/api/v1/jobs"), r#"{"kind":"greet"}"#).await.expect(201);
        assert!(answer.header("location").starts_with("/tools/stargate/api/v1/jobs/"), "{base}");
        f.get(&format!("{base}/healthz")).await.expect(200);
        assert_eq!(f.get(&format!("{base}/nothing")).await.expect(404).code(), "NOT_FOUND");
    }
    let document = f.get("/tools/stargate/api/v1/openapi.json").await.expect(200).json();
    assert_eq!(document["servers"][0]["url"], "/tools/stargate/api/v1");
    assert_eq!(document["openapi"].as_str().unwrap().split('.').next(), Some("3"));
}
