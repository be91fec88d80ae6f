//! What only Temporal has: its server's view, outages of it, signals, schedules, workers in other languages.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use stargate_testkit::eventually;
use stargate_testkit::process::{Running, get};
use stargate_testkit::source_server::{Fault, SourceServer};
use stargate_testkit::temporal::{Namespace, Server};

use crate::stage::{Engine, Kind, PATIENCE, Place, Stage, Wishes};
use crate::{code, stderr, stdout};

const PLACE: Place = Place { kind: Kind::Sqlite, engine: Engine::Temporal };
const WORKFLOW: &str = "directive:issues";

impl Stage {
    fn cluster(&self) -> &Namespace {
        self.namespace.as_ref().expect("a stage on Temporal")
    }

    async fn workflow_is(&self, status: &str) {
        eventually(PATIENCE, "the workflow's status", async || {
            let found = self.cluster().status(WORKFLOW);
            if found == status { Ok(()) } else { Err(found) }
        })
        .await;
    }
}

#[tokio::test]
async fn the_server_shows_how_each_run_ended_and_whose_it_is() {
    let stage = Stage::new(PLACE, SourceServer::start(300)).await;
    let mut worker = stage.worker();
    worker.ready().await;
    let run = stage.run();
    assert_eq!(
        (&run["engine"], &run["created"], &run["workflow_id"]),
        (&"temporal".into(), &300.into(), &WORKFLOW.into())
    );
    stage.workflow_is("COMPLETED").await;
    let described = stage.cluster().describe(WORKFLOW);
    assert_eq!(described["workflowExecutionInfo"]["execution"]["runId"], run["run_id"]);
    let of_tenant =
        ["workflow", "list", "--query", "StargateTenant = 'acme' AND StargateDirective = 'issues'"];
    eventually(PATIENCE, "the run to be found by its tenant", async || {
        let found = stage.cluster().json(&of_tenant);
        if found.as_array().is_some_and(|all| all.len() == 1) { Ok(()) } else { Err(found.to_string()) }
    })
    .await;

    stage.server.script(|_| Some(Fault::status(401)));
    let failed = stage.directive(&["run", "issues", "--json"]);
    assert_eq!(code(&failed), 1, "{}", stderr(&failed));
    let run: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!(run["outcome"], "failed", "{run}");
    assert!(run["error"].as_str().unwrap().starts_with("SOURCE_REFUSED: "), "{run}");
    stage.workflow_is("FAILED").await;

    stage.server.script(|_| Some(Fault::Hang));
    stage.begin();
    stage.run_is(|run| run["step"] == "FetchSourceData").await;
    assert_eq!(stage.json(&["cancel", "issues"])["outcome"], "cancelled");
    stage.workflow_is("CANCELED").await;

    let list = stage.json(&["list"]);
    assert_eq!(list[0]["workflow"]["status"], "cancelled", "{list}");
    let shown = stage.directive(&["show", "issues"]);
    assert!(stdout(&shown).contains("workflow   directive:issues · cancelled"), "{}", stdout(&shown));
    stage.remove().await;
}

#[tokio::test]
async fn a_workflow_that_is_cancelled_on_the_server_ends_its_run_where_the_cursor_is() {
    let stage = Stage::new(PLACE, SourceServer::start(1000)).await;
    stage.server.fault_at(4, Fault::Hang);
    let mut worker = stage.worker();
    worker.ready().await;
    stage.begin();
    stage.run_is(|run| run["pages"] == 3).await;
    let asked = stage.cluster().run(&["workflow", "cancel", "--workflow-id", WORKFLOW]);
    assert!(asked.status.success(), "{asked:?}");
    let run = stage.run_is(|run| run["outcome"].is_string()).await;
    assert_eq!((&run["outcome"], &run["created"]), (&"cancelled".into(), &300.into()));
    stage.workflow_is("CANCELED").await;
    assert_eq!(stage.run()["created"], 700);
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}

