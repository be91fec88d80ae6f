//! What real gits say in real trouble, and what is made of it.

use std::time::Duration;

use stargate_git::{Git, Lease, Oid, Protocols, Push, Update};
use stargate_mirror::classify::{Outcome, judge};
use stargate_testkit::git::Server;

use crate::fixture::{MAIN, PATIENCE, WATERMARK, World, gits, name};

async fn push_with(w: &World, git: &Git, oid: &Oid, lease: Option<Option<&Oid>>, time: Duration) -> Outcome {
    let updates = [MAIN, WATERMARK].map(|to| Update { oid: oid.clone(), to: name(to) });
    let leases: Vec<Lease> = lease
        .map(|expected| Lease { name: name(WATERMARK), expected: expected.cloned() })
        .into_iter()
        .collect();
    let remote = &w.config.remote;
    let push = Push { repo: &w.repo, remote, updates: &updates, leases: &leases, timeout: time };
    let answer = git.push(&push).await.unwrap();
    let verdict = judge(&answer, &updates);
    println!("{:?}: {:?} {}", verdict.outcome, verdict.git_exit, verdict.error);
    verdict.outcome
}

async fn push(w: &World, oid: &Oid) -> Outcome {
    push_with(w, &w.git, oid, None, PATIENCE).await
}

#[tokio::test]
async fn what_a_remote_does_not_want_is_told_from_what_it_cannot_take_now() {
    for git in gits() {
        let w = World::new(&git).await;
        let chain = w.chain(2);
        let set = |args: &[&str]| w.run(w.remote.path(), args, b"");
        w.remote_hook("update", "exit 1");
        assert_eq!(push(&w, &chain[0]).await, Outcome::Policy, "update hook");
        std::fs::remove_file(w.remote.path().join("hooks/update")).unwrap();
        w.remote_hook("pre-receive", "exit 1");
        assert_eq!(push(&w, &chain[0]).await, Outcome::Policy, "pre-receive hook");
        std::fs::remove_file(w.remote.path().join("hooks/pre-receive")).unwrap();
        set(&["config", "transfer.hideRefs", "refs/kv"]);
        assert_eq!(push(&w, &chain[0]).await, Outcome::Policy, "hidden ref");
        set(&["config", "--unset", "transfer.hideRefs"]);
        set(&["config", "receive.advertiseAtomic", "false"]);
        assert_eq!(push(&w, &chain[0]).await, Outcome::Config, "no atomic");
        set(&["config", "--unset", "receive.advertiseAtomic"]);

        let lock = w.remote.path().join("refs/kv/main.lock");
        std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
        std::fs::write(&lock, "").unwrap();
        assert_eq!(push(&w, &chain[0]).await, Outcome::Recheck, "a lock that was left over");
        std::fs::remove_file(&lock).unwrap();

        assert_eq!(push(&w, &chain[1]).await, Outcome::Done);
        assert_eq!(push(&w, &chain[1]).await, Outcome::AlreadyThere);
        assert_eq!(push(&w, &chain[0]).await, Outcome::Diverged, "not forward");
        let stale =
            push_with(&w, &w.git, &w.commit(Some(&chain[1]), "c"), Some(Some(&chain[0])), PATIENCE).await;
        assert_eq!(stale, Outcome::Recheck, "stale info");
        let theirs = w.commit_in(&w.remote, Some(&chain[1]), "theirs");
        set(&["update-ref", MAIN, theirs.as_str()]);
        assert_eq!(push(&w, &w.commit(Some(&chain[1]), "d")).await, Outcome::Diverged, "fetch first");
    }
}

#[tokio::test]
async fn an_object_that_is_missing_here_is_our_own_trouble() {
    for git in gits() {
        let w = World::new(&git).await;
        let missing = Oid::parse(&"1".repeat(40)).unwrap();
        assert_eq!(push(&w, &missing).await, Outcome::Local, "new ref");
        let a = w.commit(None, "a");
        push(&w, &a).await;
        assert_eq!(push(&w, &missing).await, Outcome::Local, "existing ref");
        // A commit whose tree is gone.
        let b = w.commit(Some(&a), "b");
        let blob = w.run(w.repo.path(), &["hash-object", "-w", "--stdin"], b"content");
        let tree = w.run(w.repo.path(), &["mktree"], format!("100644 blob {blob}\tf\n").as_bytes());
        let c = w.run(w.repo.path(), &["commit-tree", &tree, "-p", b.as_str(), "-m", "c"], b"");
        std::fs::remove_file(w.repo.path().join("objects").join(&blob[..2]).join(&blob[2..])).unwrap();
        assert_eq!(push(&w, &Oid::parse(&c).unwrap()).await, Outcome::Local, "a missing blob");
    }
}

#[tokio::test]
async fn statuses_of_http_are_told_apart() {
    for git in gits() {
        let w = World::new(&git).await;
        let git = git.with_protocols(Protocols::parse("http").unwrap());
        let a = w.commit(None, "a");
        for (status, expected) in [
            ("401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"", Outcome::Auth),
            ("403 Forbidden", Outcome::Auth),
            ("404 Not Found", Outcome::Auth),
            ("429 Too Many Requests", Outcome::Outage),
            ("500 Internal Server Error", Outcome::Outage),
            ("502 Bad Gateway", Outcome::Outage),
            ("503 Service Unavailable", Outcome::Outage),
        ] {
            let server = Server::start(Some(status));
            w.set_url(&server.url);
            assert_eq!(push_with(&w, &git, &a, None, PATIENCE).await, expected, "{status}");
        }
        let silent = Server::start(None);
        w.set_url(&silent.url);
        assert_eq!(push_with(&w, &git, &a, None, Duration::from_secs(1)).await, Outcome::TimedOut);
        w.set_url("http://127.0.0.1:9/x.git");
        assert_eq!(push_with(&w, &git, &a, None, PATIENCE).await, Outcome::Outage, "connection refused");
        w.set_url("http://no-such-host.invalid/x.git");
        assert_eq!(push_with(&w, &git, &a, None, PATIENCE).await, Outcome::Outage, "no such host");
        w.set_url(w.remote.path().to_str().unwrap());
        assert_eq!(push_with(&w, &git, &a, None, PATIENCE).await, Outcome::Config, "transport not allowed");
        w.set_url("/no/such/place");
        assert_eq!(push(&w, &a).await, Outcome::Outage, "not there");
    }
}
