//! Looking at jobs and deciding about them.

use serde_json::json;
use stargate_base::ErrorClass;
use stargate_queue::JobError;
use stargate_queue::store::{Note, Outcome};

use crate::fixture::Fixture;

const JOBS: &str = "/api/v1/jobs";

fn ids(page: &serde_json::Value) -> Vec<i64> {
    page["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn pages_follow_each_other_without_gaps_or_repeats() {
    let f = Fixture::new().await;
    let mut all = Vec::new();
    for _ in 0..7 {
        all.push(f.job(r#"{"kind":"greet"}"#).await);
    }
    all.reverse();
    let (mut seen, mut path) = (Vec::new(), format!("{JOBS}?limit=3"));
    loop {
        let page = f.get(&path).await.expect(200).json();
        seen.extend(ids(&page));
        let Some(before) = page["next_before"].as_i64() else { break };
        path = format!("{JOBS}?limit=3&before={before}");
    }
    assert_eq!(seen, all);
}

#[tokio::test]
async fn filters_select_by_state_kind_queue_and_time() {
    let f = Fixture::new().await;
    let a = f.job(r#"{"kind":"greet","queue":"x"}"#).await;
    let b = f.job(r#"{"kind":"other/kind"}"#).await;
    let c = f.job(r#"{"kind":"greet"}"#).await;
    f.post(&format!("{JOBS}/{c}/cancel"), "").await.expect(200);
    for (query, expected) in [
        ("state=queued", vec![b, a]),
        ("state=cancelled", vec![c]),
        ("state=queued,cancelled", vec![c, b, a]),
        ("kind=other%2Fkind", vec![b]),
        ("queue=x", vec![a]),
        ("since=1h", vec![c, b, a]),
        ("since=2035-01-01T00:00:00Z", vec![]),
        ("state=&kind=", vec![c, b, a]),
    ] {
        assert_eq!(ids(&f.get(&format!("{JOBS}?{query}")).await.expect(200).json()), expected, "{query}");
    }
}

#[tokio::test]
async fn wrong_filters_are_refused() {
    let f = Fixture::new().await;
    for query in [
        "state=gone",
        "limit=0",
        "limit=1001",
        "limit=x",
        "before=x",
        "since=yesterday",
        "colour=red",
        "limit=1&limit=2",
    ] {
        assert_eq!(f.get(&format!("{JOBS}?{query}")).await.expect(422).code(), "INVALID", "{query}");
    }
    // Text that could be SQL is a name like any other: it finds nothing.
    let page = f.get(&format!("{JOBS}?kind=%27%3B+drop+table+job%3B--")).await;
    assert!(page.status.is_client_error() || ids(&page.json()).is_empty());
    f.get(JOBS).await.expect(200);
}

#[tokio::test]
async fn a_done_job_shows_its_result_and_100_percent() {
    let f = Fixture::new().await;
    let id = f.job(r#"{"kind":"greet"}"#).await;
    let claimed = f.claim(f.worker().await).await;
    let running = f.get(&format!("{JOBS}/{id}")).await.json();
    assert_eq!(running["state"], "processing");
    assert_eq!(running["attempt_count"], 1);
    assert_eq!(running["worker"], "host-1-abc");
    assert!(running["lease_expires_at"].is_string() && running["started_at"].is_string(), "{running}");
    f.store.note(vec![Note { fence: claimed[0].fence, progress: Some(40), event: None }]).await.unwrap();
    assert_eq!(f.get(&format!("{JOBS}/{id}")).await.json()["progress"], 40);
    let result = serde_json::value::to_raw_value(&json!({ "ok": true })).unwrap();
    f.settle(&claimed[0], Outcome::Done { result: Some(result) }).await;
    let done = f.get(&format!("{JOBS}/{id}")).await.json();
    assert_eq!(
        (&done["state"], &done["progress"], &done["result"]),
        (&json!("done"), &json!(100), &json!({ "ok": true }))
    );
    let events: Vec<&str> =
        done["events"].as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["created", "processing", "done"]);
}

#[tokio::test]
async fn only_failed_jobs_can_be_retried() {
    let f = Fixture::new().await;
    let id = f.job(r#"{"kind":"greet"}"#).await;
    let retry = format!("{JOBS}/{id}/retry");
    assert_eq!(f.post(&retry, "").await.expect(409).code(), "WRONG_STATE");
    let claimed = f.claim(f.worker().await).await;
    let mut error = JobError::new("HANDLER_FATAL", ErrorClass::Fatal, "no disk");
    error.detail = Some("more".into());
    f.settle(&claimed[0], Outcome::Failed { error }).await;
    let failed = f.get(&format!("{JOBS}/{id}")).await.json();
    let expected =
        json!({ "code": "HANDLER_FATAL", "class": "Fatal", "message": "no disk", "detail": "more" });
    assert_eq!(failed["error"], expected);
    let retried = f.post(&retry, "").await.expect(200).json();
    assert_eq!((&retried["id"], &retried["state"]), (&json!(id), &json!("queued")));
}

#[tokio::test]
async fn cancelling_ends_a_waiting_job_and_asks_the_worker_of_a_running_one() {
    let f = Fixture::new().await;
    let waiting = f.job(r#"{"kind":"greet","delay":"1h"}"#).await;
    let answer = f.post(&format!("{JOBS}/{waiting}/cancel"), "").await.expect(200).json();
    assert_eq!(answer, json!({ "id": waiting, "outcome": "ended" }));
    assert_eq!(f.post(&format!("{JOBS}/{waiting}/cancel"), "").await.expect(409).code(), "WRONG_STATE");
    let running = f.job(r#"{"kind":"greet"}"#).await;
    f.claim(f.worker().await).await;
    let answer = f.post(&format!("{JOBS}/{running}/cancel"), "").await.expect(202).json();
    assert_eq!(answer, json!({ "id": running, "outcome": "requested" }));
}

#[tokio::test]
async fn unknown_jobs_are_404_everywhere() {
    let f = Fixture::new().await;
    for id in ["999999", "-1", "abc", "99999999999999999999999", "1%00", "%F0%9F%92%A3"] {
        for path in [format!("{JOBS}/{id}"), format!("{JOBS}/{id}/events")] {
            assert_eq!(f.get(&path).await.expect(404).code(), "NOT_FOUND", "{path}");
        }
        for verb in ["retry", "cancel"] {
            assert_eq!(
                f.post(&format!("{JOBS}/{id}/{verb}"), "").await.expect(404).code(),
                "NOT_FOUND",
                "{id} {verb}"
            );
        }
    }
}
