//! Two beats of one worker at once: its heartbeat and its claim.

use jiff::{SignedDuration, Timestamp};
use stargate_queue::Store as _;
use stargate_testkit::eventually;

use crate::{LEASE, PATIENCE, connect, database, worker};

const READ: &str = "select beat_at from stargate.worker";

/// INV-6: what a worker has said of itself is not undone by what it began to say before that.
#[tokio::test(flavor = "multi_thread")]
async fn a_beat_that_waits_for_another_does_not_set_the_worker_back() {
    let database = database().await;
    let (store, other, look) =
        (connect(database.url()).await, database.client().await, database.client().await);
    let worker = worker(&store).await;
    other.batch_execute("begin; select from stargate.worker for update").await.unwrap();
    let later = async {
        let waits =
            "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        eventually(PATIENCE, "the beat that waits", || async {
            let found = look.query(waits, &[]).await.unwrap();
            if found.is_empty() { Err("none".to_owned()) } else { Ok(()) }
        })
        .await;
        let beat = "update stargate.worker set beat_at = clock_timestamp() returning beat_at";
        let at: Timestamp = other.query_one(beat, &[]).await.unwrap().get(0);
        other.batch_execute("commit").await.unwrap();
        at
    };
    let (beat, at) = tokio::join!(store.beat(worker), later);
    assert!(beat.unwrap().known);
    let kept: Timestamp = look.query_one(READ, &[]).await.unwrap().get(0);
    assert_eq!(kept, at);
    drop(store);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_beat_from_before_the_clock_was_set_back_does_not_keep_jobs_for_ever() {
    let database = database().await;
    let (store, look) = (connect(database.url()).await, database.client().await);
    let worker = worker(&store).await;
    look.batch_execute("update stargate.worker set beat_at = now() + interval '1 hour'").await.unwrap();
    assert!(store.beat(worker).await.unwrap().known);
    let kept: Timestamp = look.query_one(READ, &[]).await.unwrap().get(0);
    let now: Timestamp = look.query_one("select clock_timestamp()", &[]).await.unwrap().get(0);
    assert!(
        kept <= now && now.duration_since(kept) < SignedDuration::try_from(LEASE).unwrap(),
        "{kept}, {now}"
    );
    drop(store);
    database.remove().await;
}
