//! Enqueueing over HTTP.

use serde_json::json;

use crate::fixture::Fixture;

const JOBS: &str = "/api/v1/jobs";
const BATCH: &str = "/api/v1/jobs/batch";

#[tokio::test]
async fn a_job_is_created_and_can_be_read_back_whole() {
    let f = Fixture::new().await;
    let body = r#"{"kind":"greet","payload":{"n":12345678901234567890123,"z":1,"a":2},"queue":"q","priority":7,
        "unique_key":"u","max_attempts":2,"limit_key":"t"}"#;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let answer = f.post_with(JOBS, &[("traceparent", trace)], body).await.expect(201);
    let id = answer.json()["id"].as_i64().unwrap();
    assert_eq!(answer.json(), json!({ "id": id, "existing": false }));
    assert_eq!(answer.header("location"), format!("/api/v1/jobs/{id}"));
    let job = f.get(&format!("{JOBS}/{id}")).await.expect(200);
    assert!(job.text.contains("12345678901234567890123"), "a large number was rounded: {}", job.text);
    let job = job.json();
    for (field, value) in [
        ("kind", json!("greet")),
        ("queue", json!("q")),
        ("state", json!("queued")),
        ("priority", json!(7)),
        ("attempt_count", json!(0)),
        ("max_attempts", json!(2)),
        ("crash_count", json!(0)),
        ("progress", json!(0)),
        ("result", json!(null)),
        ("error", json!(null)),
        ("worker", json!(null)),
        ("started_at", json!(null)),
        ("finished_at", json!(null)),
        ("lease_expires_at", json!(null)),
        ("unique_key", json!("u")),
        ("limit_key", json!("t")),
        ("trace_id", json!(trace)),
    ] {
        assert_eq!(job[field], value, "{field}");
    }
    assert_eq!(job["events"][0]["event"], "created");
    assert_eq!(job["events"][0]["seq"], 1);
}

#[tokio::test]
async fn an_existing_unique_key_answers_the_existing_job() {
    let f = Fixture::new().await;
    let body = r#"{"kind":"greet","unique_key":"u"}"#;
    let id = f.job(body).await;
    let again = f.post(JOBS, body).await.expect(200);
    assert_eq!(again.json(), json!({ "id": id, "existing": true }));
}

