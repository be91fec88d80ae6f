//! Sources that somebody made to do harm, or that are simply broken.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use stargate_base::ErrorClass;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::{
    CLIP_FAILED, FFMPEG_MISSING, INPUT_TOO_LARGE, SOURCE_NOT_FOUND, SOURCE_UNAVAILABLE, SOURCE_UNREADABLE,
    SSRF_BLOCKED,
};
use super::fixture::{Bench, assert_failure};
use crate::fetch::{Fetcher, Reach};

/// The next connection, after its request.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    stream
}

/// Answers every connection with these bytes, again and again if `endless`.
async fn serve(listener: &TcpListener, answer: Vec<u8>, endless: bool) -> std::convert::Infallible {
    loop {
        let mut stream = accept(listener).await;
        while stream.write_all(&answer).await.is_ok() && endless {}
        let _ = stream.shutdown().await;
    }
}

async fn listen(address: Ipv4Addr) -> (TcpListener, String) {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let url = format!("http://{}/a.mp4?token=hidden", listener.local_addr().unwrap());
    (listener, url)
}

#[tokio::test]
async fn names_that_look_like_something_else_are_just_names() {
    let bench = Bench::new();
    // Sound is enough, and cut in no time.
    let good = bench.video("good.m4a", 25, &["-map", "1:a"]).await;
    let names = [
        "with space.mp4",
        "it's \"quoted\".mp4",
        "-i",
        "-y -f null.mp4",
        "line\nend.mp4",
        "concat:a|b.mp4",
        "http:x.mp4",
        "pipe:0",
        "frame%03d.mp4",
        "glob*[a-z]?.mp4",
        "$(touch pwned);`x`&.mp4",
        "ünïcode \u{202e}.mp4",
    ];
    let cuts = names.map(|name| {
        let path = bench.path(name);
        std::fs::copy(&good, &path).unwrap();
        async move {
            let bench = Bench::new();
            let result = bench.cut(path.to_str().unwrap(), 1.0, 2.0).await;
            assert!(result.is_ok(), "{name:?}: {result:?}");
        }
    });
    futures::future::join_all(cuts).await;
    assert!(!Path::new("pwned").exists());
}

#[tokio::test]
async fn files_that_name_other_files_are_not_followed() {
    let (listener, url) = listen(Ipv4Addr::LOCALHOST).await;
    let bench = Bench::new();
    let good = bench.video("good.mp4", 25, &[]).await;
    let good = good.to_str().unwrap();
    let playlist =
        |target: &str| format!("#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXTINF:6.0,\n{target}\n#EXT-X-ENDLIST\n");
    let concat = format!("ffconcat version 1.0\nfile '{good}'\n");
    let dash = format!(
        "<?xml version=\"1.0\"?><MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" type=\"static\"><Period>\
         <AdaptationSet mimeType=\"video/mp4\"><Representation id=\"1\"><BaseURL>{url}</BaseURL>\
         </Representation></AdaptationSet></Period></MPD>"
    );
    for (name, text) in [
        ("http.m3u8", playlist(&url)),
        ("file.m3u8", playlist("file:///etc/passwd")),
        ("good.m3u8", playlist(good)),
        ("renamed.mp4", playlist(good)),
        ("concat.txt", concat.clone()),
        ("concat.mp4", concat),
        ("dash.mpd", dash),
        (
            "session.sdp",
            "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n".into(),
        ),
        ("list.pls", format!("[playlist]\nFile1={url}\nNumberOfEntries=1\n")),
        ("title.srt", "1\n00:00:00,000 --> 00:00:05,000\nhello\n".into()),
        ("text.mp4", "this is no video\n".repeat(100)),
        (
            "picture.svg",
            "<svg xmlns=\"http://www.w3.org/2000/svg\"><image href=\"/etc/passwd\"/></svg>".into(),
        ),
    ] {
        std::fs::write(bench.path(name), text).unwrap();
        let failure = bench.failure(bench.path(name).to_str().unwrap()).await;
        assert_failure(&failure, SOURCE_UNREADABLE, name);
        assert_eq!(failure.error.class, ErrorClass::ValidationFailure);
        assert!(failure.error.detail.is_some(), "{name}: {failure:?}");
        assert!(bench.scratch().is_empty(), "{name}");
    }
    let contacted = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    assert!(contacted.is_err(), "a server named in a file was contacted");
}

