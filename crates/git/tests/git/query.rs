//! Questions about refs and ancestry.

use stargate_git::{Error, RefPattern, RemoteName};

use crate::fixture::{PATIENCE, World, gits, name};

fn patterns(list: &[&str]) -> Vec<RefPattern> {
    list.iter().map(|pattern| RefPattern::parse(pattern).unwrap()).collect()
}

#[tokio::test]
async fn refs_of_both_sides_are_listed_by_pattern() {
    for git in gits() {
        let w = World::new(&git).await;
        let a = w.commit(None, "a");
        for r in ["refs/kv/main", "refs/kv/deep/er", "refs/kvx/no", "refs/heads/main"] {
            w.run(w.repo.path(), &["update-ref", r, a.as_str()]);
        }
        let kv = patterns(&["refs/kv/*"]);
        let local = w.git.local_refs(&w.repo, &kv).await.unwrap();
        assert_eq!(local.keys().map(|r| r.as_str()).collect::<Vec<_>>(), ["refs/kv/deep/er", "refs/kv/main"]);
        assert_eq!(w.git.local_refs(&w.repo, &patterns(&["refs/heads/main"])).await.unwrap().len(), 1);
        assert!(w.git.ls_remote(&w.repo, &w.remote, &kv, PATIENCE).await.unwrap().is_empty());
        w.push(&[(&a, "refs/kv/main"), (&a, "refs/heads/x"), (&a, "refs/x/refs/kv/main")]).await;
        let remote = w.git.ls_remote(&w.repo, &w.remote, &kv, PATIENCE).await.unwrap();
        assert_eq!(remote.into_iter().collect::<Vec<_>>(), [(name("refs/kv/main"), a)]);
    }
}

/// Whoever may push a ref could otherwise make any commit look like a descendant of another (INV-4).
#[tokio::test]
async fn replaced_commits_do_not_change_who_descends_from_whom() {
    for git in gits() {
        let w = World::new(&git).await;
        let here = w.commit(None, "here");
        let unrelated = w.commit(None, "unrelated");
        let child = w.commit(Some(&here), "child");
        w.push(&[(&here, "refs/kv/main")]).await;
        w.run(w.repo.path(), &["update-ref", &format!("refs/replace/{unrelated}"), child.as_str()]);
        assert!(!w.git.is_ancestor(&w.repo, &here, &unrelated).await.unwrap());
        assert_eq!(w.git.commits_between(&w.repo, &here, &unrelated).await.unwrap(), None);
    }
}

#[tokio::test]
async fn ancestry_is_answered_and_a_missing_commit_is_an_error_not_a_no() {
    for git in gits() {
        let w = World::new(&git).await;
        let a = w.commit(None, "a");
        let b = w.commit(Some(&a), "b");
        let c = w.commit(Some(&b), "c");
        let other = w.commit(Some(&a), "other");
        assert!(w.git.is_ancestor(&w.repo, &a, &c).await.unwrap());
        assert!(w.git.is_ancestor(&w.repo, &c, &c).await.unwrap());
        assert!(!w.git.is_ancestor(&w.repo, &c, &a).await.unwrap());
        assert!(!w.git.is_ancestor(&w.repo, &other, &c).await.unwrap());
        let missing = stargate_git::Oid::parse(&"1".repeat(40)).unwrap();
        assert!(matches!(w.git.is_ancestor(&w.repo, &missing, &c).await, Err(Error::Failed { .. })));
        assert!(w.git.has_commit(&w.repo, &a).await.unwrap());
        assert!(!w.git.has_commit(&w.repo, &missing).await.unwrap());
        let tree = w.run(w.repo.path(), &["hash-object", "-w", "-t", "tree", "/dev/null"]);
        let tree = stargate_git::Oid::parse(&tree).unwrap();
        assert!(!w.git.has_commit(&w.repo, &tree).await.unwrap());
        assert!(w.git.has_object(&w.repo, &tree).await.unwrap());

        let between = w.git.commits_between(&w.repo, &a, &c).await.unwrap().unwrap();
        assert_eq!(between, [a.clone(), b.clone(), c.clone()].into());
        assert_eq!(w.git.commits_between(&w.repo, &c, &c).await.unwrap().unwrap(), [c.clone()].into());
        for (old, new) in [(&c, &a), (&other, &c), (&missing, &c), (&a, &missing)] {
            assert_eq!(w.git.commits_between(&w.repo, old, new).await.unwrap(), None, "{old} {new}");
        }
    }
}

