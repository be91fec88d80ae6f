//! The workers the store knows.

use super::prelude::*;

async fn row(f: &Fixture, id: WorkerId) -> Option<WorkerRow> {
    f.store.workers().await.unwrap().into_iter().find(|row| row.id == id)
}

pub async fn a_registered_worker_reads_back(f: &Fixture) {
    let spec = WorkerSpec {
        name: "host:1:abc".into(),
        kinds: vec![WORK.into()],
        queues: vec!["a".into(), "b".into()],
        concurrency: 7,
        lease_min: LEASE,
        lease_max: LEASE,
    };
    let id = f.store.worker_register(spec).await.unwrap();
    let row = row(f, id).await.expect("it is known");
    assert_eq!((row.name.as_str(), row.concurrency), ("host:1:abc", 7), "{row:?}");
    assert_eq!((row.kinds, row.queues), (vec![WORK.to_owned()], vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!((row.started_at, row.beat_at), (f.now(), f.now()), "its lease begins now");
    assert_eq!((row.holding, row.alive), (0, true));
}

pub async fn the_same_name_registered_again_is_another_worker(f: &Fixture) {
    let (first, second) = (f.worker("same").await, f.worker("same").await);
    assert_ne!(first, second, "a restarted process is another worker");
    f.enqueue(job()).await;
    f.claim_one(first).await;
    assert_eq!(f.store.owned(second).await.unwrap(), [], "it does not hold the other's jobs");
}

pub async fn a_worker_tells_what_it_holds_and_when_it_beat(f: &Fixture) {
    f.enqueue_all(vec![job(); 3]).await;
    let id = f.worker("w").await;
    let claimed = f.claim(id, 3).await.jobs;
    assert_eq!(row(f, id).await.unwrap().holding, 3);
    f.done(claimed[0].fence).await;
    f.advance(Duration::from_secs(10));
    f.store.beat(id).await.unwrap();
    let row = row(f, id).await.unwrap();
    assert_eq!((row.holding, row.beat_at, row.alive), (2, f.now(), true), "{row:?}");
}

pub async fn a_silent_worker_is_not_alive(f: &Fixture) {
    let id = f.worker("w").await;
    f.advance(LEASE * 2);
    if let Some(row) = row(f, id).await {
        assert!(!row.alive, "silent for two leases: {row:?}");
    }
}

pub async fn a_removed_worker_is_not_alive_and_its_beat_says_so(f: &Fixture) {
    let id = f.worker("w").await;
    f.store.worker_remove(id).await.unwrap();
    if let Some(row) = row(f, id).await {
        assert!(!row.alive, "it was taken out: {row:?}");
    }
    assert!(!f.store.beat(id).await.unwrap().known, "it was taken out");
}

pub async fn the_name_of_a_removed_worker_stays_with_its_jobs(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("long gone").await;
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    f.store.worker_remove(worker).await.unwrap();
    assert_eq!(f.job(id).await.worker.as_deref(), Some("long gone"), "history keeps the name");
}

pub async fn a_worker_that_was_given_up_registers_anew_and_works(f: &Fixture) {
    let all = f.enqueue_all(vec![job(); 2]).await;
    let a = f.worker("a").await;
    f.claim_one(a).await;
    f.expire();
    let b = f.worker("b").await;
    assert_eq!(f.claim_ids(b, 10).await, all, "the lost and the waiting one");
    assert!(!f.store.beat(a).await.unwrap().known);
    let again = f.worker("a").await;
    let id = f.enqueue(job()).await;
    let claimed = f.claim_one(again).await;
    assert_eq!(claimed.fence.job, id);
    f.done(claimed.fence).await;
}

pub async fn a_worker_that_was_given_up_is_given_nothing(f: &Fixture) {
    f.enqueue(job()).await;
    let a = f.worker("a").await;
    f.claim_one(a).await;
    f.expire();
    let b = f.worker("b").await;
    f.claim_one(b).await;
    let id = f.enqueue(job()).await;
    // Its lease has ended already, so whatever it got would be taken from it by the next claim.
    match f.store.claim(claim_request(a, 10)).await {
        Ok(claim) => assert!(claim.jobs.is_empty(), "a worker that was given up got {:?}", claim.jobs),
        Err(error) => assert_eq!(error.class(), ErrorClass::Conflict, "{error}"),
    }
    assert_eq!(f.claim_ids(b, 10).await, [id], "it waits for a worker that is well");
}

pub async fn a_worker_that_falls_silent_with_nothing_to_do_is_given_up(f: &Fixture) {
    let (silent, other) = (f.worker("silent").await, f.worker("other").await);
    f.advance(LEASE / 2);
    f.store.beat(other).await.unwrap();
    f.advance(LEASE / 2);
    assert_eq!(f.claim_ids(other, 10).await, []);
    assert!(row(f, silent).await.is_none(), "nobody counts on it any more");
    assert!(!f.store.beat(silent).await.unwrap().known);
    assert!(row(f, other).await.is_some());
}

pub async fn the_jobs_of_a_dead_worker_come_free_although_the_clock_was_set_back(f: &Fixture) {
    const BACK: Duration = Duration::from_secs(3600);
    let id = f.enqueue(job()).await;
    f.advance(BACK * 2);
    let (dead, other) = (f.worker("dead").await, f.worker("other").await);
    f.claim_one(dead).await;
    f.jump_back(BACK);
    assert_eq!(f.claim_ids(other, 10).await, [], "its lease has not run out");
    f.advance(LEASE / 2);
    f.store.beat(other).await.unwrap();
    assert_eq!(f.claim_ids(other, 10).await, []);
    f.advance(LEASE / 2);
    assert_eq!(f.claim_ids(other, 10).await, [id], "a lease later, not an hour");
}
