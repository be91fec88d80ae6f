//! What git says about pushes, and that nothing but what was asked for happens.

use std::path::Path;

use rustix::process::{Pid, Signal};
use stargate_git::{End, Error, Flag, Git, Lease, Push, Update};
use stargate_testkit::git::executable;

use crate::fixture::{PATIENCE, World, eventually, gits, name};

fn flags(answer: &stargate_git::PushAnswer) -> Vec<(Flag, Option<&str>)> {
    answer.lines.iter().map(|line| (line.flag, line.reason.as_deref())).collect()
}

#[tokio::test]
async fn a_ref_is_made_moved_forward_and_left_alone() {
    for git in gits() {
        for sha256 in [false, true] {
            let w = World::with(&git, sha256).await;
            let a = w.commit(None, "a");
            let b = w.commit(Some(&a), "b");
            let answer = w.push(&[(&a, "refs/kv/main"), (&a, "refs/kv-mirror/main")]).await;
            assert_eq!((answer.end, flags(&answer)), (End::Exited(0), vec![(Flag::New, None); 2]));
            let answer = w.push(&[(&b, "refs/kv/main")]).await;
            assert_eq!(flags(&answer), [(Flag::FastForward, None)]);
            let answer = w.push(&[(&b, "refs/kv/main")]).await;
            assert_eq!((answer.end, flags(&answer)), (End::Exited(0), vec![(Flag::UpToDate, None)]));
            assert_eq!(w.remote_ref("refs/kv/main").as_deref(), Some(b.as_str()));
        }
    }
}

#[tokio::test]
async fn a_ref_never_goes_back_whatever_the_configuration_says() {
    for git in gits() {
        let w = World::new(&git).await;
        let a = w.commit(None, "a");
        let b = w.commit(Some(&a), "b");
        w.push(&[(&b, "refs/kv/main")]).await;
        w.run(w.repo.path(), &["config", "remote.github-origin.push", "+refs/*:refs/*"]);
        w.run(w.repo.path(), &["config", "remote.github-origin.mirror", "true"]);
        w.run(w.repo.path(), &["config", "push.followTags", "true"]);
        let answer = w.push(&[(&a, "refs/kv/main")]).await;
        assert_eq!(answer.end, End::Exited(1));
        assert_eq!(flags(&answer), [(Flag::Rejected, Some("non-fast-forward"))]);
        assert_eq!(w.remote_ref("refs/kv/main").as_deref(), Some(b.as_str()), "INV-4");
    }
}

#[tokio::test]
async fn all_refs_are_moved_or_none() {
    for git in gits() {
        let w = World::new(&git).await;
        w.remote_hook("update", "case $1 in refs/kv-index/*) echo 'not you' >&2; exit 1;; esac");
        let a = w.commit(None, "a");
        let answer = w.push(&[(&a, "refs/kv/main"), (&a, "refs/kv-index/main")]).await;
        assert_eq!(answer.end, End::Exited(1));
        let reasons: Vec<_> = answer.lines.iter().filter_map(|line| line.reason.clone()).collect();
        assert!(reasons.contains(&"hook declined".to_owned()), "{reasons:?}");
        assert!(answer.stderr.contains("not you"));
        assert_eq!(w.remote_ref("refs/kv/main"), None);
    }
}

#[tokio::test]
async fn a_lease_that_does_not_hold_refuses_the_push_and_none_drags_a_data_ref_back() {
    for git in gits() {
        let w = World::new(&git).await;
        let a = w.commit(None, "a");
        let b = w.commit(Some(&a), "b");
        let push = async |oid: &stargate_git::Oid, expected: Option<&stargate_git::Oid>| {
            let updates =
                ["refs/kv/main", "refs/kv-mirror/main"].map(|to| Update { oid: oid.clone(), to: name(to) });
            let leases = [Lease { name: name("refs/kv-mirror/main"), expected: expected.cloned() }];
            let push = Push {
                repo: &w.repo,
                remote: &w.remote,
                updates: &updates,
                leases: &leases,
                timeout: PATIENCE,
            };
            w.git.push(&push).await.unwrap()
        };
        assert_eq!(push(&b, None).await.end, End::Exited(0));
        let again = push(&b, None).await;
        assert!(again.lines.iter().all(|line| line.flag != Flag::New), "{again:?}");
        let stale = push(&a, Some(&a)).await;
        assert!(flags(&stale).contains(&(Flag::Rejected, Some("stale info"))), "{stale:?}");
        let matching = push(&a, Some(&b)).await;
        assert_eq!(matching.end, End::Exited(1));
        for r in ["refs/kv/main", "refs/kv-mirror/main"] {
            assert_eq!(w.remote_ref(r).as_deref(), Some(b.as_str()), "{r} went back (INV-4)");
        }
    }
}