#[tokio::test]
async fn commits_of_the_other_side_are_looked_at_without_changing_the_repository() {
    for git in gits() {
        let w = World::new(&git).await;
        let a = w.commit(None, "a");
        w.push(&[(&a, "refs/kv/main")]).await;
        let ahead = w.commit_in(&w.remote_dir, Some(&a), "only there");
        w.run(w.remote_dir.path(), &["update-ref", "refs/kv/main", ahead.as_str()]);
        let aside = w.git.fetch_aside(&w.repo, &w.remote, &name("refs/kv/main"), PATIENCE).await.unwrap();
        assert!(aside.git().is_ancestor(&w.repo, &a, &ahead).await.unwrap());
        assert!(!w.git.has_object(&w.repo, &ahead).await.unwrap());
        assert!(!w.repo.path().join("FETCH_HEAD").exists());
        drop(aside);
        let left = std::fs::read_dir(w.repo.path().join("objects")).unwrap().flatten();
        assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with("tmp_")));
    }
}

#[tokio::test]
async fn the_url_of_a_remote_is_known_and_one_with_a_secret_is_refused_without_repeating_it() {
    for git in gits() {
        let w = World::new(&git).await;
        w.set_url("ssh://git@git.example/x.git");
        let url = w.git.remote_url(&w.repo, &w.remote).await.unwrap();
        assert_eq!(url.as_deref(), Some("ssh://***@git.example/x.git"));
        let other = RemoteName::parse("other").unwrap();
        assert_eq!(w.git.remote_url(&w.repo, &other).await.unwrap(), None);
        for secret in ["https://me:canary@git.example/x.git", "http://canary@h/x", "ssh://git:canary@h/x"] {
            w.set_url(secret);
            let error = w.git.remote_url(&w.repo, &w.remote).await.unwrap_err().to_string();
            assert!(error.contains("mirror.token") && !error.contains("canary"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_remote_that_is_asked_at_one_place_and_pushed_to_at_another_is_refused() {
    for git in gits() {
        let w = World::new(&git).await;
        w.set_url("https://git.example/a.git");
        let add = |key: &str| {
            let key = format!("remote.{}.{key}", w.remote);
            w.run(w.repo.path(), &["config", "--add", &key, "https://git.example/b.git"]);
        };
        add("pushurl");
        let error = w.git.remote_url(&w.repo, &w.remote).await.unwrap_err().to_string();
        assert!(error.contains("remove its pushurl"), "{error}");
        w.set_url("https://git.example/a.git");
        add("url");
        w.run(w.repo.path(), &["config", "--unset-all", &format!("remote.{}.pushurl", w.remote)]);
        let error = w.git.remote_url(&w.repo, &w.remote).await.unwrap_err().to_string();
        assert!(error.contains("several URLs"), "{error}");
    }
}

#[tokio::test]
async fn a_url_that_a_remote_has_already_is_not_written_again() {
    for git in gits() {
        let w = World::new(&git).await;
        let file = w.repo.path().join("config");
        let set = async |url: &str| {
            w.git.set_remote_url(&w.repo, &w.remote, url).await.unwrap();
            // git writes another file and puts it in the place of the old one.
            std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&file).unwrap())
        };
        let (first, again) = (set("ssh://git@host:2222/x.git").await, set("ssh://git@host:2222/x.git").await);
        assert_eq!(first, again);
        set("ssh://other@host:2222/x.git").await;
        let written = w.run(w.repo.path(), &["config", "--get-all", "remote.github-origin.url"]);
        assert_eq!(written, "ssh://other@host:2222/x.git");
    }
}

#[tokio::test]
async fn the_version_is_known() {
    for git in gits() {
        assert!(git.version().await.unwrap().major >= 2);
    }
}
