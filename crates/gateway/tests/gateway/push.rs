//! Pushes with the stock client: what moves, what is refused, what the pusher hears and what is written down.

use serde_json::Value;
use stargate_git::RepoDir;

use crate::client::Client;
use crate::fixture::Fixture;

fn journal(repo: &RepoDir) -> Vec<Value> {
    let text =
        std::fs::read_to_string(repo.path().join(".stargate/mirror-journal.ndjson")).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line.get("ref").is_some()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_journaled_and_recorded() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("kv").await;
    let client = Client::with_commit().await;
    let head = client.work_ok(&["rev-parse", "HEAD"]).await;
    client
        .work_ok(&["push", "--quiet", &fixture.url("kv"), "HEAD:refs/kv/main", "HEAD:refs/heads/main"])
        .await;
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await.unwrap().as_str(), head);
    let lines = journal(&repo);
    assert_eq!(lines.len(), 1, "{lines:?}");
    for (field, value) in [
        ("ref", "refs/kv/main"),
        ("new_oid", &*head),
        ("pusher", "tester"),
        ("repo", "kv"),
        ("source", "post-receive"),
    ] {
        assert_eq!(lines[0][field], value);
    }
    assert_eq!(lines[0]["meta"]["epoch"], 7);
    assert_eq!(fixture.recorded(), ["kv tester refs/kv/main,refs/heads/main"]);
    fixture.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn protected_refs_only_go_forward_and_others_go_as_they_like() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("kv").await;
    let url = fixture.url("kv");
    let client = Client::with_commit().await;
    let second = client.commit("second").await;
    let push = async |arguments: &[&str]| client.run_in_work(&[&["push", &url], arguments].concat()).await;
    assert!(push(&["HEAD:refs/kv/main", "HEAD:refs/heads/main"]).await.succeeded());

    // Forward, as seen from inside the quarantine of the push.
    let third = client.commit("third").await;
    assert!(push(&["HEAD:refs/kv/main"]).await.succeeded());
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await.unwrap().as_str(), third);

    let back = push(&["+HEAD~1:refs/kv/main"]).await;
    assert_eq!(back.code, Some(1));
    assert!(
        back.stderr.contains("remote: stargate: refused: refs/kv/main moves forward only"),
        "{}",
        back.stderr
    );
    let deleted = push(&["--delete", "refs/kv/main"]).await;
    assert!(deleted.stderr.contains("refs/kv/main may not be deleted"), "{}", deleted.stderr);
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await.unwrap().as_str(), third);

    assert!(push(&["+HEAD~2:refs/heads/main"]).await.succeeded());
    assert!(push(&[&format!("{second}:refs/heads/other")]).await.succeeded());
    assert!(push(&["--delete", "refs/heads/other"]).await.succeeded());
    assert_eq!(fixture.oid(&repo, "refs/heads/other").await, None);
    assert_eq!(journal(&repo).len(), 2, "only what moved is journaled");
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_are_pushed_and_deleted() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let url = fixture.url("a");
    let client = Client::with_commit().await;
    client.work_ok(&["tag", "light"]).await;
    client.work_ok(&["tag", "-a", "-m", "x", "heavy"]).await;
    client.work_ok(&["push", "--quiet", "--tags", &url]).await;
    assert!(fixture.oid(&repo, "refs/tags/heavy").await.is_some());
    client.work_ok(&["push", "--quiet", &url, ":refs/tags/light"]).await;
    assert!(fixture.oid(&repo, "refs/tags/light").await.is_none());
    assert!(fixture.oid(&repo, "refs/tags/heavy").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_atomic_push_moves_all_or_nothing() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let url = fixture.url("a");
    let client = Client::with_commit().await;
    client.commit("second").await;
    client
        .work_ok(&["push", "--quiet", "--atomic", &url, "HEAD:refs/heads/one", "HEAD:refs/heads/two"])
        .await;
    let before = fixture.oid(&repo, "refs/heads/two").await;

    // The watermark may not be pushed here, so nothing else of this push may either.
    client.commit("third").await;
    let refused = client
        .run_in_work(&["push", "--atomic", &url, "HEAD:refs/heads/two", "HEAD:refs/kv-mirror/main"])
        .await;
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("refs/kv-mirror/main is moved by the mirror alone"),
        "{}",
        refused.stderr
    );
    assert_eq!(fixture.oid(&repo, "refs/heads/two").await, before);
    assert_eq!(fixture.oid(&repo, "refs/kv-mirror/main").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_its_lead_refuses_in_the_hook() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    fixture.tell_hooks("not-leader");
    let client = Client::with_commit().await;
    let refused = client.run_in_work(&["push", &fixture.url("a"), "main"]).await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("not leader: push to http://other.example"), "{}", refused.stderr);
    assert_eq!(fixture.oid(&repo, "refs/heads/main").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_push_is_tried_first_and_then_sent_in_chunks() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    crate::memory::random_file(&client.work().join("random"), 3 << 20);
    let head = client.commit("with-large").await;
    let arguments = ["push", "--quiet", &fixture.url("a"), "main"];
    let mut command = client.command(&client.work(), &arguments);
    command.env("GIT_TRACE_CURL", "1").env("GIT_TRACE_CURL_NO_DATA", "1");
    let done = crate::client::done(command).await;
    assert!(done.succeeded(), "{}", done.stderr);
    let trace = done.stderr.to_lowercase();
    assert!(trace.contains("content-length: 4"), "the client did not try first");
    assert!(trace.contains("transfer-encoding: chunked"), "the client did not send chunks");
    assert_eq!(fixture.oid(&repo, "refs/heads/main").await.unwrap().as_str(), head);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_see_what_they_need_and_nothing_else() {
    let fixture = Fixture::start().await;
    fixture.repo("a").await;
    let client = Client::with_commit().await;
    client.work_ok(&["push", "--quiet", &fixture.url("a"), "main"]).await;
    let names = std::fs::read_to_string(fixture.hook_file("environment")).unwrap();
    let foreign: Vec<&str> = names
        .lines()
        .filter(|name| !name.starts_with("STARGATE_") && !name.starts_with("GIT_"))
        .filter(|name| !["PATH", "HOME", "LC_ALL", "PWD", "OLDPWD", "SHLVL", "_"].contains(name))
        .collect();
    assert_eq!(foreign, [""; 0], "{names}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_dies_after_the_journal_leaves_an_accepted_push_that_is_journaled() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("kv").await;
    fixture.tell_hooks("die-after-journal");
    let client = Client::with_commit().await;
    let head = client.work_ok(&["rev-parse", "HEAD"]).await;
    client.work_ok(&["push", "--quiet", &fixture.url("kv"), "HEAD:refs/kv/main"]).await;
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await.unwrap().as_str(), head);
    assert_eq!(journal(&repo).len(), 1);
    assert_eq!(fixture.recorded(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_objects_are_refused_and_the_pusher_hears_why_although_it_was_still_sending() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    // Git refuses the commit, which comes first, long before the client has sent the rest; unless it takes the pack
    // apart, as it does with small ones.
    fixture.repositories.git().set_config(&repo, "receive.unpackLimit", "1").await.unwrap();
    crate::memory::random_file(&client.work().join("random"), 20 << 20);
    client.commit("large").await;
    let tree = client.work_ok(&["rev-parse", "HEAD^{tree}"]).await;
    // A commit without a proper author line.
    let commit = client.path().join("commit");
    std::fs::write(&commit, format!("tree {tree}\nauthor nobody\ncommitter nobody\n\nx\n")).unwrap();
    let made =
        client.work_ok(&["hash-object", "-t", "commit", "-w", "--literally", commit.to_str().unwrap()]).await;
    let refused = client.run_in_work(&["push", &fixture.url("a"), &format!("{made}:refs/heads/x")]).await;
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("remote rejected"), "{}", refused.stderr);
    assert_eq!(fixture.oid(&repo, "refs/heads/x").await, None);
}

/// Whoever may push could otherwise put a commit in the place of another, and rewind what only goes forward (INV-4).
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_replaced_by_a_descendant_is_none() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("kv").await;
    let url = fixture.url("kv");
    let client = Client::with_commit().await;
    let here = client.work_ok(&["rev-parse", "HEAD"]).await;
    let tree = client.work_ok(&["rev-parse", "HEAD^{tree}"]).await;
    let unrelated = client.work_ok(&["commit-tree", "-m", "unrelated", &tree]).await;
    let child = client.work_ok(&["commit-tree", "-p", &here, "-m", "child", &tree]).await;
    client.work_ok(&["push", "--quiet", &url, &format!("{here}:refs/kv/main")]).await;
    client.work_ok(&["push", "--quiet", &url, &format!("{child}:refs/replace/{unrelated}")]).await;
    client.work_ok(&["push", "--quiet", &url, &format!("{unrelated}:refs/heads/unrelated")]).await;
    let back = client.run_in_work(&["push", "--force", &url, &format!("{unrelated}:refs/kv/main")]).await;
    assert!(back.stderr.contains("refs/kv/main moves forward only"), "{}", back.stderr);
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await.unwrap().as_str(), here);
}