#[tokio::test]
async fn hooks_and_variables_of_this_side_play_no_part() {
    for git in gits() {
        let w = World::new(&git).await;
        let mark = w.dir.path().join("ran");
        executable(&w.repo.path().join("hooks/pre-push"), &format!("touch {}; exit 1", mark.display()));
        let a = w.commit(None, "a");
        assert_eq!(w.push(&[(&a, "refs/kv/main")]).await.end, End::Exited(0));
        assert!(!mark.exists(), "pre-push ran");

        let seen = w.dir.path().join("env");
        let fake = executable(&w.dir.path().join("fake"), &format!("env > {}", seen.display()));
        let fake = Git::new(fake, std::env::var_os("PATH").unwrap());
        let updates = [Update { oid: a, to: name("refs/kv/main") }];
        let push =
            Push { repo: &w.repo, remote: &w.remote, updates: &updates, leases: &[], timeout: PATIENCE };
        fake.push(&push).await.unwrap();
        let seen = std::fs::read_to_string(seen).unwrap();
        let mut names: Vec<&str> = seen.lines().filter_map(|line| line.split('=').next()).collect();
        names.retain(|name| !["PWD", "_", "SHLVL", "OLDPWD"].contains(name));
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "GIT_ALLOW_PROTOCOL",
                "GIT_CONFIG_GLOBAL",
                "GIT_CONFIG_NOSYSTEM",
                "GIT_DIR",
                "GIT_NO_REPLACE_OBJECTS",
                "GIT_SSH_COMMAND",
                "GIT_TERMINAL_PROMPT",
                "HOME",
                "LC_ALL",
                "PATH"
            ]
        );
        assert!(seen.contains("GIT_ALLOW_PROTOCOL=https:ssh\n"));
    }
}

#[tokio::test]
async fn transports_that_are_not_listed_and_programs_as_remotes_are_refused() {
    for git in gits() {
        let w = World::new(&git).await;
        let a = w.commit(None, "a");
        let mark = w.dir.path().join("ran");
        let updates = [Update { oid: a.clone(), to: name("refs/kv/main") }];
        let push =
            Push { repo: &w.repo, remote: &w.remote, updates: &updates, leases: &[], timeout: PATIENCE };
        // The default: https and ssh.
        let answer = git.push(&push).await.unwrap();
        assert_eq!(answer.end, End::Exited(128));
        assert!(answer.stderr.contains("transport 'file' not allowed"), "{}", answer.stderr);
        w.set_url(&format!("ext::sh -c touch% {}", mark.display()));
        let answer = w.push(&[(&a, "refs/kv/main")]).await;
        assert!(answer.stderr.contains("transport 'ext' not allowed"), "{}", answer.stderr);
        assert!(!mark.exists());
        assert_eq!(w.remote_ref("refs/kv/main"), None);
    }
}

#[tokio::test]
async fn a_push_that_would_delete_or_move_nothing_is_refused_here() {
    let w = World::new(&gits()[0]).await;
    let zero = w.commit(None, "a").zero_like();
    let updates = [Update { oid: zero, to: name("refs/kv/main") }];
    for updates in [&updates[..], &[]] {
        let push = Push { repo: &w.repo, remote: &w.remote, updates, leases: &[], timeout: PATIENCE };
        assert!(matches!(w.git.push(&push).await, Err(Error::Invalid { .. })));
    }
}

/// The remote's git is a child of the push; killed like it, it would leave its lock and refuse every push to come.
#[tokio::test]
async fn a_killed_push_leaves_no_lock_in_a_remote_that_is_a_folder() {
    for git in gits() {
        let w = World::new(&git).await;
        let (locked, remote) = (w.repo.path().join("locked"), w.remote_dir.path());
        let hold =
            format!("test $1 = prepared || exit 0; touch {}; while :; do sleep 0.01; done", locked.display());
        w.remote_hook("reference-transaction", &hold);
        let a = w.commit(None, "a");
        let kill = async {
            eventually("the ref is locked", || locked.exists()).await;
            assert!(remote.join("refs/kv/main.lock").exists());
            kill_push_in(w.repo.path());
        };
        let updates = [(&a, "refs/kv/main")];
        let (answer, ()) = tokio::join!(w.push(&updates), kill);
        assert_eq!(answer.end, End::Killed(9));
        assert!(!remote.join("refs/kv/main.lock").exists(), "the lock was left");
        w.remote_hook("reference-transaction", "exit 0");
        assert_eq!(flags(&w.push(&updates).await), [(Flag::New, None)]);
    }
}

/// Kills the first process of the push, and nothing that it has started.
fn kill_push_in(folder: &Path) {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let push = processes.filter(|process| {
        let words = std::fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        let there = std::fs::read_link(process.path().join("cwd")).ok();
        words.contains("\0push\0") && there.as_deref() == Some(folder)
    });
    let ids: Vec<i32> =
        push.filter_map(|process| process.file_name().to_str().and_then(|id| id.parse().ok())).collect();
    let [id] = ids[..] else { panic!("not one push: {ids:?}") };
    rustix::process::kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).unwrap();
}
