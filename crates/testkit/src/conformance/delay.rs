//! Rule 8, first half: a job is not given out before its due time, and then at once; whatever clocks do.

use super::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);

fn due_in(delay: Duration) -> NewJob {
    NewJob { due: Due::In(delay), ..job() }
}

pub async fn a_delayed_job_is_not_given_out_before_its_time(f: &Fixture) {
    let id = f.enqueue(due_in(MINUTE)).await;
    let read = f.job(id).await;
    assert_eq!((read.state, read.stage), (State::Queued, Some(Stage::Delayed)), "{read:?}");
    assert_eq!(read.run_at, f.now() + MINUTE, "by the store's clock: {read:?}");
    let worker = f.worker("a").await;
    f.nothing_for(worker, "it is due in a minute").await;
    f.advance(MINUTE - Duration::from_millis(1));
    f.nothing_for(worker, "it is due in a millisecond").await;
}

pub async fn a_delayed_job_is_given_out_exactly_at_its_time(f: &Fixture) {
    let id = f.enqueue(due_in(MINUTE)).await;
    let worker = f.worker("a").await;
    f.nothing_for(worker, "it is due in a minute").await;
    f.advance(MINUTE);
    let claimed = f.claim_one(worker).await;
    assert_eq!((claimed.fence.job, claimed.waited), (id, Duration::ZERO), "due now, so it has not waited");
}

pub async fn a_job_may_name_the_instant(f: &Fixture) {
    let at = f.now() + Duration::from_secs(90);
    let id = f.enqueue(NewJob { due: Due::At(at), ..job() }).await;
    assert_eq!(f.job(id).await.run_at, at);
    let worker = f.worker("a").await;
    f.nothing_for(worker, "its instant has not come").await;
    f.clock.set(at);
    assert_eq!(f.claim_ids(worker, 10).await, [id], "its instant has come");
}

pub async fn a_due_time_just_past_is_due_now(f: &Fixture) {
    let at = f.now() - Duration::from_secs(30);
    let id = f.enqueue(NewJob { due: Due::At(at), ..job() }).await;
    let worker = f.worker("a").await;
    assert_eq!(f.claim_ids(worker, 10).await, [id], "half a minute ago is clock skew");
}

pub async fn a_due_time_far_past_is_refused(f: &Fixture) {
    let at = f.now() - Duration::from_secs(3600);
    let error = f.store.enqueue(vec![NewJob { due: Due::At(at), ..job() }]).await.unwrap_err();
    assert!(error.to_string().contains("run_at"), "measured by the store's clock: {error}");
}

pub async fn delayed_jobs_come_in_the_order_of_their_due_times(f: &Fixture) {
    let ids = f.enqueue_all(vec![due_in(3 * MINUTE), due_in(MINUTE), due_in(2 * MINUTE)]).await;
    let worker = f.worker("a").await;
    for expected in [ids[1], ids[2], ids[0]] {
        f.advance(MINUTE);
        let claimed = f.claim(worker, 10).await.jobs;
        assert_eq!(super::prelude::ids(&claimed), [expected], "one becomes due each minute");
        f.done(claimed[0].fence).await;
    }
}

pub async fn a_delayed_job_of_higher_priority_overtakes_once_due(f: &Fixture) {
    let urgent = f.enqueue(NewJob { priority: 9, ..due_in(MINUTE) }).await;
    let plain = f.enqueue_all(vec![job(), job()]).await;
    let worker = f.worker("a").await;
    assert_eq!(f.claim_ids(worker, 1).await, plain[..1], "the urgent one is not due");
    f.advance(MINUTE);
    assert_eq!(f.claim_ids(worker, 1).await, [urgent], "the urgent one is due");
}

pub async fn a_sooner_job_enqueued_after_a_later_one_is_not_forgotten(f: &Fixture) {
    f.enqueue(due_in(60 * MINUTE)).await;
    let worker = f.worker("a").await;
    f.nothing_for(worker, "due in an hour").await;
    let sooner = f.enqueue(due_in(MINUTE)).await;
    f.nothing_for(worker, "due in a minute").await;
    f.advance(MINUTE);
    assert_eq!(f.claim_ids(worker, 10).await, [sooner], "a remembered next due time must not hide it");
}

pub async fn a_sooner_job_enqueued_by_another_process_is_not_forgotten(f: &Fixture) {
    f.enqueue(due_in(60 * MINUTE)).await;
    let worker = f.worker("a").await;
    f.nothing_for(worker, "due in an hour").await;
    let elsewhere = f.another().await;
    let sooner = elsewhere.enqueue(vec![due_in(MINUTE)]).await.unwrap()[0].id;
    f.advance(MINUTE + RECOVERY_SLACK);
    assert_eq!(f.claim_ids(worker, 10).await, [sooner], "this process has not seen its enqueue");
}

pub async fn a_clock_that_jumps_back_gives_nothing_out_early(f: &Fixture) {
    let id = f.enqueue(due_in(MINUTE)).await;
    let worker = f.worker("a").await;
    f.jump_back(Duration::from_secs(3600));
    f.nothing_for(worker, "the clock went back an hour").await;
    f.advance(Duration::from_secs(3600));
    f.nothing_for(worker, "the clock is where it was").await;
    f.advance(MINUTE);
    assert_eq!(f.claim_ids(worker, 10).await, [id], "its time has come at last");
}

pub async fn a_job_enqueued_before_the_clock_jumped_back_still_comes(f: &Fixture) {
    let worker = f.worker("a").await;
    f.nothing_for(worker, "there are no jobs").await;
    let id = f.enqueue(job()).await;
    f.jump_back(Duration::from_secs(10));
    let later = f.enqueue(job()).await;
    f.advance(Duration::from_secs(20));
    let mut got = f.claim_ids(worker, 10).await;
    got.sort();
    assert_eq!(got, [id, later], "neither is lost");
}

pub async fn no_attempt_starts_before_its_job_is_due(f: &Fixture) {
    let worker = f.worker("a").await;
    f.nothing_for(worker, "there are no jobs").await;
    let ids = f.enqueue_all(vec![job(), keyed("k")]).await;
    f.jump_back(Duration::from_secs(10));
    // A store that heard of one lane only may take another way to claim than one that starts anew.
    let mut got = f.claim_ids(worker, 10).await;
    got.extend(f.claim_ids(worker, 10).await);
    got.sort();
    assert_eq!(got, ids);
    for id in ids {
        let job = f.job(id).await;
        assert!(job.started_at >= Some(job.run_at), "started {:?}, due {:?}", job.started_at, job.run_at);
    }
}

pub async fn the_next_look_is_the_next_due_time(f: &Fixture) {
    f.enqueue_all(vec![due_in(5 * MINUTE), due_in(90 * Duration::from_secs(1))]).await;
    let worker = f.worker("a").await;
    let claim = f.claim(worker, 10).await;
    let look = claim.next_look.expect("two delayed jobs wait, so there is a next look");
    let fits = Duration::from_secs(89)..=Duration::from_secs(91);
    assert!(fits.contains(&look), "the sooner is due in 90 s, the store says {look:?}");
}

pub async fn there_is_no_next_look_when_nothing_waits(f: &Fixture) {
    let worker = f.worker("a").await;
    assert_eq!(f.claim(worker, 10).await.next_look, None, "an empty store has no next instant");
}
