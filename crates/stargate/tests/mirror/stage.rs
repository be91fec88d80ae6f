//! A repository, its remote, and the binary that mirrors one to the other.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use stargate_testkit::process::{Program, Running, free_port};

/// For everything that has to happen sooner or later.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const MAIN: &str = "refs/kv/main";
pub(crate) const WATERMARK: &str = "refs/kv-mirror/main";

/// One test's surroundings.
pub(crate) struct Stage {
    pub(crate) program: Program,
    pub(crate) repo: PathBuf,
    pub(crate) remote: PathBuf,
}

impl Stage {
    /// A repository `tools` below the root, mirrored to a bare repository beside it.
    pub(crate) fn new() -> Self {
        Self::with_settings("")
    }

    /// The same with lines for `[mirror]`.
    pub(crate) fn with_settings(mirror: &str) -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_stargate"))
            // Nobody listens there, so no node is asked whether it leads.
            .with("STARGATE_LISTEN", format!("127.0.0.1:{}", free_port()));
        let toml = format!("[mirror]\nprotocols = [\"file\", \"https\"]\nrescan_every = \"200ms\"\n{mirror}");
        std::fs::write(program.home().join("stargate.toml"), toml).unwrap();
        let repo = program.home().join("repos/tools.git");
        let remote = program.home().join("remote.git");
        let stage = Self { program, repo, remote };
        stage.init(&stage.repo);
        stage.init(&stage.remote);
        stage.add_remote(&stage.repo, stage.remote.to_str().unwrap());
        stage
    }

    pub(crate) fn init(&self, dir: &Path) {
        std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
        self.git(self.program.home(), &["init", "--quiet", "--bare", dir.to_str().unwrap()], b"");
    }

    pub(crate) fn add_remote(&self, repo: &Path, url: &str) {
        self.git(repo, &["remote", "add", "github-origin", url], b"");
    }

    /// Runs git as a user would, and returns what it wrote.
    pub(crate) fn git(&self, dir: &Path, args: &[&str], input: &[u8]) -> String {
        #[expect(clippy::disallowed_methods, reason = "stands for a user and for the other side")]
        let mut command = Command::new("git");
        command
            .args(args)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A chain of commits, oldest first. Chains of different names have nothing in common.
    pub(crate) fn chain_in(&self, repo: &Path, name: &str, count: usize) -> Vec<String> {
        let mut stream = String::new();
        for n in 0..count {
            let (time, about) = (1_700_000_000 + n, name.len());
            stream +=
                &format!("commit refs/chain\ncommitter {name} <a@b> {time} +0000\ndata {about}\n{name}\n");
        }
        self.git(repo, &["fast-import", "--quiet", "--force"], stream.as_bytes());
        let list = self.git(repo, &["rev-list", "--reverse", "refs/chain"], b"");
        self.git(repo, &["update-ref", "-d", "refs/chain"], b"");
        list.lines().map(str::to_owned).collect()
    }

    pub(crate) fn chain(&self, count: usize) -> Vec<String> {
        self.chain_in(&self.repo, "ours", count)
    }

    /// What a push and its hook do: the ref moves, and the journal has a line. The line is one of another writer, without
    /// number and checksum.
    pub(crate) fn push(&self, entry_id: &str, ref_name: &str, old: Option<&str>, new: &str) {
        self.git(&self.repo, &["update-ref", ref_name, new], b"");
        self.journal(&json!({
            "entry_id": entry_id, "timestamp": "2026-01-01T00:00:00Z", "event": "ref_update", "ref": ref_name,
            "old_oid": old, "new_oid": new, "pusher": "u", "repo": "tools", "source": "test", "status": "pending",
        }));
    }

    pub(crate) fn journal(&self, entry: &Value) {
        self.scribble(format!("{entry}\n").as_bytes());
    }

    /// Bytes at the end of the journal.
    pub(crate) fn scribble(&self, bytes: &[u8]) {
        let path = self.file("mirror-journal.ndjson");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(bytes).unwrap();
    }

    /// A file of the mirror.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.repo.join(".stargate").join(name)
    }

    /// Runs `mirror …` on the repository.
    pub(crate) fn mirror(&self, words: &[&str]) -> Output {
        let repo = self.repo.to_str().unwrap();
        self.program.run(&[&["mirror"], words, &["--repo", repo]].concat())
    }

    /// The same, which has to succeed and print JSON.
    pub(crate) fn answer(&self, words: &[&str]) -> Value {
        let repo = self.repo.to_str().unwrap();
        let text = self.program.answer(&[&["mirror"], words, &["--repo", repo, "--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"))
    }

    /// The same, which has to fail: the exit code, and the code of the error.
    pub(crate) fn refusal(&self, words: &[&str]) -> (i32, String) {
        let output = self.mirror(&[words, &["--json"]].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = text.lines().last().unwrap_or_default();
        let error: Value = serde_json::from_str(last).unwrap_or_else(|e| panic!("{words:?}: {e}: {text}"));
        let code = error["error"]["code"].as_str().unwrap_or_else(|| panic!("{words:?}: {text}")).to_owned();
        (output.status.code().unwrap(), code)
    }

    /// Mirrors until nothing is left.
    pub(crate) fn drain(&self) -> Value {
        let done = self.answer(&["run", "--once"]);
        assert_eq!(done["end"], "idle", "{done}");
        done
    }

    /// The records of an entry, in the order they were written.
    pub(crate) fn records_of(&self, entry_id: &str) -> Vec<Value> {
        self.records().into_iter().filter(|record| record["entry_id"] == entry_id).collect()
    }

    /// The status of an entry, which must have one record.
    pub(crate) fn status_of(&self, entry_id: &str) -> String {
        let records = self.records_of(entry_id);
        assert_eq!(records.len(), 1, "records of {entry_id}: {records:?}");
        records[0]["status"].as_str().unwrap().to_owned()
    }

    pub(crate) fn records(&self) -> Vec<Value> {
        lines(&self.file("mirror-status.ndjson"))
    }

    pub(crate) fn letters(&self) -> Vec<Value> {
        self.answer(&["dead-letter", "list"]).as_array().unwrap().clone()
    }

    pub(crate) fn checkpoint(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.file("mirror-worker.offset")).unwrap()).unwrap()
    }

    /// A ref of the remote; empty if it has none of that name.
    pub(crate) fn remote_ref(&self, name: &str) -> String {
        self.git(&self.remote, &["for-each-ref", "--format=%(objectname)", name], b"")
    }

    pub(crate) fn assert_mirrored(&self, oid: &str) {
        assert_eq!((self.remote_ref(MAIN).as_str(), self.remote_ref(WATERMARK).as_str()), (oid, oid));
    }

    /// A hook of the other side.
    pub(crate) fn remote_hook(&self, hook: &str, script: &str) {
        executable(&self.remote.join("hooks").join(hook), script);
    }

    /// Has the other side write down each ref that is moved, when it is: a push that was tried and came too late is none.
    pub(crate) fn log_updates(&self) {
        let log = self.program.home().join("updates");
        let each = format!("while read old new ref; do echo \"$ref $new\" >> {}; done", log.display());
        self.remote_hook("reference-transaction", &format!("test \"$1\" = committed || exit 0\n{each}"));
    }

    /// What a ref was moved to, in order.
    pub(crate) fn updates(&self, name: &str) -> Vec<String> {
        let log = std::fs::read_to_string(self.program.home().join("updates")).unwrap_or_default();
        let moved = log.lines().filter_map(|line| line.strip_prefix(&format!("{name} ")));
        moved.map(str::to_owned).collect()
    }

    /// Starts a node and waits until it answers.
    pub(crate) async fn node(&self, name: &str) -> Running {
        let mut node = self.program.start_with(&["serve"], &[("STARGATE_INSTANCE", name)]);
        node.ready().await;
        node
    }
}

pub(crate) fn executable(path: &Path, script: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The lines of a file of JSON.
pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    stargate_testkit::eventually(PATIENCE, what, || async {
        if condition() { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
}
