//! The soak: the same load for a long time, and what grows meanwhile.
//!
//! One node with its workers under a steady load. Sampled from outside: memory and open files of the process, connections and
//! dead rows of the database, the size of the hot table and of the whole store, and the processor time that a job costs. A line is
//! laid through each (least squares), and the first quarter is compared with the last. What is done is purged after a while, as on
//! any installation, so that the history comes to an end of its growth, too; the looks begin when there is something to purge.
//! `pinned` holds a transaction open for the whole run, as a forgotten session does: nothing that died since can be cleaned up then.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
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
    /// Jobs a second; without it as many as are done, which is only comparable on a machine with nothing else to do.
    pub rate: Option<u32>,
}

/// Jobs that wait at any time, where no rate is given.
const BACKLOG: i64 = 300;
const FEED_EVERY: Duration = Duration::from_millis(100);
const SAMPLES: u32 = 120;
/// Shorter runs are all warm-up and neighbours: their throughput is shown and not judged.
const JUDGED: Duration = Duration::from_secs(20 * 60);
/// Dead rows that a database may have before it cleans up, whatever the load.
const DEAD_ROWS: f64 = 20_000.0;
/// What the memory of the node may rise in an hour, in KiB: what an allocator keeps differs by as much from run to run.
const MEMORY_RISE_MAX: f64 = 2048.0;

/// The unit of processor time in /proc, on every machine that Linux runs on today.
const TICK_MS: f64 = 10.0;

/// Programs that are started for a measure of the machine: as many jobs do the same, and little else of theirs depends on it.
const MEASURE: u32 = 300;

/// One look. Jobs done and processor milliseconds count from the beginning.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    seconds: f64,
    levels: [f64; 6],
    done: f64,
    processor_ms: f64,
    /// What the machine needs for the same work now, in processor milliseconds: others on it make it slower.
    measure_ms: f64,
}

const MEMORY: usize = 0;
const FILES: usize = 1;
const CONNECTIONS: usize = 2;
const DEAD: usize = 3;
const HOT: usize = 4;
const STORE: usize = 5;
const NAMES: [&str; 6] =
    ["memory, KiB", "open files", "connections", "dead rows", "hot table or WAL, KiB", "store, KiB"];

struct Stage {
    program: Program,
    node: Running,
    cluster: Option<Cluster>,
    reader: Reader,
    fed: Arc<AtomicI64>,
    purged: i64,
}

/// Runs it, prints the figures; whether all is flat.
pub async fn soak(options: &Soak) -> Result<bool> {
    let mut stage = open(options).await?;
    let pin = if options.pinned { Some(pin(&stage).await?) } else { None };
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    let address = stage.node.address().to_owned();
    tasks.spawn(feed(address, options.rate, Arc::clone(&stage.fed), Arc::clone(&stop)));
    let mut samples = Vec::new();
    let retention = options.time / 12;
    let looked_at = options.time - retention;
    let every = looked_at / SAMPLES;
    // Before there is something to purge a job is cheaper than it will ever be again.
    tokio::time::sleep(retention).await;
    let begin = Instant::now();
    let mut purged = begin;
    while begin.elapsed() < looked_at {
        tokio::time::sleep(every).await;
        ensure!(stage.node.is_running(), "the node has ended:\n{}", stage.node.log());
        let look = sample(&stage, begin).await?;
        println!(
            "{:8.0} s {:12.0} done {:12.0} ms of processor time; {:.0?}; {:.0} ms for a measure",
            look.seconds, look.done, look.processor_ms, look.levels, look.measure_ms
        );
        samples.push(look);
        if purged.elapsed() > retention / 4 {
            purged = Instant::now();
            stage.purged += purge(&stage, retention)?;
        }
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    drop(pin);
    let missing = missing(&stage).await?;
    stage.node.terminate();
    println!("{missing} jobs are missing");
    Ok(judge(options, &samples) && missing == 0)
}

/// Jobs that were accepted and neither wait, nor have ended, nor were purged.
async fn missing(stage: &Stage) -> Result<i64> {
    let there = "select (select count(*) from @job) + (select count(*) from @job_history)";
    Ok(stage.fed.load(Ordering::Relaxed) - stage.purged - stage.reader.number(there).await?)
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
    Ok(Stage { program, node, cluster, reader, fed: Arc::default(), purged: 0 })
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

/// What an operator's schedule does; how many jobs it removed.
fn purge(stage: &Stage, retention: Duration) -> Result<i64> {
    let age = format!("{}ms", retention.as_millis());
    let purge = ["purge", "--done-older-than", &age, "--json"];
    let output = tokio::task::block_in_place(|| stage.program.run(&purge));
    ensure!(output.status.success(), "cannot purge: {}", String::from_utf8_lossy(&output.stderr));
    let removed: serde_json::Value = serde_json::from_slice(&output.stdout).context("not a report")?;
    removed["done"].as_i64().context("a report without a number")
}

/// Starts programs that do nothing; the processor time that took.
fn measure_ms() -> Result<f64> {
    tokio::task::block_in_place(|| {
        let before = processor_ms(std::process::id(), true);
        for _ in 0..MEASURE {
            crate::site::run("true", &[])?;
        }
        Ok(processor_ms(std::process::id(), true) - before)
    })
}

/// Enqueues at the given rate, or keeps the backlog as deep as it is.
async fn feed(address: String, rate: Option<u32>, fed: Arc<AtomicI64>, stop: Arc<AtomicBool>) -> Result<()> {
    let client = reqwest::Client::builder().timeout(Duration::from_secs(30)).build()?;
    let begin = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let wanted = match rate {
            Some(rate) => (begin.elapsed().as_secs_f64() * f64::from(rate)) as i64,
            None => BACKLOG + processed(&client, &address).await?,
        };
        let count = wanted - fed.load(Ordering::Relaxed);
        if count > 0 {
            let count = count.min(1000);
            let jobs: Vec<_> = (0..count).map(|n| json!({ "kind": "noop", "payload": { "n": n } })).collect();
            let request =
                client.post(format!("http://{address}/api/v1/jobs/batch")).json(&json!({ "jobs": jobs }));
            let status = request.send().await.context("cannot enqueue")?.status();
            if !status.is_success() {
                bail!("an enqueue was answered {status}");
            }
            fed.fetch_add(count, Ordering::Relaxed);
        }
        tokio::time::sleep(FEED_EVERY).await;
    }
    Ok(())
}

/// Jobs that the node has run, as it says itself: counting those that wait would walk past all the dead ten times a second.
async fn processed(client: &reqwest::Client, address: &str) -> Result<i64> {
    let metrics =
        client.get(format!("http://{address}/metrics")).send().await?.error_for_status()?.text().await?;
    let lines = metrics.lines().filter(|line| line.starts_with("worker_jobs_processed_total"));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum::<f64>() as i64)
}

