//! Temporal for tests: a namespace of its own on the server that all share, or a server that can be killed.
//!
//! `cargo xtask test` installs the program and starts the shared server.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::environment;
use crate::process::free_port;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a server under load answers to a question that it could not keep until a workflow had answered it: ask again.
const BUSY: &str = "consistent query buffer is full";
/// Between two such questions.
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// A place for workflows that nobody else uses.
#[derive(Debug, Clone)]
pub struct Namespace {
    /// The frontend, `127.0.0.1:…`.
    pub address: String,
    /// Its name.
    pub name: String,
}

impl Namespace {
    /// One on the shared server. It goes with the server.
    pub fn create() -> Self {
        let address = environment::required("STARGATE_TEST_TEMPORAL_ADDRESS", "no Temporal server for tests");
        let name = format!("case-{:016x}", rand::random::<u64>());
        let namespace = Self { address, name };
        let created = namespace.run(&["operator", "namespace", "create"]);
        assert!(created.status.success(), "{created:?}");
        namespace
    }

    /// Asks Temporal's own program about this namespace.
    pub fn run(&self, words: &[&str]) -> Output {
        let mut command = program();
        command.args(words).args(["--address", &self.address, "--namespace", &self.name]);
        command.stdin(Stdio::null()).output().expect("Temporal's program runs")
    }

    /// The same, with an answer in JSON, which has to succeed.
    pub fn json(&self, words: &[&str]) -> Value {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let since = Instant::now();
        let output = loop {
            let output = self.run(&[words, &["--output", "json"]].concat());
            if since.elapsed() > PATIENCE || !text(&output.stderr).contains(BUSY) {
                break output;
            }
            std::thread::sleep(BUSY_PAUSE);
        };
        assert!(output.status.success(), "temporal {words:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stdout)))
    }

    /// What the server says about the newest execution of a workflow.
    pub fn describe(&self, workflow: &str) -> Value {
        self.json(&["workflow", "describe", "--workflow-id", workflow])
    }

    /// In which state it is: `RUNNING`, `COMPLETED`, `CANCELED`, …
    pub fn status(&self, workflow: &str) -> String {
        let described = self.describe(workflow);
        let status = described["workflowExecutionInfo"]["status"].as_str().unwrap_or_default();
        status.trim_start_matches("WORKFLOW_EXECUTION_STATUS_").to_owned()
    }

    /// The events of its newest execution.
    pub fn history(&self, workflow: &str) -> Vec<Value> {
        let shown = self.json(&["workflow", "show", "--workflow-id", workflow]);
        shown["events"].as_array().cloned().unwrap_or_default()
    }

    /// How many of its events are of a type, `ACTIVITY_TASK_SCHEDULED` for instance.
    pub fn count(&self, workflow: &str, event: &str) -> usize {
        let events = self.history(workflow);
        events
            .iter()
            .filter(|one| one["eventType"].as_str().is_some_and(|kind| kind.ends_with(event)))
            .count()
    }
}

/// A server of a test's own, which keeps what it knows in a file. It ends with the test.
#[derive(Debug)]
pub struct Server {
    child: Child,
    port: u16,
    home: TempDir,
}

impl Server {
    /// An empty one.
    pub fn start() -> Self {
        let home = tempfile::tempdir().expect("a folder for Temporal");
        // Another process may take the port between our looking and its binding it.
        for _ in 0..10 {
            let port = free_port();
            if let Some(child) = spawn(port, &home) {
                return Self { child, port, home };
            }
        }
        panic!("Temporal's server does not start; see {}", home.path().display());
    }

    /// Its only namespace.
    pub fn namespace(&self) -> Namespace {
        Namespace { address: format!("127.0.0.1:{}", self.port), name: "default".to_owned() }
    }

    /// Where it keeps what it knows.
    pub fn folder(&self) -> &Path {
        self.home.path()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it where it stands, connections open.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Goes on after [`Server::freeze`].
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a server that runs");
    }

    /// Starts it again on the same port, with what it knew.
    pub fn up(&mut self) {
        let begin = Instant::now();
        self.child = loop {
            if let Some(child) = spawn(self.port, &self.home) {
                break child;
            }
            assert!(begin.elapsed() < PATIENCE, "Temporal's server does not start again");
        };
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn program() -> Command {
    let path = environment::required("STARGATE_TEST_TEMPORAL_CLI", "no Temporal for tests");
    #[expect(clippy::disallowed_methods, reason = "a program of the test's own, ended with it")]
    let mut command = Command::new(path);
    // What a developer has set for another cluster is not meant.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TEMPORAL_")) {
        command.env_remove(name);
    }
    command
}

/// Starts a server; `None` if it ended at once, as it does when a port is taken.
fn spawn(port: u16, home: &TempDir) -> Option<Child> {
    let file = |name: &str| home.path().join(name);
    let log = std::fs::OpenOptions::new().create(true).append(true).open(file("log.txt")).expect("a log");
    let mut command = program();
    command.args(["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "warn"]);
    command.args(["--port", &port.to_string()]);
    command.arg("--db-filename").arg(file("temporal.db"));
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
    let mut child = command.spawn().expect("Temporal's server starts");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let namespace = Namespace { address: address.to_string(), name: "default".to_owned() };
    let begin = Instant::now();
    loop {
        if child.try_wait().expect("a child to look at").is_some() {
            return None;
        }
        let listens = TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok();
        if listens && namespace.run(&["operator", "namespace", "describe"]).status.success() {
            return Some(child);
        }
        assert!(begin.elapsed() < PATIENCE, "Temporal's server does not listen on port {port}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start_one(namespace: &Namespace) {
        let words = ["workflow", "start", "--type", "t", "--task-queue", "q", "--workflow-id", "w"];
        let started = namespace.run(&words);
        assert!(started.status.success(), "{started:?}");
    }

    #[test]
    fn a_server_that_was_killed_still_knows_its_workflows() {
        let mut server = Server::start();
        let namespace = server.namespace();
        start_one(&namespace);
        server.kill();
        assert!(!namespace.run(&["workflow", "list"]).status.success());
        server.up();
        assert_eq!(namespace.status("w"), "RUNNING");
    }

    #[test]
    fn namespaces_do_not_see_each_other() {
        let (one, other) = (Namespace::create(), Namespace::create());
        start_one(&one);
        assert_eq!((one.status("w").as_str(), one.count("w", "WORKFLOW_EXECUTION_STARTED")), ("RUNNING", 1));
        assert!(!other.run(&["workflow", "describe", "--workflow-id", "w"]).status.success());
    }
}
