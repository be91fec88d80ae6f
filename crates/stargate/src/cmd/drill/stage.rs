//! Where a drill takes place: a queue, two workers that serve nothing else, and a folder for what their jobs did.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::json;
use stargate_queue::event::REQUEUED_STALE;
use stargate_queue::store::JobFilter;
use stargate_queue::{JobId, NewJob, SharedStore, State};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::evidence::{self, Effects, End, Ends};
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
/// More events than a job of a drill can have.
const EVENTS_MAX: u32 = 1000;
/// Where handlers write what they did.
const EFFECTS: &str = "effects.log";
/// A log for each worker: in one file they would overwrite each other's lines.
const LOGS: [&str; 2] = ["worker-1.log", "worker-2.log"];

/// A drill's surroundings. Its processes end with it.
pub(super) struct Stage {
    pub(super) store: SharedStore,
    pub(super) queue: String,
    /// What SQLite's writers hold while they write; Postgres has none.
    writer_lock: Option<PathBuf>,
    folder: TempDir,
    victim: Child,
    /// The process that is hit; kept because a killed child has no number any more.
    victim_id: u32,
    other: Child,
}

/// What the workers of a drill are told; their jobs take so many seconds.
pub(super) fn config(folder: &Path, lease: Duration, seconds: &str) -> String {
    let effects = folder.join(EFFECTS).display().to_string();
    let script = evidence::script(&effects, &format!("sleep {seconds}"));
    format!(
        "[worker]\nlease = \"{}ms\"\nheartbeat = \"{}ms\"\npoll = \"200ms\"\nconcurrency = 2\nbuffer_max = 0\n\
         load_threshold = 1000\n[kinds.\"{KIND}\"]\nexec = [\"sh\", \"-c\", {}]\nmax_attempts = 100\nmax_crashes = 100\n\
         backoff = \"100ms\"\n",
        lease.as_millis(),
        (lease / 4).as_millis().max(50),
        json!(script),
    )
}

