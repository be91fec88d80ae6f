//! Where settings come from, and how wrong ones are refused.

use serde_json::json;

use crate::{code, configured, json, refusal, stargate, stderr};

#[test]
fn an_unknown_key_is_refused_with_file_line_column_and_the_nearest_key() {
    let program = configured("[worker]\nheartbeat = \"10s\"\n\n  concurency = 4\n");
    let (code_of_json, error) = refusal(&program, &["config", "show"]);
    assert_eq!((code_of_json, &error["line"], &error["column"]), (2, &json!(4), &json!(3)), "{error}");
    let output = program.run(&["up"]);
    assert_eq!(code(&output), 2);
    let text = stderr(&output);
    for expected in ["stargate.toml:4:3", "concurency", "did you mean \"concurrency\"?"] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
}

#[test]
fn a_bad_value_names_its_key_and_the_range() {
    let output = configured("[worker]\nconcurrency = 0\n").run(&["up"]);
    assert_eq!(code(&output), 2);
    let text = stderr(&output);
    assert!(text.contains("worker.concurrency is 0; allowed are 1 to 4096"), "{text}");
    assert!(text.contains("stargate.toml:2:15"), "{text}");
}

#[test]
fn a_bad_environment_variable_is_named() {
    let program = stargate().with("LEASE_TIMEOUT_SEC", "7").with("HEARTBEAT_INTERVAL_SEC", "5");
    let (code, error) = refusal(&program, &["job", "list"]);
    assert_eq!(code, 2);
    assert!(error["message"].as_str().unwrap().contains("LEASE_TIMEOUT_SEC"), "{error}");
}

#[test]
fn every_value_is_shown_with_its_origin_and_secrets_are_not_shown() {
    let program =
        configured("[worker]\nconcurrency = 7\n[kinds.\"n\"]\nhttp = \"http://h/\"\nsecret = \"${env:S}\"\n")
            .with("S", "hunter2")
            .with("STARGATE_STORE", "postgres://u:hunter2@localhost/d")
            .with("HEARTBEAT_INTERVAL_SEC", "2");
    let text = program.answer(&["config", "show"]) + &program.answer(&["config", "show", "--json"]);
    assert!(!text.contains("hunter2"), "{text}");
    let shown = json(&program, &["config", "show", "--json", "--home", "h"]);
    let find = |key: &str| shown.as_array().unwrap().iter().find(|s| s["key"] == key).cloned().unwrap();
    assert_eq!(find("home")["origin"], json!({ "layer": "flag", "name": "--home" }));
    assert_eq!(
        find("worker.heartbeat")["origin"],
        json!({ "layer": "environment", "name": "HEARTBEAT_INTERVAL_SEC" })
    );
    assert_eq!(find("worker.heartbeat")["value"], json!("2s"));
    assert_eq!(
        (&find("worker.concurrency")["origin"]["layer"], &find("worker.concurrency")["origin"]["line"]),
        (&json!("file"), &json!(2))
    );
    assert_eq!(find("worker.poll")["origin"], json!({ "layer": "default" }));
    assert_eq!(find("kinds.n.secret")["value"], json!("***"));
}

#[test]
fn an_address_that_is_not_loopback_is_refused() {
    for command in ["up", "serve", "worker"] {
        let output = stargate().run(&[command, "--listen", "0.0.0.0:0"]);
        assert_eq!(code(&output), 2, "{command}");
        assert!(stderr(&output).contains("not loopback"), "{}", stderr(&output));
    }
}

#[test]
fn an_unreachable_or_unknown_store_is_refused_without_its_password() {
    let program = stargate();
    let (code, error) = refusal(&program, &["--store", "mysql://u:hunter2@h/d", "job", "list"]);
    assert_eq!(code, 2);
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let (code, error) = refusal(&program, &["--store", "postgres://u:hunter2@127.0.0.1:1/d", "job", "list"]);
    assert_eq!(code, 5);
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn doctor_checks_a_fresh_home_and_fails_on_a_missing_program() {
    let program = configured("[kinds.\"a\"]\nexec = [\"./not-there\"]\n");
    let output = program.run(&["doctor", "--json"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let checks: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let find = |name: &str| checks.as_array().unwrap().iter().find(|c| c["check"] == name).cloned().unwrap();
    assert_eq!(find("store")["verdict"], json!("ok"), "{checks}");
    assert_eq!(find("kinds")["verdict"], json!("fail"), "{checks}");
    assert!(find("kinds")["remedy"].is_string());
    assert_eq!(code(&stargate().run(&["doctor"])), 0);
}

#[test]
fn a_schedule_of_a_kind_that_nobody_serves_is_refused_at_start() {
    let program = configured("[schedules.\"s\"]\ncron = \"@daily\"\nkind = \"nope\"\n");
    let (code, error) = refusal(&program, &["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 2);
    assert!(error["message"].as_str().unwrap().contains("schedules.\"s\".kind"), "{error}");
}
