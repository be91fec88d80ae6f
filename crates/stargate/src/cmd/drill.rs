//! `stargate drill …`: a failure on purpose, how long recovery took, and whether the promises were kept.
//!
//! `kill-worker` and `partition` take place on a queue of their own in the user's store. Their workers are processes that
//! serve nothing but that queue, so nobody else's work is touched. `disk-full` takes place beside the installation, in a
//! home of its own on SQLite: nobody wants the disk of the real one filled.
//!
//! What becomes of the jobs is read from the store and from a file that the jobs write; what was promised stands beside it.

mod disk;
mod evidence;
mod stage;

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;

use crate::config::interval;
use crate::failure::{Failure, Result};
use crate::output;
use crate::run::App;
use evidence::WrongEnd;
use stage::Stage;

/// A lost job is taken over no later than this after the lease ran out.
const TAKEOVER_MAX: Duration = Duration::from_secs(2);
/// How long after the lease a drill waits for that, to tell how late it was.
const TAKEOVER_PATIENCE: Duration = Duration::from_secs(30);
/// How long everything may take, beside three leases.
const DONE_PATIENCE: Duration = Duration::from_secs(60);

/// `drill …`
#[derive(Debug, Subcommand)]
pub(crate) enum DrillCommand {
    /// Kill a worker in mid-job (SIGKILL): another one must take its jobs over in time, and none may be lost
    #[command(after_help = KILL_WORKER)]
    KillWorker(Trial),
    /// Stop a worker in mid-job (SIGSTOP) until its lease is taken, then let it go on: what it says late must change nothing
    #[command(after_help = PARTITION)]
    Partition(Trial),
    /// Fill the disk of a throw-away installation: enqueueing must be refused by name, and what was accepted must be done later
    #[command(after_help = DISK_FULL)]
    DiskFull(disk::DiskFull),
}

/// Each paragraph is one line: the terminal's width decides where it is broken.
macro_rules! trial_help {
    ($what:literal, $examples:literal) => {
        concat!(
            $what,
            "\n\nPlace: the store that is configured, on a queue of the drill's own (drill:NUMBER) with two workers of \
             its own on this machine. Other jobs and workers are not touched. What is unfinished at the end is \
             cancelled; finished jobs stay in the history until a purge removes them.\n\n\
             Checked: every accepted job is done; each has one end, told by the attempt that held the job and had \
             finished its work; jobs of the lost worker are taken over within the lease and 2 s. Exits 1 if not.\n\n\
             Examples:\n",
            $examples
        )
    };
}

const KILL_WORKER: &str = trial_help!(
    "One of two workers is killed as soon as it runs jobs, as by a crash or by the system when memory is short. It \
     does not come back.",
    "  stargate drill kill-worker\n  stargate drill kill-worker --lease 5s --jobs 40 --json"
);

const PARTITION: &str = trial_help!(
    "One of two workers is stopped as soon as it runs jobs. It stays silent, as a worker that is cut off from the \
     store; no network is touched. Meanwhile the programs of its jobs go on and finish. When another worker may have \
     the jobs, it is let go on, finds its lease taken, and reports what it believes to have done.",
    "  stargate drill partition\n  stargate drill partition --store postgres://db/app --lease 5s --json"
);

const DISK_FULL: &str = "\
Place: a home of the drill's own, with an SQLite store and one worker, on a disk of 8 MB in memory that vanishes with \
it. Your installation and its store are not touched, and its settings are not looked at: to fill that disk would be the \
accident itself.

Checked: the enqueue that does not fit is refused because the disk is full; when there is room again, every accepted \
job is done. Exits 1 if not.

Needs unshare(1) and mount(8), hence root or a machine that lets users have mounts of their own.";

/// `drill kill-worker`, `drill partition`
#[derive(Debug, Args)]
pub(crate) struct Trial {
    /// Jobs to run, of one second each
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(2..=1000))]
    jobs: u32,
    /// The lease of the drill's workers, at least 1s [default: worker.lease]
    #[arg(long, value_name = "TIME", value_parser = interval::parse)]
    lease: Option<Duration>,
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Report {
    drill: &'static str,
    store: String,
    queue: String,
    lease_ms: u64,
    /// Jobs that were acknowledged.
    accepted: usize,
    /// Jobs that the worker held when it was hit.
    held: usize,
    /// Acknowledged and not done in the end.
    lost: usize,
    /// Jobs that are done, but not by one end of an attempt that held them and finished its work.
    wrong_ends: Vec<WrongEnd>,
    /// Executions beyond one a job: handlers run at least once.
    repeated: usize,
    /// From the hit until the last of the held jobs was free for others, by the store's clock.
    taken_over_ms: Option<u64>,
    promised_ms: u64,
    /// From the hit until everything was done, or until nobody waited for it any longer.
    done_ms: u64,
    kept: bool,
}

/// What is done to the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hit {
    Kill,
    Stop,
}

impl DrillCommand {
    /// Runs the drill.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        match self {
            Self::KillWorker(trial) => trial.run(app, Hit::Kill).await,
            Self::Partition(trial) => trial.run(app, Hit::Stop).await,
            Self::DiskFull(disk) => disk.run(app).await,
        }
    }
}