#[tokio::test]
async fn what_is_empty_broken_or_no_file_is_refused() {
    let bench = Bench::new();
    let good = bench.video("good.mp4", 25, &[]).await;
    let bytes = std::fs::read(&good).unwrap();
    std::fs::write(bench.path("empty.mp4"), b"").unwrap();
    std::fs::write(bench.path("truncated.mp4"), &bytes[..bytes.len() / 2]).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, bench.path("fifo.mp4"), 0o600.into()).unwrap();
    symlink("loop.mp4", bench.path("loop.mp4")).unwrap();
    symlink("/dev/zero", bench.path("device.mp4")).unwrap();
    for (name, code, says) in [
        ("empty.mp4", SOURCE_UNREADABLE, "is empty"),
        ("truncated.mp4", SOURCE_UNREADABLE, "truncated.mp4"),
        ("fifo.mp4", SOURCE_UNREADABLE, "not a regular file"),
        ("device.mp4", SOURCE_UNREADABLE, "not a regular file"),
        ("loop.mp4", SOURCE_UNREADABLE, "loop.mp4"),
        (".", SOURCE_UNREADABLE, "not a regular file"),
        ("missing.mp4", SOURCE_NOT_FOUND, "missing.mp4"),
        ("good.mp4/x", SOURCE_NOT_FOUND, "does not exist"),
    ] {
        let failure = bench.failure(bench.path(name).to_str().unwrap()).await;
        assert_failure(&failure, code, says);
        assert_eq!(failure.error.class, ErrorClass::ValidationFailure);
    }
    assert!(bench.scratch().is_empty());
    assert!(!bench.artifact().exists());
}

#[tokio::test]
async fn a_recording_that_breaks_off_is_never_published() {
    let bench = Bench::new();
    let good = bench.video("good.mp4", 250, &["-movflags", "+faststart"]).await;
    let bytes = std::fs::read(&good).unwrap();
    let cut = bench.path("cut.mp4");
    std::fs::write(&cut, &bytes[..bytes.len() * 6 / 10]).unwrap();
    let failure = bench.cut(cut.to_str().unwrap(), 1.5, 5.5).await.unwrap_err();
    assert_eq!(failure.error.class, ErrorClass::ValidationFailure, "{failure:?}");
    assert!(!bench.artifact().exists());
}

#[tokio::test]
async fn only_files_below_the_given_directories_are_read() {
    let mut bench = Bench::new();
    bench.video("outside.mp4", 25, &["-map", "1:a"]).await;
    let root = bench.path("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::copy(bench.path("outside.mp4"), root.join("inside.mp4")).unwrap();
    symlink(bench.path("outside.mp4"), root.join("link.mp4")).unwrap();
    symlink(&root, bench.path("alias")).unwrap();
    bench.settings.source_roots = vec![bench.path("alias")];
    for name in ["root/inside.mp4", "alias/inside.mp4", "root/../root/inside.mp4"] {
        assert!(bench.cut(bench.path(name).to_str().unwrap(), 1.0, 2.0).await.is_ok(), "{name}");
        std::fs::remove_dir_all(bench.path("artifacts")).unwrap();
    }
    for name in ["outside.mp4", "root/link.mp4", "root/../outside.mp4", "absent.mp4", "root/../absent.mp4"] {
        let failure = bench.failure(bench.path(name).to_str().unwrap()).await;
        assert_failure(&failure, SOURCE_UNREADABLE, "clip.source_dirs");
    }
    let failure = bench.failure(root.join("absent.mp4").to_str().unwrap()).await;
    assert_failure(&failure, SOURCE_NOT_FOUND, "absent.mp4");
}

#[tokio::test]
async fn a_source_over_the_limit_is_refused() {
    let mut bench = Bench::new();
    let path = bench.video("a.mp4", 25, &[]).await;
    bench.settings.input_bytes_max = 1000;
    assert_failure(&bench.failure(path.to_str().unwrap()).await, INPUT_TOO_LARGE, "1000 bytes");
}

#[tokio::test]
async fn an_endless_stream_ends_at_the_limit_and_leaves_nothing() {
    let mut bench = Bench::new();
    bench.settings.allow_private = true;
    bench.settings.input_bytes_max = 1 << 20;
    let (listener, url) = listen(Ipv4Addr::LOCALHOST).await;
    let answer = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &[0; 64 << 10]].concat();
    let failure = tokio::select! {
        failure = bench.failure(&url) => failure,
        never = serve(&listener, answer, true) => match never {},
    };
    assert_failure(&failure, INPUT_TOO_LARGE, "/a.mp4");
    assert!(!failure.error.message.contains("hidden"), "{}", failure.error.message);
    assert!(bench.scratch().is_empty());
}

