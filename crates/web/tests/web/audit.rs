//! Who did what is written down: before it is done, with what became of it.

use axum::http::Method;
use serde_json::{Value, json};
use stargate_access::Policy;

use crate::access::Guarded;
use crate::fixture::Fixture;

async fn actions(f: &Fixture, query: &str) -> Vec<Value> {
    f.get(&format!("/api/v1/audit{query}")).await.expect(200).json()["actions"].as_array().unwrap().clone()
}

#[tokio::test]
async fn every_change_but_an_enqueue_is_written_down_with_its_outcome() {
    let guarded = Guarded::new(Policy::Tokens).await;
    let operate = guarded.token("operate:*").await;
    let bearer = format!("Bearer {}", operate.reveal());
    let headers = [("authorization", bearer.as_str()), ("x-request-id", "req-1")];
    let call = async |method, path: &str, body: &str| guarded.call(method, path, &headers, body).await;
    call(Method::POST, "/api/v1/jobs", r#"{"kind":"greet"}"#).await.expect(201);
    call(Method::POST, "/api/v1/queues/a/pause", "").await.expect(200);
    call(Method::POST, "/api/v1/jobs/1/retry", "").await.expect(409);
    call(Method::POST, "/api/v1/jobs/99/cancel", "").await.expect(404);
    call(Method::POST, "/api/v1/leader/step-down", "").await.expect(403);
    let listed = call(Method::GET, "/api/v1/audit", "").await.expect(200).json();
    let rows = listed["actions"].as_array().unwrap();
    let told: Vec<[&str; 4]> = rows
        .iter()
        .map(|row| ["action", "target", "outcome", "request_id"].map(|field| row[field].as_str().unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            ["job.cancel", "99", "NOT_FOUND", "req-1"],
            ["job.retry", "1", "WRONG_STATE", "req-1"],
            ["queue.pause", "a", "ok", "req-1"],
        ]
    );
    for row in rows {
        assert_eq!(
            (&row["actor"], &row["role"], &row["source"]),
            (&json!("a test"), &json!("operate"), &json!("api"))
        );
        assert!(row["token"].is_string() && row["finished_at"].is_string(), "{row}");
    }
    assert!(!listed.to_string().contains(operate.reveal()), "the audit holds a token");
}

#[tokio::test]
async fn the_audit_is_read_by_page_actor_action_and_target() {
    let f = Fixture::new().await;
    for queue in ["a", "b", "c"] {
        f.post(&format!("/api/v1/queues/{queue}/pause"), "").await.expect(200);
    }
    f.post("/api/v1/queues/a/resume", "").await.expect(200);
    let targets = |rows: Vec<Value>| {
        rows.iter().map(|row| row["target"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(targets(actions(&f, "").await), ["a", "c", "b", "a"]);
    assert_eq!(targets(actions(&f, "?action=queue.pause").await), ["c", "b", "a"]);
    assert_eq!(targets(actions(&f, "?action=queue.*&target=b").await), ["b"]);
    assert_eq!(targets(actions(&f, "?actor=nobody").await), [""; 0]);
    let page = f.get("/api/v1/audit?limit=2").await.expect(200).json();
    let rest = actions(&f, &format!("?before={}&actor=local", page["next_before"])).await;
    assert_eq!(targets(rest), ["b", "a"]);
    assert_eq!(f.get("/api/v1/audit?limit=0").await.expect(422).code(), "INVALID");
}

#[derive(Debug)]
struct Away;

#[async_trait::async_trait]
impl stargate_access::Audit for Away {
    async fn begin(
        &self,
        _: stargate_access::NewAction,
    ) -> stargate_access::Result<stargate_access::ActionId> {
        let class = stargate_base::ErrorClass::RetryableTransient;
        Err(stargate_access::Error::Store { class, source: "password=swordfish".into() })
    }

    async fn finish(&self, _: stargate_access::ActionId, _: &str) -> stargate_access::Result<()> {
        Ok(())
    }

    async fn actions(
        &self,
        _: stargate_access::ActionFilter,
    ) -> stargate_access::Result<Vec<stargate_access::ActionRow>> {
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn what_cannot_be_written_down_is_not_done() {
    let f = Fixture::with(|app| app.audit = Some(std::sync::Arc::new(Away))).await;
    let refused = f.post("/api/v1/queues/a/pause", "").await.expect(503);
    assert_eq!(refused.code(), "STORE_UNAVAILABLE");
    assert!(!refused.text.contains("swordfish"), "{}", refused.text);
    assert!(f.store.pauses().await.unwrap().is_empty());
    f.job(r#"{"kind":"greet"}"#).await;
}
