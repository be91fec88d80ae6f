//! The soak: the same load for a long time, and what grows meanwhile.
//!
//! One node with its workers under a steady backlog. Sampled from outside: memory and open files of the process, connections and dead rows
//! of the database, the size of the hot table. A line is laid through each (least squares), and the first quarter is compared with the last.
//! `pinned` holds a transaction open for the whole run, as a forgotten session does: nothing that died since can be cleaned up then.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use stargate_testkit::cluster::Cluster;
use stargate_testkit::process::{Program, Running};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

use crate::evidence::Reader;
use crate::watch::size;

/// What to do.
#[derive(Debug, Clone)]
pub struct Soak {
    /// The program under test.
    pub binary: PathBuf,
    /// How long.
    pub time: Duration,
    /// On Postgres instead of SQLite.
    pub postgres: bool,
    /// Hold a transaction open all the time.
    pub pinned: bool,
}

/// Jobs that wait at any time.
const BACKLOG: i64 = 300;
const SAMPLES: u32 = 120;
/// Shorter runs are all warm-up and neighbours: their throughput is shown and not judged.
const JUDGED: Duration = Duration::from_secs(20 * 60);

/// One look.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    seconds: f64,
    /// KiB, open files, connections, dead rows, KiB of the hot table or of the log of SQLite, jobs done.
    values: [f64; 6],
}

const NAMES: [&str; 6] =
    ["memory, KiB", "open files", "connections", "dead rows", "hot table, KiB", "jobs done"];

struct Stage {
    program: Program,
    node: Running,
    cluster: Option<Cluster>,
    reader: Reader,
}

