//! Being leader, as the rest of the program sees it: asked of the clock at each use, never remembered.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::boot::{Clock, Instant};
use crate::elector::{Known, Phase};
use crate::epoch::Epoch;
use crate::error::{Error, Result};
use crate::lease::Holder;

/// A time of leadership: its number, and how long it is trusted without renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// The number that the protected store compares in every guarded write.
    pub epoch: Epoch,
    /// Not leader from here on, unless renewed.
    pub deadline: Instant,
}

/// Where a node stands, at one moment.
#[derive(Debug, Clone)]
pub struct Standing {
    /// What the node is doing.
    pub phase: Phase,
    /// The term, if it is still valid.
    pub term: Option<Term>,
    /// Who leads, as far as this node knows.
    pub leader: Option<Holder>,
    /// How long the leader's lock lives without renewal.
    pub lease_left: Option<Duration>,
    /// What went wrong last, while nothing has gone right since.
    pub trouble: Option<String>,
}

/// What the service tells the handles.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    pub(crate) phase: Phase,
    pub(crate) term: Option<(Term, Work)>,
    pub(crate) known: Option<Known>,
    pub(crate) trouble: Option<String>,
}

/// What a handle may ask of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    StepDown,
    Deposed(Epoch),
}

/// The work of one term.
#[derive(Debug, Clone, Default)]
pub(crate) struct Work {
    tracker: TaskTracker,
    stopping: CancellationToken,
    over: CancellationToken,
}

impl Work {
    /// Asks the work to end.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
        self.tracker.close();
    }

    /// Drops the work that runs under [`Guard::run`], and asks the rest once more.
    pub(crate) fn abort(&self) {
        self.stop();
        self.over.cancel();
    }

    /// Whether the work was told to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Waits until the last guard is gone.
    pub(crate) async fn joined(self) {
        self.tracker.wait().await;
    }
}

/// A handle on leadership: cheap to clone and to ask.
///
/// ```
/// # use std::sync::Arc;
/// # use stargate_leader::*;
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let settings = Settings::of(Holder { instance: "node-1".to_owned(), address: None });
/// let epochs = Arc::new(MemoryEpochs::default());
/// let (service, leadership) = Service::new(Config::new(settings).unwrap(), Arc::new(Unlocked), epochs);
/// let tasks = stargate_base::Tasks::new();
/// tasks.spawn(service.run(tasks.stopping()));
///
/// let guard = leadership.acquired().await;
/// // Work that must not outlive the term; the store compares the epoch in the same statement.
/// guard.run(async { assert_eq!(guard.epoch().get(), 1) }).await.unwrap();
/// drop(guard); // Stepping down waits for it.
/// tasks.join().await;
/// assert!(!leadership.is_leader());
/// # }
/// ```
#[derive(Clone)]
pub struct Leadership {
    pub(crate) state: watch::Receiver<Published>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) holder: Holder,
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("standing", &self.standing()).finish_non_exhaustive()
    }
}

impl Leadership {
    /// Whether this node leads, now. The answer ages: the store has the last word by comparing the epoch.
    pub fn is_leader(&self) -> bool {
        self.current().is_some()
    }

    /// The term, if it is valid now.
    pub fn current(&self) -> Option<Term> {
        let term = self.state.borrow().term.as_ref().map(|(term, _)| *term)?;
        (self.clock.now() < term.deadline).then_some(term)
    }

    /// How long the term is valid without renewal; `None` on a standby.
    pub fn lease_left(&self) -> Option<Duration> {
        self.current().map(|term| self.clock.now().until(term.deadline))
    }

    /// This node.
    pub fn instance(&self) -> &Holder {
        &self.holder
    }

    /// Who leads, as far as this node knows; nobody when the news is older than the lock.
    pub fn known_leader(&self) -> Option<Holder> {
        self.standing().leader
    }

    /// Everything at one moment.
    pub fn standing(&self) -> Standing {
        let published = self.state.borrow();
        let now = self.clock.now();
        let known = published.known.as_ref().filter(|known| now < known.until);
        Standing {
            phase: published.phase,
            term: published.term.as_ref().map(|(term, _)| *term).filter(|term| now < term.deadline),
            leader: known.map(|known| known.holder.clone()),
            lease_left: known.map(|known| now.until(known.until)),
            trouble: published.trouble.clone(),
        }
    }

