//! Many jobs at once, and a retry with another payload. Rules 32 and 33.

use stargate_queue::bulk::BULK_MAX;
use stargate_queue::event::{BEFORE_BYTES_MAX, EDITED};

use super::prelude::*;

/// Has so many jobs fail; their ids.
async fn fail(f: &Fixture, worker: WorkerId, jobs: Vec<NewJob>) -> Vec<JobId> {
    let ids = f.enqueue_all(jobs).await;
    let mut failed_ids = Vec::new();
    for claimed in f.claim(worker, 1000).await.jobs {
        f.accept(claimed.fence, failed()).await;
        failed_ids.push(claimed.fence.job);
    }
    failed_ids.sort_unstable();
    assert_eq!(failed_ids, ids);
    ids
}

pub async fn many_failed_jobs_are_retried_as_each_would_be(f: &Fixture) {
    let worker = f.worker("w").await;
    let single = fail(f, worker, vec![keyed("t")]).await[0];
    let many = fail(f, worker, vec![keyed("t"), job(), NewJob { queue: "q".into(), ..job() }]).await;
    f.advance(Duration::from_secs(10));
    f.store.retry(single).await.unwrap();
    let asked: Vec<JobId> = many.iter().rev().copied().collect();
    assert_eq!(f.store.retry_many(asked.clone()).await.unwrap(), asked, "in the order of the input");
    assert_eq!(f.timeline(many[0]).await, f.timeline(single).await);
    let (one, other) = (f.job(single).await, f.job(many[0]).await);
    let told = |job: &Job| {
        let numbers = (job.attempt_count, job.max_attempts, job.crash_count);
        (job.state, job.stage, numbers, job.run_at, job.limit_key.clone(), job.finished_at)
    };
    assert_eq!(told(&one), told(&other));
    let counts = f.store.queues().await.unwrap();
    let sums = counts.iter().fold((0, 0), |sum, queue| (sum.0 + queue.ready, sum.1 + queue.failed));
    assert_eq!(sums, (4, 0), "{counts:?}");
    assert_eq!(f.claim(worker, 10).await.jobs.len(), 4, "they can be claimed");
    assert!(f.store.retry_many(many).await.unwrap().is_empty(), "once");
    assert!(f.store.retry_many(Vec::new()).await.unwrap().is_empty());
}

pub async fn what_cannot_be_retried_is_left_out_and_stays_as_it_is(f: &Fixture) {
    let worker = f.worker("w").await;
    let with_key = || NewJob { unique_key: Some("k".into()), ..job() };
    let held = fail(f, worker, vec![with_key()]).await[0];
    let good = fail(f, worker, vec![job()]).await[0];
    let holder = f.enqueue(with_key()).await;
    let waiting = f.enqueue(job()).await;
    let before = (f.all_of(held).await, f.all_of(holder).await, f.all_of(waiting).await);
    let ids = vec![JobId(999_999), held, waiting, good, good, holder];
    assert_eq!(f.store.retry_many(ids).await.unwrap(), [good]);
    assert_eq!((f.all_of(held).await, f.all_of(holder).await, f.all_of(waiting).await), before);
    f.is(good, State::Queued, "was retried, once").await;
}

pub async fn of_failed_jobs_with_the_same_unique_key_one_is_retried(f: &Fixture) {
    let worker = f.worker("w").await;
    let with_key = || NewJob { unique_key: Some("k".into()), ..job() };
    let first = fail(f, worker, vec![with_key()]).await[0];
    let second = fail(f, worker, vec![with_key()]).await[0];
    assert_eq!(f.store.retry_many(vec![second, first]).await.unwrap(), [first], "the older one");
    f.is(second, State::Failed, "has no key to wait with").await;
}

pub async fn parents_and_children_that_failed_together_are_retried_together(f: &Fixture) {
    let parent = f.enqueue(job()).await;
    let child = f.enqueue(NewJob { after: vec![parent], ..job() }).await;
    let grandchild = f.enqueue(NewJob { after: vec![child], ..job() }).await;
    let worker = f.worker("w").await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, failed()).await;
    f.failed_with(grandchild, "DEPENDENCY_FAILED").await;
    assert!(f.store.retry_many(vec![grandchild, child]).await.unwrap().is_empty(), "not without the parent");
    let asked = vec![grandchild, parent, child];
    assert_eq!(f.store.retry_many(asked.clone()).await.unwrap(), asked);
    for (id, stage) in [(parent, Stage::Ready), (child, Stage::Blocked), (grandchild, Stage::Blocked)] {
        assert_eq!(f.job(id).await.stage, Some(stage), "job {id}");
    }
    for id in [parent, child, grandchild] {
        let claimed = f.claim_one(worker).await;
        assert_eq!(claimed.fence.job, id);
        f.done(claimed.fence).await;
    }
}

