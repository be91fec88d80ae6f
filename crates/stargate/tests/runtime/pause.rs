//! A worker that is paused past its lease (SIGSTOP) and goes on (SIGCONT): whatever it does then changes nothing.

use stargate_queue::State;
use stargate_queue::event::Event;
use stargate_testkit::eventually;
use stargate_testkit::process::Running;

use crate::scratch::total;
use crate::stage::{Stage, is, metric};
use crate::{PATIENCE, on_both_stores, processes, video};

/// Its ffmpeg is a process of its own and runs on while the worker is paused: this long.
const LONG: f64 = 30.0;

on_both_stores! {
    a_paused_worker_changes_nothing_after_another_has_finished_its_clip: "",
    a_paused_worker_changes_nothing_while_another_cuts_its_clip: "",
    a_worker_that_was_paused_alone_begins_its_clip_again: "",
    a_paused_worker_whose_clip_is_complete_does_not_publish_it: "",
}

async fn a_paused_worker_changes_nothing_after_another_has_finished_its_clip(stage: &Stage) {
    let (first, id) = paused_in_mid_clip(stage).await;
    let ffmpeg = processes::ffmpeg(stage.home());
    let second = stage.worker().await;
    let job = stage.ends(id, State::Done).await;
    assert!(job.worker.as_deref().is_some_and(|name| is(name, &second)), "{job:?}");
    let bytes = stage.check_artifact(id, LONG).await;
    let before = (format!("{job:?}"), format!("{:?}", stage.events(id).await));
    // Nobody can tell a program of a worker that does not move; it writes into that worker's own scratch only.
    assert!(ffmpeg.is_there(), "its ffmpeg ended too early to show anything");

    first.thaw();
    has_noticed(&first).await;
    processes::all_gone(stage.home()).await;
    stopped(&first).await;
    let scratch = total(&stage.home().join("scratch"));
    let after = (format!("{:?}", stage.job(id).await), format!("{:?}", stage.events(id).await));
    assert_eq!(after, before, "the first worker wrote something");
    assert!(stage.check_artifact(id, LONG).await == bytes, "the first worker changed the artifact");
    assert_refused(&first).await;

    is_of_use(stage, first, second).await;
    let total = total(&stage.home().join("scratch"));
    assert_eq!(total, scratch, "the scratch space of the lost attempt still grows");
    assert!(stage.check_artifact(id, LONG).await == bytes, "the artifact has changed");
}

async fn a_paused_worker_changes_nothing_while_another_cuts_its_clip(stage: &Stage) {
    let (first, id) = paused_in_mid_clip(stage).await;
    let ffmpeg = processes::ffmpeg(stage.home());
    stage.set_slow(true);
    let second = stage.worker().await;
    stage.runs_at(id, &second).await;
    stage.is_being_cut(id).await;
    first.thaw();
    has_noticed(&first).await;
    eventually(PATIENCE, "the end of the first ffmpeg", || async {
        if ffmpeg.is_there() { Err(format!("{ffmpeg:?}")) } else { Ok(()) }
    })
    .await;
    stopped(&first).await;
    // The second one's goes on.
    processes::ffmpeg(stage.home());
    let job = stage.job(id).await;
    assert_eq!((job.state, job.attempt_count, job.crash_count), (State::Processing, 2, 1), "{job:?}");
    assert!(job.worker.as_deref().is_some_and(|name| is(name, &second)), "{job:?}");
    assert_eq!(
        stage.story(id).await,
        "created processing source:ready progress requeued:stale processing source:ready progress"
    );
    assert_refused(&first).await;
    assert_eq!(stage.result_names(id), [""; 0]);
}

