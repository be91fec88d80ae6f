//! A worker is killed at each of its steps, and at its system calls. Nothing is lost, nothing goes back, nothing is
//! pushed twice.
//!
//! The worker that is killed is this test binary again, told by its environment what to do.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Signal, getpid, kill_process};
use stargate_git::{Oid, RepoDir};
use stargate_mirror::dead_letter::{Payload, Requeue};
use stargate_mirror::permit::Always;
use stargate_mirror::status::Status;
use stargate_mirror::{Config, DeadLetters, Journal, Round, Step, Steps, Worker};
use tokio_util::sync::CancellationToken;

use crate::fixture::{MAIN, World, entry, gits};

const TOLD: &str = "STARGATE_TEST_MIRROR";
const OTHER: [&str; 2] = ["--exact", "kill::the_process_that_is_told_to_mirror_does_so"];
const CLOSED: &str = "refs/kv/closed";

/// Ends this process when it reaches a step for the n-th time.
struct DieAt {
    step: Option<Step>,
    left: AtomicUsize,
}

impl Steps for DieAt {
    fn reached(&self, step: Step) {
        if Some(step) == self.step && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            kill_process(getpid(), Signal::KILL).unwrap();
            // The signal goes to any thread, so this one may run on for a moment.
            loop {
                std::thread::yield_now();
            }
        }
    }
}

fn quick(coalesce: bool) -> Config {
    Config { push_tries: 1, malformed_rereads: 0, coalesce, ..Config::new().unwrap() }
}

/// The other process. Without an order it mirrors in a place of its own.
#[tokio::test]
async fn the_process_that_is_told_to_mirror_does_so() {
    let Ok(told) = std::env::var(TOLD) else {
        let w = World::new(&gits()[0]).await;
        let a = w.commit(None, "a");
        w.push(MAIN, None, &a);
        w.drain_all().await;
        return;
    };
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let git = stargate_git::Git::new(told["git"].as_str().unwrap(), std::env::var_os("PATH").unwrap())
        .with_protocols(stargate_git::Protocols::parse("file").unwrap());
    let repo = RepoDir::open(std::path::Path::new(told["repo"].as_str().unwrap())).unwrap();
    let step = Step::ALL.into_iter().find(|step| Some(step.as_str()) == told["step"].as_str());
    let left = AtomicUsize::new(told["nth"].as_u64().unwrap_or(1) as usize);
    let steps = Arc::new(DieAt { step, left });
    let config = quick(told["coalesce"].as_bool().unwrap());
    let mut worker = Worker::open_with(git, repo, config, Arc::new(Always), steps).unwrap();
    let drained = worker.drain(CancellationToken::new()).await.unwrap();
    assert!(matches!(drained.end, Round::Idle | Round::Waiting(_)), "{drained:?}");
}

/// Runs the other process, perhaps under a tracer.
fn mirror(w: &World, before: &[String], step: Option<Step>, nth: usize, coalesce: bool) -> ExitStatus {
    let told = serde_json::json!({
        "git": w.git.program(), "repo": w.repo.path(), "step": step.map(Step::as_str), "nth": nth, "coalesce": coalesce,
    });
    let exe = std::env::current_exe().unwrap();
    let mut words: Vec<&std::ffi::OsStr> = before.iter().map(AsRef::as_ref).collect();
    words.push(exe.as_os_str());
    words.extend(OTHER.iter().map(AsRef::<std::ffi::OsStr>::as_ref));
    #[expect(clippy::disallowed_methods, reason = "the worker that is killed")]
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env(TOLD, told.to_string());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = output.status.success() || was_killed(output.status) || has_failed(output.status);
    assert!(expected, "{}: {said}", output.status);
    output.status
}

/// As a test fails.
fn has_failed(status: ExitStatus) -> bool {
    status.code() == Some(101)
}

/// Runs the other process under a tracer that changes what a system call does.
fn mirror_with(w: &World, call: &str, what: &str) -> ExitStatus {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:{what}"));
    let tracer = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject].map(str::to_owned);
    mirror(w, &tracer, None, 1, false)
}

