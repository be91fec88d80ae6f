//! What a push leaves behind, and what hooks refuse.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stargate_testkit::eventually;
use stargate_testkit::process::Program;

use crate::client::{Client, ref_of};
use crate::site::Site;
use crate::{PATIENCE, json, leader, program};

const PROTECTED: &str = "[git]\nfast_forward_only = [\"refs/heads/main\"]\nmax_refs = 3\n";

async fn done(program: &Program, kind: &str, count: usize) {
    eventually(PATIENCE, &format!("{count} done {kind} jobs"), || {
        let jobs = json(program, &["job", "list", "--kind", kind, "--json"]);
        async move {
            let all = jobs.as_array().unwrap();
            let done = all.iter().filter(|job| job["state"] == "done").count();
            if done == count && all.len() == count { Ok(()) } else { Err(jobs.to_string()) }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_recorded_processed_measured_and_journaled() {
    let site = Site::open("").await;
    let client = &site.client;
    let commit = client.commit("first");
    let output = client.git(&["push", "origin", "HEAD:main", "HEAD:refs/kv/orders"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    done(&site.program, "push:process", 2).await;
    done(&site.program, "repo:size_recalc", 1).await;
    let listed = json(&site.program, &["repo", "list", "--json"]);
    assert_eq!(listed[0]["default_oid"], commit.as_str(), "{listed}");
    assert!(listed[0]["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{listed}");
    let journal = site.journal();
    assert!(journal.contains("refs/kv/orders") && !journal.contains("refs/heads/main"), "{journal}");
    assert!(journal.contains(&commit), "{journal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn protected_refs_move_forward_only_and_pushes_are_bounded() {
    let site = Site::open(PROTECTED).await;
    let client = &site.client;
    client.commit("first");
    let second = client.commit("second");
    client.must(&["push", "-q", "origin", "HEAD:main", "HEAD:refs/kv/a", "HEAD:refs/heads/free"]);
    for refspec in ["+HEAD~1:main", "+HEAD~1:refs/kv/a", ":main", ":refs/kv/a", "HEAD:refs/kv-mirror/a"] {
        let said = client.refused(&["push", "origin", refspec]);
        assert!(said.contains("stargate: refused"), "{refspec}: {said}");
    }
    client.must(&["push", "-q", "origin", "+HEAD~1:refs/heads/free"]);
    client.must(&["push", "-q", "origin", ":refs/heads/free"]);
    let many: Vec<String> = (0..4).map(|n| format!("HEAD:refs/heads/b{n}")).collect();
    let mut push = vec!["push", "origin"];
    push.extend(many.iter().map(String::as_str));
    assert!(client.refused(&push).contains("more than 3 refs"));
    assert_eq!(site.ref_of("refs/heads/main").as_deref(), Some(second.as_str()));
    assert_eq!(site.ref_of("refs/kv/a").as_deref(), Some(second.as_str()));
    assert_eq!(site.ref_of("refs/heads/b0"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_record_fails_is_accepted_with_a_warning() {
    let site = Site::open("").await;
    let client = &site.client;
    let commit = client.commit("first");
    // The journal cannot be written: its directory is a file.
    std::fs::write(site.repo().join(".stargate"), "").unwrap();
    let output = client.git(&["push", "origin", "HEAD:refs/kv/a"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("stargate: warning: the push was accepted but not journaled"), "{said}");
    assert_eq!(site.ref_of("refs/kv/a").as_deref(), Some(commit.as_str()));
    done(&site.program, "push:process", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_by_path_asks_the_node_of_the_configuration() {
    let port = stargate_testkit::process::free_port();
    let program = program(&format!("[api]\nlisten = \"127.0.0.1:{port}\"\n"));
    program.answer(&["repo", "create", "r"]);
    let repo = program.home().join("repos/r.git");
    let client = Client::new();
    client.start_at(repo.to_str().unwrap());
    let commit = client.commit("first");
    let said = client.refused(&["push", "origin", "HEAD:main"]);
    assert!(said.contains("pushes need a running"), "{said}");
    assert_eq!(ref_of(&repo, "refs/heads/main"), None);
    let address = format!("127.0.0.1:{port}");
    let mut node = program.start(&["up", "--listen", &address]);
    eventually(PATIENCE, "the push", || {
        let (output, log) = (client.git(&["push", "origin", "HEAD:main"]), node.log());
        async move {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() { Ok(()) } else { Err(format!("{said}; log:\n{log}")) }
        }
    })
    .await;
    assert_eq!(ref_of(&repo, "refs/heads/main").as_deref(), Some(commit.as_str()));
    done(&program, "push:process", 1).await;
    node.terminate();
    assert!(node.ended(PATIENCE).await.success());
}

/// Nobody else writes while the store is held; the hook gives up in time, and the push stands.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_delays_a_push_and_does_not_refuse_it() {
    let site = Site::open("").await;
    let client = &site.client;
    let commit = client.commit("first");
    let held = rusqlite::Connection::open(site.program.home().join("stargate.db")).unwrap();
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    let output = client.git(&["push", "origin", "HEAD:refs/kv/a"]);
    held.execute_batch("ROLLBACK").unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("its follow-up work was not recorded"), "{said}");
    assert_eq!(site.ref_of("refs/kv/a").as_deref(), Some(commit.as_str()));
    let journal = site.journal();
    assert!(journal.contains(&commit), "the journal needs no store: {journal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_was_admitted_in_another_term_is_refused() {
    let port = stargate_testkit::process::free_port();
    let program = program(&format!("[api]\nlisten = \"127.0.0.1:{port}\"\n"));
    program.answer(&["repo", "create", "r"]);
    let listen = format!("127.0.0.1:{port}");
    let _node = program.start(&["up", "--listen", &listen]);
    let repo = program.home().join("repos/r.git");
    let client = Client::new();
    client.start_at(repo.to_str().unwrap());
    client.commit("first");
    let push = |epoch: &str| {
        let output = client.git_with(&["push", "origin", "HEAD:main"], &[("STARGATE_EPOCH", epoch)]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    eventually(PATIENCE, "a refusal by the leader", || {
        let (pushed, said) = push("999");
        async move {
            assert!(!pushed, "{said}");
            if said.contains("stargate: not leader") { Ok(()) } else { Err(said) }
        }
    })
    .await;
    assert_eq!(ref_of(&repo, "refs/heads/main"), None);
    let (pushed, said) = push("1");
    assert!(pushed, "{said}");
}

/// What a client was told to be accepted is journaled and has its job, wherever the node was when it died (INV-1).
#[tokio::test(flavor = "multi_thread")]
async fn pushes_that_were_acknowledged_survive_the_death_of_the_node() {
    let program = program("");
    program.answer(&["repo", "create", "r"]);
    let client = Client::new();
    client.start_at("http://127.0.0.1:1");
    let mut acknowledged = Vec::new();
    for round in 0..5 {
        let node = Arc::new(Mutex::new(leader(&program, "a").await));
        let url = format!("http://{}/git/r.git", node.lock().unwrap().address());
        let mut killer = None;
        for n in 0..20 {
            let commit = client.commit(&format!("{round} {n}"));
            if n == 2 {
                // Not for correctness: in each round the kill is to fall somewhere else in the push that begins now.
                let (node, after) = (Arc::clone(&node), Duration::from_millis(60 * round));
                killer = Some(std::thread::spawn(move || {
                    std::thread::sleep(after);
                    node.lock().unwrap().kill();
                }));
            }
            if !client.git(&["push", "-q", &url, "HEAD:refs/kv/a"]).status.success() {
                break;
            }
            acknowledged.push(commit);
        }
        killer.into_iter().for_each(|killer| killer.join().unwrap());
    }
    assert!(acknowledged.len() >= 10, "the two before each kill");
    let _node = leader(&program, "a").await;
    let journal = program.home().join("repos/r.git/.stargate/mirror-journal.ndjson");
    let journal = std::fs::read_to_string(journal).unwrap_or_default();
    for commit in &acknowledged {
        let needle = format!("\"new_oid\":\"{commit}\"");
        assert_eq!(journal.matches(&needle).count(), 1, "{commit} in {journal}");
    }
    let least = acknowledged.len();
    eventually(PATIENCE, "the work of all acknowledged pushes", || {
        let jobs = json(
            &program,
            &["job", "list", "--kind", "push:process", "--state", "done", "--limit", "100", "--json"],
        );
        async move {
            let done = jobs.as_array().unwrap().len();
            if done >= least { Ok(()) } else { Err(format!("{done} of {least}")) }
        }
    })
    .await;
}

/// What a repository brings along from elsewhere is kept, and told.
#[test]
fn hooks_are_written_anew_and_those_of_others_are_kept() {
    let program = program("");
    program.answer(&["repo", "create", "r"]);
    let hook = program.home().join("repos/r.git/hooks/pre-receive");
    let before = std::fs::read_to_string(&hook).unwrap();
    let script = "#!/bin/sh\nexit 1\n";
    std::fs::write(&hook, script).unwrap();
    let said = program.answer(&["hook", "install", "r"]);
    let kept = hook.with_file_name("pre-receive.before-stargate");
    assert!(said.contains(kept.to_str().unwrap()) && said.contains("does not run any more"), "{said}");
    assert_eq!(std::fs::read_to_string(&hook).unwrap(), before);
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), script);
    assert_eq!(json(&program, &["hook", "install", "--all", "--json"])["kept"], serde_json::json!([]));
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), script);
    assert_eq!(program.run(&["hook", "install", "nothing"]).status.code(), Some(3));
}

/// A repository that was brought here from elsewhere may name another directory for its hooks.
#[tokio::test(flavor = "multi_thread")]
async fn hooks_run_whatever_the_configuration_of_the_repository_says() {
    let site = Site::open("").await;
    let elsewhere = site.program.home().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let (repo, elsewhere) = (site.repo(), elsewhere.display().to_string());
    site.client.must(&["-C", repo.to_str().unwrap(), "config", "core.hooksPath", &elsewhere]);
    let commit = site.client.commit("first");
    let said = site.client.refused(&["push", "origin", "HEAD:refs/kv-mirror/a"]);
    assert!(said.contains("stargate: refused"), "{said}");
    site.client.must(&["push", "-q", "origin", "HEAD:refs/kv/a"]);
    assert!(site.journal().contains(&commit), "{}", site.journal());
}
