//! The settings of the API, read by the real binary.

use serde_json::{Value, json};

use crate::client::Node;

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_node_below_a_sub_path_is_for_looking() {
    let toml = "[api]\nread_only = true\n[web]\nbase_path = \"/ops\"\n[kinds.\"hello\"]\nexec = [\"cat\"]\n";
    let node = Node::up(toml, |_| {}).await;
    let refused = node.post("/jobs", json!({ "kind": "hello" })).await.expect(403);
    assert_eq!(refused["error"]["code"], "READ_ONLY");
    let who = node.get("/whoami").await.expect(200);
    assert_eq!(who, json!({ "name": "local", "role": "admin", "read_only": true }));
    let below = node.url("").replace("/api/v1", "/ops/api/v1/openapi.json");
    let document: Value = reqwest::get(below).await.unwrap().text().await.unwrap().parse().unwrap();
    assert_eq!(document["servers"][0]["url"], "/ops/api/v1");
    // The store itself is not concerned.
    node.program.answer(&["job", "enqueue", "hello"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_be_are_refused_at_start() {
    for (toml, key) in [
        ("[web]\nbase_path = \"ops/\"\n", "web.base_path"),
        ("[api]\nrate_limit = \"often\"\n", "api.rate_limit"),
        ("[web]\nredact = 7\n", "redact"),
    ] {
        let program = stargate_testkit::process::Program::new(env!("CARGO_BIN_EXE_stargate"));
        std::fs::write(program.home().join("stargate.toml"), toml).unwrap();
        let output = program.run(&["config", "show"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(key), "{toml}: {said}");
    }
}