/// Runs it, prints the figures; whether all is flat.
pub async fn soak(options: &Soak) -> Result<bool> {
    let mut stage = open(options).await?;
    let pin = if options.pinned { Some(pin(&stage).await?) } else { None };
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    tasks.spawn(feed(stage.node.address().to_owned(), stage.reader.clone(), Arc::clone(&stop)));
    let (begin, every) = (Instant::now(), options.time / SAMPLES);
    let mut samples = Vec::new();
    while begin.elapsed() < options.time {
        tokio::time::sleep(every).await;
        anyhow::ensure!(stage.node.is_running(), "the node has ended:\n{}", stage.node.log());
        samples.push(sample(&stage, begin).await?);
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    drop(pin);
    stage.node.terminate();
    Ok(judge(options, &samples))
}

async fn open(options: &Soak) -> Result<Stage> {
    let cluster = options.postgres.then(|| tokio::task::block_in_place(Cluster::start));
    let mut program = Program::new(&options.binary).with("LOAD_THRESHOLD", "1000");
    if let Some(cluster) = &cluster {
        program = program.with("STARGATE_STORE", cluster.url());
    }
    std::fs::write(
        program.home().join("stargate.toml"),
        "[kinds.noop]\nexec = [\"true\"]\ntimeline = \"states\"\n",
    )
    .context("a configuration")?;
    let mut node = program.start(&["up"]);
    node.ready().await;
    let reader = match &cluster {
        Some(cluster) => Reader::Postgres(cluster.url()),
        None => Reader::Sqlite(program.home().join("stargate.db")),
    };
    Ok(Stage { program, node, cluster, reader })
}

/// A session that has begun to read and never ends.
async fn pin(stage: &Stage) -> Result<Box<dyn std::any::Any>> {
    const LOOK: &str = "begin isolation level repeatable read; select count(*) from stargate.job";
    match &stage.cluster {
        Some(cluster) => {
            let (client, connection) = tokio_postgres::connect(&cluster.url(), NoTls).await?;
            let mut tasks = JoinSet::new();
            tasks.spawn(connection);
            client.batch_execute(LOOK).await?;
            Ok(Box::new((client, tasks)))
        }
        None => {
            let connection = rusqlite::Connection::open(stage.program.home().join("stargate.db"))?;
            connection.execute_batch("begin; select count(*) from job")?;
            Ok(Box::new(connection))
        }
    }
}

/// Keeps the backlog as deep as it is.
async fn feed(address: String, reader: Reader, stop: Arc<AtomicBool>) -> Result<()> {
    let client = reqwest::Client::builder().timeout(Duration::from_secs(30)).build()?;
    while !stop.load(Ordering::Relaxed) {
        let waiting = reader.number("select count(*) from @job").await?;
        let count = BACKLOG - waiting;
        if count > 0 {
            let jobs: Vec<_> = (0..count).map(|n| json!({ "kind": "noop", "payload": { "n": n } })).collect();
            let request =
                client.post(format!("http://{address}/api/v1/jobs/batch")).json(&json!({ "jobs": jobs }));
            let status = request.send().await.context("cannot enqueue")?.status();
            if !status.is_success() {
                bail!("an enqueue was answered {status}");
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn sample(stage: &Stage, begin: Instant) -> Result<Sample> {
    let (memory, files) = size(stage.node.id())?;
    let done = stage.reader.number("select count(*) from @job_history").await?;
    let (connections, dead, table) = if stage.cluster.is_some() {
        let dead = "select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_user_tables where schemaname = 'stargate'";
        (
            stage.reader.number("select count(*) from pg_stat_activity where usename is not null").await?,
            stage.reader.number(dead).await?,
            stage.reader.number("select pg_total_relation_size('stargate.job') / 1024").await?,
        )
    } else {
        let wal =
            std::fs::metadata(stage.program.home().join("stargate.db-wal")).map_or(0, |data| data.len());
        (0, 0, i64::try_from(wal / 1024)?)
    };
    let values = [memory as f64, files as f64, connections as f64, dead as f64, table as f64, done as f64];
    Ok(Sample { seconds: begin.elapsed().as_secs_f64(), values })
}

/// The slope of the line through the points, per hour.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (mean_x, mean_y) =
        (points.iter().map(|p| p.0).sum::<f64>() / count, points.iter().map(|p| p.1).sum::<f64>() / count);
    let above: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    let below: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    if below == 0.0 { 0.0 } else { above / below * 3600.0 }
}

fn mean(samples: &[Sample], at: usize) -> f64 {
    samples.iter().map(|sample| sample.values[at]).sum::<f64>() / samples.len().max(1) as f64
}

/// Jobs done in a second, from the first of these samples to the last.
fn rate(samples: &[Sample]) -> f64 {
    match (samples.first(), samples.last()) {
        (Some(first), Some(last)) if last.seconds > first.seconds => {
            (last.values[5] - first.values[5]) / (last.seconds - first.seconds)
        }
        _ => 0.0,
    }
}

fn judge(options: &Soak, samples: &[Sample]) -> bool {
    let quarter = (samples.len() / 4).max(1);
    // What a process needs once, it needs in the first quarter.
    let (first, last) = (&samples[..quarter], &samples[samples.len() - quarter..]);
    let store = if options.postgres { "Postgres" } else { "SQLite" };
    let pinned = if options.pinned { ", a transaction held open" } else { "" };
    println!("{store}{pinned}, {:.0} s, {} looks", options.time.as_secs_f64(), samples.len());
    println!("{:18}{:>16}{:>16}{:>16}", "", "first quarter", "last quarter", "slope per hour");
    for (at, name) in NAMES.iter().enumerate().take(5) {
        let points: Vec<(f64, f64)> = samples[quarter..].iter().map(|s| (s.seconds, s.values[at])).collect();
        println!("{name:18}{:16.0}{:16.0}{:16.1}", mean(first, at), mean(last, at), slope(&points));
    }
    let (before, after) = (rate(first), rate(last));
    println!("{:18}{before:16.1}{after:16.1}{:>15.0}%", "jobs a second", after / before * 100.0);
    let least = if options.pinned { 0.90 } else { 0.97 };
    let checks = [
        ("memory is flat", mean(last, 0) <= mean(first, 0) * 1.1 + 8192.0),
        ("no more open files", mean(last, 1) <= mean(first, 1) + 8.0),
        ("no more connections", mean(last, 2) <= mean(first, 2) + 4.0),
        ("throughput is kept", options.time < JUDGED || after >= before * least),
    ];
    for (name, kept) in checks {
        println!("{name:22}{}", if kept { "yes" } else { "NO" });
    }
    checks.iter().all(|(_, kept)| *kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_that_of_the_line() {
        let rising: Vec<(f64, f64)> = (0..10).map(|n| (f64::from(n) * 36.0, f64::from(n))).collect();
        assert!((slope(&rising) - 100.0).abs() < 1e-9);
        assert!(slope(&[(0.0, 5.0), (1.0, 5.0)]).abs() < 1e-9);
    }

    #[test]
    fn what_grows_is_found() {
        let options = Soak { binary: PathBuf::new(), time: JUDGED, postgres: true, pinned: false };
        let look = |n: u32, files: f64, done: f64| Sample {
            seconds: f64::from(n),
            values: [1e5, files, 5.0, 0.0, 0.0, done],
        };
        let flat: Vec<Sample> = (0..100).map(|n| look(n, 20.0, f64::from(n) * 50.0)).collect();
        assert!(judge(&options, &flat));
        let leak: Vec<Sample> = (0..100).map(|n| look(n, f64::from(n), f64::from(n) * 50.0)).collect();
        assert!(!judge(&options, &leak));
        let slower: Vec<Sample> = (0..100).map(|n| look(n, 20.0, f64::from(n).sqrt() * 50.0)).collect();
        assert!(!judge(&options, &slower));
    }
}
