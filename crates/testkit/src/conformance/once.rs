//! `enqueue_once`: a repeated key with the same fingerprint answers the first result for 24 hours.

use super::prelude::*;

const DAY: Duration = Duration::from_secs(86_400);

fn once(key: &str, fingerprint: &str) -> Once {
    Once { key: key.into(), fingerprint: fingerprint.into() }
}

pub async fn a_repeated_request_gets_the_first_answer(f: &Fixture) {
    let first = f.store.enqueue_once(once("k", "p"), vec![job(), job()]).await.unwrap();
    assert!(first.iter().all(|answer| !answer.existing), "the first request makes jobs: {first:?}");
    let second = f.store.enqueue_once(once("k", "p"), vec![job(), job()]).await.unwrap();
    let ids = |answers: &[Enqueued]| answers.iter().map(|answer| answer.id).collect::<Vec<_>>();
    assert_eq!(ids(&first), ids(&second), "the same jobs in the same order");
    assert!(second.iter().all(|answer| answer.existing), "told apart as existing: {second:?}");
    assert_eq!(f.store.depth(10).await.unwrap(), 2, "no further jobs");
}

pub async fn a_repeated_request_gets_the_first_answer_after_the_job_has_ended(f: &Fixture) {
    let first = f.store.enqueue_once(once("k", "p"), vec![job()]).await.unwrap();
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    let second = f.store.enqueue_once(once("k", "p"), vec![job()]).await.unwrap();
    assert_eq!(first[0].id, second[0].id, "unlike a unique key, it outlives the job");
    f.nothing_for(worker, "the repeated request must not run it again").await;
}

pub async fn the_same_key_for_another_request_is_a_conflict(f: &Fixture) {
    f.store.enqueue_once(once("k", "p"), vec![job()]).await.unwrap();
    let error = f.store.enqueue_once(once("k", "other"), vec![job()]).await.unwrap_err();
    assert_eq!(error.code(), "CONFLICT", "{error}");
    assert_eq!(f.store.depth(10).await.unwrap(), 1, "the refused request left nothing");
}

pub async fn an_idempotency_key_holds_just_under_a_day(f: &Fixture) {
    let first = f.store.enqueue_once(once("k", "p"), vec![job()]).await.unwrap();
    f.advance(DAY - Duration::from_secs(1));
    let second = f.store.enqueue_once(once("k", "p"), vec![job()]).await.unwrap();
    assert_eq!(first[0].id, second[0].id, "a second before the day is over");
}

pub async fn an_idempotency_key_is_free_after_a_day(f: &Fixture) {
    let first = f.store.enqueue_once(once("k", "p"), vec![job()]).await.unwrap();
    f.advance(DAY + Duration::from_secs(1));
    let second = f.store.enqueue_once(once("k", "other"), vec![job()]).await.unwrap();
    assert!(
        !second[0].existing && second[0].id != first[0].id,
        "a day later the key means nothing: {second:?}"
    );
    let third = f.store.enqueue_once(once("k", "other"), vec![job()]).await.unwrap();
    assert_eq!(third[0].id, second[0].id, "and holds for its new owner");
}

pub async fn a_refused_request_does_not_use_up_its_key(f: &Fixture) {
    let bad = NewJob { kind: "nobody".into(), ..job() };
    f.store.enqueue_once(once("k", "bad"), vec![bad]).await.unwrap_err();
    let answers = f.store.enqueue_once(once("k", "good"), vec![job()]).await.unwrap();
    assert!(!answers[0].existing, "the corrected request is the first: {answers:?}");
}

pub async fn a_once_request_answers_the_holder_of_a_unique_key(f: &Fixture) {
    let unique = NewJob { unique_key: Some("u".into()), ..job() };
    let holder = f.enqueue(unique.clone()).await;
    let answers = f.store.enqueue_once(once("k", "p"), vec![unique]).await.unwrap();
    assert_eq!(answers, [Enqueued { id: holder, existing: true }], "both kinds of key work together");
}

pub async fn racing_requests_with_one_key_make_one_set_of_jobs(f: &Fixture) {
    let stores = [f.store.clone(), f.another().await];
    let answers = race(8, |number| {
        let store = stores[number % 2].clone();
        async move { store.enqueue_once(once("k", "p"), vec![job(); 3]).await.unwrap() }
    })
    .await;
    let ids: HashSet<JobId> = answers.iter().flatten().map(|answer| answer.id).collect();
    assert_eq!(ids.len(), 3, "one set of jobs: {answers:?}");
    assert_eq!(f.store.depth(100).await.unwrap(), 3, "and no others wait");
}