#[tokio::test]
async fn a_slow_stream_ends_with_the_execution_and_leaves_nothing() {
    let mut bench = Bench::new();
    bench.settings.allow_private = true;
    let (listener, url) = listen(Ipv4Addr::LOCALHOST).await;
    let slow = async {
        let mut stream = accept(&listener).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").await.unwrap();
        let begun = || bench.scratch().iter().any(|dir| dir.join("source").exists());
        while !begun() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        bench.stopping.cancel();
        std::future::pending::<()>().await;
    };
    let failure = tokio::select! {
        failure = bench.failure(&url) => failure,
        () = slow => unreachable!(),
    };
    assert_eq!(failure.error.message, "stopped");
    assert!(bench.scratch().is_empty());
}

#[tokio::test]
async fn a_recording_is_downloaded_and_cut() {
    let mut bench = Bench::new();
    bench.settings.allow_private = true;
    let path = bench.video("a.mp4", 25, &[]).await;
    let body = std::fs::read(path).unwrap();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    let (listener, url) = listen(Ipv4Addr::LOCALHOST).await;
    let result = tokio::select! {
        result = bench.cut(&url, 1.0, 2.0) => result,
        never = serve(&listener, [head.as_bytes(), &body].concat(), false) => match never {},
    };
    assert!(result.is_ok(), "{result:?}");
    assert!(bench.scratch().is_empty());
}

#[tokio::test]
async fn servers_that_cannot_or_will_not_are_told_apart() {
    let mut bench = Bench::new();
    bench.settings.allow_private = true;
    let (listener, url) = listen(Ipv4Addr::LOCALHOST).await;
    for (status, code, class) in [
        ("404 Not Found", SOURCE_NOT_FOUND, ErrorClass::ValidationFailure),
        ("403 Forbidden", SOURCE_UNREADABLE, ErrorClass::ValidationFailure),
        ("503 Busy\r\nretry-after: 9", SOURCE_UNAVAILABLE, ErrorClass::RetryableTransient),
    ] {
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").into_bytes();
        let failure = tokio::select! {
            failure = bench.failure(&url) => failure,
            never = serve(&listener, answer, false) => match never {},
        };
        assert_failure(&failure, code, "/a.mp4 answered");
        assert_eq!(failure.error.class, class);
        assert!(!failure.error.message.contains("hidden"));
        let wait = (code == SOURCE_UNAVAILABLE).then_some(Duration::from_secs(9));
        assert_eq!(failure.retry_after, wait);
    }
    drop(listener);
    assert_failure(&bench.failure(&url).await, SOURCE_UNAVAILABLE, "could not be reached");
    assert!(bench.scratch().is_empty());
}

