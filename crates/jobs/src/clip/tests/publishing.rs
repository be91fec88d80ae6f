//! How a clip becomes an artifact.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use stargate_artifact::{Artifacts as _, Found, Key, Step, Steps, s3};
use stargate_base::{ErrorClass, Secret, Tasks};

use super::super::{ARTIFACT_FOREIGN, CLIP_TOO_LONG, OUTPUT_VERIFICATION_FAILED, STORAGE_UNAVAILABLE};
use super::fixture::{Bench, assert_failure};

#[tokio::test]
async fn a_retry_adopts_the_artifact_that_is_there() {
    let bench = Bench::new();
    let path = bench.video("a.mp4", 25, &[]).await;
    let first = bench.cut_file("a.mp4", 1.0, 2.0).await;
    let written = std::fs::metadata(bench.artifact()).unwrap().modified().unwrap();
    // The source is not even looked at.
    std::fs::remove_file(path).unwrap();
    bench.heard.lines.lock().unwrap().clear();
    let second = bench.cut_file("a.mp4", 1.0, 2.0).await;
    let mut expected = first.clone();
    expected["adopted"] = true.into();
    assert_eq!((second, &first["mode"]), (expected, &json!("copy")), "the same result");
    assert_eq!(std::fs::metadata(bench.artifact()).unwrap().modified().unwrap(), written);
    let heard = bench.heard.lines.lock().unwrap().clone();
    assert_eq!(heard.len(), 1);
    let data: Value = serde_json::from_str(heard[0].strip_prefix("uploaded ").unwrap()).unwrap();
    assert_eq!(data, json!({ "key": "results/42/clip.mp4", "size": first["size"], "adopted": true }));
}

/// A fresh store begins with job 1 again; its artifacts may still be there.
#[tokio::test]
async fn the_result_of_other_work_is_neither_adopted_nor_replaced() {
    let bench = Bench::new();
    let path = bench.video("a.mp4", 25, &[]).await;
    bench.cut_file("a.mp4", 1.0, 2.0).await;
    let before = std::fs::read(bench.artifact()).unwrap();
    let failure = bench.failure(path.to_str().unwrap()).await;
    assert_failure(&failure, ARTIFACT_FOREIGN, "artifacts.url");
    assert_eq!(failure.error.class, ErrorClass::Fatal);
    assert_eq!(std::fs::read(bench.artifact()).unwrap(), before);
}

#[tokio::test]
async fn an_adopted_clip_that_was_cut_short_says_so() {
    let bench = Bench::new();
    bench.video("a.mp4", 25, &[]).await;
    let first = bench.cut_file("a.mp4", 4.0, 60.0).await;
    let second = bench.cut_file("a.mp4", 4.0, 60.0).await;
    assert_eq!((&first["cutShort"], &second["cutShort"]), (&json!(true), &json!(true)));
    assert_eq!((&second["adopted"], &second["duration"]), (&json!(true), &first["duration"]));
}

#[tokio::test]
async fn a_clip_whose_manifest_tells_only_of_its_bytes_is_adopted_too() {
    let bench = Bench::new();
    bench.video("a.mp4", 25, &[]).await;
    let first = bench.cut_file("a.mp4", 4.0, 60.0).await;
    let manifest = bench.artifact().with_file_name("clip.mp4.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    let mut about = json.as_object_mut().unwrap().remove("about").unwrap();
    assert_eq!(about.as_object_mut().unwrap().remove("request").unwrap().as_str().unwrap().len(), 64);
    assert_eq!(about, (json!({ "duration": first["duration"], "mode": "copy", "cutShort": true })));
    std::fs::write(&manifest, json.to_string()).unwrap();
    let second = bench.cut_file("a.mp4", 4.0, 60.0).await;
    for field in ["key", "size", "sha256", "cutShort"] {
        assert_eq!(first[field], second[field]);
    }
    assert_eq!((&second["mode"], &second["adopted"]), (&Value::Null, &json!(true)));
    let (first, second) = (first["duration"].as_f64().unwrap(), second["duration"].as_f64().unwrap());
    assert!((first - second).abs() < 0.1, "{first} {second}");
}

/// Another process stands still in the middle of its publication.
#[tokio::test]
async fn an_attempt_that_cannot_publish_because_another_does_is_given_back() {
    let mut bench = Bench::new();
    bench.settings.busy_delay = Duration::from_millis(10);
    let path = bench.video("a.mp4", 25, &[]).await;
    let lock = bench.path("artifacts/.partial/results+42+clip.mp4.lock");
    std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
    std::fs::write(&lock, "attempt 42-1 in process 4711 on elsewhere").unwrap();
    let held = std::fs::File::open(&lock).unwrap();
    held.lock().unwrap();
    let artifacts = Arc::new(bench.artifacts().with_lock_patience(Duration::from_millis(10)));
    let clip = bench.clip_to(artifacts);
    let payload = json!({ "source": path, "start": 1, "end": 2 });
    let failure = bench.run_with(&clip, &payload).await.unwrap_err();
    assert!(failure.is_not_begun(), "{failure:?}");
    assert!(failure.error.message.contains("clip.mp4.lock is held by"), "{failure:?}");
    assert!(failure.error.message.ends_with("process 4711 on elsewhere"), "{failure:?}");
    assert!(bench.scratch().is_empty(), "nothing has failed");
    drop(held);
    assert!(bench.run_with(&clip, &payload).await.is_ok());
}

#[tokio::test]
async fn trouble_with_a_server_is_told_once_and_in_short() {
    let bench = Bench::new();
    // A port that was free a moment ago, and that nobody listens at.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = s3::Settings {
        bucket: "clips".to_owned(),
        prefix: String::new(),
        endpoint: Some(format!("http://127.0.0.1:{port}")),
        region: "us-east-1".to_owned(),
        access_key_id: Some("id".to_owned()),
        secret_access_key: Some(Secret::new("secret")),
        session_token: None,
    };
    let clip = bench.clip_to(Arc::new(s3::S3::new(&settings, Tasks::new()).unwrap()));
    let failure =
        bench.run_with(&clip, &json!({ "source": "a.mp4", "start": 1, "end": 2 })).await.unwrap_err();
    assert_failure(&failure, STORAGE_UNAVAILABLE, "cannot read s3://clips/results/42/clip.mp4");
    let error = &failure.error;
    let text = format!("{} {}", error.message, error.detail.as_deref().unwrap_or_default());
    let whole = error.detail.as_ref().unwrap_or(&error.message);
    assert_eq!(whole.matches("Error performing").count(), 1, "{text}");
    assert!(error.message.chars().count() <= 301, "{text}");
}

