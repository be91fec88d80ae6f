//! Rule 4: a job runs when all its parents are done, and fails when one of them does not get there.

use super::prelude::*;

fn after(parents: &[JobId]) -> NewJob {
    NewJob { after: parents.to_vec(), ..job() }
}

/// Two claimed parents and a child that waits for both.
async fn family(f: &Fixture) -> (WorkerId, Vec<ClaimedJob>, JobId) {
    let parents = f.enqueue_all(vec![job(), job()]).await;
    let child = f.enqueue(after(&parents)).await;
    let worker = f.worker("a").await;
    let claimed = f.claim(worker, 10).await.jobs;
    assert_eq!(ids(&claimed), parents, "only the parents can run");
    (worker, claimed, child)
}

pub async fn a_child_waits_for_all_of_its_parents(f: &Fixture) {
    let (worker, parents, child) = family(f).await;
    assert_eq!(f.job(child).await.stage, Some(Stage::Blocked), "it waits for two");
    f.done(parents[0].fence).await;
    f.nothing_for(worker, "one parent still runs").await;
    assert_eq!(f.job(child).await.stage, Some(Stage::Blocked), "it waits for one");
    f.done(parents[1].fence).await;
    assert_eq!(f.claim_ids(worker, 10).await, [child], "both parents are done");
}

pub async fn a_child_is_released_once_when_its_parents_finish_in_one_batch(f: &Fixture) {
    let (worker, parents, child) = family(f).await;
    let done = |p: &ClaimedJob| Settlement { fence: p.fence, outcome: Outcome::Done { result: None } };
    let verdicts = f.store.settle(parents.iter().map(done).collect()).await.unwrap();
    assert_eq!(verdicts, [Verdict::Accepted; 2]);
    assert_eq!(f.claim_ids(worker, 10).await, [child], "given out once");
    f.nothing_for(worker, "it was given out already").await;
    assert_eq!(f.job(child).await.attempt_count, 1, "and counted once");
}

pub async fn a_child_is_released_when_its_parents_finish_at_the_same_time(f: &Fixture) {
    let parents = f.enqueue_all(vec![job(); 8]).await;
    let child = f.enqueue(after(&parents)).await;
    let worker = f.worker("a").await;
    let claimed = f.claim(worker, 8).await.jobs;
    let stores = [f.store.clone(), f.another().await];
    let verdicts = race(8, |number| {
        let (store, fence) = (stores[number % 2].clone(), claimed[number].fence);
        async move {
            store.settle(vec![Settlement { fence, outcome: Outcome::Done { result: None } }]).await.unwrap()
        }
    })
    .await;
    assert!(verdicts.iter().all(|verdict| verdict == &[Verdict::Accepted]), "{verdicts:?}");
    assert_eq!(f.claim_ids(worker, 10).await, [child], "the last of eight racing parents released the child");
}

pub async fn a_done_parent_is_satisfied_at_once(f: &Fixture) {
    let parent = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    let child = f.enqueue(after(&[parent])).await;
    assert_eq!(f.claim_ids(worker, 10).await, [child], "there is nothing to wait for");
}

pub async fn a_parent_named_twice_counts_once(f: &Fixture) {
    let parent = f.enqueue(job()).await;
    let child = f.enqueue(after(&[parent, parent])).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    assert_eq!(f.claim_ids(worker, 10).await, [child], "the one parent is done");
}

pub async fn a_failed_parent_fails_its_child(f: &Fixture) {
    let (worker, parents, child) = family(f).await;
    f.accept(parents[0].fence, failed()).await;
    f.failed_with(child, "DEPENDENCY_FAILED").await;
    assert_eq!(
        f.job(child).await.error.unwrap().class,
        ErrorClass::Fatal,
        "poison: it cannot help to try again"
    );
    assert_eq!(f.job(child).await.attempt_count, 0, "it never ran");
    assert_eq!(f.timeline(child).await, "created failed");
    f.done(parents[1].fence).await;
    f.failed_with(child, "DEPENDENCY_FAILED").await;
    f.nothing_for(worker, "the child has failed, its other parent cannot release it").await;
}

pub async fn a_cancelled_parent_fails_its_child(f: &Fixture) {
    let parent = f.enqueue(job()).await;
    let child = f.enqueue(after(&[parent])).await;
    assert_eq!(f.store.cancel(parent).await.unwrap(), Cancelled::Ended);
    f.failed_with(child, "DEPENDENCY_FAILED").await;
}

pub async fn a_parent_cancelled_by_its_worker_fails_its_child(f: &Fixture) {
    let (_, parents, child) = family(f).await;
    f.store.cancel(parents[0].fence.job).await.unwrap();
    f.accept(parents[0].fence, Outcome::Cancelled).await;
    f.failed_with(child, "DEPENDENCY_FAILED").await;
}

pub async fn a_parent_lost_with_its_workers_fails_its_child(f: &Fixture) {
    f.kind(WORK, 5, 1).await;
    let parent = f.enqueue(job()).await;
    let child = f.enqueue(after(&[parent])).await;
    let worker = f.worker("a").await;
    f.claim_one(worker).await;
    f.expire();
    let rescuer = f.worker("b").await;
    f.nothing_for(rescuer, "one crash was allowed").await;
    f.failed_with(parent, "WORKER_LOST").await;
    f.failed_with(child, "DEPENDENCY_FAILED").await;
}

