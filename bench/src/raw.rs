//! The raw limit of Postgres: the smallest client that claims and deletes batches. No lease, no retry, no history,
//! no timeline: what is lost against it is what those cost.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::latency::{GAP, Starts, monotonic_ms};

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
/// One job, with the notification that a worker waits for.
const INSERT_ONE: &str =
    "with i as (insert into raw_job (payload) values ($1::text::jsonb)) select pg_notify('raw_jobs', '')";
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
        let batch: Vec<String> =
            (start..jobs.min(start + 1000)).map(|id| format!("{{\"id\": {id}}}")).collect();
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

/// Makes its table anew.
pub(crate) async fn prepare(url: &str) -> Result<()> {
    Ok(connect(url).await?.batch_execute(SCHEMA).await?)
}

/// Enqueues single jobs, each as soon as the one before is answered; answers jobs per second.
pub(crate) async fn enqueue_awaited(url: &str, warm_up: usize, jobs: usize) -> Result<f64> {
    let client = connect(url).await?;
    let insert = client.prepare(INSERT_ONE).await?;
    let one = async |id: usize| client.query(&insert, &[&format!("{{\"id\": {id}}}")]).await.map(drop);
    for id in 0..warm_up {
        one(id).await?;
    }
    let began = Instant::now();
    for id in 0..jobs {
        one(id).await?;
    }
    Ok(jobs as f64 / began.elapsed().as_secs_f64())
}

/// Enqueues single jobs some time apart, each with its notification.
pub(crate) async fn enqueue_singly(url: &str, jobs: usize) -> Result<Vec<(u64, f64)>> {
    let client = connect(url).await?;
    let insert = client.prepare(INSERT_ONE).await?;
    let mut returned = Vec::with_capacity(jobs);
    for id in 0..jobs as u64 {
        tokio::time::sleep(GAP).await;
        client.query(&insert, &[&format!("{{\"id\": {id}}}")]).await?;
        returned.push((id, monotonic_ms()));
    }
    Ok(returned)
}

/// An idle worker that claims when it is notified and deletes afterwards; runs until it is dropped.
pub(crate) async fn listen_and_claim(url: String, starts: Starts) -> Result<()> {
    let wake = Arc::new(Notify::new());
    let (listener, mut connection) = tokio_postgres::connect(&url, NoTls).await?;
    let ring = wake.clone();
    let driver = async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(_) = message {
                ring.notify_one();
            }
        }
    };
    let worker = async {
        listener.batch_execute("listen raw_jobs").await?;
        let client = connect(&url).await?;
        client.batch_execute("set synchronous_commit = off").await?;
        let claim = client.prepare(STEP).await?;
        let mut done: Vec<i64> = Vec::new();
        loop {
            let rows = client.query(&claim, &[&100_i64, &done]).await?;
            done.clear();
            for row in &rows {
                let payload: crate::noop::Payload = serde_json::from_str(row.get(1))?;
                starts
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .push((payload.id, monotonic_ms()));
                done.push(row.get(0));
            }
            if rows.is_empty() {
                wake.notified().await;
            }
        }
        #[expect(unreachable_code, reason = "tells the type of the error")]
        anyhow::Ok(())
    };
    tokio::select! {
        () = driver => anyhow::bail!("the listening connection ended"),
        ended = worker => ended,
    }
}
