//! A transaction that is held open: the dead stay, and calls may not pay for it.

use stargate_base::Clock;
use stargate_base::clock::ManualClock;
use stargate_testkit::eventually;
use tokio_postgres::Client;

use super::*;

/// Jobs that are enqueued together.
const BATCH: usize = 200;

/// A session that has begun to read and does not end.
pub(super) async fn pin(database: &Database) -> Client {
    let client = database.client().await;
    let look = "begin isolation level repeatable read; select count(*) from stargate.job";
    client.batch_execute(look).await.unwrap();
    client
}

pub(super) async fn enqueue(store: &Postgres, count: usize) {
    store.enqueue((0..count).map(|_| new("a")).collect()).await.unwrap();
}

/// Runs so many of the jobs that wait.
pub(super) async fn run(store: &Postgres, worker: WorkerId, count: usize) {
    let mut run = 0;
    while run < count {
        let jobs = claim(store, worker).await;
        assert!(!jobs.is_empty(), "{run} of {count} were given out");
        run += jobs.len();
        store.settle(jobs.iter().map(done).collect()).await.unwrap();
    }
}

pub(super) async fn number(client: &Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.unwrap().get(0)
}

/// Entries of an index that were read so far.
pub(super) async fn read(client: &Client, index: &str) -> i64 {
    number(client, &format!("select idx_tup_read from pg_stat_user_indexes where indexrelname = '{index}'"))
        .await
}

/// Closes the store and waits for the end of its sessions: then, at the latest, the server tells what they have read.
pub(super) async fn close(client: &Client, store: Postgres) {
    store.close().await;
    let sessions = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'stargate'";
    eventually(PATIENCE, "an end of the store's connections", || async {
        match number(client, sessions).await {
            0 => Ok(()),
            more => Err(more.to_string()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_looked_up_even_where_a_vacuum_has_found_the_table_empty() {
    const ENDED: usize = 300;
    let database = database().await;
    let (client, pin) = (database.client().await, pin(&database).await);
    let store = connect(database.url()).await;
    let first = worker(&store).await;
    enqueue(&store, 20 * BATCH).await;
    run(&store, first, 20 * BATCH).await;
    close(&client, store).await;
    client.batch_execute("vacuum (index_cleanup on, truncate off) stargate.job").await.unwrap();

    let store = connect(database.url()).await;
    let second = worker(&store).await;
    enqueue(&store, 20 * BATCH).await;
    let before = read(&client, "job_pkey").await;
    run(&store, second, ENDED).await;
    close(&client, store).await;
    let entries = read(&client, "job_pkey").await - before;
    assert!(entries <= 4 * ENDED.cast_signed() as i64, "{entries} entries were read for {ENDED} jobs");
    drop((client, pin));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_step_around_the_dead() {
    let mut costs = Vec::new();
    for floors in [false, true] {
        let database = database().await;
        let (client, pin) = (database.client().await, pin(&database).await);
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let options = Options { clock: Clock::Manual(clock.clone()), floors, ..Options::default() };
        let store = Postgres::connect(database.url(), options).await.unwrap();
        let worker = worker(&store).await;
        for _ in 0..30 {
            enqueue(&store, BATCH).await;
            run(&store, worker, BATCH).await;
            clock.advance(LEASE / 3);
            store.beat(worker).await.unwrap();
        }
        close(&client, store).await;
        costs.push(read(&client, "job_ready").await);
        drop((client, pin));
        database.remove().await;
    }
    println!("entries read without floors and with them: {costs:?}");
    assert!(costs[1] * 4 < costs[0], "{costs:?}");
}

/// Whatever the statistics say: that the table is large, or that it is all but empty.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_reads_hardly_more_than_it_gives_out() {
    const WAITING: usize = 20_000;
    for statistics in ["analyze stargate.job", "update pg_class set reltuples = 0 where relname = 'job'"] {
        let database = database().await;
        let client = database.client().await;
        let store = connect(database.url()).await;
        let first = worker(&store).await;
        // In one lane and for one who has taken everything: the short way is taken first.
        assert_eq!(claim(&store, first).await.len(), 0);
        enqueue(&store, WAITING).await;
        client.batch_execute(statistics).await.unwrap();
        for _ in 0..3 {
            assert_eq!(claim(&store, first).await.len(), 100);
        }
        close(&client, store).await;
        let entries = read(&client, "job_ready").await;
        assert!(entries < 2000, "{entries} entries were read for 300 jobs, after: {statistics}");
        drop(client);
        database.remove().await;
    }
}
