//! Rule 10: what becomes of jobs whose worker fell silent.

use super::prelude::*;

/// Claims the one job with a new worker and lets that worker die.
async fn crash(f: &Fixture, name: &str) -> ClaimedJob {
    let worker = f.worker(name).await;
    let claimed = f.claim_one(worker).await;
    f.expire();
    claimed
}

pub async fn an_expired_job_is_given_to_anybodys_next_claim(f: &Fixture) {
    let id = f.enqueue(job()).await;
    crash(f, "a").await;
    let b = f.worker("b").await;
    let claim = f.claim(b, 10).await;
    let recovered = Recovered { job: id, kind: WORK.into(), became: State::Queued };
    assert_eq!(claim.recovered, [recovered], "the claim tells what it recovered");
    assert_eq!(ids(&claim.jobs), [id], "and gives it out at once");
    assert_eq!(claim.jobs[0].fence.attempt, 2, "the lost attempt counts");
    let job = f.job(id).await;
    assert_eq!((job.crash_count, job.attempt_count), (1, 2), "{job:?}");
    assert_eq!(job.worker.as_deref(), Some("b"), "{job:?}");
}

pub async fn an_expired_job_is_recovered_through_another_process(f: &Fixture) {
    let id = f.enqueue(job()).await;
    crash(f, "a").await;
    let elsewhere = f.another().await;
    let b = elsewhere.worker_register(worker_spec("b", LEASE, LEASE)).await.unwrap();
    let claim = elsewhere.claim(claim_request(b, 10)).await.unwrap();
    assert_eq!(ids(&claim.jobs), [id], "whoever claims, recovers");
}

pub async fn a_claim_recovers_though_it_serves_none_of_the_kinds(f: &Fixture) {
    let id = f.enqueue(job()).await;
    crash(f, "a").await;
    let b = f.worker("b").await;
    let mut request = claim_request(b, 10);
    request.kinds.retain(|slots| slots.kind == OTHER);
    let claim = f.claim_as(request).await;
    assert!(claim.jobs.is_empty(), "{WORK} is not served by this claim");
    f.is(id, State::Queued, "is back in its queue").await;
}

pub async fn the_timeline_of_a_recovery_tells_it_before_the_second_attempt(f: &Fixture) {
    let id = f.enqueue(job()).await;
    crash(f, "a").await;
    let b = f.worker("b").await;
    let claimed = f.claim_one(b).await;
    f.done(claimed.fence).await;
    assert_eq!(f.timeline(id).await, "created processing requeued:stale processing done");
    let events = f.events(id).await;
    assert_eq!(value(&events[1].data), json!({ "attempt": 1, "worker": "a" }), "the first attempt");
    assert_eq!(value(&events[2].data), json!({ "attempt": 1, "worker": "a" }), "whose lease ended");
    assert_eq!(value(&events[3].data), json!({ "attempt": 2, "worker": "b" }), "the second attempt");
}

pub async fn the_worker_that_lost_its_job_changes_nothing(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let lost = crash(f, "a").await;
    let b = f.worker("b").await;
    let current = f.claim_one(b).await;
    let before = f.all_of(id).await;
    for outcome in every_outcome() {
        let text = format!("{outcome:?}");
        assert_eq!(f.settle(lost.fence, outcome).await, Verdict::Stale, "{text}");
        assert_eq!(f.all_of(id).await, before, "the stale {text} changed the job");
    }
    f.done(current.fence).await;
}

pub async fn an_outcome_that_comes_after_the_lease_is_not_taken_and_the_job_runs_again(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let late = crash(f, "a").await;
    assert_eq!(f.settle(late.fence, Outcome::Done { result: None }).await, Verdict::Stale);
    f.is(id, State::Processing, "waits for somebody to recover it").await;
    let b = f.worker("b").await;
    let claim = f.claim(b, 10).await;
    assert_eq!(claim.recovered, [Recovered { job: id, kind: WORK.into(), became: State::Queued }]);
    f.done(claim.jobs[0].fence).await;
    assert_eq!(f.timeline(id).await, "created processing requeued:stale processing done");
}

pub async fn a_job_that_takes_its_workers_down_is_failed(f: &Fixture) {
    let id = f.enqueue(NewJob { max_attempts: Some(100), ..job() }).await;
    for crash_number in 1..=3_u16 {
        let claimed = crash(f, &format!("victim {crash_number}")).await;
        assert_eq!(claimed.fence.attempt, crash_number);
    }
    let b = f.worker("b").await;
    let claim = f.claim(b, 10).await;
    assert!(claim.jobs.is_empty(), "three crashes are enough");
    assert_eq!(claim.recovered, [Recovered { job: id, kind: WORK.into(), became: State::Failed }]);
    f.failed_with(id, "WORKER_LOST").await;
    let job = f.job(id).await;
    assert_eq!((job.crash_count, job.attempt_count), (3, 3), "{job:?}");
    assert_eq!(job.error.map(|error| error.class), Some(ErrorClass::Fatal), "an operator has to look");
    let timeline = f.timeline(id).await;
    let expected = "created processing requeued:stale processing requeued:stale processing failed";
    assert_eq!(timeline, expected, "the last crash ends it");
}