#[tokio::test]
async fn a_run_whose_workflow_was_terminated_is_ended_by_the_next() {
    let stage = Stage::wishing(PLACE, SourceServer::start(300), &SOON_MISSED).await;
    stage.server.fault_at(2, Fault::Hang);
    let mut worker = stage.worker();
    worker.ready().await;
    stage.begin();
    let open = stage.run_is(|run| run["pages"] == 1).await;
    let asked = stage.cluster().run(&["workflow", "terminate", "--workflow-id", WORKFLOW]);
    assert!(asked.status.success(), "{asked:?}");
    let run = stage.run();
    assert_eq!((&run["created"], &run["unchanged"]), (&200.into(), &0.into()), "{run}");
    let runs = stage.json(&["show", "issues"])["runs"].clone();
    assert_eq!((&runs[1]["run_id"], &runs[1]["outcome"]), (&open["run_id"], &"failed".into()), "{runs}");
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}

/// A dead worker is missed after three heartbeats.
const SOON_MISSED: Wishes = Wishes { top: "heartbeat = \"1s\"", source: None, item: "", sink: "" };

#[tokio::test]
async fn a_worker_killed_in_mid_page_is_followed_by_another_from_its_heartbeat() {
    let stage = Stage::wishing(PLACE, SourceServer::start(1000), &SOON_MISSED).await;
    stage.server.fault_at(5, Fault::Hang);
    let mut first = stage.worker();
    first.ready().await;
    stage.begin();
    stage.run_is(|run| run["pages"] == 4).await;
    // The heartbeat that tells of the fourth page has reached the server.
    eventually(PATIENCE, "a heartbeat of four pages", async || {
        let shown = stage.json(&["show", "issues"]);
        let pending = &shown["workflow"]["pending"][0];
        if pending["heartbeat"]["pages"] == 4 { Ok(()) } else { Err(shown["workflow"].to_string()) }
    })
    .await;
    first.kill();
    let mut second = stage.worker();
    second.ready().await;
    let run = stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_eq!((&run["created"], &run["unchanged"]), (&1000.into(), &0.into()), "{run}");
    let log = second.log();
    let taken =
        log.lines().find(|line| line.contains("taking up after the last heartbeat")).expect("a word of it");
    assert!(taken.contains("\"pages\":4"), "{taken}");
    stage.workflow_is("COMPLETED").await;
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}

#[tokio::test]
async fn a_server_that_is_restarted_in_mid_run_finds_rows_and_cursor_right() {
    let mut server = Server::start();
    let source = SourceServer::start(1000);
    source.script(|_| Some(Fault::Delay(Duration::from_millis(150))));
    let stage = Stage::at(Kind::Sqlite, Some(server.namespace()), source, &SOON_MISSED).await;
    let mut worker = stage.worker();
    worker.ready().await;
    stage.begin();
    stage.run_is(|run| run["pages"].as_u64() >= Some(3)).await;
    server.kill();
    let down = stage.directive(&["run", "issues"]);
    assert_eq!(code(&down), 1, "{}", stdout(&down));
    assert!(stderr(&down).contains("does not answer"), "{}", stderr(&down));
    server.up();
    stage.workflow_is("COMPLETED").await;
    let run = stage.last_run_while_embedded();
    assert_eq!(
        (&run["outcome"], run["cursor"]["processed_count"].as_u64()),
        (&"succeeded".into(), Some(1000)),
        "{run}"
    );
    assert_eq!(run["created"], 1000, "{run}");
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}

impl Stage {
    /// The newest run by the store alone, whatever the cluster does.
    fn last_run_while_embedded(&self) -> Value {
        self.json(&["show", "issues", "--engine", "embedded"])["runs"][0].clone()
    }
}

