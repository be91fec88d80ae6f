//! Inserting and draining a backlog, and what a job costs the database.

use std::time::Duration;

use anyhow::Result;
use tokio_postgres::Client;

use crate::report::{Goal, heading, line, median};
use crate::{latency, noop, raw, single};

/// A session that has ended has told the server's statistics what it did; the server needs a moment to write it down.
const SETTLED: Duration = Duration::from_millis(500);

/// What the database has done so far.
pub(crate) struct Cost {
    pub(crate) wal_bytes: f64,
    pub(crate) commits: f64,
}

pub(crate) async fn cost(client: &Client) -> Result<Cost> {
    // Statistics of other sessions arrive late; asking for a snapshot of our own would see old ones.
    client.batch_execute("select pg_stat_force_next_flush()").await?;
    let row = client
        .query_one(
            "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8,
                    (select xact_commit from pg_stat_database where datname = current_database())::float8",
            &[],
        )
        .await?;
    Ok(Cost { wal_bytes: row.get(0), commits: row.get(1) })
}

/// Bytes of WAL and commits for each job, after the sessions that cost them were closed.
pub(crate) async fn cost_since(client: &Client, before: &Cost, jobs: u64) -> Result<(f64, f64)> {
    tokio::time::sleep(SETTLED).await;
    let after = cost(client).await?;
    let each = |now: f64, then: f64| (now - then) / jobs as f64;
    Ok((each(after.wal_bytes, before.wal_bytes), each(after.commits, before.commits)))
}

pub(crate) async fn settle_tables(client: &Client) -> Result<()> {
    client.batch_execute("vacuum analyze").await?;
    client.batch_execute("checkpoint").await?;
    Ok(())
}

/// Postgres, beside the raw client, alternating.
pub(crate) async fn postgres(server: &str, jobs: usize, repeats: usize) -> Result<()> {
    let url = fresh_database(server).await?;
    let client = raw::connect(&url).await?;
    let (mut raw_insert, mut raw_drain, mut insert, mut drain) = (vec![], vec![], vec![], vec![]);
    let (mut wal, mut commits) = (vec![], vec![]);
    for _ in 0..repeats {
        raw_insert.push(raw::insert(&url, jobs).await?);
        settle_tables(&client).await?;
        raw_drain.push(raw::drain(&url, jobs).await?);
        let store = noop::open(&url).await?;
        insert.push(noop::insert(&store, jobs).await?);
        settle_tables(&client).await?;
        let before = cost(&client).await?;
        drain.push(noop::drain(&store, jobs).await?);
        drop(store);
        let (bytes, count) = cost_since(&client, &before, jobs as u64).await?;
        wal.push(bytes);
        commits.push(count);
    }
    let (raw_insert, raw_drain) = (median(raw_insert), median(raw_drain));
    let (insert, drain) = (median(insert), median(drain));
    heading(&format!("Postgres, {jobs} no-op jobs, default settings, median of {repeats}"));
    line("raw client: insert, 1000 a call", raw_insert, "jobs/s", &Goal::None);
    line("raw client: drain", raw_drain, "jobs/s", &Goal::None);
    line("insert, 1000 a call", insert, "jobs/s", &Goal::None);
    line("drain", drain, "jobs/s", &Goal::None);
    line("drain / raw drain", drain / raw_drain, "", &Goal::AtLeast(0.6));
    line("insert / raw insert", insert / raw_insert, "", &Goal::None);
    line("WAL per job in the drain", median(wal), "bytes", &Goal::AtMost(1536.0));
    line("commits per job in the drain", median(commits), "", &Goal::AtMost(0.05));
    latency::raw_across_processes(&url).await?;
    latency::across_processes(&url, &Goal::AtMost(0.5), &Goal::AtMost(2.5)).await?;
    idle(&url, &client).await?;
    drop(client);
    single::beside_raw(server).await
}

/// Queries of an idle worker process.
async fn idle(url: &str, client: &Client) -> Result<()> {
    const SECONDS: u64 = 20;
    let store = noop::open(url).await?;
    let pool = stargate_queue::Pool::start(store, noop::registry(|_| ())?, noop::config()).await?;
    let stop = tokio_util::sync::CancellationToken::new();
    let tasks = stargate_base::Tasks::new();
    tasks.spawn(pool.run(stop.clone()));
    // A session tells what it did up to ten seconds late.
    tokio::time::sleep(std::time::Duration::from_secs(12)).await;
    let before = cost(client).await?;
    tokio::time::sleep(std::time::Duration::from_secs(SECONDS)).await;
    let after = cost(client).await?;
    stop.cancel();
    tasks.join().await;
    line(
        "transactions per second of an idle process",
        (after.commits - before.commits) / SECONDS as f64,
        "",
        &Goal::AtMost(1.0),
    );
    Ok(())
}

/// SQLite with `synchronous=FULL`.
pub(crate) async fn sqlite(jobs: usize, repeats: usize) -> Result<()> {
    let (mut insert, mut drain) = (vec![], vec![]);
    for _ in 0..repeats {
        let folder = tempfile::tempdir()?;
        let store = noop::open(&format!("sqlite:{}", folder.path().join("bench.db").display())).await?;
        insert.push(noop::insert(&store, jobs).await?);
        drain.push(noop::drain(&store, jobs).await?);
    }
    heading(&format!("SQLite, synchronous=FULL, {jobs} no-op jobs, default settings, median of {repeats}"));
    line("insert, 1000 a call", median(insert), "jobs/s", &Goal::AtLeast(80_000.0));
    line("drain, end to end", median(drain), "jobs/s", &Goal::AtLeast(50_000.0));
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite:{}", folder.path().join("bench.db").display());
    latency::in_process(&store, &Goal::AtMost(1.0)).await?;
    latency::across_processes(&store, &Goal::None, &Goal::AtMost(10.0)).await
}

const REMOVE: &str = "drop database if exists stargate_bench with (force)";

/// Makes the database `stargate_bench` anew; answers its URL.
pub(crate) async fn fresh_database(url: &str) -> Result<String> {
    let admin = raw::connect(url).await?;
    admin.batch_execute(REMOVE).await?;
    admin.batch_execute("create database stargate_bench").await?;
    Ok(database(url, "stargate_bench"))
}

/// Removes the last such database, and has everything written that the server has yet to write.
pub(crate) async fn remove_database(url: &str) -> Result<()> {
    let admin = raw::connect(url).await?;
    admin.batch_execute(REMOVE).await?;
    Ok(admin.batch_execute("checkpoint").await?)
}

/// The same URL with another database.
fn database(url: &str, name: &str) -> String {
    let (base, options) = url.split_once('?').map_or((url, None), |(base, options)| (base, Some(options)));
    let end =
        base.rfind('/').filter(|at| *at > base.find("://").map_or(0, |at| at + 2)).unwrap_or(base.len());
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    format!("{}/{name}{options}", &base[..end])
}