async fn sample(stage: &Stage, begin: Instant) -> Result<Sample> {
    let (memory, files) = size(stage.node.id())?;
    let done = stage.fed.load(Ordering::Relaxed) - stage.reader.number("select count(*) from @job").await?;
    let [connections, dead, hot, store] = match &stage.cluster {
        Some(_) => on_server(&stage.reader).await?,
        None => in_files(&stage.program)?,
    };
    let mut processor_ms = processor_ms(stage.node.id(), false);
    if let Some(server) = stage.cluster.as_ref().and_then(Cluster::id) {
        processor_ms += server_processor_ms(server);
    }
    let measure_ms = measure_ms()?;
    let levels = [memory as f64, files as f64, connections as f64, dead as f64, hot as f64, store as f64];
    let seconds = begin.elapsed().as_secs_f64();
    Ok(Sample { seconds, levels, done: done as f64, processor_ms, measure_ms })
}

async fn on_server(reader: &Reader) -> Result<[i64; 4]> {
    let dead =
        "select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_user_tables where schemaname = 'stargate'";
    Ok([
        reader.number("select count(*) from pg_stat_activity where usename is not null").await?,
        reader.number(dead).await?,
        reader.number("select pg_total_relation_size('stargate.job') / 1024").await?,
        reader.number("select pg_database_size(current_database()) / 1024").await?,
    ])
}

fn in_files(program: &Program) -> Result<[i64; 4]> {
    let kib = |name: &str| {
        let length = std::fs::metadata(program.home().join(name)).map_or(0, |data| data.len());
        i64::try_from(length / 1024)
    };
    let (log, data) = (kib("stargate.db-wal")?, kib("stargate.db")?);
    Ok([0, 0, log, log + data])
}

/// The processor time of a process so far; with that of the children it has waited for, if wanted.
fn processor_ms(id: u32, children: bool) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name, in brackets, may have spaces in it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let own = ticks(11) + ticks(12);
    let all = if children { own + ticks(13) + ticks(14) } else { own };
    all * TICK_MS
}

/// The server, its sessions, and those that have ended.
fn server_processor_ms(id: u32) -> f64 {
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let sessions = children.split_ascii_whitespace().filter_map(|id| id.parse().ok());
    processor_ms(id, true) + sessions.map(|id| processor_ms(id, false)).sum::<f64>()
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
    samples.iter().map(|sample| sample.levels[at]).sum::<f64>() / samples.len().max(1) as f64
}

