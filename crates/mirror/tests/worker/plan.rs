//! The seven tests of the mirror worker's plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use stargate_mirror::checkpoint::Loaded;
use stargate_mirror::dead_letter::{Payload, Reason, State};
use stargate_mirror::status::Status;
use stargate_mirror::{Checkpoint, Round};
use tokio_util::sync::CancellationToken;

use crate::fixture::{MAIN, World, eventually, gits};

fn offset(w: &World) -> u64 {
    match Checkpoint::load(w.repo.path()).unwrap() {
        Loaded::Found(checkpoint) => checkpoint.position.offset,
        other => panic!("no checkpoint: {other:?}"),
    }
}

fn journal_bytes(w: &World) -> u64 {
    std::fs::metadata(w.repo.path().join(".stargate/mirror-journal.ndjson")).unwrap().len()
}

#[tokio::test]
async fn an_entry_is_pushed_with_its_watermark_and_recorded_and_the_checkpoint_is_past_it() {
    for git in gits() {
        let w = World::new(&git).await;
        w.log_updates();
        let a = w.commit(None, "a");
        let id = w.push(MAIN, None, &a);
        w.drain_all().await;
        w.assert_mirrored(&a);
        assert_eq!(w.updates(MAIN).len(), 1);
        assert_eq!(offset(&w), journal_bytes(&w));
        // The status record, in the file and with the fields that others rely on.
        let text = std::fs::read_to_string(w.repo.path().join(".stargate/mirror-status.ndjson")).unwrap();
        let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!((line["entry_id"].as_str(), line["status"].as_str()), (Some(&*id), Some("completed")));
        assert_eq!((line["via"].as_str(), line["attempts"].as_u64()), (Some("push"), Some(1)));
        assert!(line["at"].is_string() && line["lag_ms"].is_u64(), "{line}");
    }
}

#[tokio::test]
async fn a_remote_that_refuses_for_a_while_is_tried_again_after_500_ms_and_1_s() {
    for git in gits() {
        let w = World::new(&git).await;
        let tries = w.dir.path().join("tries");
        w.remote_hook(
            "pre-receive",
            &format!("date +%s%3N >> {0}; test $(wc -l < {0}) -ge 3", tries.display()),
        );
        let a = w.commit(None, "a");
        let id = w.push(MAIN, None, &a);
        w.drain_all().await;
        w.assert_mirrored(&a);
        assert_eq!(w.record(&id).attempts, 3);
        assert_eq!((w.letters().len(), offset(&w)), (0, journal_bytes(&w)));
        let text = std::fs::read_to_string(&tries).unwrap();
        let times: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        println!("pauses between tries: {pauses:?} ms");
        assert!(pauses[0] >= 500 && pauses[1] >= 1000, "{pauses:?}");
    }
}

#[tokio::test]
async fn a_remote_that_always_refuses_leaves_a_dead_letter_and_others_go_on() {
    for git in gits() {
        let w = World::new(&git).await;
        w.remote_hook("update", "case $1 in refs/kv/closed) echo 'this ref is protected' >&2; exit 1;; esac");
        let a = w.commit(None, "a");
        let closed = w.push("refs/kv/closed", None, &a);
        let open = w.push(MAIN, None, &a);
        w.drain_all().await;
        w.assert_mirrored(&a);
        assert_eq!(w.status(&closed), (Status::DeadLetter, "dead-letter".to_owned()));
        assert_eq!(w.status(&open).0, Status::Completed);
        let letters = w.letters();
        assert_eq!(letters.len(), 1);
        let letter = &letters[0].letter;
        assert_eq!(
            (letter.entry_id.as_str(), letter.reason, letter.attempts),
            (&*closed, Reason::Rejected, 3)
        );
        assert!(letter.error.contains("this ref is protected"), "{}", letter.error);
        assert_eq!(letter.git_exit, Some(1));
        assert!(
            letter
                .per_ref
                .iter()
                .any(|r| r.ref_name == "refs/kv/closed" && r.status.contains("hook declined"))
        );
        assert_eq!(offset(&w), journal_bytes(&w));
        let view =
            std::fs::read_to_string(w.repo.path().join(".stargate/mirror-dead-letter.ndjson")).unwrap();
        assert!(view.contains(&closed));
        // The reason for it stays, so a reconciliation makes no second letter of it.
        w.drain_all().await;
        assert_eq!(w.letters().len(), 1);
    }
}

#[tokio::test]
async fn lines_that_are_no_entries_become_dead_letters_and_the_next_is_processed() {
    for git in gits() {
        let w = World::new(&git).await;
        let a = w.commit(None, "a");
        w.scribble(b"{\"ref\": \"refs/kv/main\", \"new_oid\"\n\xff\xfe\n{\"ref\":\"refs/kv/main\"}\n");
        let id = w.push(MAIN, None, &a);
        w.scribble(b"{\"unfinished\": ");
        w.drain_all().await;
        w.assert_mirrored(&a);
        assert_eq!(w.status(&id).0, Status::Completed);
        let letters = w.letters();
        assert_eq!(letters.len(), 3, "what has no newline is not written yet");
        for stored in &letters {
            assert_eq!((stored.letter.reason, stored.letter.attempts), (Reason::Malformed, 4));
            assert!(matches!(stored.letter.payload, Payload::Raw { .. }));
        }
        assert_eq!(letters[1].letter.payload.bytes(), b"\xff\xfe");
        assert!(letters[2].letter.error.contains("new_oid"));
    }
}

