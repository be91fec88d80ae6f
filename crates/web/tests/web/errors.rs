//! The envelope around everything that goes wrong.

use axum::body::Body;
use axum::http::{Method, Request};

use crate::fixture::Fixture;

#[tokio::test]
async fn unknown_routes_and_methods_have_the_envelope_too() {
    let f = Fixture::new().await;
    for path in
        ["/nothing", "/api/v1", "/api/v1/nothing", "/api/v1/jobs/1/2/3", "/api/v2/jobs", "/api/v1/jobs/"]
    {
        assert_eq!(f.get(path).await.expect(404).code(), "NOT_FOUND", "{path}");
    }
    for (method, path) in
        [(Method::DELETE, "/api/v1/jobs"), (Method::POST, "/healthz"), (Method::GET, "/api/v1/jobs/1/retry")]
    {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let answer = f.send(request).await.expect(405);
        assert_eq!(answer.code(), "METHOD_NOT_ALLOWED", "{path}");
        assert!(!answer.header("allow").is_empty());
    }
}

#[tokio::test]
async fn every_answer_has_a_request_id_and_a_callers_own_is_kept() {
    let f = Fixture::new().await;
    assert_eq!(f.get("/healthz").await.header("x-request-id").len(), 32);
    let request = Request::get("/nothing").header("x-request-id", "caller-1").body(Body::empty()).unwrap();
    let answer = f.send(request).await.expect(404);
    assert_eq!(answer.header("x-request-id"), "caller-1");
    assert_eq!(answer.json()["error"]["request_id"], "caller-1");
    let request = Request::get("/nothing").header("x-request-id", "<script>").body(Body::empty()).unwrap();
    assert_ne!(f.send(request).await.header("x-request-id"), "<script>");
}

#[tokio::test]
async fn paths_that_are_no_text_are_refused_with_the_envelope() {
    let f = Fixture::new().await;
    let answer = f.get("/api/v1/jobs/%FF").await;
    assert!(answer.status.is_client_error(), "{}", answer.text);
    answer.code();
    let answer = f.post("/api/v1/queues/%FF/pause", "").await;
    assert!(answer.status.is_client_error(), "{}", answer.text);
    answer.code();
}

#[tokio::test]
async fn a_panic_is_a_500_that_tells_nothing_of_the_inside() {
    let panicking: std::sync::Arc<dyn stargate_web::Health> =
        std::sync::Arc::new(|| -> Vec<stargate_web::Check> { panic!("the password is swordfish") });
    let f = Fixture::with(|app| app.health = panicking).await;
    let answer = f.get("/healthz").await.expect(500);
    assert_eq!(answer.code(), "INTERNAL");
    assert!(!answer.text.contains("swordfish"));
}

#[tokio::test]
async fn a_page_of_another_site_cannot_change_anything() {
    let f = Fixture::new().await;
    let headers = [("host", "127.0.0.1:8080"), ("origin", "http://evil.example")];
    let answer = f.post_with("/api/v1/queues/default/pause", &headers, "").await.expect(403);
    assert_eq!(answer.code(), "CROSS_ORIGIN");
    assert_eq!(f.post("/api/v1/queues/default/pause", "").await.expect(200).json()["paused"], true);
}
