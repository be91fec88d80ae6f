//! Schemathesis sends a real node what its description allows and what it forbids. No answer is a 5xx, none has a status or a
//! form that is not described.

use std::time::Duration;

use serde_json::{Value, json};
use stargate_testkit::source_server::SourceServer;

use crate::client::Node;

/// What the tests read: where the program is.
const PROGRAM: &str = "STARGATE_TEST_SCHEMATHESIS";
/// Examples for each operation; the long form is 200.
const EXAMPLES: &str = "STARGATE_TEST_API_EXAMPLES";
/// For all of them together.
const PATIENCE: Duration = Duration::from_secs(900);
/// What is not called at random: a stream without an end, and the end of this node's term.
const LEFT_OUT: [&str; 2] = ["/events", "/leader/step-down"];

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_answered_with_a_5xx_or_in_a_way_that_is_not_described() {
    let program = std::env::var(PROGRAM)
        .unwrap_or_else(|_| panic!("{PROGRAM} is not set: run this with 'cargo xtask services run -- …'"));
    let examples = std::env::var(EXAMPLES).unwrap_or_else(|_| "15".to_owned());
    let server = SourceServer::start(60);
    let toml = "[kinds.\"hello\"]\nexec = [\"cat\"]\n[kinds.\"bad\"]\nexec = [\"sh\", \"-c\", \"exit 65\"]\n";
    let node = Node::up(toml, |program| {
        program.answer(&["repo", "create", "tools"]);
        let dir = program.home().join("directives");
        std::fs::create_dir_all(&dir).unwrap();
        let url = server.url();
        let text = format!(
            "name = \"issues\"\nqueue = \"meta-py\"\ntenant = \"acme\"\nproject = \"core\"\n\
             [source]\ntype = \"http\"\nurl = \"{url}\"\nrecords = \"/items\"\n\
             pagination = {{ type = \"cursor\", param = \"after\", next = \"/next\" }}\n\
             [item]\nkey = [\"/id\"]\n[sink]\ntable = \"items\"\n"
        );
        std::fs::write(dir.join("issues.toml"), text).unwrap();
    })
    .await;
    for kind in ["hello", "bad"] {
        node.post("/jobs", json!({ "kind": kind, "payload": { "password": "x" } })).await.expect(201);
    }
    let schedule = json!({ "cron": "0 3 * * *", "kind": "hello" });
    node.call(reqwest::Method::PUT, "/schedules/nightly", schedule).await.expect(200);
    node.post("/directives/issues/runs", Value::Null).await.expect(202);

    let mut arguments = vec!["run".to_owned(), node.url("/openapi.json")];
    arguments.extend(["--max-examples".to_owned(), examples, "--seed".to_owned(), "7".to_owned()]);
    arguments.extend(
        [
            "--checks=not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
            "--phases=examples,coverage,fuzzing",
            "--request-timeout=30",
            "--no-color",
        ]
        .map(str::to_owned),
    );
    for path in LEFT_OUT {
        arguments.extend(["--exclude-path".to_owned(), path.to_owned()]);
    }
    let output = run(&program, &arguments, node.program.home()).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let log = node.running.log();
    assert!(
        output.status.success(),
        "{said}\n{}\n--- log\n{}",
        String::from_utf8_lossy(&output.stderr),
        tail(&log)
    );
    assert!(!log.contains("panicked"), "{}", tail(&log));
}

#[expect(clippy::disallowed_methods, reason = "a test runs a tool that looks at the node from outside")]
async fn run(program: &str, arguments: &[String], home: &std::path::Path) -> std::process::Output {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).current_dir(home).env("HOME", home).kill_on_drop(true);
    let done = tokio::time::timeout(PATIENCE, command.output()).await;
    done.expect("Schemathesis does not end").unwrap_or_else(|error| panic!("cannot run {program}: {error}"))
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}
