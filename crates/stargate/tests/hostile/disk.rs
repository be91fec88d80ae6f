//! Disks that are full or read-only: a small file system of the test's own, in a mount namespace.

use std::path::PathBuf;

use serde_json::Value;
use stargate_testkit::eventually;
use stargate_testkit::process::{Program, Running};

use crate::{PATIENCE, stderr};

const KINDS: &str = r#"
[worker]
heartbeat = "100ms"
lease = "20s"
# A claim of all jobs at once would not fit on so small a disk.
buffer_max = 0
[kinds."note"]
exec = ["true"]
backoff = "10ms"
[kinds."wait"]
exec = ["sh", "-c", "while [ ! -e GO ]; do sleep 0.05; done"]
"#;

/// A file system of three megabytes that only processes started through it can see.
struct Disk {
    /// Its home holds the mount point.
    program: Program,
    /// Keeps the namespace alive.
    holder: Running,
    /// The home of `holder`.
    _unshare: Program,
}

impl Disk {
    async fn mount() -> Self {
        let program = Program::new("nsenter");
        let place = program.home().join("disk");
        std::fs::create_dir(&place).expect("a mount point");
        let toml = KINDS.replace("GO", &program.home().join("go").display().to_string());
        std::fs::write(program.home().join("stargate.toml"), toml).expect("a configuration");
        let program = program.with("STARGATE_HOME", place.display().to_string());
        let mount = format!(
            "mount -t tmpfs -o size=3m tmpfs '{}' && echo mounted && exec sleep 3600",
            place.display()
        );
        // Root needs no user namespace, others cannot mount without one.
        let new = if is_root() { "-m" } else { "-rm" };
        let unshare = Program::new("unshare");
        let mut holder = unshare.start(&[new, "sh", "-c", &mount]);
        eventually(PATIENCE, "a file system of the test's own (unshare, mount)", || {
            let (running, log) = (holder.is_running(), holder.log());
            assert!(running || log.contains("mounted"), "this machine gives no mount namespace: {log}");
            async move { if log.contains("mounted") { Ok(()) } else { Err(log) } }
        })
        .await;
        Self { program, holder, _unshare: unshare }
    }

    fn place(&self) -> PathBuf {
        self.program.home().join("disk")
    }

