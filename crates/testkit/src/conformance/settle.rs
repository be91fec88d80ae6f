//! Rules 13 and 14: how executions end.

use super::prelude::*;

pub async fn done_ends_the_job_with_its_result(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("the worker").await;
    let claimed = f.claim_one(worker).await;
    f.advance(Duration::from_secs(5));
    let result = serde_json::value::to_raw_value(&json!({ "made": [1, 2] })).ok();
    f.accept(claimed.fence, Outcome::Done { result }).await;
    let job = f.job(id).await;
    assert_eq!((job.state, job.stage), (State::Done, None), "{job:?}");
    assert_eq!(job.result.as_ref().map(value), Some(json!({ "made": [1, 2] })), "{job:?}");
    assert_eq!(job.finished_at, Some(f.now()), "{job:?}");
    assert_eq!(job.started_at, Some(f.now() - Duration::from_secs(5)), "{job:?}");
    assert_eq!((job.attempt_count, job.worker.as_deref()), (1, Some("the worker")), "{job:?}");
    assert!(job.error.is_none() && job.lease_expires_at.is_none(), "{job:?}");
    f.nothing_for(worker, "it is done").await;
}

pub async fn done_without_result_has_none(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    assert!(f.job(id).await.result.is_none(), "no result was given");
}

pub async fn failed_ends_the_job_with_its_error(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    let mut error = JobError::new("BAD_INPUT", ErrorClass::ValidationFailure, "no such file");
    error.detail = Some("line one\nline two".into());
    f.accept(claimed.fence, Outcome::Failed { error: error.clone() }).await;
    let job = f.job(id).await;
    assert_eq!((job.state, job.error.as_ref()), (State::Failed, Some(&error)), "{job:?}");
    assert_eq!(job.attempt_count, 1, "poison leaves the count as it is: {job:?}");
    f.nothing_for(worker, "it failed for good").await;
}

pub async fn retry_makes_the_job_due_after_its_delay(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, retry_in(Duration::from_secs(10))).await;
    let read = f.job(id).await;
    assert_eq!((read.state, read.stage), (State::Queued, Some(Stage::Delayed)), "{read:?}");
    assert_eq!(read.run_at, f.now() + Duration::from_secs(10), "{read:?}");
    assert_eq!(read.error, Some(transient()), "the error is shown while it waits");
    assert_eq!((read.attempt_count, read.crash_count), (1, 0), "{read:?}");
    f.advance(Duration::from_millis(9_999));
    f.nothing_for(worker, "the delay is not over").await;
    f.advance(Duration::from_millis(1));
    assert_eq!(f.claim_one(worker).await.fence.attempt, 2, "the delay is over");
}

pub async fn retry_without_delay_is_claimable_at_once(f: &Fixture) {
    f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, retry_in(Duration::ZERO)).await;
    assert_eq!(f.claim_one(worker).await.fence.attempt, 2);
}

pub async fn a_success_after_a_failure_shows_no_error(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, retry_in(Duration::ZERO)).await;
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    let timeline = f.timeline(id).await;
    assert_eq!(
        timeline, "created processing requeued:retry processing done",
        "the timeline tells of the failure"
    );
    let last = f.events(id).await.pop().unwrap();
    assert_eq!(value(&last.data), json!({}), "the end was good");
}

pub async fn cancelled_ends_the_job(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, Outcome::Cancelled).await;
    f.is(id, State::Cancelled, "was stopped").await;
    f.nothing_for(worker, "it was cancelled").await;
}

pub async fn a_released_job_has_never_been_started(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let (a, b) = (f.worker("a").await, f.worker("b").await);
    let claimed = f.claim_one(a).await;
    f.accept(claimed.fence, Outcome::Released).await;
    let read = f.job(id).await;
    assert_eq!((read.state, read.stage), (State::Queued, Some(Stage::Ready)), "{read:?}");
    assert_eq!((read.attempt_count, read.crash_count), (0, 0), "the attempt is given back: {read:?}");
    assert!(read.started_at.is_none() && read.lease_expires_at.is_none(), "{read:?}");
    assert_eq!(f.timeline(id).await, "created", "it leaves no trace");
    assert_eq!(f.claim_one(b).await.fence.attempt, 1, "claimable at once, as the first attempt");
    assert_eq!(f.timeline(id).await, "created processing");
}