#[tokio::test]
async fn private_addresses_are_blocked_also_behind_a_redirect() {
    let bench = Bench::new();
    for url in [
        "http://127.0.0.1:9/a.mp4",
        "http://localhost:9/a",
        "http://[::1]:9/",
        "http://0x7f.1/",
        "https://10.0.0.1/",
    ] {
        let failure = bench.failure(url).await;
        assert_failure(&failure, SSRF_BLOCKED, "clip.allow_private");
        assert_eq!(failure.error.class, ErrorClass::ValidationFailure);
    }
    // Another local address plays the public host that redirects.
    let outside = Ipv4Addr::new(127, 0, 0, 2);
    let (listener, url) = listen(outside).await;
    let mut clip = bench.clip();
    clip.fetcher = Fetcher::new(Reach::Pretend(IpAddr::V4(outside)), Duration::from_secs(5)).unwrap();
    let answer = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/secret\r\ncontent-length: 0\r\n\r\n";
    let payload = json!({ "source": url, "start": 0, "end": 1 });
    let failure = tokio::select! {
        result = bench.run_with(&clip, &payload) => result.unwrap_err(),
        never = serve(&listener, answer.to_vec(), false) => match never {},
    };
    assert_failure(&failure, SSRF_BLOCKED, "leads to a private address");
    assert!(bench.scratch().is_empty());
}

#[tokio::test]
async fn objects_without_access_to_s3_are_fatal() {
    let failure = Bench::new().failure("s3://bucket/key.mp4").await;
    assert_failure(&failure, SOURCE_UNAVAILABLE, "no access to S3");
    assert_eq!(failure.error.class, ErrorClass::Fatal);
}

#[tokio::test]
async fn a_missing_ffmpeg_is_fatal_and_says_what_to_do() {
    let mut bench = Bench::new();
    let path = bench.video("a.mp4", 25, &[]).await;
    let source = path.to_str().unwrap();
    bench.settings.ffmpeg = "no-such-ffmpeg".into();
    let failure = bench.failure(source).await;
    assert_failure(&failure, FFMPEG_MISSING, "install ffmpeg");
    assert_eq!(failure.error.class, ErrorClass::Fatal);
    bench.settings.ffprobe = bench.path("no-such-ffprobe");
    assert_failure(&bench.failure(source).await, FFMPEG_MISSING, "no-such-ffprobe");
}

/// A program that does something before, or instead of, the real ffmpeg.
pub(super) fn program(bench: &Bench, script: &str) -> std::path::PathBuf {
    let path = bench.path("ffmpeg.sh");
    let staged = bench.path("staged.sh");
    std::fs::write(&staged, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&staged, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let _ = std::fs::remove_file(&path);
    std::fs::hard_link(&staged, &path).unwrap();
    std::fs::remove_file(&staged).unwrap();
    path
}

#[tokio::test]
async fn an_ffmpeg_that_dies_is_tried_again_and_its_words_are_kept() {
    let mut bench = Bench::new();
    let source = bench.video("a.mp4", 25, &[]).await;
    for script in ["echo no luck >&2; kill -9 $$", "echo 'no luck: No space left on device' >&2; exit 1"] {
        bench.settings.ffmpeg = program(&bench, script);
        let failure = bench.failure(source.to_str().unwrap()).await;
        assert_failure(&failure, CLIP_FAILED, "ffmpeg");
        assert_eq!(failure.error.class, ErrorClass::RetryableTransient);
        assert!(failure.error.detail.as_ref().unwrap().starts_with("no luck"), "{failure:?}");
    }
}

#[tokio::test]
async fn a_stopped_or_dropped_cut_leaves_no_process() {
    for dropped in [false, true] {
        let mut bench = Bench::new();
        let source = bench.video("a.mp4", 25, &[]).await;
        let mark = bench.path("group");
        let script = format!(
            "trap '' TERM; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 600; done",
            mark.display()
        );
        bench.settings.ffmpeg = program(&bench, &script);
        let begun = async {
            while !mark.exists() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let cut = bench.failure(source.to_str().unwrap());
        if dropped {
            tokio::select! { failure = cut => panic!("{failure:?}"), () = begun => {} }
        } else {
            let stop = async {
                begun.await;
                bench.stopping.cancel();
            };
            let (failure, ()) = tokio::join!(cut, stop);
            assert_eq!(failure.error.message, "stopped");
        }
        let group = std::fs::read_to_string(&mark).unwrap().trim().parse().unwrap();
        let group = rustix::process::Pid::from_raw(group).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while rustix::process::test_kill_process_group(group).is_ok() {
            assert!(Instant::now() < deadline, "the group {group:?} is still there");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!bench.artifact().exists());
    }
}