pub async fn many_jobs_are_cancelled_as_each_would_be(f: &Fixture) {
    let worker = f.worker("w").await;
    let running = f.enqueue(job()).await;
    let fence = f.claim_one(worker).await.fence;
    let done = f.enqueue(job()).await;
    f.done(f.claim_one(worker).await.fence).await;
    let waiting = f.enqueue(keyed("t")).await;
    let delayed = f.enqueue(NewJob { due: Due::In(Duration::from_secs(60)), ..job() }).await;
    let child = f.enqueue(NewJob { after: vec![waiting], ..job() }).await;
    let other_child = f.enqueue(NewJob { after: vec![delayed], ..job() }).await;
    let ids = vec![done, child, waiting, running, JobId(999_999), delayed, waiting];
    let expected = [
        (child, Cancelled::Ended),
        (waiting, Cancelled::Ended),
        (running, Cancelled::Requested),
        (delayed, Cancelled::Ended),
    ];
    assert_eq!(f.store.cancel_many(ids.clone()).await.unwrap(), expected);
    f.is(child, State::Cancelled, "is cancelled itself, not failed because of its parent").await;
    f.failed_with(other_child, "DEPENDENCY_FAILED").await;
    assert!(f.job(running).await.cancel_requested);
    assert_eq!(f.store.beat(worker).await.unwrap().cancels, [running]);
    assert_eq!(f.timeline(waiting).await, "created cancelled");
    let again = f.store.cancel_many(ids).await.unwrap();
    assert_eq!(again, [(running, Cancelled::Requested)], "asked again, as a single one");
    f.accept(fence, Outcome::Cancelled).await;
    let counts = f.store.queues().await.unwrap();
    assert_eq!((counts[0].ready, counts[0].delayed, counts[0].blocked, counts[0].processing), (0, 0, 0, 0));
    f.nothing_for(worker, "all have ended").await;
}

pub async fn more_jobs_than_one_call_takes_are_refused_whole(f: &Fixture) {
    let ids = f.enqueue_all(vec![job(); BULK_MAX + 1]).await;
    assert_eq!(f.store.cancel_many(ids.clone()).await.unwrap_err().code(), "INVALID");
    assert_eq!(f.store.retry_many(ids.clone()).await.unwrap_err().code(), "INVALID");
    assert_eq!(f.store.cancel_many(ids[1..].to_vec()).await.unwrap().len(), BULK_MAX);
    let states = vec![State::Queued];
    assert_eq!(f.store.jobs_count(JobFilter { states, ..JobFilter::default() }, 10).await.unwrap().count, 1);
}

pub async fn racing_operators_retry_each_of_many_jobs_once(f: &Fixture) {
    let worker = f.worker("w").await;
    let ids = fail(f, worker, vec![job(); 60]).await;
    let stores = [f.store.clone(), f.another().await];
    let retried = race(6, |number| {
        let (store, mut ids) = (stores[number % 2].clone(), ids.clone());
        if number % 3 == 0 {
            ids.reverse();
        }
        async move { store.retry_many(ids).await.unwrap() }
    })
    .await;
    let mut all: Vec<JobId> = retried.concat();
    all.sort_unstable();
    assert_eq!(all, ids, "each once");
    assert_eq!(f.claim(worker, 1000).await.jobs.len(), ids.len());
}

pub async fn an_edited_job_runs_again_with_the_other_payload(f: &Fixture) {
    let worker = f.worker("w").await;
    let given = RawValue::from_string(r#"{"n": 12345678901234567890.10, "b":1}"#.to_owned()).unwrap();
    let id = fail(f, worker, vec![NewJob::new(WORK, given.clone())]).await[0];
    f.advance(Duration::from_secs(5));
    let other = RawValue::from_string(r#"{"n": 98765432109876543210.50}"#.to_owned()).unwrap();
    f.store.retry_edited(id, other.clone()).await.unwrap();
    assert_eq!(f.timeline(id).await, "created processing failed edited requeued:operator");
    let events = f.events(id).await;
    let edited = events.iter().find(|event| event.event == EDITED).unwrap();
    assert_eq!(edited.data.get(), format!(r#"{{"before":{}}}"#, given.get()), "the text as it was");
    assert_eq!(edited.at, f.now());
    let claimed = f.claim_one(worker).await;
    assert_eq!(claimed.payload.get(), other.get());
    assert_eq!(claimed.fence.attempt, 2);
    f.accept(claimed.fence, failed()).await;
    f.store.retry(id).await.unwrap();
    assert_eq!(f.job(id).await.payload.get(), other.get(), "a plain retry keeps what was edited");
    let tail = "edited requeued:operator processing failed requeued:operator";
    assert!(f.timeline(id).await.ends_with(tail), "{}", f.timeline(id).await);
}

pub async fn a_large_payload_that_was_replaced_is_known_by_its_hash(f: &Fixture) {
    let worker = f.worker("w").await;
    let large = NewJob::of(WORK, &"x".repeat(BEFORE_BYTES_MAX)).unwrap();
    let id = fail(f, worker, vec![large]).await[0];
    f.store.retry_edited(id, raw(&json!(1))).await.unwrap();
    let events = f.events(id).await;
    let edited = value(&events.iter().find(|event| event.event == EDITED).unwrap().data);
    assert_eq!(edited["before_bytes"], BEFORE_BYTES_MAX + 2);
    assert_eq!(edited["before_sha256"].as_str().unwrap().len(), 64, "{edited}");
}

pub async fn an_edit_that_cannot_be_is_refused_and_changes_nothing(f: &Fixture) {
    let worker = f.worker("w").await;
    let id = fail(f, worker, vec![job()]).await[0];
    let waiting = f.enqueue(job()).await;
    let before = (f.all_of(id).await, f.all_of(waiting).await);
    let large = raw(&json!("x".repeat(PAYLOAD_BYTES_MAX)));
    assert_eq!(f.store.retry_edited(id, large).await.unwrap_err().code(), "PAYLOAD_TOO_LARGE");
    let nul = RawValue::from_string(r#""\u0000""#.to_owned()).unwrap();
    assert_eq!(f.store.retry_edited(id, nul).await.unwrap_err().code(), "INVALID");
    let wrong = f.store.retry_edited(waiting, raw(&json!(1))).await.unwrap_err();
    assert_eq!(wrong.code(), "WRONG_STATE");
    assert_eq!(f.store.retry_edited(JobId(999_999), raw(&json!(1))).await.unwrap_err().code(), "NOT_FOUND");
    assert_eq!((f.all_of(id).await, f.all_of(waiting).await), before);
}
