//! `stargate drill …`: a failure on purpose, how long recovery took, and whether the promises were kept.
//!
//! `kill-worker` and `partition` take place on a queue of their own in the user's store. Their workers are processes that
//! serve nothing but that queue, so nobody else's work is touched. `disk-full` takes place beside the installation, in a
//! home of its own on SQLite: nobody wants the disk of the real one filled.
//!
//! What becomes of the jobs is read from the store and from a file that the jobs write; what was promised stands beside it.
//! A drill that is interrupted ends its workers and its jobs; one that is killed takes its processes with it.

mod disk;
mod evidence;
mod report;
mod stage;
mod wire;
mod worker;

use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use stargate_base::Tasks;
use tokio_util::sync::CancellationToken;

use crate::config::interval;
use crate::failure::{Exit, Failure, Result};
use crate::run::App;
use crate::{output, signals};
use report::Report;
use stage::{QUEUE, Silenced, Stage};

/// A lost job is free for others no later than this after the lease ran out.
const TAKEOVER_MAX: Duration = Duration::from_secs(2);
/// How long after the lease a drill waits for that, to tell how late it was; and then for the jobs to run again.
const TAKEOVER_PATIENCE: Duration = Duration::from_secs(30);
/// How long everything may take, beside three leases and the jobs themselves.
const DONE_PATIENCE: Duration = Duration::from_secs(60);
/// How long a job takes.
const JOB: Duration = Duration::from_secs(1);
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(600);
/// What is told to somebody who waits for longer than that.
const LEASE_SHORT: Duration = Duration::from_secs(3);

/// `drill …`
#[derive(Debug, Subcommand)]
pub(crate) enum DrillCommand {
    /// Kill a worker in mid-job (SIGKILL): another one must take its jobs over in time, and none may be lost
    #[command(after_help = KILL_WORKER)]
    KillWorker(Trial),
    /// Cut a worker off from the store in mid-job until its lease is taken, then let it come back: what it says late must change nothing
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
            "\n\nTakes about the lease and 5 s; with the usual lease of 30 s, most of it is waiting. --lease 3s is faster.\n\n\
             Place: the store that is configured, on the queue 'drill' with two workers of the drill's own on this \
             machine. Other jobs and workers are not touched. One drill at a time: a second one on the same store is \
             refused (4). What is unfinished at the end is cancelled, also when the drill is interrupted (130); \
             finished jobs stay in the history until a purge removes them.\n\n\
             Checked: every accepted job is done; each has one end, told by the attempt that held the job and had \
             finished its work; jobs of the lost worker are free for others within the lease and 2 s. Exits 1 if \
             not. When they run again is told, too.\n\n\
             Examples:\n",
            $examples
        )
    };
}

const KILL_WORKER: &str = trial_help!(
    "One of two workers is killed as soon as it runs jobs, as by a crash or by the system when memory is short. It \
     does not come back.",
    "  stargate drill kill-worker --lease 3s\n  stargate drill kill-worker --lease 5s --jobs 40 --json"
);

const PARTITION: &str = trial_help!(
    "One of two workers is cut off from the store as soon as it runs jobs: it reaches Postgres through a relay of the \
     drill, which holds back everything, both ways, and nobody is told. No other connection is touched. Where no network \
     is in between (SQLite, a socket on this machine) or the URL names several servers, the worker is stopped instead \
     (SIGSTOP), and the programs of its jobs go on. When another worker may have the jobs, it is let come back, finds \
     its lease taken, and reports what it believes to have done.",
    "  stargate drill partition --lease 3s\n  stargate drill partition --store postgres://db/app --lease 5s --json"
);

const DISK_FULL: &str = "\
Place: a home of the drill's own, with an SQLite store and one worker, on a disk of 8 MB in memory that vanishes with \
it. Your installation and its store are not touched, and its settings are not looked at: to fill that disk would be the \
accident itself. Hence --store is refused. Takes about 10 s.

