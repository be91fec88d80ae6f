//! A process is killed before each of its system calls that change something; each of its syncs fails; the disk is
//! full. What it had acknowledged is there, and the next process goes on (INV-1).
//!
//! strace does the harm: it lets the nth call of a kind fail, or kills the process at it.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use stargate_mirror::dead_letter::State;
use stargate_mirror::{DeadLetters, Next, Resume, Statuses};

use crate::fixture::{Repo, all, assert_rising, entry, number, rest};
use crate::process::{FAIL_STOP, FULL, Order, WARM_UP, Work};

/// The calls that change a file, a name or a lock.
const CHANGES: [&str; 9] =
    ["write", "flock", "fdatasync", "fsync", "rename", "renameat2", "unlink", "ftruncate", "mkdir"];
const SYNCS: [&str; 2] = ["fdatasync", "fsync"];
/// More calls of a kind than any order makes.
const CALLS_MAX: usize = 60;

const APPEND: Work = Work::Append { from: 1, count: 8, at_once: 2 };

/// Runs an order under strace, which does harm at the nth call.
fn run(order: &Order, call: &str, nth: usize, harm: &str) -> ExitStatus {
    let harm = format!("inject={call}:{harm}:when={nth}");
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &harm];
    let started = order.command(&strace.map(str::to_owned)).status();
    started.expect("strace is missing: apt-get install strace")
}

/// Does the harm at each call of a kind in turn, each time to a fresh repository, until there is no such call.
/// Answers how often it was done.
fn at_each(
    call: &str,
    harm: &str,
    prepare: impl Fn() -> Order,
    mut judge: impl FnMut(&Order, ExitStatus, usize),
) -> usize {
    let first = if call == "write" { WARM_UP + 1 } else { 1 };
    for nth in first..first + CALLS_MAX {
        let order = prepare();
        let status = run(&order, call, nth, harm);
        if status.success() {
            return nth - first;
        }
        judge(&order, status, nth);
    }
    panic!("more than {CALLS_MAX} calls of {call}");
}

/// A repository for each run, kept until the end.
fn orders(
    work: Work,
    prepare: impl Fn(&Repo),
) -> (impl Fn() -> Order, std::rc::Rc<std::cell::RefCell<Vec<Repo>>>) {
    let repos = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let kept = std::rc::Rc::clone(&repos);
    let make = move || {
        let repo = Repo::new();
        prepare(&repo);
        let order = Order::new(&repo, work);
        kept.borrow_mut().push(repo);
        order
    };
    (make, repos)
}

fn assert_killed(status: ExitStatus, what: &str) {
    assert_eq!(status.signal(), Some(9), "{what}: {status}");
}

/// Everything acknowledged is in the journal, once, in order; the next append is read, too.
fn assert_journal(order: &Order, what: &str) {
    let journal = stargate_mirror::Journal::open_with(&order.repo, order.segment_bytes).unwrap();
    journal.append(&[entry(1000)]).unwrap();
    let (entries, bad) = all(&journal);
    let acknowledged = order.acknowledged();
    assert!(bad <= 1, "{what}: {bad} bad lines");
    let (last, rest) = entries.split_last().unwrap();
    assert_eq!(*last, 1000, "{what}");
    assert_eq!(rest, (1..=rest.len() as u64).collect::<Vec<_>>(), "{what}");
    assert!(rest.len() >= acknowledged.len(), "{what}: {} acknowledged, {rest:?}", acknowledged.len());
    assert_rising(&journal);
}

#[test]
fn a_writer_killed_before_any_of_its_calls_loses_nothing_that_it_acknowledged() {
    let mut kills = 0;
    for call in CHANGES {
        let (make, _repos) = orders(APPEND, |_| {});
        kills += at_each(call, "signal=KILL", make, |order, status, nth| {
            let what = format!("killed at {call} {nth}");
            assert_killed(status, &what);
            assert_journal(order, &what);
        });
    }
    println!("killed {kills} times");
    assert!(kills >= 20, "only {kills} calls to be killed at: does strace see them?");
}

#[test]
fn a_writer_whose_sync_fails_ends_at_once_and_acknowledges_nothing_more() {
    let mut failed = 0;
    for call in SYNCS {
        let (make, _repos) = orders(APPEND, |_| {});
        failed += at_each(call, "error=EIO", make, |order, status, nth| {
            let what = format!("{call} {nth} failed");
            assert_eq!(status.code(), Some(FAIL_STOP), "{what}: {status}");
            assert_journal(order, &what);
        });
    }
    println!("{failed} syncs failed");
    assert!(failed >= 5, "only {failed} syncs: does strace see them?");
}

#[test]
fn a_writer_for_whose_line_there_is_no_room_leaves_nothing_of_it() {
    let repo = Repo::new();
    repo.journal().append(&[entry(1), entry(2)]).unwrap();
    let before = std::fs::read(repo.active()).unwrap();
    // Room for a part only: the system writes as much as fits.
    for room in [1, 10, 100, 300, 500] {
        let order = Order {
            file_bytes_max: Some(before.len() as u64 + room),
            segment_bytes: 1_000_000,
            ..Order::new(&repo, Work::Append { from: 3, count: 2, at_once: 2 })
        };
        let status = order.command(&[]).status().unwrap();
        assert_eq!(status.code(), Some(FULL), "room for {room} bytes: {status}");
        assert_eq!(std::fs::read(repo.active()).unwrap(), before, "room for {room} bytes");
        assert_eq!(order.acknowledged(), [0; 0]);
    }
    repo.journal().append(&[entry(3)]).unwrap();
    assert_eq!(all(&repo.journal()), (vec![1, 2, 3], 0));
}

