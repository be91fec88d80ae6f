//! Pushes that were accepted and have no line in the journal.

use std::time::Duration;

use stargate_mirror::Round;
use stargate_mirror::status::Status;
use tokio_util::sync::CancellationToken;

use crate::fixture::{MAIN, WATERMARK, World, eventually, gits};

fn lines(w: &World) -> Vec<serde_json::Value> {
    let text =
        std::fs::read_to_string(w.repo.path().join(".stargate/mirror-journal.ndjson")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_ref_whose_hook_left_no_line_is_journaled_and_mirrored() {
    for git in gits() {
        let w = World::new(&git).await;
        let a = w.commit(None, "a");
        w.update_ref(MAIN, &a);
        w.update_ref("refs/kv-index/main", &a);
        w.update_ref("refs/heads/main", &a);
        w.drain_all().await;
        w.assert_mirrored(&a);
        assert_eq!(w.remote_refs(), ["refs/kv-index/main", WATERMARK, MAIN]);
        let lines = lines(&w);
        assert!(lines.iter().all(|line| line["source"] == "reconcile"), "{lines:?}");
        assert_eq!(lines[0]["ref"], "refs/kv-index/main", "what a ledger refers to goes first");
        w.drain_all().await;
        assert_eq!(w.records().len(), 2, "and only once");
    }
}

#[tokio::test]
async fn a_comparison_by_hand_journals_what_has_no_line_and_only_that() {
    let w = World::new(&gits()[0]).await;
    let a = w.commit(None, "a");
    w.push(MAIN, None, &a);
    w.update_ref("refs/kv/silent", &a);
    for journaled in [1, 0] {
        let found = stargate_mirror::reconcile::reconcile(&w.git, &w.repo, &w.config).await.unwrap();
        assert_eq!((found.gaps.len(), found.journaled), (2, journaled));
    }
    w.drain_all().await;
    assert_eq!(lines(&w).len(), 2);
    let found = stargate_mirror::reconcile::reconcile(&w.git, &w.repo, &w.config).await.unwrap();
    assert_eq!((found.gaps.len(), found.journaled), (0, 0));
}

#[tokio::test]
async fn what_waits_is_not_journaled_again() {
    let w = World::new(&gits()[0]).await;
    let chain = w.chain(70);
    for n in 0..70_usize {
        w.journal(MAIN, n.checked_sub(1).map(|n| &chain[n]), &chain[n]);
    }
    w.update_ref(MAIN, &chain[69]);
    w.drain_all().await;
    assert_eq!(lines(&w).len(), 70);
}

#[tokio::test]
async fn a_running_worker_finds_it_within_its_interval() {
    let mut w = World::new(&gits()[0]).await;
    w.config.reconcile_every = Duration::from_secs(1);
    let mut worker = w.worker();
    let stop = CancellationToken::new();
    let a = w.commit(None, "a");
    let acts = async {
        eventually("the first comparison is over", || {
            w.repo.path().join(".stargate/mirror-worker.state").exists()
        })
        .await;
        w.update_ref(MAIN, &a);
        eventually("it is mirrored", || w.remote_ref(MAIN).as_ref() == Some(&a)).await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(worker.run(stop.clone()), acts);
    assert_eq!(ended.unwrap(), Round::Stopped);
}

#[tokio::test]
async fn a_watermark_that_stayed_behind_is_moved() {
    for git in gits() {
        let w = World::new(&git).await;
        let chain = w.chain(2);
        w.push(MAIN, None, &chain[1]);
        w.drain_all().await;
        w.run(w.remote.path(), &["update-ref", WATERMARK, chain[0].as_str()], b"");
        w.drain_all().await;
        w.assert_mirrored(&chain[1]);
        w.run(w.remote.path(), &["update-ref", "-d", WATERMARK], b"");
        w.drain_all().await;
        w.assert_mirrored(&chain[1]);
    }
}

#[tokio::test]
async fn a_remote_that_was_reset_gets_its_refs_back() {
    let w = World::new(&gits()[0]).await;
    let chain = w.chain(2);
    w.push(MAIN, None, &chain[1]);
    w.drain_all().await;
    w.run(w.remote.path(), &["update-ref", MAIN, chain[0].as_str()], b"");
    w.run(w.remote.path(), &["update-ref", WATERMARK, chain[0].as_str()], b"");
    w.drain_all().await;
    w.assert_mirrored(&chain[1]);
}

#[tokio::test]
async fn a_new_leader_without_a_journal_mirrors_what_its_refs_say() {
    let w = World::new(&gits()[0]).await;
    let chain = w.chain(4);
    w.push(MAIN, None, &chain[1]);
    w.drain_all().await;
    // What a standby has: the refs, and nothing of .stargate.
    std::fs::remove_dir_all(w.repo.path().join(".stargate")).unwrap();
    w.update_ref(MAIN, &chain[2]);
    let id = w.push(MAIN, Some(&chain[2]), &chain[3]);
    w.drain_all().await;
    w.assert_mirrored(&chain[3]);
    assert_eq!(w.status(&id).0, Status::Completed);
}

#[tokio::test]
async fn ledgers_that_share_a_watermark_are_not_journaled_over_and_over() {
    let w = World::new(&gits()[0]).await;
    let (a, b) = (w.commit(None, "a"), w.commit(None, "b"));
    w.update_ref("refs/kv/a/main", &a);
    w.update_ref("refs/kv/b/main", &b);
    w.drain_all().await;
    assert_eq!(w.remote_refs(), [WATERMARK, "refs/kv/a/main", "refs/kv/b/main"]);
    let found = stargate_mirror::reconcile::reconcile(&w.git, &w.repo, &w.config).await.unwrap();
    assert_eq!((found.gaps.len(), found.journaled), (0, 0));
}
