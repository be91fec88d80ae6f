//! Entries that go together: transactions, and stretches with `--coalesce`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use stargate_git::Git;
use stargate_mirror::permit::Always;
use stargate_mirror::status::Status;
use stargate_mirror::{NewEntry, Round, Step, Steps, Worker};

use crate::fixture::{MAIN, WATERMARK, World, entry, gits};

/// Journals a chain on one ref.
fn journal_chain(w: &World, count: usize) -> (Vec<stargate_git::Oid>, Vec<String>) {
    let chain = w.chain(count);
    let entries: Vec<NewEntry> = chain
        .iter()
        .enumerate()
        .map(|(n, oid)| entry(MAIN, n.checked_sub(1).map(|n| &chain[n]), oid))
        .collect();
    w.update_ref(MAIN, chain.last().unwrap());
    let ids = w.append(entries);
    (chain, ids)
}

/// How long git alone takes for the newest of a chain.
async fn bare_push(git: &Git, count: usize) -> Duration {
    let w = World::new(git).await;
    w.log_updates();
    let newest = w.chain(count).pop().unwrap();
    let (data, mark) = (format!("{newest}:{MAIN}"), format!("{newest}:{WATERMARK}"));
    let started = Instant::now();
    w.run(w.repo.path(), &["push", "--atomic", "--porcelain", "--", "github-origin", &data, &mark], b"");
    started.elapsed()
}

#[tokio::test]
async fn a_hundred_entries_go_as_one_push_with_a_record_each() {
    for git in gits() {
        let mut w = World::new(&git).await;
        w.config.coalesce = true;
        w.log_updates();
        let (chain, ids) = journal_chain(&w, 100);
        let times = Arc::new(Times::default());
        let (same, repo, config) = w.again();
        let steps: Arc<dyn Steps> = Arc::<Times>::clone(&times);
        let started = Instant::now();
        let mut worker = Worker::open_with(same, repo, config, Arc::new(Always), steps).unwrap();
        let opened = started.elapsed();
        while worker.run_once().await.unwrap() != Round::Idle {}
        println!("100 entries coalesced in {:?}, {opened:?} of it to open", started.elapsed());
        println!("to each step: {:?}", times.0.lock().unwrap().1);
        drop(worker);
        println!("as one bare push: {:?}", bare_push(&git, 100).await);
        w.assert_mirrored(&chain[99]);
        assert_eq!(w.updates(MAIN).len(), 1);
        for id in &ids[..99] {
            assert_eq!(w.status(id), (Status::Completed, "coalesced".to_owned()));
        }
        assert_eq!(w.status(&ids[99]), (Status::Completed, "push".to_owned()));
    }
}

#[tokio::test]
async fn coalesced_or_not_the_refs_end_the_same() {
    let git = &gits()[0];
    let mut seen = Vec::new();
    for coalesce in [false, true] {
        let mut w = World::new(git).await;
        w.config.coalesce = coalesce;
        let chain = w.chain(12);
        let mut entries = Vec::new();
        for (n, oid) in chain.iter().enumerate() {
            let to = ["refs/kv/main", "refs/kv-index/main", "refs/kv/other"][n % 3];
            entries.push(entry(to, n.checked_sub(3).map(|n| &chain[n]), oid));
            w.update_ref(to, oid);
        }
        w.append(entries);
        w.drain_all().await;
        assert_eq!(w.records().len(), 12);
        seen.push(w.run(w.remote.path(), &["for-each-ref"], b""));
    }
    assert_eq!(seen[0], seen[1]);
}

#[tokio::test]
async fn what_is_no_chain_goes_one_by_one_and_is_judged_one_by_one() {
    let mut w = World::new(&gits()[0]).await;
    w.config.coalesce = true;
    w.config.push_tries = 1;
    let chain = w.chain(3);
    let stranger = w.commit(None, "another history");
    let ids = w.append(vec![
        entry(MAIN, None, &chain[0]),
        entry(MAIN, Some(&chain[0]), &stranger),
        entry(MAIN, Some(&stranger), &chain[1]),
        entry("refs/kv/other", None, &stranger),
        entry(MAIN, Some(&chain[1]), &chain[2]),
    ]);
    w.update_ref(MAIN, &chain[2]);
    w.drain_all().await;
    w.assert_mirrored(&chain[2]);
    let ends: Vec<Status> = ids.iter().map(|id| w.status(id).0).collect();
    use Status::{Completed, DeadLetter};
    assert_eq!(ends, [Completed, DeadLetter, Completed, Completed, Completed]);
}