    /// The arguments that run something where the disk can be seen.
    fn inside<'a>(&self, command: &[&'a str], holder: &'a str, home: &'a str) -> Vec<&'a str> {
        let enter: &[&str] = if is_root() { &["-m"] } else { &["--user", "--preserve-credentials", "-m"] };
        let go = ["--", "sh", "-c", "cd \"$0\" && exec \"$@\"", home];
        [&["-t", holder], enter, &go, command].concat()
    }

    fn run(&self, command: &[&str]) -> std::process::Output {
        let (holder, home) = (self.holder.id().to_string(), self.program.home().display().to_string());
        self.program.run(&self.inside(command, &holder, &home))
    }

    fn shell(&self, script: &str) -> String {
        let output = self.run(&["sh", "-c", script]);
        assert!(output.status.success(), "{script}: {}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn stargate(&self, arguments: &[&str]) -> std::process::Output {
        self.run(&[&[env!("CARGO_BIN_EXE_stargate")], arguments].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.stargate(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn worker(&self) -> Running {
        let (holder, home) = (self.holder.id().to_string(), self.program.home().display().to_string());
        self.program.start(&self.inside(&[env!("CARGO_BIN_EXE_stargate"), "worker"], &holder, &home))
    }

    /// Takes all the room there is.
    fn fill(&self) {
        // The shell's success does not matter: cat ends when the disk is full.
        self.run(&["sh", "-c", "cat /dev/zero >> disk/ballast"]);
    }

    fn checksums(&self) -> String {
        self.shell("cd disk && find . -type f -exec sha256sum {} + | sort")
    }

    fn states(&self) -> Vec<(i64, String)> {
        let jobs = self.json(&["job", "list", "--limit", "1000"]);
        let one = |job: &Value| Some((job["id"].as_i64()?, job["state"].as_str()?.to_owned()));
        jobs.as_array().into_iter().flatten().filter_map(one).collect()
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Exit code and message of a refusal.
fn refused(output: &std::process::Output) -> (Option<i32>, Value) {
    let text = stderr(output);
    let error: Value = serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|problem| panic!("no JSON error ({problem}): {text}"));
    (output.status.code(), error["error"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_named_loses_nothing_and_work_goes_on_when_there_is_room() {
    let disk = Disk::mount().await;
    disk.shell("head -c 1200000 /dev/zero > disk/ballast");
    let payload = format!("\"{}\"", "x".repeat(20_000));
    let enqueue = ["job", "enqueue", "note", &payload, "--json"];
    let mut accepted = Vec::new();
    let refusal = loop {
        assert!(accepted.len() < 300, "the disk never gets full");
        let output = disk.stargate(&enqueue);
        if !output.status.success() {
            break output;
        }
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        accepted.push(answer["id"].as_i64().unwrap());
    };
    let (exit, error) = refused(&refusal);
    assert_eq!(exit, Some(5), "{error}");
    assert!(error["message"].as_str().unwrap().contains("the disk is full"), "{error}");
    assert!(refusal.stdout.is_empty(), "a refused job has no id");
    assert!(accepted.len() > 3, "{} jobs fit", accepted.len());

    // Not one byte is left: still no other answer.
    disk.fill();
    for command in [&enqueue[..], &["queue", "pause", "mail", "--json"]] {
        let (exit, error) = refused(&disk.stargate(command));
        assert_eq!(exit, Some(5), "{error}");
        assert!(error["message"].as_str().unwrap().contains("the disk is full"), "{error}");
    }

    disk.shell("rm disk/ballast");
    let listed: Vec<i64> = disk.states().into_iter().map(|(id, _)| id).collect();
    assert_eq!(
        listed,
        accepted.iter().rev().copied().collect::<Vec<_>>(),
        "what was accepted, and only that"
    );
    let output = disk.stargate(&["job", "enqueue", "note"]);
    assert!(output.status.success(), "there is room again: {}", stderr(&output));
    let mut worker = disk.worker();
    worker.ready().await;
    eventually(PATIENCE, "all jobs to be done", || {
        let states = disk.states();
        let done = states.iter().filter(|(_, state)| state == "done").count();
        async move { if done == states.len() { Ok(()) } else { Err(format!("{states:?}")) } }
    })
    .await;
    worker.terminate();
    assert!(worker.ended(PATIENCE).await.success(), "{}", worker.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_disk_gets_full_in_mid_job_records_the_outcome_when_there_is_room() {
    let disk = Disk::mount().await;
    let mut worker = disk.worker();
    worker.ready().await;
    let output = disk.stargate(&["job", "enqueue", "wait"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let is = async |state: &str| {
        eventually(PATIENCE, state, || {
            let states = disk.states();
            let reached = states.iter().all(|(_, is)| is == state);
            async move { if reached { Ok(()) } else { Err(format!("{states:?}")) } }
        })
        .await;
    };
    is("processing").await;
    disk.fill();
    eventually(PATIENCE, "the worker to notice", || {
        disk.fill();
        let log = worker.log();
        async move { if log.contains("disk is full") { Ok(()) } else { Err(log) } }
    })
    .await;
    std::fs::write(disk.program.home().join("go"), "").unwrap();
    eventually(PATIENCE, "the outcome that could not be written", || {
        let log = worker.log();
        async move { if log.contains("outcome") { Ok(()) } else { Err(log) } }
    })
    .await;
    disk.shell("rm disk/ballast");
    is("done").await;
    assert!(worker.is_running(), "{}", worker.log());
    let timeline = disk.json(&["job", "events", "1"]);
    let names: Vec<&str> =
        timeline.as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["created", "processing", "done"], "it ran once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_home_is_named_and_nothing_changes() {
    let disk = Disk::mount().await;
    assert!(disk.stargate(&["job", "enqueue", "note"]).status.success());
    let place = disk.place();
    disk.shell(&format!("mount -o remount,ro '{}'", place.display()));
    let before = disk.checksums();
    for command in [&["job", "enqueue", "note"][..], &["worker", "--listen", "127.0.0.1:0"], &["purge"]] {
        let (exit, error) = refused(&disk.stargate(&[command, &["--json"]].concat()));
        assert_eq!(exit, Some(5), "{command:?}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("not writable") || message.contains("Read-only"), "{command:?}: {error}");
    }
    assert_eq!(disk.checksums(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_database_in_a_writable_home_is_named_and_nothing_changes() {
    let disk = Disk::mount().await;
    assert!(disk.stargate(&["job", "enqueue", "note"]).status.success());
    let file = disk.place().join("stargate.db");
    let file = file.display();
    disk.shell(&format!("mount --bind '{file}' '{file}' && mount -o remount,bind,ro '{file}'"));
    let before = disk.shell("sha256sum disk/stargate.db");
    let (exit, error) = refused(&disk.stargate(&["job", "enqueue", "note", "--json"]));
    assert_eq!(exit, Some(5), "{error}");
    assert!(error["message"].as_str().unwrap().contains("not writable"), "{error}");
    assert_eq!(disk.shell("sha256sum disk/stargate.db"), before);
}