/// What was gained of one thing for each of another, from the first of these samples to the last.
fn rate(samples: &[Sample], of: fn(&Sample) -> f64, per: fn(&Sample) -> f64) -> f64 {
    match (samples.first(), samples.last()) {
        (Some(first), Some(last)) if per(last) > per(first) => {
            (of(last) - of(first)) / (per(last) - per(first))
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
    let pace =
        options.rate.map_or_else(|| "a full backlog".to_owned(), |rate| format!("{rate} jobs a second"));
    println!("{store}{pinned}, {pace}, {:.0} s, {} looks", options.time.as_secs_f64(), samples.len());
    println!("{:24}{:>16}{:>16}{:>16}", "", "first quarter", "last quarter", "slope per hour");
    let rise = |at: usize| {
        let points: Vec<(f64, f64)> = samples[quarter..].iter().map(|s| (s.seconds, s.levels[at])).collect();
        slope(&points)
    };
    for (at, name) in NAMES.iter().enumerate() {
        println!("{name:24}{:16.0}{:16.0}{:16.1}", mean(first, at), mean(last, at), rise(at));
    }
    let [speed, economy] = [|s: &Sample| s.seconds, |s: &Sample| s.processor_ms / 1000.0]
        .map(|per| (rate(first, |s| s.done, per), rate(last, |s| s.done, per)));
    for (name, (before, after)) in [("jobs a second", speed), ("jobs a processor second", economy)] {
        println!("{name:24}{before:16.1}{after:16.1}{:>15.1}%", after / before * 100.0);
    }
    // Told and not judged: what neighbours do to the machine.
    let measure = |samples: &[Sample]| {
        samples.iter().map(|sample| sample.measure_ms).sum::<f64>() / samples.len().max(1) as f64
    };
    let (before, after) = (measure(first), measure(last));
    println!("{:24}{before:16.1}{after:16.1}{:>15.1}%", "ms for a measure", after / before * 100.0);
    let least = if options.pinned { 0.90 } else { 0.97 };
    let judged = options.time >= JUDGED;
    let grown = |at: usize, factor: f64, slack: f64| mean(last, at) > mean(first, at) * factor + slack;
    let checks = [
        ("memory is flat", !grown(MEMORY, 1.1, 8192.0) && (!judged || rise(MEMORY) <= MEMORY_RISE_MAX)),
        ("no more open files", !grown(FILES, 1.0, 8.0)),
        ("no more connections", !grown(CONNECTIONS, 1.0, 4.0)),
        // Held open, a transaction keeps the dead where they are: that is what it is for.
        ("dead rows are bounded", options.pinned || !grown(DEAD, 1.5, DEAD_ROWS)),
        ("the hot table is bounded", options.pinned || !judged || !grown(HOT, 1.5, 16_384.0)),
        ("the store is bounded", options.pinned || !judged || !grown(STORE, 1.5, 65_536.0)),
        ("throughput is kept", !judged || speed.1 >= speed.0 * least),
        ("a job costs no more", !judged || economy.1 >= economy.0 * least),
    ];
    for (name, kept) in checks {
        println!("{name:26}{}", if kept { "yes" } else { "NO" });
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
        let options =
            Soak { binary: PathBuf::new(), time: JUDGED, postgres: true, pinned: false, rate: None };
        let run = |look: &dyn Fn(f64) -> Sample| {
            judge(&options, &(0..100).map(|n| look(f64::from(n))).collect::<Vec<Sample>>())
        };
        let flat = |n: f64| Sample {
            seconds: n,
            levels: [1e5, 20.0, 5.0, 0.0, 0.0, 0.0],
            done: n * 50.0,
            processor_ms: n * 100.0,
            measure_ms: 1.0,
        };
        assert!(run(&flat));
        assert!(!run(&|n| Sample { levels: [1e5, n, 5.0, 0.0, 0.0, 0.0], ..flat(n) }));
        let rising = |an_hour: f64| {
            run(&|n| Sample { levels: [1e5 + n / 3600.0 * an_hour, 20.0, 5.0, 0.0, 0.0, 0.0], ..flat(n) })
        };
        assert!(rising(1024.0) && !rising(4096.0));
        assert!(!run(&|n| Sample { levels: [1e5, 20.0, 5.0, n * 1e3, 0.0, 0.0], ..flat(n) }));
        assert!(!run(&|n| Sample { done: n.sqrt() * 50.0, ..flat(n) }));
        assert!(!run(&|n| Sample { processor_ms: n * n, ..flat(n) }));
    }

    #[test]
    fn a_process_takes_processor_time() {
        let before = processor_ms(std::process::id(), false);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(20) && processor_ms(std::process::id(), false) <= before {
        }
        assert!(processor_ms(std::process::id(), false) > before);
    }
}
