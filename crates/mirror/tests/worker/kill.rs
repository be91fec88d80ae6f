//! A worker is killed at each of its steps, and with its gits. Nothing is lost, nothing goes back, nothing is pushed
//! twice.

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitStatus;

use stargate_git::Oid;
use stargate_mirror::dead_letter::{Payload, Requeue};
use stargate_mirror::status::Status;
use stargate_mirror::{DeadLetters, Journal, Step};

use crate::fixture::{MAIN, World, entry, gits};
use crate::process::{Order, Whose, was_killed};

const CLOSED: &str = "refs/kv/closed";

/// Runs the other process, which tries everything once.
fn mirror(w: &World, die_at: Option<(Step, usize)>, coalesce: bool) -> ExitStatus {
    let order = Order { push_tries: 1, coalesce, ..Order::of(w) };
    match die_at {
        Some((step, nth)) => order.dying_at(step, nth).run(&[]),
        None => order.run(&[]),
    }
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
                let killed = was_killed(mirror(&work.w, Some((*step, nth)), coalesce));
                assert!(killed || nth == 2, "{step:?} was not reached");
                kills += usize::from(killed);
            }
        }
        assert!(mirror(&work.w, None, coalesce).success());
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
    assert!(mirror(&w, None, false).success());
    assert_eq!(w.open_letters(), 1);
    w.set_url(&url);
    assert!(was_killed(mirror(&w, Some((Step::Requeued, 1)), false)));
    assert!(mirror(&w, None, false).success());
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
            let order = Order { push_tries: 1, ..Order::of(&work.w) };
            let status = order.run_with(Whose::WorkerAndGits, call, &format!("signal=SIGKILL:when={nth}"));
            kills += usize::from(was_killed(status));
            remove_locks(work.w.remote.path());
        }
    }
    println!("{kills} workers were killed");
    let Work { w, chain, written, ids, closed, .. } = &work;
    // What was given up because the remote seemed to be away goes back by itself; what was because a git was killed
    // each time it was tried, an operator requeues.
    assert!(mirror(w, None, false).success());
    let (letters, journal) =
        (DeadLetters::open(w.repo.path()).unwrap(), Journal::open(w.repo.path()).unwrap());
    for stored in w.letters() {
        let of_mirrored = matches!(&stored.letter.payload, Payload::Entry(fields) if fields["ref"] != CLOSED);
        if of_mirrored {
            letters.requeue(&journal, &stored.letter.dead_letter_id, Requeue::Once).unwrap();
        }
    }
    assert!(mirror(w, None, false).success());
    w.assert_mirrored(&chain[written - 1]);
    for id in ids.iter().chain(closed) {
        w.record(id);
    }
    for (old, new) in w.updates(MAIN) {
        let place = |oid: &str| chain.iter().position(|other| other.as_str() == oid);
        assert!(place(&old).is_none_or(|old| old < place(&new).unwrap()), "went back from {old} to {new}");
    }
}
