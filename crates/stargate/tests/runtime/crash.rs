//! Workers that are killed, workers that want the same job, and jobs that fail until nothing is left.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use stargate_queue::{JobId, State};
use stargate_testkit::eventually;
use stargate_testkit::process::Running;

use crate::server::Server;
use crate::stage::{Stage, is, metric};
use crate::{PATIENCE, on_both_stores, processes, video};

/// Long enough to be caught in the middle.
const LONG: f64 = 20.0;

on_both_stores! {
    a_clip_whose_worker_is_killed_is_requeued_and_finished_by_another: "",
    of_two_workers_one_cuts_the_clip_and_the_other_counts_a_miss: "",
    a_clip_whose_source_stays_away_is_given_up_after_three_attempts: "clip.allow_private = true\n",
    an_ffmpeg_that_is_killed_costs_an_attempt: "clip.max_attempts = 1\n",
    a_job_that_kills_its_worker_three_times_is_given_up: "",
    a_cancelled_clip_leaves_no_program_and_no_result: "",
    a_clip_that_takes_too_long_leaves_no_program_and_no_result: "clip.timeout = \"6s\"\nclip.max_attempts = 1\n",
}

async fn a_clip_whose_worker_is_killed_is_requeued_and_finished_by_another(stage: &Stage) {
    stage.set_slow(true);
    let mut first = stage.worker().await;
    let id = stage.enqueue("clip", &video::encoded(LONG));
    stage.is_being_cut(id).await;
    stage.set_slow(false);
    let ffmpeg = processes::ffmpeg(stage.home());
    assert_eq!(stage.result_names(id), [""; 0], "nothing is published before the cut is complete");
    first.kill();
    let killed = stage.store.now().await.unwrap();
    processes::all_gone(stage.home()).await;
    assert!(!ffmpeg.is_there());

    let second = stage.worker().await;
    let job = stage.ends(id, State::Done).await;
    assert!(job.worker.as_deref().is_some_and(|name| is(name, &second)), "{job:?}");
    assert_eq!((job.attempt_count, job.crash_count, job.percent()), (2, 1, 100), "{job:?}");
    assert_eq!(
        stage.story(id).await,
        "created processing source:ready progress requeued:stale processing source:ready progress uploaded done"
    );
    let events = stage.events(id).await;
    let recovered = events.iter().find(|event| event.event == "requeued:stale").unwrap();
    let took = recovered.at.duration_since(killed);
    println!("requeued {took:#} after the kill; the lease is 5 s");
    stage.check_artifact(id, LONG).await;
    processes::all_gone(stage.home()).await;
    assert_eq!(metric(&second, "worker_recovered_jobs_total{reason=\"stale\"}").await, 1.0);
}

async fn of_two_workers_one_cuts_the_clip_and_the_other_counts_a_miss(stage: &Stage) {
    let workers = [stage.worker().await, stage.worker().await];
    let before = sum(&workers, "worker_atomic_acquire_fail_total").await;
    let id = stage.enqueue("clip", &video::encoded(2.0));
    let job = stage.ends(id, State::Done).await;
    assert_eq!((job.attempt_count, stage.cuts()), (1, 1), "it was cut once: {job:?}");
    assert_eq!(stage.story(id).await, "created processing source:ready progress uploaded done");
    stage.check_artifact(id, 2.0).await;
    eventually(PATIENCE, "a counted miss", || async {
        let now = sum(&workers, "worker_atomic_acquire_fail_total").await;
        if now > before { Ok(()) } else { Err(format!("{now} misses, {before} before the job")) }
    })
    .await;
    // Nobody lost a lease, so nobody's write was refused.
    assert_eq!(sum(&workers, "worker_duplicate_skips_total").await, 0.0);
    assert_eq!(sum(&workers, "worker_jobs_processed_total{kind=\"clip\",outcome=\"ok\"}").await, 1.0);
}

