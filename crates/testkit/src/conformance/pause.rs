//! Rule 8, second half: nothing of a paused queue or kind is given out, and other work flows.

use super::prelude::*;

fn queue(name: &str) -> PauseTarget {
    PauseTarget::Queue(name.into())
}

fn kind(name: &str) -> PauseTarget {
    PauseTarget::Kind(name.into())
}

pub async fn a_paused_queue_is_left_alone_and_others_flow(f: &Fixture) {
    let paused = f.enqueue(NewJob { queue: "mail".into(), priority: 9, ..job() }).await;
    let flowing = f.enqueue(job()).await;
    f.store.pause(queue("mail")).await.unwrap();
    let worker = f.worker("a").await;
    assert_eq!(f.claim_ids(worker, 10).await, [flowing], "queue mail is paused");
    assert!(f.store.resume(queue("mail")).await.unwrap(), "it was paused");
    assert_eq!(f.claim_ids(worker, 10).await, [paused], "queue mail goes on");
}

pub async fn a_paused_kind_is_left_alone_in_every_queue(f: &Fixture) {
    let other = |queue: &str| NewJob { kind: OTHER.into(), queue: queue.into(), ..job() };
    let paused = f.enqueue_all(vec![other("a"), other("b")]).await;
    let flowing = f.enqueue(NewJob { queue: "a".into(), ..job() }).await;
    f.store.pause(kind(OTHER)).await.unwrap();
    let worker = f.worker("a").await;
    assert_eq!(f.claim_ids(worker, 10).await, [flowing], "kind {OTHER} is paused");
    assert!(f.store.resume(kind(OTHER)).await.unwrap(), "it was paused");
    assert_eq!(f.claim_ids(worker, 10).await, paused, "kind {OTHER} goes on");
}

pub async fn a_queue_and_a_kind_of_the_same_name_are_paused_apart(f: &Fixture) {
    let id = f.enqueue(NewJob { queue: WORK.into(), kind: OTHER.into(), ..job() }).await;
    f.store.pause(kind(WORK)).await.unwrap();
    let worker = f.worker("a").await;
    assert_eq!(f.claim_ids(worker, 10).await, [id], "the kind {WORK} is paused, not the queue");
}

pub async fn a_job_paused_twice_over_waits_for_both(f: &Fixture) {
    let id = f.enqueue(NewJob { queue: "q".into(), ..job() }).await;
    f.store.pause(queue("q")).await.unwrap();
    f.store.pause(kind(WORK)).await.unwrap();
    let worker = f.worker("a").await;
    f.store.resume(queue("q")).await.unwrap();
    f.nothing_for(worker, "its kind is still paused").await;
    f.store.resume(kind(WORK)).await.unwrap();
    assert_eq!(f.claim_ids(worker, 10).await, [id]);
}

pub async fn pausing_twice_is_pausing_once(f: &Fixture) {
    f.store.pause(queue("q")).await.unwrap();
    f.store.pause(queue("q")).await.unwrap();
    assert_eq!(f.store.pauses().await.unwrap(), [queue("q")], "told once");
    assert!(f.store.resume(queue("q")).await.unwrap(), "it was paused");
    assert!(!f.store.resume(queue("q")).await.unwrap(), "and is not any more");
    assert_eq!(f.store.pauses().await.unwrap(), [], "nothing is paused");
}

pub async fn resuming_what_was_not_paused_says_so(f: &Fixture) {
    assert!(!f.store.resume(queue("q")).await.unwrap(), "a queue");
    assert!(!f.store.resume(kind(WORK)).await.unwrap(), "a kind");
}

pub async fn running_jobs_of_a_paused_queue_finish(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let claimed = f.claim_one(worker).await;
    f.store.pause(queue("default")).await.unwrap();
    f.done(claimed.fence).await;
    f.is(id, State::Done, "ran already when its queue was paused").await;
}

pub async fn a_pause_by_another_process_holds_here(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    let elsewhere = f.another().await;
    elsewhere.pause(queue("default")).await.unwrap();
    f.nothing_for(worker, "another process paused the queue").await;
    elsewhere.resume(queue("default")).await.unwrap();
    assert_eq!(f.claim_ids(worker, 10).await, [id], "another process resumed the queue");
}

pub async fn an_expired_job_of_a_paused_queue_is_recovered_but_waits(f: &Fixture) {
    let id = f.enqueue(job()).await;
    let worker = f.worker("a").await;
    f.claim_one(worker).await;
    f.store.pause(queue("default")).await.unwrap();
    f.expire();
    let rescuer = f.worker("b").await;
    f.nothing_for(rescuer, "the queue is paused").await;
    f.is(id, State::Queued, "must not stay with its dead worker").await;
    f.store.resume(queue("default")).await.unwrap();
    assert_eq!(f.claim_ids(rescuer, 10).await, [id]);
}

pub async fn paused_queues_are_told_in_the_counts(f: &Fixture) {
    f.enqueue(job()).await;
    f.store.pause(queue("default")).await.unwrap();
    let counts = f.store.queues().await.unwrap();
    let found = counts.iter().find(|counts| counts.queue == "default").expect("a queue with a job is told");
    assert!(found.paused && found.ready == 1, "{found:?}");
}
