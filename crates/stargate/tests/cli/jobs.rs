//! `job`, `queue`, `schedule`, `limit`, `explain`: what they answer and what they refuse.

use serde_json::json;

use crate::{code, configured, json, refusal, stargate, stderr};

const ECHO: &str = "[kinds.\"echo\"]\nexec = [\"cat\"]\n";

#[test]
fn enqueue_prints_the_id_alone_and_show_has_the_stable_fields() {
    let program = configured(ECHO);
    let output = program.run(&["job", "enqueue", "echo", r#"{"a":1}"#, "--queue", "q", "--priority", "7"]);
    assert_eq!(
        (code(&output), String::from_utf8_lossy(&output.stdout).as_ref()),
        (0, "1\n"),
        "{}",
        stderr(&output)
    );
    let job = json(&program, &["job", "show", "1", "--json"]);
    let fields: Vec<&String> = job.as_object().unwrap().keys().collect();
    for field in [
        "id",
        "kind",
        "queue",
        "state",
        "priority",
        "attempt_count",
        "max_attempts",
        "crash_count",
        "progress",
        "payload",
        "result",
        "error",
        "worker",
        "run_at",
        "created_at",
        "started_at",
        "finished_at",
        "lease_expires_at",
        "unique_key",
        "limit_key",
        "trace_id",
    ] {
        assert!(job.get(field).is_some(), "no {field} in {fields:?}");
    }
    assert_eq!((&job["state"], &job["queue"], &job["priority"]), (&json!("queued"), &json!("q"), &json!(7)));
    assert_eq!(job["payload"], json!({ "a": 1 }));
}

#[test]
fn empty_lists_are_an_empty_array() {
    let program = stargate();
    for command in ["job", "queue", "schedule", "limit"] {
        assert_eq!(json(&program, &[command, "list", "--json"]), json!([]), "{command}");
    }
    assert_eq!(json(&program, &["workers", "--json"]), json!([]));
}

#[test]
fn a_payload_that_is_not_json_is_refused() {
    let program = configured(ECHO);
    for bad in ["{", "hello", "", "{'a':1}", "1 2"] {
        let (code, error) = refusal(&program, &["job", "enqueue", "echo", bad]);
        assert_eq!((code, &error["code"]), (5, &json!("INVALID")), "{bad:?}");
    }
    assert_eq!(json(&program, &["job", "list", "--json"]), json!([]), "nothing was accepted");
}

#[test]
fn a_payload_of_one_mebibyte_is_taken_and_one_byte_more_is_not() {
    let program = configured(ECHO);
    let file = program.home().join("payload.json");
    let at = format!("@{}", file.display());
    std::fs::write(&file, format!("\"{}\"", "x".repeat((1 << 20) - 2))).unwrap();
    program.answer(&["job", "enqueue", "echo", &at]);
    std::fs::write(&file, format!("\"{}\"", "x".repeat((1 << 20) - 1))).unwrap();
    let (code, error) = refusal(&program, &["job", "enqueue", "echo", &at]);
    assert_eq!((code, &error["code"]), (5, &json!("PAYLOAD_TOO_LARGE")));
}

#[test]
fn an_unknown_kind_is_refused_with_the_known_ones() {
    let (code, error) = refusal(&configured(ECHO), &["job", "enqueue", "ecko"]);
    assert_eq!((code, &error["code"]), (5, &json!("UNKNOWN_KIND")));
    assert!(error["message"].as_str().unwrap().contains("echo"), "{error}");
}

#[test]
fn values_out_of_range_are_refused() {
    let program = configured(ECHO);
    let enqueue = |extra: &[&str]| refusal(&program, &[&["job", "enqueue", "echo"], extra].concat()).0;
    assert_eq!(enqueue(&["--priority", "-1"]), 2);
    assert_eq!(enqueue(&["--priority", "10000"]), 2);
    assert_eq!(enqueue(&["--max-attempts", "0"]), 2);
    assert_eq!(enqueue(&["--delay", "soon"]), 2);
    assert_eq!(enqueue(&["--delay", "-5s"]), 2);
    assert_eq!(enqueue(&["--run-at", "yesterday"]), 2);
    assert_eq!(enqueue(&["--run-at", "2001-01-01T00:00:00Z"]), 5, "far in the past");
    assert_eq!(enqueue(&["--run-at", "2999-01-01T00:00:00Z"]), 5, "absurdly ahead");
    assert_eq!(enqueue(&["--queue", "no spaces"]), 5);
    assert_eq!(enqueue(&["--unique-key", ""]), 5);
    assert_eq!(enqueue(&["--after", "99"]), 3, "no such parent");
    assert_eq!(json(&program, &["job", "list", "--json"]), json!([]), "nothing was accepted");
}

#[test]
fn exit_codes_tell_usage_not_found_and_conflict_apart() {
    let program = configured(ECHO);
    assert_eq!(code(&program.run(&["job", "frobnicate"])), 2);
    assert_eq!(refusal(&program, &["job", "show", "7"]).0, 3);
    assert_eq!(refusal(&program, &["job", "events", "7"]).0, 3);
    assert_eq!(refusal(&program, &["job", "cancel", "7"]).0, 3);
    assert_eq!(refusal(&program, &["explain", "7"]).0, 3);
    assert_eq!(refusal(&program, &["schedule", "remove", "x"]).0, 3);
    assert_eq!(refusal(&program, &["limit", "remove", "x"]).0, 3);
    program.answer(&["job", "enqueue", "echo"]);
    assert_eq!(refusal(&program, &["job", "retry", "1"]).0, 4, "a waiting job cannot be retried");
    assert_eq!(code(&program.run(&["job", "watch", "1", "--timeout", "200ms"])), 10);
    assert_eq!(refusal(&program, &["job", "list", "--since", "soon"]).0, 2);
}

#[test]
fn a_job_that_refuses_does_not_keep_the_others_from_their_turn() {
    let program = configured(ECHO);
    program.answer(&["job", "enqueue", "echo"]);
    program.answer(&["job", "enqueue", "echo"]);
    assert_eq!(code(&program.run(&["job", "cancel", "1", "7", "1", "2"])), 3, "the first refusal decides");
    assert_eq!(json(&program, &["job", "show", "2", "--json"])["state"], json!("cancelled"));
}

#[test]
fn a_unique_key_and_an_idempotency_key_answer_the_first_job() {
    let program = configured(ECHO);
    for key in ["--unique-key", "--idempotency-key"] {
        let enqueue = ["job", "enqueue", "echo", "{}", key, "k", "--json"];
        let first = json(&program, &enqueue);
        let second = json(&program, &enqueue);
        assert_eq!((&first["existing"], &second["existing"]), (&json!(false), &json!(true)), "{key}");
        assert_eq!(first["id"], second["id"], "{key}");
    }
    let (code, _) = refusal(&program, &["job", "enqueue", "echo", r#"{"b":2}"#, "--idempotency-key", "k"]);
    assert_eq!(code, 4, "the same key with another payload");
}

#[test]
fn cancelling_pausing_and_explaining() {
    let program = configured(ECHO);
    program.answer(&["job", "enqueue", "echo", "--queue", "mail"]);
    program.answer(&["queue", "pause", "mail"]);
    assert_eq!(json(&program, &["queue", "list", "--json"])[0]["paused"], json!(true));
    let explanation = json(&program, &["explain", "1", "--json"]);
    assert!(explanation.to_string().contains("queue resume mail"), "{explanation}");
    let told = program.answer(&["explain", "1"]);
    assert!(told.starts_with("job 1 waits for 2 reasons:"), "{told}");
    assert_eq!(told.matches("queue mail is paused").count(), 1, "{told}");
    program.answer(&["queue", "resume", "mail"]);
    assert_eq!(program.answer(&["explain", "1"]), "job 1 waits: no worker is running\n  stargate worker");
    assert_eq!(json(&program, &["job", "cancel", "1", "--json"])[0]["state"], json!("cancelled"));
    let events = json(&program, &["job", "events", "1", "--json"]);
    let names: Vec<&str> = events.as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["created", "cancelled"]);
    assert_eq!(events[0]["seq"], json!(1));
}

#[test]
fn schedules_and_limits_are_kept_and_nonsense_is_refused() {
    let program = configured(ECHO);
    for cron in ["hello", "61 * * * *", "* * *", ""] {
        let (code, error) = refusal(&program, &["schedule", "add", "s", cron, "echo"]);
        assert_eq!(code, 5, "{cron:?}");
        assert!(error["message"].as_str().unwrap().contains("cron"), "{error}");
    }
    assert_eq!(
        refusal(&program, &["schedule", "add", "s", "* * * * *", "echo", "--time-zone", "Mars/X"]).0,
        5
    );
    assert_eq!(refusal(&program, &["schedule", "add", "s", "* * * * *", "nope"]).0, 5);
    program.answer(&[
        "schedule",
        "add",
        "s",
        "0 3 * * *",
        "echo",
        r#"{"n":1}"#,
        "--time-zone",
        "Europe/Berlin",
    ]);
    let schedule = json(&program, &["schedule", "list", "--json"])[0].clone();
    assert!(schedule["next_at"].is_string(), "{schedule}");
    program.answer(&["schedule", "remove", "s"]);

    assert_eq!(refusal(&program, &["limit", "set", "a*b", "--rate", "1/s"]).0, 5);
    assert_eq!(refusal(&program, &["limit", "set", "a", "--rate", "1/fortnight"]).0, 2);
    program.answer(&["limit", "set", "tenant:*", "--concurrency", "2", "--rate", "10/s"]);
    let limit = json(&program, &["limit", "list", "--json"])[0].clone();
    assert_eq!(limit, json!({ "pattern": "tenant:*", "concurrency": 2, "rate": "10/s", "weight": 1 }));
}

#[test]
fn a_home_that_cannot_be_written_is_refused_with_a_remedy() {
    // Not even root can make directories there.
    let (code, error) = refusal(&stargate(), &["--home", "/proc/stargate", "job", "list"]);
    assert_eq!(code, 5);
    assert!(error["message"].as_str().unwrap().contains("/proc/stargate"), "{error}");
    assert!(error["help"].as_str().unwrap().contains("--home"), "{error}");
}

#[test]
fn a_store_in_a_directory_that_is_not_there_is_refused_and_not_made() {
    let program = stargate();
    let (code, error) = refusal(&program, &["--store", "sqlite:typo/x.db", "job", "list"]);
    assert_eq!((code, &error["code"]), (5, &json!("STORE_UNAVAILABLE")), "{error}");
    assert!(!program.home().join("typo").exists());
}
