//! Directives over HTTP, from the list to the quarantine, and that the commands tell the same.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use stargate_testkit::eventually;
use stargate_testkit::process::Program;
use stargate_testkit::source_server::SourceServer;

use crate::client::Node;

const PATIENCE: Duration = Duration::from_secs(90);
const TOML: &str = "[worker]\nlease = \"2s\"\nheartbeat = \"500ms\"\npoll = \"200ms\"\n";

/// A column keeps its type, so each type has a column of its own.
fn write(program: &Program, server: &SourceServer, types: &str) {
    let url = server.url();
    let text = format!(
        "name = \"issues\"\nqueue = \"meta-py\"\ntenant = \"acme\"\nproject = \"core\"\n\
         [source]\ntype = \"http\"\nurl = \"{url}\"\nrecords = \"/items\"\npage_size_param = \"limit\"\n\
         pagination = {{ type = \"cursor\", param = \"after\", next = \"/next\" }}\n\
         [item]\nkey = [\"/id\"]\nmap = {{ title_{types} = {{ from = \"/title\", type = \"{types}\" }} }}\n[sink]\ntable = \"items\"\n"
    );
    let dir = program.home().join("directives");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("issues.toml"), text).unwrap();
    std::fs::write(dir.join("broken.toml"), "name = 7\n").unwrap();
}

async fn ended(node: &Node, run: &str) -> Value {
    let path = format!("/runs/{run}");
    eventually(PATIENCE, "the end of a run", || async {
        let answer = node.get(&path).await;
        let run: Value = serde_json::from_str(&answer.text).unwrap_or_default();
        if run["outcome"].is_string() { Ok(run) } else { Err(answer.text) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directive_is_run_looked_at_moved_and_mended_over_http() {
    let server = SourceServer::start(120);
    // Titles are no numbers, so every record is kept aside.
    let node = Node::up(TOML, |program| write(program, &server, "integer")).await;
    let list = node.get("/directives").await.expect(200);
    assert_eq!(list["engine"], "embedded");
    assert_eq!(
        (&list["directives"][0]["name"], &list["directives"][1]["queue"]),
        (&json!("broken"), &json!("meta-py"))
    );
    assert!(list["directives"][0]["problem"].is_string(), "{list}");
    let started = node.post("/directives/issues/runs", Value::Null).await.expect(202);
    let run = ended(&node, started["run_id"].as_str().unwrap()).await;
    assert_eq!((&run["outcome"], &run["failed"]), (&json!("succeeded"), &json!(120)));
    let shown = node.get("/directives/issues").await.expect(200);
    assert_eq!((&shown["quarantined"], &shown["runs"][0]["run_id"]), (&json!(120), &run["run_id"]));
    let told: Value =
        serde_json::from_str(&node.program.answer(&["directive", "show", "issues", "--json"])).unwrap();
    assert_eq!(told, shown, "the command and the API differ");
    assert_eq!(node.get("/runs?directive=issues").await.expect(200)["runs"].as_array().unwrap().len(), 1);

    let page = node.get("/directives/issues/quarantine?limit=10").await.expect(200);
    let (first, next) = (page["records"][0]["id"].as_i64().unwrap(), &page["next_before"]);
    let rest = node.get(&format!("/directives/issues/quarantine?before={next}&limit=1000")).await.expect(200);
    assert_eq!(rest["records"].as_array().unwrap().len(), 110);
    node.post(&format!("/quarantine/{first}/resolve"), Value::Null).await.expect(200);
    write(&node.program, &server, "text");
    let second = page["records"][1]["id"].as_i64().unwrap();
    let retried = node.post(&format!("/quarantine/{second}/retry"), Value::Null).await.expect(200);
    assert_eq!(retried, json!({ "directive": "issues", "resolved": 1, "failed": 0 }));
    let retried = node.post("/directives/issues/quarantine/retry", Value::Null).await.expect(200);
    assert_eq!(retried["resolved"], 118);
    assert!(node.get(&format!("/quarantine/{second}")).await.expect(200)["resolved_at"].is_string());

    let cursor = node.get("/directives/issues/cursor").await.expect(200);
    let version = cursor["cursor"]["version"].as_u64().unwrap();
    let put = async |body: Value| node.call(Method::PUT, "/directives/issues/cursor", body).await;
    put(json!({ "beginning": true })).await.expect(422);
    put(json!({ "beginning": true, "spec_ref": " " })).await.expect(422);
    put(json!({ "beginning": true, "spec_ref": "OPS-1", "expected_version": version + 7 })).await.expect(409);
    let moved =
        put(json!({ "beginning": true, "spec_ref": "OPS-1", "expected_version": version })).await.expect(200);
    assert_eq!(moved["version"], version + 1);
    let cursor = node.get("/directives/issues/cursor").await.expect(200);
    assert_eq!(cursor["moves"][0]["spec_ref"], "OPS-1");
    let run = run["run_id"].as_str().unwrap();
    assert_eq!(
        node.post(&format!("/runs/{run}/cancel"), Value::Null).await.expect(409)["error"]["code"],
        "RUN_ENDED"
    );
    node.post("/directives/nothing/runs", Value::Null).await.expect(404);
    let broken = node.post("/directives/broken/runs", Value::Null).await.expect(409);
    assert_eq!(broken["error"]["code"], "DIRECTIVE_INVALID");
    let message = broken["error"]["message"].as_str().unwrap();
    assert!(message.contains("broken.toml:1:8:"), "it names the place: {message}");
    let audit = node.get("/audit").await.expect(200).to_string();
    for action in ["directive.run", "quarantine.resolve", "quarantine.retry", "cursor.set", "run.cancel"] {
        assert!(audit.contains(action), "{action}: {audit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_goes_on_is_cancelled_over_http() {
    let server = SourceServer::start(100_000);
    let node = Node::up(TOML, |program| write(program, &server, "text")).await;
    let started = node.post("/directives/issues/runs", Value::Null).await.expect(202);
    let run = started["run_id"].as_str().unwrap();
    eventually(PATIENCE, "a page", || async {
        let run = node.get(&format!("/runs/{run}")).await;
        let pages = serde_json::from_str::<Value>(&run.text).unwrap_or_default()["pages"].as_u64();
        if pages.is_some_and(|pages| pages > 0) { Ok(()) } else { Err(run.text) }
    })
    .await;
    let again = node.post("/directives/issues/runs", Value::Null).await.expect(202);
    assert_eq!(again, json!({ "run_id": run, "existing": true }));
    let asked = node.post(&format!("/runs/{run}/cancel"), Value::Null).await.expect(202);
    assert_eq!(asked["cancel_asked"], true);
    assert_eq!(ended(&node, run).await["outcome"], "cancelled");
}
