//! A repository with a journal, and a remote that is a bare repository beside it.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stargate_git::{Git, Init, Oid, Protocols, RefName, RepoDir};
use stargate_mirror::dead_letter::Stored;
use stargate_mirror::permit::Always;
use stargate_mirror::status::{Record, Status};
use stargate_mirror::{Config, DeadLetters, Drained, Journal, NewEntry, Round, Statuses, Worker};
use stargate_testkit::git::{self, executable};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Long enough for a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
pub(crate) const MAIN: &str = "refs/kv/main";
pub(crate) const WATERMARK: &str = "refs/kv-mirror/main";

/// Every git that is there.
pub(crate) fn gits() -> Vec<Git> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    git::programs().iter().map(|program| Git::new(program, &path)).collect()
}

/// Whether tests are to take their time: `STARGATE_MIRROR_LONG`.
pub(crate) fn is_long() -> bool {
    std::env::var_os("STARGATE_MIRROR_LONG").is_some()
}

pub(crate) fn name(text: &str) -> RefName {
    RefName::parse(text).unwrap()
}

pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) git: Git,
    pub(crate) repo: RepoDir,
    pub(crate) remote: RepoDir,
    pub(crate) config: Config,
}

impl World {
    pub(crate) async fn new(git: &Git) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let git = git.clone().with_protocols(Protocols::parse("file").unwrap());
        let init = Init { default_branch: name("refs/heads/main"), sha256: false };
        let repo = git.init_bare(&dir.path().join("repo.git"), &init).await.unwrap();
        let remote = git.init_bare(&dir.path().join("remote.git"), &init).await.unwrap();
        let config = Config { poll_every: Duration::from_millis(5), ..Config::new().unwrap() };
        let world = Self { dir, git, repo, remote, config };
        world.set_url(world.remote.path().to_str().unwrap());
        world
    }

    /// The same places in another process.
    pub(crate) fn again(&self) -> (Git, RepoDir, Config) {
        (self.git.clone(), self.repo.clone(), self.config.clone())
    }

    pub(crate) fn set_url(&self, url: &str) {
        self.run(self.repo.path(), &["config", "remote.github-origin.url", url], b"");
    }

    /// Runs git as a user would, and returns what it wrote.
    pub(crate) fn run(&self, dir: &Path, args: &[&str], input: &[u8]) -> String {
        #[expect(clippy::disallowed_methods, reason = "stands for a user and for the other side")]
        let mut command = Command::new(self.git.program());
        command
            .args(args)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@b");
            command.env(format!("GIT_{who}_DATE"), "2025-01-01T00:00:00Z");
        }
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn commit_in(&self, repo: &RepoDir, parent: Option<&Oid>, text: &str) -> Oid {
        let tree = self.run(repo.path(), &["hash-object", "-w", "-t", "tree", "--stdin"], b"");
        let mut args = vec!["commit-tree", &tree, "-m", text];
        if let Some(parent) = parent {
            args.extend(["-p", parent.as_str()]);
        }
        Oid::parse(&self.run(repo.path(), &args, b"")).unwrap()
    }

    pub(crate) fn commit(&self, parent: Option<&Oid>, text: &str) -> Oid {
        self.commit_in(&self.repo, parent, text)
    }

    /// A chain of commits, oldest first.
    pub(crate) fn chain(&self, count: usize) -> Vec<Oid> {
        let mut stream = String::new();
        for n in 0..count {
            stream +=
                &format!("commit refs/chain\ncommitter a <a@b> {} +0000\ndata 0\n\n", 1_700_000_000 + n);
        }
        self.run(self.repo.path(), &["fast-import", "--quiet", "--force"], stream.as_bytes());
        let list = self.run(self.repo.path(), &["rev-list", "--reverse", "refs/chain"], b"");
        self.run(self.repo.path(), &["update-ref", "-d", "refs/chain"], b"");
        list.lines().map(|line| Oid::parse(line).unwrap()).collect()
    }

    /// What a push and its hook do: the ref moves, and the journal has a line. Returns the entry's id.
    pub(crate) fn push(&self, ref_name: &str, old: Option<&Oid>, new: &Oid) -> String {
        self.update_ref(ref_name, new);
        self.journal(ref_name, old, new)
    }

    pub(crate) fn update_ref(&self, ref_name: &str, oid: &Oid) {
        self.run(self.repo.path(), &["update-ref", ref_name, oid.as_str()], b"");
    }

    pub(crate) fn journal(&self, ref_name: &str, old: Option<&Oid>, new: &Oid) -> String {
        self.append(vec![entry(ref_name, old, new)]).remove(0)
    }

    pub(crate) fn append(&self, entries: Vec<NewEntry>) -> Vec<String> {
        let journal = Journal::open(self.repo.path()).unwrap();
        journal.append(&entries).unwrap().into_iter().map(|appended| appended.entry_id).collect()
    }

    /// Bytes in the journal that no appender of ours would write.
    pub(crate) fn scribble(&self, bytes: &[u8]) {
        let path = self.repo.path().join(".stargate/mirror-journal.ndjson");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(bytes).unwrap();
    }

    pub(crate) fn worker(&self) -> Worker {
        let (git, repo, config) = self.again();
        Worker::open(git, repo, config, Arc::new(Always)).unwrap()
    }

    /// A worker that starts, works until nothing is left, and ends.
    pub(crate) async fn drain(&self) -> Drained {
        let mut worker = self.worker();
        let drained = worker.drain(CancellationToken::new());
        tokio::time::timeout(PATIENCE, drained).await.expect("the worker does not come to an end").unwrap()
    }

    pub(crate) async fn drain_all(&self) {
        let drained = self.drain().await;
        assert_eq!((drained.end, drained.left), (Round::Idle, 0));
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        let mut records = Statuses::open(self.repo.path()).unwrap().latest(100_000).unwrap();
        records.reverse();
        records
    }

    /// What became of an entry; it must have exactly one record.
    pub(crate) fn record(&self, entry_id: &str) -> Record {
        let mut found: Vec<Record> =
            self.records().into_iter().filter(|record| record.entry_id == entry_id).collect();
        assert_eq!(found.len(), 1, "records of {entry_id}: {found:?}");
        found.remove(0)
    }

    pub(crate) fn status(&self, entry_id: &str) -> (Status, String) {
        let record = self.record(entry_id);
        (record.status, record.via.unwrap_or_default())
    }

    pub(crate) fn letters(&self) -> Vec<Stored> {
        DeadLetters::open(self.repo.path()).unwrap().list(None, 100_000).unwrap()
    }

    pub(crate) fn open_letters(&self) -> usize {
        DeadLetters::open(self.repo.path()).unwrap().open_count().unwrap()
    }

    pub(crate) fn remote_ref(&self, ref_name: &str) -> Option<Oid> {
        let list = self.run(self.remote.path(), &["for-each-ref", "--format=%(objectname)", ref_name], b"");
        (!list.is_empty()).then(|| Oid::parse(&list).unwrap())
    }

    pub(crate) fn remote_refs(&self) -> Vec<String> {
        let list = self.run(self.remote.path(), &["for-each-ref", "--format=%(refname)"], b"");
        list.lines().map(str::to_owned).collect()
    }

    /// Both the ledger and its watermark are this.
    pub(crate) fn assert_mirrored(&self, oid: &Oid) {
        assert_eq!(self.remote_ref(MAIN).as_ref(), Some(oid), "{MAIN}");
        assert_eq!(self.remote_ref(WATERMARK).as_ref(), Some(oid), "{WATERMARK}");
    }

    /// A hook of the other side.
    pub(crate) fn remote_hook(&self, hook: &str, script: &str) {
        executable(&self.remote.path().join("hooks").join(hook), script);
    }

    /// Has the other side write down each ref that is moved, as `ref old new`.
    pub(crate) fn log_updates(&self) {
        let log = self.dir.path().join("updates");
        self.remote_hook("update", &format!("echo \"$1 $2 $3\" >> {}", log.display()));
    }

    pub(crate) fn updates(&self, ref_name: &str) -> Vec<(String, String)> {
        let log = std::fs::read_to_string(self.dir.path().join("updates")).unwrap_or_default();
        let lines = log.lines().map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        lines.filter(|line| line[0] == ref_name).map(|mut line| (line.remove(1), line.remove(1))).collect()
    }

    /// Has the other side write down each push that is begun, also one that has nothing to tell, and each ref that
    /// has moved. As on another machine, it does not end with our git.
    pub(crate) fn log_pushes(&self) {
        let (pushes, moves) = (self.dir.path().join("pushes"), self.dir.path().join("moves"));
        let receive = self.dir.path().join("receive-pack");
        let git = self.git.program().display();
        executable(
            &receive,
            &format!("echo x >> {}\nexec setsid {git} receive-pack \"$@\"", pushes.display()),
        );
        let command = receive.to_str().unwrap();
        self.run(self.repo.path(), &["config", "remote.github-origin.receivepack", command], b"");
        self.remote_hook(
            "reference-transaction",
            &format!("test \"$1\" = committed || exit 0\ncat >> {}", moves.display()),
        );
    }

    /// How many pushes were begun.
    pub(crate) fn pushes(&self) -> usize {
        let log = std::fs::read_to_string(self.dir.path().join("pushes")).unwrap_or_default();
        log.lines().count()
    }

    /// How refs have moved, in the order in which they did.
    pub(crate) fn moves(&self) -> Vec<Move> {
        let log = std::fs::read_to_string(self.dir.path().join("moves")).unwrap_or_default();
        let words = log.lines().map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        words
            .map(|mut words| Move { old: words.remove(0), new: words.remove(0), name: words.remove(0) })
            .collect()
    }
}

/// A ref that has moved on the other side.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) name: String,
    pub(crate) old: String,
    pub(crate) new: String,
}

pub(crate) fn entry(ref_name: &str, old: Option<&Oid>, new: &Oid) -> NewEntry {
    NewEntry {
        ref_name: ref_name.to_owned(),
        old_oid: old.map(ToString::to_string),
        new_oid: new.to_string(),
        source: "post-receive".to_owned(),
        ..NewEntry::default()
    }
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
