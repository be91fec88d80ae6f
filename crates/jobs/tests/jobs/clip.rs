//! Clips in a real engine, with real ffmpeg.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Value, json};
use stargate_artifact::local::Local;
use stargate_artifact::s3::{self, S3};
use stargate_artifact::{Artifacts as _, Found, Key, Permit, Publisher, Unobserved};
use stargate_base::{Secret, Tasks};
use stargate_jobs::clip::{self, Clip, Settings};
use stargate_jobs::process::{self, Spec};
use stargate_queue::retry::{RETRIES_EXHAUSTED, TIMEOUT};
use stargate_queue::{Profile, State};
use stargate_testkit::s3::Corner;

use crate::fixture::{Fixture, profile, result, scratch};

fn settings() -> Settings {
    Settings {
        inherited: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        grace: Duration::from_millis(200),
        ..Settings::default()
    }
}

async fn start_s3(corner: &Corner) -> (Fixture, Arc<S3>) {
    let settings = s3::Settings {
        bucket: corner.bucket.clone(),
        prefix: corner.prefix.clone(),
        endpoint: Some(corner.endpoint.clone()),
        region: "us-east-1".to_owned(),
        access_key_id: Some(corner.access_key.clone()),
        secret_access_key: Some(Secret::new(&corner.secret_key)),
        session_token: None,
    };
    let artifacts = Arc::new(S3::new(&settings, Tasks::new()).unwrap());
    let handler = |dir: &Path| {
        let sources = Arc::new(s3::Sources::new(settings));
        Clip::new(self::settings(), artifacts.clone(), scratch(dir), Some(sources)).unwrap()
    };
    let f = Fixture::start(|dir, registry| {
        registry.register(clip::KIND, profile(), Arc::new(handler(dir))).unwrap();
    })
    .await;
    (f, artifacts)
}

async fn start(profile: Profile, change: impl FnOnce(&Path, &mut Settings)) -> Fixture {
    Fixture::start(|dir, registry| {
        let mut settings = settings();
        change(dir, &mut settings);
        let artifacts = Arc::new(Local::new(dir.join("artifacts")));
        let handler = Clip::new(settings, artifacts, scratch(dir), None).unwrap();
        registry.register(clip::KIND, profile, Arc::new(handler)).unwrap();
    })
    .await
}

/// Six seconds with a key frame every second.
async fn video(dir: &Path) -> PathBuf {
    let path = dir.join("source.mp4");
    let options = "-hide_banner -loglevel error -nostdin -f lavfi -i testsrc2=size=160x120:rate=25:duration=6 \
        -f lavfi -i sine=duration=6 -c:v libx264 -preset veryfast -g 25 -keyint_min 25 -sc_threshold 0 -c:a aac";
    let mut args: Vec<String> = options.split_ascii_whitespace().map(str::to_owned).collect();
    args.push(path.to_str().unwrap().to_owned());
    let spec = Spec { program: "ffmpeg", args: &args, working_dir: None, env: settings().inherited };
    let (mut process, _pipes) =
        process::start(&spec).expect("ffmpeg is needed: install the package, or run cargo xtask services");
    assert!(process.wait().await.unwrap().success());
    path
}

