//! What failed, and what was done. Rules 34 and 35.

use stargate_queue::listing::{Activity, BUCKETS_MAX, WINDOW_MAX};

use super::prelude::*;

fn with(code: &str, class: ErrorClass, message: &str) -> Outcome {
    Outcome::Failed { error: JobError::new(code, class, message) }
}

/// Enqueues a job, has it wait, and ends it.
async fn run(f: &Fixture, worker: WorkerId, new: NewJob, wait: Duration, outcome: Outcome) -> JobId {
    f.enqueue(new).await;
    f.advance(wait);
    f.store.beat(worker).await.expect("the lease goes on");
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, outcome).await;
    claimed.fence.job
}

pub async fn failed_jobs_are_grouped_by_kind_and_code(f: &Fixture) {
    let worker = f.worker("w").await;
    assert!(f.store.failures(10).await.unwrap().is_empty());
    let second = Duration::from_secs(1);
    let other = |queue: &str| NewJob { kind: OTHER.into(), queue: queue.into(), ..job() };
    let first = f.now() + second;
    run(f, worker, job(), second, with("A", ErrorClass::Fatal, "one")).await;
    run(f, worker, keyed("t"), second, with("A", ErrorClass::Conflict, "two \"é\"")).await;
    let newest = run(f, worker, job(), second, with("A", ErrorClass::ValidationFailure, "three")).await;
    let last = f.now();
    run(f, worker, other("z"), second, with("A", ErrorClass::Fatal, "four")).await;
    let of_other = run(f, worker, other("q"), second, with("A", ErrorClass::Fatal, "five")).await;
    let lone = run(f, worker, job(), second, with("B", ErrorClass::Fatal, "six")).await;
    run(f, worker, job(), second, Outcome::Done { result: None }).await;
    let groups = f.store.failures(10).await.unwrap();
    let told: Vec<(&str, &str, u64, JobId)> =
        groups.iter().map(|g| (g.kind.as_str(), g.code.as_str(), g.count, g.newest)).collect();
    assert_eq!(told, [(WORK, "A", 3, newest), (OTHER, "A", 2, of_other), (WORK, "B", 1, lone)], "most first");
    assert_eq!((groups[0].oldest_at, groups[0].last_at), (first, last));
    assert_eq!((groups[0].class, groups[0].message.as_str()), (ErrorClass::ValidationFailure, "three"));
    assert_eq!(groups[0].queues, ["default"]);
    assert_eq!(groups[1].queues, ["q", "z"]);
    assert_eq!(f.store.failures(1).await.unwrap(), groups[..1], "no more than asked for");
    f.store.retry(newest).await.unwrap();
    let groups = f.store.failures(10).await.unwrap();
    assert_eq!((groups[0].count, groups[0].message.as_str()), (2, "five"), "what is retried has not failed");
    assert_eq!((groups[1].count, groups[1].message.as_str()), (2, "two \"é\""));
}

/// The answer when the store has looked back as far as it was asked to.
async fn activity(f: &Fixture, window: Duration, buckets: u32) -> Vec<Activity> {
    for _ in 0..100 {
        let told = f.store.activity(window, buckets).await.unwrap();
        assert_eq!(told.len(), buckets as usize);
        if told.iter().all(|bucket| bucket.complete) {
            return told;
        }
    }
    panic!("it does not get further back");
}

