//! Rule 15: a beat keeps all leases of a worker alive that have not run out, and revives none that has; a worker that
//! has been given up is told so.

use super::prelude::*;

pub async fn beats_keep_a_job_for_longer_than_its_lease(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let (a, b) = (f.worker("a").await, f.worker("b").await);
    let claimed = f.claim_one(a).await;
    for _ in 0..5 {
        f.advance(LEASE - Duration::from_secs(5));
        assert_eq!(f.store.beat(a).await.unwrap(), Beat { known: true, ..Beat::default() });
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

pub async fn a_late_beat_does_not_save_a_lease_that_nobody_took(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let a = f.worker("a").await;
    let claimed = f.claim_one(a).await;
    f.advance(LEASE);
    let recovered = vec![Recovered { job: id, kind: WORK.into(), became: State::Queued }];
    let told = f.store.beat(a).await.unwrap();
    assert_eq!(
        told,
        Beat { known: true, cancels: Vec::new(), recovered },
        "the worker lives, its lease does not"
    );
    let job = f.job(id).await;
    assert_eq!((job.state, job.attempt_count, job.crash_count), (State::Queued, 1, 1), "{job:?}");
    assert_eq!(f.timeline(id).await, "created processing requeued:stale");
    assert_eq!(f.settle(claimed.fence, Outcome::Done { result: None }).await, Verdict::Stale);
    assert_eq!(f.store.beat(a).await.unwrap(), Beat { known: true, ..Beat::default() }, "recovered once");
    let b = f.worker("b").await;
    let again = f.claim_one(b).await;
    f.done(again.fence).await;
}

pub async fn a_late_beat_recovers_however_many_jobs_there_are(f: &Fixture) {
    f.enqueue_all(vec![job(); 2100]).await;
    let a = f.worker("a").await;
    let mut held = Vec::new();
    while held.len() < 2100 {
        held.extend(f.claim(a, 1000).await.jobs);
    }
    f.advance(LEASE);
    assert_eq!(f.store.beat(a).await.unwrap().recovered.len(), 2100, "none is left to be revived");
    assert_eq!(f.store.owned(a).await.unwrap(), []);
    assert_eq!(f.job(held[2099].fence.job).await.state, State::Queued);
}

pub async fn a_late_beat_keeps_the_leases_that_have_not_run_out(f: &Fixture) {
    let short = f.enqueue(job()).await;
    let long = f.enqueue(NewJob { kind: OTHER.into(), ..job() }).await;
    let (ten, hour) = (Duration::from_secs(10), Duration::from_secs(3600));
    let a = f.worker_with("a", ten, hour).await;
    let mut request = claim_request(a, 10);
    request.kinds[0].lease = ten;
    request.kinds[1].lease = hour;
    let claimed = f.claim_as(request).await.jobs;
    f.advance(ten);
    let told = f.store.beat(a).await.unwrap();
    assert_eq!(told.recovered, [Recovered { job: short, kind: WORK.into(), became: State::Queued }]);
    assert!(!f.store.holds(claimed[0].fence).await.unwrap(), "ten seconds were over");
    assert!(f.store.holds(claimed[1].fence).await.unwrap(), "an hour was not");
    f.advance(hour - ten / 2);
    assert!(f.store.holds(claimed[1].fence).await.unwrap(), "its lease runs from the late beat");
    f.done(claimed[1].fence).await;
    f.is(long, State::Done, "was never lost").await;
}

pub async fn a_late_beat_ends_a_job_that_an_operator_wants_to_end(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let a = f.worker("a").await;
    f.claim_one(a).await;
    assert_eq!(f.store.cancel(id).await.unwrap(), Cancelled::Requested);
    f.advance(LEASE);
    let recovered = vec![Recovered { job: id, kind: WORK.into(), became: State::Cancelled }];
    let told = f.store.beat(a).await.unwrap();
    assert_eq!(told, Beat { known: true, cancels: Vec::new(), recovered }, "there is nothing left to stop");
    assert_eq!(f.timeline(id).await, "created processing cancel:requested cancelled");
}

pub async fn cancellations_are_told_without_a_beat(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let (a, b) = (f.worker("a").await, f.worker("b").await);
    let claimed = f.claim_one(a).await;
    assert_eq!(f.store.cancellations(a).await.unwrap(), []);
    let beat_at = f.job(id).await.lease_expires_at;
    f.advance(Duration::from_secs(5));
    assert_eq!(f.store.cancel(id).await.unwrap(), Cancelled::Requested);
    assert_eq!(f.another().await.cancellations(a).await.unwrap(), [id]);
    assert_eq!(f.store.cancellations(a).await.unwrap(), [id], "as often as it is asked");
    assert_eq!(f.store.cancellations(b).await.unwrap(), [], "it is not the other worker's");
    assert_eq!(f.job(id).await.lease_expires_at, beat_at, "a look keeps no lease alive");
    assert_eq!(f.store.beat(a).await.unwrap().cancels, [id], "nor does it take anything from the beat");
    f.accept(claimed.fence, Outcome::Cancelled).await;
    assert_eq!(f.store.cancellations(a).await.unwrap(), [], "it has ended");
    assert_eq!(f.store.cancellations(WorkerId(987_654)).await.unwrap(), [], "there is no such worker");
}

pub async fn a_late_claim_saves_nothing_and_gives_full_leases(f: &Fixture) {
    let first = f.enqueue(job()).await;
    let a = f.worker("a").await;
    let lost = f.claim_one(a).await;
    f.advance(LEASE);
    let second = f.enqueue(job()).await;
    let claim = f.claim(a, 10).await;
    assert_eq!(claim.recovered, [Recovered { job: first, kind: WORK.into(), became: State::Queued }]);
    assert_eq!(ids(&claim.jobs), [first, second], "the worker itself may run it again");
    assert!(!f.store.holds(lost.fence).await.unwrap(), "but not as the execution that was lost");
    f.advance(LEASE - Duration::from_millis(1));
    for job in &claim.jobs {
        assert!(f.store.holds(job.fence).await.unwrap(), "the leases run from the claim");
        f.done(job.fence).await;
    }
}

pub async fn racing_beats_of_one_worker_after_its_lease_recover_its_jobs_once(f: &Fixture) {
    let all = f.enqueue_all(vec![job(); 40]).await;
    let (a, b) = (f.worker("a").await, f.worker("b").await);
    assert_eq!(f.claim(a, 40).await.jobs.len(), 40);
    f.advance(LEASE - Duration::from_secs(1));
    f.store.beat(b).await.unwrap();
    f.advance(Duration::from_secs(1));
    let stores = [f.store.clone(), f.another().await];
    let recovered = race(8, |number| {
        let store = stores[number % 2].clone();
        async move {
            if number < 4 {
                return store.beat(a).await.unwrap().recovered;
            }
            // Claims nothing, but recovers.
            let mut request = claim_request(b, 10);
            request.kinds.retain(|slots| slots.kind == OTHER);
            store.claim(request).await.unwrap().recovered
        }
    })
    .await;
    let mut recovered: Vec<JobId> = recovered.into_iter().flatten().map(|one| one.job).collect();
    recovered.sort();
    assert_eq!(recovered, all, "each once");
    assert_eq!(f.store.owned(a).await.unwrap(), [], "and none was revived");
}

pub async fn an_execution_holds_its_job_until_its_lease_ends(f: &Fixture) {
    f.enqueue(job()).await;
    let a = f.worker("a").await;
    let fence = f.claim_one(a).await.fence;
    assert!(f.store.holds(fence).await.unwrap(), "just claimed");
    assert!(f.another().await.holds(fence).await.unwrap(), "as any process sees");
    f.advance(LEASE - Duration::from_millis(1));
    assert!(f.store.holds(fence).await.unwrap(), "a millisecond is left");
    f.store.beat(a).await.unwrap();
    f.advance(LEASE - Duration::from_millis(1));
    assert!(f.store.holds(fence).await.unwrap(), "kept by a beat");
    f.advance(Duration::from_millis(1));
    assert!(!f.store.holds(fence).await.unwrap(), "over, though nobody took the job");
    f.store.beat(a).await.unwrap();
    assert!(!f.store.holds(fence).await.unwrap(), "and not to be revived");
    let b = f.worker("b").await;
    let current = f.claim_one(b).await.fence;
    assert!(!f.store.holds(fence).await.unwrap(), "another has it");
    assert!(f.store.holds(current).await.unwrap(), "namely this one");
}

pub async fn an_execution_that_has_ended_holds_nothing(f: &Fixture) {
    let a = f.worker("a").await;
    for outcome in every_outcome() {
        let id = f.enqueue(job()).await;
        let fence = f.claim_one(a).await.fence;
        let text = format!("{outcome:?}");
        f.accept(fence, outcome).await;
        assert!(!f.store.holds(fence).await.unwrap(), "after {text}");
        let _ = f.store.cancel(id).await;
    }
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
    assert_eq!(f.store.owned(a).await.unwrap(), [], "one whose lease has run out neither");
    f.store.beat(b).await.unwrap();
    f.claim(b, 10).await;
    assert_eq!(f.store.owned(a).await.unwrap(), [], "a recovered one neither");
}
