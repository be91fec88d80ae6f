//! `jobs:purge_completed`.

use serde_json::json;
use stargate_jobs::purge::{self, KIND};
use stargate_queue::NewJob;

use crate::fixture::{Fixture, exec, profile, result};

#[tokio::test]
async fn old_jobs_go_in_batches_and_young_ones_stay() {
    let f = Fixture::start(|dir, r| {
        purge::register(r).unwrap();
        r.register("thumb", profile(), exec(dir, "exit 0")).unwrap();
    })
    .await;
    let young = f.run("thumb", json!({})).await;
    let kept = f.run(KIND, json!({})).await;
    assert_eq!(result(&kept), json!({ "done": 0, "failed": 0, "actions": 0 }));
    assert!(f.store.job(young.id).await.unwrap().is_some());

    // More than one batch, ended by an operator, which is the fastest way to end many.
    let count = u64::from(purge::BATCH) + 10;
    let later = NewJob {
        due: stargate_queue::Due::In(std::time::Duration::from_secs(3600)),
        ..NewJob::of("thumb", &1).unwrap()
    };
    let jobs = f.store.enqueue((0..count).map(|_| later.clone()).collect()).await.unwrap();
    for chunk in jobs.chunks(500) {
        futures::future::join_all(chunk.iter().map(|job| f.store.cancel(job.id))).await;
    }
    let purged = f.run(KIND, json!({ "completed_older_than_days": 0 })).await;
    // The two jobs from before are old enough now as well.
    assert_eq!(result(&purged), json!({ "done": count + 2, "failed": 0, "actions": 0 }));
    assert!(f.store.job(young.id).await.unwrap().is_none());
    f.stop().await;
}
