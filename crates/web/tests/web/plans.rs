//! Schedules and limits over HTTP.

use axum::http::Method;
use serde_json::json;

use crate::fixture::Fixture;

#[tokio::test]
async fn a_schedule_is_added_shown_in_words_fired_and_removed() {
    let f = Fixture::new().await;
    let path = "/api/v1/schedules/night%2Fly";
    let body =
        json!({ "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "kind": "greet", "payload": { "a": 1 } });
    let put = f.call(Method::PUT, path, body.clone()).await.expect(200).json();
    assert_eq!((&put["name"], &put["queue"]), (&json!("night/ly"), &json!("default")));
    let next = put["next"].as_array().unwrap();
    assert_eq!((next.len(), &next[0]), (5, &put["next_at"]));
    assert!(put["description"].as_str().unwrap().contains("03:00"), "{put}");
    assert_eq!(f.call(Method::PUT, path, body).await.expect(200).json()["next_at"], put["next_at"]);
    let fired = f.post(&format!("{path}/fire"), "").await.expect(201).json();
    let job = f.get(&format!("/api/v1/jobs/{}", fired["id"])).await.expect(200).json();
    assert_eq!((&job["kind"], &job["payload"]), (&json!("greet"), &json!({ "a": 1 })));
    assert_eq!(f.get(path).await.expect(200).json()["next_at"], put["next_at"]);
    assert_eq!(f.get("/api/v1/schedules").await.expect(200).json()["schedules"].as_array().unwrap().len(), 1);
    f.call(Method::DELETE, path, json!(null)).await.expect(200);
    f.call(Method::DELETE, path, json!(null)).await.expect(404);
    f.get(path).await.expect(404);
    f.post(&format!("{path}/fire"), "").await.expect(404);
    let audit = f.get("/api/v1/audit?action=schedule.*").await.expect(200).json();
    let actions: Vec<&str> =
        audit["actions"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(
        actions,
        ["schedule.remove", "schedule.remove", "schedule.fire", "schedule.put", "schedule.put"]
    );
}

#[tokio::test]
async fn a_schedule_that_cannot_be_is_refused_with_the_field() {
    let f = Fixture::new().await;
    for (body, status, code) in [
        (json!({ "cron": "61 * * * *", "kind": "greet" }), 422, "INVALID"),
        (json!({ "cron": "@daily", "kind": "nobody" }), 422, "UNKNOWN_KIND"),
        (json!({ "cron": "@daily", "kind": "greet", "time_zone": "Mars/Olympus" }), 422, "INVALID"),
        (json!({ "cron": "@daily", "kind": "greet", "priority": -1 }), 422, "INVALID"),
        (json!({ "cron": "@daily" }), 422, "INVALID"),
    ] {
        let answer = f.call(Method::PUT, "/api/v1/schedules/s", body.clone()).await;
        assert_eq!(answer.expect(status).code(), code, "{body}");
    }
}

#[tokio::test]
async fn limits_are_set_listed_and_removed() {
    let f = Fixture::new().await;
    let path = "/api/v1/limits/tenant:%2A";
    let body = json!({ "concurrency": 4, "rate": "10/s" });
    let put = f.call(Method::PUT, path, body).await.expect(200).json();
    assert_eq!(put, json!({ "pattern": "tenant:*", "concurrency": 4, "rate": "10/s", "weight": 1 }));
    f.call(Method::PUT, "/api/v1/limits/tenant:acme", json!({ "weight": 5 })).await.expect(200);
    let limits = f.get("/api/v1/limits").await.expect(200).json();
    assert_eq!(limits["limits"][0]["pattern"], "tenant:acme");
    for wrong in
        [json!({ "rate": "often" }), json!({ "weight": 0 }), json!({ "concurrency": 0 }), json!({ "x": 1 })]
    {
        f.call(Method::PUT, path, wrong.clone()).await.expect(422);
    }
    f.call(Method::DELETE, path, json!(null)).await.expect(200);
    f.call(Method::DELETE, path, json!(null)).await.expect(404);
}

#[tokio::test]
async fn without_directives_and_mirrors_there_are_none() {
    let f = Fixture::new().await;
    for (path, field) in [
        ("/api/v1/directives", "directives"),
        ("/api/v1/runs", "runs"),
        ("/api/v1/mirror", "mirrors"),
        ("/api/v1/mirror/dead-letters", "dead_letters"),
        ("/api/v1/repos", "repos"),
    ] {
        assert_eq!(f.get(path).await.expect(200).json()[field], json!([]), "{path}");
    }
    for path in ["/api/v1/directives/x", "/api/v1/runs/x", "/api/v1/mirror/x", "/api/v1/quarantine/1"] {
        f.get(path).await.expect(404);
    }
}