impl Trial {
    async fn run(&self, app: &App, hit: Hit) -> Result<()> {
        let lease = self.lease.unwrap_or(app.settings.worker.lease).max(Duration::from_secs(1));
        let mut stage = Stage::open(app, lease).await?;
        app.out.note(format!(
            "{} on {}: lease {}, two workers of its own",
            stage.queue,
            app.settings.store,
            output::short(lease)
        ));
        let played = self.play(app, &mut stage, hit, lease).await;
        let closed = stage.close().await;
        let report = played?;
        closed?;
        print(app, &report);
        if report.kept {
            return Ok(());
        }
        let message = format!("the promise was not kept: {}", broken(&report).join("; "));
        Err(Failure::failed("DRILL_FAILED", message).help("'stargate doctor' looks for causes"))
    }

    async fn play(&self, app: &App, stage: &mut Stage, hit: Hit, lease: Duration) -> Result<Report> {
        let store = stage.store.clone();
        let ids = stage.enqueue(self.jobs).await?;
        stage.until_victim_holds().await?;
        match hit {
            Hit::Kill => stage.kill_victim().await?,
            Hit::Stop => stage.stop_victim().await?,
        }
        let struck = store.now().await?;
        let held = stage.held_by_victim().await?;
        app.out.note(format!("{} with {} jobs in its hands", hit.as_done(), held.len()));
        if hit == Hit::Stop {
            // Not before: a worker that comes back in time keeps its lease.
            stage.until_taken_over(&held, lease + TAKEOVER_PATIENCE).await?;
            stage.wake_victim()?;
        }
        let first_ends = stage.until_done(&ids, lease * 3 + DONE_PATIENCE).await?;
        let done = store.now().await?;
        // Whatever a worker still has to say is said when it has ended.
        stage.end_workers().await;
        let effects = stage.effects()?;
        let taken_over = stage.taken_over(&held).await?.into_iter().flatten().max();
        let mut report = Report {
            drill: hit.as_command(),
            store: app.settings.store.to_string(),
            queue: stage.queue.clone(),
            lease_ms: milliseconds(lease),
            accepted: ids.len(),
            held: held.len(),
            lost: ids.len() - first_ends.len(),
            wrong_ends: evidence::wrong_ends(&first_ends, &stage.ends(&ids).await?, &effects),
            repeated: effects.repeated(),
            taken_over_ms: taken_over.map(|at| milliseconds_between(struck, at)),
            promised_ms: milliseconds(lease + TAKEOVER_MAX),
            done_ms: milliseconds_between(struck, done),
            kept: false,
        };
        report.kept = broken(&report).is_empty();
        Ok(report)
    }
}

impl Hit {
    fn as_command(self) -> &'static str {
        match self {
            Self::Kill => "kill-worker",
            Self::Stop => "partition",
        }
    }

    fn as_done(self) -> &'static str {
        match self {
            Self::Kill => "a worker was killed (SIGKILL)",
            Self::Stop => "a worker was stopped (SIGSTOP)",
        }
    }
}

fn milliseconds(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

fn milliseconds_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or_default()
}

/// What was promised and not kept.
fn broken(report: &Report) -> Vec<String> {
    let mut broken = Vec::new();
    if report.lost > 0 {
        broken.push(format!("{} of {} accepted jobs are not done", report.lost, report.accepted));
    }
    if let Some(first) = report.wrong_ends.first() {
        broken.push(format!("{} jobs ended wrongly ({first})", report.wrong_ends.len()));
    }
    match report.taken_over_ms {
        Some(took) if took <= report.promised_ms => {}
        Some(took) => broken
            .push(format!("jobs were taken over after {took} ms, promised are {} ms", report.promised_ms)),
        None if report.held > 0 => broken.push("the worker's jobs were not taken over".to_owned()),
        None => broken.push("the worker was hit between two jobs and held none; try again".to_owned()),
    }
    broken
}

fn print(app: &App, report: &Report) {
    if app.out.json {
        app.out.json(report);
        return;
    }
    let took = report.taken_over_ms.map_or_else(|| "never".to_owned(), |took| format!("after {took} ms"));
    let wrong = report.wrong_ends.len();
    let lines = [
        ("accepted", report.accepted.to_string()),
        ("lost", format!("{}   (promised: 0)", report.lost)),
        ("ended wrongly", format!("{wrong}   (promised: 0; one end each, of an attempt that did the work)")),
        ("held by the worker", report.held.to_string()),
        ("taken over", format!("{took}   (promised: within {} ms)", report.promised_ms)),
        ("executed again", format!("{}   (handlers run at least once)", report.repeated)),
        (
            "all done",
            format!("{} {} ms", if report.lost == 0 { "after" } else { "not after" }, report.done_ms),
        ),
    ];
    for (name, value) in lines {
        app.out.line(format!("{name:22}{value}"));
    }
    app.out.line(output::bold(if report.kept { "the promise was kept" } else { "THE PROMISE WAS NOT KEPT" }));
}