/// A worker of the drill's own, that runs in `folder` and writes its log there. The store's URL goes by the
/// environment: it may hold a password.
#[expect(clippy::disallowed_methods, reason = "this very program, as a worker that the drill may kill")]
pub(super) fn worker(folder: &Path, log: &str, home: &Path, store: &StoreUrl, queue: &str) -> Result<Child> {
    let program = std::env::current_exe().map_err(|error| Failure::io("cannot find this program", &error))?;
    let log = File::create(folder.join(log));
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
        let home = folder.path().join("home");
        let start = |log| worker(folder.path(), log, &home, &app.settings.store, &queue);
        let [victim, other] = [start(LOGS[0])?, start(LOGS[1])?];
        let writer_lock = writer_lock(&app.settings.store);
        let stage = Self {
            store,
            queue,
            writer_lock,
            folder,
            victim_id: victim.id().unwrap_or_default(),
            victim,
            other,
        };
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

    /// Waits until the worker that will be hit runs jobs.
    pub(super) async fn until_victim_holds(&self) -> Result<()> {
        self.until("the worker takes no job", async || {
            Ok((!self.held_by_victim().await?.is_empty()).then_some(()))
        })
        .await
    }

    /// The jobs of the worker that is hit.
    pub(super) async fn held_by_victim(&self) -> Result<Vec<JobId>> {
        let filter = JobFilter {
            queue: Some(self.queue.clone()),
            states: vec![State::Processing],
            limit: 1000,
            ..JobFilter::default()
        };
        let process = format!(":{}:", self.victim_id);
        let jobs = self.store.jobs(filter).await?;
        let held = jobs.iter().filter(|job| job.worker.as_ref().is_some_and(|name| name.contains(&process)));
        Ok(held.map(|job| job.id).collect())
    }

    pub(super) async fn kill_victim(&mut self) -> Result<()> {
        self.victim.kill().await.map_err(|error| Failure::io("cannot kill the worker", &error))
    }

    /// Stops the worker, on SQLite between two writes: a process that is stopped in mid-write holds up everybody there,
    /// and that is another failure than to be cut off.
    pub(super) async fn stop_victim(&self) -> Result<()> {
        self.until("the worker could not be stopped between two writes", async || {
            self.signal_victim(Signal::STOP)?;
            self.until("the worker does not stop", async || Ok(self.victim_stands_still()?.then_some(())))
                .await?;
            if self.nobody_writes() {
                return Ok(Some(()));
            }
            self.wake_victim()?;
            Ok(None)
        })
        .await
    }

    pub(super) fn wake_victim(&self) -> Result<()> {
        self.signal_victim(Signal::CONT)
    }

    fn signal_victim(&self, signal: Signal) -> Result<()> {
        let sent = pid(&self.victim).map_or(Err(rustix::io::Errno::SRCH), |pid| kill_process(pid, signal));
        sent.map_err(|error| Failure::io("cannot signal the worker", &error.into()))
    }

    /// Whether all its threads have stopped; for a moment after the signal some go on.
    fn victim_stands_still(&self) -> Result<bool> {
        let only_look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let looked =
            pid(&self.victim).map_or(Err(rustix::io::Errno::SRCH), |pid| waitid(WaitId::Pid(pid), only_look));
        let status = looked.map_err(|error| Failure::io("cannot look at the worker", &error.into()))?;
        Ok(status.is_some_and(|status| status.stopped()))
    }

    fn nobody_writes(&self) -> bool {
        let Some(path) = &self.writer_lock else { return true };
        File::open(path).is_ok_and(|file| file.try_lock().is_ok())
    }

    /// Waits until all these were taken from the worker that held them, but no longer than that.
    pub(super) async fn until_taken_over(&self, held: &[JobId], patience: Duration) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() <= patience && self.taken_over(held).await?.contains(&None) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// When each of these was last taken from a worker whose lease ran out.
    pub(super) async fn taken_over(&self, held: &[JobId]) -> Result<Vec<Option<Timestamp>>> {
        let mut taken = Vec::new();
        for id in held {
            let events = self.store.events(*id, 0, EVENTS_MAX).await?;
            let stale = events.iter().filter(|event| event.event == REQUEUED_STALE);
            taken.push(stale.map(|event| event.at).max());
        }
        Ok(taken)
    }

    /// Waits until all are done, but no longer than that; how each ended, as first told.
    pub(super) async fn until_done(&self, ids: &[JobId], patience: Duration) -> Result<Ends> {
        let begin = Instant::now();
        let mut ends = Ends::new();
        loop {
            let left: Vec<JobId> = ids.iter().filter(|id| !ends.contains_key(id)).copied().collect();
            ends.append(&mut self.ends(&left).await?);
            if ends.len() == ids.len() || begin.elapsed() > patience {
                return Ok(ends);
            }
            tokio::time::sleep(LOOK_EVERY * 5).await;
        }
    }

    /// How those ended that are done.
    pub(super) async fn ends(&self, ids: &[JobId]) -> Result<Ends> {
        let mut ends = Ends::new();
        for id in ids {
            if let Some(end) = self.store.job(*id).await?.as_ref().and_then(End::of) {
                ends.insert(*id, end);
            }
        }
        Ok(ends)
    }

    /// What the jobs themselves wrote.
    pub(super) fn effects(&self) -> Result<Effects> {
        let written = std::fs::read_to_string(self.folder.path().join(EFFECTS));
        let written = written.map_err(|error| Failure::io("cannot read what the jobs did", &error))?;
        Ok(Effects::read(&written))
    }

    /// Asks the workers to end, so that no silent one stays in the list. One of them may be dead already.
    pub(super) async fn end_workers(&mut self) {
        for child in [&mut self.victim, &mut self.other] {
            if let Some(pid) = pid(child) {
                let _ = kill_process(pid, Signal::TERM);
                // One that is still stopped would not hear it.
                let _ = kill_process(pid, Signal::CONT);
            }
            if tokio::time::timeout(ENDING, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
        }
    }

    /// Ends the workers and cancels what is left. The folder goes as well.
    pub(super) async fn close(mut self) -> Result<()> {
        self.end_workers().await;
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
                let message =
                    format!("{missing} after {} s; {}", PATIENCE.as_secs(), ends_of_logs(self.folder.path()));
                return Err(Failure::failed("DRILL_FAILED", message));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
}

fn writer_lock(store: &StoreUrl) -> Option<PathBuf> {
    let StoreUrl::Sqlite(path) = store else { return None };
    let mut lock = path.clone().into_os_string();
    lock.push(".writer-lock");
    Some(lock.into())
}

fn ends_of_logs(folder: &Path) -> String {
    let end_of = |name: &str| {
        let log = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("{name} ends with: {}", lines[lines.len().saturating_sub(3)..].join(" | "))
    };
    LOGS.map(end_of).join("; ")
}
