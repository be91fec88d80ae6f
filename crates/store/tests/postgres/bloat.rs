//! The hot table is as large as its backlog, however many jobs have gone through it.

use stargate_testkit::eventually;

use super::pinned::{close, enqueue, number, run};
use super::*;

/// More than are claimed between two vacuums of a queue at rest.
const ROUND: usize = 2500;
const FEW: usize = 100;
/// Rounds that find room in what those before them have left.
const ENOUGH: usize = 6;
/// Where they are looked for: while the server analyzes something, which it does of its own accord, no vacuum removes anything.
const ROUNDS_MAX: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn the_hot_table_does_not_grow_with_the_jobs_that_went_through_it() {
    let database = database().await;
    let (store, look) = (connect(database.url()).await, database.client().await);
    let worker = worker(&store).await;
    // While the server's own is at it, a vacuum is left out; here it is to be the store's.
    look.batch_execute("alter table stargate.job set (autovacuum_enabled = false)").await.unwrap();
    let vacuums = "select vacuum_count from pg_stat_user_tables where relname = 'job'";
    let mut sizes = Vec::new();
    while found_room(&sizes) < ENOUGH {
        // Without vacuums each round adds as much as the first.
        assert!(sizes.len() < ROUNDS_MAX, "{sizes:?}");
        let before = number(&look, vacuums).await;
        enqueue(&store, ROUND).await;
        run(&store, worker, ROUND).await;
        // The one before may still be under way, and after one that could remove nothing the next comes later: a few more.
        eventually(PATIENCE, "a vacuum after so many jobs", || async {
            enqueue(&store, FEW).await;
            run(&store, worker, FEW).await;
            assert_eq!(claim(&store, worker).await.len(), 0);
            let count = number(&look, vacuums).await;
            if count > before { Ok(()) } else { Err(format!("{count} vacuums")) }
        })
        .await;
        // Without its indexes: their empty pages are used again when no transaction anywhere on the server is older, and other
        // tests hold some open.
        sizes.push(number(&look, "select pg_relation_size('stargate.job')").await);
    }
    close(&look, store).await;
    drop(look);
    database.remove().await;
}

/// How many of the sizes are no larger than the one before.
fn found_room(sizes: &[i64]) -> usize {
    sizes.windows(2).filter(|pair| pair[1] <= pair[0]).count()
}
