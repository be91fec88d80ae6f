//! Workers that freeze, are told to end in mid-job, or want the same job.

use std::time::{Duration, Instant};

use serde_json::json;
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::process::{Program, Running, get};

use crate::{PATIENCE, configured, events, names, reaches, refused_with};

/// `wait` runs until the test lets that attempt go.
const KINDS: &str = r#"
[worker]
heartbeat = "250ms"
lease = "3s"
[kinds."wait"]
exec = ["sh", "-c", "echo $STARGATE_JOB_ID >> runs.log; while [ ! -e go-$STARGATE_ATTEMPT ]; do sleep 0.02; done"]
[kinds."chatter"]
exec = ["sh", "-c", "while [ ! -e go-$STARGATE_ATTEMPT ]; do echo '{\"event\": \"word\"}'; done"]
[kinds."quick"]
exec = ["sh", "-c", "echo $STARGATE_JOB_ID >> runs.log"]
"#;

fn program() -> Program {
    configured(KINDS).with("LOAD_THRESHOLD", "1000").with("SHUTDOWN_TIMEOUT_SEC", "1")
}

async fn ready_worker(program: &Program) -> Running {
    let mut worker = program.start(&["worker"]);
    worker.ready().await;
    worker
}

fn let_go(program: &Program, attempt: u32) {
    std::fs::write(program.home().join(format!("go-{attempt}")), "").expect("a file in the home");
}

/// Waits until a worker runs the job; its worker's name holds the process id.
async fn runs_at(program: &Program, id: &str, worker: &Running) -> serde_json::Value {
    let process = format!(":{}:", worker.id());
    eventually(PATIENCE, "the job to run at this worker", || {
        let job = crate::json(program, &["job", "show", id]);
        let here =
            job["state"] == "processing" && job["worker"].as_str().is_some_and(|w| w.contains(&process));
        async move { if here { Ok(job) } else { Err(job.to_string()) } }
    })
    .await
}

