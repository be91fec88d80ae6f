//! Clone, fetch and ls-remote with the stock client, in every version of the protocol.

use crate::client::Client;
use crate::fixture::Fixture;

/// A gateway with a repository `team/tools` of three commits, a tag, and the client that pushed them.
async fn filled() -> (Fixture, Client) {
    let fixture = Fixture::start().await;
    fixture.repo("team/tools").await;
    let client = Client::with_commit().await;
    client.commit("second").await;
    client.commit("third").await;
    client.work_ok(&["tag", "-a", "-m", "a tag", "v1"]).await;
    client.work_ok(&["push", "--quiet", &fixture.url("team/tools"), "main", "v1"]).await;
    (fixture, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_has_everything_in_every_version_of_the_protocol() {
    let (fixture, pusher) = filled().await;
    let head = pusher.work_ok(&["rev-parse", "HEAD"]).await;
    for version in ["0", "1", "2"] {
        let client = Client::new();
        let setting = format!("protocol.version={version}");
        client.ok(&["-c", &setting, "clone", "--quiet", &fixture.url("team/tools"), "work"]).await;
        assert_eq!(client.work_ok(&["rev-parse", "HEAD"]).await, head, "version {version}");
        assert_eq!(client.work_ok(&["tag"]).await, "v1");
        client.work_ok(&["fsck", "--strict"]).await;

        let listed = client.ok(&["-c", &setting, "ls-remote", &fixture.url("team/tools")]).await;
        let names: Vec<&str> = listed.lines().filter_map(|line| line.split('\t').nth(1)).collect();
        assert_eq!(
            names,
            ["HEAD", "refs/heads/main", "refs/tags/v1", "refs/tags/v1^{}"],
            "version {version}"
        );
    }
    fixture.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_without_suffix_and_a_later_fetch_work_too() {
    let (fixture, pusher) = filled().await;
    let client = Client::new();
    let url = fixture.url("team/tools");
    client.ok(&["clone", "--quiet", url.strip_suffix(".git").unwrap(), "work"]).await;
    let next = pusher.commit("fourth").await;
    pusher.work_ok(&["push", "--quiet", &url, "main"]).await;
    client.work_ok(&["pull", "--quiet", "--ff-only"]).await;
    assert_eq!(client.work_ok(&["rev-parse", "HEAD"]).await, next);
}

#[tokio::test(flavor = "multi_thread")]
async fn shallow_clones_deepen() {
    let (fixture, _pusher) = filled().await;
    for version in ["0", "2"] {
        let client = Client::new();
        let setting = format!("protocol.version={version}");
        let url = fixture.url("team/tools");
        client.ok(&["-c", &setting, "clone", "--quiet", "--depth=1", &url, "work"]).await;
        assert_eq!(client.work_ok(&["rev-list", "--count", "HEAD"]).await, "1");
        client.work_ok(&["-c", &setting, "fetch", "--quiet", "--deepen=1"]).await;
        assert_eq!(client.work_ok(&["rev-list", "--count", "HEAD"]).await, "2");
        client.work_ok(&["-c", &setting, "fetch", "--quiet", "--unshallow"]).await;
        assert_eq!(client.work_ok(&["rev-list", "--count", "HEAD"]).await, "3");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_clones_get_their_blobs_when_they_need_them() {
    let (fixture, _pusher) = filled().await;
    let client = Client::new();
    let url = fixture.url("team/tools");
    client.ok(&["clone", "--quiet", "--no-checkout", "--filter=blob:none", &url, "work"]).await;
    let missing = client.work_ok(&["rev-list", "--objects", "--all", "--missing=print"]).await;
    assert_eq!(missing.lines().filter(|line| line.starts_with('?')).count(), 3, "{missing}");
    client.work_ok(&["checkout", "--quiet", "main"]).await;
    assert_eq!(std::fs::read_to_string(client.work().join("third")).unwrap(), "content of third\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_without_commits_can_be_cloned_and_names_its_branch() {
    let fixture = Fixture::start().await;
    fixture.repo("empty").await;
    for version in ["0", "2"] {
        let client = Client::new();
        let setting = format!("protocol.version={version}");
        assert_eq!(client.ok(&["-c", &setting, "ls-remote", &fixture.url("empty")]).await, "");
        client
            .ok(&[
                "-c",
                &setting,
                "-c",
                "init.defaultBranch=x",
                "clone",
                "--quiet",
                &fixture.url("empty"),
                "work",
            ])
            .await;
        if version == "2" {
            // Version 2 tells which branch there will be.
            assert_eq!(client.work_ok(&["symbolic-ref", "HEAD"]).await, "refs/heads/main");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_many_refs_is_packed_by_the_client_and_understood() {
    // A client packs requests of more than 1024 bytes.
    let (fixture, pusher) = filled().await;
    let head = pusher.work_ok(&["rev-parse", "HEAD"]).await;
    let lines: String = (0..200).map(|n| format!("create refs/heads/b{n} {head}\n")).collect();
    std::fs::write(pusher.path().join("refs"), lines).unwrap();
    let mut command = pusher.command(&pusher.work(), &["update-ref", "--stdin"]);
    command.stdin(std::fs::File::open(pusher.path().join("refs")).unwrap());
    assert!(crate::client::done(command).await.succeeded());
    for n in 0..40 {
        pusher.work_ok(&["commit", "--quiet", "--allow-empty", "-m", &format!("c{n}")]).await;
        pusher.work_ok(&["branch", "--force", &format!("b{n}")]).await;
    }
    pusher.work_ok(&["push", "--quiet", "--all", &fixture.url("team/tools")]).await;
    for version in ["0", "2"] {
        let client = Client::new();
        let mut command = client.command(
            client.path(),
            &[
                "-c",
                &format!("protocol.version={version}"),
                "clone",
                "--quiet",
                &fixture.url("team/tools"),
                "work",
            ],
        );
        command.env("GIT_TRACE_CURL", "1");
        let done = crate::client::done(command).await;
        assert!(done.succeeded(), "{}", done.stderr);
        assert!(done.stderr.to_lowercase().contains("content-encoding: gzip"), "the request was not packed");
        let branches =
            client.work_ok(&["for-each-ref", "--format=%(refname)", "refs/remotes/origin/b*"]).await;
        assert_eq!(branches.lines().count(), 200);
    }
}