async fn a_worker_that_was_paused_alone_begins_its_clip_again(stage: &Stage) {
    let (first, id) = paused_in_mid_clip(stage).await;
    let ffmpeg = processes::ffmpeg(stage.home());
    let lease_over = stage.job(id).await.lease_expires_at.expect("a running job has a lease");
    eventually(PATIENCE, "the end of the lease", || async {
        let now = stage.store.now().await.unwrap();
        if now > lease_over { Ok(()) } else { Err(format!("{now}, until {lease_over}")) }
    })
    .await;
    let before = stage.events(id).await;
    first.thaw();
    let job = stage.ends(id, State::Done).await;
    assert!(job.worker.as_deref().is_some_and(|name| is(name, &first)), "{job:?}");
    assert_eq!((job.attempt_count, job.crash_count), (2, 1), "the lost attempt counts: {job:?}");
    let events = stage.events(id).await;
    assert_eq!(told(&events[..before.len()]), told(&before), "the past has changed");
    assert_eq!(
        stage.story(id).await,
        "created processing source:ready progress requeued:stale processing source:ready progress uploaded done",
        "{events:?}"
    );
    assert_eq!(events[before.len()].event, "requeued:stale", "nothing of the lost attempt after the pause");
    assert!(!ffmpeg.is_there(), "the ffmpeg of the lost attempt");
    assert_eq!(stage.cuts(), 2);
    processes::all_gone(stage.home()).await;
    stage.check_artifact(id, LONG).await;
}

/// The cut ends while its worker is paused: all that is left to do is to publish it, and that is too late.
async fn a_paused_worker_whose_clip_is_complete_does_not_publish_it(stage: &Stage) {
    stage.set_slow(true);
    let first = stage.worker().await;
    let id = stage.enqueue("clip", &video::encoded(2.5));
    stage.is_being_cut(id).await;
    first.freeze_between_writes(stage.home()).await;
    let ffmpeg = processes::ffmpeg(stage.home());
    eventually(PATIENCE, "the end of the cut", || async {
        if ffmpeg.is_there() { Err(format!("{ffmpeg:?}")) } else { Ok(()) }
    })
    .await;
    // Another one is at work on it, and not done yet.
    let second = stage.worker().await;
    stage.runs_at(id, &second).await;
    stage.is_being_cut(id).await;
    stage.set_slow(false);
    first.thaw();
    has_noticed(&first).await;
    stopped(&first).await;
    assert_eq!(
        stage.job(id).await.state,
        State::Processing,
        "the second one ended too early to show anything"
    );
    assert_eq!(stage.result_names(id), [""; 0], "the first worker published its cut");
    let job = stage.ends(id, State::Done).await;
    assert!(job.worker.as_deref().is_some_and(|name| is(name, &second)), "{job:?}");
    stage.check_artifact(id, 2.5).await;
    assert_eq!(stage.cuts(), 2);
}

/// What events say.
fn told(events: &[Event]) -> Vec<(u32, jiff::Timestamp, &str, &str)> {
    events.iter().map(|event| (event.seq, event.at, event.event.as_str(), event.data.get())).collect()
}

/// A worker with a clip in the making, stopped.
async fn paused_in_mid_clip(stage: &Stage) -> (Running, stargate_queue::JobId) {
    stage.set_slow(true);
    let first = stage.worker().await;
    let id = stage.enqueue("clip", &video::encoded(LONG));
    stage.is_being_cut(id).await;
    stage.set_slow(false);
    first.freeze_between_writes(stage.home()).await;
    (first, id)
}

/// Waits until a worker says that it lost its job.
async fn has_noticed(worker: &Running) {
    eventually(PATIENCE, "the worker to say that it lost its job", || {
        let log = worker.log();
        let lost =
            ["given this worker up", "another worker holds this job now", "for two thirds of the lease"];
        async move { if lost.iter().any(|text| log.contains(text)) { Ok(()) } else { Err(log) } }
    })
    .await;
}

/// Waits until nothing runs at a worker any more.
async fn stopped(worker: &Running) {
    eventually(PATIENCE, "the end of the execution", || async {
        let running = metric(worker, "worker_inflight_jobs").await;
        if running == 0.0 { Ok(()) } else { Err(running.to_string()) }
    })
    .await;
}

/// What the worker wrote too late was refused, and counted.
async fn assert_refused(worker: &Running) {
    eventually(PATIENCE, "a refused write", || async {
        let refused = metric(worker, "worker_duplicate_skips_total").await;
        if refused > 0.0 { Ok(()) } else { Err(worker.log()) }
    })
    .await;
}

/// A worker that lost a job takes others.
async fn is_of_use(stage: &Stage, first: Running, mut second: Running) {
    second.terminate();
    assert!(second.ended(PATIENCE).await.success(), "{}", second.log());
    let id = stage.enqueue("clip", &video::encoded(1.0));
    let job = stage.ends(id, State::Done).await;
    assert!(job.worker.as_deref().is_some_and(|name| is(name, &first)), "{job:?}");
}