/// The sum of a counter over its labels.
async fn counter(worker: &Running, name: &str) -> f64 {
    let (_, body) = get(worker.address(), "/metrics").await.expect("metrics");
    let lines = body.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn runs(program: &Program) -> Vec<String> {
    let text = std::fs::read_to_string(program.home().join("runs.log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_worker_that_lost_its_job_writes_nothing_when_it_thaws() {
    let program = program();
    let mut first = ready_worker(&program).await;
    let id = program.answer(&["job", "enqueue", "wait"]);
    runs_at(&program, &id, &first).await;
    first.freeze_between_writes(program.home()).await;
    let second = ready_worker(&program).await;
    runs_at(&program, &id, &second).await;
    // The first one's program ends well while the job is the second one's.
    let_go(&program, 1);
    let before = events(&program, &id);
    assert_eq!(names(&before), ["created", "processing", "requeued:stale", "processing"]);
    first.thaw();
    eventually(PATIENCE, "the first worker to notice", || {
        let log = first.log();
        async move { if log.contains("given this worker up") { Ok(()) } else { Err(log) } }
    })
    .await;
    eventually(PATIENCE, "the end of its execution", || async {
        let running = counter(&first, "worker_inflight_jobs").await;
        if running == 0.0 { Ok(()) } else { Err(running.to_string()) }
    })
    .await;
    assert_eq!(events(&program, &id), before, "the first worker wrote something");
    let_go(&program, 2);
    let job = reaches(&program, &id, "done").await;
    let process = format!(":{}:", second.id());
    assert!(
        job["worker"].as_str().is_some_and(|worker| worker.contains(&process)),
        "not by the second: {job}"
    );
    let after = events(&program, &id);
    assert_eq!(names(&after), ["created", "processing", "requeued:stale", "processing", "done"]);
    assert_eq!(after[..4], before[..], "the past has changed");

    // It is of use again.
    let mut second = second;
    second.terminate();
    second.ended(PATIENCE).await;
    let quick = program.answer(&["job", "enqueue", "quick"]);
    reaches(&program, &quick, "done").await;
    assert_eq!(events(&program, &id), after);
    assert!(first.is_running(), "{}", first.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_in_mid_write_is_named_to_all_others_and_they_go_on_when_it_does() {
    let program = program();
    let first = ready_worker(&program).await;
    let chatter = program.answer(&["job", "enqueue", "chatter"]);
    runs_at(&program, &chatter, &first).await;
    let mut second = ready_worker(&program).await;
    first.freeze_in_mid_write(program.home()).await;
    // One that runs says so and goes on, one that starts gives up, and so does a command.
    let mut third = program.start(&["worker"]);
    let holder = format!("process {} (", first.id());
    let parts = ["get its turn to write", &holder, "which is stopped", "kill -CONT"];
    assert_eq!(refused_with(&program, &["job", "enqueue", "quick"], &parts), "STORE_UNAVAILABLE");
    assert_eq!(third.ended(PATIENCE).await.code(), Some(5), "{}", third.log());
    for log in [third.log(), second.log()] {
        assert!(log.contains("the store cannot be written") && log.contains(&holder), "{log}");
    }
    assert_eq!(names(&events(&program, &chatter))[..2], ["created", "processing"], "reading goes on");
    assert!(second.is_running(), "{}", second.log());

    first.thaw();
    let quick = program.answer(&["job", "enqueue", "quick"]);
    reaches(&program, &quick, "done").await;
    for attempt in 1..=3 {
        let_go(&program, attempt);
    }
    reaches(&program, &chatter, "done").await;
    assert!(second.log().contains("the store can be written again"), "{}", second.log());
    let all = crate::json(&program, &["job", "list"]);
    assert_eq!(all.as_array().map(Vec::len), Some(2), "what was refused is not done after all: {all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_ended_in_mid_job_gives_it_back_and_another_starts_it_at_once() {
    let program = program();
    let mut first = ready_worker(&program).await;
    let id = program.answer(&["job", "enqueue", "wait"]);
    runs_at(&program, &id, &first).await;
    let second = ready_worker(&program).await;
    first.terminate();
    let status = first.ended(PATIENCE).await;
    let ended = Instant::now();
    assert_eq!(status.code(), Some(0), "{}", first.log());
    let job = runs_at(&program, &id, &second).await;
    let took = ended.elapsed();
    println!("the second worker began {took:?} after the end of the first");
    assert_eq!(job["attempt_count"], json!(1), "the attempt was not given back: {job}");
    assert_eq!(job["crash_count"], json!(0), "{job}");
    let timeline = events(&program, &id);
    assert_eq!(names(&timeline), ["created", "processing", "aborted:shutdown", "processing"]);
    let_go(&program, 1);
    reaches(&program, &id, "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_ends_when_asked() {
    let program = program();
    let mut worker = ready_worker(&program).await;
    let asked = Instant::now();
    worker.terminate();
    let status = worker.ended(PATIENCE).await;
    assert_eq!(status.code(), Some(0), "{}", worker.log());
    println!("an idle worker ended within {:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_sigterm_ends_a_worker_at_once_and_its_job_is_taken_over() {
    let program = program().with("SHUTDOWN_TIMEOUT_SEC", "60");
    let mut worker = ready_worker(&program).await;
    let id = program.answer(&["job", "enqueue", "wait"]);
    runs_at(&program, &id, &worker).await;
    worker.terminate();
    eventually(PATIENCE, "the first signal to be seen", || {
        let log = worker.log();
        async move { if log.contains("stopping") { Ok(()) } else { Err(log) } }
    })
    .await;
    worker.terminate();
    assert_eq!(worker.ended(Duration::from_secs(3)).await.code(), Some(130), "{}", worker.log());
    let second = ready_worker(&program).await;
    runs_at(&program, &id, &second).await;
    let_go(&program, 1);
    let_go(&program, 2);
    reaches(&program, &id, "done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_workers_one_runs_the_job_and_the_other_counts_a_miss_on_sqlite() {
    one_runs(&program()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_workers_one_runs_the_job_and_the_other_counts_a_miss_on_postgres() {
    let database = Database::create_empty().await;
    let program = program().with("STARGATE_STORE", database.url());
    program.answer(&["migrate"]);
    one_runs(&program).await;
    drop(program);
    database.remove().await;
}

async fn one_runs(program: &Program) {
    let workers = [ready_worker(program).await, ready_worker(program).await];
    let misses = async || {
        let mut sum = 0.0;
        for worker in &workers {
            sum += counter(worker, "worker_atomic_acquire_fail_total").await;
            sum += counter(worker, "worker_duplicate_skips_total").await;
        }
        sum
    };
    let before = misses().await;
    let id = program.answer(&["job", "enqueue", "quick"]);
    reaches(program, &id, "done").await;
    assert_eq!(runs(program), [id.as_str()], "it ran once");
    assert_eq!(names(&events(program, &id)), ["created", "processing", "done"]);
    eventually(PATIENCE, "a counted miss", || async {
        let now = misses().await;
        if now > before { Ok(()) } else { Err(format!("{now} misses, {before} before the job")) }
    })
    .await;
}
