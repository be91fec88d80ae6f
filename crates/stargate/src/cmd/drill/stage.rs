//! Where a drill takes place: a queue, two workers that serve nothing else, and a folder for what their jobs did.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use stargate_queue::store::JobFilter;
use stargate_queue::{JobId, NewJob, SharedStore, State};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::assemble::{self, Migrate};
use crate::config::store_url::StoreUrl;
use crate::failure::{Failure, Result};
use crate::run::App;

/// The kind of a drill's jobs; only its own workers serve it.
pub(super) const KIND: &str = "drill:step";
/// How long workers may take to be there, and to take a job.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a worker may take to end when asked to.
const ENDING: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A drill's surroundings. Its processes end with it.
pub(super) struct Stage {
    pub(super) store: SharedStore,
    pub(super) queue: String,
    folder: TempDir,
    victim: Child,
    other: Child,
}

/// What the workers of a drill are told.
pub(super) fn config(folder: &Path, lease: Duration, seconds: &str) -> String {
    let effects = folder.join("effects.log").display().to_string();
    let script = format!(
        "echo $STARGATE_JOB_ID >> '{effects}'; sleep {seconds}; echo end $STARGATE_JOB_ID >> '{effects}'"
    );
    format!(
        "[worker]\nlease = \"{}ms\"\nheartbeat = \"{}ms\"\npoll = \"200ms\"\nconcurrency = 2\nbuffer_max = 0\n\
         load_threshold = 1000\n[kinds.\"{KIND}\"]\nexec = [\"sh\", \"-c\", {}]\nmax_attempts = 100\nmax_crashes = 100\n\
         backoff = \"100ms\"\n",
        lease.as_millis(),
        (lease / 4).as_millis().max(50),
        json!(script),
    )
}

