//! Nodes that stop or die while a push is under way: it is accepted whole or not at all, and what is accepted is
//! journaled and recorded, now or after the restart (INV-1).

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use stargate_testkit::eventually;

use crate::PATIENCE;
use crate::site::{OFTEN, Site, exists, hold};

/// How the node ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    /// SIGTERM.
    Asked,
    /// SIGKILL.
    Killed,
}

impl End {
    async fn of(self, site: &mut Site) {
        match self {
            Self::Asked => {
                site.node.terminate();
                let log = || site.node.log();
                eventually(PATIENCE, "the node to hear it", || {
                    let log = log();
                    async move { if log.contains("stopping") { Ok(()) } else { Err(log) } }
                })
                .await;
            }
            Self::Killed => site.node.kill(),
        }
    }

    /// Waits until the node is gone.
    async fn complete(self, site: &mut Site) {
        if self == Self::Asked {
            let status = site.node.ended(PATIENCE).await;
            assert!(status.success(), "{status}: {}", site.node.log());
        }
        gone(site).await;
    }
}

/// Waits until no process works in the repository any more.
async fn gone(site: &Site) {
    let repo = site.repo();
    eventually(PATIENCE, "the end of all processes of the push", || {
        let left = working_in(&repo);
        async move { if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) } }
    })
    .await;
}

fn working_in(dir: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let works = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
    };
    let words = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ")
    };
    processes.filter(works).map(words).collect()
}

/// Whatever became of the push, everybody agrees on it, and the next one is taken.
async fn consistent(site: &mut Site, commit: &str, accepted: bool) {
    site.restart().await;
    let expected = accepted.then(|| commit.to_owned());
    assert_eq!(site.ref_of("refs/kv/a"), expected);
    let count = usize::from(accepted);
    let needle = format!("\"new_oid\":\"{commit}\"");
    let events = site.recorded(count).await;
    assert_eq!(events.iter().filter(|event| event.contains(commit)).count(), count, "{events:?}");
    assert!(site.journal().matches(&needle).count() <= count, "{}", site.journal());
    let next = site.client.commit("next");
    site.client.must(&["push", "-q", "origin", "HEAD:refs/kv/a"]);
    assert_eq!(site.ref_of("refs/kv/a"), Some(next));
    site.recorded(count + 1).await;
}

/// Sends the head of a push and the beginning of its pack, and no more.
fn begin_push(site: &Site) -> TcpStream {
    let command = format!("{} {} refs/kv/a\0report-status", "0".repeat(40), site.client.head());
    let mut stream = TcpStream::connect(site.node.address()).unwrap();
    let head = format!(
        "POST /git/r.git/git-receive-pack HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 100000\r\n\
         content-type: application/x-git-receive-pack-request\r\n\r\n{:04x}{command}0000PACK\0\0\0\u{2}\0\0\0\u{3}",
        command.len() + 4
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

async fn in_mid_pack(end: End) {
    let mut site = Site::open(OFTEN).await;
    let commit = site.client.commit("first");
    let mut stream = begin_push(&site);
    eventually(PATIENCE, "the push to begin", || {
        let runs = !working_in(&site.repo()).is_empty();
        async move { if runs { Ok(()) } else { Err("no git".to_owned()) } }
    })
    .await;
    end.of(&mut site).await;
    end.complete(&mut site).await;
    let mut answer = Vec::new();
    // A node that was killed cuts the connection, and the client learns nothing else.
    let read = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(!answer.contains(" 200 "), "{answer}");
    if end == End::Asked {
        let why = ["BUSY", "NOT_LEADER"].iter().any(|code| answer.contains(code));
        assert!(read.is_ok() && answer.contains(" 503 ") && why, "{answer}");
        assert_eq!(site.left_over(), [""; 0]);
    }
    consistent(&mut site, &commit, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_stopped_in_mid_pack_refuses_the_push() {
    in_mid_pack(End::Asked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_in_mid_pack_has_accepted_nothing() {
    in_mid_pack(End::Killed).await;
}

/// The node ends while `pre-receive` has not decided: nobody leads any more, so it refuses.
async fn before_the_decision(end: End) {
    let mut site = Site::open(OFTEN).await;
    let commit = site.client.commit("first");
    let [there, go] = hold(&site.hook("pre-receive"), site.program.home());
    let pushing = site.pushing("HEAD:refs/kv/a");
    exists(&there).await;
    end.of(&mut site).await;
    std::fs::write(go, "").unwrap();
    let output = pushing.join().unwrap();
    end.complete(&mut site).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    consistent(&mut site, &commit, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_is_not_decided_when_the_node_stops_is_refused() {
    before_the_decision(End::Asked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_is_not_decided_when_the_node_dies_is_refused() {
    before_the_decision(End::Killed).await;
}

/// The node ends when refs have moved: the push is finished, with its node or without.
async fn after_the_decision(end: End) {
    let mut site = Site::open(OFTEN).await;
    let commit = site.client.commit("first");
    let [there, go] = hold(&site.hook("post-receive"), site.program.home());
    let pushing = site.pushing("HEAD:refs/kv/a");
    exists(&there).await;
    end.of(&mut site).await;
    std::fs::write(go, "").unwrap();
    let output = pushing.join().unwrap();
    end.complete(&mut site).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.success(), end == End::Asked, "{said}");
    assert!(site.journal().contains(&commit), "the hook has ended its work: {said}");
    consistent(&mut site, &commit, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_is_accepted_when_the_node_stops_is_finished_and_recorded() {
    after_the_decision(End::Asked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_is_accepted_when_the_node_dies_is_recorded_by_its_hook() {
    after_the_decision(End::Killed).await;
}

/// A hook that does not end does not keep the node from ending, and the next leader records what it did not.
#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_outlasts_the_node_is_ended_and_its_push_is_recorded_after_the_restart() {
    let mut site = Site::open(OFTEN).await;
    let commit = site.client.commit("first");
    let hook = site.hook("post-receive");
    let [there, _] = hold(&hook, site.program.home());
    let pushing = site.pushing("HEAD:refs/kv/a");
    exists(&there).await;
    End::Asked.of(&mut site).await;
    End::Asked.complete(&mut site).await;
    let said = pushing.join().unwrap();
    assert!(!site.journal().contains(&commit), "{said:?}");
    crate::site::restore(&hook);
    consistent(&mut site, &commit, true).await;
}
