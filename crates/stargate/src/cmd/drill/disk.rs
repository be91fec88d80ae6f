//! `stargate drill disk-full`: a home on a disk of eight megabytes that is filled, and given room again.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::json;
use stargate_queue::{JobId, NewJob, SharedStore, State};
use tokio::process::Command;

use super::stage::{KIND, config, worker};
use crate::assemble::{self, Migrate};
use crate::config::layer::Environment;
use crate::config::{self, Flags};
use crate::failure::{Failure, Result};
use crate::output;
use crate::run::App;

/// Room for the store and some hundred jobs of 20 kB.
const DISK: &str = "size=8m";
const JOBS_MAX: usize = 1000;
const LEASE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(120);

/// `drill disk-full`
#[derive(Debug, Args)]
pub(crate) struct DiskFull {
    /// The small disk; given by the drill to itself
    #[arg(long, hide = true)]
    on: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Report {
    drill: &'static str,
    accepted: usize,
    /// How the first enqueue was refused that did not fit.
    refused_as: String,
    /// Accepted and not done in the end.
    lost: usize,
    /// From the room that was made until everything was done.
    done_ms: u128,
    kept: bool,
}

impl DiskFull {
    pub(super) async fn run(&self, app: &App) -> Result<()> {
        match &self.on {
            Some(place) => inside(app, place).await,
            None => again_with_a_disk(app).await,
        }
    }
}

/// Starts this very command again where a disk is mounted that nobody else sees and that goes with it.
#[expect(clippy::disallowed_methods, reason = "this very program, in a mount namespace of its own")]
async fn again_with_a_disk(app: &App) -> Result<()> {
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
    let status = command.kill_on_drop(true).status().await;
    match status.map_err(|error| Failure::io("cannot start unshare", &error))?.code() {
        Some(0) => Ok(()),
        code => {
            let message = format!("the drill ended with {code:?}; see above");
            Err(Failure::failed("DRILL_FAILED", message).help("run it as root, who may mount a small disk"))
        }
    }
}

async fn inside(app: &App, place: &Path) -> Result<()> {
    let cannot = |error| Failure::io("cannot write on the small disk", &error);
    let flags = Flags { home: Some(place.to_owned()), ..Flags::default() };
    let settings = config::load(flags, &Environment::default())?;
    let store = assemble::open(&settings, Migrate::Yes).await?;
    std::fs::write(place.join("stargate.toml"), config(place, LEASE, "0.05")).map_err(cannot)?;
    let mut child = worker(place, place, &settings.store, "default")?;
    ready(&store).await?;
    let mut accepted = Vec::new();
    // What the worker finishes stays in the history, so the disk gets full whatever it does.
    let refused = loop {
        let job = NewJob::of(KIND, &json!({ "filling": "x".repeat(20_000) }))?;
        match store.enqueue(vec![job]).await {
            Ok(jobs) => accepted.extend(jobs.iter().map(|job| job.id)),
            Err(error) => break error.to_string(),
        }
        if accepted.len() >= JOBS_MAX {
            break String::new();
        }
        if accepted.len() == 50 {
            fill(&place.join("ballast"));
        }
    };
    app.out.note(format!("{} jobs accepted; then: {refused}", accepted.len()));
    tokio::time::sleep(LEASE / 2).await;
    std::fs::remove_file(place.join("ballast")).map_err(cannot)?;
    let begin = Instant::now();
    let lost = left(&store, &accepted).await?;
    let done_ms = begin.elapsed().as_millis();
    let _ = child.kill().await;
    let kept = lost == 0 && refused.contains("disk is full");
    let report =
        Report { drill: "disk-full", accepted: accepted.len(), refused_as: refused, lost, done_ms, kept };
    print(app, &report);
    if kept {
        return Ok(());
    }
    let message = format!("{lost} of {} accepted jobs are not done", accepted.len());
    Err(Failure::failed("DRILL_FAILED", message))
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
    app.out.line(format!("{:22}{}", "accepted", report.accepted));
    app.out.line(format!("{:22}{}", "then refused", report.refused_as));
    app.out.line(format!("{:22}{}   (promised: 0)", "lost", report.lost));
    app.out.line(format!("{:22}{} ms after there was room again", "all done", report.done_ms));
    app.out.line(output::bold(if report.kept { "the promise was kept" } else { "THE PROMISE WAS NOT KEPT" }));
}
