//! Many jobs at once, failed jobs by cause, and finding them.

use serde_json::{Value, json};
use stargate_queue::{JobId, State};

use crate::fixture::Fixture;

async fn stage() -> (Fixture, Vec<i64>) {
    let f = Fixture::new().await;
    let mut ids = Vec::new();
    for n in 0..12 {
        let code = if n % 3 == 0 { "RARE" } else { "OFTEN" };
        let body = format!(r#"{{"kind":"greet","payload":{{"n":{n}}},"limit_key":"k{}"}}"#, n % 2);
        ids.push(f.failed(&body, code).await);
    }
    (f, ids)
}

async fn bulk(f: &Fixture, body: Value) -> Value {
    f.post("/api/v1/jobs/bulk", body.to_string()).await.expect(200).json()
}

async fn states(f: &Fixture, state: State) -> usize {
    let filter = stargate_queue::store::JobFilter { states: vec![state], ..Default::default() };
    f.store.jobs(filter).await.unwrap().len()
}

#[tokio::test]
async fn what_matches_is_shown_first_and_then_retried() {
    let (f, _) = stage().await;
    let filter = json!({ "code": "OFTEN", "kind": "greet" });
    let seen = bulk(&f, json!({ "action": "retry", "filter": &filter, "dry_run": true })).await;
    assert_eq!((&seen["matched"], &seen["changed"], &seen["more"]), (&json!(8), &json!(0), &json!(false)));
    assert_eq!(seen["sample"].as_array().unwrap().len(), 8);
    assert_eq!(states(&f, State::Queued).await, 0, "a dry run changed something");
    let done = bulk(&f, json!({ "action": "retry", "filter": &filter, "limit": 5 })).await;
    assert_eq!((&done["matched"], &done["changed"], &done["more"]), (&json!(5), &json!(5), &json!(true)));
    let done = bulk(&f, json!({ "action": "retry", "filter": filter })).await;
    assert_eq!((&done["changed"], &done["more"]), (&json!(3), &json!(false)));
    assert_eq!((states(&f, State::Queued).await, states(&f, State::Failed).await), (8, 4));
    let audit = f.get("/api/v1/audit?action=jobs.retry").await.expect(200).json();
    assert_eq!(audit["actions"][0]["detail"]["filter"]["code"], "OFTEN");
}

#[tokio::test]
async fn named_jobs_are_changed_and_those_that_cannot_be_are_left_alone() {
    let (f, ids) = stage().await;
    let waiting = f.job(r#"{"kind":"greet"}"#).await;
    let named = json!({ "action": "retry", "ids": [ids[0], ids[1], waiting, 12345] });
    assert_eq!(bulk(&f, named).await["changed"], 2);
    let named = json!({ "action": "cancel", "ids": [ids[0], ids[2], waiting] });
    assert_eq!(bulk(&f, named).await["changed"], 2, "one of them has failed");
    let all = json!({ "action": "cancel", "filter": {} });
    assert_eq!(bulk(&f, all).await["changed"], 1);
    assert_eq!(bulk(&f, json!({ "action": "retry", "filter": { "state": "done" } })).await["matched"], 0);
}

#[tokio::test]
async fn what_nobody_can_mean_is_refused() {
    let f = Fixture::new().await;
    for body in [
        json!({ "action": "retry" }),
        json!({ "action": "retry", "filter": {}, "ids": [] }),
        json!({ "action": "delete", "filter": {} }),
        json!({ "action": "retry", "filter": { "status": "x" } }),
        json!({ "action": "retry", "filter": {}, "limit": 0 }),
        json!({ "action": "retry", "filter": {}, "limit": 10_001 }),
        json!({ "action": "retry", "filter": { "state": "lost" } }),
    ] {
        let answer = f.post("/api/v1/jobs/bulk", body.to_string()).await;
        assert_eq!(answer.expect(422).code(), "INVALID", "{body}");
    }
}

#[tokio::test]
async fn jobs_are_found_by_text_code_key_and_time() {
    let (f, ids) = stage().await;
    let found = async |query: &str| {
        let page = f.get(&format!("/api/v1/jobs?{query}")).await.expect(200).json();
        let jobs = page["jobs"].as_array().unwrap();
        jobs.iter().map(|job| job["id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(found("code=RARE").await, [ids[9], ids[6], ids[3], ids[0]]);
    assert_eq!(found("code=RARE&limit_key=k0").await, [ids[6], ids[0]]);
    assert_eq!(found("q=%22n%22:11").await, [ids[11]]);
    assert_eq!(found("q=rare+HAPPENED&limit=2").await.len(), 2);
    assert_eq!(found("until=1h").await, [0_i64; 0]);
    assert_eq!(found("since=1h").await.len(), 12);
    let page = f.get("/api/v1/jobs?code=OFTEN&limit=3").await.expect(200).json();
    let rest = found(&format!("code=OFTEN&before={}", page["next_before"])).await;
    assert_eq!(rest.len(), 5);
    assert_eq!(f.get("/api/v1/jobs?q=%00").await.expect(422).code(), "INVALID");
}

#[tokio::test]
async fn a_job_is_retried_with_another_payload_and_its_timeline_keeps_the_old_one() {
    let f = Fixture::new().await;
    let id = f.failed(r#"{"kind":"greet","payload":{"n":1}}"#, "BAD").await;
    let path = format!("/api/v1/jobs/{id}/retry");
    assert_eq!(f.post(&path, r#"{"playload":1}"#).await.expect(422).code(), "INVALID");
    let job = f.post(&path, r#"{"payload":{"n":2}}"#).await.expect(200).json();
    assert_eq!((&job["payload"], &job["state"]), (&json!({ "n": 2 }), &json!("queued")));
    let events = f.get(&format!("/api/v1/jobs/{id}/events")).await.expect(200).text;
    assert!(events.contains(r#""edited""#) && events.contains(r#"{"n":1}"#), "{events}");
    assert_eq!(f.post(&path, "").await.expect(409).code(), "WRONG_STATE");
}

#[tokio::test]
async fn why_a_job_waits_is_explained_with_what_would_change_it() {
    let f = Fixture::new().await;
    let id = f.job(r#"{"kind":"greet"}"#).await;
    f.post("/api/v1/queues/default/pause", "").await.expect(200);
    let told = f.get(&format!("/api/v1/jobs/{id}/explain")).await.expect(200).json();
    assert_eq!((&told["job"], &told["state"]), (&json!(id), &json!("queued")));
    let commands: Vec<&str> =
        told["reasons"].as_array().unwrap().iter().filter_map(|reason| reason["command"].as_str()).collect();
    assert!(commands.iter().any(|command| command.contains("queue resume")), "{told}");
    f.get("/api/v1/jobs/777/explain").await.expect(404);
}

#[tokio::test]
async fn failures_are_told_by_cause_and_requeued_after_a_canary() {
    let (f, ids) = stage().await;
    let kinds = [stargate_queue::KindSpec::new("jobs:retry_matching", &Default::default()).unwrap()];
    f.store.kinds_register(kinds.to_vec()).await.unwrap();
    let failures = f.get("/api/v1/failures").await.expect(200).json();
    let first = &failures["failures"][0];
    assert_eq!(
        (&first["code"], &first["count"], &first["kind"]),
        (&json!("OFTEN"), &json!(8), &json!("greet"))
    );
    assert_eq!(failures["failures"][1]["newest"], json!(ids[9]));
    let body = json!({ "kind": "greet", "code": "RARE", "canary": true }).to_string();
    let done = f.post("/api/v1/failures/requeue", body).await.expect(202).json();
    assert_eq!((&done["matched"], &done["canary"]), (&json!(4), &json!(ids[9])));
    let canary = f.store.job(JobId(ids[9])).await.unwrap().unwrap();
    assert_eq!(canary.state, State::Queued);
    let others = JobId(done["job"].as_i64().unwrap());
    assert_eq!(f.store.parents(others).await.unwrap(), [(JobId(ids[9]), State::Queued)]);
    assert_eq!(f.store.job(JobId(ids[6])).await.unwrap().unwrap().state, State::Failed, "it waits");
    let body = json!({ "kind": "greet", "code": "NEVER" }).to_string();
    assert_eq!(f.post("/api/v1/failures/requeue", body).await.expect(404).code(), "NOT_FOUND");
}

#[tokio::test]
async fn what_went_on_is_told_in_stretches_of_time() {
    let (f, _) = stage().await;
    let told = f.get("/api/v1/activity?window=10m&buckets=10").await.expect(200).json();
    let buckets = told["buckets"].as_array().unwrap();
    assert_eq!((buckets.len(), &told["bucket_sec"]), (10, &json!(60.0)));
    let failed: u64 = buckets.iter().map(|bucket| bucket["failed"].as_u64().unwrap()).sum();
    assert_eq!(failed, 12);
    for wrong in ["window=x", "window=1s&buckets=60", "window=99d", "buckets=0", "buckets=1001", "x=1"] {
        assert_eq!(
            f.get(&format!("/api/v1/activity?{wrong}")).await.expect(422).code(),
            "INVALID",
            "{wrong}"
        );
    }
}
