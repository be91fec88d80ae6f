//! What `doctor` finds, and what it tells to do about it.

use serde_json::{Value, json};

use crate::{code, configured, stargate, stderr};

/// The checks of a configuration, and the exit code.
fn checks(toml: &str) -> (i32, Value) {
    let output = configured(toml).run(&["doctor", "--json"]);
    let checks = serde_json::from_slice(&output.stdout);
    (code(&output), checks.unwrap_or_else(|error| panic!("{error}: {}", stderr(&output))))
}

fn find(checks: &Value, name: &str) -> Value {
    let found = checks.as_array().and_then(|all| all.iter().find(|check| check["check"] == name)).cloned();
    found.unwrap_or_else(|| panic!("no check {name} in {checks}"))
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
fn doctor_looks_at_ffmpeg_artifacts_and_scratch() {
    // The default would be a warning on a disk with less room than that.
    let (code, found) = checks("[scratch]\nmax_size = \"1MiB\"\n");
    assert_eq!(code, 0, "{found}");
    for name in ["ffmpeg", "ffprobe", "artifacts", "scratch"] {
        assert_eq!(find(&found, name)["verdict"], json!("ok"), "{found}");
    }
    assert!(find(&found, "ffmpeg")["found"].as_str().unwrap().starts_with("ffmpeg version "), "{found}");
    assert!(find(&found, "scratch")["found"].as_str().unwrap().contains("of 1.0 MiB"), "{found}");
}

#[test]
fn a_missing_ffmpeg_is_a_warning_with_the_remedy() {
    let (code, found) = checks("[clip]\nffmpeg = \"/not/there/ffmpeg\"\n");
    assert_eq!(code, 0, "only clips need it: {found}");
    assert_eq!(find(&found, "ffmpeg")["verdict"], json!("warn"), "{found}");
    assert!(find(&found, "ffmpeg")["remedy"].as_str().unwrap().contains("STARGATE_FFMPEG"), "{found}");
}

#[test]
fn a_place_for_artifacts_that_does_not_work_fails() {
    // Not even root can make directories there.
    let (code, found) = checks("[artifacts]\nurl = \"/proc/stargate\"\n");
    assert_eq!(code, 1, "{found}");
    assert_eq!(find(&found, "artifacts")["verdict"], json!("fail"), "{found}");
    let (code, found) = checks("[artifacts]\nurl = \"s3://media\"\n");
    assert_eq!(code, 1, "{found}");
    assert!(find(&found, "artifacts").to_string().contains("AWS_ACCESS_KEY_ID"), "{found}");
}

#[test]
fn a_pg_boss_that_cannot_be_reached_fails_without_its_password() {
    let (code, found) =
        checks("[sources.pgboss]\ndsn = \"postgres://u:hunter2@127.0.0.1:1/d\"\nqueues = [\"clip\"]\n");
    assert_eq!(code, 1, "{found}");
    assert_eq!(find(&found, "pg-boss")["verdict"], json!("fail"), "{found}");
    assert!(find(&found, "pg-boss")["remedy"].as_str().unwrap().contains("sources.pgboss.dsn"), "{found}");
    assert!(!found.to_string().contains("hunter2"), "{found}");
}