pub async fn a_released_second_attempt_gives_back_only_itself(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let first = f.claim_one(worker).await;
    f.accept(first.fence, retry_in(Duration::ZERO)).await;
    let second = f.claim_one(worker).await;
    f.accept(second.fence, Outcome::Released).await;
    assert_eq!(f.job(id).await.attempt_count, 1, "the first attempt has happened");
    let third = f.claim_one(worker).await;
    assert_eq!(third.fence.attempt, 2);
    f.done(third.fence).await;
    assert_eq!(f.timeline(id).await, "created processing requeued:retry processing done");
}

pub async fn an_aborted_job_gets_its_attempt_back_and_keeps_the_trace(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let (a, b) = (f.worker("a").await, f.worker("b").await);
    let claimed = f.claim_one(a).await;
    f.accept(claimed.fence, Outcome::Aborted).await;
    let read = f.job(id).await;
    assert_eq!((read.state, read.stage), (State::Queued, Some(Stage::Ready)), "{read:?}");
    assert_eq!((read.attempt_count, read.crash_count), (0, 0), "a shutdown costs nothing: {read:?}");
    let second = f.claim_one(b).await;
    assert_eq!(second.fence.attempt, 1, "claimable at once");
    f.done(second.fence).await;
    assert_eq!(f.timeline(id).await, "created processing aborted:shutdown processing done");
}

pub async fn a_released_job_keeps_its_place(f: &Fixture) {
    let all = f.enqueue_all(vec![job(); 3]).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, Outcome::Released).await;
    assert_eq!(f.claim_ids(worker, 10).await, all, "it goes back to the head of its queue");
}

pub async fn a_batch_may_mix_every_outcome(f: &Fixture) {
    let outcomes = every_outcome();
    let all = f.enqueue_all(vec![job(); outcomes.len()]).await;
    let worker = f.worker("a").await;
    let claimed = f.claim(worker, 10).await.jobs;
    assert_eq!(ids(&claimed), all);
    let batch = claimed.iter().zip(outcomes).map(|(job, outcome)| Settlement { fence: job.fence, outcome });
    let verdicts = f.store.settle(batch.collect()).await.unwrap();
    assert_eq!(verdicts, vec![Verdict::Accepted; 7]);
    let mut states = Vec::new();
    for id in &all {
        states.push(f.job(*id).await.state);
    }
    use State::{Cancelled, Done, Failed, Queued};
    assert_eq!(states, [Done, Queued, Queued, Failed, Cancelled, Queued, Queued], "each by its own outcome");
    let mut again = f.claim_ids(worker, 10).await;
    again.sort();
    assert_eq!(again, [all[1], all[5], all[6]], "retried at once, released and aborted are claimable");
    for id in &all {
        f.events(*id).await;
    }
}

pub async fn an_empty_settlement_is_answered_by_nothing(f: &Fixture) {
    assert_eq!(f.store.settle(Vec::new()).await.unwrap(), [], "no settlements, no verdicts");
    assert_eq!(f.store.note(Vec::new()).await.unwrap(), [], "no notes, no verdicts");
}

pub async fn a_thousand_executions_end_in_one_batch(f: &Fixture) {
    f.enqueue_all(vec![job(); 1000]).await;
    let worker = f.worker("a").await;
    let claimed = f.claim(worker, 1000).await.jobs;
    assert_eq!(claimed.len(), 1000);
    let done = |job: &ClaimedJob| Settlement { fence: job.fence, outcome: Outcome::Done { result: None } };
    let verdicts = f.store.settle(claimed.iter().map(done).collect()).await.unwrap();
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted), "each of them");
    assert_eq!(f.store.owned(worker).await.unwrap(), [], "none is held any more");
    f.is(claimed[999].fence.job, State::Done, "was the last of the batch").await;
}

pub async fn an_error_text_with_nul_does_not_stand_in_the_way_of_its_end(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    // A program's stderr may hold anything, and a settlement that can never be written would hold the job for ever.
    let mut error = JobError::new("EXEC", ErrorClass::Fatal, "exit 1: a\0b");
    error.detail = Some("binary \0 rubbish".into());
    f.accept(claimed.fence, Outcome::Failed { error }).await;
    f.failed_with(id, "EXEC").await;
    let message = f.job(id).await.error.unwrap().message;
    assert_eq!(message, "exit 1: a\u{fffd}b");
    assert_eq!(f.store.failures(10).await.unwrap()[0].message, message);
    let filter =
        JobFilter { code: Some("EXEC".into()), search: Some("EXIT 1".into()), ..JobFilter::default() };
    assert_eq!(f.store.jobs(filter).await.unwrap().len(), 1, "it can be looked into");
    f.store.retry(id).await.expect("and retried");
}
