//! `stargate drill …`: a failure on purpose, on a queue of its own in the user's installation, and how long it took.
//!
//! Workers of the drill are processes of their own that serve nothing but that queue, so nobody else's work is touched.
//! What becomes of it is read from the store and from a file that the jobs write; what was promised stands beside it.

mod disk;
mod stage;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use stargate_queue::event::REQUEUED_STALE;

use crate::config::interval;
use crate::failure::{Failure, Result};
use crate::output;
use crate::run::App;
use stage::Stage;

/// A lost job is taken over no later than this after the lease ran out.
const TAKEOVER_MAX: Duration = Duration::from_secs(2);

/// `drill …`
#[derive(Debug, Subcommand)]
pub(crate) enum DrillCommand {
    /// SIGKILL a worker in mid-job: another one must take its jobs over, and none may be lost
    #[command(after_help = EXAMPLES)]
    KillWorker(Trial),
    /// Cut a worker off for longer than its lease (SIGSTOP), then let it go on: what it says then must change nothing
    #[command(after_help = EXAMPLES)]
    Partition(Trial),
    /// Fill the disk of a scratch home: enqueueing must be refused by name, and what was accepted must be done later
    #[command(after_help = "\
Needs a small file system of its own (unshare, mount): root, or a machine that lets users have one. The store
of this installation is not touched: filling its disk would be the accident itself.")]
    DiskFull(disk::DiskFull),
}

const EXAMPLES: &str = "\
Examples:
  stargate drill kill-worker
  stargate drill partition --store postgres://db/app --lease 5s --json

Uses a queue of its own, drill:NUMBER, in the store that is configured. Unfinished jobs of it are cancelled at the end;
finished ones stay in the history until 'stargate purge' or the nightly one removes them. Exits 1 if a promise was broken.";

/// `drill kill-worker`, `drill partition`
#[derive(Debug, Args)]
pub(crate) struct Trial {
    /// Jobs to run
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
    /// Jobs with more than one end.
    ended_twice: usize,
    /// Executions beyond one a job: handlers run at least once.
    repeated: usize,
    /// From the hit until the last of the held jobs was taken over, by the store's clock.
    taken_over_ms: Option<u64>,
    promised_ms: u64,
    /// From the hit until everything was done.
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
        stage.close().await?;
        let report = played?;
        print(app, &report);
        if report.kept {
            return Ok(());
        }
        let message = format!("the promise was not kept: {}", shortfall(&report));
        Err(Failure::failed("DRILL_FAILED", message).help("'stargate doctor' looks for causes"))
    }

    async fn play(&self, app: &App, stage: &mut Stage, hit: Hit, lease: Duration) -> Result<Report> {
        let ids = stage.enqueue(self.jobs).await?;
        let held = stage.until_victim_holds().await?;
        let store = stage.store.clone();
        let struck = store.now().await?;
        app.out.note(format!("the worker holds {} jobs; now it is hit", held.len()));
        match hit {
            Hit::Kill => stage.kill_victim().await?,
            Hit::Stop => {
                stage.stop_victim()?;
                tokio::time::sleep(lease + lease / 2).await;
                stage.wake_victim()?;
            }
        }
        let left = stage.until_done(&ids, lease * 3 + Duration::from_secs(60)).await?;
        let since = |at: jiff::Timestamp| {
            u64::try_from(at.duration_since(struck).as_millis().max(0)).unwrap_or(u64::MAX)
        };
        let done = since(store.now().await?);
        let (mut taken_over, mut ended_twice) = (None, 0);
        for id in &ids {
            let events = store.events(*id, 0, 1000).await?;
            let ends =
                events.iter().filter(|event| ["done", "failed", "cancelled"].contains(&event.event.as_str()));
            ended_twice += usize::from(ends.count() > 1);
            let lost = events.iter().filter(|event| event.event == REQUEUED_STALE && held.contains(id));
            taken_over = taken_over.max(lost.map(|event| since(event.at)).max());
        }
        let promised = u64::try_from((lease + TAKEOVER_MAX).as_millis()).unwrap_or(u64::MAX);
        let (repeated, unexecuted) = stage.executions(&ids)?;
        let lost = left + unexecuted;
        Ok(Report {
            drill: if hit == Hit::Kill { "kill-worker" } else { "partition" },
            store: app.settings.store.to_string(),
            queue: stage.queue.clone(),
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
            accepted: ids.len(),
            held: held.len(),
            lost,
            ended_twice,
            repeated,
            taken_over_ms: taken_over,
            promised_ms: promised,
            done_ms: done,
            kept: lost == 0 && ended_twice == 0 && taken_over.is_some_and(|took| took <= promised),
        })
    }
}

fn shortfall(report: &Report) -> String {
    if report.lost > 0 {
        return format!("{} jobs were accepted and are not done", report.lost);
    }
    if report.ended_twice > 0 {
        return format!("{} jobs ended more than once", report.ended_twice);
    }
    match report.taken_over_ms {
        Some(took) => format!("jobs were taken over after {took} ms, promised are {} ms", report.promised_ms),
        None => "no job had to be taken over: the worker was hit between two jobs; try again".to_owned(),
    }
}

fn print(app: &App, report: &Report) {
    if app.out.json {
        app.out.json(report);
        return;
    }
    let took = report.taken_over_ms.map_or_else(|| "never".to_owned(), |took| format!("after {took} ms"));
    let lines = [
        ("accepted", report.accepted.to_string()),
        ("lost", format!("{}   (promised: 0)", report.lost)),
        ("ended more than once", format!("{}   (promised: 0)", report.ended_twice)),
        ("held by the worker", report.held.to_string()),
        ("taken over", format!("{took}   (promised: within {} ms)", report.promised_ms)),
        ("executed again", format!("{}   (handlers run at least once)", report.repeated)),
        ("all done", format!("after {} ms", report.done_ms)),
    ];
    for (name, value) in lines {
        app.out.line(format!("{name:22}{value}"));
    }
    app.out.line(output::bold(if report.kept { "the promise was kept" } else { "THE PROMISE WAS NOT KEPT" }));
}
