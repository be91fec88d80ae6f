//! The commands that stay: they do the work, answer, and end in order.

use std::time::Duration;

use serde_json::{Value, json};
use stargate_testkit::process::get;

use crate::{configured, json, refusal};

const KINDS: &str = r#"
[worker]
heartbeat = "200ms"
shutdown_timeout = "10s"
[kinds."echo"]
exec = ["sh", "-c", "echo \"{\\\"result\\\": $(cat)}\""]
[kinds."slow"]
exec = ["sh", "-c", "echo '{\"progress\": 10}'; sleep 1"]
[kinds."stuck"]
exec = ["sleep", "600"]
[kinds."bad"]
exec = ["sh", "-c", "echo no such thing >&2; exit 65"]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn up_runs_jobs_serves_http_and_ends_on_sigterm_after_its_jobs() {
    let program = configured(KINDS);
    let mut up = program.start(&["up"]);
    up.ready().await;
    assert!(up.log().contains("listening on"), "{}", up.log());
    let job =
        json(&program, &["job", "enqueue", "echo", r#"{"a":1}"#, "--wait", "--timeout", "20s", "--json"]);
    assert_eq!((&job["state"], &job["result"]), (&json!("done"), &json!({ "a": 1 })));
    let (status, body) = get(up.address(), "/metrics").await.unwrap();
    assert_eq!(status, 200);
    assert!(body.contains("worker_jobs_processed_total"), "{body}");

    let slow = program.answer(&["job", "enqueue", "slow"]);
    stargate_testkit::eventually(Duration::from_secs(20), "the job to start", || {
        let state = json(&program, &["job", "show", &slow, "--json"])["state"].clone();
        async move { if state == "processing" { Ok(()) } else { Err(state.to_string()) } }
    })
    .await;
    up.terminate();
    let status = up.ended(Duration::from_secs(20)).await;
    assert_eq!(status.code(), Some(0), "{}", up.log());
    let job = json(&program, &["job", "show", &slow, "--json"]);
    assert_eq!(job["state"], json!("done"), "a running job is waited for: {job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_a_job_that_fails_exits_1_and_it_can_be_retried() {
    let program = configured(KINDS);
    let mut worker = program.start(&["worker"]);
    worker.ready().await;
    let (code, error) = {
        let output = program.run(&["job", "enqueue", "bad", "--wait", "--timeout", "20s"]);
        (crate::code(&output), crate::stderr(&output))
    };
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("job 1 failed"), "{error}");
    let job = json(&program, &["job", "show", "1", "--json"]);
    assert_eq!((&job["error"]["class"], &job["attempt_count"]), (&json!("ValidationFailure"), &json!(1)));
    assert!(job["error"]["detail"].as_str().unwrap().contains("no such thing"), "{job}");
    program.answer(&["job", "retry", "1"]);
    assert_eq!(refusal_code(&program, &["job", "watch", "1", "--timeout", "20s"]), 1);
    assert_eq!(get(worker.address(), "/readyz").await.unwrap().0, 200);
    assert_eq!(get(worker.address(), "/api/v1/jobs").await.unwrap().0, 404, "a worker has no API");
    let workers = json(&program, &["workers", "--json"]);
    assert_eq!(workers[0]["alive"], json!(true), "{workers}");
}

fn refusal_code(program: &stargate_testkit::process::Program, arguments: &[&str]) -> i32 {
    crate::code(&program.run(arguments))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_heard_although_nobody_reads_the_log() {
    let program = configured("");
    let mut up = program.start_unheard(&["up"]);
    up.ready().await;
    up.terminate();
    assert_eq!(up.ended(Duration::from_secs(20)).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once() {
    let program = configured(KINDS);
    let mut up = program.start(&["up"]);
    up.ready().await;
    let stuck = program.answer(&["job", "enqueue", "stuck"]);
    stargate_testkit::eventually(Duration::from_secs(20), "the job to start", || {
        let state = json(&program, &["job", "show", &stuck, "--json"])["state"].clone();
        async move { if state == "processing" { Ok(()) } else { Err(state.to_string()) } }
    })
    .await;
    up.terminate();
    stargate_testkit::eventually(Duration::from_secs(10), "the first signal to be seen", || {
        let log = up.log();
        async move { if log.contains("stopping") { Ok(()) } else { Err(log) } }
    })
    .await;
    up.terminate();
    let status = up.ended(Duration::from_secs(3)).await;
    assert_eq!(status.code(), Some(130), "{}", up.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_refused_with_a_remedy() {
    let program = configured(KINDS);
    let mut up = program.start(&["up"]);
    up.ready().await;
    let (code, error) = refusal(&program, &["serve", "--listen", up.address()]);
    assert_eq!(code, 5);
    assert!(error["help"].as_str().unwrap().contains("--listen"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_it_asks_for_the_migration_and_then_does_the_same() {
    let database = stargate_testkit::postgres::Database::create_empty().await;
    let config = format!("{KINDS}\n[scratch]\nmax_size = \"1MiB\"\n");
    let program = configured(&config).with("DATABASE_URL", database.url());
    let (code, error) = refusal(&program, &["job", "list"]);
    assert_eq!((code, &error["code"]), (5, &json!("SCHEMA_TOO_OLD")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("stargate migrate"), "{error}");
    assert_eq!(json(&program, &["migrate", "--json"])["store"], json!("postgres"));
    let mut up = program.start(&["up"]);
    up.ready().await;
    let job =
        json(&program, &["job", "enqueue", "echo", r#"{"a":1}"#, "--wait", "--timeout", "20s", "--json"]);
    assert_eq!((&job["state"], &job["result"]), (&json!("done"), &json!({ "a": 1 })));
    let checks = json(&program, &["doctor", "--json"]);
    // A busy machine makes the way to the database long, and the doctor says so.
    let is_slow = |check: &Value| check["check"] == "store" && check["verdict"] == "warn";
    let is_well = |check: &Value| check["verdict"] == "ok" || is_slow(check);
    assert!(checks.as_array().unwrap().iter().all(is_well), "{checks}");
    up.terminate();
    assert_eq!(up.ended(Duration::from_secs(20)).await.code(), Some(0), "{}", up.log());
    database.remove().await;
}
