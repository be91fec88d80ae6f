//! `jobs:retry_matching`.

use serde_json::json;
use stargate_jobs::retry_matching::{self, CHUNK, KIND};
use stargate_queue::store::{JobFilter, PauseTarget};
use stargate_queue::{NewJob, State};

use crate::fixture::{Fixture, exec, profile, result};

async fn count(f: &Fixture, state: State, kind: &str) -> u64 {
    let filter = JobFilter { states: vec![state], kind: Some(kind.to_owned()), ..JobFilter::default() };
    f.store.jobs_count(filter, 10_000).await.unwrap().count
}

#[tokio::test]
async fn failed_jobs_that_match_run_again_and_others_stay() {
    let f = Fixture::start(|dir, r| {
        retry_matching::register(r).unwrap();
        let once = stargate_queue::Profile { max_attempts: 1, ..profile() };
        // Fails until the file is there.
        let script = format!("test -e {}/mended", dir.display());
        r.register("thumb", once.clone(), exec(dir, &script)).unwrap();
        r.register("other", once, exec(dir, "exit 1")).unwrap();
    })
    .await;
    let mut ids = Vec::new();
    for number in 0..6 {
        ids.push(f.run("thumb", json!({ "n": number })).await.id);
    }
    f.run("other", json!({})).await;
    assert_eq!(count(&f, State::Failed, "thumb").await, 6);
    std::fs::write(f.dir.path().join("mended"), "").unwrap();
    let payload = json!({ "filter": { "kind": "thumb", "code": "RETRIES_EXHAUSTED" }, "before_id": ids[5] });
    let retried = f.run(KIND, payload).await;
    assert_eq!(result(&retried), json!({ "retried": 5, "left": 0 }));
    for id in &ids[..5] {
        f.finished(*id).await;
    }
    assert_eq!(count(&f, State::Done, "thumb").await, 5);
    assert_eq!(count(&f, State::Failed, "thumb").await, 1, "the one from the given id on stays");
    assert_eq!(count(&f, State::Failed, "other").await, 1);
    f.stop().await;
}

#[tokio::test]
async fn more_than_a_chunk_is_retried_with_children_whose_parents_come_later() {
    let f = Fixture::start(|dir, r| {
        retry_matching::register(r).unwrap();
        let once = stargate_queue::Profile { max_attempts: 1, ..profile() };
        r.register("thumb", once, exec(dir, "exit 1")).unwrap();
    })
    .await;
    let parent = f.run("thumb", json!({})).await.id;
    // A child of a failed parent is failed from the beginning, which is the fastest way to have many.
    let child = NewJob { after: vec![parent], ..NewJob::of("thumb", &1).unwrap() };
    let count = CHUNK + 20;
    let jobs = vec![child; count as usize];
    f.store.enqueue(jobs).await.unwrap();
    f.store.pause(PauseTarget::Kind("thumb".to_owned())).await.unwrap();
    let retried = f.run(KIND, json!({ "filter": { "kind": "thumb" } })).await;
    assert_eq!(result(&retried), json!({ "retried": count + 1, "left": 0 }));
    f.stop().await;
}

#[tokio::test]
async fn nothing_is_retried_when_the_canary_fails() {
    let f = Fixture::start(|dir, r| {
        retry_matching::register(r).unwrap();
        let once = stargate_queue::Profile { max_attempts: 1, ..profile() };
        r.register("thumb", once, exec(dir, "exit 1")).unwrap();
    })
    .await;
    let canary = f.run("thumb", json!({})).await.id;
    let other = f.run("thumb", json!({})).await.id;
    f.store.pause(PauseTarget::Kind("thumb".to_owned())).await.unwrap();
    f.store.retry(canary).await.unwrap();
    let rest = NewJob { after: vec![canary], ..NewJob::of(KIND, &json!({ "filter": {} })).unwrap() };
    let rest = f.store.enqueue(vec![rest]).await.unwrap()[0].id;
    f.store.resume(PauseTarget::Kind("thumb".to_owned())).await.unwrap();
    let ended = f.finished(rest).await;
    assert_eq!(ended.error.map(|error| error.code).as_deref(), Some("DEPENDENCY_FAILED"));
    assert_eq!(f.store.job(other).await.unwrap().unwrap().attempt_count, 1);
    f.stop().await;
}
