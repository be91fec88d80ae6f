//! `stargate bench queue`: how fast the queue is on this machine, through the real engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use comfy_table::{Cell, CellAlignment};
use serde::Serialize;
use stargate_base::Tasks;
use stargate_queue::handler::{Failure as HandlerFailure, Registry};
use stargate_queue::kind::{Detail, Profile};
use stargate_queue::pool::{Pool, PoolConfig};
use stargate_queue::pressure::PressureConfig;
use stargate_queue::store::{JobFilter, PauseTarget};
use stargate_queue::{NewJob, SharedStore, State};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::assemble::{self, Migrate};
use crate::config::layer::Environment;
use crate::config::{self, Flags};
use crate::failure::{Failure, Result};
use crate::output;
use crate::run::App;

/// Kind and queue of the benchmark, so that it disturbs nobody.
const KIND: &str = "bench:noop";
/// Longer means that something is wrong.
const DEADLINE: Duration = Duration::from_secs(600);

/// `bench …`
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Enqueue and run jobs that do nothing
    Queue(Queue),
}

/// `bench queue`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate bench queue                                    SQLite in a temporary directory
  stargate bench queue --store postgres://db/app -n 100000

A build with --release is worth measuring; others are not. On a given store it uses a queue and kind of its own,
bench:noop, and leaves finished jobs of that kind behind.")]
pub(crate) struct Queue {
    /// Jobs to enqueue and run
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    jobs: u32,
    /// Jobs in one enqueue
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Handlers at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: u32,
    /// Single jobs for measuring the latency
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,
}

#[derive(Debug, Serialize)]
struct Report {
    store: &'static str,
    build: &'static str,
    jobs: u32,
    batch: u32,
    workers: u32,
    enqueue_per_second: f64,
    drain_per_second: f64,
    latency_samples: usize,
    latency_p50_ms: f64,
    latency_p90_ms: f64,
    latency_p99_ms: f64,
    latency_max_ms: f64,
}

impl BenchCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let Self::Queue(queue) = self;
        // Without a store of its own it must not fill the user's.
        let given =
            app.settings.shown.iter().any(|s| s.key == "store" && s.origin != config::layer::Origin::Default);
        let scratch = tempfile::Builder::new().prefix("stargate-bench-").tempdir();
        let scratch = scratch.map_err(|error| Failure::io("cannot make a temporary directory", &error))?;
        let store = if given {
            assemble::open(&app.settings, Migrate::No).await?
        } else {
            let flags = Flags { home: Some(scratch.path().to_owned()), ..Flags::default() };
            assemble::open(&config::load(flags, &Environment::default())?, Migrate::Yes).await?
        };
        let report = queue.measure(store, app).await?;
        if app.out.json {
            app.out.json(&report);
        } else {
            print(&report, app);
        }
        Ok(())
    }
}

/// What handlers tell: how many have run, and when the last one started.
#[derive(Debug, Default)]
struct Probe {
    ran: AtomicU64,
}

impl Queue {
    async fn measure(&self, store: SharedStore, app: &App) -> Result<Report> {
        let probe = Arc::new(Probe::default());
        let (started, mut starts) = mpsc::unbounded_channel::<Instant>();
        let mut registry = Registry::new();
        let profile = Profile { timeline: Detail::States, ..Profile::default() };
        let counter = Arc::clone(&probe);
        registry.handle(KIND, profile, move |_context, sample: bool| {
            let now = Instant::now();
            counter.ran.fetch_add(1, Ordering::Relaxed);
            if sample {
                let _ = started.send(now);
            }
            std::future::ready(Ok::<(), HandlerFailure>(()))
        })?;
        store.kinds_register(registry.specs()).await?;

        app.out.note(output::dim(format!(
            "enqueueing {} jobs in batches of {} …",
            output::grouped(self.jobs.into()),
            self.batch
        )));
        let target = PauseTarget::Queue(KIND.to_owned());
        store.pause(target.clone()).await?;
        let enqueueing = self.enqueue(&store).await?;
        store.resume(target).await?;

        app.out.note(output::dim("running them …"));
        let tasks = Tasks::new();
        let stop = CancellationToken::new();
        let pool = Pool::start(Arc::clone(&store), registry, self.pool_config()).await?;
        let begun = Instant::now();
        tasks.spawn(pool.run(stop.clone()));
        let draining = drained(&store, &probe, u64::from(self.jobs), begun).await;

        app.out.note(output::dim(format!("measuring the latency of {} single jobs …", self.samples)));
        let latencies = match &draining {
            Ok(_) => self.latencies(&store, &mut starts).await,
            Err(_) => Ok(Vec::new()),
        };
        stop.cancel();
        tasks.join().await;
        Ok(self.report(&store, enqueueing, draining?, latencies?))
    }