/// A worker of the drill's own. The store's URL goes by the environment: it may hold a password.
#[expect(clippy::disallowed_methods, reason = "this very program, as a worker that the drill may kill")]
pub(super) fn worker(folder: &Path, home: &Path, store: &StoreUrl, queue: &str) -> Result<Child> {
    let program = std::env::current_exe().map_err(|error| Failure::io("cannot find this program", &error))?;
    let log = std::fs::File::create(folder.join("worker.log"));
    let log = log.map_err(|error| Failure::io("cannot write a log", &error))?;
    let url = match store {
        StoreUrl::Sqlite(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            format!("sqlite:{}", path.display())
        }
        StoreUrl::Postgres(url) => url.reveal().to_owned(),
    };
    let mut command = Command::new(program);
    command.args(["worker", "--queue", queue, "--listen", "127.0.0.1:0"]).current_dir(folder).env_clear();
    for name in ["PATH", "HOME", "LANG", "TMPDIR"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("STARGATE_STORE", url).env("STARGATE_HOME", home).stdin(Stdio::null()).kill_on_drop(true);
    let logs = log.try_clone().map_err(|error| Failure::io("cannot write a log", &error))?;
    command.stdout(logs).stderr(log).spawn().map_err(|error| Failure::io("cannot start a worker", &error))
}

impl Stage {
    pub(super) async fn open(app: &App, lease: Duration) -> Result<Self> {
        let store = assemble::open(&app.settings, Migrate::No).await?;
        let folder = tempfile::Builder::new().prefix("stargate-drill-").tempdir();
        let folder = folder.map_err(|error| Failure::io("cannot make a folder", &error))?;
        let write = std::fs::write(folder.path().join("stargate.toml"), config(folder.path(), lease, "1"));
        write.map_err(|error| Failure::io("cannot write a configuration", &error))?;
        let queue = format!("drill:{:08x}", rand::random::<u32>());
        let start = || worker(folder.path(), &folder.path().join("home"), &app.settings.store, &queue);
        let (victim, other) = (start()?, start()?);
        let stage = Self { store, queue, victim, other, folder };
        stage
            .until("the drill's workers are not there", async || {
                let workers = stage.store.workers().await?;
                Ok((workers.iter().filter(|row| row.queues.contains(&stage.queue)).count() >= 2)
                    .then_some(()))
            })
            .await?;
        Ok(stage)
    }

    pub(super) async fn enqueue(&self, count: u32) -> Result<Vec<JobId>> {
        let mut jobs = Vec::new();
        for number in 0..count {
            let mut job = NewJob::of(KIND, &json!({ "number": number }))?;
            job.queue = self.queue.clone();
            jobs.push(job);
        }
        Ok(self.store.enqueue(jobs).await?.iter().map(|job| job.id).collect())
    }

    /// Waits until the worker that will be hit runs jobs; which.
    pub(super) async fn until_victim_holds(&self) -> Result<Vec<JobId>> {
        let process = format!(":{}:", self.victim.id().unwrap_or_default());
        self.until("the worker takes no job", async || {
            let filter = JobFilter {
                queue: Some(self.queue.clone()),
                states: vec![State::Processing],
                limit: 1000,
                ..JobFilter::default()
            };
            let jobs = self.store.jobs(filter).await?;
            let held =
                jobs.iter().filter(|job| job.worker.as_ref().is_some_and(|name| name.contains(&process)));
            let held: Vec<JobId> = held.map(|job| job.id).collect();
            Ok((!held.is_empty()).then_some(held))
        })
        .await
    }

    pub(super) async fn kill_victim(&mut self) -> Result<()> {
        self.victim.kill().await.map_err(|error| Failure::io("cannot kill the worker", &error))
    }

    pub(super) fn stop_victim(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub(super) fn wake_victim(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.victim.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let sent = pid.map_or(Err(rustix::io::Errno::SRCH), |pid| kill_process(pid, signal));
        sent.map_err(|error| Failure::io("cannot signal the worker", &error.into()))
    }

    /// Waits until all are done; how many are not after that time.
    pub(super) async fn until_done(&self, ids: &[JobId], patience: Duration) -> Result<usize> {
        let begin = Instant::now();
        loop {
            let mut left = 0;
            for id in ids {
                let done = self.store.job(*id).await?.is_some_and(|job| job.state == State::Done);
                left += usize::from(!done);
            }
            if left == 0 || begin.elapsed() > patience {
                return Ok(left);
            }
            tokio::time::sleep(LOOK_EVERY * 5).await;
        }
    }

    /// What the jobs themselves wrote: executions beyond one each, and jobs of which none came to its end.
    pub(super) fn executions(&self, ids: &[JobId]) -> Result<(usize, usize)> {
        let effects = std::fs::read_to_string(self.folder.path().join("effects.log"));
        let effects = effects.map_err(|error| Failure::io("cannot read what the jobs did", &error))?;
        let count = |line: String| effects.lines().filter(|other| *other == line).count();
        let repeated = ids.iter().map(|id| count(id.to_string()).saturating_sub(1)).sum();
        Ok((repeated, ids.iter().filter(|id| count(format!("end {id}")) == 0).count()))
    }

    /// Ends the workers and cancels what is left. The folder goes as well.
    pub(super) async fn close(mut self) -> Result<()> {
        for child in [&mut self.victim, &mut self.other] {
            // Asked first, so that no silent worker stays in the list. One of them may be dead already.
            if let Some(pid) = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
                let _ = kill_process(pid, Signal::TERM);
            }
            if tokio::time::timeout(ENDING, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
        }
        let filter = JobFilter { queue: Some(self.queue.clone()), limit: 1000, ..JobFilter::default() };
        for job in self.store.jobs(filter).await? {
            if !job.state.is_finished() {
                self.store.cancel(job.id).await?;
            }
        }
        Ok(())
    }

    async fn until<T>(&self, missing: &str, look: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
        let begin = Instant::now();
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            if begin.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.folder.path().join("worker.log")).unwrap_or_default();
                let message =
                    format!("{missing} after {} s; the end of a log: {}", PATIENCE.as_secs(), end(&log));
                return Err(Failure::failed("DRILL_FAILED", message));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn end(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}
