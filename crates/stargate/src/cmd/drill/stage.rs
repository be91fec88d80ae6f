//! Where a drill takes place: a queue, two workers that serve nothing else, and a folder for what their jobs did.
//!
//! The queue is the same for all drills, because queues stay in lists and metrics for ever. Hence one drill at a time on a
//! store: whoever finds live workers of another one is refused, and of two that start at once the one whose worker
//! registered first goes on. What a killed drill has left is ended by the next one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use stargate_queue::bulk::BULK_MAX;
use stargate_queue::store::{JobFilter, Outcome, Settlement, WorkerRow};
use stargate_queue::{Job, JobId, NewJob, SharedStore, State, WorkerId};
use tempfile::TempDir;

use super::Hit;
use super::evidence::{self, Effects, End, Ends, Return};
use super::wire::Wire;
use super::worker::Worker;
use crate::assemble::{self, Migrate};
use crate::config::store_url::StoreUrl;
use crate::failure::{Exit, Failure, Result};
use crate::run::App;

/// The queue of all drills.
pub(super) const QUEUE: &str = "drill";
/// The kind of a drill's jobs; only its own workers serve it.
pub(super) const KIND: &str = "drill:step";
/// Jobs that a worker runs at once.
const SLOTS: usize = 2;
/// How long workers may take to be there, and to take a job.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// More events than a job of a drill can have.
const EVENTS_MAX: u32 = 1000;
/// Where handlers write what they did.
const EFFECTS: &str = "effects.log";
/// A log for each worker: in one file they would overwrite each other's lines.
const LOGS: [&str; 2] = ["worker-1.log", "worker-2.log"];

/// How a worker was kept from the store.
#[derive(Debug, Clone, Copy)]
pub(super) enum Silenced {
    /// Nothing of what it sends arrives.
    CutOff,
    /// It stands still.
    Stopped,
}

/// A drill's surroundings. Its processes end with it.
pub(super) struct Stage {
    pub(super) store: SharedStore,
    /// The jobs of this drill.
    ids: Vec<JobId>,
    /// What SQLite's writers hold while they write; Postgres has none.
    writer_lock: Option<PathBuf>,
    victim: Worker,
    /// Between the victim and the store, where it is to be cut off and there is a network to do that in.
    wire: Option<Wire>,
    other: Worker,
    /// Dropped last: the workers write into it.
    folder: TempDir,
}

/// What the workers of a drill are told; their jobs take so many seconds.
pub(super) fn config(folder: &Path, lease: Duration, seconds: &str) -> String {
    let effects = folder.join(EFFECTS).display().to_string();
    let script = evidence::script(&effects, &format!("sleep {seconds}"));
    format!(
        "[worker]\nlease = \"{}ms\"\nheartbeat = \"{}ms\"\npoll = \"200ms\"\nconcurrency = {SLOTS}\nbuffer_max = 0\n\
         load_threshold = 1000\n[kinds.\"{KIND}\"]\nexec = [\"sh\", \"-c\", {}]\nmax_attempts = 100\nmax_crashes = 100\n\
         backoff = \"100ms\"\n",
        lease.as_millis(),
        (lease / 4).as_millis().max(50),
        json!(script),
    )
}

impl Stage {
    /// Starts the workers, unless another drill is on.
    pub(super) async fn open(app: &App, lease: Duration, hit: Hit) -> Result<Self> {
        let store = assemble::open(&app.settings, Migrate::No).await?;
        clear_queue(&store).await?;
        let folder = tempfile::Builder::new().prefix("stargate-drill-").tempdir();
        let folder = folder.map_err(|error| Failure::io("cannot make a folder", &error))?;
        let write = std::fs::write(folder.path().join("stargate.toml"), config(folder.path(), lease, "1"));
        write.map_err(|error| Failure::io("cannot write a configuration", &error))?;
        let home = folder.path().join("home");
        let direct = &app.settings.store;
        let (wire, detour) = match hit {
            Hit::CutOff => Wire::lay(direct).await?.unzip(),
            Hit::Kill => (None, None),
        };
        let start = |log, store| Worker::start(folder.path(), log, &home, store, QUEUE);
        let victim = start(LOGS[0], detour.as_ref().unwrap_or(direct))?;
        let other = start(LOGS[1], direct)?;
        let writer_lock = writer_lock(direct);
        Ok(Self { store, ids: Vec::new(), writer_lock, victim, wire, other, folder })
    }

    /// Waits until both workers are there, and no others serve the queue: they would take the jobs.
    pub(super) async fn until_alone(&self) -> Result<()> {
        self.until("the drill's workers are not there, or those of another drill do not go", async || {
            let (own, others): (Vec<_>, Vec<_>) =
                workers(&self.store).await?.into_iter().partition(|row| self.owns(row));
            let first = own.iter().map(|row| row.id).min();
            let mut others = others.iter().filter(|row| row.alive).peekable();
            let alone = others.peek().is_none();
            match others.find(|row| first.is_some_and(|first| row.id < first)) {
                Some(earlier) => Err(occupied(earlier)),
                None => Ok((own.len() == LOGS.len() && alone).then_some(())),
            }
        })
        .await
    }