#[test]
fn a_writer_on_a_full_disk_is_told_so_at_whichever_write() {
    let (make, _repos) = orders(APPEND, |_| {});
    let order = make();
    // Those of the acknowledgements cannot be told apart here; the first writes are the journal's.
    for nth in [WARM_UP + 1, WARM_UP + 2] {
        let status = run(&order, "write", nth, "error=ENOSPC");
        assert_eq!(status.code(), Some(FULL), "write {nth}: {status}");
        assert_journal(&make(), "after a full disk");
    }
}

fn five_entries(repo: &Repo) {
    for n in 1..=5 {
        repo.small().append(&[entry(n)]).unwrap();
    }
}

/// Everything before the checkpoint has a status record, and going on accounts for the rest.
fn assert_accounted(order: &Order, what: &str) {
    let journal = stargate_mirror::Journal::open_with(&order.repo, order.segment_bytes).unwrap();
    let lines = rest(&mut journal.read_all().unwrap());
    let index = Statuses::open(&order.repo).unwrap().index().unwrap();
    let (mut reader, resume) = journal.resume().unwrap();
    assert!(matches!(resume, Resume::Beginning | Resume::Checkpoint), "{what}: {resume:?}");
    let left = rest(&mut reader).len();
    for line in &lines[..lines.len() - left] {
        assert!(
            index.status(&line.entry_id(), line.crc).is_some(),
            "{what}: the checkpoint is past {line:?}"
        );
    }
    let status = order.command(&[]).status().unwrap();
    assert!(status.success(), "{what}: {status}");
    assert!(matches!(journal.resume().unwrap().0.next().unwrap(), Next::NotYet), "{what}");
    // Each was pushed; at most the one that was being recorded was pushed twice.
    let mut pushed = order.acknowledged();
    let times = pushed.len();
    pushed.dedup();
    assert_eq!(pushed, lines.iter().map(|l| number(l.entry.as_ref().unwrap())).collect::<Vec<_>>(), "{what}");
    assert!(times <= lines.len() + 1, "{what}: {times} pushes");
}

#[test]
fn a_worker_killed_before_any_of_its_calls_repeats_one_entry_at_most() {
    let mut kills = 0;
    for call in CHANGES {
        let (make, _repos) = orders(Work::Account, five_entries);
        kills += at_each(call, "signal=KILL", make, |order, status, nth| {
            let what = format!("killed at {call} {nth}");
            assert_killed(status, &what);
            assert_accounted(order, &what);
        });
    }
    println!("killed {kills} times");
    assert!(kills >= 40, "only {kills} calls to be killed at: does strace see them?");
}

#[test]
fn a_worker_whose_sync_fails_ends_at_once_and_its_checkpoint_is_past_nothing() {
    let mut failed = 0;
    for call in SYNCS {
        let (make, _repos) = orders(Work::Account, five_entries);
        failed += at_each(call, "error=EIO", make, |order, status, nth| {
            let what = format!("{call} {nth} failed");
            assert_eq!(status.code(), Some(FAIL_STOP), "{what}: {status}");
            assert_accounted(order, &what);
        });
    }
    println!("{failed} syncs failed");
    assert!(failed >= 20, "only {failed} syncs: does strace see them?");
}

/// One letter, one requeued line, and a view that says so, once somebody else has finished the work.
fn assert_given_up_once(order: &Order, what: &str) {
    let journal = stargate_mirror::Journal::open_with(&order.repo, order.segment_bytes).unwrap();
    let finished = order.command(&[]).status().unwrap();
    assert!(finished.success(), "{what}: {finished}");
    let letters = DeadLetters::open(&order.repo).unwrap().list(None, 10).unwrap();
    let [stored] = &letters[..] else { panic!("{what}: {letters:?}") };
    assert_eq!(stored.state, State::Requeued, "{what}");
    let lines = rest(&mut journal.read_all().unwrap());
    let requeued = lines
        .iter()
        .filter(|line| line.entry.as_ref().is_ok_and(|entry| entry.meta.contains_key("requeue_of")));
    let ids: Vec<String> = requeued.map(stargate_mirror::journal::Line::entry_id).collect();
    assert_eq!(ids, [stored.requeued.as_ref().unwrap().entry_id.clone()], "{what}");
    let view = std::fs::read_to_string(order.repo.join(".stargate/mirror-dead-letter.ndjson")).unwrap();
    let last: serde_json::Value = serde_json::from_str(view.lines().last().unwrap()).unwrap();
    assert_eq!(last["state"], "requeued", "{what}: {view}");
}

#[test]
fn a_letter_is_added_and_requeued_once_although_whoever_does_it_is_killed() {
    let mut kills = 0;
    for call in CHANGES {
        let (make, _repos) = orders(Work::GiveUp, |repo| drop(repo.small().append(&[entry(1)]).unwrap()));
        kills += at_each(call, "signal=KILL", make, |order, status, nth| {
            let what = format!("killed at {call} {nth}");
            assert_killed(status, &what);
            assert_given_up_once(order, &what);
        });
    }
    println!("killed {kills} times");
    assert!(kills >= 30, "only {kills} calls to be killed at: does strace see them?");
}