fn files(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A script in the place of ffmpeg that says its group and hangs.
fn hang(dir: &Path, settings: &mut Settings) {
    let script = "trap '' TERM; echo $$ > \"$0.group.new\"; mv \"$0.group.new\" \"$0.group\"; while :; do sleep 600; done";
    let path = dir.join("ffmpeg.sh");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    settings.ffmpeg = path;
}

async fn hanging(f: &Fixture) -> String {
    let path = f.dir.path().join("ffmpeg.sh.group");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !path.exists() {
        assert!(Instant::now() < deadline, "ffmpeg was not started");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_clip_is_published_and_its_timeline_is_in_order() {
    let f = start(profile(), |_, _| {}).await;
    let source = video(f.dir.path()).await;
    let job = f.run("clip", json!({ "source": source, "start": "00:00:01.500", "end": 4 })).await;
    let result = result(&job);
    assert_eq!(
        (&result["key"], &result["mode"]),
        (&json!(format!("results/{}/clip.mp4", job.id)), &json!("encode"))
    );
    assert_eq!(job.percent(), 100);
    let mut names = f.event_names(job.id).await;
    names.dedup();
    assert_eq!(names, ["created", "processing", "source:ready", "progress", "uploaded", "done"]);
    let events = f.store.events(job.id, 0, 1000).await.unwrap();
    let percentages: Vec<u64> = events
        .iter()
        .filter(|event| event.event == "progress")
        .map(|event| serde_json::from_str::<Value>(event.data.get()).unwrap()["pct"].as_u64().unwrap())
        .collect();
    assert!(percentages.is_sorted() && percentages.iter().all(|percent| *percent <= 99), "{percentages:?}");
    let dir = f.dir.path().join(format!("artifacts/results/{}", job.id));
    assert_eq!(files(&dir), ["clip.mp4", "clip.mp4.json"]);
    assert_eq!(files(&f.dir.path().join("scratch")), [""; 0]);
    f.stop().await;
}

/// Every attempt may publish.
struct Allowed;

#[async_trait]
impl Permit for Allowed {
    async fn holds(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn an_object_is_cut_and_published_in_a_bucket() {
    let corner = Corner::create();
    let (f, artifacts) = start_s3(&corner).await;
    let source = video(f.dir.path()).await;
    let by = Publisher { attempt: "0-1", permit: &Allowed, about: None, steps: &Unobserved };
    let key = Key::new("sources/a.mp4".to_owned()).unwrap();
    artifacts.publish(&key, &source, by).await.unwrap();
    let payload = |name: &str| json!({ "source": format!("{}/{name}", corner.url()), "start": 1, "end": 3 });

    let job = f.run("clip", payload("sources/a.mp4")).await;
    let result = result(&job);
    assert_eq!(result["mode"], "copy");
    let key = Key::result(job.id, "clip.mp4").unwrap();
    let Found::Valid(manifest) = artifacts.find(&key).await.unwrap() else { panic!("no artifact") };
    assert_eq!(
        (json!(manifest.sha256), json!(manifest.size)),
        (result["sha256"].clone(), result["size"].clone())
    );

    let job = f.run("clip", payload("sources/absent.mp4")).await;
    assert_eq!((job.attempt_count, job.error.unwrap().code.as_str()), (1, clip::SOURCE_NOT_FOUND));
    assert_eq!(files(&f.dir.path().join("scratch")), [""; 0]);
    f.stop().await;
}

#[tokio::test]
async fn a_hopeless_source_fails_at_once_and_a_missing_server_is_tried_again() {
    let f = start(profile(), |_, settings| settings.allow_private = true).await;
    let job = f.run("clip", json!({ "source": "/no/such/file.mp4", "start": 0, "end": 1 })).await;
    let error = job.error.unwrap();
    assert_eq!((job.attempt_count, error.code.as_str()), (1, clip::SOURCE_NOT_FOUND));
    let job = f.run("clip", json!({ "source": "a.mp4", "start": 3, "end": 1 })).await;
    assert_eq!((job.attempt_count, job.error.unwrap().code.as_str()), (1, "VALIDATION_FAILED"));
    // Nobody listens on the port of a listener that is gone.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a.mp4", listener.local_addr().unwrap());
    drop(listener);
    let job = f.run("clip", json!({ "source": url, "start": 0, "end": 1 })).await;
    let error = job.error.unwrap();
    assert_eq!((job.attempt_count, error.code.as_str()), (3, RETRIES_EXHAUSTED));
    assert!(format!("{error:?}").contains(clip::SOURCE_UNAVAILABLE), "{error:?}");
    assert_eq!(files(&f.dir.path().join("scratch")), [""; 0]);
    f.stop().await;
}

#[tokio::test]
async fn a_cancelled_clip_leaves_no_process_and_no_artifact() {
    let f = start(profile(), hang).await;
    let source = video(f.dir.path()).await;
    let id = f.enqueue("clip", json!({ "source": source, "start": 1, "end": 2 })).await;
    let group = hanging(&f).await;
    f.store.cancel(id).await.unwrap();
    assert_eq!(f.finished(id).await.state, State::Cancelled);
    crate::exec::group_gone(&group).await;
    assert_eq!(files(&f.dir.path().join("artifacts")), [""; 0]);
    f.stop().await;
}

#[tokio::test]
async fn a_clip_that_takes_too_long_is_ended() {
    let profile = Profile { timeout: Duration::from_secs(3), max_attempts: 1, ..profile() };
    let f = start(profile, hang).await;
    let source = video(f.dir.path()).await;
    let id = f.enqueue("clip", json!({ "source": source, "start": 1, "end": 2 })).await;
    let group = hanging(&f).await;
    let job = f.finished(id).await;
    let error = job.error.unwrap();
    assert!(error.code == TIMEOUT || error.message.contains(TIMEOUT), "{error:?}");
    crate::exec::group_gone(&group).await;
    assert_eq!(files(&f.dir.path().join("artifacts")), [""; 0]);
    f.stop().await;
}

#[tokio::test]
async fn a_job_that_is_run_again_adopts_its_artifact() {
    let f = start(profile(), |_, _| {}).await;
    let source = video(f.dir.path()).await;
    let id = f.enqueue("clip", json!({ "source": source, "start": 1, "end": 2 })).await;
    let first = result(&f.finished(id).await);
    // As if the worker had died between the publication and the record of it.
    let other = start(profile(), |_, _| {}).await;
    let here = f.dir.path().join(format!("artifacts/results/{id}"));
    let there = other.dir.path().join(format!("artifacts/results/{id}"));
    std::fs::create_dir_all(&there).unwrap();
    for name in files(&here) {
        std::fs::copy(here.join(&name), there.join(&name)).unwrap();
    }
    std::fs::remove_file(&source).unwrap();
    let job = other.run("clip", json!({ "source": source, "start": 1, "end": 2 })).await;
    assert_eq!(job.id, id, "both stores begin with the same number");
    let second = result(&job);
    let mut expected = first.clone();
    expected["adopted"] = true.into();
    assert_eq!(second, expected);
    assert_eq!(other.event_names(id).await, ["created", "processing", "uploaded", "done"]);
    f.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_publication_that_stands_still_costs_no_attempts() {
    let f = Fixture::start(|dir, registry| {
        let artifacts = Local::new(dir.join("artifacts")).with_lock_patience(Duration::from_millis(10));
        let settings = Settings { busy_delay: Duration::from_millis(10), ..settings() };
        let handler = Clip::new(settings, Arc::new(artifacts), scratch(dir), None).unwrap();
        let once = Profile { max_attempts: 1, ..profile() };
        registry.register(clip::KIND, once, Arc::new(handler)).unwrap();
    })
    .await;
    let source = video(f.dir.path()).await;
    let partial = f.dir.path().join("artifacts/.partial");
    std::fs::create_dir_all(&partial).unwrap();
    // The first job of a store is number 1.
    let held = std::fs::File::create(partial.join("results+1+clip.mp4.lock")).unwrap();
    held.lock().unwrap();
    let id = f.enqueue("clip", json!({ "source": source, "start": 1, "end": 2 })).await;
    assert_eq!(id.to_string(), "1");
    stargate_testkit::eventually(Duration::from_secs(60), "several rounds", || async {
        let names = f.event_names(id).await;
        let rounds = names.iter().filter(|name| *name == "source:ready").count();
        if rounds >= 3 { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    drop(held);
    let job = f.finished(id).await;
    assert_eq!((job.state, job.attempt_count), (State::Done, 1), "{job:?}");
    assert_eq!(files(&partial), [""; 0]);
    f.stop().await;
}