    pub(super) async fn enqueue(&mut self, count: u32) -> Result<()> {
        let mut jobs = Vec::new();
        for number in 0..count {
            let mut job = NewJob::of(KIND, &json!({ "number": number }))?;
            job.queue = QUEUE.to_owned();
            jobs.push(job);
        }
        self.ids = self.store.enqueue(jobs).await?.iter().map(|job| job.id).collect();
        Ok(())
    }

    /// How many jobs were acknowledged.
    pub(super) fn accepted(&self) -> usize {
        self.ids.len()
    }

    /// The jobs of the worker that is hit.
    pub(super) async fn held_by_victim(&self) -> Result<Vec<JobId>> {
        Ok(self.held_jobs().await?.iter().map(|job| job.id).collect())
    }

    async fn held_jobs(&self) -> Result<Vec<Job>> {
        let mut held = unfinished(&self.store, &[State::Processing]).await?;
        held.retain(|job| {
            let by_victim = job.worker.as_ref().is_some_and(|name| self.victim.is_called(name));
            by_victim && self.ids.contains(&job.id)
        });
        Ok(held)
    }

    /// Kills the worker in the middle of its jobs.
    pub(super) async fn kill_victim(&mut self) -> Result<()> {
        self.freeze_victim(|| true).await?;
        self.victim.kill().await
    }

    /// Cuts the worker off from the store in the middle of its jobs. Where no network is in between it is stopped, on SQLite
    /// between two writes: a process that is stopped in mid-write holds up everybody there, and that is another failure.
    pub(super) async fn cut_off_victim(&self) -> Result<Silenced> {
        self.freeze_victim(|| self.nobody_writes()).await?;
        let Some(wire) = &self.wire else { return Ok(Silenced::Stopped) };
        wire.cut();
        self.victim.wake()?;
        Ok(Silenced::CutOff)
    }

    /// Stops the worker at a moment in which every job in its hands has begun. One that was taken and not begun would be
    /// held but not executed twice; whether there is one is only certain when the worker stands still.
    async fn freeze_victim(&self, is_good_moment: impl Fn() -> bool) -> Result<()> {
        self.until("the worker could not be hit in the middle of its jobs", async || {
            self.until_victim_is_busy().await?;
            self.victim.stop()?;
            self.until("the worker does not stop", async || Ok(self.victim.stands_still()?.then_some(())))
                .await?;
            if is_good_moment() && self.all_held_have_begun().await? {
                return Ok(Some(()));
            }
            self.victim.wake()?;
            Ok(None)
        })
        .await
    }

    /// Waits until the worker has its hands full, or all there is, and every program in them runs.
    async fn until_victim_is_busy(&self) -> Result<()> {
        self.until("the worker runs no job", async || {
            let held = self.held_jobs().await?;
            let effects = self.effects()?;
            let all_run = held.iter().all(|job| effects.is_running(job.id, job.attempt_count));
            let full = held.len() == SLOTS || unfinished(&self.store, &[State::Queued]).await?.is_empty();
            Ok((!held.is_empty() && all_run && full).then_some(()))
        })
        .await
    }

    async fn all_held_have_begun(&self) -> Result<bool> {
        let held = self.held_jobs().await?;
        let effects = self.effects()?;
        Ok(!held.is_empty() && held.iter().all(|job| effects.has_begun(job.id, job.attempt_count)))
    }

    /// Lets the worker speak again.
    pub(super) fn reconnect_victim(&self) -> Result<()> {
        match &self.wire {
            Some(wire) => wire.mend(),
            None => self.victim.wake()?,
        }
        Ok(())
    }

    fn nobody_writes(&self) -> bool {
        let Some(path) = &self.writer_lock else { return true };
        File::open(path).is_ok_and(|file| file.try_lock().is_ok())
    }

