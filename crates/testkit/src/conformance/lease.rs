//! Rule 15: a beat keeps all leases of a worker alive; a worker that has been given up is told so.

use super::prelude::*;

pub async fn beats_keep_a_job_for_longer_than_its_lease(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let (a, b) = (f.worker("a").await, f.worker("b").await);
    let claimed = f.claim_one(a).await;
    for _ in 0..5 {
        f.advance(LEASE - Duration::from_secs(5));
        assert_eq!(f.store.beat(a).await.unwrap(), Beat { known: true, cancels: Vec::new() });
        f.store.beat(b).await.unwrap();
        f.nothing_for(b, "its worker beats").await;
    }
    assert_eq!(f.job(id).await.lease_expires_at, Some(f.now() + LEASE), "the lease runs from the last beat");
    f.done(claimed.fence).await;
    assert_eq!(f.job(id).await.attempt_count, 1, "one attempt all along");
}

pub async fn one_beat_keeps_every_job_of_the_worker(f: &Fixture) {
    f.enqueue_all(vec![job(); 20]).await;
    let (a, b) = (f.worker("a").await, f.worker("b").await);
    assert_eq!(f.claim(a, 20).await.jobs.len(), 20);
    f.advance(Duration::from_secs(20));
    f.store.beat(a).await.unwrap();
    f.advance(Duration::from_secs(20));
    f.store.beat(b).await.unwrap();
    f.nothing_for(b, "all twenty were kept by one beat").await;
}

pub async fn a_job_is_kept_until_its_lease_ends(f: &Fixture) {
    f.enqueue(job()).await;
    let (a, b) = (f.worker("a").await, f.worker("b").await);
    f.claim_one(a).await;
    f.advance(LEASE - Duration::from_millis(1));
    f.nothing_for(b, "the lease has a millisecond left").await;
}

pub async fn a_late_beat_saves_a_lease_that_nobody_took(f: &Fixture) {
    f.enqueue(job()).await;
    let a = f.worker("a").await;
    let claimed = f.claim_one(a).await;
    f.advance(LEASE * 2);
    let b = f.worker("b").await;
    assert!(f.store.beat(a).await.unwrap().known, "nobody has given it up yet");
    f.nothing_for(b, "the late beat came first").await;
    f.done(claimed.fence).await;
}

pub async fn a_worker_given_up_is_told_so(f: &Fixture) {
    f.enqueue(job()).await;
    let a = f.worker("a").await;
    f.claim_one(a).await;
    f.expire();
    let b = f.worker("b").await;
    f.claim_one(b).await;
    assert!(!f.store.beat(a).await.unwrap().known, "its jobs belong to others now");
    assert!(!f.store.beat(a).await.unwrap().known, "and it stays that way");
    assert!(f.store.beat(b).await.unwrap().known, "the rescuer is well");
}

pub async fn a_worker_nobody_registered_is_told_so(f: &Fixture) {
    assert!(!f.store.beat(WorkerId(987_654)).await.unwrap().known, "there is no such worker");
}

pub async fn each_job_has_the_lease_its_kind_was_claimed_with(f: &Fixture) {
    let short = f.enqueue(job()).await;
    let long = f.enqueue(NewJob { kind: OTHER.into(), ..job() }).await;
    let (ten, hour) = (Duration::from_secs(10), Duration::from_secs(3600));
    let a = f.worker_with("a", ten, hour).await;
    let mut request = claim_request(a, 10);
    request.kinds[0].lease = ten;
    request.kinds[1].lease = hour;
    let claimed = f.claim_as(request).await.jobs;
    assert_eq!(ids(&claimed), [short, long]);
    f.advance(ten + RECOVERY_SLACK);
    let b = f.worker("b").await;
    assert_eq!(f.claim_ids(b, 10).await, [short], "ten seconds are over, an hour is not");
    assert!(
        f.store.beat(a).await.unwrap().known,
        "the worker as a whole is given up only after its longest lease"
    );
    f.done(claimed[1].fence).await;
    assert_eq!(f.settle(claimed[0].fence, Outcome::Done { result: None }).await, Verdict::Stale);
}

pub async fn leases_survive_a_clock_that_jumps_back(f: &Fixture) {
    f.enqueue(job()).await;
    let (a, b) = (f.worker("a").await, f.worker("b").await);
    let claimed = f.claim_one(a).await;
    f.jump_back(Duration::from_secs(3600));
    f.nothing_for(b, "time went back, the lease did not end").await;
    assert!(f.store.beat(a).await.unwrap().known);
    f.done(claimed.fence).await;
}

pub async fn a_lease_ends_after_the_clock_has_jumped_back_and_forth(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let a = f.worker("a").await;
    f.claim_one(a).await;
    f.jump_back(Duration::from_secs(100));
    let b = f.worker("b").await;
    f.nothing_for(b, "time went back").await;
    f.advance(Duration::from_secs(100));
    f.expire();
    f.store.beat(b).await.unwrap();
    assert_eq!(f.claim_ids(b, 10).await, [id], "its worker has been silent for more than a lease");
}

pub async fn the_next_look_is_the_next_lease_end_of_another_worker(f: &Fixture) {
    f.enqueue(job()).await;
    let a = f.worker("a").await;
    f.claim_one(a).await;
    f.advance(Duration::from_secs(10));
    let b = f.worker("b").await;
    let look = f.claim(b, 10).await.next_look.expect("another worker's lease will end");
    let fits = Duration::from_secs(19)..=Duration::from_secs(22);
    assert!(fits.contains(&look), "the lease has 20 s left, the store says {look:?}");
}

pub async fn owned_lists_what_is_held(f: &Fixture) {
    f.enqueue_all(vec![job(); 3]).await;
    let (a, b) = (f.worker("a").await, f.worker("b").await);
    let mut held: Vec<Fence> = f.claim(a, 2).await.jobs.iter().map(|job| job.fence).collect();
    f.claim_one(b).await;
    let mut owned = f.store.owned(a).await.unwrap();
    owned.sort_by_key(|fence| fence.job);
    held.sort_by_key(|fence| fence.job);
    assert_eq!(owned, held, "the executions of this worker, with their tokens, and no other's");
    f.done(held[0]).await;
    assert_eq!(f.store.owned(a).await.unwrap(), held[1..], "a settled one is not held any more");
    f.expire();
    f.store.beat(b).await.unwrap();
    f.claim(b, 10).await;
    assert_eq!(f.store.owned(a).await.unwrap(), [], "a recovered one neither");
}
