//! Repositories: made whole or not at all, listed, and taken out of service.

use std::os::unix::fs::PermissionsExt as _;

use stargate_gateway::{Error, RepoName};
use stargate_git::RefName;

use crate::client::Client;
use crate::fixture::{Fixture, create, repositories};

fn name(text: &str) -> RepoName {
    RepoName::parse(text).unwrap()
}

fn names(listed: &[RepoName]) -> Vec<&str> {
    listed.iter().map(RepoName::as_str).collect()
}

#[tokio::test]
async fn a_new_repository_has_its_hooks_and_settings() {
    let home = tempfile::tempdir().unwrap();
    let repositories = repositories(home.path());
    let repo = create(&repositories, "team/tools").await;
    assert_eq!(repo.path(), home.path().canonicalize().unwrap().join("repos/team/tools.git"));
    for hook in ["pre-receive", "post-receive"] {
        let mode = repo.path().join("hooks").join(hook).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }
    let client = Client::new();
    let setting = async |key: &str| client.ok(&["-C", repo.path().to_str().unwrap(), "config", key]).await;
    assert_eq!(setting("core.bare").await, "true");
    assert_eq!(setting("core.fsync").await, "committed,reference");
    assert_eq!(setting("receive.fsckobjects").await, "true");
    assert_eq!(setting("uploadpack.allowfilter").await, "true");
}

#[tokio::test]
async fn of_many_that_make_the_same_repository_one_succeeds() {
    let home = tempfile::tempdir().unwrap();
    let repositories = repositories(home.path());
    let branch = RefName::parse("refs/heads/main").unwrap();
    let same = name("a/b");
    let made = futures::future::join_all((0..8).map(|_| repositories.create(&same, &branch))).await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1);
    let all_exist =
        made.iter().filter_map(|made| made.as_ref().err()).all(|e| matches!(e, Error::Exists { .. }));
    assert!(all_exist, "{made:?}");
    assert_eq!(std::fs::read_dir(home.path().join("repos/.new")).unwrap().count(), 0, "something was left");
}

#[tokio::test]
async fn repositories_are_listed_and_nothing_else_is() {
    let home = tempfile::tempdir().unwrap();
    let repositories = repositories(home.path());
    assert_eq!(repositories.list().unwrap(), []);
    for text in ["b", "a", "org/team/x", "org/y"] {
        create(&repositories, text).await;
    }
    let root = home.path().join("repos");
    // What a process leaves that dies while it makes one, what is no repository, and what lies elsewhere.
    std::fs::create_dir_all(root.join(".new/half/refs")).unwrap();
    std::fs::create_dir(root.join("empty.git")).unwrap();
    std::fs::write(root.join("file.git"), "").unwrap();
    std::os::unix::fs::symlink(root.join("a.git"), root.join("link.git")).unwrap();
    assert_eq!(names(&repositories.list().unwrap()), ["a", "b", "org/team/x", "org/y"]);
    assert!(matches!(repositories.find(&name("link")), Err(Error::NotFound { .. })));
    assert!(matches!(repositories.find(&name("empty")), Err(Error::NotFound { .. })));
}

/// What a push that was killed with all its processes leaves, a day later and right away.
#[tokio::test]
async fn what_killed_pushes_left_is_removed_once_it_is_old() {
    let home = tempfile::tempdir().unwrap();
    let repositories = repositories(home.path());
    let objects = create(&repositories, "a/b").await.path().join("objects");
    let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    for (name, is_old) in
        [("tmp_objdir-incoming-old", true), ("tmp_objdir-incoming-new", false), ("pack", true)]
    {
        let dir = objects.join(name);
        std::fs::create_dir_all(dir.join("pack")).unwrap();
        if is_old {
            std::fs::File::open(dir).unwrap().set_modified(old).unwrap();
        }
    }
    repositories.sweep_quarantines();
    let names =
        std::fs::read_dir(&objects).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(names, ["info", "pack", "tmp_objdir-incoming-new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_repository_lies_in_the_trash_and_its_name_is_free() {
    let fixture = Fixture::start().await;
    fixture.repo("team/tools").await;
    let client = Client::with_commit().await;
    let url = fixture.url("team/tools");
    client.work_ok(&["push", "--quiet", &url, "main"]).await;
    let trash = fixture.repositories.remove(&name("team/tools")).unwrap();
    assert!(!client.run(&["ls-remote", &url]).await.succeeded());
    assert_eq!(fixture.repositories.list().unwrap(), []);
    // Nothing of it is lost.
    let kept = client.ok(&["-C", trash.to_str().unwrap(), "rev-parse", "refs/heads/main"]).await;
    assert_eq!(kept, client.work_ok(&["rev-parse", "HEAD"]).await);

    fixture.repo("team/tools").await;
    assert_eq!(client.ok(&["ls-remote", &url]).await, "");
    assert!(matches!(fixture.repositories.remove(&name("nothing")), Err(Error::NotFound { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_that_come_and_go_do_not_hide_the_others() {
    let home = tempfile::tempdir().unwrap();
    let repositories = repositories(home.path());
    create(&repositories, "a").await;
    let (group, stop) = (home.path().join("repos/group"), tokio_util::sync::CancellationToken::new());
    let ended = stop.clone();
    let coming_and_going = std::thread::spawn(move || {
        while !ended.is_cancelled() {
            std::fs::create_dir(&group).unwrap();
            std::fs::remove_dir(&group).unwrap();
        }
    });
    for _ in 0..2000 {
        let listed = repositories.list();
        assert!(listed.as_ref().is_ok_and(|listed| names(listed) == ["a"]), "{listed:?}");
    }
    stop.cancel();
    coming_and_going.join().unwrap();
}
