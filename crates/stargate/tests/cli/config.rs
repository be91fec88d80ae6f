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
fn an_address_that_others_reach_is_refused_without_a_token() {
    for command in ["up", "serve", "worker"] {
        let output = stargate().run(&[command, "--listen", "0.0.0.0:0"]);
        assert_eq!(code(&output), 2, "{command}");
        assert!(stderr(&output).contains("there is no token yet"), "{}", stderr(&output));
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
fn a_schedule_of_a_kind_that_nobody_serves_is_refused_at_start() {
    let program = configured("[schedules.\"s\"]\ncron = \"@daily\"\nkind = \"nope\"\n");
    let (code, error) = refusal(&program, &["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 2);
    assert!(error["message"].as_str().unwrap().contains("schedules.\"s\".kind"), "{error}");
}

#[test]
fn secrets_of_artifacts_and_sources_are_not_shown_and_their_origin_is() {
    let program = configured(
        "[artifacts]\nurl = \"s3://media/x\"\nsecret_access_key = \"hunter2\"\n\
         [sources.pgboss]\ndsn = \"postgres://u:hunter2@h/d\"\nqueues = [\"clip\"]\n",
    )
    .with("AWS_ACCESS_KEY_ID", "hunter2");
    let shown = json(&program, &["config", "show", "--json"]);
    let text = program.answer(&["config", "show"]) + &shown.to_string();
    assert!(!text.contains("hunter2"), "{text}");
    let find = |key: &str| shown.as_array().unwrap().iter().find(|s| s["key"] == key).cloned().unwrap();
    assert_eq!(find("artifacts.access_key_id")["value"], json!("***"));
    assert_eq!(find("artifacts.access_key_id")["origin"]["name"], json!("AWS_ACCESS_KEY_ID"));
    assert_eq!(find("artifacts.secret_access_key")["origin"]["line"], json!(3));
    assert_eq!(find("sources.pgboss.dsn")["value"], json!("***"));
    assert_eq!(find("scratch.max_size")["value"], json!("10GiB"));
    assert_eq!(find("clip.max_attempts")["value"], json!("3"));
}

#[test]
fn a_bucket_without_keys_is_refused_by_workers_and_named_variables() {
    let program = configured("[artifacts]\nurl = \"s3://media/x\"\n");
    for command in ["up", "worker"] {
        let (code, error) = refusal(&program, &[command, "--listen", "127.0.0.1:0"]);
        assert_eq!(code, 2, "{command}: {error}");
        let text = error.to_string();
        assert!(text.contains("AWS_ACCESS_KEY_ID") && text.contains("AWS_SECRET_ACCESS_KEY"), "{error}");
    }
    assert_eq!(json(&program, &["job", "list", "--json"]), json!([]), "who only looks needs no keys");
}

#[test]
fn a_refusal_shows_the_line_and_not_the_secret_beside_it() {
    let text = "[artifacts]\nsecret_access_key = \"hunter2\"\nregion = \"the moon\"\n";
    let output = configured(text).run(&["job", "list"]);
    assert_eq!(code(&output), 2);
    let text = stderr(&output);
    assert!(
        text.contains("the moon") && text.contains("stargate.toml:3") && !text.contains("hunter2"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_pg_boss_is_refused_at_start_and_one_that_is_away_is_waited_for() {
    let database = stargate_testkit::postgres::Database::create_empty().await;
    let source = "[sources.pgboss]\ndsn = \"${env:DSN}\"\nqueues = [\"clip\"]\n";
    let program = configured(source).with("DSN", database.url());
    let (code, error) = refusal(&program, &["worker", "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 2, "{error}");
    assert!(error["message"].as_str().unwrap().contains("sources.pgboss.schema"), "{error}");
    database.remove().await;

    let program = configured(source).with("DSN", "postgres://u:hunter2@127.0.0.1:1/d");
    let mut worker = program.start(&["worker"]);
    worker.ready().await;
    let log = worker.log();
    assert!(log.contains("pg-boss cannot be asked now") && !log.contains("hunter2"), "{log}");
}
