//! Queues, kinds, workers and stats.

use serde_json::json;

use crate::fixture::Fixture;

#[tokio::test]
async fn a_paused_queue_gives_nothing_out_until_it_is_resumed() {
    let f = Fixture::new().await;
    f.job(r#"{"kind":"greet","queue":"a/b"}"#).await;
    let answer = f.post("/api/v1/queues/a%2Fb/pause", "").await.expect(200).json();
    assert_eq!(answer, json!({ "queue": "a/b", "paused": true }));
    let queues = f.get("/api/v1/queues").await.expect(200).json();
    let queue = &queues["queues"][0];
    assert_eq!(
        (&queue["queue"], &queue["ready"], &queue["paused"]),
        (&json!("a/b"), &json!(1), &json!(true))
    );
    let worker = f.worker().await;
    assert!(f.claim(worker).await.is_empty());
    f.post("/api/v1/queues/a%2Fb/resume", "").await.expect(200);
    assert_eq!(f.claim(worker).await.len(), 1);
    assert_eq!(f.post("/api/v1/queues/no%20name/pause", "").await.expect(422).code(), "INVALID");
}

#[tokio::test]
async fn a_kind_can_be_paused_too() {
    let f = Fixture::new().await;
    f.job(r#"{"kind":"greet"}"#).await;
    f.post("/api/v1/kinds/greet/pause", "").await.expect(200);
    let kinds = f.get("/api/v1/kinds").await.expect(200).json();
    let greet = kinds["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "greet").unwrap();
    assert_eq!((&greet["paused"], &greet["max_attempts"]), (&json!(true), &json!(5)));
    let worker = f.worker().await;
    assert!(f.claim(worker).await.is_empty());
    f.post("/api/v1/kinds/greet/resume", "").await.expect(200);
    assert_eq!(f.claim(worker).await.len(), 1);
}

#[tokio::test]
async fn workers_and_stats_tell_who_works_and_how_it_goes() {
    let f = Fixture::new().await;
    f.job(r#"{"kind":"greet"}"#).await;
    f.job(r#"{"kind":"greet","delay":"1h"}"#).await;
    f.claim(f.worker().await).await;
    let workers = f.get("/api/v1/workers").await.expect(200).json();
    let worker = &workers["workers"][0];
    assert_eq!(
        (&worker["name"], &worker["holding"], &worker["alive"]),
        (&json!("host-1-abc"), &json!(1), &json!(true))
    );
    let stats = f.get("/api/v1/stats").await.expect(200).json();
    assert_eq!(stats["store"], "sqlite");
    assert_eq!(stats["instance"], "node-1");
    assert_eq!(stats["jobs"]["processing"], 1);
    assert_eq!(stats["jobs"]["delayed"], 1);
    assert_eq!((&stats["workers_alive"], &stats["capacity"]), (&json!(1), &json!(4)));
}
