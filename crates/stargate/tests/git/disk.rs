//! A disk that gets full while pushes arrive (INV-1). It is a small file system in a mount namespace of the test's own,
//! so nothing is left mounted however the test ends.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use stargate_testkit::eventually;
use stargate_testkit::process::{Program, Running};

use crate::client::{Client, ref_of};
use crate::{PATIENCE, stderr};

const MIRROR: &str = "[mirror]\nprotocols = [\"file\"]\nrescan_every = \"200ms\"\nreconcile_every = \"1s\"\n";
const STARGATE: &str = env!("CARGO_BIN_EXE_stargate");
/// To a ref that is mirrored and to the default branch, which the store follows.
const PUSH: [&str; 5] = ["push", "--atomic", "origin", "HEAD:refs/kv/a", "HEAD:main"];
/// Pushes after which any of the disks here is full.
const PUSHES_MAX: usize = 60;

/// A namespace in which file systems can be mounted, and what runs there.
struct Inside {
    /// Keeps the namespace alive.
    holder: Running,
    _unshare: Program,
    /// Enters it.
    program: Program,
}

impl Inside {
    /// `home` is where Stargate keeps its files, below the home of the test.
    async fn new(home: &str) -> Self {
        let program = Program::new("nsenter");
        std::fs::write(program.home().join("stargate.toml"), MIRROR).unwrap();
        let place = program.home().join(home).display().to_string();
        let program = program.with("STARGATE_HOME", place);
        // Root needs no user namespace, others cannot mount without one.
        let new = if is_root() { "-m" } else { "-rm" };
        let unshare = Program::new("unshare");
        let mut holder = unshare.start(&[new, "sh", "-c", "echo there && exec sleep 3600"]);
        eventually(PATIENCE, "a mount namespace (unshare)", || {
            let (running, log) = (holder.is_running(), holder.log());
            assert!(running, "this machine gives no mount namespace: {log}");
            async move { if log.contains("there") { Ok(()) } else { Err(log) } }
        })
        .await;
        Self { holder, _unshare: unshare, program }
    }

    fn home(&self) -> &Path {
        self.program.home()
    }

    /// The words that run something inside.
    fn words(&self, command: &[&str]) -> Vec<String> {
        let enter: &[&str] = if is_root() { &["-m"] } else { &["--user", "--preserve-credentials", "-m"] };
        let (holder, home) = (self.holder.id().to_string(), self.home().display().to_string());
        let go = ["--", "sh", "-c", "cd \"$0\" && exec \"$@\"", &home];
        [&["-t", &*holder], enter, &go, command].concat().into_iter().map(str::to_owned).collect()
    }