fn was_killed(status: ExitStatus) -> bool {
    // A tracer ends as the traced one did, or with the code a shell would give it.
    status.signal() == Some(9) || status.code() == Some(137)
}

/// A journal that grows: a chain, and now and then an entry of a ref that the remote does not want, a line that is
/// none, and a ref without a line.
struct Work {
    w: World,
    chain: Vec<Oid>,
    written: usize,
    ids: Vec<String>,
    closed: Vec<String>,
    malformed: usize,
    unwritten: Vec<String>,
}

impl Work {
    async fn new(git: &stargate_git::Git, most: usize) -> Self {
        let w = World::new(git).await;
        w.log_updates();
        let script = std::fs::read_to_string(w.remote.path().join("hooks/update")).unwrap();
        w.remote_hook("update", &format!("{script}\ntest $1 != {CLOSED}"));
        let chain = w.chain(most);
        Self { w, chain, written: 0, ids: vec![], closed: vec![], malformed: 0, unwritten: vec![] }
    }

    fn more(&mut self, count: usize) {
        for n in self.written..self.written + count {
            let old = n.checked_sub(1).map(|n| &self.chain[n]);
            self.ids.push(self.w.journal(MAIN, old, &self.chain[n]));
        }
        self.written += count;
        let newest = self.chain[self.written - 1].clone();
        self.w.update_ref(MAIN, &newest);
        self.closed.push(self.w.append(vec![entry(CLOSED, None, &newest)]).remove(0));
        self.w.scribble(b"no entry\n");
        self.malformed += 1;
        let unwritten = format!("refs/kv/unwritten-{}", self.unwritten.len());
        self.w.update_ref(&unwritten, &newest);
        self.unwritten.push(unwritten);
    }

    fn assert_all_there(&self, kills: usize, coalesce: bool) {
        let w = &self.w;
        w.assert_mirrored(&self.chain[self.written - 1]);
        for id in &self.ids {
            assert_eq!(w.status(id).0, Status::Completed);
        }
        for id in &self.closed {
            assert_eq!(w.status(id).0, Status::DeadLetter);
        }
        for name in &self.unwritten {
            assert!(w.remote_ref(name).is_some(), "{name} is missing");
        }
        let given_up = self.closed.len() + self.malformed;
        assert_eq!(w.letters().len(), given_up, "one letter each");
        let moves = w.updates(MAIN);
        let place = |oid: &str| self.chain.iter().position(|other| other.as_str() == oid);
        for (old, new) in &moves {
            assert!(place(old).is_none_or(|old| old < place(new).unwrap()), "went back from {old} to {new}");
        }
        let distinct: HashSet<&String> = moves.iter().map(|(_, new)| new).collect();
        let repeated = moves.len() - distinct.len();
        println!("{} entries, {kills} kills, {} moves, {repeated} repeated", self.ids.len(), moves.len());
        assert!(repeated <= kills, "{repeated} repeated pushes after {kills} kills");
        if !coalesce {
            assert_eq!(distinct.len(), self.written, "lost or skipped");
        }
    }
}

/// How many entries come before each kill; 15 makes it some 200 in all.
fn entries() -> usize {
    std::env::var("STARGATE_TEST_KILL_ENTRIES").ok().and_then(|n| n.parse().ok()).unwrap_or(3)
}

async fn killed_at_every_step(coalesce: bool) {
    let steps: Vec<Step> = Step::ALL.into_iter().filter(|step| *step != Step::Requeued).collect();
    for git in gits() {
        let mut work = Work::new(&git, entries() * steps.len() * 2).await;
        let mut kills = 0;
        for nth in [1, 2] {
            for step in &steps {
                work.more(entries());
                let killed = was_killed(mirror(&work.w, &[], Some(*step), nth, coalesce));
                assert!(killed || nth == 2, "{step:?} was not reached");
                kills += usize::from(killed);
            }
        }
        assert!(mirror(&work.w, &[], None, 1, coalesce).success());
        work.assert_all_there(kills, coalesce);
    }
}

