//! What is not served: strange paths, missing rights, bombs, bodies without end, and too many at once.

use std::path::Path;
use std::time::Duration;

use stargate_gateway::{Denied, Settings};
use stargate_testkit::eventually;
use tokio::io::AsyncWriteExt as _;

use crate::client::Client;
use crate::fixture::{Fixture, PATIENCE, TOKEN, TestGate, basic, processes};
use crate::log;
use crate::raw::{answer, get, post_head, send};

const ADVERTISE: &str = "/info/refs?service=git-upload-pack";

#[tokio::test(flavor = "multi_thread")]
async fn the_first_answer_is_framed_as_its_version_wants_and_never_cached() {
    let fixture = Fixture::start().await;
    fixture.repo("a").await;
    let path = format!("/git/a.git{ADVERTISE}");
    let old = get(fixture.address, &path, "").await;
    assert_eq!(old.status, 200);
    assert!(old.head.contains("content-type: application/x-git-upload-pack-advertisement"), "{}", old.head);
    assert!(old.head.contains("cache-control: no-cache"), "{}", old.head);
    assert!(old.body.contains("001e# service=git-upload-pack\n0000"), "{}", old.body);
    let new = get(fixture.address, &path, "git-protocol: version=2\r\n").await;
    assert!(new.body.contains("000eversion 2\n") && !new.body.contains("# service"), "{}", new.body);
    let push =
        get(fixture.address, "/git/a/info/refs?service=git-receive-pack", "git-protocol: version=2\r\n")
            .await;
    assert!(push.body.contains("001f# service=git-receive-pack\n0000"), "{}", push.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_that_lead_elsewhere_lead_nowhere() {
    let fixture = Fixture::start().await;
    fixture.repo("a").await;
    // A real repository beside the root, which every one of these would reach.
    crate::fixture::git()
        .init_bare(
            &fixture.home().join("outside.git"),
            &stargate_git::Init {
                default_branch: stargate_git::RefName::parse("refs/heads/main").unwrap(),
                sha256: false,
            },
        )
        .await
        .unwrap();
    std::os::unix::fs::symlink(fixture.home().join("outside.git"), fixture.home().join("repos/link.git"))
        .unwrap();
    std::os::unix::fs::symlink(fixture.home(), fixture.home().join("repos/links")).unwrap();
    let absolute = format!("{}/outside.git", fixture.home().display());
    for name in [
        "../outside.git",
        "a/../../outside.git",
        "%2e%2e/outside.git",
        "..%2foutside.git",
        "%2e%2e%2foutside.git",
        "%252e%252e%252foutside.git",
        "..%5coutside.git",
        &absolute,
        &absolute.replacen('/', "%2f", 1),
        "a.git%00",
        "a%00.git",
        "link.git",
        "links/outside.git",
        "a.git/../a.git",
        "./a.git",
        "/a.git",
        ".trash",
        ".pushes/x",
        "b.git",
        "-a.git",
    ] {
        let answer = get(fixture.address, &format!("/git/{name}{ADVERTISE}"), "").await;
        assert_eq!(answer.status, 404, "{name}: {}", answer.body);
        assert!(!answer.body.contains("refs/"), "{name}");
    }
    for path in ["/git/a.git/HEAD", "/git/a.git/config", "/git/a.git/objects/info/packs", "/git/"] {
        assert_eq!(get(fixture.address, path, "").await.status, 404, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn git_shows_its_user_why() {
    let fixture = Fixture::start().await;
    fixture.repo("a").await;
    let client = Client::with_commit().await;
    let missing = client.run(&["ls-remote", &fixture.url("b")]).await;
    assert!(missing.stderr.contains("remote: NOT_FOUND: no such repository"), "{}", missing.stderr);

    let leader = Some("http://10.0.0.2:8080".to_owned());
    let denied = Denied::NotLeader { leader, retry_after: Duration::from_secs(2) };
    *fixture.gate.deny.lock().unwrap() = Some(denied);
    let refused = client.run_in_work(&["push", &fixture.url("a"), "main"]).await;
    assert!(
        refused.stderr.contains("remote: NOT_LEADER: this node does not take pushes"),
        "{}",
        refused.stderr
    );
    assert!(
        refused.stderr.contains("http://10.0.0.2:8080") && refused.stderr.contains("503"),
        "{}",
        refused.stderr
    );
    let raw = get(fixture.address, "/git/a/info/refs?service=git-receive-pack", "").await;
    assert!(raw.head.contains("retry-after: 2"), "{}", raw.head);
    assert!(raw.head.contains("x-stargate-leader: http://10.0.0.2:8080"), "{}", raw.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_open_what_they_may_and_nothing_else() {
    log::listen();
    let gate = TestGate { tokens: true, ..TestGate::default() };
    let fixture = Fixture::start_with(Settings::default(), gate).await;
    let repo = fixture.repo("a").await;
    let client = Client::with_commit().await;
    let bare = fixture.url("a");
    let with = |token: &str| bare.replacen("http://", &format!("http://git:{token}@"), 1);

    let missing = client.run(&["ls-remote", &bare]).await;
    assert!(!missing.succeeded());
    let raw = get(fixture.address, &format!("/git/a{ADVERTISE}"), "").await;
    assert_eq!(raw.status, 401);
    assert!(raw.head.contains("www-authenticate: basic realm=\"stargate\""), "{}", raw.head);
    // What is not there cannot be told from what one may not see.
    assert_eq!(get(fixture.address, &format!("/git/b{ADVERTISE}"), "").await.status, 401);

    assert!(!client.run(&["ls-remote", &with("wrong")]).await.succeeded());
    assert!(client.run(&["ls-remote", &with("reader")]).await.succeeded());
    let refused = client.run_in_work(&["push", &with("reader"), "main"]).await;
    assert!(refused.stderr.contains("remote: FORBIDDEN: this token may only read"), "{}", refused.stderr);
    assert_eq!(fixture.oid(&repo, "refs/heads/main").await, None);

    // Large enough that the client tries with an empty request first.
    crate::memory::random_file(&client.work().join("random"), 2 << 20);
    client.commit("large").await;
    let pushed = client.run_in_work(&["push", &with(TOKEN), "main"]).await;
    assert!(pushed.succeeded(), "{}", pushed.stderr);
    let bearer = format!("authorization: Bearer {TOKEN}\r\n");
    assert_eq!(get(fixture.address, &format!("/git/a{ADVERTISE}"), &bearer).await.status, 200);
    let header = format!("authorization: {}\r\n", basic(TOKEN));
    assert_eq!(get(fixture.address, &format!("/git/a{ADVERTISE}"), &header).await.status, 200);

    // Nothing of it is written anywhere (INV-8), however much is logged.
    let encoded = basic(TOKEN).replace("Basic ", "");
    let log = log::text();
    assert!(log.contains("UNAUTHENTICATED"), "nothing was logged at all");
    assert!(!log.contains(TOKEN) && !log.contains(&encoded));
    assert_eq!(files_with(fixture.home(), TOKEN), [""; 0]);
}

/// The files below a directory that contain a text.
fn files_with(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_with(&path, text));
        } else if std::fs::read(&path).unwrap().windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_body_is_not_asked_for() {
    let gate = TestGate { tokens: true, ..TestGate::default() };
    let fixture = Fixture::start_with(Settings::default(), gate).await;
    fixture.repo("a").await;
    let head = post_head("/git/a", "git-receive-pack", "content-length: 1000000\r\nexpect: 100-continue\r\n");
    let refused = answer(send(fixture.address, head.as_bytes()).await).await;
    assert_eq!(refused.status, 401);

    let header = format!("authorization: {}\r\ncontent-length: 4\r\nexpect: 100-continue\r\n", basic(TOKEN));
    let mut stream = send(fixture.address, post_head("/git/a", "git-receive-pack", &header).as_bytes()).await;
    let mut first = [0; 25];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"0000").await.unwrap();
    // The same request with which git tries whether it may push.
    let tried = answer(stream).await;
    assert_eq!(tried.status, 200, "{}", tried.body);
    assert!(tried.head.contains("content-type: application/x-git-receive-pack-result"), "{}", tried.head);
}

fn small_bounds() -> Settings {
    Settings { fetch_request_bytes_max: 1 << 20, push_bytes_max: 1 << 20, ..Settings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_is_stopped_while_it_is_unpacked() {
    let fixture = Fixture::start_with(small_bounds(), TestGate::default()).await;
    fixture.repo("a").await;
    let client = Client::with_commit().await;
    let head = client.work_ok(&["rev-parse", "HEAD"]).await;
    client.work_ok(&["push", "--quiet", &fixture.url("a"), "main"]).await;
    // Some 25 MB of lines that git takes one after the other, packed to a fraction of what is taken.
    let want = format!("0032want {head}\n0000");
    let have = format!("0032have {}\n", "1".repeat(40));
    let create = format!("0067{} {head} refs/heads/x\n", "0".repeat(40));
    let create = create.replacen("0067", &format!("{:04x}", create.len()), 1);
    for (service, first, line) in [("git-upload-pack", &*want, have), ("git-receive-pack", "", create)] {
        let packed = gzip(first, &line.repeat(1 << 16), 8).await;
        assert!(packed.len() < 1 << 18, "{} bytes", packed.len());
        let headers = format!("content-encoding: gzip\r\ncontent-length: {}\r\n", packed.len());
        let mut request = post_head("/git/a", service, &headers).into_bytes();
        request.extend(&packed);
        let refused = answer(send(fixture.address, &request).await).await;
        assert_eq!(refused.status, 413, "{service}: {refused:?}");
    }
    let garbled = post_head("/git/a", "git-upload-pack", "content-encoding: gzip\r\ncontent-length: 7\r\n");
    let refused = answer(send(fixture.address, (garbled + "no gzip").as_bytes()).await).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    fixture.nothing_left().await;
}

/// A text, and another one many times, as gzip.
async fn gzip(first: &str, text: &str, times: usize) -> Vec<u8> {
    let mut encoder = async_compression::tokio::write::GzipEncoder::new(Vec::new());
    encoder.write_all(first.as_bytes()).await.unwrap();
    for _ in 0..times {
        encoder.write_all(text.as_bytes()).await.unwrap();
    }
    encoder.shutdown().await.unwrap();
    encoder.into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_end_is_refused_at_its_bound() {
    let fixture = Fixture::start_with(small_bounds(), TestGate::default()).await;
    let repo = fixture.repo("a").await;
    // One that says how large it is, is not even begun.
    let ten_gigabytes = post_head("/git/a", "git-receive-pack", "content-length: 10737418240\r\n");
    let refused = answer(send(fixture.address, ten_gigabytes.as_bytes()).await).await;
    assert_eq!(refused.status, 413);

    let client = Client::with_commit().await;
    crate::memory::random_file(&client.work().join("random"), 8 << 20);
    client.commit("large").await;
    let pushed = client.run_in_work(&["push", &fixture.url("a"), "main"]).await;
    assert!(!pushed.succeeded());
    assert_eq!(fixture.oid(&repo, "refs/heads/main").await, None);
    fixture.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_falls_silent_is_sent_away() {
    let settings = Settings { idle_max: Duration::from_secs(1), ..Settings::default() };
    let fixture = Fixture::start_with(settings, TestGate::default()).await;
    fixture.repo("a").await;
    let head = post_head("/git/a", "git-receive-pack", "content-length: 1000\r\n");
    let refused = answer(send(fixture.address, (head + "00").as_bytes()).await).await;
    assert_eq!(refused.status, 408, "{refused:?}");
    fixture.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bodies_and_methods_are_refused() {
    let fixture = Fixture::start().await;
    fixture.repo("a").await;
    let wrong = "POST /git/a/git-receive-pack HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                 content-type: text/plain\r\ncontent-length: 4\r\n\r\n0000";
    assert_eq!(answer(send(fixture.address, wrong.as_bytes()).await).await.status, 415);
    assert_eq!(get(fixture.address, "/git/a/git-upload-pack", "").await.status, 405);
    assert_eq!(get(fixture.address, "/git/a/info/refs", "").await.status, 400);
    assert_eq!(
        get(fixture.address, &format!("/git/a{ADVERTISE}"), "git-protocol: a b\r\n").await.status,
        400
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_when_everything_is_taken_is_told_when_to_return() {
    let settings = Settings {
        fetches_max: 1,
        waiting_max: 0,
        idle_max: Duration::from_secs(600),
        ..Settings::default()
    };
    let fixture = Fixture::start_with(settings, TestGate::default()).await;
    fixture.repo("a").await;
    // A fetch that does not go on holds the only slot.
    let head = post_head("/git/a", "git-upload-pack", "content-length: 1000\r\n");
    let held = send(fixture.address, head.as_bytes()).await;
    let address = fixture.address;
    let home = fixture.home().to_str().unwrap();
    eventually(PATIENCE, "the slot to be taken", || async move {
        if processes(home).is_empty() { Err("no git runs".to_owned()) } else { Ok(()) }
    })
    .await;
    let busy = get(address, &format!("/git/a{ADVERTISE}"), "").await;
    assert_eq!(busy.status, 503);
    assert!(busy.head.contains("retry-after: 5") && busy.body.contains("BUSY"), "{busy:?}");
    drop(held);
    eventually(PATIENCE, "the slot to be free", || async move {
        let answer = get(address, &format!("/git/a{ADVERTISE}"), "").await;
        if answer.status == 200 { Ok(()) } else { Err(format!("{}", answer.status)) }
    })
    .await;
}
