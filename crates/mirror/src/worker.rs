//! The worker: reads the journal in order and sees to it that the remote has what each entry says.
//!
//! ```text
//!  read ─▶ decide (plan) ─▶ push ─▶ judge (classify) ─▶ record ─▶ sync journal ─▶ checkpoint ─▶ next
//!                            ▲  │ not yet: ask the remote, wait
//!                            └──┘ tries spent: dead letter, then record as well
//! ```
//!
//! While an entry is being recorded the next is already pushed; pushes themselves never overlap.
//!
//! Promises: an entry is accounted for (a status record, and a dead letter if it was given up) before the checkpoint
//! passes it; a process that dies anywhere comes back to at most two entries that were pushed, and finds the refs in
//! place (INV-1). Nothing is forced and nothing is deleted (INV-4). Only what [`Permit`](crate::Permit) allows is
//! pushed. While the remote is away, entries wait (see [`breaker`](crate::breaker)).

mod books;
mod doubt;
mod presence;
mod remote;
mod rounds;
mod tries;

use std::sync::Arc;
use std::time::Duration;

use stargate_git::{Git, RepoDir};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::books::LETTERS_OPEN_MAX;
use self::books::{Books, lost};
use self::remote::Remote;
use self::tries::Means;
use crate::breaker::Breaker;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::lock::WorkerLock;
use crate::metrics::Metrics;
use crate::permit::Permit;
use crate::report::WorkerState;

/// How many lines are read ahead.
const WINDOW: usize = 64;
/// How many are when they may go together.
const WINDOW_COALESCED: usize = 4096;
/// From a failure of our own files to the next attempt.
const TROUBLE_PAUSE: Duration = Duration::from_secs(1);
/// Short enough that what was accepted on a full disk is mirrored within a minute of there being room.
const TROUBLE_PAUSE_MAX: Duration = Duration::from_secs(10);
/// How often segments are looked through for old ones.
const TIDY_EVERY: Duration = Duration::from_secs(600);

/// How often, while there is work, the work that waits is counted.
const SHOW_EVERY: Duration = Duration::from_secs(1);

/// What a round is given when the worker is to stop; more than a push is.
const STOP_PATIENCE: Duration = Duration::from_secs(6);

/// Where a worker is; tests have it die there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Lines were read.
    Read,
    /// git is about to be started.
    Pushing,
    /// git has ended.
    Pushed,
    /// Dead letters are on disk.
    DeadLettered,
    /// Status records are.
    Recorded,
    /// What was read of the journal is.
    Synced,
    /// The checkpoint is.
    Checkpointed,
    /// A dead letter was requeued after an outage.
    Requeued,
    /// Entries for refs without one were journaled.
    Reconciled,
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Pushing,
        Self::Pushed,
        Self::DeadLettered,
        Self::Recorded,
        Self::Synced,
        Self::Checkpointed,
        Self::Requeued,
        Self::Reconciled,
    ];

    /// The name by which tests ask for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Pushing => "pushing",
            Self::Pushed => "pushed",
            Self::DeadLettered => "dead-lettered",
            Self::Recorded => "recorded",
            Self::Synced => "synced",
            Self::Checkpointed => "checkpointed",
            Self::Requeued => "requeued",
            Self::Reconciled => "reconciled",
        }
    }
}

/// Told of each step. In production nobody listens.
pub trait Steps: Send + Sync {
    /// A step was reached.
    fn reached(&self, step: Step);
}

impl Steps for () {
    fn reached(&self, _: Step) {}
}

/// What a round of work came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// Something was done; there may be more.
    Worked,
    /// Nothing is to be done now.
    Idle,
    /// The remote is away; the next probe is due after this.
    Waiting(Duration),
    /// Another node leads.
    NotLeader,
    /// The worker was asked to stop.
    Stopped,
}

/// What became of a journal that was to be drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// How it ended: [`Round::Idle`] means that nothing is left.
    pub end: Round,
    /// Entries that still wait, as far as they were read.
    pub left: u64,
}

/// Speaks to a running worker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    wake: Arc<Notify>,
    state: watch::Receiver<WorkerState>,
}

impl Handle {
    /// There may be new lines: look now.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// One that nobody listens to but a test.
    #[cfg(test)]
    pub(crate) fn of_nobody() -> (Self, Arc<Notify>) {
        let (wake, state) = (Arc::new(Notify::new()), watch::Sender::new(WorkerState::default()));
        (Self { wake: Arc::clone(&wake), state: state.subscribe() }, wake)
    }

    /// What the worker says about itself.
    pub fn state(&self) -> WorkerState {
        self.state.borrow().clone()
    }
}

/// The worker of one repository.
pub struct Worker {
    remote: Remote,
    means: Means,
    breaker: Breaker,
    /// Away while a thread has them.
    books: Option<Books>,
    metrics: Metrics,
    wake: Arc<Notify>,
    state: watch::Sender<WorkerState>,
    began: Instant,
    reconciled: Option<Instant>,
    /// The remote took a push since an entry was given up because others got through.
    taken: bool,
    tidied: Instant,
    shown: Option<Instant>,
    /// So many entries go one by one, because they could not go together.
    singly: usize,
    lock: Arc<WorkerLock>,
}

impl Worker {
    /// Opens the files of a repository and takes its lock. Blocks for a moment.
    pub fn open(git: Git, repo: RepoDir, config: Config, permit: Arc<dyn Permit>) -> Result<Self> {
        Self::open_with(git, repo, config, permit, Arc::new(()))
    }