Checked: the enqueue that does not fit is refused because the disk is full; when there is room again, \
jobs are taken within 2 s, and every accepted job is done. Exits 1 if not, 130 if it is interrupted.

Needs unshare(1) and mount(8), hence root or a machine that lets users have mounts of their own.";

/// `drill kill-worker`, `drill partition`
#[derive(Debug, Args)]
pub(crate) struct Trial {
    /// Jobs to run, of one second each; at least 4, two for each worker
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(4..=1000))]
    jobs: u32,
    /// The lease of the drill's workers, 1s to 10m [default: worker.lease]
    #[arg(long, value_name = "TIME", value_parser = parse_lease)]
    lease: Option<Duration>,
}

/// What is done to the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hit {
    Kill,
    CutOff,
}

impl DrillCommand {
    /// Runs the drill, and cleans up after it whether it comes to its end or is interrupted.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let tasks = Tasks::new();
        let stop = signals::stop_token(&tasks)?;
        let ended = match self {
            Self::KillWorker(trial) => trial.run(app, Hit::Kill, &stop).await,
            Self::Partition(trial) => trial.run(app, Hit::CutOff, &stop).await,
            Self::DiskFull(disk) => disk.run(app, &stop).await,
        };
        tasks.join().await;
        ended
    }
}

impl Trial {
    async fn run(&self, app: &App, hit: Hit, stop: &CancellationToken) -> Result<()> {
        let lease = self.lease(app)?;
        let mut stage = unless_stopped(stop, Stage::open(app, lease, hit)).await?;
        app.out.note(format!(
            "queue {QUEUE:?} in {}: lease {}, two workers of its own",
            app.settings.store,
            output::short(lease)
        ));
        let played = self.play(app, &mut stage, hit, lease, stop).await;
        if stop.is_cancelled() {
            app.out.note("interrupted: the workers and their jobs are ended; a second signal ends at once");
        }
        let closed = stage.close().await;
        let report = match played {
            // Its message says that all is tidy.
            Err(failure) if failure.exit == Exit::Killed => return closed.and(Err(failure)),
            played => played?,
        };
        closed?;
        report.print(app);
        judge(&report.broken())
    }

    /// The lease of the workers. Beyond these bounds a drill tells nothing, or nobody waits for its end.
    fn lease(&self, app: &App) -> Result<Duration> {
        let lease = self.lease.unwrap_or(app.settings.worker.lease);
        check_lease(lease).map_err(|problem| {
            let message = format!("worker.lease is {}; {problem}", output::short(lease));
            Failure::new(Exit::Usage, "USAGE", message).help("give the drill one of its own: --lease 3s")
        })
    }

    async fn play(
        &self,
        app: &App,
        stage: &mut Stage,
        hit: Hit,
        lease: Duration,
        stop: &CancellationToken,
    ) -> Result<Report> {
        unless_stopped(stop, stage.until_alone()).await?;
        // Whatever signal comes: to cancel jobs one has to know them.
        stage.enqueue(self.jobs).await?;
        unless_stopped(stop, self.strike_and_watch(app, stage, hit, lease)).await
    }