#[tokio::test]
async fn a_worker_that_is_killed_at_every_step_loses_nothing_and_repeats_nothing() {
    killed_at_every_step(false).await;
}

#[tokio::test]
async fn a_coalescing_worker_that_is_killed_at_every_step_loses_nothing_either() {
    killed_at_every_step(true).await;
}

#[tokio::test]
async fn a_worker_that_is_killed_while_it_requeues_after_an_outage_loses_nothing() {
    let w = World::new(&gits()[0]).await;
    let a = w.commit(None, "a");
    w.push(MAIN, None, &a);
    let url = w.remote.path().to_str().unwrap().to_owned();
    w.set_url("/no/such/place");
    assert!(mirror(&w, &[], None, 1, false).success());
    assert_eq!(w.open_letters(), 1);
    w.set_url(&url);
    assert!(was_killed(mirror(&w, &[], Some(Step::Requeued), 1, false)));
    assert!(mirror(&w, &[], None, 1, false).success());
    w.assert_mirrored(&a);
    assert_eq!(w.open_letters(), 0);
    assert_eq!(w.records().len(), 2);
}

/// What a host does after a crash of its own: the other side is killed here as well.
fn remove_locks(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            remove_locks(&path);
        } else if path.extension().is_some_and(|extension| extension == "lock") {
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[tokio::test]
async fn a_worker_and_its_gits_killed_at_system_calls_lose_nothing() {
    let calls = ["write", "fdatasync", "fsync", "rename", "execve"];
    let mut work = Work::new(&gits()[0], entries() * calls.len() * 3).await;
    let mut kills = 0;
    for call in calls {
        for nth in [1, 2, 5] {
            work.more(entries());
            // The tracer kills whatever reaches its n-th call: the worker, or a git, which then is no answer.
            let status = mirror_with(&work.w, call, &format!("signal=SIGKILL:when={nth}"));
            kills += usize::from(was_killed(status));
            remove_locks(work.w.remote.path());
        }
    }
    println!("{kills} workers were killed");
    let Work { w, chain, written, ids, closed, .. } = &work;
    // What was given up because the remote seemed to be away goes back by itself; what was because a git was killed
    // each time it was tried, an operator requeues.
    assert!(mirror(w, &[], None, 1, false).success());
    let (letters, journal) =
        (DeadLetters::open(w.repo.path()).unwrap(), Journal::open(w.repo.path()).unwrap());
    for stored in w.letters() {
        let of_mirrored = matches!(&stored.letter.payload, Payload::Entry(fields) if fields["ref"] != CLOSED);
        if of_mirrored {
            letters.requeue(&journal, &stored.letter.dead_letter_id, Requeue::Once).unwrap();
        }
    }
    assert!(mirror(w, &[], None, 1, false).success());
    w.assert_mirrored(&chain[written - 1]);
    for id in ids.iter().chain(closed) {
        w.record(id);
    }
    for (old, new) in w.updates(MAIN) {
        let place = |oid: &str| chain.iter().position(|other| other.as_str() == oid);
        assert!(place(&old).is_none_or(|old| old < place(&new).unwrap()), "went back from {old} to {new}");
    }
}

#[tokio::test]
async fn a_disk_that_does_not_keep_what_is_written_ends_the_worker_and_nothing_is_lost() {
    // The worker's status records and what it read of the journal; git uses another call.
    let whens = [1, 2, 3, 5];
    let mut work = Work::new(&gits()[0], entries() * whens.len()).await;
    for when in whens {
        work.more(entries());
        let status = mirror_with(&work.w, "fdatasync", &format!("error=EIO:when={when}"));
        assert!(has_failed(status), "went on after an error of fdatasync: {status}");
    }
    assert!(mirror(&work.w, &[], None, 1, false).success());
    work.assert_all_there(whens.len(), false);
}
