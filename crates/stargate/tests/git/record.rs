//! Pushes whose hook could not record them are recorded by the leader (INV-1).

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use stargate_testkit::eventually;
use stargate_testkit::process::Program;

use crate::client::Client;
use crate::{PATIENCE, json, leader, program};

/// Rounds often enough that a test sees several.
const OFTEN: &str = "[mirror]\nreconcile_every = \"1s\"\n";

/// An event as `ref new_oid pusher`.
fn events(program: &Program) -> Vec<String> {
    let store = rusqlite::Connection::open(program.home().join("stargate.db")).unwrap();
    let text =
        "select ref_name || ' ' || new_oid || ' ' || coalesce(pusher, '-') from push_event order by id";
    let mut select = store.prepare(text).unwrap();
    let rows = select.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

/// Waits for so many events, each with a job that is done, and no more.
async fn recorded(program: &Program, count: usize) -> Vec<String> {
    eventually(PATIENCE, &format!("{count} recorded and processed pushes"), || {
        let jobs = json(program, &["job", "list", "--kind", "push:process", "--json"]);
        let events = events(program);
        async move {
            let all = jobs.as_array().unwrap();
            let done = all.iter().filter(|job| job["state"] == "done").count();
            if (done, all.len(), events.len()) == (count, count, count) {
                return Ok(events);
            }
            Err(format!("{events:?} {jobs}"))
        }
    })
    .await
}

fn hook(program: &Program) -> PathBuf {
    program.home().join("repos/r.git/hooks/post-receive")
}

/// Puts a script in the place of the hook, which it finds beside itself as `$0.real`.
fn replace(hook: &Path, script: &str) {
    let real = hook.with_file_name("post-receive.real");
    if !real.exists() {
        std::fs::copy(hook, real).unwrap();
    }
    std::fs::write(hook, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(hook, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn restore(hook: &Path) {
    std::fs::copy(hook.with_file_name("post-receive.real"), hook).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_hook_did_not_record_is_recorded_once() {
    let program = program(OFTEN);
    let node = leader(&program, "a").await;
    program.answer(&["repo", "create", "r"]);
    let client = Client::new();
    client.clone_from(&format!("http://{}/git/r.git", node.address()));
    let first = client.commit("first");
    client.must(&["push", "-q", "origin", "HEAD:main", "HEAD:gone"]);
    recorded(&program, 2).await;

    replace(&hook(&program), "kill -9 $$");
    let second = client.commit("second");
    client.git(&["push", "-q", "origin", "HEAD:main", "HEAD:refs/kv/a", "HEAD:refs/tags/v1", ":gone"]);
    let found = recorded(&program, 6).await;
    for name in ["refs/heads/main", "refs/kv/a", "refs/tags/v1"] {
        assert!(found.contains(&format!("{name} {second} reconcile")), "{found:?}");
    }
    assert!(found.contains(&format!("refs/heads/gone {} reconcile", "0".repeat(40))), "{found:?}");
    let listed = json(&program, &["repo", "list", "--json"]);
    assert_eq!(listed[0]["default_oid"], second.as_str(), "{listed}");

    // Back to where it was, and a push with its hook after that: nothing else turns up in the rounds between.
    client.git(&["push", "-q", "-f", "origin", &format!("{first}:main")]);
    assert_eq!(recorded(&program, 7).await[6], format!("refs/heads/main {first} reconcile"));
    restore(&hook(&program));
    let third = client.commit("third");
    client.must(&["push", "-q", "origin", "HEAD:main"]);
    let last = recorded(&program, 8).await;
    assert!(last[7].contains(&third) && !last[7].ends_with("reconcile"), "{last:?}");
}

/// The first node leaves a push unrecorded; the second looks when its term begins, not a day later.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_records_what_the_one_before_it_did_not() {
    let program = program("[mirror]\nreconcile_every = \"24h\"\n");
    let mut node = leader(&program, "a").await;
    program.answer(&["repo", "create", "r"]);
    let client = Client::new();
    client.clone_from(&format!("http://{}/git/r.git", node.address()));
    let commit = client.commit("first");
    let held = rusqlite::Connection::open(program.home().join("stargate.db")).unwrap();
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    let output = client.git(&["push", "origin", "HEAD:main"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    node.kill();
    held.execute_batch("ROLLBACK").unwrap();
    assert!(output.status.success() && said.contains("its follow-up work was not recorded"), "{said}");
    assert_eq!(events(&program), [""; 0]);
    let _successor = leader(&program, "b").await;
    assert_eq!(recorded(&program, 1).await, [format!("refs/heads/main {commit} reconcile")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_is_later_than_the_leader_records_nothing_twice() {
    let program = program(OFTEN);
    let node = leader(&program, "a").await;
    program.answer(&["repo", "create", "r"]);
    let client = Client::new();
    client.clone_from(&format!("http://{}/git/r.git", node.address()));
    let commit = client.commit("first");
    let go = program.home().join("go");
    let script = format!("while [ ! -e '{}' ]; do sleep 0.1; done\nexec \"$0.real\" \"$@\"", go.display());
    replace(&hook(&program), &script);
    let pushing = std::thread::spawn(move || (client.git(&["push", "origin", "HEAD:main"]), client));
    let found = recorded(&program, 1).await;
    assert_eq!(found, [format!("refs/heads/main {commit} reconcile")]);
    std::fs::write(go, "").unwrap();
    let (output, client) = pushing.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    assert_eq!(recorded(&program, 1).await, found);
    client.commit("second");
    client.must(&["push", "-q", "origin", "HEAD:main"]);
    assert_eq!(recorded(&program, 2).await[0], found[0]);
}
