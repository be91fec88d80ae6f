//! What every store of artifacts promises: each case runs on all of them.

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use serde_json::json;
use stargate_artifact::manifest::ABOUT_BYTES_MAX;
use stargate_artifact::{Error, Found, PERMISSION_AGE_MAX, Permit, Published, Publisher};
use stargate_base::ErrorClass;

use crate::fixture::{Always, Fixture, Gate, LARGE, Place, SMALL, by, content};

/// Makes one test of each case for each store.
macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        mod local {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(crate::fixture::Fixture::local()).await;
            })*
        }
        mod s3 {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(crate::fixture::Fixture::s3()).await;
            })*
        }
    };
}

on_both!(
    a_published_file_is_found_whole_with_its_manifest,
    an_empty_file_is_an_artifact_too,
    the_first_artifact_stays_and_later_attempts_adopt_it,
    an_attempt_that_may_not_publish_leaves_nothing,
    an_answer_that_has_grown_old_is_asked_for_again,
    what_its_publisher_says_of_an_artifact_is_known_to_those_who_adopt_it,
    damaged_artifacts_are_found_out_and_replaced,
    a_missing_or_wrong_manifest_is_mended,
    two_attempts_at_once_leave_one_artifact,
    an_attempt_that_stood_still_replaces_nothing,
    an_attempt_that_saw_a_damaged_artifact_does_not_replace_the_next_one,
    a_file_that_is_not_there_is_an_error_and_leaves_nothing,
    the_check_passes_and_leaves_nothing,
);

const ARTIFACT: &str = "results/17/clip.mp4";
const MANIFEST: &str = "results/17/clip.mp4.json";

fn stored(published: &Published) -> bool {
    matches!(published, Published::Stored(_))
}

/// The artifact is valid, made by `attempt` from `seed`, and nothing else is kept.
async fn assert_only(f: &Fixture, attempt: &str, seed: u8, size: usize) {
    let Found::Valid(manifest) = f.store.find(&f.key).await.unwrap() else {
        panic!("no valid artifact: {:?}", f.store.find(&f.key).await);
    };
    assert_eq!((manifest.attempt.as_str(), manifest.size), (attempt, size as u64));
    assert!(
        f.place.read(ARTIFACT).await.unwrap() == content(seed, size),
        "the bytes are of attempt {attempt}"
    );
    assert_eq!(f.place.names().await, [ARTIFACT, MANIFEST]);
}

async fn a_published_file_is_found_whole_with_its_manifest(f: Fixture) {
    for size in [SMALL, LARGE] {
        let f = Fixture { key: stargate_artifact::Key::result(size, "clip.mp4").unwrap(), ..clone(&f) };
        assert_eq!(f.store.find(&f.key).await.unwrap(), Found::Absent);
        let Published::Stored(manifest) = f.publish("17-1", &f.file(1, size)).await.unwrap() else {
            panic!("nothing was there before");
        };
        assert_eq!(manifest.key, format!("results/{size}/clip.mp4"));
        assert_eq!((manifest.size, manifest.attempt.as_str()), (size as u64, "17-1"));
        assert_eq!(f.store.find(&f.key).await.unwrap(), Found::Valid(manifest.clone()));
        assert!(f.place.read(f.key.as_str()).await.unwrap() == content(1, size));
        let json: serde_json::Value =
            serde_json::from_slice(&f.place.read(&f.key.manifest()).await.unwrap()).unwrap();
        let expected = serde_json::json!({
            "key": manifest.key, "size": size, "sha256": manifest.sha256, "attempt": "17-1",
        });
        assert_eq!(json, expected);
        assert!(f.store.location(&f.key).ends_with(f.key.as_str()), "{}", f.store.location(&f.key));
    }
}