    /// Permission to act as leader, which stepping down waits for. Refused when this node does not lead now.
    pub fn guard(&self) -> Result<Guard> {
        // Stepping down publishes before it begins to wait, and publishing waits for this borrow: a guard is either
        // refused or waited for.
        let published = self.state.borrow();
        match &published.term {
            Some((term, work)) if self.clock.now() < term.deadline => Ok(Guard {
                epoch: term.epoch,
                leadership: self.clone(),
                stopping: work.stopping.clone(),
                over: work.over.clone(),
                _counted: work.tracker.token(),
            }),
            _ => {
                drop(published);
                Err(Error::NotLeader { leader: self.known_leader() })
            }
        }
    }

    /// Waits until this node leads. Never ends if it never does.
    pub async fn acquired(&self) -> Guard {
        let mut state = self.state.clone();
        loop {
            state.borrow_and_update();
            if let Ok(guard) = self.guard() {
                return guard;
            }
            if state.changed().await.is_err() {
                // The service is gone: this node leads no more.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until something changed: the phase, the leader, the deadline.
    pub fn watch(&self) -> Changes {
        Changes(self.state.clone())
    }

    /// Runs `work` in every term of this node until `stop`: started when a term begins, told to end by
    /// [`Guard::stopping`], dropped when the term is over, started again if it ends before its term.
    pub async fn while_leading<F, Fut>(&self, stop: CancellationToken, mut work: F)
    where
        F: FnMut(Guard) -> Fut,
        Fut: Future<Output = ()>,
    {
        while let Some(guard) = stop.run_until_cancelled(self.acquired()).await {
            let over = guard.over.clone();
            let stopping = guard.stopping.clone();
            // Dropped or ended, the guard goes with the work, and stepping down goes on.
            over.run_until_cancelled(work(guard)).await;
            if !stopping.is_cancelled() {
                // A pause, or work that ends at once would spin.
                let pause = tokio::time::sleep(Duration::from_secs(1));
                stop.run_until_cancelled(stopping.run_until_cancelled(pause)).await;
            }
        }
    }

    /// Tells that the store has refused a write of this epoch. If that is the current term, this node steps down:
    /// whatever it believes, the store has another leader.
    pub fn deposed(&self, epoch: Epoch) {
        // A full channel holds the same word already, or one that ends the term as well.
        let _ = self.requests.try_send(Request::Deposed(epoch));
    }

    /// Lets another node lead: ends guarded work, gives the lock back, and stays behind for a while. Ends when that
    /// is done.
    pub async fn step_down(&self) -> Result<()> {
        let mut state = self.state.clone();
        if !matches!(state.borrow_and_update().phase, Phase::Leader | Phase::Entering) {
            return Err(Error::NotLeader { leader: self.known_leader() });
        }
        // The service is gone only when it has ended, which the wait below sees.
        let _ = self.requests.send(Request::StepDown).await;
        let gone = |published: &Published| matches!(published.phase, Phase::Standby | Phase::Ended);
        let _ = state.wait_for(gone).await;
        Ok(())
    }
}

/// Waits for changes of leadership.
#[derive(Debug)]
pub struct Changes(watch::Receiver<Published>);

impl Changes {
    /// Ends at the next change; `false` when there will be none, because the service has ended.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// Permission to act as leader in one term. Stepping down waits until it is dropped.
#[derive(Debug)]
pub struct Guard {
    epoch: Epoch,
    leadership: Leadership,
    stopping: CancellationToken,
    over: CancellationToken,
    _counted: TaskTrackerToken,
}

impl Guard {
    /// The number that guarded writes carry.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the term is still valid, now.
    pub fn is_valid(&self) -> bool {
        self.leadership.current().is_some_and(|term| term.epoch == self.epoch)
    }

    /// Cancelled when the work is to end. It has a short while; then the term is over.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Cancelled when the term is over: at once with [`Guard::stopping`] if the lock is gone, a short while after it in an
    /// orderly handover, which keeps the lock until the last guard is dropped.
    pub fn over(&self) -> CancellationToken {
        self.over.clone()
    }

    /// Tells that the store has refused a write of this term: see [`Leadership::deposed`].
    pub fn deposed(&self) {
        self.leadership.deposed(self.epoch);
    }

    /// Runs a future for as long as the term lasts; drops it where it stands when the term is over.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        let lost = || Error::NotLeader { leader: self.leadership.known_leader() };
        self.over.run_until_cancelled(work).await.ok_or_else(lost)
    }
}

impl Clone for Guard {
    fn clone(&self) -> Self {
        Self {
            epoch: self.epoch,
            leadership: self.leadership.clone(),
            stopping: self.stopping.clone(),
            over: self.over.clone(),
            _counted: self._counted.clone(),
        }
    }
}