pub async fn ends_are_counted_where_they_happened(f: &Fixture) {
    let minute = Duration::from_secs(60);
    let worker = f.worker("w").await;
    assert!(activity(f, 60 * minute, 60).await.iter().all(|b| b.done + b.failed + b.cancelled == 0));
    run(f, worker, job(), Duration::ZERO, Outcome::Done { result: None }).await;
    let waiting = f.enqueue(job()).await;
    f.store.cancel(waiting).await.unwrap();
    for _ in 0..10 {
        f.advance(minute);
        f.store.beat(worker).await.unwrap();
    }
    let worker = f.worker("w2").await;
    run(f, worker, job(), Duration::ZERO, failed()).await;
    run(f, worker, job(), Duration::ZERO, Outcome::Done { result: None }).await;
    for round in 0..2 {
        let told = activity(f, 60 * minute, 60).await;
        let counts: Vec<(usize, u64, u64, u64)> = told
            .iter()
            .enumerate()
            .filter(|(_, b)| b.done + b.failed + b.cancelled > 0)
            .map(|(n, b)| (n, b.done, b.failed, b.cancelled))
            .collect();
        assert_eq!(counts, [(49, 1, 0, 1), (59, 1, 1, 0)], "round {round}: {told:?}");
        assert!(told.windows(2).all(|two| two[1].from == two[0].from + minute), "equally long");
        assert!(told[59].from <= f.now() && f.now() < told[59].from + minute, "up to now");
    }
    run(f, worker, job(), Duration::ZERO, Outcome::Done { result: None }).await;
    assert_eq!(activity(f, 60 * minute, 60).await[59].done, 2, "what ends is told at once");
    let elsewhere = f.another().await;
    run(f, worker, job(), Duration::ZERO, failed()).await;
    let told = elsewhere.activity(10 * minute, 1).await.unwrap();
    assert_eq!((told[0].done, told[0].failed), (2, 2), "and to another process: {told:?}");
    f.advance(3 * Duration::from_secs(3600));
    let day = activity(f, Duration::from_secs(86_400), 24).await;
    assert_eq!(day.iter().map(|b| b.done).sum::<u64>(), 3, "{day:?}");
    assert_eq!(day.iter().map(|b| b.cancelled).sum::<u64>(), 1);
}

pub async fn waits_are_told_from_the_due_time_to_the_claim(f: &Fixture) {
    let worker = f.worker("w").await;
    for wait in [100, 200, 300, 400, 500, 600, 700, 800, 900, 10_000] {
        run(f, worker, job(), Duration::from_millis(wait), Outcome::Done { result: None }).await;
    }
    let waiting = f.enqueue(job()).await;
    f.store.cancel(waiting).await.unwrap();
    let told = activity(f, Duration::from_secs(3600), 1).await[0];
    let near = |told: Option<u64>, wait: u64| told.is_some_and(|told| told.abs_diff(wait) * 20 <= wait);
    assert!(near(told.wait_p50_ms, 500) && near(told.wait_p95_ms, 10_000), "{told:?}");
    f.advance(2 * Duration::from_secs(3600));
    let told = activity(f, Duration::from_secs(3600), 1).await[0];
    assert_eq!((told.done, told.wait_p50_ms, told.wait_p95_ms), (0, None, None));
}

pub async fn an_activity_that_cannot_be_told_is_refused(f: &Fixture) {
    let hour = Duration::from_secs(3600);
    for (window, buckets) in
        [(hour, 0), (hour, BUCKETS_MAX + 1), (Duration::from_secs(9), 10), (2 * WINDOW_MAX, 1)]
    {
        let refused = f.store.activity(window, buckets).await.unwrap_err();
        assert_eq!(refused.code(), "INVALID", "{window:?} {buckets}");
    }
    assert_eq!(f.store.activity(WINDOW_MAX, BUCKETS_MAX).await.unwrap().len(), BUCKETS_MAX as usize);
    assert_eq!(f.store.activity(Duration::from_secs(1), 1).await.unwrap().len(), 1);
}

pub async fn a_job_that_is_done_has_no_error_of_an_earlier_attempt(f: &Fixture) {
    let worker = f.worker("w").await;
    let id = f.enqueue(job()).await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, retry_in(Duration::ZERO)).await;
    assert_eq!(f.job(id).await.error.map(|error| error.code).as_deref(), Some("UPSTREAM_BUSY"));
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    assert_eq!(f.job(id).await.error, None, "the timeline has it");
}