    /// Waits until all these have come so far on their way back, but no longer than that.
    pub(super) async fn until_returned(
        &self,
        held: &[JobId],
        struck: Timestamp,
        patience: Duration,
        so_far: fn(&Return) -> Option<Timestamp>,
    ) -> Result<Option<Timestamp>> {
        let begin = Instant::now();
        loop {
            let latest = evidence::latest(&self.returns(held, struck).await?, so_far);
            if latest.is_some() || held.is_empty() || begin.elapsed() > patience {
                return Ok(latest);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// How each of these came back from the worker that was hit.
    pub(super) async fn returns(&self, held: &[JobId], struck: Timestamp) -> Result<Vec<Return>> {
        let mut returns = Vec::new();
        for id in held {
            returns.push(Return::of(&self.store.events(*id, 0, EVENTS_MAX).await?, struck));
        }
        Ok(returns)
    }

    /// Waits until all are done, but no longer than that; how each ended, as first told.
    pub(super) async fn until_done(&self, patience: Duration) -> Result<Ends> {
        let begin = Instant::now();
        let mut ends = Ends::new();
        loop {
            let left: Vec<JobId> = self.ids.iter().filter(|id| !ends.contains_key(id)).copied().collect();
            ends.append(&mut self.ends_of(&left).await?);
            if ends.len() == self.ids.len() || begin.elapsed() > patience {
                return Ok(ends);
            }
            tokio::time::sleep(LOOK_EVERY * 5).await;
        }
    }

    /// How those ended that are done.
    pub(super) async fn ends(&self) -> Result<Ends> {
        self.ends_of(&self.ids).await
    }

    async fn ends_of(&self, ids: &[JobId]) -> Result<Ends> {
        let mut ends = Ends::new();
        for id in ids {
            if let Some(end) = self.store.job(*id).await?.as_ref().and_then(End::of) {
                ends.insert(*id, end);
            }
        }
        Ok(ends)
    }

    /// What the jobs of this drill themselves wrote.
    pub(super) fn effects(&self) -> Result<Effects> {
        match std::fs::read_to_string(self.folder.path().join(EFFECTS)) {
            Ok(written) => Ok(Effects::read(&written, &self.ids)),
            // None has begun.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Effects::default()),
            Err(error) => Err(Failure::io("cannot read what the jobs did", &error)),
        }
    }

    /// Asks the workers to end. One of them may be dead already; none can while it does not reach the store.
    pub(super) async fn end_workers(&mut self) {
        if let Some(wire) = &self.wire {
            wire.mend();
        }
        tokio::join!(self.victim.end(), self.other.end());
    }

    /// Ends the workers and whatever is left of the drill in the store. The folder goes as well.
    pub(super) async fn close(mut self) -> Result<()> {
        self.end_workers().await;
        let rows = workers(&self.store).await?;
        let own = rows.iter().filter(|row| self.owns(row)).map(|row| row.id).collect();
        leave(&self.store, own, std::mem::take(&mut self.ids)).await
    }

    fn owns(&self, row: &WorkerRow) -> bool {
        self.victim.is_called(&row.name) || self.other.is_called(&row.name)
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

/// Makes sure that no other drill is on, and ends what a killed one has left.
async fn clear_queue(store: &SharedStore) -> Result<()> {
    // The jobs first: a drill enqueues when its workers have registered, so whose jobs are found here, and who still
    // lives, has workers in the second list.
    let left = unfinished(store, &[State::Queued, State::Processing]).await?;
    let workers = workers(store).await?;
    if let Some(alive) = workers.iter().find(|row| row.alive) {
        return Err(occupied(alive));
    }
    let silent = workers.iter().map(|row| row.id).collect();
    leave(store, silent, left.iter().map(|job| job.id).collect()).await
}

/// The workers of drills, this one's and others'.
async fn workers(store: &SharedStore) -> Result<Vec<WorkerRow>> {
    let mut rows = store.workers().await?;
    // Somebody may have a queue of this name for other work.
    rows.retain(|row| {
        row.queues.iter().any(|queue| queue == QUEUE) && row.kinds.iter().any(|kind| kind == KIND)
    });
    Ok(rows)
}

/// The jobs of drills in these states.
async fn unfinished(store: &SharedStore, states: &[State]) -> Result<Vec<Job>> {
    let filter = JobFilter {
        queue: Some(QUEUE.to_owned()),
        kind: Some(KIND.to_owned()),
        states: states.to_vec(),
        limit: 1000,
        ..JobFilter::default()
    };
    Ok(store.jobs(filter).await?)
}

fn occupied(by: &WorkerRow) -> Failure {
    let message = format!("another drill is on: its worker {} serves the queue {QUEUE:?}", by.name);
    Failure::new(Exit::Conflict, "CONFLICT", message).help(
        "wait for its end; if it was killed, its workers count as alive until their lease is over: 'stargate workers'",
    )
}

/// Ends what workers that run no more have left in the store. In their name: a killed one cannot say itself that its jobs
/// are free, and its lease may go on for minutes in which nobody looks.
async fn leave(store: &SharedStore, workers: Vec<WorkerId>, jobs: Vec<JobId>) -> Result<()> {
    for worker in workers {
        // Takes from it what it has lost already, and keeps the rest for the next statement.
        store.beat(worker).await?;
        let fences = store.owned(worker).await?;
        let aborted = fences.into_iter().map(|fence| Settlement { fence, outcome: Outcome::Aborted });
        store.settle(aborted.collect()).await?;
        store.worker_remove(worker).await?;
    }
    for some in jobs.chunks(BULK_MAX) {
        // Those that have ended stay as they are.
        store.cancel_many(some.to_vec()).await?;
    }
    Ok(())
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
