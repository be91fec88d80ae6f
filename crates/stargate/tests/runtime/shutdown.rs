//! SIGTERM in the middle of a clip.

use std::time::{Duration, Instant};

use stargate_queue::State;
use stargate_testkit::eventually;

use crate::stage::{Stage, is};
use crate::{PATIENCE, on_both_stores, processes, video};

const LONG: f64 = 20.0;
const SHORT: &str = "worker.shutdown_timeout = \"1s\"\n";
const ENOUGH: &str = "worker.shutdown_timeout = \"1m\"\n";

on_both_stores! {
    a_clip_that_outlasts_the_shutdown_is_given_back_and_begun_elsewhere: super::SHORT,
    a_clip_that_ends_during_the_shutdown_is_recorded: super::ENOUGH,
    a_second_signal_ends_the_worker_at_once_and_its_ffmpeg_with_it: super::ENOUGH,
}

async fn a_clip_that_outlasts_the_shutdown_is_given_back_and_begun_elsewhere(stage: &Stage) {
    stage.set_slow(true);
    let mut first = stage.worker().await;
    let id = stage.enqueue("clip", &video::encoded(LONG));
    stage.is_being_cut(id).await;
    stage.set_slow(false);
    let ffmpeg = processes::ffmpeg(stage.home());
    let second = stage.worker().await;
    let asked = stage.store.now().await.unwrap();
    first.terminate();
    let status = first.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(0), "{}", first.log());
    assert!(!ffmpeg.is_there(), "its ffmpeg outlived it");
    let job = stage.ends(id, State::Done).await;
    assert!(job.worker.as_deref().is_some_and(|name| is(name, &second)), "{job:?}");
    assert_eq!((job.attempt_count, job.crash_count), (1, 0), "a shutdown costs no attempt: {job:?}");
    assert_eq!(
        stage.story(id).await,
        "created processing source:ready progress aborted:shutdown processing source:ready progress uploaded done"
    );
    let events = stage.events(id).await;
    let aborted = events.iter().position(|event| event.event == "aborted:shutdown").unwrap();
    let patience = events[aborted].at.duration_since(asked);
    assert!(patience >= Duration::from_secs(1).try_into().unwrap(), "it got only {patience:?} to end");
    let took = events[aborted + 1].at.duration_since(events[aborted].at);
    println!("begun again {took:#} after it was given back");
    stage.check_artifact(id, LONG).await;
    processes::all_gone(stage.home()).await;
}

async fn a_clip_that_ends_during_the_shutdown_is_recorded(stage: &Stage) {
    stage.set_slow(true);
    let mut worker = stage.worker().await;
    let id = stage.enqueue("clip", &video::encoded(3.0));
    stage.is_being_cut(id).await;
    worker.terminate();
    assert_eq!(worker.ended(PATIENCE).await.code(), Some(0), "{}", worker.log());
    let job = stage.job(id).await;
    assert_eq!((job.state, job.attempt_count), (State::Done, 1), "{job:?}; {}", worker.log());
    stage.check_artifact(id, 3.0).await;
    assert_eq!(stage.scratch(), [""; 0].map(std::path::PathBuf::from));
}

async fn a_second_signal_ends_the_worker_at_once_and_its_ffmpeg_with_it(stage: &Stage) {
    stage.set_slow(true);
    let mut worker = stage.worker().await;
    let id = stage.enqueue("clip", &video::encoded(LONG));
    stage.is_being_cut(id).await;
    stage.set_slow(false);
    worker.terminate();
    eventually(PATIENCE, "the first signal to be seen", || {
        let log = worker.log();
        async move { if log.contains("stopping") { Ok(()) } else { Err(log) } }
    })
    .await;
    let asked = Instant::now();
    worker.terminate();
    assert_eq!(worker.ended(PATIENCE).await.code(), Some(130), "{}", worker.log());
    println!("ended {:?} after the second signal", asked.elapsed());
    processes::all_gone(stage.home()).await;
    let _second = stage.worker().await;
    stage.ends(id, State::Done).await;
    stage.check_artifact(id, LONG).await;
}