#[tokio::test]
async fn two_workers_share_runs_and_each_row_is_written_once() {
    let stage = Stage::new(PLACE, SourceServer::start(2000)).await;
    let toml = "[worker]\nlease = \"2s\"\nheartbeat = \"500ms\"\npoll = \"200ms\"\n[temporal]\npages_per_activity = 1\n";
    std::fs::write(stage.file("stargate.toml"), toml).unwrap();
    let (mut one, mut other) = (stage.worker(), stage.worker());
    one.ready().await;
    other.ready().await;
    let run = stage.run();
    assert_eq!((&run["created"], &run["pages"]), (&2000.into(), &20.into()));
    assert_eq!(stage.number("select count(*) from items where version <> 1").await, 0);
    assert_eq!(stage.cluster().count(WORKFLOW, "ACTIVITY_TASK_COMPLETED"), 21, "begin, and each page");
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}

#[tokio::test]
async fn a_run_is_paused_asked_and_resumed_with_temporals_own_program() {
    let stage = Stage::new(PLACE, SourceServer::start(1000)).await;
    stage.server.fault_at(4, Fault::Hang);
    let mut worker = stage.worker();
    worker.ready().await;
    stage.begin();
    stage.run_is(|run| run["pages"] == 3).await;
    let signal = |name: &str, input: &[&str]| {
        let words = [&["workflow", "signal", "--workflow-id", WORKFLOW, "--name", name], input].concat();
        let sent = stage.cluster().run(&words);
        assert!(sent.status.success(), "{sent:?}");
    };
    signal("pause", &[]);
    eventually(PATIENCE, "the stretch to be broken off", async || {
        let described = stage.cluster().describe(WORKFLOW);
        let is_idle = described.get("pendingActivities").and_then(Value::as_array).is_none_or(Vec::is_empty);
        if is_idle { Ok(()) } else { Err(described.to_string()) }
    })
    .await;
    let asked = stage.server.request_count();
    signal("page_size", &["--input", "50"]);
    let answer = stage.cluster().json(&["workflow", "query", "--workflow-id", WORKFLOW, "--type", "paused"]);
    assert!(answer.to_string().contains("true"), "{answer}");
    assert_eq!(stage.server.request_count(), asked, "nothing is fetched meanwhile");
    signal("resume", &[]);
    let run = stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_eq!((&run["created"], &run["unchanged"]), (&1000.into(), &0.into()), "{run}");
    let sizes = stage.server.requests();
    assert_eq!(sizes.last().and_then(|request| request.param("limit")), Some("50"));
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}

