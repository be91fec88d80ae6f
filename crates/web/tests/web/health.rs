//! Health and metrics.

use std::sync::Arc;

use stargate_web::queue_gauges::Gauges;
use stargate_web::{Check, Health, Scope};

use crate::fixture::Fixture;

#[tokio::test]
async fn a_healthy_process_says_who_it_is_and_what_was_checked() {
    let f = Fixture::new().await;
    for path in ["/healthz", "/readyz"] {
        let report = f.get(path).await.expect(200).json();
        assert_eq!(report["status"], "ok");
        assert_eq!(report["instance"], "node-1");
        assert_eq!(report["version"], "1.2.3");
        assert_eq!(report["checks"][0]["name"], "disk");
    }
    assert_eq!(f.get("/readyz").await.json()["checks"][1]["name"], "store");
}

#[tokio::test]
async fn a_failing_check_is_503_and_named() {
    let failing: Arc<dyn Health> = Arc::new(|| vec![Check::failed("disk", "2 MB left")]);
    let f = Fixture::with(|app| app.health = failing).await;
    for path in ["/healthz", "/readyz"] {
        let report = f.get(path).await.expect(503).json();
        assert_eq!(report["status"], "failing");
        assert_eq!(report["checks"][0]["detail"], "2 MB left");
    }
}

#[tokio::test]
async fn a_check_for_readiness_does_not_fail_liveness() {
    struct NotReady;
    impl Health for NotReady {
        fn checks(&self) -> Vec<Check> {
            Vec::new()
        }
        fn ready_checks(&self) -> Vec<Check> {
            vec![Check::failed("pool", "starting")]
        }
    }
    let f = Fixture::with(|app| app.health = Arc::new(NotReady)).await;
    f.get("/healthz").await.expect(200);
    f.get("/readyz").await.expect(503);
}

#[tokio::test]
async fn readiness_tells_how_close_producers_are_to_being_pushed_back() {
    let f = Fixture::with(|app| app.max_depth = Some(2)).await;
    let told = async || {
        let report = f.get("/readyz").await.expect(200).json();
        let check =
            report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "depth").cloned();
        check.unwrap()["detail"].as_str().unwrap().to_owned()
    };
    assert_eq!(told().await, "0 jobs wait, 2 may (api.max_depth)");
    f.job(r#"{"kind":"greet"}"#).await;
    f.job(r#"{"kind":"greet"}"#).await;
    assert!(told().await.ends_with("producers get 429"), "being full is no failure");
    assert!(
        !Fixture::new().await.get("/readyz").await.text.contains("depth"),
        "without a limit there is nothing to tell"
    );
}

#[tokio::test]
async fn metrics_are_text_with_every_name_described() {
    let f = Fixture::new().await;
    let answer = f.get("/metrics").await.expect(200);
    assert!(answer.header("content-type").starts_with("text/plain"));
    assert!(answer.text.contains("# TYPE worker_jobs_processed_total counter"), "{}", answer.text);
}

#[tokio::test]
async fn a_process_without_the_api_serves_status_and_nothing_else() {
    let mut f = Fixture::new().await;
    f.router = stargate_web::router(f.app.clone(), Scope::Status);
    for path in ["/healthz", "/readyz", "/metrics"] {
        f.get(path).await.expect(200);
    }
    assert_eq!(f.get("/api/v1/jobs").await.expect(404).code(), "NOT_FOUND");
    assert_eq!(f.post("/api/v1/jobs", r#"{"kind":"greet"}"#).await.expect(404).code(), "NOT_FOUND");
}

#[test]
fn gauges_of_the_queues_come_from_the_store() {
    let (recorder, handle) = stargate_web::metrics::build(None, &[]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let f = Fixture::new().await;
            f.job(r#"{"kind":"greet","queue":"a"}"#).await;
            f.job(r#"{"kind":"greet","queue":"a","delay":"1h"}"#).await;
            Gauges::default().run_once(&f.store).await.unwrap();
        });
    });
    let text = handle.render();
    assert!(text.contains("worker_queue_depth{queue=\"a\",state=\"ready\"} 1"), "{text}");
    assert!(text.contains("worker_queue_depth{queue=\"a\",state=\"delayed\"} 1"), "{text}");
    assert!(text.contains("\nworker_oldest_ready_seconds "), "{text}");
}
