//! Directives that run by themselves, and how many of a tenant at once.

use serde_json::Value;
use stargate_testkit::eventually;
use stargate_testkit::process::Running;
use stargate_testkit::source_server::{Fault, SourceServer};

use crate::stage::{Kind, PATIENCE, Stage, Wishes};

impl Stage {
    fn runs_of(&self, directive: &str) -> Vec<Value> {
        self.json(&["show", directive])["runs"].as_array().cloned().unwrap_or_default()
    }

    async fn newest_of(&self, directive: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(PATIENCE, "the run to be as expected", async || {
            let run = self.runs_of(directive).first().cloned().unwrap_or_default();
            if is(&run) { Ok(run) } else { Err(format!("{directive}: {run}")) }
        })
        .await
    }
}

/// How often a schedule has asked for a run while one went on.
fn skipped(node: &Running) -> usize {
    node.log()
        .lines()
        .filter(|line| line.contains("a schedule asks for a run") && line.contains("Bool(true)"))
        .count()
}

async fn every_second(kind: Kind) {
    let wishes = Wishes { top: "schedule = \"* * * * * *\"", ..Wishes::default() };
    let stage = Stage::wishing(kind, SourceServer::start(120), &wishes).await;
    let mut node = stage.program.start(&["up"]);
    node.ready().await;
    eventually(PATIENCE, "two runs that nobody asked for", async || {
        let runs = stage.runs_of("issues");
        let good = runs.iter().filter(|run| run["outcome"] == "succeeded").count();
        if good >= 2 { Ok(()) } else { Err(format!("{runs:?}")) }
    })
    .await;
    stage.assert_equal_to_the_source().await;
    // Now one does not come to its end.
    stage.server.script(|_| Some(Fault::Hang));
    let open = stage.run_is(|run| run["run_id"].is_string() && run["outcome"].is_null()).await;
    let hung = eventually(PATIENCE, "a request that is not answered", async || {
        let run = stage.last_run().unwrap_or_default();
        let asked = stage.server.request_count();
        if run["run_id"] == open["run_id"] && run["step"] == "FetchSourceData" {
            Ok(asked)
        } else {
            Err(run.to_string())
        }
    });
    hung.await;
    let (before, count) = (skipped(&node), stage.runs_of("issues").len());
    eventually(PATIENCE, "three more firings", async || {
        let more = skipped(&node) - before;
        if more >= 3 { Ok(()) } else { Err(format!("{more}; log:\n{}", node.log())) }
    })
    .await;
    assert_eq!(stage.runs_of("issues").len(), count, "no second run began");
    assert_eq!(stage.last_run().unwrap()["run_id"], open["run_id"]);
    stage.server.heal();
    stage.json(&["cancel", "issues"]);
    let next = stage.run_is(|run| run["outcome"] == "succeeded" && run["run_id"] != open["run_id"]).await;
    assert_eq!(next["unchanged"], 120, "{next}");
    stage.remove().await;
}

#[tokio::test]
async fn a_scheduled_directive_runs_by_itself_and_never_twice_at_once_on_sqlite() {
    every_second(Kind::Sqlite).await;
}

#[tokio::test]
async fn a_scheduled_directive_runs_by_itself_and_never_twice_at_once_on_postgres() {
    every_second(Kind::Postgres).await;
}

/// A directive of a tenant, whose requests tell its name.
fn write(stage: &Stage, name: &str, tenant: &str) {
    let text = std::fs::read_to_string(stage.file("directives/issues.toml")).unwrap();
    let url = stage.server.url();
    let text = text
        .replace("name = \"issues\"", &format!("name = \"{name}\""))
        .replace("tenant = \"acme\"", &format!("tenant = \"{tenant}\""))
        .replace(&format!("\"{url}\""), &format!("\"{url}?who={name}\"\ntimeout = \"10m\""));
    std::fs::write(stage.file(&format!("directives/{name}.toml")), text).unwrap();
}

/// As a schedule asks for it.
fn fire(stage: &Stage, name: &str) {
    let payload = format!(r#"{{"directive":"{name}","scheduled":true}}"#);
    stage.program.answer(&["job", "enqueue", "directive:run", &payload, "--queue", "meta-py"]);
}

async fn one_per_tenant(kind: Kind) {
    let stage = Stage::new(kind, SourceServer::start(150)).await;
    let config = std::fs::read_to_string(stage.file("stargate.toml")).unwrap();
    let config = format!("{config}concurrency = 4\n[directives]\ntenant_concurrency = 1\n");
    std::fs::write(stage.file("stargate.toml"), config).unwrap();
    for (name, tenant) in
        [("first", "acme"), ("second", "acme"), ("other", "umbrella"), ("another", "umbrella")]
    {
        write(&stage, name, tenant);
    }
    // The first of acme's does not come to its end.
    stage.server.script(|request| (request.param("who") == Some("first")).then_some(Fault::Hang));
    // Limits are entered by whoever leads.
    let mut node = stage.program.start(&["up"]);
    node.ready().await;
    eventually(PATIENCE, "the limit", async || {
        let limits = stage.own("limit_rule");
        if stage.number(&format!("select count(*) from {limits}")).await > 0 {
            Ok(())
        } else {
            Err("none".to_owned())
        }
    })
    .await;
    fire(&stage, "first");
    stage.newest_of("first", |run| run["step"] == "FetchSourceData").await;
    fire(&stage, "second");
    // Those of the other tenant run meanwhile, one after the other.
    for name in ["other", "another"] {
        fire(&stage, name);
        stage.newest_of(name, |run| run["outcome"] == "succeeded").await;
    }
    assert!(stage.runs_of("second").is_empty(), "acme has two runs at once");
    assert!(stage.runs_of("first")[0]["outcome"].is_null());
    stage.json(&["cancel", "first"]);
    let second = stage.newest_of("second", |run| run["outcome"] == "succeeded").await;
    let first = stage.runs_of("first")[0].clone();
    let at = |run: &Value, what: &str| run[what].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(at(&second, "started_at") >= at(&first, "ended_at"), "{second} after {first}");
    stage.remove().await;
}

#[tokio::test]
async fn a_tenant_has_as_many_runs_at_once_as_it_may_and_others_are_not_held_up_on_sqlite() {
    one_per_tenant(Kind::Sqlite).await;
}

#[tokio::test]
async fn a_tenant_has_as_many_runs_at_once_as_it_may_and_others_are_not_held_up_on_postgres() {
    one_per_tenant(Kind::Postgres).await;
}