async fn a_clip_whose_source_stays_away_is_given_up_after_three_attempts(stage: &Stage) {
    // Says that it may be asked again at once.
    let server = Server::start().await;
    let worker = stage.worker().await;
    let id = stage.enqueue("clip", &json!({ "source": server.url("/busy"), "start": 0, "end": 1 }));
    let job = stage.ends(id, State::Failed).await;
    let error = job.error.as_ref().expect("a failed job says why");
    assert_eq!(error.code, "RETRIES_EXHAUSTED", "{job:?}");
    assert!(error.message.contains("SOURCE_UNAVAILABLE"), "the cause is told: {error:?}");
    assert_eq!((job.attempt_count, job.max_attempts, job.crash_count), (3, 3, 0), "{job:?}");
    assert_eq!(server.requests(), ["/busy"; 3], "each attempt asked once");
    let retried = ["processing", "requeued:retry"];
    assert_eq!(
        stage.story(id).await,
        [&["created"], &retried[..], &retried, &["processing", "failed"]].concat().join(" ")
    );
    assert_eq!(metric(&worker, "worker_retry_attempts_total{code=\"SOURCE_UNAVAILABLE\"").await, 2.0);
    assert_eq!(metric(&worker, "worker_jobs_processed_total{kind=\"clip\",outcome=\"failed\"}").await, 1.0);
    assert_eq!(stage.result_names(id), [""; 0], "a failed job has no result");
}

async fn an_ffmpeg_that_is_killed_costs_an_attempt(stage: &Stage) {
    stage.set_slow(true);
    let _worker = stage.worker().await;
    let id = stage.enqueue("clip", &video::encoded(LONG));
    stage.is_being_cut(id).await;
    // As by a machine that runs out of memory: no fault of the job.
    let ffmpeg = Pid::from_raw(processes::ffmpeg(stage.home()).pid.try_into().unwrap()).unwrap();
    kill_process(ffmpeg, Signal::KILL).unwrap();
    let job = stage.ends(id, State::Failed).await;
    let error = job.error.as_ref().expect("a failed job says why");
    assert_eq!(error.code, "RETRIES_EXHAUSTED", "{job:?}");
    assert!(error.message.contains("CLIP_FAILED"), "the cause is told: {error:?}");
    assert_eq!((job.attempt_count, stage.cuts()), (1, 1), "{job:?}");
    assert_eq!(stage.result_names(id), [""; 0], "a failed job has no result");
    processes::all_gone(stage.home()).await;
}

async fn a_job_that_kills_its_worker_three_times_is_given_up(stage: &Stage) {
    stage.set_slow(true);
    let id = stage.enqueue("clip", &video::encoded(LONG));
    for _ in 0..3 {
        let mut worker = stage.worker().await;
        stage.runs_at(id, &worker).await;
        worker.kill();
    }
    let last = stage.worker().await;
    let job = stage.ends(id, State::Failed).await;
    assert_eq!(job.error.as_ref().map(|error| error.code.as_str()), Some("WORKER_LOST"), "{job:?}");
    assert_eq!((job.attempt_count, job.crash_count), (3, 3), "{job:?}");
    assert_eq!(metric(&last, "worker_inflight_jobs").await, 0.0);
    processes::all_gone(stage.home()).await;
}

async fn a_cancelled_clip_leaves_no_program_and_no_result(stage: &Stage) {
    stage.set_slow(true);
    let worker = stage.worker().await;
    let id = stage.enqueue("clip", &video::encoded(LONG));
    stage.is_being_cut(id).await;
    stage.program.answer(&["job", "cancel", &id.to_string()]);
    stage.ends(id, State::Cancelled).await;
    leaves_nothing(stage, id, &worker).await;
}

async fn a_clip_that_takes_too_long_leaves_no_program_and_no_result(stage: &Stage) {
    stage.set_slow(true);
    let worker = stage.worker().await;
    let id = stage.enqueue("clip", &video::encoded(LONG));
    let job = stage.ends(id, State::Failed).await;
    let error = job.error.as_ref().expect("a failed job says why");
    assert_eq!((error.code.as_str(), job.attempt_count), ("RETRIES_EXHAUSTED", 1), "{job:?}");
    assert!(error.message.contains("TIMEOUT"), "the cause is told: {error:?}");
    leaves_nothing(stage, id, &worker).await;
}

async fn leaves_nothing(stage: &Stage, id: JobId, worker: &Running) {
    processes::all_gone(stage.home()).await;
    assert_eq!(stage.cuts(), 1);
    assert_eq!(stage.result_names(id), [""; 0]);
    assert_eq!(metric(worker, "worker_inflight_jobs").await, 0.0);
}

async fn sum(workers: &[Running], name: &str) -> f64 {
    let mut sum = 0.0;
    for worker in workers {
        sum += metric(worker, name).await;
    }
    sum
}
