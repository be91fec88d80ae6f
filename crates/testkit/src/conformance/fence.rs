//! Rule 12 (INV-2): a write whose fence does not match, or whose lease has run out, changes nothing and is answered
//! `Stale`.

use super::prelude::*;

/// Fences that look like the current one and are not.
fn forgeries(fence: Fence) -> [(&'static str, Fence); 4] {
    [
        ("another token", Fence { token: LeaseToken(fence.token.0.wrapping_add(1)), ..fence }),
        ("an earlier attempt", Fence { attempt: fence.attempt - 1, ..fence }),
        ("a later attempt", Fence { attempt: fence.attempt + 1, ..fence }),
        ("another job", Fence { job: JobId(fence.job.0 + 1_000_000), ..fence }),
    ]
}

async fn all_are_stale(f: &Fixture, id: JobId, what: &str, fence: Fence) {
    let before = f.all_of(id).await;
    for outcome in every_outcome() {
        let text = format!("{outcome:?}");
        assert_eq!(f.settle(fence, outcome).await, Verdict::Stale, "{text} with {what}");
        assert_eq!(f.all_of(id).await, before, "{text} with {what} changed the job");
    }
    for note in every_note(fence) {
        let text = format!("{note:?}");
        assert_eq!(f.store.note(vec![note]).await.unwrap(), [Verdict::Stale], "{text} with {what}");
        assert_eq!(f.all_of(id).await, before, "{text} with {what} changed the job");
    }
}

pub async fn every_write_with_a_forged_fence_is_stale(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    for (what, fence) in forgeries(claimed.fence) {
        all_are_stale(f, id, what, fence).await;
        assert!(!f.store.holds(fence).await.unwrap(), "{what} holds nothing");
    }
    f.done(claimed.fence).await;
}

pub async fn every_write_after_the_end_is_stale(f: &Fixture) {
    let worker = f.worker("a").await;
    for outcome in [Outcome::Done { result: None }, failed(), Outcome::Cancelled] {
        let id = f.enqueue(job()).await;
        let claimed = f.claim_one(worker).await;
        let what = format!("the fence of a job that ended by {outcome:?}");
        f.accept(claimed.fence, outcome).await;
        all_are_stale(f, id, &what, claimed.fence).await;
    }
}

pub async fn every_write_after_the_attempt_is_stale(f: &Fixture) {
    let worker = f.worker("a").await;
    for outcome in
        [retry_in(Duration::ZERO), retry_in(Duration::from_secs(9)), Outcome::Released, Outcome::Aborted]
    {
        let id = f.enqueue(job()).await;
        let claimed = f.claim_one(worker).await;
        let what = format!("the fence of an attempt that ended by {outcome:?}");
        f.accept(claimed.fence, outcome).await;
        all_are_stale(f, id, &what, claimed.fence).await;
        f.store.cancel(id).await.unwrap();
    }
}

pub async fn the_attempt_number_given_back_does_not_let_an_old_fence_in(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    for outcome in [Outcome::Released, Outcome::Aborted] {
        let first = f.claim_one(worker).await;
        f.accept(first.fence, outcome).await;
        let second = f.claim_one(worker).await;
        assert_eq!(first.fence.attempt, second.fence.attempt, "the attempt was given back");
        all_are_stale(f, id, "the old token and the same attempt", first.fence).await;
        f.accept(second.fence, Outcome::Released).await;
    }
}

pub async fn every_write_about_a_recovered_job_by_its_old_worker_is_stale(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let a = f.worker("a").await;
    let lost = f.claim_one(a).await;
    f.expire();
    let b = f.worker("b").await;
    let current = f.claim_one(b).await;
    all_are_stale(f, id, "the fence of a lost lease", lost.fence).await;
    f.done(current.fence).await;
}

pub async fn every_write_after_the_lease_is_stale_though_nobody_took_the_job(f: &Fixture) {
    let a = f.worker("a").await;
    let plain = f.enqueue(job()).await;
    let plain_fence = f.claim_one(a).await.fence;
    let parent = f.enqueue(keyed("acme")).await;
    let child = f.enqueue(NewJob { after: vec![parent], ..job() }).await;
    let parent_fence = f.claim_one(a).await.fence;
    f.store.note(every_note(parent_fence)).await.unwrap();
    let unwanted = f.enqueue(job()).await;
    let unwanted_fence = f.claim_one(a).await.fence;
    assert_eq!(f.store.cancel(unwanted).await.unwrap(), Cancelled::Requested);
    f.advance(LEASE);
    all_are_stale(f, plain, "a lease that has just run out", plain_fence).await;
    all_are_stale(f, parent, "a lease of a job with events and children", parent_fence).await;
    all_are_stale(f, unwanted, "a lease of a job that is to be cancelled", unwanted_fence).await;
    f.is(child, State::Queued, "its parent has not ended").await;
    let b = f.worker("b").await;
    assert_eq!(f.claim_ids(b, 10).await.len(), 2, "recovered, but for the one that is cancelled");
    f.is(unwanted, State::Cancelled, "an operator wanted its end").await;
}

pub async fn each_settlement_of_a_batch_is_judged_by_its_own_lease(f: &Fixture) {
    let short = f.enqueue(job()).await;
    let long = f.enqueue(NewJob { kind: OTHER.into(), ..job() }).await;
    let (ten, hour) = (Duration::from_secs(10), Duration::from_secs(3600));
    let a = f.worker_with("a", ten, hour).await;
    let mut request = claim_request(a, 10);
    request.kinds[0].lease = ten;
    request.kinds[1].lease = hour;
    let claimed = f.claim_as(request).await.jobs;
    f.advance(ten);
    let note = |job: &ClaimedJob| Note { fence: job.fence, progress: Some(50), event: None };
    let told = f.store.note(claimed.iter().map(note).collect()).await.unwrap();
    assert_eq!(told, [Verdict::Stale, Verdict::Accepted], "of the two notes");
    let done = |job: &ClaimedJob| Settlement { fence: job.fence, outcome: Outcome::Done { result: None } };
    let told = f.store.settle(claimed.iter().map(done).collect()).await.unwrap();
    assert_eq!(told, [Verdict::Stale, Verdict::Accepted], "of the two settlements");
    f.is(short, State::Processing, "waits to be recovered").await;
    f.is(long, State::Done, "was within its lease").await;
}

pub async fn a_retried_job_does_not_know_its_old_fence(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let old = f.claim_one(worker).await;
    f.accept(old.fence, failed()).await;
    f.store.retry(id).await.unwrap();
    all_are_stale(f, id, "the fence from before the operator's retry", old.fence).await;
}

pub async fn each_settlement_of_a_batch_is_judged_by_itself(f: &Fixture) {
    let all = f.enqueue_all(vec![job(); 3]).await;
    let worker = f.worker("a").await;
    let claimed = f.claim(worker, 3).await.jobs;
    let mut settlements: Vec<Settlement> = claimed
        .iter()
        .map(|job| Settlement { fence: job.fence, outcome: Outcome::Done { result: None } })
        .collect();
    settlements[1].fence.token = LeaseToken(1);
    let verdicts = f.store.settle(settlements).await.unwrap();
    assert_eq!(verdicts, [Verdict::Accepted, Verdict::Stale, Verdict::Accepted], "in the order of input");
    f.is(all[1], State::Processing, "is still with its worker").await;
    f.is(all[2], State::Done, "comes after the stale one").await;
}

pub async fn the_first_of_two_settlements_of_one_execution_wins(f: &Fixture) {
    let worker = f.worker("a").await;
    for second in every_outcome() {
        let id = f.enqueue(job()).await;
        let fence = f.claim_one(worker).await.fence;
        let first = Outcome::Failed { error: JobError::new("FIRST", ErrorClass::Fatal, "the first") };
        let text = format!("{second:?}");
        let batch = vec![Settlement { fence, outcome: first }, Settlement { fence, outcome: second }];
        let verdicts = f.store.settle(batch).await.unwrap();
        assert_eq!(verdicts, [Verdict::Accepted, Verdict::Stale], "failed, then {text}");
        f.failed_with(id, "FIRST").await;
        assert_eq!(f.timeline(id).await, "created processing failed", "then {text}");
    }
}

pub async fn racing_settlements_of_one_execution_have_one_winner(f: &Fixture) {
    let worker = f.worker("a").await;
    for round in 0..10 {
        let id = f.enqueue(job()).await;
        let fence = f.claim_one(worker).await.fence;
        let stores = [f.store.clone(), f.another().await];
        let verdicts = race(8, |number| {
            let store = stores[number % 2].clone();
            let outcome = if number % 2 == 0 { Outcome::Done { result: None } } else { failed() };
            async move { store.settle(vec![Settlement { fence, outcome }]).await.unwrap()[0] }
        })
        .await;
        let accepted = verdicts.iter().filter(|verdict| **verdict == Verdict::Accepted).count();
        assert_eq!(accepted, 1, "round {round}, job {id}: {verdicts:?}");
        assert_eq!(f.events(id).await.len(), 3, "round {round}: one end");
    }
}
