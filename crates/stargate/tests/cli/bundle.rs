//! The support bundle: what is in it, and what is not.

use serde_json::Value;
use stargate_testkit::process::Program;

use crate::{code, configured, json, stderr};

/// What must not leave the house, wherever it stands here.
const SECRETS: [&str; 6] = [
    "opensesame-42",
    "swordfish-99",
    "hunter2-payload",
    "correct-horse-7",
    "battery-staple-8",
    "tulip-field-9",
];

const CONFIGURATION: &str = r#"
[kinds."leaky"]
exec = ["sh", "-c", "echo \"opensesame-42 password=hunter2-payload Bearer battery-staple-8\" >&2; exit 65"]
env = { PLAIN = "opensesame-42" }
[webhooks.secrets]
team = "correct-horse-7"
"#;

/// All files of an archive, one after the other, and their names.
fn unpacked(program: &Program, path: &str) -> (String, String) {
    let tar = Program::new("/bin/tar");
    let path = program.home().join(path);
    let path = path.to_str().unwrap();
    (tar.answer(&["-xzOf", path]), tar.answer(&["-tzvf", path]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_has_what_support_asks_for_and_no_secrets() {
    let program = configured(CONFIGURATION).with("MY_PASSWORD", "swordfish-99");
    let token = program.answer(&["token", "add", "admin", "--role", "admin"]);
    let mut node = program.start(&["up"]);
    node.ready().await;
    let client = configured(CONFIGURATION)
        .with("STARGATE_TOKEN", &token)
        .with("STARGATE_URL", format!("http://{}", node.address()));
    let payload =
        r#"{"password":"hunter2-payload","note":"plainly-visible","nested":[{"api_key":"tulip-field-9"}]}"#;
    let output = program.run(&["job", "enqueue", "leaky", payload, "--wait"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let log = program.home().join("server.log");
    std::fs::write(
        &log,
        format!("started\nauthorization: Bearer {token}\nMY_PASSWORD=swordfish-99\nsecret: tulip-field-9\nlast line\n"),
    )
    .unwrap();
    let log = log.to_str().unwrap();

    let beside = ["bundle", "-o", "a.tar.gz", "--log-file", log, "--json"];
    let made = json(&program, &beside);
    assert_eq!(made["path"], "a.tar.gz", "{made}");
    let (text, names) = unpacked(&program, "a.tar.gz");
    for part in [
        "MANIFEST.txt",
        "about.json",
        "doctor.json",
        "config.json",
        "queues.json",
        "workers.json",
        "failures.json",
        "jobs-failed.json",
        "leader.json",
        "mirrors.json",
        "audit.json",
        "log.txt",
    ] {
        assert!(names.contains(&format!("/{part}")), "no {part} in {names}");
    }
    assert!(names.lines().all(|line| line.starts_with("-rw-------")), "{names}");
    assert!(
        text.contains("last line") && text.contains("EXEC_FAILED") && text.contains("worker.concurrency")
    );
    for secret in SECRETS.into_iter().chain([token.as_str()]) {
        assert!(!text.contains(secret), "{secret} is in the bundle:\n{text}");
    }
    assert!(!text.contains("plainly-visible"), "payloads were not asked for");
    // A node that is asked without a token, or not at all, is told in the manifest instead of failing the rest.
    let problems: Vec<&Value> =
        made["parts"].as_array().unwrap().iter().filter(|p| !p["problem"].is_null()).collect();
    assert!(problems.iter().all(|part| text.contains(part["problem"].as_str().unwrap())), "{problems:?}");

    program.answer(&["bundle", "-o", "b.tar.gz", "--payloads"]);
    let (text, _) = unpacked(&program, "b.tar.gz");
    assert!(text.contains("plainly-visible"), "payloads were asked for");
    for secret in SECRETS.into_iter().chain([token.as_str()]) {
        assert!(!text.contains(secret), "{secret} is in the bundle with payloads:\n{text}");
    }

    let made = client.answer(&["bundle", "--json"]);
    let made: Value = serde_json::from_str(&made).unwrap();
    let (text, names) = unpacked(&client, made["path"].as_str().unwrap());
    for part in
        ["metrics.txt", "healthz.json", "stats.json", "whoami.json", "queues.json", "jobs-failed.json"]
    {
        assert!(names.contains(&format!("/{part}")), "no {part} in {names}\n{text}");
    }
    assert!(text.contains("worker_jobs_processed_total"), "{text}");
    for secret in SECRETS.into_iter().chain([token.as_str()]) {
        assert!(!text.contains(secret), "{secret} is in the bundle of a node:\n{text}");
    }
}

#[test]
fn a_bundle_goes_to_standard_output_too_and_a_bad_place_is_told() {
    let program = crate::stargate();
    let output = program.run(&["bundle", "-o", "-"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(output.stdout.starts_with(&[0x1f, 0x8b]), "gzip");
    let (exit, error) = crate::refusal(&program, &["bundle", "-o", "not/there.tar.gz"]);
    assert_eq!(exit, 5, "{error}");
}
