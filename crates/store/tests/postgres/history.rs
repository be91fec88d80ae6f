//! Finished jobs: what is purged and what is charted is found without reading the rest.

use stargate_base::clock::ManualClock;
use stargate_base::{Clock, ErrorClass};
use stargate_queue::JobError;
use stargate_queue::store::{Note, PurgeReport, PurgeRequest};
use tokio_postgres::Client;

use super::beat::until_somebody_waits;
use super::pinned::{self, close, enqueue, number, run};
use super::*;

const DAY: Duration = Duration::from_secs(86_400);

/// Rows of finished jobs that were read so far.
async fn read(client: &Client) -> i64 {
    let rows = "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables where relname = 'job_history'";
    number(client, rows).await
}

async fn purge_all(store: &Postgres) {
    while store.purge(PurgeRequest::default()).await.unwrap() != PurgeReport::default() {}
}

/// A purge makes room, and the next ends move in: from then on old and new lie in the same pages.
#[tokio::test(flavor = "multi_thread")]
async fn old_and_new_ends_are_found_without_reading_the_rest_where_room_was_used_again() {
    const ENDED: usize = 4000;
    const RECENT: usize = 10;
    let database = database().await;
    let client = database.client().await;
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let open = async || {
        let options = Options { clock: Clock::Manual(clock.clone()), ..Options::default() };
        Postgres::connect(database.url(), options).await.unwrap()
    };
    let store = open().await;
    let first = worker(&store).await;
    enqueue(&store, ENDED).await;
    run(&store, first, ENDED).await;
    clock.advance(15 * DAY);
    purge_all(&store).await;
    close(&client, store).await;
    client.batch_execute("vacuum (index_cleanup on, truncate off) stargate.job_history").await.unwrap();

    let store = open().await;
    let second = worker(&store).await;
    for count in [ENDED, RECENT] {
        enqueue(&store, count).await;
        run(&store, second, count).await;
        clock.advance(LEASE / 2);
        store.beat(second).await.unwrap();
    }
    close(&client, store).await;

    let before = read(&client).await;
    let store = open().await;
    purge_all(&store).await;
    let ended = store.activity(Duration::from_secs(10), 10).await.unwrap();
    clock.advance(DAY);
    purge_all(&store).await;
    store.activity(Duration::from_secs(3600), 60).await.unwrap();
    close(&client, store).await;
    let rows = read(&client).await - before;
    assert_eq!(ended.iter().map(|bucket| bucket.done).sum::<u64>(), 0, "the last ended fifteen seconds ago");
    assert!(rows <= 100, "{rows} rows were read to find nothing");
    drop(client);
    database.remove().await;
}

/// What a purge has removed stays in the index while a transaction is held open, and each batch begins at the oldest.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_in_batches_steps_over_what_it_has_removed_only_once() {
    const ENDED: usize = 2000;
    const BATCH: u32 = 50;
    let database = database().await;
    let client = database.client().await;
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let options = Options { clock: Clock::Manual(clock.clone()), ..Options::default() };
    let store = Postgres::connect(database.url(), options).await.unwrap();
    let worker = worker(&store).await;
    for _ in 0..20 {
        enqueue(&store, ENDED / 20).await;
        run(&store, worker, ENDED / 20).await;
        clock.advance(Duration::from_secs(1));
        store.beat(worker).await.unwrap();
    }
    let pin = pinned::pin(&database).await;
    let before = pinned::read(&client, "job_history_finished").await;
    clock.advance(15 * DAY);
    let request = PurgeRequest { batch: BATCH, ..PurgeRequest::default() };
    while store.purge(request).await.unwrap() != PurgeReport::default() {}
    close(&client, store).await;
    let entries = pinned::read(&client, "job_history_finished").await - before;
    let left = number(&client, "select count(*) from stargate.job_history").await;
    assert_eq!(left, 0, "all of them are purged");
    let most = i64::try_from(ENDED * 6).unwrap();
    assert!(entries <= most, "{entries} entries of the index were read to purge {ENDED} jobs");
    drop((pin, client));
    database.remove().await;
}

/// Somebody has a failed job run again while a purge is about to remove it: what belongs to it is still its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_purge_takes_nothing_from_a_job_that_runs_again_meanwhile() {
    let database = database().await;
    let (store, other, look) =
        (connect(database.url()).await, database.client().await, database.client().await);
    let worker = worker(&store).await;
    let parent = store.enqueue(vec![new("a")]).await.unwrap()[0].id;
    store.enqueue(vec![NewJob { after: vec![parent], ..new("a") }]).await.unwrap();
    run(&store, worker, 1).await;
    let child = claim(&store, worker).await.remove(0);
    let error = JobError::new("BROKEN", ErrorClass::Fatal, "it never works");
    let event = Some(("noted".to_owned(), serde_json::value::to_raw_value(&1).unwrap()));
    store.note(vec![Note { fence: child.fence, progress: None, event }]).await.unwrap();
    let failed = Settlement { fence: child.fence, outcome: Outcome::Failed { error } };
    store.settle(vec![failed]).await.unwrap();
    let own =
        "select (select count(*) from stargate.job_event) * 100 + (select count(*) from stargate.job_parent)";
    let before = number(&look, own).await;
    assert!(before > 100 && before % 100 == 1, "{before}");

    // The first thing that a retry does.
    let retried = format!("begin; delete from stargate.job_history where id = {}", child.fence.job.0);
    other.batch_execute(&retried).await.unwrap();
    let everything = PurgeRequest { failed_age: Duration::ZERO, ..PurgeRequest::default() };
    let commit = async {
        until_somebody_waits(&look).await;
        other.batch_execute("commit").await.unwrap();
    };
    let (purged, ()) = tokio::join!(store.purge(everything), commit);
    assert_eq!(purged.unwrap(), PurgeReport::default());
    assert_eq!(number(&look, own).await, before);
    drop((store, other, look));
    database.remove().await;
}