#[tokio::test]
async fn a_worker_that_goes_down_between_entries_goes_on_after_its_checkpoint() {
    for git in gits() {
        let w = World::new(&git).await;
        w.log_updates();
        let chain = w.chain(6);
        let mut old = None;
        let mut ids = Vec::new();
        for oid in &chain {
            ids.push(w.push(MAIN, old, oid));
            old = Some(oid);
        }
        // Its leadership ends after three pushes.
        let left = AtomicI32::new(4);
        let permit = move || left.fetch_sub(1, Ordering::SeqCst) > 0;
        let (git, repo, config) = w.again();
        let mut worker = stargate_mirror::Worker::open(git, repo, config, Arc::new(permit)).unwrap();
        assert_eq!(worker.run_once().await.unwrap(), Round::NotLeader);
        drop(worker);
        assert_eq!(w.records().len(), 3);
        let reached = offset(&w);
        assert!(reached < journal_bytes(&w));
        w.drain_all().await;
        w.assert_mirrored(&chain[5]);
        assert_eq!(w.updates(MAIN).len(), 6, "each was pushed once");
        for id in &ids {
            assert_eq!(w.status(id), (Status::Completed, "push".to_owned()));
        }
    }
}

#[tokio::test]
async fn a_running_worker_takes_what_comes_in_order_and_skips_nothing() {
    for git in gits() {
        let w = World::new(&git).await;
        w.log_updates();
        let chain = w.chain(20);
        let stop = CancellationToken::new();
        let mut worker = w.worker();
        let handle = worker.handle();
        let produce = async {
            let mut offsets = Vec::new();
            for (n, oid) in chain.iter().enumerate() {
                w.push(MAIN, n.checked_sub(1).map(|n| &chain[n]), oid);
                handle.wake();
                eventually("it is recorded", || w.records().len() > n).await;
                eventually("the checkpoint is past it", || {
                    matches!(Checkpoint::load(w.repo.path()), Ok(Loaded::Found(_)))
                        && offset(&w) == journal_bytes(&w)
                })
                .await;
                offsets.push(offset(&w));
            }
            stop.cancel();
            offsets
        };
        let (ended, offsets) = tokio::join!(worker.run(stop.clone()), produce);
        assert_eq!(ended.unwrap(), Round::Stopped);
        assert!(offsets.is_sorted(), "{offsets:?}");
        let moves: Vec<String> = w.updates(MAIN).into_iter().map(|(_, new)| new).collect();
        let expected: Vec<String> = chain.iter().map(ToString::to_string).collect();
        assert_eq!(moves, expected);
    }
}

#[tokio::test]
async fn a_requeued_letter_is_pushed_when_it_can_be_and_superseded_when_the_remote_is_further() {
    use stargate_mirror::dead_letter::Requeue;
    use stargate_mirror::{DeadLetters, Journal};
    let w = World::new(&gits()[0]).await;
    w.remote_hook("pre-receive", "exit 1");
    let chain = w.chain(2);
    w.push(MAIN, None, &chain[0]);
    w.drain_all().await;
    std::fs::remove_file(w.remote.path().join("hooks/pre-receive")).unwrap();
    let letter = w.letters().remove(0).letter.dead_letter_id;
    let letters = DeadLetters::open(w.repo.path()).unwrap();
    let journal = Journal::open(w.repo.path()).unwrap();
    let requeued = letters.requeue(&journal, &letter, Requeue::Once).unwrap();
    w.drain_all().await;
    w.assert_mirrored(&chain[0]);
    assert_eq!(w.status(&requeued.entry_id), (Status::Completed, "push".to_owned()));

    let newer = w.push(MAIN, Some(&chain[0]), &chain[1]);
    let again = letters.requeue(&journal, &letter, Requeue::Again).unwrap();
    w.drain_all().await;
    w.assert_mirrored(&chain[1]);
    assert_eq!(w.status(&newer).0, Status::Completed);
    assert_eq!(w.status(&again.entry_id), (Status::Superseded, "already-mirrored".to_owned()));
    assert_eq!(w.letters()[0].state, State::Requeued);
}

#[tokio::test]
async fn a_second_worker_is_refused_and_a_node_that_does_not_lead_pushes_nothing() {
    let w = World::new(&gits()[0]).await;
    let a = w.commit(None, "a");
    w.push(MAIN, None, &a);
    let (git, repo, config) = w.again();
    let worker = stargate_mirror::Worker::open(git, repo, config, Arc::new(|| false));
    let mut worker = worker.unwrap();
    let (git, repo, config) = w.again();
    let second = stargate_mirror::Worker::open(git, repo, config, Arc::new(|| true));
    assert_eq!(second.unwrap_err().code(), "MIRROR_LOCKED");
    let ended = tokio::time::timeout(Duration::from_secs(60), worker.run(CancellationToken::new())).await;
    assert_eq!(ended.unwrap().unwrap(), Round::NotLeader);
    assert_eq!((w.remote_refs().len(), w.records().len()), (0, 0));
}
