//! Sources that want to do harm: each ends with a clear code, and no program and no file stays behind.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use stargate_queue::State;

use crate::scratch::total;
use crate::server::Server;
use crate::stage::Stage;
use crate::{processes, video};

/// Failed jobs keep their scratch; nothing of these may be large.
const SCRATCH_MAX: u64 = 4 << 20;

/// Files that try to have ffmpeg open something else, and files that are no video.
fn bad_files() -> BTreeMap<&'static str, String> {
    let secret = "/etc/passwd";
    let own = video::plain().display().to_string();
    let playlist =
        |target: &str| format!("#EXTM3U\n#EXT-X-TARGETDURATION:40\n#EXTINF:40,\n{target}\n#EXT-X-ENDLIST\n");
    BTreeMap::from([
        ("empty.mp4", String::new()),
        ("text.mp4", "not a video\n".repeat(1000)),
        ("file.m3u8", playlist(&format!("file://{secret}"))),
        ("video.m3u8", playlist(&own)),
        ("http.m3u8", playlist("http://127.0.0.1:9/secret")),
        ("concat.m3u8", playlist(&format!("concat:{own}|{secret}"))),
        ("disguised.mp4", playlist(&own)),
        ("list.ffconcat", format!("ffconcat version 1.0\nfile '{own}'\n")),
        ("list.mp4", format!("ffconcat version 1.0\nfile '{own}'\n")),
        (
            "movie.mpd",
            format!(
                "<MPD><Period><AdaptationSet><Representation><BaseURL>{own}</BaseURL></Representation></AdaptationSet></Period></MPD>"
            ),
        ),
        (
            "session.sdp",
            "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n"
                .to_owned(),
        ),
    ])
}

