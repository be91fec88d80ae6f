//! Rule 16: only failed jobs can be retried; history and attempt count are kept.

use super::prelude::*;

async fn fail(f: &Fixture, worker: WorkerId) -> JobId {
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, failed()).await;
    claimed.fence.job
}

pub async fn a_failed_job_runs_again_with_its_history(f: &Fixture) {
    let worker = f.worker("w").await;
    f.enqueue(job()).await;
    let id = fail(f, worker).await;
    f.advance(Duration::from_secs(10));
    f.store.retry(id).await.unwrap();
    let read = f.job(id).await;
    assert_eq!((read.state, read.stage), (State::Queued, Some(Stage::Ready)), "{read:?}");
    assert_eq!(read.attempt_count, 1, "the count is kept: {read:?}");
    assert!(read.finished_at.is_none(), "it has no end any more: {read:?}");
    assert_eq!(value(&read.payload), json!({ "n": 1 }), "{read:?}");
    assert_eq!(f.timeline(id).await, "created processing failed requeued:operator");
    let claimed = f.claim_one(worker).await;
    assert_eq!((claimed.fence.job, claimed.fence.attempt), (id, 2), "{claimed:?}");
    f.done(claimed.fence).await;
    assert_eq!(f.timeline(id).await, "created processing failed requeued:operator processing done");
    assert!(f.job(id).await.created_at < f.now(), "it is the same job");
}

pub async fn a_retried_job_gets_as_many_further_attempts_as_it_had(f: &Fixture) {
    let worker = f.worker("w").await;
    f.enqueue(NewJob { max_attempts: Some(2), ..job() }).await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, retry_in(Duration::ZERO)).await;
    let id = fail(f, worker).await;
    assert_eq!(f.job(id).await.attempt_count, 2, "both attempts are used up");
    f.store.retry(id).await.unwrap();
    assert_eq!(f.job(id).await.max_attempts, 4, "two more");
    let claimed = f.claim_one(worker).await;
    assert_eq!((claimed.fence.attempt, claimed.max_attempts), (3, 4), "{claimed:?}");
}

pub async fn a_job_can_be_retried_again_and_again(f: &Fixture) {
    let worker = f.worker("w").await;
    let id = f.enqueue(job()).await;
    for attempt in 1..=4 {
        assert_eq!(fail(f, worker).await, id);
        assert_eq!(f.job(id).await.attempt_count, attempt, "counted on");
        f.store.retry(id).await.unwrap();
    }
    let round = " processing failed requeued:operator";
    assert_eq!(f.timeline(id).await, format!("created{}", round.repeat(4)));
}

pub async fn only_failed_jobs_can_be_retried(f: &Fixture) {
    let worker = f.worker("w").await;
    let waiting = f.enqueue(job()).await;
    refused(f, waiting, "waiting").await;
    let claimed = f.claim_one(worker).await;
    refused(f, waiting, "running").await;
    f.done(claimed.fence).await;
    refused(f, waiting, "done").await;
    let cancelled = f.enqueue(job()).await;
    f.store.cancel(cancelled).await.unwrap();
    refused(f, cancelled, "cancelled").await;
}

async fn refused(f: &Fixture, id: JobId, what: &str) {
    let before = f.all_of(id).await;
    let error = f.store.retry(id).await.unwrap_err();
    assert_eq!(error.code(), "WRONG_STATE", "a {what} job: {error}");
    assert_eq!(f.all_of(id).await, before, "the refused retry of a {what} job changed it");
}

pub async fn a_job_that_is_not_there_cannot_be_retried(f: &Fixture) {
    let error = f.store.retry(JobId(424_242)).await.unwrap_err();
    assert_eq!(error.code(), "NOT_FOUND", "{error}");
}

pub async fn racing_operators_retry_a_job_once(f: &Fixture) {
    let worker = f.worker("w").await;
    f.enqueue(job()).await;
    let id = fail(f, worker).await;
    let stores = [f.store.clone(), f.another().await];
    let answers = race(8, |number| {
        let store = stores[number % 2].clone();
        async move { store.retry(id).await.map_err(|error| error.code()) }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "one retry: {answers:?}");
    assert_eq!(f.claim(worker, 10).await.jobs.len(), 1, "given out once");
    assert_eq!(f.timeline(id).await, "created processing failed requeued:operator processing");
}

pub async fn a_job_that_lost_its_workers_can_be_retried_and_survive(f: &Fixture) {
    f.kind(WORK, 5, 1).await;
    let id = f.enqueue(job()).await;
    let a = f.worker("a").await;
    f.claim_one(a).await;
    f.expire();
    let b = f.worker("b").await;
    f.nothing_for(b, "it took its worker down").await;
    f.failed_with(id, "WORKER_LOST").await;
    f.store.retry(id).await.unwrap();
    let claimed = f.claim_one(b).await;
    f.done(claimed.fence).await;
    f.is(id, State::Done, "ran well the second time").await;
    assert_eq!(f.timeline(id).await, "created processing failed requeued:operator processing done");
}

pub async fn a_retried_job_keeps_its_limit_key_and_notes(f: &Fixture) {
    f.store
        .limit_set(Limit { pattern: "a".into(), concurrency: Some(1), rate: None, weight: 1 })
        .await
        .unwrap();
    let id = f.enqueue(keyed("a")).await;
    let worker = f.worker("w").await;
    let fence = f.claim_one(worker).await.fence;
    let event = Some(("mine".to_owned(), raw(&json!({}))));
    f.store.note(vec![Note { fence, progress: Some(30), event }]).await.unwrap();
    f.accept(fence, failed()).await;
    f.store.retry(id).await.unwrap();
    let claimed = f.claim_one(worker).await;
    assert_eq!(claimed.fence.job, id);
    assert_eq!(f.store.limit_state("a").await.unwrap().unwrap().running, 1, "under its limit again");
    assert_eq!(f.timeline(id).await, "created processing mine failed requeued:operator processing");
}
