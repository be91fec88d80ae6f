//! Answers that do not say whose fault it is: the remote's, for which everybody waits, or that of the entry, which must
//! hold up nobody.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stargate_base::Backoff;
use stargate_git::{Git, Oid, Protocols};
use stargate_mirror::dead_letter::Reason;
use stargate_mirror::{Report, Round};
use stargate_testkit::git::executable;
use tokio_util::sync::CancellationToken;

use crate::fixture::{MAIN, WATERMARK, World, entry, eventually, gits};

const QUICK: Backoff =
    Backoff { first: Duration::from_millis(50), factor: 2.0, cap: Duration::from_millis(400), jitter: 0.0 };

async fn quick(git: &Git) -> World {
    let mut w = World::new(git).await;
    w.config.probes = QUICK;
    w.config.push_backoff = QUICK;
    w
}

/// A worker that runs while something happens.
async fn meanwhile(w: &World, acts: impl Future<Output = ()>) {
    let (mut worker, stop) = (w.worker(), CancellationToken::new());
    let acts = async {
        acts.await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(worker.run(stop.clone()), acts);
    assert_eq!(ended.unwrap(), Round::Stopped);
}

fn breaker(w: &World) -> (String, u32) {
    let state = Report::of(w.repo.path()).unwrap().worker.unwrap_or_default();
    (state.breaker, state.failed_probes)
}

fn journal_lines(w: &World, ref_name: &str) -> usize {
    let path = w.repo.path().join(".stargate/mirror-journal.ndjson");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter(|line| line.contains(&format!("\"{ref_name}\""))).count()
}

/// Why the remote never takes an entry.
#[derive(Debug, Clone, Copy)]
enum Never {
    /// It looks at objects, and says what it does not like.
    Object,
    /// There is a lock that nobody removes; for all we know it may be gone soon.
    Lock,
}

const BAD: &str = "refs/kv/bad";

/// A commit that the remote never takes, for [`BAD`].
fn bad_commit(w: &World, why: Never) -> Oid {
    if matches!(why, Never::Lock) {
        let lock = w.remote.path().join(format!("{BAD}.lock"));
        std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
        std::fs::write(lock, "").unwrap();
        return w.commit(None, "bad");
    }
    w.run(w.remote.path(), &["config", "receive.fsckObjects", "true"], b"");
    let tree = w.run(w.repo.path(), &["hash-object", "-w", "-t", "tree", "--stdin"], b"");
    let text = format!("tree {tree}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> never +0000\n\nx\n");
    let args = ["hash-object", "-t", "commit", "-w", "--literally", "--stdin"];
    Oid::parse(&w.run(w.repo.path(), &args, text.as_bytes())).unwrap()
}

#[tokio::test]
async fn an_entry_that_the_remote_never_takes_does_not_hold_up_those_behind_it() {
    for (git, why) in gits().iter().flat_map(|git| [(git, Never::Object), (git, Never::Lock)]) {
        let w = quick(git).await;
        let (bad, chain) = (bad_commit(&w, why), w.chain(2));
        w.push(BAD, None, &bad);
        w.push(MAIN, None, &chain[0]);
        w.drain_all().await;
        w.assert_mirrored(&chain[0]);
        w.push(MAIN, Some(&chain[0]), &chain[1]);
        w.drain_all().await;
        w.assert_mirrored(&chain[1]);
        let letters = w.letters();
        assert_eq!((letters.len(), letters[0].letter.reason), (1, Reason::Rejected), "{letters:?}");
        assert_eq!((w.open_letters(), journal_lines(&w, BAD)), (1, 1), "{why:?}");
    }
}

#[tokio::test]
async fn an_entry_that_the_remote_never_takes_is_alone_and_does_not_hold_up_what_comes_later() {
    for git in gits() {
        let w = quick(&git).await;
        let (bad, chain) = (bad_commit(&w, Never::Lock), w.chain(3));
        w.push(BAD, None, &bad);
        meanwhile(&w, async {
            eventually("probes fail", || breaker(&w).1 >= 2).await;
            for n in 0..3_usize {
                w.push(MAIN, n.checked_sub(1).map(|n| &chain[n]), &chain[n]);
                eventually("what came later is mirrored", || w.remote_ref(MAIN).as_ref() == Some(&chain[n]))
                    .await;
            }
            eventually("the remote is not thought to be away", || breaker(&w).0 == "closed").await;
        })
        .await;
        w.assert_mirrored(&chain[2]);
        assert!(w.letters().len() <= 2, "{:?}", w.letters());
        assert_eq!(w.open_letters(), 1, "of the one that is never taken");
        assert!(journal_lines(&w, BAD) <= 3);
    }
}

/// Pushes hang while this file is there; questions are answered.
fn hang(w: &World) -> PathBuf {
    let hangs = w.dir.path().join("hangs");
    std::fs::write(&hangs, "").unwrap();
    w.remote_hook("pre-receive", &format!("while test -e {}; do sleep 0.05; done", hangs.display()));
    hangs
}

#[tokio::test]
async fn a_remote_that_hangs_in_pushes_costs_one_dead_letter_and_none_when_it_is_over() {
    for git in gits() {
        let mut w = quick(&git).await;
        // Only pushes that hang take so long, also on a loaded machine.
        w.config.push_timeout = Duration::from_secs(4);
        w.config.push_tries = 2;
        let hangs = hang(&w);
        let chain = w.chain(12);
        w.push("refs/kv-index/a", None, &chain[0]);
        w.push("refs/kv-index/b", None, &chain[0]);
        meanwhile(&w, async {
            for n in 0..12_usize {
                w.push(MAIN, n.checked_sub(1).map(|n| &chain[n]), &chain[n]);
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            eventually("probes fail", || breaker(&w).1 >= 3).await;
            assert_eq!(w.letters().len(), 1, "{:?}", w.letters());
            std::fs::remove_file(&hangs).unwrap();
            eventually("all is mirrored", || w.remote_ref(MAIN).as_ref() == Some(&chain[11])).await;
            eventually("no letter is open", || w.open_letters() == 0).await;
            eventually("it is drained", || Report::of(w.repo.path()).unwrap().backlog == 0).await;
        })
        .await;
        w.assert_mirrored(&chain[11]);
        assert_eq!(w.remote_refs(), ["refs/kv-index/a", "refs/kv-index/b", WATERMARK, MAIN]);
        assert_eq!((w.letters().len(), w.letters()[0].letter.reason), (1, Reason::Timeout));
    }
}

#[tokio::test]
async fn a_hang_that_outlives_its_worker_leaves_nothing_behind_either() {
    let mut w = quick(&gits()[0]).await;
    // Only pushes that hang take so long, also on a loaded machine.
    w.config.push_timeout = Duration::from_secs(4);
    w.config.push_tries = 1;
    let hangs = hang(&w);
    let a = w.commit(None, "a");
    w.push(MAIN, None, &a);
    w.push("refs/kv/other", None, &a);
    for _ in 0..3 {
        let drained = w.drain().await;
        assert!(matches!(drained.end, Round::Waiting(_)), "{drained:?}");
        assert!(w.open_letters() <= 1, "{:?}", w.letters());
    }
    std::fs::remove_file(&hangs).unwrap();
    w.drain_all().await;
    w.assert_mirrored(&a);
    assert_eq!((w.remote_ref("refs/kv/other"), w.open_letters()), (Some(a), 0));
}

#[tokio::test]
async fn a_lock_that_was_left_over_costs_its_ref_a_while_and_the_others_nothing() {
    for git in gits() {
        let mut w = quick(&git).await;
        w.config.reconcile_every = Duration::from_secs(1);
        let lock = w.remote.path().join("refs/kv/main.lock");
        std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
        std::fs::write(&lock, "").unwrap();
        let a = w.commit(None, "a");
        w.push(MAIN, None, &a);
        w.push("refs/kv/other", None, &a);
        meanwhile(&w, async {
            eventually("the other is mirrored", || w.remote_ref("refs/kv/other").is_some()).await;
            eventually("it is given up", || !w.letters().is_empty()).await;
            std::fs::remove_file(&lock).unwrap();
            eventually("it is mirrored by itself", || w.remote_ref(MAIN).is_some()).await;
            eventually("no letter is open", || w.open_letters() == 0).await;
        })
        .await;
        w.assert_mirrored(&a);
    }
}

#[tokio::test]
async fn gits_that_are_killed_cost_one_dead_letter_and_none_when_it_is_over() {
    for git in gits() {
        let mut w = quick(&git).await;
        let (program, deadly) = (w.dir.path().join("bin/git"), w.dir.path().join("deadly"));
        let (flag, real) = (deadly.display(), w.git.program().display().to_string());
        executable(
            &program,
            &format!("case \" $* \" in *' push '*) test -e {flag} && kill -9 $$;; esac\nexec {real} \"$@\""),
        );
        std::fs::write(&deadly, "").unwrap();
        let path = std::env::var_os("PATH").unwrap();
        w.git = Git::new(&program, path).with_protocols(Protocols::parse("file").unwrap());
        let a = w.commit(None, "a");
        for name in [MAIN, "refs/kv/b", "refs/kv/c"] {
            w.push(name, None, &a);
        }
        meanwhile(&w, async {
            eventually("probes fail", || breaker(&w).1 >= 2).await;
            assert_eq!(w.letters().len(), 1, "{:?}", w.letters());
            std::fs::remove_file(&deadly).unwrap();
            eventually("all is mirrored", || w.remote_refs().len() == 6).await;
            eventually("no letter is open", || w.open_letters() == 0).await;
        })
        .await;
        w.assert_mirrored(&a);
    }
}

#[tokio::test]
async fn a_transaction_that_fails_is_one_failed_probe() {
    let w = quick(&gits()[0]).await;
    let a = w.commit(None, "a");
    let entries = (0..8).map(|n| {
        let mut entry = entry(&format!("refs/kv-index/n{n}"), None, &a);
        entry.meta.insert("txn_id".to_owned(), "t".into());
        entry
    });
    w.append(entries.collect());
    w.set_url("/no/such/place");
    let drained = w.drain().await;
    assert!(matches!(drained.end, Round::Waiting(_)), "{drained:?}");
    assert_eq!((w.letters().len(), breaker(&w).1), (8, 1));
}

#[tokio::test]
async fn a_letter_that_cannot_be_requeued_at_once_is_requeued_later() {
    let mut w = quick(&gits()[0]).await;
    w.config.reconcile_every = Duration::from_secs(1);
    let a = w.commit(None, "a");
    w.push(MAIN, None, &a);
    w.set_url("/no/such/place");
    meanwhile(&w, async {
        eventually("it is given up", || w.open_letters() == 1).await;
        let lock = std::fs::File::create(w.repo.path().join(".stargate/dead-letter/lock")).unwrap();
        lock.lock().unwrap();
        w.set_url(w.remote.path().to_str().unwrap());
        eventually("the remote answers again", || breaker(&w).0 == "closed").await;
        assert_eq!(w.open_letters(), 1);
        drop(lock);
        eventually("it is mirrored", || w.remote_ref(MAIN).is_some()).await;
    })
    .await;
    assert_eq!(w.open_letters(), 0);
}

/// Letters as an earlier worker wrote them; fast, because nothing is synced.
fn given_up(w: &World, ref_names: impl Iterator<Item = (String, String)>) {
    let dir = w.repo.path().join(".stargate/dead-letter");
    std::fs::create_dir_all(&dir).unwrap();
    for (n, (ref_name, oid)) in ref_names.enumerate() {
        let id = format!("{:010}-{n:012}-{n:08x}", 1);
        let letter = serde_json::json!({
            "dead_letter_id": id, "entry_id": format!("e{n}"), "reason": "rejected", "error": "x", "git_exit": 1,
            "per_ref": [], "attempts": 3, "first_attempt_at": "2026-01-01T00:00:00Z",
            "dead_lettered_at": "2026-01-01T00:00:00Z",
            "journal": {"journal_id": "j", "segment": 1, "offset": n, "bytes": 1},
            "payload": {"ref": ref_name, "new_oid": oid},
        });
        std::fs::write(dir.join(format!("{id}.json")), letter.to_string()).unwrap();
    }
}

#[tokio::test]
async fn a_lost_push_is_found_behind_any_number_of_refs_that_were_given_up() {
    let w = quick(&gits()[0]).await;
    let a = w.commit(None, "a");
    let names: Vec<String> = (0..1100).map(|n| format!("refs/kv-index/a{n:05}")).collect();
    let orders: String = names.iter().map(|name| format!("create {name} {a}\n")).collect();
    w.run(w.repo.path(), &["update-ref", "--stdin"], orders.as_bytes());
    given_up(&w, names.iter().map(|name| (name.clone(), a.to_string())));
    w.update_ref("refs/kv-index/lost", &a);
    let found = stargate_mirror::reconcile::reconcile(&w.git, &w.repo, &w.config).await.unwrap();
    assert_eq!(found.journaled, 1);
    w.update_ref("refs/kv-index/lost-too", &a);
    w.drain_all().await;
    assert_eq!(w.remote_refs(), ["refs/kv-index/lost", "refs/kv-index/lost-too"]);
}

#[tokio::test]
async fn a_letter_counts_however_many_came_before_it() {
    let w = quick(&gits()[0]).await;
    let a = w.commit(None, "a");
    w.update_ref("refs/kv-index/refused", &a);
    let other = "1".repeat(40);
    let before = (0..10_050).map(|_| ("refs/kv-index/other".to_owned(), other.clone()));
    given_up(&w, before.chain([("refs/kv-index/refused".to_owned(), a.to_string())]));
    let found = stargate_mirror::reconcile::reconcile(&w.git, &w.repo, &w.config).await.unwrap();
    assert_eq!((found.gaps.len(), found.journaled), (1, 0));
}

/// Waits until the worker has compared refs once more.
async fn compared(w: &World, oid: &Oid, mark: &str) {
    w.update_ref(mark, oid);
    eventually("refs are compared", || w.remote_ref(mark).is_some()).await;
}

#[tokio::test]
async fn a_remote_that_is_further_than_we_know_is_looked_into_once() {
    for git in gits() {
        let mut w = quick(&git).await;
        w.config.reconcile_every = Duration::from_secs(1);
        let a = w.commit(None, "a");
        w.push(MAIN, None, &a);
        w.drain_all().await;
        let theirs = w.commit_in(&w.remote, Some(&a), "theirs");
        w.run(w.remote.path(), &["update-ref", MAIN, theirs.as_str()], b"");
        meanwhile(&w, async {
            for mark in ["refs/kv-index/m1", "refs/kv-index/m2", "refs/kv-index/m3", "refs/kv-index/m4"] {
                compared(&w, &a, mark).await;
            }
        })
        .await;
        assert!(journal_lines(&w, MAIN) <= 2, "{} lines", journal_lines(&w, MAIN));
        assert_eq!((w.remote_ref(MAIN), w.letters().len()), (Some(theirs), 0));
    }
}

/// Whether a sync of a worker that has nothing to do but to say how it stands was made to fail, and how it ended.
fn fail_fsync(order: &crate::process::Order, log: &Path, nth: usize) -> (bool, std::process::ExitStatus) {
    let inject = format!("inject=fsync:error=EIO:when={nth}");
    let log_name = log.to_str().unwrap();
    let tracer = ["strace", "-f", "-b", "execve", "-o", log_name, "-e", "trace=fsync", "-e", &inject];
    let status = order.run(&tracer.map(str::to_owned));
    (std::fs::read_to_string(log).unwrap().contains("(INJECTED)"), status)
}

#[tokio::test]
async fn no_sync_that_fails_is_passed_over() {
    let w = quick(&gits()[0]).await;
    let a = w.commit(None, "a");
    w.push(MAIN, None, &a);
    let (order, log) = (crate::process::Order::of(&w), w.dir.path().join("strace"));
    let mut failed = 0;
    for nth in 1..100 {
        let (injected, status) = fail_fsync(&order, &log, nth);
        if !injected {
            break;
        }
        failed += 1;
        assert!(crate::process::has_stopped(status), "went on after fsync {nth} had failed: {status}");
    }
    println!("{failed} syncs failed");
    assert!(failed >= 2, "only {failed} syncs failed: does strace see them?");
    w.drain_all().await;
    w.assert_mirrored(&a);
}