#[tokio::test]
async fn an_idempotency_key_answers_the_first_result_and_refuses_another_payload() {
    let f = Fixture::new().await;
    let key = [("idempotency-key", "order-17")];
    let first = f.post_with(JOBS, &key, r#"{"kind":"greet"}"#).await.expect(201).json();
    let again = f.post_with(JOBS, &key, r#"{"kind":"greet"}"#).await.expect(200).json();
    assert_eq!((&again["id"], &again["existing"]), (&first["id"], &json!(true)));
    let other = f.post_with(JOBS, &key, r#"{"kind":"greet","payload":1}"#).await.expect(409);
    assert_eq!(other.code(), "IDEMPOTENCY_MISMATCH");
    let batch = f.post_with(BATCH, &key, r#"{"jobs":[{"kind":"greet"}]}"#).await.expect(409);
    assert_eq!(batch.code(), "IDEMPOTENCY_MISMATCH");
    assert_eq!(f.get(JOBS).await.json()["jobs"].as_array().unwrap().len(), 1);
    let long = "x".repeat(256);
    assert_eq!(
        f.post_with(JOBS, &[("idempotency-key", &long)], r#"{"kind":"greet"}"#).await.expect(422).code(),
        "INVALID"
    );
}

#[tokio::test]
async fn a_delay_or_an_instant_makes_the_job_due_later() {
    let f = Fixture::new().await;
    for due in
        [r#""delay":"1h""#, r#""delay":3600"#, r#""delay":"3600""#, r#""run_at":"2035-01-01T00:00:00Z""#]
    {
        let id = f.job(&format!(r#"{{"kind":"greet",{due}}}"#)).await;
        let job = f.get(&format!("{JOBS}/{id}")).await.json();
        assert!(job["run_at"].as_str() > job["created_at"].as_str(), "{due}: {job}");
    }
    assert!(f.claim(f.worker().await).await.is_empty());
}

#[tokio::test]
async fn a_job_may_wait_for_others_but_not_for_unknown_ones() {
    let f = Fixture::new().await;
    let parent = f.job(r#"{"kind":"greet"}"#).await;
    let child = f.job(&format!(r#"{{"kind":"greet","after":[{parent}]}}"#)).await;
    let claimed: Vec<i64> = f.claim(f.worker().await).await.iter().map(|job| job.fence.job.0).collect();
    assert_eq!(claimed, [parent]);
    assert_ne!(parent, child);
    assert_eq!(f.post(JOBS, r#"{"kind":"greet","after":[999999]}"#).await.expect(404).code(), "NOT_FOUND");
}

#[tokio::test]
async fn wrong_fields_are_refused_by_name() {
    let f = Fixture::new().await;
    for (body, field) in [
        (r#"{}"#, "kind"),
        (r#"{"kind":"no spaces"}"#, "kind"),
        (r#"{"kind":1}"#, "string"),
        (r#"{"kind":"greet","queue":""}"#, "queue"),
        (r#"{"kind":"greet","priority":-1}"#, "priority"),
        (r#"{"kind":"greet","priority":100000}"#, "i16"),
        (r#"{"kind":"greet","max_attempts":0}"#, "max_attempts"),
        (r#"{"kind":"greet","delay":"soon"}"#, "delay"),
        (r#"{"kind":"greet","delay":-1}"#, "delay"),
        (r#"{"kind":"greet","delay":{}}"#, "duration"),
        (r#"{"kind":"greet","run_at":"tomorrow"}"#, "run_at"),
        (r#"{"kind":"greet","run_at":"1999-01-01T00:00:00Z"}"#, "run_at"),
        (r#"{"kind":"greet","run_at":"2035-01-01T00:00:00Z","delay":1}"#, "delay"),
        (r#"{"kind":"greet","prio":1}"#, "prio"),
        (r#"{"kind":"greet","payload":"\u0000"}"#, "payload"),
        (r#"{"kind":"greet","unique_key":""}"#, "unique_key"),
        (r#"[]"#, "NewJob"),
        (r#"{"kind":"greet","after":"1"}"#, "sequence"),
    ] {
        let answer = f.post(JOBS, body).await.expect(422);
        assert_eq!(answer.code(), "INVALID", "{body}");
        assert!(answer.text.contains(field), "{field} is not in {}", answer.text);
    }
    let unknown = f.post(JOBS, r#"{"kind":"nobody"}"#).await.expect(422);
    assert_eq!(unknown.code(), "UNKNOWN_KIND");
    assert!(unknown.text.contains("greet"), "the known kinds are named: {}", unknown.text);
    assert_eq!(f.get(JOBS).await.json()["jobs"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn what_is_not_json_is_400_and_what_does_not_say_so_is_415() {
    let f = Fixture::new().await;
    for body in ["", "{", "{\"kind\":\"greet\"", "nonsense", "{\"kind\":\"greet\"} x", "\u{0}"] {
        assert_eq!(f.post(JOBS, body).await.expect(400).code(), "MALFORMED_JSON", "{body:?}");
    }
    assert_eq!(f.post(JOBS, vec![0xFF, 0xFE]).await.expect(400).code(), "MALFORMED_JSON");
    let deep = format!("{{\"kind\":\"greet\",\"delay\":{}", "[".repeat(100_000));
    assert_eq!(f.post(JOBS, deep).await.expect(400).code(), "MALFORMED_JSON");
    let request = axum::http::Request::post(JOBS).header("content-type", "text/plain");
    let answer = f.send(request.body(r#"{"kind":"greet"}"#.into()).unwrap()).await.expect(415);
    assert_eq!(answer.code(), "UNSUPPORTED_MEDIA_TYPE");
}

#[tokio::test]
async fn a_payload_nested_beyond_reason_is_refused_and_harms_nobody() {
    let f = Fixture::new().await;
    let nested =
        |depth: usize| format!(r#"{{"kind":"greet","payload":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    f.post(JOBS, nested(400)).await.expect(201);
    for depth in [600, 2000, 500_000] {
        assert_eq!(f.post(JOBS, nested(depth)).await.expect(422).code(), "INVALID", "{depth}");
    }
    f.get(JOBS).await.expect(200);
}

#[tokio::test]
async fn too_large_is_413_whether_the_payload_or_the_body_declared_or_streamed() {
    let f = Fixture::new().await;
    let fits = format!(r#"{{"kind":"greet","payload":"{}"}}"#, "x".repeat((1 << 20) - 2));
    f.post(JOBS, fits).await.expect(201);
    let payload = format!(r#"{{"kind":"greet","payload":"{}"}}"#, "x".repeat(1 << 20));
    assert_eq!(f.post(JOBS, payload).await.expect(413).code(), "PAYLOAD_TOO_LARGE");
    let body = "x".repeat(2 << 20);
    assert_eq!(f.post(JOBS, body).await.expect(413).code(), "BODY_TOO_LARGE");
    let chunks = (0..40).map(|_| Ok::<_, std::io::Error>("x".repeat(64 << 10)));
    let streamed = axum::body::Body::from_stream(futures::stream::iter(chunks));
    assert_eq!(f.post(JOBS, streamed).await.expect(413).code(), "BODY_TOO_LARGE");
}

#[tokio::test]
async fn a_batch_is_accepted_whole_in_order() {
    let f = Fixture::new().await;
    let existing = f.job(r#"{"kind":"greet","unique_key":"u"}"#).await;
    let body = r#"{"jobs":[{"kind":"greet"},{"kind":"greet","unique_key":"u"},{"kind":"other/kind"}]}"#;
    let answer = f.post(BATCH, body).await.expect(201).json();
    let ids: Vec<i64> = answer["ids"].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    assert_eq!(ids[1], existing);
    assert_eq!((&answer["created"], &answer["existing"]), (&json!(2), &json!(1)));
    let third = f.get(&format!("{JOBS}/{}", ids[2])).await.json();
    assert_eq!(third["kind"], "other/kind");
}

#[tokio::test]
async fn a_batch_with_one_wrong_entry_is_refused_whole_and_the_entry_is_named() {
    let f = Fixture::new().await;
    for (wrong, code) in [
        (r#"{"kind":"greet","priority":-1}"#, "INVALID"),
        (r#"{"kind":"greet","delay":"x"}"#, "INVALID"),
        (r#"{"kind":"nobody"}"#, "UNKNOWN_KIND"),
    ] {
        let body = format!(r#"{{"jobs":[{{"kind":"greet"}},{wrong}]}}"#);
        let answer = f.post(BATCH, body).await.expect(422);
        assert_eq!(answer.code(), code);
        assert!(answer.text.contains("jobs[1]") || answer.text.contains("nobody"), "{}", answer.text);
    }
    assert_eq!(f.post(BATCH, r#"{"jobs":[]}"#).await.expect(422).code(), "INVALID");
    let many = format!(r#"{{"jobs":[{}]}}"#, vec![r#"{"kind":"greet"}"#; 10_001].join(","));
    assert_eq!(f.post(BATCH, many).await.expect(422).code(), "INVALID");
    assert_eq!(f.get(JOBS).await.json()["jobs"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn the_largest_batch_is_accepted() {
    let f = Fixture::new().await;
    let many = format!(r#"{{"jobs":[{}]}}"#, vec![r#"{"kind":"greet"}"#; 10_000].join(","));
    let answer = f.post(BATCH, many).await.expect(201).json();
    assert_eq!(answer["created"], 10_000);
}

#[tokio::test]
async fn over_the_depth_limit_producers_are_pushed_back() {
    let f = Fixture::with(|app| app.max_depth = Some(3)).await;
    for _ in 0..3 {
        f.job(r#"{"kind":"greet"}"#).await;
    }
    let full = f.post(JOBS, r#"{"kind":"greet"}"#).await.expect(429);
    assert_eq!(full.code(), "QUEUE_FULL");
    assert!(full.header("retry-after").parse::<u32>().unwrap() > 0);
    assert_eq!(f.post(BATCH, r#"{"jobs":[{"kind":"greet"}]}"#).await.expect(429).code(), "QUEUE_FULL");
    let many = format!(r#"{{"jobs":[{}]}}"#, [r#"{"kind":"greet"}"#; 4].join(","));
    assert_eq!(f.post(BATCH, many).await.expect(422).code(), "INVALID");
    assert_eq!(f.get(JOBS).await.json()["jobs"].as_array().unwrap().len(), 3);
}

#[test]
fn each_enqueue_that_is_pushed_back_is_counted() {
    let (recorder, handle) = stargate_web::metrics::build(None, &[]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let f = Fixture::with(|app| app.max_depth = Some(1)).await;
            f.job(r#"{"kind":"greet"}"#).await;
            f.post(JOBS, r#"{"kind":"greet"}"#).await.expect(429);
            f.post(BATCH, r#"{"jobs":[{"kind":"greet"}]}"#).await.expect(429);
        });
    });
    let text = handle.render();
    assert!(text.contains("api_enqueue_refused_total{reason=\"depth\"} 2"), "{text}");
}

#[tokio::test]
async fn what_workers_have_taken_makes_room_again_at_once() {
    let f = Fixture::with(|app| app.max_depth = Some(1)).await;
    let worker = f.worker().await;
    let started = std::time::Instant::now();
    for round in 0..5 {
        while f.post(JOBS, r#"{"kind":"greet"}"#).await.status == 429 {
            assert!(started.elapsed() < std::time::Duration::from_secs(30), "still full in round {round}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(f.claim(worker).await.len(), 1, "round {round}");
    }
}
