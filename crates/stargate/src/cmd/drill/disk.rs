//! `stargate drill disk-full`: a home of its own on a disk of eight megabytes that is filled, and given room again.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stargate_queue::{Error, JobId, NewJob, SharedStore, State};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::report::verdict;
use super::stage::{KIND, config};
use super::worker::{ENDING, Worker, start_watched};
use crate::assemble::{self, Migrate};
use crate::config::layer::{Environment, Origin};
use crate::config::{self, Flags, Settings};
use crate::failure::{Exit, Failure, Result};
use crate::run::App;

/// Room for the store and some hundred jobs of 20 kB.
const DISK: &str = "size=8m";
const JOBS_MAX: usize = 1000;
/// When the disk is filled.
const JOBS_BEFORE_FULL: usize = 50;
const LEASE: Duration = Duration::from_secs(5);
/// How long the disk stays full.
const FULL_FOR: Duration = Duration::from_millis(2500);
/// Within which jobs are taken again when there is room. When they are done depends on their work, so that is only told.
const TAKEN_AGAIN_MAX: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(120);

/// `drill disk-full`
#[derive(Debug, Args)]
pub(crate) struct DiskFull {
    /// The small disk; given by the drill to itself
    #[arg(long, hide = true)]
    on: Option<PathBuf>,
}

/// What happened on the small disk, as the process there tells it to the one that the user started.
#[derive(Debug, Serialize, Deserialize)]
struct Outcome {
    accepted: usize,
    /// How the first enqueue was refused that did not fit; absent if all did.
    refused_as: Option<String>,
    /// The code of that error.
    refused_code: Option<String>,
    /// Accepted and not done in the end.
    lost: usize,
    /// From the room that was made until a job was accepted. This is what is promised.
    taken_again_ms: u64,
    promised_ms: u64,
    /// From the room that was made until everything was done.
    done_ms: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    drill: &'static str,
    #[serde(flatten)]
    outcome: Outcome,
    kept: bool,
}

impl DiskFull {
    pub(super) async fn run(&self, app: &App, stop: &CancellationToken) -> Result<()> {
        if let Some(place) = &self.on {
            return inside(app, place, stop).await;
        }
        refuse_store(&app.settings)?;
        app.out.note(
            "in a throw-away SQLite home on a disk of 8 MB of its own; your installation is not touched and its \
             settings are not looked at",
        );
        let outcome = on_a_small_disk(app, stop).await?;
        let broken = outcome.broken();
        print(app, &Report { drill: "disk-full", outcome, kept: broken.is_empty() });
        super::judge(&broken)
    }
}

/// Somebody who names a store expects the drill to take place there. What the environment or a file says is not meant for
/// this command.
fn refuse_store(settings: &Settings) -> Result<()> {
    let by_flag = |shown: &config::layer::Shown| matches!(shown.origin, Origin::Flag { .. });
    if settings.shown.iter().any(|shown| shown.key == "store" && by_flag(shown)) {
        let message = "this drill takes place in a throw-away SQLite store of its own, not in yours";
        return Err(Failure::new(Exit::Usage, "USAGE", message).help("leave --store out"));
    }
    Ok(())
}