/// It has neither our hooks nor our settings.
#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_was_brought_here_from_elsewhere_is_protected_like_the_others() {
    let fixture = Fixture::start().await;
    let client = Client::with_commit().await;
    let here = client.commit("second").await;
    let path = fixture.home().join("repos/brought.git");
    client.ok(&["clone", "--quiet", "--bare", client.work().to_str().unwrap(), path.to_str().unwrap()]).await;
    let repo = RepoDir::open(&path).unwrap();
    let url = fixture.url("brought");
    let push = async |refspec: &str| client.run_in_work(&["push", &url, refspec]).await;
    assert!(push("HEAD:refs/kv/main").await.succeeded());
    assert_eq!(
        (journal(&repo).len(), fixture.recorded()),
        (1, vec!["brought tester refs/kv/main".to_owned()])
    );
    for (refspec, why) in
        [("+HEAD~1:refs/kv/main", "moves forward only"), (":refs/kv/main", "may not be deleted")]
    {
        let refused = push(refspec).await;
        assert!(refused.stderr.contains(why), "{refspec}: {}", refused.stderr);
    }
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await.unwrap().as_str(), here);
    let tree = client.work_ok(&["rev-parse", "HEAD^{tree}"]).await;
    let commit = client.path().join("commit");
    std::fs::write(&commit, format!("tree {tree}\nauthor nobody\ncommitter nobody\n\nx\n")).unwrap();
    let broken =
        client.work_ok(&["hash-object", "-t", "commit", "-w", "--literally", commit.to_str().unwrap()]).await;
    assert!(!push(&format!("{broken}:refs/heads/x")).await.succeeded(), "objects are not looked at");
}

/// git keeps that list in memory before any hook can say how many refs are allowed.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_refs_without_end_is_cut_off() {
    use crate::raw::{answer, post_head, send};
    let fixture = Fixture::start().await;
    fixture.repo("a").await;
    let command = format!("{0} {1} refs/heads/x", "0".repeat(40), "1".repeat(40));
    let line = format!("{:04x}{command}", command.len() + 4);
    let body = line.repeat((17 << 20) / line.len());
    let head = post_head("/git/a", "git-receive-pack", &format!("content-length: {}\r\n", body.len()));
    let refused = answer(send(fixture.address, (head + &body).as_bytes()).await).await;
    assert_eq!(
        (refused.status, refused.body.contains("push fewer of them")),
        (413, true),
        "{}",
        refused.body
    );
    fixture.nothing_left().await;
}