#[tokio::test]
async fn a_schedule_is_the_clusters_and_leaves_the_queue() {
    let wishes = Wishes { top: "schedule = \"0 3 * * *\"", ..Wishes::default() };
    let stage = Stage::wishing(PLACE, SourceServer::start(120), &wishes).await;
    let schedules = || -> Vec<String> {
        let listed: Value =
            serde_json::from_str(&stage.program.answer(&["schedule", "list", "--json"])).unwrap();
        let all = listed.as_array().unwrap();
        all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    let mut embedded = stage.program.start_with(&["up"], &[("STARGATE_ENGINE", "embedded")]);
    embedded.ready().await;
    assert!(schedules().contains(&WORKFLOW.to_owned()));
    embedded.terminate();
    assert!(embedded.ended(PATIENCE).await.success());
    let mut node = stage.program.start(&["up"]);
    node.ready().await;
    assert!(!schedules().contains(&WORKFLOW.to_owned()), "it would fire twice");
    let described = stage.cluster().json(&["schedule", "describe", "--schedule-id", WORKFLOW]);
    assert!(described.to_string().contains("stargate.directive"), "{described}");
    let fired = stage.cluster().run(&["schedule", "trigger", "--schedule-id", WORKFLOW]);
    assert!(fired.status.success(), "{fired:?}");
    let run = stage.run_is(|run| run["outcome"] == "succeeded").await;
    assert_eq!(run["created"], 120);
    stage.remove().await;
}

/// Waits until a worker has reached the cluster.
async fn polls(worker: &Running) {
    eventually(PATIENCE, "the worker to poll", async || {
        let log = worker.log();
        if log.contains("polling the Temporal cluster") { Ok(()) } else { Err(log) }
    })
    .await;
}

#[tokio::test]
async fn without_a_worker_the_command_executes_the_run_itself() {
    let stage = Stage::new(PLACE, SourceServer::start(300)).await;
    assert_eq!(stage.run()["created"], 300);
    // The cluster still lists the first command as somebody who polls.
    assert_eq!(stage.json(&["run", "issues", "--timeout", "60s"])["unchanged"], 300);
    stage.assert_equal_to_the_source().await;
    stage.remove().await;
}

#[tokio::test]
async fn a_node_lives_without_the_cluster_and_serves_it_when_it_is_there() {
    let mut server = Server::start();
    let stage =
        Stage::at(Kind::Sqlite, Some(server.namespace()), SourceServer::start(120), &Wishes::default()).await;
    server.kill();
    let mut worker = stage.worker();
    worker.ready().await;
    let shown = stage.directive(&["show", "issues", "--json"]);
    assert_eq!(code(&shown), 0, "what the store knows is shown: {}", stderr(&shown));
    eventually(PATIENCE, "a warning", async || {
        let log = worker.log();
        if log.contains("Temporal cannot be reached yet") { Ok(()) } else { Err(log) }
    })
    .await;
    server.up();
    polls(&worker).await;
    assert_eq!(stage.run()["created"], 120);
    stage.remove().await;
}

#[tokio::test]
async fn a_worker_of_other_queues_and_one_that_is_told_by_a_flag_leave_schedules_alone() {
    let wishes = Wishes { top: "schedule = \"0 3 * * *\"", ..Wishes::default() };
    let stage =
        Stage::wishing(PLACE, SourceServer::start(10), &wishes).await.with("STARGATE_ENGINE", "embedded");
    let mut other = stage.program.start(&["worker", "--queue", "mail", "--engine", "temporal"]);
    other.ready().await;
    eventually(PATIENCE, "a word about schedules", async || {
        let log = other.log();
        if log.contains("schedules stay on the queue") { Ok(()) } else { Err(log) }
    })
    .await;
    let schedules = stage.cluster().run(&["schedule", "describe", "--schedule-id", WORKFLOW]);
    assert!(!schedules.status.success(), "{schedules:?}");
    assert!(other.is_running());
    stage.remove().await;
}

#[tokio::test]
async fn the_doctor_tells_what_the_cluster_lacks_and_metrics_are_bridged() {
    let stage = Stage::new(PLACE, SourceServer::start(10)).await;
    let checks = |stage: &Stage| -> Vec<Value> {
        let output = stage.program.run(&["doctor", "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
    };
    let verdict = |checks: &[Value], name: &str| {
        let check = checks.iter().find(|check| check["check"] == name);
        check.map(|check| check["verdict"].as_str().unwrap().to_owned()).unwrap_or_default()
    };
    let before = checks(&stage);
    assert_eq!(
        (verdict(&before, "temporal"), verdict(&before, "temporal queues")),
        ("ok".into(), "warn".into()),
        "{before:?}"
    );
    let mut worker = stage.worker();
    worker.ready().await;
    polls(&worker).await;
    stage.run();
    let after = checks(&stage);
    assert_eq!(
        (verdict(&after, "temporal"), verdict(&after, "temporal queues")),
        ("ok".into(), "ok".into()),
        "{after:?}"
    );
    let (_, metrics) = get(worker.address(), "/metrics").await.unwrap();
    assert!(metrics.contains("worker_runs_total{directive=\"issues\",outcome=\"succeeded\"} 1"), "{metrics}");
    assert!(metrics.lines().any(|line| line.starts_with("temporal_")), "{metrics}");

    let gone = stage.with("TEMPORAL_NAMESPACE", "nobody-made-it");
    let without = checks(&gone);
    assert_eq!(verdict(&without, "temporal"), "fail", "{without:?}");
    gone.remove().await;
}

/// A worker in another language. Killed when dropped.
struct Foreign(Child);

impl Foreign {
    async fn start(program: &Path, words: &[&str], folder: &Path, cluster: &Namespace) -> Self {
        let log = folder.join("worker.log");
        let file = std::fs::File::create(&log).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a worker of the test's own, ended with it")]
        let mut command = Command::new(program);
        command.args(words).current_dir(folder).stdin(Stdio::null());
        command.env("TEMPORAL_ADDRESS", &cluster.address).env("TEMPORAL_NAMESPACE", &cluster.name);
        command.stdout(file.try_clone().unwrap()).stderr(file);
        let worker = Self(command.spawn().expect("the worker starts"));
        eventually(PATIENCE, "the worker to poll", async || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            if text.lines().any(|line| line.trim() == "ready") { Ok(()) } else { Err(text) }
        })
        .await;
        worker
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn variable(name: &str) -> PathBuf {
    let missing = format!("{name} is not set: run `cargo xtask test`, which installs what it names");
    std::env::var_os(name).map(PathBuf::from).unwrap_or_else(|| panic!("{missing}"))
}

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/temporal").join(path).canonicalize().unwrap()
}

/// Records that an activity `fetch_page` of a queue reads from the test's server.
fn activity_source(stage: &Stage, queue: &str) -> Wishes {
    let url = stage.server.url();
    let source = format!(
        "type = \"activity\"\nactivity = \"fetch_page\"\ntask_queue = \"{queue}\"\nargs = {{ url = \"{url}\" }}"
    );
    Wishes { source: Some(source), ..Wishes::default() }
}

/// A run whose pages come from another language, with a hiccup of the source in between.
async fn pages_of_another_language(stage: &Stage, queue: &str) {
    stage.write(&activity_source(stage, queue));
    stage.server.fault_at(3, Fault::status(503).with_header("retry-after", "1"));
    let mut worker = stage.worker();
    worker.ready().await;
    let run = stage.run();
    assert_eq!(
        (&run["created"], &run["unchanged"], &run["pages"]),
        (&1000.into(), &0.into(), &10.into()),
        "{run}"
    );
    stage.assert_equal_to_the_source().await;
    stage.workflow_is("COMPLETED").await;
    assert_eq!(stage.run()["unchanged"], 1000);
    // What the source refuses is not asked for again and again.
    stage.server.script(|_| Some(Fault::status(401)));
    let refused = stage.directive(&["run", "issues", "--json"]);
    assert_eq!(code(&refused), 1, "{}", stdout(&refused));
    stage.workflow_is("FAILED").await;
    assert_eq!(stage.last_run().unwrap()["outcome"], "failed");
}

#[tokio::test]
async fn pages_are_fetched_by_a_worker_in_python() {
    let stage = Stage::new(PLACE, SourceServer::start(1000)).await;
    let folder = tempfile::tempdir().unwrap();
    let (python, script) = (variable("STARGATE_TEST_TEMPORAL_PYTHON"), example("python/worker.py"));
    let _worker = Foreign::start(&python, &[script.to_str().unwrap()], folder.path(), stage.cluster()).await;
    pages_of_another_language(&stage, "meta-py").await;
    stage.remove().await;
}

#[tokio::test]
async fn pages_are_fetched_by_a_worker_in_typescript() {
    let stage = Stage::new(PLACE, SourceServer::start(1000)).await;
    let folder = tempfile::tempdir().unwrap();
    for file in ["worker.ts", "package.json"] {
        std::fs::copy(example("typescript").join(file), folder.path().join(file)).unwrap();
    }
    let modules = variable("STARGATE_TEST_TEMPORAL_TYPESCRIPT").join("node_modules");
    std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).unwrap();
    let node = variable("STARGATE_TEST_NODE");
    let _worker = Foreign::start(&node, &["worker.ts"], folder.path(), stage.cluster()).await;
    pages_of_another_language(&stage, "meta-ts").await;
    stage.remove().await;
}
