//! Clients that vanish, and a gateway that stops: nothing is left behind, and nothing is half done.

use std::time::Duration;

use stargate_gateway::Settings;
use stargate_testkit::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::fixture::{Fixture, PATIENCE, TestGate, processes};
use crate::log;
use crate::raw::{post_head, push_body, send};

/// Begins a push of `refs/kv/main` by hand and sends all but the last `hold_back` bytes.
pub(crate) async fn push(
    fixture: &Fixture,
    client: &Client,
    id: &str,
    hold_back: usize,
) -> (TcpStream, Vec<u8>) {
    let body = push_body(client, "refs/kv/main").await;
    let headers = format!("content-length: {}\r\nx-request-id: {id}\r\n", body.len());
    let head = post_head("/git/a", "git-receive-pack", &headers);
    let mut stream = send(fixture.address, head.as_bytes()).await;
    let (now, later) = body.split_at(body.len() - hold_back);
    stream.write_all(now).await.unwrap();
    (stream, later.to_vec())
}

fn incoming(repo: &stargate_git::RepoDir) -> Vec<String> {
    let names = std::fs::read_dir(repo.path().join("objects")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("incoming")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_client_vanishes_in_mid_pack_moves_nothing() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    crate::memory::random_file(&client.work().join("random"), 2 << 20);
    client.commit("large").await;
    let (stream, _) = push(&fixture, &client, "mid-pack", 1 << 20).await;
    eventually(PATIENCE, "the pack to be on its way", || {
        let there = !incoming(&repo).is_empty();
        async move { there.then_some(()).ok_or_else(|| "nothing yet".to_owned()) }
    })
    .await;
    drop(stream);
    fixture.nothing_left().await;
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await, None);
    assert_eq!(incoming(&repo), [""; 0], "what had arrived was not tidied up");
    assert!(!fixture.hook_file("environment").exists(), "a hook has run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_client_vanishes_before_the_hook_has_decided_moves_nothing() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    fixture.tell_hooks("wait-before");
    let (stream, _) = push(&fixture, &client, "before", 0).await;
    fixture.hook_says("at-before").await;
    drop(stream);
    fixture.nothing_left().await;
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await, None);
    assert_eq!(fixture.recorded(), [""; 0]);
}

/// The client goes at one place of the hooks, and nobody else notices.
async fn vanish_late(place: &str) {
    log::listen();
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    let head = client.work_ok(&["rev-parse", "HEAD"]).await;
    fixture.tell_hooks(&format!("wait-{place}"));
    let (stream, _) = push(&fixture, &client, &format!("late-{place}"), 0).await;
    fixture.hook_says(&format!("at-{place}")).await;
    drop(stream);
    log::says(&format!("late-{place}"), "goes on without its client").await;
    fixture.tell_hooks("go");
    fixture.nothing_left().await;
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await.unwrap().as_str(), head);
    assert_eq!(fixture.recorded(), ["a tester refs/kv/main"]);
    let journal = std::fs::read_to_string(repo.path().join(".stargate/mirror-journal.ndjson")).unwrap();
    assert_eq!(journal.matches("\"refs/kv/main\"").count(), 1, "{journal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_client_vanishes_after_the_hook_has_decided_is_finished_and_recorded() {
    vanish_late("after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_whose_client_vanishes_during_post_receive_is_recorded() {
    vanish_late("post-receive").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_may_not_be_killed_is_not_waited_for_for_ever() {
    let settings = Settings { finish_max: Duration::from_secs(2), ..Settings::default() };
    let fixture = Fixture::start_with(settings, TestGate::default()).await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    fixture.tell_hooks("wait-after");
    let (stream, _) = push(&fixture, &client, "for-ever", 0).await;
    fixture.hook_says("at-after").await;
    drop(stream);
    fixture.nothing_left().await;
    assert_eq!(fixture.oid(&repo, "refs/kv/main").await, None);
}

/// Its client went before the gateway was to stop, so it had more time then.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_without_its_client_does_not_keep_the_gateway_from_stopping() {
    log::listen();
    let fixture = Fixture::start().await;
    fixture.repo("a").await;
    let client = Client::with_commit().await;
    fixture.tell_hooks("wait-after");
    let (stream, _) = push(&fixture, &client, "gone-first", 0).await;
    fixture.hook_says("at-after").await;
    drop(stream);
    log::says("gone-first", "goes on without its client").await;
    tokio::time::timeout(PATIENCE, fixture.tasks.join()).await.expect("it does not stop");
    assert_eq!(processes(fixture.home().to_str().unwrap()), [""; 0]);
}

/// Begins to fetch everything by hand, reads a little, and then nothing more.
async fn stalled_fetch(fixture: &Fixture, oid: &str) -> TcpStream {
    let body = format!("0032want {oid}\n00000009done\n");
    let head = post_head("/git/a", "git-upload-pack", &format!("content-length: {}\r\n", body.len()));
    let mut stream = send(fixture.address, (head + &body).as_bytes()).await;
    let mut first = [0; 1000];
    stream.read_exact(&mut first).await.unwrap();
    assert!(first.starts_with(b"HTTP/1.1 200"));
    stream
}

async fn large_repo(fixture: &Fixture) -> String {
    fixture.repo("a").await;
    let client = Client::with_commit().await;
    // More than all buffers between git and a client that does not read.
    crate::memory::random_file(&client.work().join("random"), 32 << 20);
    let head = client.commit("large").await;
    client.work_ok(&["-c", "core.compression=0", "push", "--quiet", &fixture.url("a"), "main"]).await;
    fixture.nothing_left().await;
    head
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_whose_client_vanishes_is_ended() {
    let fixture = Fixture::start().await;
    let head = large_repo(&fixture).await;
    let stream = stalled_fetch(&fixture, &head).await;
    assert_ne!(processes(fixture.home().to_str().unwrap()), [""; 0], "all of it fits into buffers");
    drop(stream);
    fixture.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_nothing_is_given_up() {
    let settings = Settings { idle_max: Duration::from_secs(1), ..Settings::default() };
    let fixture = Fixture::start_with(settings, TestGate::default()).await;
    let head = large_repo(&fixture).await;
    let stream = stalled_fetch(&fixture, &head).await;
    fixture.nothing_left().await;
    drop(stream);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_stops_leaves_no_process_behind() {
    let settings = Settings { drain_max: Duration::from_millis(100), ..Settings::default() };
    let fixture = Fixture::start_with(settings, TestGate::default()).await;
    let head = large_repo(&fixture).await;
    let _stream = stalled_fetch(&fixture, &head).await;
    tokio::time::timeout(PATIENCE, fixture.tasks.join()).await.expect("it does not stop");
    assert_eq!(processes(fixture.home().to_str().unwrap()), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_a_pack_may_come_late() {
    let fixture = Fixture::start().await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    let (mut stream, later) = push(&fixture, &client, "late", 10).await;
    eventually(PATIENCE, "git to run", || {
        let runs = !processes(fixture.home().to_str().unwrap()).is_empty();
        async move { runs.then_some(()).ok_or_else(|| "not yet".to_owned()) }
    })
    .await;
    stream.write_all(&later).await.unwrap();
    let answer = crate::raw::answer(stream).await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("unpack ok") && answer.body.contains("ok refs/kv/main"), "{}", answer.body);
    assert!(fixture.oid(&repo, "refs/kv/main").await.is_some());
}