pub async fn crashes_are_counted_apart_from_failures(f: &Fixture) {
    let id = f.enqueue(NewJob { max_attempts: Some(100), ..job() }).await;
    let worker = f.worker("a").await;
    for _ in 0..5 {
        let claimed = f.claim_one(worker).await;
        f.accept(claimed.fence, retry_in(Duration::ZERO)).await;
    }
    crash(f, "b").await;
    let c = f.worker("c").await;
    let claimed = f.claim_one(c).await;
    assert_eq!(claimed.fence.attempt, 7, "five failures, one crash, this one");
    assert_eq!(f.job(id).await.crash_count, 1, "only the crash counts as one");
}

pub async fn a_crash_in_the_last_attempt_exhausts_the_retries(f: &Fixture) {
    let id = f.enqueue(NewJob { max_attempts: Some(1), ..job() }).await;
    crash(f, "a").await;
    let b = f.worker("b").await;
    let claim = f.claim(b, 10).await;
    assert!(claim.jobs.is_empty(), "one attempt was allowed");
    assert_eq!(claim.recovered, [Recovered { job: id, kind: WORK.into(), became: State::Failed }]);
    f.failed_with(id, "RETRIES_EXHAUSTED").await;
    let job = f.job(id).await;
    assert_eq!((job.attempt_count, job.crash_count), (1, 1), "{job:?}");
    assert_eq!(job.error.map(|error| error.class), Some(ErrorClass::RetryableTransient));
    assert_eq!(f.timeline(id).await, "created processing failed");
}

pub async fn a_crash_that_is_both_the_last_attempt_and_the_last_crash_is_a_lost_worker(f: &Fixture) {
    f.kind(WORK, 1, 1).await;
    let id = f.enqueue(job()).await;
    crash(f, "a").await;
    let b = f.worker("b").await;
    f.nothing_for(b, "it may neither run nor crash again").await;
    f.failed_with(id, "WORKER_LOST").await;
}

pub async fn a_job_to_be_cancelled_whose_worker_died_is_cancelled(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    f.claim_one(worker).await;
    assert_eq!(f.store.cancel(id).await.unwrap(), Cancelled::Requested);
    f.expire();
    let b = f.worker("b").await;
    let claim = f.claim(b, 10).await;
    assert!(claim.jobs.is_empty(), "an operator wants its end");
    assert_eq!(claim.recovered, [Recovered { job: id, kind: WORK.into(), became: State::Cancelled }]);
    f.is(id, State::Cancelled, "could not be stopped by its dead worker").await;
    assert_eq!(f.job(id).await.crash_count, 1, "its worker was lost all the same");
    assert_eq!(f.timeline(id).await, "created processing cancel:requested cancelled");
}

pub async fn racing_rescuers_recover_each_job_once(f: &Fixture) {
    let all = f.enqueue_all(vec![job(); 40]).await;
    let a = f.worker("a").await;
    assert_eq!(f.claim(a, 40).await.jobs.len(), 40);
    f.expire();
    let stores = [f.store.clone(), f.another().await];
    let mut workers = Vec::new();
    for number in 0..8 {
        workers.push(f.worker(&format!("r{number}")).await);
    }
    let claims = race(8, |number| {
        let (store, worker) = (stores[number % 2].clone(), workers[number]);
        async move { store.claim(claim_request(worker, 100)).await.unwrap() }
    })
    .await;
    let recovered: Vec<JobId> =
        claims.iter().flat_map(|claim| claim.recovered.iter().map(|r| r.job)).collect();
    let distinct: HashSet<JobId> = recovered.iter().copied().collect();
    assert_eq!((recovered.len(), distinct.len()), (40, 40), "each recovered once");
    let mut given: Vec<JobId> = claims.iter().flat_map(|claim| ids(&claim.jobs)).collect();
    given.extend(f.claim_ids(workers[0], 100).await);
    given.sort();
    assert_eq!(given, all, "each given out once again");
    for id in all {
        let job = f.job(id).await;
        assert_eq!((job.crash_count, job.attempt_count), (1, 2), "counted once: {job:?}");
    }
}