#[tokio::test]
async fn one_protected_ref_does_not_hold_up_a_stretch() {
    let mut w = World::new(&gits()[0]).await;
    w.config.coalesce = true;
    w.config.push_tries = 1;
    w.remote_hook("update", "case $1 in refs/kv/closed) exit 1;; esac");
    let chain = w.chain(6);
    let mut entries = Vec::new();
    for (n, oid) in chain.iter().enumerate() {
        let to = if n % 2 == 0 { MAIN } else { "refs/kv/closed" };
        entries.push(entry(to, n.checked_sub(2).map(|n| &chain[n]), oid));
        w.update_ref(to, oid);
    }
    let ids = w.append(entries);
    w.drain_all().await;
    w.assert_mirrored(&chain[4]);
    for (n, id) in ids.iter().enumerate() {
        let expected = if n % 2 == 0 { Status::Completed } else { Status::DeadLetter };
        assert_eq!(w.status(id).0, expected, "entry {n}");
    }
}

#[tokio::test]
async fn a_transaction_is_there_whole_or_not_at_all() {
    for git in gits() {
        let mut w = World::new(&git).await;
        w.config.push_tries = 1;
        let (ledger, index) = (w.commit(None, "ledger"), w.commit(None, "index"));
        let txn = |to: &str, oid| NewEntry {
            meta: serde_json::from_value(json!({"txn_id": "t1"})).unwrap(),
            ..entry(to, None, oid)
        };
        w.remote_hook("update", "case $1 in refs/kv-index/*) exit 1;; esac");
        let ids = w.append(vec![txn(MAIN, &ledger), txn("refs/kv-index/main", &index)]);
        w.drain_all().await;
        assert_eq!(w.remote_refs(), [""; 0]);
        assert!(ids.iter().all(|id| w.status(id).0 == Status::DeadLetter));

        std::fs::remove_file(w.remote.path().join("hooks/update")).unwrap();
        let ids = w.append(vec![txn(MAIN, &ledger), txn("refs/kv-index/main", &index)]);
        w.drain_all().await;
        w.assert_mirrored(&ledger);
        assert_eq!(w.remote_ref("refs/kv-index/main"), Some(index));
        assert!(ids.iter().all(|id| w.status(id).0 == Status::Completed));
    }
}

/// How long it took to get to each step from the one before.
#[derive(Default)]
struct Times(Mutex<(Option<Instant>, BTreeMap<&'static str, Duration>)>);

impl Steps for Times {
    fn reached(&self, step: Step) {
        let mut times = self.0.lock().unwrap();
        if let Some(before) = times.0.replace(Instant::now()) {
            *times.1.entry(step.as_str()).or_default() += before.elapsed();
        }
    }
}

/// How many go one by one at most.
const SLOW_MAX: usize = 400;

/// How many entries are measured; a benchmark does it properly.
fn measured() -> usize {
    std::env::var("STARGATE_TEST_ENTRIES").ok().and_then(|n| n.parse().ok()).unwrap_or(20)
}

#[tokio::test]
async fn draining_with_and_without_coalescing_and_bare_pushes_are_compared() {
    let count = measured();
    let git = &gits()[0];
    let mut coalescing = World::new(git).await;
    coalescing.config.coalesce = true;
    let (chain, _) = journal_chain(&coalescing, count);
    let started = Instant::now();
    coalescing.drain_all().await;
    let coalesced = started.elapsed();
    coalescing.assert_mirrored(chain.last().unwrap());

    // The other two take turns, because the machine has other things to do as well.
    let (singly, bare) = (World::new(git).await, World::new(git).await);
    let times = Arc::new(Times::default());
    let (git, repo, config) = singly.again();
    let steps: Arc<dyn Steps> = Arc::<Times>::clone(&times);
    let mut worker = Worker::open_with(git, repo, config, Arc::new(Always), steps).unwrap();
    assert_eq!(worker.run_once().await.unwrap(), Round::Idle);
    let slow = count.min(SLOW_MAX);
    let (chain, other) = (singly.chain(slow), bare.chain(slow));
    let (mut worked, mut pushed) = (Duration::ZERO, Duration::ZERO);
    let mut before = None;
    for (ours, theirs) in chain.chunks(50).zip(other.chunks(50)) {
        for oid in ours {
            singly.journal(MAIN, before.replace(oid), oid);
        }
        let started = Instant::now();
        while worker.run_once().await.unwrap() != Round::Idle {}
        worked += started.elapsed();
        let started = Instant::now();
        for oid in theirs {
            let (data, mark) = (format!("{oid}:{MAIN}"), format!("{oid}:refs/kv-mirror/main"));
            let push = ["push", "--atomic", "--porcelain", "--", "github-origin", &data, &mark];
            bare.run(bare.repo.path(), &push, b"");
        }
        pushed += started.elapsed();
    }
    println!("between steps, in all: {:?}", times.0.lock().unwrap().1);
    println!(
        "{count} entries coalesced: {coalesced:?}; {slow} singly: {worked:?}, as bare git push: {pushed:?}"
    );
}
