//! Rule 17: cancelling a waiting job ends it at once; cancelling a running one asks its worker.

use super::prelude::*;

pub async fn a_waiting_job_ends_at_once(f: &Fixture) {
    let id = f.enqueue(job()).await;
    assert_eq!(f.store.cancel(id).await.unwrap(), Cancelled::Ended);
    let job = f.job(id).await;
    assert_eq!(
        (job.state, job.attempt_count, job.finished_at),
        (State::Cancelled, 0, Some(f.now())),
        "{job:?}"
    );
    assert_eq!(f.timeline(id).await, "created cancelled");
    let worker = f.worker("w").await;
    f.nothing_for(worker, "it was cancelled").await;
}

pub async fn a_delayed_and_a_blocked_job_end_at_once(f: &Fixture) {
    let parent = f.enqueue(job()).await;
    let delayed = f.enqueue(NewJob { due: Due::In(Duration::from_secs(60)), ..job() }).await;
    let blocked = f.enqueue(NewJob { after: vec![parent], ..job() }).await;
    for id in [delayed, blocked] {
        assert_eq!(f.store.cancel(id).await.unwrap(), Cancelled::Ended);
        f.is(id, State::Cancelled, "was waiting").await;
    }
    let worker = f.worker("w").await;
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    f.advance(Duration::from_secs(120));
    f.store.beat(worker).await.unwrap();
    f.nothing_for(worker, "neither the due time nor the parent brings them back").await;
}

pub async fn a_running_job_is_cancelled_through_its_worker(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let (a, b) = (f.worker("a").await, f.worker("b").await);
    let claimed = f.claim_one(a).await;
    assert_eq!(f.store.cancel(id).await.unwrap(), Cancelled::Requested);
    let job = f.job(id).await;
    assert!(job.state == State::Processing && job.cancel_requested, "asked, not ended: {job:?}");
    assert_eq!(f.store.beat(b).await.unwrap().cancels, [], "it is not b's");
    assert_eq!(f.store.beat(a).await.unwrap().cancels, [id], "its worker is told with the beat");
    assert_eq!(f.store.beat(a).await.unwrap().cancels, [id], "again, until it answers: a beat may get lost");
    f.accept(claimed.fence, Outcome::Cancelled).await;
    assert_eq!(f.store.beat(a).await.unwrap().cancels, [], "it has answered");
    assert_eq!(f.timeline(id).await, "created processing cancel:requested cancelled");
}

pub async fn asking_twice_is_asking_once(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w").await;
    let claimed = f.claim_one(worker).await;
    assert_eq!(f.store.cancel(id).await.unwrap(), Cancelled::Requested);
    assert_eq!(f.store.cancel(id).await.unwrap(), Cancelled::Requested);
    assert_eq!(f.store.beat(worker).await.unwrap().cancels, [id], "told once");
    f.accept(claimed.fence, Outcome::Cancelled).await;
    assert_eq!(
        f.timeline(id).await,
        "created processing cancel:requested cancelled",
        "one request in the timeline"
    );
}

pub async fn a_job_that_finishes_before_it_hears_is_done(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("w").await;
    let claimed = f.claim_one(worker).await;
    f.store.cancel(id).await.unwrap();
    f.done(claimed.fence).await;
    f.is(id, State::Done, "was faster than the request").await;
    assert_eq!(f.store.beat(worker).await.unwrap().cancels, [], "there is nothing left to cancel");
}

pub async fn a_cancelled_running_job_is_never_run_again(f: &Fixture) {
    let worker = f.worker("w").await;
    for outcome in
        [retry_in(Duration::ZERO), retry_in(Duration::from_secs(1)), Outcome::Released, Outcome::Aborted]
    {
        let id = f.enqueue(job()).await;
        let claimed = f.claim_one(worker).await;
        assert_eq!(f.store.cancel(id).await.unwrap(), Cancelled::Requested);
        f.accept(claimed.fence, outcome.clone()).await;
        f.is(id, State::Cancelled, &format!("was to be cancelled and came back by {outcome:?}")).await;
        assert_eq!(f.timeline(id).await, "created processing cancel:requested cancelled", "{outcome:?}");
        assert_eq!(f.job(id).await.attempt_count, 1, "the attempt in the timeline counts, {outcome:?}");
        f.advance(Duration::from_secs(2));
        f.store.beat(worker).await.unwrap();
        f.nothing_for(worker, &format!("it was cancelled before {outcome:?}")).await;
    }
}

pub async fn a_finished_job_cannot_be_cancelled(f: &Fixture) {
    let worker = f.worker("w").await;
    for outcome in [Outcome::Done { result: None }, failed(), Outcome::Cancelled] {
        let id = f.enqueue(job()).await;
        let claimed = f.claim_one(worker).await;
        f.accept(claimed.fence, outcome).await;
        let before = f.all_of(id).await;
        let error = f.store.cancel(id).await.unwrap_err();
        assert_eq!(error.code(), "WRONG_STATE", "{error}");
        assert_eq!(f.all_of(id).await, before, "the refused cancellation changed the job");
    }
}

pub async fn a_job_that_is_not_there_cannot_be_cancelled(f: &Fixture) {
    let error = f.store.cancel(JobId(424_242)).await.unwrap_err();
    assert_eq!(error.code(), "NOT_FOUND", "{error}");
}

pub async fn a_cancelled_waiting_job_frees_the_unique_key(f: &Fixture) {
    let unique = NewJob { unique_key: Some("k".into()), ..job() };
    let first = f.enqueue(unique.clone()).await;
    f.store.cancel(first).await.unwrap();
    assert_ne!(f.enqueue(unique).await, first, "the key is free");
}

pub async fn racing_cancel_and_claim_agree(f: &Fixture) {
    let worker = f.worker("w").await;
    for round in 0..10 {
        let id = f.enqueue(job()).await;
        let (store, elsewhere) = (f.store.clone(), f.another().await);
        let outcomes = race(2, |number| {
            let (store, elsewhere) = (store.clone(), elsewhere.clone());
            async move {
                if number == 0 {
                    let answer = store.cancel(id).await.unwrap();
                    (answer == Cancelled::Ended, None)
                } else {
                    let jobs = elsewhere.claim(claim_request(worker, 1)).await.unwrap().jobs;
                    (false, jobs.first().map(|job| job.fence))
                }
            }
        })
        .await;
        let ended = outcomes.iter().any(|(ended, _)| *ended);
        let claimed = outcomes.iter().find_map(|(_, fence)| *fence);
        match (ended, claimed) {
            (true, None) => f.is(id, State::Cancelled, "was cancelled before the claim").await,
            (false, Some(fence)) => {
                assert_eq!(
                    f.store.beat(worker).await.unwrap().cancels,
                    [id],
                    "round {round}: its worker is asked"
                );
                f.accept(fence, Outcome::Cancelled).await;
            }
            both => panic!("round {round}: cancelled and claimed, or neither: {both:?}"),
        }
        f.events(id).await;
    }
}
