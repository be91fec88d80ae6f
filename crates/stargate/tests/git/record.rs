//! Pushes whose hook could not record them are recorded by the leader (INV-1).

use std::fs::File;
use std::time::{Duration, Instant, SystemTime};

use crate::site::{OFTEN, Site, events, exists, hold, replace, restore};
use crate::{json, leader};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_hook_did_not_record_is_recorded_once() {
    let site = Site::open(OFTEN).await;
    let client = &site.client;
    let first = client.commit("first");
    client.must(&["push", "-q", "origin", "HEAD:main", "HEAD:gone"]);
    site.recorded(2).await;

    replace(&site.hook("post-receive"), "kill -9 $$");
    let second = client.commit("second");
    client.git(&["push", "-q", "origin", "HEAD:main", "HEAD:refs/kv/a", "HEAD:refs/tags/v1", ":gone"]);
    let found = site.recorded(6).await;
    for name in ["refs/heads/main", "refs/kv/a", "refs/tags/v1"] {
        assert!(found.contains(&format!("{name} {second} reconcile")), "{found:?}");
    }
    assert!(found.contains(&format!("refs/heads/gone {} reconcile", "0".repeat(40))), "{found:?}");
    let listed = json(&site.program, &["repo", "list", "--json"]);
    assert_eq!(listed[0]["default_oid"], second.as_str(), "{listed}");

    // Back to where it was, and a push with its hook after that: nothing else turns up in the rounds between.
    client.git(&["push", "-q", "-f", "origin", &format!("{first}:main")]);
    assert_eq!(site.recorded(7).await[6], format!("refs/heads/main {first} reconcile"));
    restore(&site.hook("post-receive"));
    let third = client.commit("third");
    client.must(&["push", "-q", "origin", "HEAD:main"]);
    let last = site.recorded(8).await;
    assert!(last[7].contains(&third) && !last[7].ends_with("reconcile"), "{last:?}");
}