    fn pool_config(&self) -> PoolConfig {
        let concurrency = usize::try_from(self.workers).unwrap_or(32);
        // The benchmark loads the machine on purpose, and pressure must not slow it down. By the load and not by the depth: that would
        // have to be counted, all of it, before each claim.
        let pressure = PressureConfig { load_threshold: f64::MAX, ..PressureConfig::default() };
        PoolConfig { concurrency, queues: vec![KIND.to_owned()], pressure, ..PoolConfig::default() }
    }

    async fn enqueue(&self, store: &SharedStore) -> Result<Duration> {
        let begun = Instant::now();
        let mut left = self.jobs;
        while left > 0 {
            let size = left.min(self.batch);
            let jobs = (0..size).map(|_| job(false)).collect::<Result<Vec<_>>>()?;
            store.enqueue(jobs).await?;
            left -= size;
        }
        Ok(begun.elapsed())
    }

    async fn latencies(
        &self,
        store: &SharedStore,
        starts: &mut mpsc::UnboundedReceiver<Instant>,
    ) -> Result<Vec<Duration>> {
        let mut latencies = Vec::new();
        for _ in 0..self.samples {
            let begun = Instant::now();
            store.enqueue(vec![job(true)?]).await?;
            let started = tokio::time::timeout(Duration::from_secs(30), starts.recv()).await;
            let Ok(Some(started)) = started else {
                return Err(
                    Failure::failed("BENCH_STUCK", "a job did not start within 30 s").help("stargate doctor")
                );
            };
            latencies.push(started.saturating_duration_since(begun));
        }
        latencies.sort();
        Ok(latencies)
    }

    fn report(
        &self,
        store: &SharedStore,
        enqueueing: Duration,
        draining: Duration,
        latencies: Vec<Duration>,
    ) -> Report {
        let per_second = |time: Duration| f64::from(self.jobs) / time.as_secs_f64().max(1e-9);
        let percentile = |percent: usize| {
            let index = (latencies.len() * percent / 100).min(latencies.len().saturating_sub(1));
            latencies.get(index).map_or(0.0, |latency| latency.as_secs_f64() * 1000.0)
        };
        Report {
            store: store.facts().name,
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            jobs: self.jobs,
            batch: self.batch,
            workers: self.workers,
            enqueue_per_second: per_second(enqueueing),
            drain_per_second: per_second(draining),
            latency_samples: latencies.len(),
            latency_p50_ms: percentile(50),
            latency_p90_ms: percentile(90),
            latency_p99_ms: percentile(99),
            latency_max_ms: percentile(100),
        }
    }
}

fn job(sample: bool) -> Result<NewJob> {
    Ok(NewJob { queue: KIND.to_owned(), ..NewJob::of(KIND, &sample)? })
}

/// Waits until all jobs have run and are recorded.
async fn drained(store: &SharedStore, probe: &Probe, jobs: u64, begun: Instant) -> Result<Duration> {
    loop {
        if probe.ran.load(Ordering::Relaxed) >= jobs {
            // Counts may be of a while ago.
            let open = JobFilter {
                queue: Some(KIND.to_owned()),
                states: vec![State::Queued, State::Processing],
                limit: 1,
                ..JobFilter::default()
            };
            if store.jobs(open).await?.is_empty() {
                return Ok(begun.elapsed());
            }
        }
        if begun.elapsed() > DEADLINE {
            return Err(
                Failure::failed("BENCH_STUCK", "the jobs did not end within 10 min").help("stargate doctor")
            );
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are far below 2^53 and not negative"
)]
fn print(report: &Report, app: &App) {
    let mut table = output::table(&["measure", "value", ""]);
    let mut row = |name: &str, value: String, unit: &str| {
        table.add_row(vec![
            Cell::new(name),
            Cell::new(value).set_alignment(CellAlignment::Right),
            Cell::new(unit),
        ]);
    };
    row("enqueue, batched", output::grouped(report.enqueue_per_second as u64), "jobs/s");
    row("run to recorded end", output::grouped(report.drain_per_second as u64), "jobs/s");
    row("enqueue to start, half of all", format!("{:.2}", report.latency_p50_ms), "ms");
    row("enqueue to start, 90 %", format!("{:.2}", report.latency_p90_ms), "ms");
    row("enqueue to start, 99 %", format!("{:.2}", report.latency_p99_ms), "ms");
    row("enqueue to start, slowest", format!("{:.2}", report.latency_max_ms), "ms");
    app.out.table(&table, "nothing measured");
    app.out.note(output::dim(format!(
        "{} jobs, batches of {}, {} workers, {} store, {} build",
        output::grouped(report.jobs.into()),
        report.batch,
        report.workers,
        report.store,
        report.build
    )));
    if report.build == "debug" {
        app.out.note("this is a debug build; measure with cargo run --release -- bench queue");
    }
}