fn cut(source: &str) -> Value {
    json!({ "source": source, "start": 0.5, "end": 1.5 })
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_look_like_options_or_worse_are_only_names() {
    let stage = Stage::sqlite("").await;
    let folder = stage.home().join("so rce's");
    std::fs::create_dir(&folder).unwrap();
    let mut jobs = Vec::new();
    for name in [
        "with space.mp4",
        "quo'te\".mp4",
        "line\nfeed.mp4",
        "$(touch pwned)`touch pwned`;&|.mp4",
        "%03d.mp4",
        "file:x.mp4",
        "[0:v]*?\\ü.mp4",
    ] {
        std::fs::copy(video::plain(), folder.join(name)).unwrap();
        let path = folder.join(name);
        jobs.push((name, stage.enqueue("clip", &cut(path.to_str().unwrap()))));
    }
    // Relative to the directory of the worker, so that nothing stands before them.
    for name in ["-i", "-y.mp4", "concat:a|b", "pipe:0"] {
        std::fs::copy(video::plain(), stage.home().join(name)).unwrap();
        jobs.push((name, stage.enqueue("clip", &cut(name))));
    }
    let _worker = stage.worker().await;
    for (name, id) in jobs {
        let job = stage.ends(id, State::Done).await;
        assert_eq!(job.attempt_count, 1, "{name:?}: {job:?}");
        stage.check_artifact(id, 1.0).await;
    }
    assert_eq!(stage.scratch().len(), 0);
    assert!(!stage.home().join("pwned").exists());
    processes::all_gone(stage.home()).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_no_video_or_point_elsewhere_are_unreadable() {
    let stage = Stage::sqlite("").await;
    let mut jobs = Vec::new();
    for (name, text) in bad_files() {
        let path = stage.home().join(name);
        std::fs::write(&path, text).unwrap();
        jobs.push((name, stage.enqueue("clip", &cut(path.to_str().unwrap())), "SOURCE_UNREADABLE"));
    }
    let folder = stage.home().display().to_string();
    let fifo = stage.home().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for (name, source, code) in [
        ("missing", format!("{folder}/missing.mp4"), "SOURCE_NOT_FOUND"),
        ("directory", folder.clone(), "SOURCE_UNREADABLE"),
        ("pipe that nobody writes", fifo.display().to_string(), "SOURCE_UNREADABLE"),
        ("device", "/dev/zero".to_owned(), "SOURCE_UNREADABLE"),
    ] {
        jobs.push((name, stage.enqueue("clip", &cut(&source)), code));
    }
    fail_at_once(&stage, jobs).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_inside_and_other_protocols_are_refused() {
    let stage = Stage::sqlite("").await;
    let server = Server::start().await;
    let port = server.port();
    let mut jobs = Vec::new();
    for source in [
        format!("http://127.0.0.1:{port}/video"),
        format!("http://localhost:{port}/video"),
        format!("http://127.1:{port}/video"),
        format!("http://2130706433:{port}/video"),
        format!("http://0x7f.0.0.1:{port}/video"),
        format!("http://0.0.0.0:{port}/video"),
        format!("http://[::1]:{port}/video"),
        format!("http://[::ffff:127.0.0.1]:{port}/video"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://10.0.0.1/video".to_owned(),
        "http://192.168.1.1/video".to_owned(),
        "http://[fe80::1]/video".to_owned(),
    ] {
        jobs.push((source.clone(), stage.enqueue("clip", &cut(&source)), "SSRF_BLOCKED"));
    }
    fail_at_once(&stage, jobs).await;
    assert_eq!(server.requests(), [""; 0], "an address was asked before it was refused");
    // Refused because they are no source at all: which of the codes is not the point, but none is ever tried.
    let _worker = stage.worker().await;
    for source in
        ["ftp://example.com/v.mp4", "file:///etc/passwd", "data:video/mp4,x", "concat:a|b", "gopher://x/"]
    {
        let id = stage.enqueue("clip", &cut(source));
        let job = stage.ends(id, State::Failed).await;
        assert_eq!(job.attempt_count, 1, "{source}: {job:?}");
        assert_ne!(job.error.as_ref().unwrap().code, "RETRIES_EXHAUSTED", "{source}: {job:?}");
    }
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_sends_is_bounded_and_only_video_is_read() {
    let stage = Stage::sqlite("clip.allow_private = true\nclip.max_input = \"3MiB\"\n").await;
    let server = Server::start().await;
    let good = stage.enqueue("clip", &cut(&server.url("/video")));
    let moved = stage.enqueue("clip", &cut(&server.url("/moved")));
    let jobs = vec![
        ("endless", stage.enqueue("clip", &cut(&server.url("/endless"))), "INPUT_TOO_LARGE"),
        ("announced", stage.enqueue("clip", &cut(&server.url("/announced"))), "INPUT_TOO_LARGE"),
        ("missing", stage.enqueue("clip", &cut(&server.url("/missing"))), "SOURCE_NOT_FOUND"),
        ("empty", stage.enqueue("clip", &cut(&server.url("/empty"))), "SOURCE_UNREADABLE"),
        ("playlist", stage.enqueue("clip", &cut(&server.url("/list.m3u8"))), "SOURCE_UNREADABLE"),
    ];
    fail_at_once(&stage, jobs).await;
    for id in [good, moved] {
        stage.ends(id, State::Done).await;
        stage.check_artifact(id, 1.0).await;
    }
    assert!(!server.requests().iter().any(|path| path == "/inner"), "the playlist was followed");
    stage.close().await;
}

/// All jobs fail at their first attempt, with these codes, and leave nothing that runs or is large.
async fn fail_at_once(stage: &Stage, jobs: Vec<(impl std::fmt::Display, stargate_queue::JobId, &str)>) {
    let mut worker = stage.worker().await;
    let mut wrong = Vec::new();
    for (what, id, code) in &jobs {
        let job = stage.ends(*id, State::Failed).await;
        let error = job.error.as_ref().expect("a failed job says why");
        if (error.code.as_str(), job.attempt_count) != (*code, 1) {
            wrong.push(format!("{what}: {code} expected, attempt {}: {error:?}", job.attempt_count));
        }
        assert_eq!(stage.result_names(*id), [""; 0], "{what} has a result");
    }
    assert_eq!(wrong, [""; 0], "{}", worker.log());
    stage.is_idle().await;
    processes::all_gone(stage.home()).await;
    let left = total(Path::new(&stage.home().join("scratch")));
    assert!(left <= SCRATCH_MAX, "{left} bytes of scratch: {:?}", stage.scratch());
    assert!(worker.is_running(), "{}", worker.log());
    worker.terminate();
    assert!(worker.ended(crate::PATIENCE).await.success(), "{}", worker.log());
}
