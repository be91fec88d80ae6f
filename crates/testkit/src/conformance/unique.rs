//! Rule 3: while an unfinished job holds a unique key, enqueueing with that key answers that job.

use super::prelude::*;

fn unique(key: &str) -> NewJob {
    NewJob { unique_key: Some(key.to_owned()), ..job() }
}

async fn again(f: &Fixture, key: &str) -> Enqueued {
    f.store.enqueue(vec![unique(key)]).await.unwrap()[0]
}

pub async fn a_held_unique_key_answers_the_waiting_job(f: &Fixture) {
    let first = again(f, "k").await;
    assert!(!first.existing, "the first is new");
    assert_eq!(again(f, "k").await, Enqueued { id: first.id, existing: true }, "the second is the first");
    assert_eq!(f.store.depth(10).await.unwrap(), 1, "only one job waits");
    assert_ne!(again(f, "l").await.id, first.id, "another key is another job");
}

pub async fn a_held_unique_key_answers_the_running_job(f: &Fixture) {
    let first = again(f, "k").await;
    let worker = f.worker("a").await;
    f.claim_one(worker).await;
    assert_eq!(again(f, "k").await, Enqueued { id: first.id, existing: true }, "running is unfinished too");
}

pub async fn a_held_unique_key_answers_the_delayed_and_the_blocked_job(f: &Fixture) {
    let parent = f.enqueue(job()).await;
    let delayed = NewJob { due: Due::In(Duration::from_secs(60)), ..unique("d") };
    let blocked = NewJob { after: vec![parent], ..unique("b") };
    let ids = f.enqueue_all(vec![delayed, blocked]).await;
    assert_eq!(again(f, "d").await, Enqueued { id: ids[0], existing: true }, "delayed is unfinished");
    assert_eq!(again(f, "b").await, Enqueued { id: ids[1], existing: true }, "blocked is unfinished");
}

pub async fn a_unique_key_is_free_again_after_each_way_to_finish(f: &Fixture) {
    let worker = f.worker("a").await;
    for outcome in [Outcome::Done { result: None }, failed(), Outcome::Cancelled] {
        let text = format!("{outcome:?}");
        let first = again(f, "k").await;
        assert!(!first.existing, "before {text} the key is free");
        let claimed = f.claim_one(worker).await;
        f.accept(claimed.fence, outcome).await;
        let second = again(f, "k").await;
        assert!(!second.existing && second.id != first.id, "after {text} the key is free, got {second:?}");
        assert_eq!(f.store.cancel(second.id).await.unwrap(), Cancelled::Ended);
    }
}

pub async fn a_unique_key_stays_held_through_retry_release_and_recovery(f: &Fixture) {
    let first = again(f, "k").await;
    let worker = f.worker("a").await;
    for outcome in [retry_in(Duration::ZERO), Outcome::Released, Outcome::Aborted] {
        let claimed = f.claim_one(worker).await;
        f.accept(claimed.fence, outcome.clone()).await;
        assert_eq!(again(f, "k").await.id, first.id, "after {outcome:?} the key is still held");
    }
    f.claim_one(worker).await;
    f.expire();
    let rescuer = f.worker("b").await;
    f.claim_one(rescuer).await;
    assert_eq!(again(f, "k").await.id, first.id, "after recovery the key is still held");
}

pub async fn the_same_unique_key_twice_in_one_batch_is_one_job(f: &Fixture) {
    let answers = f.store.enqueue(vec![unique("k"), job(), unique("k")]).await.unwrap();
    assert_eq!(answers[0].id, answers[2].id, "{answers:?}");
    assert_eq!((answers[0].existing, answers[2].existing), (false, true), "{answers:?}");
    assert_eq!(f.store.depth(10).await.unwrap(), 2, "the unique one and the other");
}

pub async fn the_first_of_a_batch_gets_the_unique_key_though_it_has_parents(f: &Fixture) {
    let parent = f.enqueue(job()).await;
    let first = NewJob { after: vec![parent], priority: 1, ..unique("k") };
    let answers = f.store.enqueue(vec![first, NewJob { priority: 2, ..unique("k") }]).await.unwrap();
    assert_eq!(answers[0].id, answers[1].id, "{answers:?}");
    assert_eq!(
        (answers[0].existing, answers[1].existing),
        (false, true),
        "in the order of input: {answers:?}"
    );
    let kept = f.job(answers[0].id).await;
    assert_eq!(
        (kept.priority, kept.stage),
        (1, Some(Stage::Blocked)),
        "the first one is the one that is kept: {kept:?}"
    );
}

pub async fn a_batch_may_mix_held_and_free_unique_keys(f: &Fixture) {
    let held = again(f, "held").await;
    let answers = f.store.enqueue(vec![unique("free"), unique("held"), job()]).await.unwrap();
    assert_eq!(
        answers[1],
        Enqueued { id: held.id, existing: true },
        "answers keep the order of input: {answers:?}"
    );
    assert!(!answers[0].existing && !answers[2].existing, "{answers:?}");
}

pub async fn racing_producers_of_one_unique_key_make_one_job(f: &Fixture) {
    let store = f.store.clone();
    let answers = race(8, |_| {
        let store = store.clone();
        async move { store.enqueue(vec![unique("k")]).await.unwrap()[0] }
    })
    .await;
    let ids: HashSet<JobId> = answers.iter().map(|answer| answer.id).collect();
    assert_eq!(ids.len(), 1, "one job for one key: {answers:?}");
    assert_eq!(answers.iter().filter(|answer| !answer.existing).count(), 1, "made once: {answers:?}");
}

pub async fn racing_producers_in_two_processes_of_many_unique_keys_make_one_job_each(f: &Fixture) {
    let stores = [f.store.clone(), f.another().await];
    let answers = race(8, |number| {
        let store = stores[number % 2].clone();
        // Half of them go through the keys in the opposite order: the classic recipe for a deadlock.
        let mut keys: Vec<NewJob> = (0..20).map(|n| unique(&format!("k{n}"))).collect();
        if number % 3 == 0 {
            keys.reverse();
        }
        async move { store.enqueue(keys).await.unwrap() }
    })
    .await;
    let ids: HashSet<JobId> = answers.iter().flatten().map(|answer| answer.id).collect();
    assert_eq!(ids.len(), 20, "one job for each key");
    assert_eq!(f.store.depth(1000).await.unwrap(), 20, "and no other waits");
}

pub async fn a_failed_job_whose_unique_key_is_held_by_another_is_not_retried(f: &Fixture) {
    let worker = f.worker("a").await;
    let first = again(f, "k").await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, failed()).await;
    let second = again(f, "k").await;
    let error = f.store.retry(first.id).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Conflict, "two unfinished jobs with one key: {error}");
    f.is(first.id, State::Failed, "stays failed while another holds its key").await;
    let claimed = f.claim_one(worker).await;
    assert_eq!(claimed.fence.job, second.id, "the holder of the key is untouched");
    f.done(claimed.fence).await;
    f.store.retry(first.id).await.expect("with the key free the retry is possible");
    assert_eq!(again(f, "k").await.id, first.id, "and the retried job holds the key again");
}
