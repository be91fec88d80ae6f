//! A worker that dies or is paused at each step of publication: never a part of an artifact under its key, always a
//! whole one at the end, and nothing beside it.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use serde_json::{Value, json};
use stargate_queue::{JobId, State};
use stargate_testkit::eventually;
use stargate_testkit::process::Running;
use stargate_testkit::s3::Corner;

use crate::bucket::Bucket;
use crate::stage::{Stage, check_description, is, metric};
use crate::{PATIENCE, processes, video};

/// The steps at which the debug build can be told to die or to stand still, in order.
const STEPS: [&str; 7] = ["begun", "half-written", "written", "synced", "permitted", "moved", "described"];
/// Those at which nothing is visible yet. At the last one the worker has just been told that it holds its job.
const BEFORE: [&str; 5] = ["begun", "half-written", "written", "synced", "permitted"];
/// The length of the artifact in seconds.
const LENGTH: f64 = 1.2;
/// Of a cut that takes as long as it plays.
const SLOW: f64 = 6.0;
/// The variables that tell it.
const DIE_AT: &str = "STARGATE_TEST_DIE_AT";
const PAUSE_AT: &str = "STARGATE_TEST_PAUSE_AT";

/// The whole of the source, which is copied: the cut costs little and the artifact is large.
fn payload() -> Value {
    json!({ "source": video::heavy(), "start": 0, "end": LENGTH })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_at_any_step_leaves_no_part_in_the_folder_and_one_whole_artifact_in_the_end() {
    join_all(STEPS.map(async |step| dies(Place::folder().await, step).await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_at_any_step_leaves_no_part_in_the_bucket_and_one_whole_artifact_in_the_end() {
    join_all(STEPS.map(async |step| dies(Place::bucket().await, step).await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_paused_at_any_step_does_not_touch_what_another_has_put_into_the_folder() {
    // With the artifact moved and not described the folder is locked: see below.
    let steps = STEPS.into_iter().filter(|step| *step != "moved");
    join_all(steps.map(async |step| is_paused(Place::shared_folder().await, step).await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_paused_at_any_step_does_not_touch_what_another_has_put_into_the_bucket() {
    join_all(STEPS.map(async |step| is_paused(Place::bucket().await, step).await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_paused_before_the_last_step_puts_nothing_into_the_folder_once_another_has_its_job() {
    join_all(BEFORE.map(async |step| goes_on_in_vain(Place::shared_folder().await, step).await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_paused_before_the_last_step_puts_nothing_into_the_bucket_once_another_has_its_job() {
    join_all(BEFORE.map(async |step| goes_on_in_vain(Place::bucket().await, step).await)).await;
}

/// The other worker waits for the lock of the folder, and adopts what the first one has published after all.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_paused_between_artifact_and_manifest_leaves_one_whole_artifact_in_the_folder() {
    let place = Place::shared_folder().await;
    let (first, id) = paused_at(&place, "moved").await;
    let second = place.stage.worker().await;
    place.stage.runs_at(id, &second).await;
    eventually(PATIENCE, "the second cut", || async {
        if place.stage.cuts() == 2 { Ok(()) } else { Err(place.stage.cuts().to_string()) }
    })
    .await;
    first.thaw();
    let job = place.stage.ends(id, State::Done).await;
    assert!(job.worker.as_deref().is_some_and(|name| is(name, &second)), "{job:?}");
    refused(&first).await;
    place.holds_one_artifact(id, LENGTH, "moved").await;
    place.stage.close().await;
}

#[tokio::test]
async fn what_dead_publications_left_behind_goes_and_what_is_in_use_stays() {
    let stage = Stage::sqlite("").await;
    std::fs::create_dir_all(stage.partial()).unwrap();
    let old = SystemTime::from(stargate_base::clock::wall()) - Duration::from_secs(2 * 3600);
    let make = |name: &str| {
        let path = stage.partial().join(name);
        let file = File::create_new(&path).unwrap();
        file.set_modified(old).unwrap();
        (path, file)
    };
    let (used, file) = make("results+7+clip.mp4+7-1+0a1b2c3d.tmp");
    file.lock().unwrap();
    let dead = ["results+8+clip.mp4+8-1+0a1b2c3d.tmp", "results+8+clip.mp4.lock"].map(|name| make(name).0);
    let _worker = stage.worker().await;
    eventually(PATIENCE, "the end of the leftovers", || async {
        if dead.iter().any(|path| path.exists()) { Err(format!("{dead:?}")) } else { Ok(()) }
    })
    .await;
    assert!(used.exists());
}

async fn dies(place: Place, step: &str) {
    let stage = &place.stage;
    let id = stage.enqueue("clip", &payload());
    let mut worker = stage.program.start_with(&["worker"], &[(DIE_AT, step)]);
    let status = worker.ended(PATIENCE).await;
    assert_eq!(status.signal(), Some(9), "at {step} it ended with {status}:\n{}", worker.log());
    processes::all_gone(stage.home()).await;
    assert_eq!(stage.job(id).await.state, State::Processing, "nothing is settled at {step}");
    place.shows_only_what_is_whole(id, step).await;

    let _worker = stage.worker().await;
    let job = stage.ends(id, State::Done).await;
    assert_eq!((job.attempt_count, job.crash_count), (2, 1), "after the death at {step}: {job:?}");
    // What was published whole is not made again. In a bucket an artifact says itself what it should be, so it is kept
    // also without a manifest.
    let adopted = step == "described" || (step == "moved" && place.bucket.is_some());
    assert_eq!(stage.cuts(), if adopted { 1 } else { 2 }, "cuts after the death at {step}");
    let result: Value = serde_json::from_str(job.result.as_ref().expect("a result").get()).unwrap();
    assert_eq!(result["adopted"] == json!(true), adopted, "after the death at {step}: {result}");
    assert_eq!(result["mode"], "copy", "after the death at {step}: {result}");
    let uploaded = uploaded(stage, id).await;
    assert_eq!(uploaded["adopted"] == json!(true), adopted, "after the death at {step}: {uploaded}");
    place.holds_one_artifact(id, LENGTH, step).await;
    place.stage.close().await;
}

async fn is_paused(place: Place, step: &str) {
    let stage = &place.stage;
    let (first, id) = paused_at(&place, step).await;
    place.shows_only_what_is_whole(id, step).await;
    let second = stage.worker().await;
    let job = stage.ends(id, State::Done).await;
    assert!(job.worker.as_deref().is_some_and(|name| is(name, &second)), "paused at {step}: {job:?}");
    let before =
        (format!("{job:?}"), format!("{:?}", stage.events(id).await), place.bytes(id, "clip.mp4").await);
    first.thaw();
    refused(&first).await;
    let job = stage.job(id).await;
    let after =
        (format!("{job:?}"), format!("{:?}", stage.events(id).await), place.bytes(id, "clip.mp4").await);
    assert!(after == before, "the worker that was paused at {step} changed something: {job:?}");
    place.holds_one_artifact(id, LENGTH, step).await;
    place.stage.close().await;
}

/// The worker goes on while another one has its job and has published nothing yet.
async fn goes_on_in_vain(place: Place, step: &str) {
    let stage = &place.stage;
    let id = stage.enqueue("clip", &video::encoded(SLOW));
    let first = pauses_at(stage, step).await;
    stage.set_slow(true);
    let second = stage.worker().await;
    stage.runs_at(id, &second).await;
    stage.is_being_cut(id).await;
    first.thaw();
    refused(&first).await;
    let job = stage.job(id).await;
    assert_eq!(job.state, State::Processing, "the second worker was too fast to show anything: {job:?}");
    assert_eq!(place.names(id).await, [""; 0], "published by the worker that was paused at {step}");
    let job = stage.ends(id, State::Done).await;
    assert!(job.worker.as_deref().is_some_and(|name| is(name, &second)), "paused at {step}: {job:?}");
    let uploaded = uploaded(stage, id).await;
    assert_eq!(uploaded.get("adopted"), None, "after the pause at {step}");
    place.holds_one_artifact(id, SLOW, step).await;
    place.stage.close().await;
}

/// A worker that stands still at a step of its publication.
async fn paused_at(place: &Place, step: &str) -> (Running, JobId) {
    let id = place.stage.enqueue("clip", &payload());
    (pauses_at(&place.stage, step).await, id)
}

async fn pauses_at(stage: &Stage, step: &str) -> Running {
    let worker = stage.program.start_with(&["worker"], &[(PAUSE_AT, step)]);
    eventually(PATIENCE, &format!("a pause at {step}"), || async {
        if worker.is_stopped() { Ok(()) } else { Err(worker.log()) }
    })
    .await;
    worker
}

/// Waits until a worker has nothing in hand any more, and was refused.
async fn refused(worker: &Running) {
    eventually(PATIENCE, "the end of the execution that lost its job", || async {
        let running = metric(worker, "worker_inflight_jobs").await;
        let refused = metric(worker, "worker_duplicate_skips_total").await;
        if running == 0.0 && refused > 0.0 { Ok(()) } else { Err(worker.log()) }
    })
    .await;
}

async fn uploaded(stage: &Stage, id: JobId) -> Value {
    let events = stage.events(id).await;
    let uploaded = events.iter().find(|event| event.event == "uploaded").expect("an event");
    let data: Value = serde_json::from_str(uploaded.data.get()).unwrap();
    assert_eq!(data["key"], format!("results/{id}/clip.mp4"));
    data
}

/// Where the artifacts of a stage are.
struct Place {
    stage: Stage,
    bucket: Option<Bucket>,
}

impl Place {
    async fn folder() -> Self {
        Self { stage: Stage::sqlite("").await, bucket: None }
    }

    /// For workers that stand still: in the middle of a write to an SQLite file they would hold up everybody.
    async fn shared_folder() -> Self {
        Self { stage: Stage::postgres("").await, bucket: None }
    }

    async fn bucket() -> Self {
        let bucket = Bucket::new(Corner::create());
        let stage = Stage::postgres("").await;
        let stage = bucket.settings().into_iter().fold(stage, |stage, (name, value)| stage.with(name, value));
        Self { stage, bucket: Some(bucket) }
    }

    /// All names beside the artifact of a job.
    async fn names(&self, id: JobId) -> Vec<String> {
        let Some(bucket) = &self.bucket else { return self.stage.result_names(id) };
        let folder = format!("results/{id}/");
        let keys = bucket.list().await.into_iter();
        keys.map(|key| key.strip_prefix(&folder).unwrap_or(&key).to_owned()).collect()
    }

    /// What publications have on their way; in a bucket that is not to be seen.
    fn partial(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.stage.partial()).into_iter().flatten().flatten();
        files.map(|file| file.path()).collect()
    }

    async fn bytes(&self, id: JobId, name: &str) -> Vec<u8> {
        match &self.bucket {
            Some(bucket) => bucket.get(&format!("results/{id}/{name}")).await,
            None => std::fs::read(self.stage.results(id).join(name)).unwrap(),
        }
    }

    /// What a reader finds while a publication stands at a step: nothing, or everything.
    async fn shows_only_what_is_whole(&self, id: JobId, step: &str) {
        let visible = self.names(id).await;
        let expected: &[&str] = match step {
            "moved" => &["clip.mp4"],
            "described" => &["clip.mp4", "clip.mp4.json"],
            _ => &[],
        };
        assert_eq!(visible, expected, "visible at {step}");
        if !visible.is_empty() {
            self.plays_to_the_end(id, LENGTH, step).await;
        }
    }

    async fn plays_to_the_end(&self, id: JobId, seconds: f64, step: &str) {
        let file = self.stage.home().join("seen.mp4");
        std::fs::write(&file, self.bytes(id, "clip.mp4").await).unwrap();
        let length = video::seconds(&file);
        assert!((length - seconds).abs() < 0.1, "at {step} the artifact plays {length} s");
    }

    /// In the end: one artifact, which is what its manifest and the job say.
    async fn holds_one_artifact(&self, id: JobId, seconds: f64, step: &str) {
        // A write that was under way when its attempt was stopped ends by itself and takes its file along.
        eventually(PATIENCE, &format!("one artifact and its manifest after {step}"), || async {
            let (names, partial) = (self.names(id).await, self.partial());
            let is_all = names == ["clip.mp4", "clip.mp4.json"] && partial.is_empty();
            if is_all { Ok(()) } else { Err(format!("{names:?} {partial:?}")) }
        })
        .await;
        self.plays_to_the_end(id, seconds, step).await;
        let manifest = serde_json::from_slice(&self.bytes(id, "clip.mp4.json").await).unwrap();
        let result = self.stage.job(id).await.result.expect("a result");
        let result = serde_json::from_str(result.get()).unwrap();
        check_description(id, &self.bytes(id, "clip.mp4").await, &manifest, &result);
    }
}
