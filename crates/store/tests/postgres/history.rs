//! Finished jobs: what is purged and what is charted is found without reading the rest.

use stargate_base::Clock;
use stargate_base::clock::ManualClock;
use stargate_queue::store::{PurgeReport, PurgeRequest};
use tokio_postgres::Client;

use super::pinned::{close, enqueue, number, run};
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