/// Starts this very command again where a disk is mounted that nobody else sees and that goes with it.
#[expect(clippy::disallowed_methods, reason = "this very program, in a mount namespace of its own")]
async fn on_a_small_disk(app: &App, stop: &CancellationToken) -> Result<Outcome> {
    let folder = tempfile::Builder::new().prefix("stargate-drill-").tempdir();
    let folder = folder.map_err(|error| Failure::io("cannot make a folder", &error))?;
    let program = std::env::current_exe().map_err(|error| Failure::io("cannot find this program", &error))?;
    let mut command = Command::new("unshare");
    command.arg(if rustix::process::geteuid().is_root() { "-m" } else { "-rm" });
    command.args(["sh", "-c", &format!("mount -t tmpfs -o {DISK} tmpfs \"$0\" && exec \"$@\"")]);
    command.arg(folder.path()).arg(program).args(["drill", "disk-full", "--on"]).arg(folder.path());
    if app.out.json {
        command.arg("--json");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = start_watched(command).map_err(|error| Failure::io("cannot start unshare", &error))?;
    let mut told = String::new();
    let listening = async {
        if let Some(stdout) = &mut process.child.stdout {
            stdout.read_to_string(&mut told).await?;
        }
        process.wait().await
    };
    let Some(status) = stop.run_until_cancelled(listening).await else {
        let _ = process.terminate(ENDING).await;
        return Err(super::interrupted());
    };
    let status = status.map_err(|error| Failure::io("cannot hear the drill on the small disk", &error))?;
    serde_json::from_str(&told).map_err(|_| {
        let message = format!("nothing came of it on the small disk ({status}); see above");
        Failure::failed("DRILL_FAILED", message)
            .help("if the small disk could not be mounted: run it as root")
    })
}

/// The drill, on the small disk. If it is interrupted it tells nothing: whoever started it knows.
async fn inside(app: &App, place: &Path, stop: &CancellationToken) -> Result<()> {
    let settings = settings_on(place)?;
    let store = assemble::open(&settings, Migrate::Yes).await?;
    let mut worker = Worker::start(place, "worker.log", place, &settings.store, "default")?;
    let played = stop.run_until_cancelled(play(app, place, &store)).await;
    let _ = worker.kill().await;
    if let Some(outcome) = played {
        app.out.json(&outcome?);
    }
    Ok(())
}

async fn play(app: &App, place: &Path, store: &SharedStore) -> Result<Outcome> {
    ready(store).await?;
    let ballast = place.join("ballast");
    let (mut accepted, refused) = enqueue_until_refused(store, &ballast).await?;
    app.out.note(format!(
        "{} jobs were accepted, then the disk was full; it stays so for a while",
        accepted.len()
    ));
    tokio::time::sleep(FULL_FOR).await;
    std::fs::remove_file(ballast).map_err(cannot_write)?;
    app.out.note("there is room again");
    let begin = Instant::now();
    accepted.push(enqueue_until_taken(store).await?);
    let taken_again_ms = super::milliseconds(begin.elapsed());
    let lost = left(store, &accepted).await?;
    Ok(Outcome {
        accepted: accepted.len(),
        refused_as: refused.as_ref().map(ToString::to_string),
        refused_code: refused.map(|error| error.code().to_owned()),
        lost,
        taken_again_ms,
        promised_ms: super::milliseconds(TAKEN_AGAIN_MAX),
        done_ms: super::milliseconds(begin.elapsed()),
    })
}

/// The settings of the throw-away installation. Its file is named, and nothing is taken from the environment: the file of
/// the working directory is the user's, and names the store that must not be touched.
fn settings_on(place: &Path) -> Result<Settings> {
    let file = place.join("stargate.toml");
    std::fs::write(&file, config(place, LEASE, "0.05")).map_err(cannot_write)?;
    let flags = Flags { config: Some(file), home: Some(place.to_owned()), ..Flags::default() };
    config::load(flags, &Environment::default())
}

fn cannot_write(error: std::io::Error) -> Failure {
    Failure::io("cannot write on the small disk", &error)
}

/// Enqueues, fills the disk on the way, and goes on until an enqueue is refused: what was accepted, and the refusal.
/// What the worker finishes stays in the history, so the disk gets full whatever it does.
async fn enqueue_until_refused(store: &SharedStore, ballast: &Path) -> Result<(Vec<JobId>, Option<Error>)> {
    let mut accepted = Vec::new();
    while accepted.len() < JOBS_MAX {
        match store.enqueue(vec![large_job()?]).await {
            Ok(jobs) => accepted.extend(jobs.iter().map(|job| job.id)),
            Err(error) => return Ok((accepted, Some(error))),
        }
        if accepted.len() == JOBS_BEFORE_FULL {
            fill(ballast);
        }
    }
    Ok((accepted, None))
}

fn large_job() -> Result<NewJob> {
    Ok(NewJob::of(KIND, &json!({ "filling": "x".repeat(20_000) }))?)
}

/// Enqueues as a producer would that tries again, until a job is taken.
async fn enqueue_until_taken(store: &SharedStore) -> Result<JobId> {
    let begin = Instant::now();
    loop {
        match store.enqueue(vec![large_job()?]).await {
            Ok(jobs) => return Ok(jobs[0].id),
            Err(error) if begin.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

impl Outcome {
    /// What was promised and not kept.
    fn broken(&self) -> Vec<String> {
        let Self { accepted, lost, taken_again_ms, promised_ms, .. } = self;
        let mut broken = Vec::new();
        if *lost > 0 {
            broken.push(format!("{lost} of {accepted} accepted jobs are not done"));
        }
        match self.refused_as.as_deref() {
            Some(refusal) if refusal.contains("disk is full") => {}
            Some(refusal) => {
                broken.push(format!("the refusal does not say that the disk is full: {refusal}"))
            }
            None => broken.push(format!("nothing was refused: {accepted} jobs were accepted on a full disk")),
        }
        if taken_again_ms > promised_ms {
            broken.push(format!(
                "jobs were taken again after {taken_again_ms} ms, promised are {promised_ms} ms"
            ));
        }
        broken
    }
}

async fn ready(store: &SharedStore) -> Result<()> {
    let begin = Instant::now();
    while store.workers().await?.is_empty() {
        if begin.elapsed() > PATIENCE {
            return Err(Failure::failed("DRILL_FAILED", "the drill's worker does not start"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Takes all the room there is.
fn fill(path: &Path) {
    let Ok(mut file) = std::fs::File::create(path) else { return };
    for size in [1 << 16, 512] {
        let zeros = vec![0; size];
        while file.write_all(&zeros).is_ok() {}
    }
}

async fn left(store: &SharedStore, ids: &[JobId]) -> Result<usize> {
    let begin = Instant::now();
    loop {
        let mut left = 0;
        for id in ids {
            left += usize::from(!store.job(*id).await?.is_some_and(|job| job.state == State::Done));
        }
        if left == 0 || begin.elapsed() > PATIENCE {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn print(app: &App, report: &Report) {
    if app.out.json {
        app.out.json(report);
        return;
    }
    let Outcome { accepted, refused_as, lost, taken_again_ms, promised_ms, done_ms, .. } = &report.outcome;
    app.out.line(format!("{:22}{accepted}", "accepted"));
    app.out.line(format!("{:22}{}", "then refused", refused_as.as_deref().unwrap_or("nothing")));
    app.out.line(format!("{:22}{lost}   (promised: 0)", "lost"));
    app.out.line(format!(
        "{:22}{taken_again_ms} ms after there was room   (promised: within {promised_ms} ms)",
        "taken again"
    ));
    let after = if *lost == 0 { "" } else { "not " };
    app.out.line(format!("{:22}{after}{done_ms} ms after there was room again", "all done"));
    app.out.line(verdict(report.kept));
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    fn broken(accepted: usize, lost: usize, refused_as: Option<&str>, taken_again_ms: u64) -> Vec<String> {
        let refused_as = refused_as.map(str::to_owned);
        let outcome = Outcome {
            accepted,
            refused_as,
            refused_code: None,
            lost,
            taken_again_ms,
            promised_ms: 2000,
            done_ms: 0,
        };
        outcome.broken()
    }

    #[test]
    fn a_broken_promise_is_told_as_what_it_is() {
        let full = Some("the store could not enqueue; the disk is full; free some space");
        assert_eq!(broken(50, 0, full, 2000), [""; 0]);
        assert_eq!(broken(50, 3, full, 1), ["3 of 50 accepted jobs are not done"]);
        let nameless = broken(50, 0, Some("the store could not enqueue"), 1);
        assert_eq!(nameless, ["the refusal does not say that the disk is full: the store could not enqueue"]);
        assert_eq!(broken(9, 0, None, 1), ["nothing was refused: 9 jobs were accepted on a full disk"]);
        assert_eq!(broken(50, 0, full, 2001), ["jobs were taken again after 2001 ms, promised are 2000 ms"]);
    }
}
