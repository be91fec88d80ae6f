//! The hot table is as large as its backlog, however many jobs have gone through it.

use stargate_testkit::eventually;

use super::pinned::{close, enqueue, number, run};
use super::*;

/// More than are claimed between two vacuums of a queue at rest.
const ROUND: usize = 2500;
const ROUNDS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn the_hot_table_does_not_grow_with_the_jobs_that_went_through_it() {
    let database = database().await;
    let (store, look) = (connect(database.url()).await, database.client().await);
    let worker = worker(&store).await;
    let vacuums = "select vacuum_count from pg_stat_user_tables where relname = 'job'";
    let mut sizes = Vec::new();
    for _ in 0..ROUNDS {
        let before = number(&look, vacuums).await;
        enqueue(&store, ROUND).await;
        run(&store, worker, ROUND).await;
        // A worker with nothing to do goes on asking; the one before may still be under way when it first does.
        eventually(PATIENCE, "a vacuum after so many jobs", || async {
            assert_eq!(claim(&store, worker).await.len(), 0);
            let count = number(&look, vacuums).await;
            if count > before { Ok(()) } else { Err(format!("{count} vacuums")) }
        })
        .await;
        // Without its indexes: their empty pages are used again when no transaction anywhere on the server is older, and other
        // tests hold some open.
        sizes.push(number(&look, "select pg_relation_size('stargate.job')").await);
    }
    // Without it each round would add as much as the first.
    assert!(sizes[ROUNDS - 1] <= sizes[1] * 3 / 2, "{sizes:?}");
    close(&look, store).await;
    drop(look);
    database.remove().await;
}