async fn an_empty_file_is_an_artifact_too(f: Fixture) {
    let Published::Stored(manifest) = f.publish("17-1", &f.file(1, 0)).await.unwrap() else {
        panic!("nothing was there before");
    };
    assert_eq!(manifest.sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_only(&f, "17-1", 1, 0).await;
}

async fn the_first_artifact_stays_and_later_attempts_adopt_it(f: Fixture) {
    let Published::Stored(first) = f.publish("17-1", &f.file(1, SMALL)).await.unwrap() else {
        panic!("nothing was there before");
    };
    let second = f.publish("17-2", &f.file(2, LARGE)).await.unwrap();
    assert_eq!(second, Published::Adopted(first));
    assert_only(&f, "17-1", 1, SMALL).await;
}

async fn an_attempt_that_may_not_publish_leaves_nothing(f: Fixture) {
    for size in [SMALL, LARGE] {
        let refused = f.publish_if("17-1", &f.file(1, size), &Always(false)).await.unwrap_err();
        assert!(matches!(refused, Error::Fenced), "{refused}");
        assert_eq!(f.store.find(&f.key).await.unwrap(), Found::Absent);
        assert_eq!(f.place.names().await, [""; 0]);
    }
}

/// Takes its time for the first answers; the last one may be another.
struct Slow {
    answers: [bool; 2],
    slow: u32,
    asked: AtomicU32,
}

#[async_trait]
impl Permit for Slow {
    async fn holds(&self) -> bool {
        let before = self.asked.fetch_add(1, Ordering::SeqCst);
        if before < self.slow {
            tokio::time::sleep(PERMISSION_AGE_MAX).await;
        }
        self.answers[usize::from(before > 0)]
    }
}

async fn an_answer_that_has_grown_old_is_asked_for_again(f: Fixture) {
    let slow = |answers, slow| Slow { answers, slow, asked: AtomicU32::new(0) };
    for size in [SMALL, LARGE] {
        let lost = f.publish_if("17-1", &f.file(1, size), &slow([true, false], 1)).await.unwrap_err();
        assert!(matches!(lost, Error::Fenced), "{lost}");
        assert_eq!(f.place.names().await, [""; 0]);
    }
    let never = f.publish_if("17-1", &f.file(1, SMALL), &slow([true, true], u32::MAX)).await.unwrap_err();
    assert!(matches!(never, Error::Unsure { .. }), "{never}");
    assert_eq!(never.class(), ErrorClass::RetryableTransient);
    assert_eq!(f.place.names().await, [""; 0]);
    let late = slow([true, true], 1);
    assert!(stored(&f.publish_if("17-1", &f.file(1, LARGE), &late).await.unwrap()));
    assert_eq!(late.asked.load(Ordering::SeqCst), 2);
    assert_only(&f, "17-1", 1, LARGE).await;
}

async fn what_its_publisher_says_of_an_artifact_is_known_to_those_who_adopt_it(f: Fixture) {
    let about = json!({ "mode": "copy", "duration": 3.52, "title": "zwei  Räume, \"x\"", "cutShort": true });
    for (job, size) in [(1, SMALL), (2, LARGE)] {
        let f = Fixture { key: stargate_artifact::Key::result(job, "clip.mp4").unwrap(), ..clone(&f) };
        let says = Publisher { about: Some(&about), ..by("17-1") };
        let first = f.store.publish(&f.key, &f.file(1, size), says).await.unwrap();
        let Published::Stored(first) = first else { panic!("nothing was there before: {first:?}") };
        assert_eq!(first.about.as_ref(), Some(&about));
        let others = json!("another");
        let late = Publisher { about: Some(&others), ..by("17-2") };
        let second = f.store.publish(&f.key, &f.file(2, size), late).await.unwrap();
        assert_eq!(second, Published::Adopted(first.clone()));
        if matches!(f.place, Place::S3(_)) {
            f.place.remove(&f.key.manifest()).await;
        }
        assert_eq!(f.store.find(&f.key).await.unwrap(), Found::Valid(first));
        let kept: serde_json::Value =
            serde_json::from_slice(&f.place.read(&f.key.manifest()).await.unwrap()).unwrap();
        assert_eq!(kept["about"], about);
    }
    let file = f.file(1, SMALL);
    let long = json!("x".repeat(ABOUT_BYTES_MAX));
    let refused = f.store.publish(&f.key, &file, Publisher { about: Some(&long), ..by("17-1") });
    let refused = refused.await.unwrap_err();
    assert_eq!(refused.class(), ErrorClass::ValidationFailure, "{refused}");
    let most = json!("x".repeat(ABOUT_BYTES_MAX - 2));
    let taken = f.store.publish(&f.key, &file, Publisher { about: Some(&most), ..by("17-1") });
    assert!(stored(&taken.await.unwrap()));
}

async fn damaged_artifacts_are_found_out_and_replaced(f: Fixture) {
    for (attempt, size) in [("17-1", SMALL), ("17-2", LARGE)] {
        let good = content(9, size);
        let mut other = good.clone();
        other[size / 2] ^= 1;
        let longer = [good.as_slice(), b"x"].concat();
        for damaged in [&good[..size - 1], &other, &longer, b""] {
            if f.store.find(&f.key).await.unwrap() == Found::Absent {
                assert!(stored(&f.publish("17-0", &f.file(9, size)).await.unwrap()));
            }
            f.place.write(ARTIFACT, damaged).await;
            let found = f.store.find(&f.key).await.unwrap();
            assert!(matches!(found, Found::Damaged(_)), "{} bytes: {found:?}", damaged.len());
            assert!(stored(&f.publish(attempt, &f.file(1, size)).await.unwrap()));
            assert_only(&f, attempt, 1, size).await;
        }
    }
}

/// A store either replaces the artifact or writes the manifest it lacks, when it can be sure of the bytes.
async fn a_missing_or_wrong_manifest_is_mended(f: Fixture) {
    let manifest_of_another = br#"{"key":"results/18/clip.mp4","size":1,"sha256":"","attempt":"18-1"}"#;
    let wrong: [Option<&[u8]>; 5] =
        [None, Some(b"{garbage"), Some(b""), Some(manifest_of_another), Some(&[b' '; 100_000])];
    f.publish("17-1", &f.file(1, SMALL)).await.unwrap();
    for wrong in wrong {
        match wrong {
            None => f.place.remove(MANIFEST).await,
            Some(bytes) => f.place.write(MANIFEST, bytes).await,
        }
        let found = f.store.find(&f.key).await.unwrap();
        match &f.place {
            Place::Local(_) => assert!(matches!(found, Found::Damaged(_)), "{found:?}"),
            // It says itself what it should be, and gets its manifest by being found.
            Place::S3(_) => assert_only(&f, "17-1", 1, SMALL).await,
        }
        let (Published::Stored(now) | Published::Adopted(now)) =
            f.publish("17-2", &f.file(2, SMALL)).await.unwrap();
        assert_only(&f, &now.attempt, if now.attempt == "17-1" { 1 } else { 2 }, SMALL).await;
    }
    // A manifest without an artifact is nothing.
    f.place.remove(ARTIFACT).await;
    assert_eq!(f.store.find(&f.key).await.unwrap(), Found::Absent);
    assert!(stored(&f.publish("17-3", &f.file(3, SMALL)).await.unwrap()));
    assert_only(&f, "17-3", 3, SMALL).await;
}

async fn two_attempts_at_once_leave_one_artifact(f: Fixture) {
    for size in [SMALL, SMALL, SMALL, SMALL, LARGE] {
        let (one, two) = (Gate::default(), Gate::default());
        let (one_file, two_file) = (f.file(1, size), f.file(2, size));
        let both_asked = async {
            one.asked.notified().await;
            two.asked.notified().await;
            one.go.notify_one();
            two.go.notify_one();
        };
        let (first, second, ()) = tokio::join!(
            f.publish_if("17-1", &one_file, &one),
            f.publish_if("17-2", &two_file, &two),
            both_asked
        );
        let (first, second) = (first.unwrap(), second.unwrap());
        match (&first, &second) {
            (Published::Stored(a), Published::Adopted(b)) => assert_eq!((a, a.attempt.as_str()), (b, "17-1")),
            (Published::Adopted(a), Published::Stored(b)) => assert_eq!((a, a.attempt.as_str()), (b, "17-2")),
            // The server of the tests looks before it completes an upload, not in the same step.
            (Published::Stored(_), Published::Stored(_))
                if size == LARGE && matches!(f.place, Place::S3(_)) => {}
            both => panic!("one is stored and the other adopts it: {both:?}"),
        }
        let Ok(Found::Valid(manifest)) = f.store.find(&f.key).await else { panic!("no valid artifact") };
        let won = if manifest.attempt == "17-1" { (&first, 1) } else { (&second, 2) };
        assert!(stored(won.0), "{won:?}");
        assert_only(&f, &manifest.attempt, won.1, size).await;
        f.place.remove(ARTIFACT).await;
        f.place.remove(MANIFEST).await;
    }
}

async fn an_attempt_that_stood_still_replaces_nothing(f: Fixture) {
    for (job, size) in [(1, SMALL), (2, LARGE)] {
        let f = Fixture { key: stargate_artifact::Key::result(job, "clip.mp4").unwrap(), ..clone(&f) };
        let gate = Gate::default();
        let old_file = f.file(1, size);
        let meanwhile = async {
            gate.asked.notified().await;
            let new = f.publish("17-2", &f.file(2, size)).await.unwrap();
            gate.go.notify_one();
            new
        };
        let (old, new) = tokio::join!(f.publish_if("17-1", &old_file, &gate), meanwhile);
        let Published::Stored(new) = new else { panic!("the new attempt was first: {new:?}") };
        assert_eq!(old.unwrap(), Published::Adopted(new));
        assert!(f.place.read(f.key.as_str()).await.unwrap() == content(2, size));
    }
    assert_eq!(f.place.names().await.len(), 4, "{:?}", f.place.names().await);
}

async fn an_attempt_that_saw_a_damaged_artifact_does_not_replace_the_next_one(f: Fixture) {
    f.place.write(ARTIFACT, b"not whole").await;
    let gate = Gate::default();
    let (old_file, new_file) = (f.file(1, SMALL), f.file(2, SMALL));
    let meanwhile = async {
        gate.asked.notified().await;
        let new = f.publish("17-2", &new_file).await.unwrap();
        gate.go.notify_one();
        new
    };
    let (old, new) = tokio::join!(f.publish_if("17-1", &old_file, &gate), meanwhile);
    let Published::Stored(new) = new else { panic!("what was there was damaged: {new:?}") };
    assert_eq!(old.unwrap(), Published::Adopted(new));
    assert_only(&f, "17-2", 2, SMALL).await;
}

async fn a_file_that_is_not_there_is_an_error_and_leaves_nothing(f: Fixture) {
    let error = f.publish("17-1", &f.home.path().join("nowhere")).await.unwrap_err();
    assert!(matches!(error, Error::Input { .. }) && error.to_string().contains("nowhere"), "{error}");
    assert_eq!(f.place.names().await, [""; 0]);
    let error = f.publish("../17", &f.file(1, SMALL)).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::ValidationFailure, "{error}");
}

async fn the_check_passes_and_leaves_nothing(f: Fixture) {
    f.store.check().await.unwrap();
    assert_eq!(f.place.names().await, [""; 0]);
}

fn clone(f: &Fixture) -> Fixture {
    Fixture {
        place: f.place.clone(),
        home: tempfile::tempdir().unwrap(),
        store: f.store.clone(),
        key: f.key.clone(),
    }
}
