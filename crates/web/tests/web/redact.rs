//! Values under telling names: shown to who may operate, and to nobody else, wherever they are.

use axum::http::Method;
use serde_json::json;
use stargate_access::Policy;
use stargate_queue::JobId;
use stargate_web::Options;

use crate::access::Guarded;

const BODY: &str = r#"{"kind":"greet","payload":{"user":"ann","n":12345678901234567890123,"deep":[{"API_KEY":"swordfish"}],"db_password":"swordfish"}}"#;

async fn stage(change: impl FnOnce(&mut Options)) -> (Guarded, i64) {
    let mut options = Options::default();
    change(&mut options);
    let guarded = Guarded::with(Policy::Tokens, |app| app.options = options).await;
    let token = guarded.token("write:*").await;
    let bearer = format!("Bearer {}", token.reveal());
    let headers = [("authorization", bearer.as_str())];
    let job = guarded.call(Method::POST, "/api/v1/jobs", &headers, BODY).await.expect(201).json();
    (guarded, job["id"].as_i64().unwrap())
}

#[tokio::test]
async fn secrets_of_payloads_are_in_no_answer_below_operate() {
    let (guarded, id) = stage(|_| {}).await;
    let f = &guarded.fixture;
    let claimed = f.claim(f.worker().await).await.remove(0);
    let error = stargate_queue::job::JobError::new("X", stargate_base::ErrorClass::Fatal, "no");
    f.settle(&claimed, stargate_queue::store::Outcome::Failed { error }).await;
    f.store.retry_edited(JobId(id), raw(r#"{"secret":"swordfish"}"#)).await.unwrap();
    let operate = guarded.token("operate:*").await;
    let schedule =
        json!({ "cron": "@daily", "kind": "greet", "payload": { "token": "swordfish" } }).to_string();
    let bearer = format!("Bearer {}", operate.reveal());
    let headers = [("authorization", bearer.as_str())];
    guarded.call(Method::PUT, "/api/v1/schedules/s", &headers, &schedule).await.expect(200);
    let paths = [
        "/api/v1/jobs".to_owned(),
        format!("/api/v1/jobs/{id}"),
        format!("/api/v1/jobs/{id}/events"),
        "/api/v1/schedules".to_owned(),
        "/api/v1/schedules/s".to_owned(),
    ];
    for grant in ["read:*", "write:*"] {
        let token = guarded.token(grant).await;
        for path in &paths {
            let answer = guarded.as_bearer(Method::GET, path, &token).await.expect(200);
            assert!(!answer.text.contains("swordfish"), "{grant} {path}: {}", answer.text);
            assert!(answer.text.contains("[redacted]"), "{grant} {path}: {}", answer.text);
        }
    }
    for path in &paths {
        let answer = guarded.as_bearer(Method::GET, path, &operate).await.expect(200);
        assert!(answer.text.contains("swordfish"), "{path}: {}", answer.text);
    }
}

#[tokio::test]
async fn what_is_not_secret_is_shown_as_it_was_sent() {
    let (guarded, id) = stage(|_| {}).await;
    let read = guarded.token("read:*").await;
    let answer = guarded.as_bearer(Method::GET, &format!("/api/v1/jobs/{id}"), &read).await.expect(200);
    let expected = r#""payload":{"user":"ann","n":12345678901234567890123,"deep":[{"API_KEY":"[redacted]"}],"db_password":"[redacted]"}"#;
    assert!(answer.text.contains(expected), "{}", answer.text);
}

#[tokio::test]
async fn nobody_finds_out_a_secret_by_searching_for_it() {
    let (guarded, _) = stage(|_| {}).await;
    let path = "/api/v1/jobs?q=swordfish";
    for grant in ["read:*", "write:*"] {
        let token = guarded.token(grant).await;
        assert_eq!(guarded.as_bearer(Method::GET, path, &token).await.expect(403).code(), "FORBIDDEN");
    }
    let operate = guarded.token("operate:*").await;
    let found = guarded.as_bearer(Method::GET, path, &operate).await.expect(200).json();
    assert_eq!(found["jobs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn where_nothing_is_redacted_everybody_may_search() {
    let (guarded, _) = stage(|options| options.redact = Vec::new()).await;
    let read = guarded.token("read:*").await;
    let found = guarded.as_bearer(Method::GET, "/api/v1/jobs?q=SWORDFISH", &read).await.expect(200);
    assert!(found.text.contains("swordfish"), "{}", found.text);
}

fn raw(text: &str) -> stargate_queue::job::Json {
    serde_json::value::RawValue::from_string(text.to_owned()).unwrap()
}
