//! The raw limit of Postgres: the smallest client that claims and deletes batches. No lease, no retry, no history,
//! no timeline: what is lost against it is what those cost.

use std::time::Instant;

use anyhow::Result;
use tokio_postgres::{Client, NoTls};

const SCHEMA: &str = "
    drop table if exists raw_job;
    create table raw_job (
        id bigint generated always as identity primary key,
        state smallint not null default 0,
        attempts smallint not null default 0,
        run_at timestamptz not null default now(),
        locked_at timestamptz,
        locked_by text,
        payload jsonb not null);
    create index raw_job_ready on raw_job (run_at, id) where state = 0";
const INSERT: &str = "insert into raw_job (payload) select p::jsonb from unnest($1::text[]) p";
const STEP: &str = "
    with gone as (delete from raw_job where id = any($2::bigint[])),
    taken as (
        update raw_job j set state = 1, attempts = j.attempts + 1, locked_at = now(), locked_by = 'raw'
        from (select id from raw_job where state = 0 and run_at <= now()
              order by run_at, id limit $1 for update skip locked) c
        where j.id = c.id returning j.id, j.payload::text as payload)
    select id, payload from taken";
/// Jobs in one claim, and connections that claim: what was fastest.
const BATCH: i64 = 500;
const CONNECTIONS: usize = 2;

pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    #[expect(clippy::disallowed_methods, reason = "ends with its client")]
    tokio::spawn(connection);
    Ok(client)
}

pub(crate) async fn insert(url: &str, jobs: usize) -> Result<f64> {
    let client = connect(url).await?;
    client.batch_execute(SCHEMA).await?;
    let insert = client.prepare(INSERT).await?;
    let began = Instant::now();
    for start in (0..jobs).step_by(1000) {
        let batch: Vec<String> = (start..jobs.min(start + 1000)).map(|id| format!("{{\"id\": {id}}}")).collect();
        client.execute(&insert, &[&batch]).await?;
    }
    Ok(jobs as f64 / began.elapsed().as_secs_f64())
}

pub(crate) async fn drain(url: &str, jobs: usize) -> Result<f64> {
    let began = Instant::now();
    let loops = (0..CONNECTIONS).map(|_| drain_loop(url));
    futures::future::try_join_all(loops).await?;
    Ok(jobs as f64 / began.elapsed().as_secs_f64())
}

async fn drain_loop(url: &str) -> Result<()> {
    let client = connect(url).await?;
    let step = client.prepare(STEP).await?;
    let mut done: Vec<i64> = Vec::new();
    loop {
        let rows = client.query(&step, &[&BATCH, &done]).await?;
        done.clear();
        for row in &rows {
            let payload: serde_json::Value = serde_json::from_str(row.get(1))?;
            std::hint::black_box(payload);
            done.push(row.get(0));
        }
        if done.is_empty() {
            return Ok(());
        }
    }
}