    /// The same, with somebody who is told of each step.
    pub fn open_with(
        git: Git,
        repo: RepoDir,
        config: Config,
        permit: Arc<dyn Permit>,
        steps: Arc<dyn Steps>,
    ) -> Result<Self> {
        config.check()?;
        let lock = Arc::new(WorkerLock::claim(repo.path(), config.claim())?);
        let books = Books::open(repo.path(), &config.routes, &lock, Arc::clone(&steps))?;
        let permit = Arc::new(Held { permit, lock: Arc::clone(&lock) });
        let breaker = Breaker::new(config.probes).with_letters(books.outage_letters()?, Duration::ZERO);
        let began = Instant::now();
        Ok(Self {
            metrics: Metrics::new(repo.path()),
            means: Means { permit, steps, stop: CancellationToken::new() },
            remote: Remote::new(git, repo, config),
            breaker,
            books: Some(books),
            wake: Arc::new(Notify::new()),
            state: watch::Sender::new(WorkerState::default()),
            began,
            reconciled: None,
            taken: false,
            tidied: began,
            shown: None,
            singly: 0,
            lock,
        })
    }

    /// Speaks to this worker while it runs.
    pub fn handle(&self) -> Handle {
        Handle { wake: Arc::clone(&self.wake), state: self.state.subscribe() }
    }

    /// Works until it is told to stop or may not push any more.
    ///
    /// Trouble with the files is waited out; an error that is returned ends the process if it is
    /// [`FailStop`](crate::Error::FailStop).
    pub async fn run(&mut self, stop: CancellationToken) -> Result<Round> {
        self.means.stop = stop;
        let end = self.work().await?;
        self.note_end()?;
        Ok(end)
    }

    async fn work(&mut self) -> Result<Round> {
        let mut pause = TROUBLE_PAUSE;
        loop {
            let wait = match self.round_or_stop().await {
                Ok(Round::Worked) => {
                    pause = TROUBLE_PAUSE;
                    continue;
                }
                Ok(Round::Idle) => self.idle_time(),
                Ok(Round::Waiting(wait)) => wait,
                Ok(end @ (Round::NotLeader | Round::Stopped)) => return Ok(end),
                // Somebody has taken the lock over.
                Err(Error::NotLeader) => return Ok(Round::NotLeader),
                Err(error) if error.is_fail_stop() => return Err(error),
                Err(error) => {
                    tracing::error!(%error, source = ?error, "the mirror's files do not work; tried again");
                    self.reopen().await?;
                    let wait = pause;
                    pause = (pause * 2).min(TROUBLE_PAUSE_MAX);
                    wait
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.wake.notified() => {}
                () = self.means.stop.cancelled() => return Ok(Round::Stopped),
            }
        }
    }

    /// Works until nothing is left, or until the remote is away.
    pub async fn drain(&mut self, stop: CancellationToken) -> Result<Drained> {
        self.means.stop = stop;
        loop {
            let end = self.round_or_stop().await?;
            if end != Round::Worked {
                let left = self.books.as_mut().map_or(0, |books| books.pending().len() as u64);
                self.note_end()?;
                return Ok(Drained { end, left });
            }
            if self.means.stop.is_cancelled() {
                return Ok(Drained { end: Round::Stopped, left: 0 });
            }
        }
    }

    /// One round, but not much longer when it is to stop: a remote that is asked and does not answer is not waited for.
    /// What threads write meanwhile is seen through, with the lock.
    async fn round_or_stop(&mut self) -> Result<Round> {
        let stop = self.means.stop.clone();
        let late = async move {
            stop.cancelled().await;
            tokio::time::sleep(STOP_PATIENCE).await;
        };
        tokio::select! {
            round = self.run_once() => round,
            () = late => Ok(Round::Stopped),
        }
    }

    fn idle_time(&self) -> Duration {
        let config = self.remote.config();
        let reconcile = self.reconciled.map_or(Duration::ZERO, |at| {
            (at + config.reconcile_every).saturating_duration_since(Instant::now())
        });
        config.poll_every.min(reconcile.max(Duration::from_millis(1)))
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Runs work on files on a thread for that.
    async fn on_books<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Books) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut books = self.books.take().ok_or_else(lost)?;
        let done = tokio::task::spawn_blocking(move || {
            let answer = work(&mut books);
            (books, answer)
        });
        let (books, answer) = done.await.map_err(|_| lost())?;
        self.books = Some(books);
        answer
    }

    /// Begins anew with what is on disk.
    async fn reopen(&mut self) -> Result<()> {
        let (repo, routes) = (self.remote.repo().path().to_owned(), self.remote.config().routes.clone());
        let (lock, steps) = (Arc::clone(&self.lock), Arc::clone(&self.means.steps));
        let opened = tokio::task::spawn_blocking(move || Books::open(&repo, &routes, &lock, steps));
        match opened.await.map_err(|_| lost())? {
            Ok(books) => self.books = Some(books),
            Err(error) if error.is_fail_stop() => return Err(error),
            // As before; what does not work now is tried again with the next round.
            Err(error) => tracing::error!(%error, "the mirror's files cannot be opened"),
        }
        self.remote.forget();
        Ok(())
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("repo", self.remote.repo()).finish_non_exhaustive()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Err(error) = self.note_end() {
            tracing::error!(%error, "the mirror ended, and others are not told");
        }
    }
}

/// A permit that holds for as long as the lock is ours.
struct Held {
    permit: Arc<dyn Permit>,
    lock: Arc<WorkerLock>,
}

impl Permit for Held {
    fn may_push(&self) -> bool {
        self.permit.may_push() && self.lock.is_ours()
    }
}