    fn run(&self, command: &[&str]) -> Output {
        let words = self.words(command);
        self.program.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn must(&self, command: &[&str]) -> String {
        let output = self.run(command);
        assert!(output.status.success(), "{command:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn mount(&self, at: &Path, size: &str) {
        let at = at.to_str().unwrap();
        self.must(&["mkdir", "-p", at]);
        self.must(&["mount", "-t", "tmpfs", "-o", &format!("size={size},mode=700"), "tmpfs", at]);
    }

    /// How a path inside is called outside.
    fn seen(&self, path: &Path) -> PathBuf {
        let root = Path::new("/proc").join(self.holder.id().to_string()).join("root");
        root.join(path.strip_prefix("/").unwrap())
    }

    async fn node(&self) -> Running {
        let words = self.words(&[STARGATE, "up"]);
        let mut node = self.program.start(&words.iter().map(String::as_str).collect::<Vec<_>>());
        node.ready().await;
        node
    }

    /// Takes all the room that a file system has.
    fn fill(&self, disk: &Path) {
        let path = self.seen(disk).join("ballast");
        let mut ballast = std::fs::File::options().create(true).append(true).open(path).unwrap();
        let full = std::io::copy(&mut std::io::repeat(0), &mut ballast).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }

    fn make_room(&self, disk: &Path) {
        std::fs::remove_file(self.seen(disk).join("ballast")).unwrap();
    }

    /// A repository `r` with a bare remote that is not on the disk; both paths.
    fn repository(&self, repos: &Path) -> (PathBuf, PathBuf) {
        self.must(&[STARGATE, "repo", "create", "r"]);
        let (repo, remote) = (repos.join("r.git"), self.home().join("remote.git"));
        self.must(&["git", "init", "-q", "--bare", remote.to_str().unwrap()]);
        let add = ["remote", "add", "github-origin", remote.to_str().unwrap()];
        self.must(&[&["git", "-C", repo.to_str().unwrap()], &add[..]].concat());
        (repo, remote)
    }

    /// Waits until the last push that was accepted is mirrored, recorded and processed.
    async fn settled(&self, node: &Running, remote: &Path, commit: &str) {
        eventually(PATIENCE, "the last accepted push to be mirrored", || {
            let (there, log) = (ref_of(remote, "refs/kv/a"), node.log());
            async move { if there.as_deref() == Some(commit) { Ok(()) } else { Err(format!("{there:?}\n{log}")) } }
        })
        .await;
        eventually(PATIENCE, "the last accepted push to be recorded and processed", || {
            let listed = self.must(&[STARGATE, "repo", "list", "--json"]);
            let listed: Value = serde_json::from_str(&listed).unwrap();
            let known = listed[0]["default_oid"] == commit;
            async move { if known { Ok(()) } else { Err(listed.to_string()) } }
        })
        .await;
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// T5: the journal has no room, so hooks cannot write the line. The push stands, its pusher is warned, and the mirror has
/// it soon after there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_line_does_not_fit_on_the_disk_is_mirrored_all_the_same() {
    let inside = Inside::new("").await;
    let (repo, remote) = inside.repository(&inside.home().join("repos"));
    let disk = repo.join(".stargate");
    inside.mount(&disk, "128k");
    let node = inside.node().await;
    let client = Client::new();
    client.start_at(&format!("http://{}/git/r.git", node.address()));
    let first = client.commit("first");
    push_when_led(&client).await;
    inside.settled(&node, &remote, &first).await;

    inside.fill(&disk);
    let mut last = first;
    let mut warned = false;
    // The last block of the journal has room for some lines yet.
    for n in 0..PUSHES_MAX {
        last = client.commit(&format!("{n}"));
        let output = client.git(&PUSH);
        let said = stderr(&output);
        assert!(output.status.success(), "the ref has moved, so the push is accepted: {said}");
        warned = said.contains("accepted but not journaled");
        if warned {
            assert!(said.contains("no space left"), "{said}");
            break;
        }
    }
    assert!(warned, "the disk never gets full");
    assert_eq!(ref_of(&repo, "refs/kv/a").as_deref(), Some(&*last));
    inside.make_room(&disk);
    inside.settled(&node, &remote, &last).await;
    let journal = std::fs::read_to_string(inside.seen(&disk).join("mirror-journal.ndjson")).unwrap();
    let line = journal.lines().find(|line| line.contains(&format!("\"new_oid\":\"{last}\""))).unwrap();
    assert!(line.contains("\"source\":\"reconcile\""), "{line}");
}

/// The node leads a moment after it is ready.
async fn push_when_led(client: &Client) {
    eventually(PATIENCE, "the first push", || {
        let output = client.git(&PUSH);
        async move { if output.status.success() { Ok(()) } else { Err(stderr(&output)) } }
    })
    .await;
}

/// Everything is on the disk that gets full: packs, journal and store. A push is accepted or refused, and what was accepted
/// is there, is mirrored and is recorded when there is room again.
#[tokio::test(flavor = "multi_thread")]
async fn pushes_onto_a_disk_that_gets_full_are_accepted_or_refused_and_none_is_lost() {
    let inside = Inside::new("disk").await;
    let disk = inside.home().join("disk");
    inside.mount(&disk, "12m");
    let (repo, remote) = inside.repository(&disk.join("repos"));
    let mut node = inside.node().await;
    let client = Client::new();
    client.start_at(&format!("http://{}/git/r.git", node.address()));
    let mut accepted = vec![client.commit("first")];
    push_when_led(&client).await;
    let mut push = |text: &str| {
        let noise: Vec<u8> = (0..300 << 10).map(|_| rand::random::<u8>()).collect();
        std::fs::write(client.dir().join("noise"), noise).unwrap();
        client.must(&["add", "noise"]);
        let commit = client.commit(text);
        let output = client.git(&PUSH);
        if output.status.success() {
            accepted.push(commit);
        }
        (output.status.success(), stderr(&output))
    };
    let refusal = (0..PUSHES_MAX).map(|n| push(&format!("{n}"))).find(|(accepted, _)| !accepted);
    let (_, said) = refusal.expect("the disk never gets full");
    println!("refused with: {said}");
    inside.fill(&disk);
    // Not one byte is left.
    let (taken, said) = push("to the last byte");
    assert!(!taken, "{said}");
    let last = accepted.last().unwrap().clone();
    let here = inside.must(&["git", "-C", repo.to_str().unwrap(), "rev-parse", "refs/kv/a"]);
    assert_eq!(here, last, "what was accepted, and only that");

    inside.make_room(&disk);
    inside.settled(&node, &remote, &last).await;
    assert!(node.is_running(), "{}", node.log());
    println!("{} pushes were accepted", accepted.len());
    assert!(accepted.len() > 3, "{accepted:?}");
    // All of them, not only the last: each descends from the one before, and its objects are whole.
    inside.must(&["git", "-C", repo.to_str().unwrap(), "fsck", "--no-dangling"]);
    assert_eq!(node.log().matches("panicked").count(), 0, "{}", node.log());
}