#[tokio::test]
async fn a_damaged_artifact_is_replaced() {
    let bench = Bench::new();
    bench.video("a.mp4", 25, &[]).await;
    let first = bench.cut_file("a.mp4", 1.0, 2.0).await;
    let bytes = std::fs::read(bench.artifact()).unwrap();
    std::fs::write(bench.artifact(), &bytes[..bytes.len() / 2]).unwrap();
    let second = bench.cut_file("a.mp4", 1.0, 2.0).await;
    assert_eq!(second["mode"], "copy");
    assert_eq!(first["size"], second["size"]);
    let found = bench.artifacts().find(&Key::result(42, "clip.mp4").unwrap()).await.unwrap();
    assert!(matches!(found, Found::Valid(_)), "{found:?}");
}

#[tokio::test]
async fn an_attempt_that_lost_its_job_publishes_nothing() {
    let bench = Bench::new();
    let path = bench.video("a.mp4", 25, &[]).await;
    bench.heard.holds.store(false, Ordering::SeqCst);
    let failure = bench.cut(path.to_str().unwrap(), 1.0, 2.0).await.unwrap_err();
    assert_failure(&failure, "LEASE_LOST", "no longer holds");
    assert_eq!(failure.error.class, ErrorClass::RetryableTransient);
    assert!(!bench.artifact().exists());
    assert!(!bench.heard.names().contains(&"uploaded".to_owned()));
}

#[tokio::test]
async fn storage_trouble_is_tried_again() {
    let bench = Bench::new();
    let path = bench.video("a.mp4", 25, &[]).await;
    std::fs::write(bench.path("artifacts"), "in the way").unwrap();
    let failure = bench.cut(path.to_str().unwrap(), 1.0, 2.0).await.unwrap_err();
    assert_failure(&failure, STORAGE_UNAVAILABLE, "artifacts");
    assert_eq!(failure.error.class, ErrorClass::RetryableTransient);
}

/// Puts a program in the place of ffmpeg that makes no clip, or another one.
#[tokio::test]
async fn a_clip_that_is_not_what_was_asked_for_is_never_published() {
    let mut bench = Bench::new();
    let path = bench.video("a.mp4", 25, &[]).await;
    let source = path.to_str().unwrap().to_owned();
    // `true` makes nothing and `cp` as the "ffmpeg" would need arguments; a shell function of ours does both.
    for (script, says) in [
        ("exit 0".to_owned(), "No such file"),
        ("for last; do :; done; : > \"${last#file:}\"".to_owned(), "Invalid"),
        (format!("for last; do :; done; cp '{source}' \"${{last#file:}}\""), "instead of 1.000 s"),
    ] {
        bench.settings.ffmpeg = super::hostile::program(&bench, &script);
        let failure = bench.cut(&source, 1.0, 2.0).await.unwrap_err();
        assert_failure(&failure, OUTPUT_VERIFICATION_FAILED, says);
        assert_eq!(failure.error.class, ErrorClass::ValidationFailure);
    }
    assert!(!bench.artifact().exists());
}

#[tokio::test]
async fn a_clip_that_would_be_too_long_is_refused_unseen() {
    let bench = Bench::new();
    let failure = bench.cut("/absent.mp4", 0.0, 121.0).await.unwrap_err();
    assert_failure(&failure, CLIP_TOO_LONG, "121 s");
    assert!(bench.scratch().is_empty());
}

#[derive(Default)]
struct Told(Mutex<Vec<Step>>);

impl Steps for Told {
    fn reached(&self, step: Step) {
        self.0.lock().unwrap().push(step);
    }
}

#[tokio::test]
async fn the_steps_of_a_publication_are_told() {
    let bench = Bench::new();
    let path = bench.video("a.mp4", 25, &[]).await;
    let told = Arc::new(Told::default());
    let clip = bench.clip().with_steps(told.clone());
    bench.run_with(&clip, &json!({ "source": path, "start": 1, "end": 2 })).await.unwrap();
    assert_eq!(*told.0.lock().unwrap(), Step::ALL);
}