/// The first node leaves a push unrecorded; the second looks when its term begins, not a day later.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_records_what_the_one_before_it_did_not() {
    let mut site = Site::open("[mirror]\nreconcile_every = \"24h\"\n").await;
    let (client, program) = (&site.client, &site.program);
    let commit = client.commit("first");
    let held = rusqlite::Connection::open(program.home().join("stargate.db")).unwrap();
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    let output = client.git(&["push", "origin", "HEAD:main"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    site.node.kill();
    held.execute_batch("ROLLBACK").unwrap();
    assert!(output.status.success() && said.contains("its follow-up work was not recorded"), "{said}");
    assert_eq!(events(program), [""; 0]);
    let _successor = leader(program, "b").await;
    assert_eq!(site.recorded(1).await, [format!("refs/heads/main {commit} reconcile")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_is_later_than_the_leader_records_nothing_twice() {
    let site = Site::open(OFTEN).await;
    let client = &site.client;
    let commit = client.commit("first");
    let [_, go] = hold(&site.hook("post-receive"), site.program.home());
    let pushing = site.pushing("HEAD:main");
    let found = site.recorded(1).await;
    assert_eq!(found, [format!("refs/heads/main {commit} reconcile")]);
    std::fs::write(go, "").unwrap();
    let output = pushing.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    assert_eq!(site.recorded(1).await, found);
    client.commit("second");
    client.must(&["push", "-q", "origin", "HEAD:main"]);
    assert_eq!(site.recorded(2).await[0], found[0]);
}

/// What a receive-pack leaves that is killed in the moment in which it moves a ref, and what a power cut leaves.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_a_killed_git_has_left_is_removed() {
    let site = Site::open(OFTEN).await;
    let client = &site.client;
    client.commit("first");
    client.must(&["push", "-q", "origin", "HEAD:main"]);
    let repo = site.program.home().join("repos/r.git");
    let (left, fresh) = (repo.join("refs/heads/main.lock"), repo.join("refs/heads/other.lock"));
    let an_hour = Duration::from_secs(3600);
    for (lock, ahead) in [(&left, false), (&fresh, true)] {
        let now = SystemTime::from(stargate_base::clock::wall());
        let at = if ahead { now + an_hour } else { now - an_hour };
        File::create(lock).unwrap().set_modified(at).unwrap();
    }
    client.commit("second");
    let begin = Instant::now();
    let pushed = loop {
        let output = client.git(&["push", "-q", "origin", "HEAD:main"]);
        if output.status.success() || begin.elapsed() > Duration::from_secs(60) {
            break output;
        }
    };
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    assert!(!left.exists() && fresh.exists(), "only what is old was left by the dead");
    assert!(site.node.log().contains("refs/heads/main.lock"), "nobody was told:\n{}", site.node.log());
}

/// The push after it is recorded before the leader looks, so that the ref is where the store believes it to be.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_is_missing_between_two_is_recorded() {
    let site = Site::open(OFTEN).await;
    let client = &site.client;
    let [first, second, third] = ["first", "second", "third"].map(|text| client.commit(text));
    let push = |refs: &[String]| {
        let refs = refs.iter().map(String::as_str);
        client.must(&["push", "-q", "origin"].into_iter().chain(refs).collect::<Vec<_>>())
    };
    push(&[format!("{first}:refs/heads/main")]);
    let hook = site.hook("post-receive");
    replace(&hook, "exit 1");
    // Refs of any sort: hooks record them all.
    push(&["heads/main", "notes/n", "heads/made"].map(|name| format!("{second}:refs/{name}")));
    restore(&hook);
    push(&["heads/main", "heads/made"].map(|name| format!("{third}:refs/{name}")));
    let found = site.recorded(6).await;
    let (hooks, leader) = found.split_at(3);
    assert!(hooks.iter().all(|event| !event.ends_with("reconcile")), "{found:?}");
    assert!(hooks[0].contains(&first) && hooks[1].contains(&third) && hooks[2].contains(&third), "{found:?}");
    let mut leader = leader.to_vec();
    leader.sort();
    let expected = ["refs/heads/made", "refs/heads/main", "refs/notes/n"];
    assert_eq!(leader, expected.map(|name| format!("{name} {second} reconcile")));
    let listed = json(&site.program, &["repo", "list", "--json"]);
    assert_eq!(listed[0]["default_oid"], third.as_str(), "{listed}");
}

/// Its HEAD is a stand-in: with reftables git keeps the branch elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_repository_whose_branch_cannot_be_told_is_recorded_and_hides_no_other() {
    let site = Site::open(OFTEN).await;
    let client = &site.client;
    site.program.answer(&["repo", "create", "a"]);
    std::fs::write(site.program.home().join("repos/a.git/HEAD"), "ref: refs/heads/.invalid\n").unwrap();
    let commit = client.commit("first");
    let other = site.url().replace("/r.git", "/a.git");
    let output = client.git(&["push", &other, "HEAD:refs/heads/x"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    replace(&site.hook("post-receive"), "exit 1");
    client.must(&["push", "-q", &other, "HEAD:refs/heads/y"]);
    client.must(&["push", "-q", "origin", "HEAD:refs/heads/z"]);
    let found = site.recorded(3).await;
    for name in ["refs/heads/y", "refs/heads/z"] {
        assert!(found.contains(&format!("{name} {commit} reconcile")), "{found:?}");
    }
}

/// What is removed is not brought back by a push that was under way, and who gets its name inherits nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_to_a_repository_that_is_removed_meanwhile_is_not_recorded() {
    let site = Site::open(OFTEN).await;
    site.client.commit("first");
    site.client.must(&["push", "-q", "origin", "HEAD:main"]);
    site.recorded(1).await;
    let hook = site.hook("post-receive");
    let [there, go] = hold(&hook, site.program.home());
    let pushing = site.pushing("HEAD:other");
    exists(&there).await;
    site.program.answer(&["repo", "remove", "r"]);
    std::fs::write(go, "").unwrap();
    let output = pushing.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("does not lie below git.root"), "{said}");
    assert_eq!(events(&site.program), [""; 0]);

    // As one that was recorded in the last moment leaves it.
    let store = rusqlite::Connection::open(site.program.home().join("stargate.db")).unwrap();
    store
        .execute_batch(
            "insert into repo (name, default_branch, created_at) values ('r', 'refs/heads/main', 0)",
        )
        .unwrap();
    store
        .execute_batch(&format!(
            "insert into push_event (repo_id, ref_name, old_oid, new_oid, request_id, received_at, created_at, is_head) \
             select id, 'refs/heads/other', '{}', '{}', 'x', 0, 0, 1 from repo",
            "0".repeat(40),
            "1".repeat(40)
        ))
        .unwrap();
    site.program.answer(&["repo", "create", "r"]);
    assert_eq!(events(&site.program), [""; 0]);
}
