//! Retention: finished jobs leave after their time, the young stay, and nothing unfinished is touched.

use super::prelude::*;

const DAY: Duration = Duration::from_secs(86_400);

fn request(batch: u32) -> PurgeRequest {
    PurgeRequest { batch, ..PurgeRequest::default() }
}

/// One job of each end, settled now.
async fn one_of_each(f: &Fixture, worker: WorkerId) -> [JobId; 3] {
    let all = f.enqueue_all(vec![job(); 3]).await;
    let claimed = f.claim(worker, 3).await.jobs;
    f.done(claimed[0].fence).await;
    f.accept(claimed[1].fence, failed()).await;
    f.accept(claimed[2].fence, Outcome::Cancelled).await;
    [all[0], all[1], all[2]]
}

async fn is_there(f: &Fixture, id: JobId) -> bool {
    f.store.job(id).await.unwrap().is_some()
}

pub async fn old_jobs_leave_and_young_ones_stay(f: &Fixture) {
    let worker = f.worker("w").await;
    let old = one_of_each(f, worker).await;
    f.advance(10 * DAY);
    let worker = f.worker("v").await;
    let young = one_of_each(f, worker).await;
    f.advance(5 * DAY);
    assert_eq!(
        f.store.purge(request(100)).await.unwrap(),
        PurgeReport { done: 2, ..PurgeReport::default() },
        "15 days and 5 days"
    );
    assert!(
        !is_there(f, old[0]).await && !is_there(f, old[2]).await,
        "done and cancelled left after 14 days"
    );
    assert!(is_there(f, old[1]).await, "failed ones stay for 30 days");
    for id in young {
        assert!(is_there(f, id).await, "job {id} is five days old");
    }
    f.advance(16 * DAY);
    assert_eq!(
        f.store.purge(request(100)).await.unwrap(),
        PurgeReport { done: 2, failed: 1, actions: 0 },
        "31 days and 21 days"
    );
    assert!(!is_there(f, old[1]).await, "failed, 31 days ago");
    assert!(is_there(f, young[1]).await, "failed, 21 days ago");
}

pub async fn age_counts_from_the_end_not_from_the_beginning(f: &Fixture) {
    let id = f.enqueue(NewJob { due: Due::In(20 * DAY), ..job() }).await;
    f.advance(20 * DAY);
    let worker = f.worker("w").await;
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    f.advance(DAY);
    assert_eq!(f.store.purge(request(100)).await.unwrap(), PurgeReport::default());
    assert!(is_there(f, id).await, "created 21 days ago, ended yesterday");
}

pub async fn unfinished_jobs_are_never_purged(f: &Fixture) {
    let parent = f.enqueue(job()).await;
    let ready = f.enqueue(job()).await;
    let delayed = f.enqueue(NewJob { due: Due::In(900 * DAY), ..job() }).await;
    let blocked = f.enqueue(NewJob { after: vec![ready], ..job() }).await;
    let worker = f.worker("w").await;
    f.claim_one(worker).await;
    f.advance(400 * DAY);
    assert_eq!(f.store.purge(request(100)).await.unwrap(), PurgeReport::default(), "nothing has ended");
    for id in [parent, ready, delayed, blocked] {
        assert!(is_there(f, id).await, "job {id} has not ended");
    }
}

pub async fn a_purge_takes_no_more_than_its_batch(f: &Fixture) {
    f.enqueue_all(vec![job(); 10]).await;
    let worker = f.worker("w").await;
    for claimed in f.claim(worker, 10).await.jobs {
        f.done(claimed.fence).await;
    }
    f.advance(15 * DAY);
    let mut taken = Vec::new();
    for _ in 0..4 {
        taken.push(f.store.purge(request(4)).await.unwrap().done);
    }
    assert_eq!(taken, [4, 4, 2, 0], "in batches of four until nothing is left");
}

pub async fn a_purged_job_leaves_nothing_behind(f: &Fixture) {
    let worker = f.worker("w").await;
    let id = f.enqueue(job()).await;
    let claimed = f.claim_one(worker).await;
    f.accept(claimed.fence, retry_in(Duration::ZERO)).await;
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    f.advance(15 * DAY);
    f.store.purge(request(10)).await.unwrap();
    let events = f.store.events(id, 0, 10).await.unwrap_or_default();
    assert!(events.is_empty(), "its timeline went with it: {events:?}");
    assert!(f.store.jobs(JobFilter::default()).await.unwrap().is_empty(), "it is not listed");
    assert_eq!(f.store.retry(id).await.unwrap_err().code(), "NOT_FOUND");
    assert_eq!(f.store.cancel(id).await.unwrap_err().code(), "NOT_FOUND");
}

pub async fn a_child_survives_the_purge_of_its_parent(f: &Fixture) {
    let parent = f.enqueue(job()).await;
    let other = f.enqueue(NewJob { due: Due::In(20 * DAY), ..job() }).await;
    let child = f.enqueue(NewJob { after: vec![parent, other], ..job() }).await;
    let worker = f.worker("w").await;
    let claimed = f.claim_one(worker).await;
    f.done(claimed.fence).await;
    f.advance(20 * DAY);
    assert_eq!(f.store.purge(request(10)).await.unwrap().done, 1, "the parent");
    let worker = f.worker("v").await;
    let claimed = f.claim_one(worker).await;
    assert_eq!(claimed.fence.job, other);
    f.done(claimed.fence).await;
    assert_eq!(f.claim_ids(worker, 10).await, [child], "it does not wait for a parent that is gone");
}