pub async fn a_failure_cascades_through_generations(f: &Fixture) {
    let root = f.enqueue(job()).await;
    let mut line = vec![root];
    for _ in 0..5 {
        let parent = *line.last().unwrap();
        line.push(f.enqueue(after(&[parent])).await);
    }
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, failed()).await;
    for descendant in &line[1..] {
        f.failed_with(*descendant, "DEPENDENCY_FAILED").await;
    }
    f.nothing_for(worker, "all of them have failed").await;
}

pub async fn a_diamond_below_a_failure_fails_once(f: &Fixture) {
    let root = f.enqueue(job()).await;
    let sides = f.enqueue_all(vec![after(&[root]), after(&[root])]).await;
    let bottom = f.enqueue(after(&sides)).await;
    assert_eq!(f.store.cancel(root).await.unwrap(), Cancelled::Ended);
    f.failed_with(bottom, "DEPENDENCY_FAILED").await;
    assert_eq!(f.timeline(bottom).await, "created failed", "reached over both sides, failed once");
}

pub async fn a_child_of_a_failed_or_cancelled_parent_is_accepted_and_failed(f: &Fixture) {
    let parents = f.enqueue_all(vec![job(), job()]).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, failed()).await;
    f.store.cancel(parents[1]).await.unwrap();
    for parent in parents {
        let child = f.enqueue(after(&[parent])).await;
        f.failed_with(child, "DEPENDENCY_FAILED").await;
        assert_eq!(f.timeline(child).await, "created failed");
    }
    f.nothing_for(worker, "both children have failed").await;
}

pub async fn a_child_of_a_done_and_a_failed_parent_fails(f: &Fixture) {
    f.enqueue_all(vec![job(), job()]).await;
    let worker = f.worker("a").await;
    let claimed = f.claim(worker, 2).await.jobs;
    f.done(claimed[0].fence).await;
    f.accept(claimed[1].fence, failed()).await;
    let child = f.enqueue(after(&ids(&claimed))).await;
    f.failed_with(child, "DEPENDENCY_FAILED").await;
}

pub async fn a_child_waits_through_its_parents_retries(f: &Fixture) {
    let parent = f.enqueue(job()).await;
    let child = f.enqueue(after(&[parent])).await;
    let worker = f.worker("a").await;
    for outcome in [retry_in(Duration::ZERO), Outcome::Released, Outcome::Aborted] {
        let claimed = f.claim_one(worker).await;
        assert_eq!(claimed.fence.job, parent, "only the parent can run");
        f.accept(claimed.fence, outcome).await;
        f.is(child, State::Queued, "waits while its parent is tried again").await;
    }
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    assert_eq!(f.claim_ids(worker, 10).await, [child]);
}

pub async fn a_released_child_waits_for_its_due_time_too(f: &Fixture) {
    let parent = f.enqueue(job()).await;
    let child = f.enqueue(NewJob { due: Due::In(Duration::from_secs(60)), ..after(&[parent]) }).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    f.nothing_for(worker, "the child is due in a minute").await;
    f.advance(Duration::from_secs(60));
    assert_eq!(f.claim_ids(worker, 10).await, [child], "parents done and time come");
}

pub async fn parents_are_told_with_their_states(f: &Fixture) {
    let (_, parents, child) = family(f).await;
    f.done(parents[0].fence).await;
    let mut told = f.store.parents(child).await.unwrap();
    told.sort_by_key(|(id, _)| *id);
    let expected = [(parents[0].fence.job, State::Done), (parents[1].fence.job, State::Processing)];
    assert_eq!(told, expected, "the parents of {child}");
    assert_eq!(f.store.parents(parents[0].fence.job).await.unwrap(), [], "a job without parents has none");
}

pub async fn children_enqueued_while_their_parent_finishes_always_run(f: &Fixture) {
    let worker = f.worker("a").await;
    for round in 0..10 {
        let parent = f.enqueue(job()).await;
        let claimed = f.claim_one(worker).await;
        let (store, other) = (f.store.clone(), f.another().await);
        let children = race(4, |number| {
            let (store, other, fence) = (store.clone(), other.clone(), claimed.fence);
            async move {
                if number == 0 {
                    let outcome = Outcome::Done { result: None };
                    store.settle(vec![Settlement { fence, outcome }]).await.unwrap();
                    None
                } else {
                    Some(other.enqueue(vec![after(&[parent])]).await.unwrap()[0].id)
                }
            }
        })
        .await;
        let mut expected: Vec<JobId> = children.into_iter().flatten().collect();
        expected.sort();
        let given = f.claim(worker, 10).await.jobs;
        let mut got = ids(&given);
        got.sort();
        assert_eq!(got, expected, "round {round}: a child enqueued in the race must not wait for ever");
        for child in given {
            f.done(child.fence).await;
        }
    }
}