    async fn strike_and_watch(
        &self,
        app: &App,
        stage: &mut Stage,
        hit: Hit,
        lease: Duration,
    ) -> Result<Report> {
        let store = stage.store.clone();
        let (what, told) = match hit {
            Hit::Kill => {
                stage.kill_victim().await?;
                ("killed", "killed (SIGKILL)")
            }
            Hit::CutOff => match stage.cut_off_victim().await? {
                Silenced::CutOff => ("cut_off", "cut off from the store"),
                Silenced::Stopped => ("stopped", "stopped (SIGSTOP)"),
            },
        };
        let struck = store.now().await?;
        let held = stage.held_by_victim().await?;
        app.out.note(format!("a worker was {told} with {} jobs in its hands", held.len()));
        app.out.note(waiting_for(lease));
        let tell = |at: Option<Timestamp>, what: &str| {
            if let Some(at) = at {
                app.out.note(format!("after {} ms: {what}", milliseconds_between(struck, at)));
            }
        };
        let patience = lease + TAKEOVER_PATIENCE;
        let free = stage.until_returned(&held, struck, patience, |job| job.free).await?;
        tell(free, "its jobs are free for others");
        if hit == Hit::CutOff {
            // Not before: a worker that comes back in time keeps its lease.
            stage.reconnect_victim()?;
        }
        let running = stage.until_returned(&held, struck, TAKEOVER_PATIENCE, |job| job.running).await?;
        tell(running, "they run again");
        let first_ends = stage.until_done(lease * 3 + DONE_PATIENCE + JOB * self.jobs).await?;
        let done = store.now().await?;
        // Whatever a worker still has to say is said when it has ended.
        stage.end_workers().await;
        let effects = stage.effects()?;
        let returns = stage.returns(&held, struck).await?;
        let since_struck = |at| milliseconds_between(struck, at);
        let mut report = Report {
            drill: hit.as_command(),
            hit: what,
            store: app.settings.store.to_string(),
            queue: QUEUE,
            lease_ms: milliseconds(lease),
            accepted: stage.accepted(),
            held: held.len(),
            lost: stage.accepted() - first_ends.len(),
            wrong_ends: evidence::wrong_ends(&first_ends, &stage.ends().await?, &effects),
            repeated: effects.repeated(),
            free_for_others_ms: evidence::latest(&returns, |job| job.free).map(since_struck),
            promised_ms: milliseconds(lease + TAKEOVER_MAX),
            running_again_ms: evidence::latest(&returns, |job| job.running).map(since_struck),
            done_ms: since_struck(done),
            kept: false,
        };
        report.kept = report.broken().is_empty();
        Ok(report)
    }
}

impl Hit {
    fn as_command(self) -> &'static str {
        match self {
            Self::Kill => "kill-worker",
            Self::CutOff => "partition",
        }
    }
}

/// What the silence that follows is good for.
fn waiting_for(lease: Duration) -> String {
    let faster = if lease > LEASE_SHORT { "; '--lease 3s' is faster" } else { "" };
    format!(
        "waiting for the end of its lease of {}, when they are free for others{faster}",
        output::short(lease)
    )
}

fn parse_lease(text: &str) -> Result<Duration, String> {
    interval::parse(text).and_then(check_lease)
}

fn check_lease(lease: Duration) -> Result<Duration, String> {
    match (LEASE_MIN..=LEASE_MAX).contains(&lease) {
        true => Ok(lease),
        false => Err("the lease of a drill is 1s to 10m".to_owned()),
    }
}

/// Does the work, unless a signal comes first.
async fn unless_stopped<T>(stop: &CancellationToken, work: impl Future<Output = Result<T>>) -> Result<T> {
    stop.run_until_cancelled(work).await.unwrap_or_else(|| Err(interrupted()))
}

fn interrupted() -> Failure {
    let message = "the drill was interrupted; its workers have ended, and nothing of it goes on";
    Failure::new(Exit::Killed, "DRILL_FAILED", message)
}

/// The failure of a drill in which a promise was not kept.
fn judge(broken: &[String]) -> Result<()> {
    if broken.is_empty() {
        return Ok(());
    }
    let message = format!("the promise was not kept: {}", broken.join("; "));
    Err(Failure::failed("DRILL_FAILED", message).help("'stargate doctor' looks for causes"))
}

fn milliseconds(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

fn milliseconds_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_tells_nothing_or_takes_for_ever_is_refused_with_the_range() {
        for wrong in ["500ms", "0", "601s", "1h"] {
            assert!(parse_lease(wrong).unwrap_err().contains("1s to 10m"), "{wrong}");
        }
        assert_eq!(parse_lease("1s"), Ok(LEASE_MIN));
        assert_eq!(parse_lease("10m"), Ok(LEASE_MAX));
    }
}
