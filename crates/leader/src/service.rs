//! Drives the elector with the real clock, lock and store.
//!
//! One task: nothing here blocks, every answer and every timer comes back as an event. Answers are awaited beside
//! each other, so that a slow store never delays a renewal.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::boot::{Clock, SystemClock};
use crate::config::Config;
use crate::elector::{Action, Elector, Event, Manner, Note, Phase};
use crate::epoch::{Epoch, Epochs};
use crate::error::{Error, Result};
use crate::lease::Lease;
use crate::metrics;
use crate::term::{Leadership, Published, Request, Work};

/// The timers underneath stand still in suspend, so none is set for longer: waking up is noticed within this time.
const NAP_MAX: Duration = Duration::from_millis(500);

/// A jump of the suspended time by more than this is a suspend, and not the two clocks being read apart.
const SUSPEND_MIN: Duration = Duration::from_millis(200);

/// How long recording the end of a term may take.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests of handles that may wait.
const REQUESTS_MAX: usize = 4;

/// An answer on its way.
type Answer = Pin<Box<dyn Future<Output = Event> + Send>>;

/// Leadership of one process. Made once, run until the process ends.
#[derive(Debug)]
pub struct Service {
    config: Config,
    lease: Arc<dyn Lease>,
    epochs: Arc<dyn Epochs>,
    clock: Arc<dyn Clock>,
    published: watch::Sender<Published>,
    requests: mpsc::Receiver<Request>,
}

impl Service {
    /// A service and the handle on it.
    pub fn new(config: Config, lease: Arc<dyn Lease>, epochs: Arc<dyn Epochs>) -> (Self, Leadership) {
        Self::with_clock(config, lease, epochs, Arc::new(SystemClock))
    }

    /// A service whose clock tests can move.
    pub fn with_clock(
        config: Config,
        lease: Arc<dyn Lease>,
        epochs: Arc<dyn Epochs>,
        clock: Arc<dyn Clock>,
    ) -> (Self, Leadership) {
        let published =
            watch::Sender::new(Published { phase: Phase::Standby, term: None, known: None, trouble: None });
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        let leadership = Leadership {
            state: published.subscribe(),
            clock: Arc::clone(&clock),
            requests: sender,
            holder: config.holder.clone(),
        };
        (Self { config, lease, epochs, clock, published, requests }, leadership)
    }

    /// Takes part until `stop` is cancelled and everything is given back.
    pub async fn run(self, stop: CancellationToken) {
        metrics::standby();
        let Self { config, lease, epochs, clock, published, mut requests } = self;
        let elector = Elector::new(config.clone(), StdRng::from_rng(&mut rand::rng()), clock.now());
        let mut driver = Driver {
            config,
            lease: Arc::clone(&lease),
            epochs,
            published,
            elector,
            answers: FuturesUnordered::new(),
            work: None,
            recorded: None,
            trouble: None,
        };
        let mut asleep = clock.suspended();
        let mut hint = lease.hint();
        let mut stopping = false;
        let mut event = Event::Tick;
        while !driver.step(clock.now(), event) {
            let nap = driver.elector.wake().map_or(NAP_MAX, |at| clock.now().until(at).min(NAP_MAX));
            event = tokio::select! {
                biased;
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    Event::Stop
                }
                Some(event) = driver.answers.next(), if !driver.answers.is_empty() => event,
                Some(request) = requests.recv() => match request {
                    Request::StepDown => Event::StepDown,
                    Request::Deposed(epoch) => Event::Deposed(epoch),
                },
                // Only a standby cares, and looking may cost something.
                told = &mut hint, if driver.elector.phase() == Phase::Standby => {
                    hint = lease.hint();
                    Event::Hint(told)
                }
                () = tokio::time::sleep(nap) => Event::Tick,
            };
            let now_asleep = clock.suspended();
            if now_asleep.saturating_sub(asleep) > SUSPEND_MIN {
                driver.step(clock.now(), Event::Suspended);
            }
            asleep = now_asleep;
        }
        driver.drain().await;
    }
}

/// The elector and what it steers.
struct Driver {
    config: Config,
    lease: Arc<dyn Lease>,
    epochs: Arc<dyn Epochs>,
    published: watch::Sender<Published>,
    elector: Elector,
    answers: FuturesUnordered<Answer>,
    work: Option<Work>,
    /// Ends when the end of the last term was recorded, or could not be.
    recorded: Option<oneshot::Receiver<()>>,
    trouble: Option<String>,
}

impl Driver {
    /// Handles one event; `true` when it was the last.
    fn step(&mut self, now: crate::boot::Instant, event: Event) -> bool {
        let actions = self.elector.handle(now, event);
        for action in &actions {
            match action {
                Action::StartWork(_) => self.work = Some(Work::default()),
                Action::Tell(note) => self.note(note),
                _ => {}
            }
        }
        // Before anything is stopped: who asks from here on is refused.
        self.publish();
        let mut over = false;
        for action in actions {
            over |= matches!(action, Action::End);
            self.act(action);
        }
        over
    }

    fn publish(&self) {
        let term = self.elector.term().zip(self.work.clone());
        let known = self.elector.known();
        let phase = self.elector.phase();
        self.published.send_if_modified(|before| {
            let changed = before.phase != phase
                || before.known != known
                || before.trouble != self.trouble
                || before.term.as_ref().map(|t| t.0) != term.as_ref().map(|t| t.0);
            if changed {
                *before = Published { phase, term, known, trouble: self.trouble.clone() };
            }
            changed
        });
    }

    fn act(&mut self, action: Action) {
        let lease = Arc::clone(&self.lease);
        let answer: Answer = match action {
            Action::Acquire(id, bid) => Box::pin(async move {
                let reply = within(bid.timeout, "acquire", &*lease, lease.acquire(&bid)).await;
                Event::Acquired(id, reply)
            }),
            Action::Renew(id, bid) => Box::pin(async move {
                let reply = within(bid.timeout, "renew", &*lease, lease.renew(&bid)).await;
                Event::Renewed(id, reply)
            }),
            Action::Release(id, bid) => {
                let recorded = self.recorded.take();
                Box::pin(async move {
                    // Whoever begins the next term finds this one ended, and why. Not worth a long wait.
                    let (begin, patience) = (tokio::time::Instant::now(), bid.timeout / 4);
                    if let Some(recorded) = recorded {
                        let _ = tokio::time::timeout(patience, recorded).await;
                    }
                    let left = bid.timeout.saturating_sub(begin.elapsed());
                    let reply = within(left, "release", &*lease, lease.release(&bid)).await;
                    Event::Released(id, reply)
                })
            }
            Action::Inspect(id, timeout) => Box::pin(async move {
                let reply = within(timeout, "inspect", &*lease, lease.inspect()).await;
                Event::Inspected(id, reply)
            }),
            Action::IssueEpoch(id, timeout) => self.issue(id, timeout),
            Action::StopWork(manner) => match self.stop_work(manner) {
                Some(joined) => joined,
                None => return,
            },
            Action::EndTerm(epoch, reason) => {
                let epochs = Arc::clone(&self.epochs);
                let (done, recorded) = oneshot::channel();
                self.recorded = Some(recorded);
                Box::pin(async move {
                    let ended = tokio::time::timeout(RECORD_TIMEOUT, epochs.ended(epoch, reason)).await;
                    if !matches!(ended, Ok(Ok(()))) {
                        tracing::warn!(%epoch, %reason, "the end of the term could not be recorded");
                    }
                    // Nobody waits if the lock was lost.
                    let _ = done.send(());
                    Event::Tick
                })
            }
            Action::StartWork(_) | Action::Tell(_) | Action::End => return,
        };
        self.answers.push(answer);
    }

    fn issue(&self, id: u64, timeout: Duration) -> Answer {
        let epochs = Arc::clone(&self.epochs);
        let holder = self.config.holder.clone();
        Box::pin(async move {
            let patience = patience(timeout);
            let reply: Result<Epoch> = match tokio::time::timeout(patience, epochs.issue(&holder)).await {
                Ok(reply) => reply,
                Err(_) => Err(Error::Epoch { problem: format!("no answer within {patience:?}") }),
            };
            Event::Issued(id, reply)
        })
    }

    /// Tells the work to end; the first time there is also a wait for it.
    fn stop_work(&mut self, manner: Manner) -> Option<Answer> {
        let first = self.work.as_ref().is_some_and(|work| !work.is_stopping());
        let work = self.work.clone()?;
        match manner {
            Manner::Politely => work.stop(),
            Manner::AtOnce => work.abort(),
        }
        first.then(|| -> Answer {
            Box::pin(async move {
                work.joined().await;
                Event::Joined
            })
        })
    }

    /// The store has another leader. With a lock that all nodes share that happens after an accident; without one it
    /// will happen again and again.
    fn deposed(&mut self, epoch: Epoch, pause: Duration) {
        if self.lease.is_shared() {
            tracing::warn!(%epoch, retry_in = ?pause, "the store has a newer leader");
        } else {
            self.trouble = Some(UNSHARED.to_owned());
            let place = self.lease.place();
            tracing::error!(%epoch, retry_in = ?pause, lock = place, "the store has a newer leader: {UNSHARED}");
        }
    }

    /// Lets the last records be written.
    async fn drain(mut self) {
        let all = async { while self.answers.next().await.is_some() {} };
        // What else may be there is an answer that nobody waits for any more.
        let _ = tokio::time::timeout(RECORD_TIMEOUT, all).await;
    }

    fn note(&mut self, note: &Note) {
        let instance = &*self.config.holder.instance;
        match note {
            Note::BecameLeader(epoch) => {
                self.trouble = None;
                metrics::began(*epoch);
                tracing::info!(%epoch, instance, "became leader");
            }
            Note::LostLeadership(epoch, reason) => {
                metrics::ended(*reason);
                if reason.is_handover() {
                    tracing::info!(%epoch, %reason, instance, "lost leadership");
                } else {
                    tracing::warn!(%epoch, %reason, instance, "lost leadership");
                }
            }
            Note::RenewalFailed(failures, error) => {
                metrics::renewal_failed();
                self.trouble = Some(error.to_string());
                tracing::warn!(failures, code = error.code(), %error, "cannot renew the leader lock");
            }
            Note::Trouble(error, pause) => {
                self.trouble = Some(error.to_string());
                tracing::warn!(code = error.code(), %error, retry_in = ?pause, "cannot become leader");
            }
            Note::Follows(leader) => {
                self.trouble = None;
                tracing::info!(%leader, instance, "another node leads");
            }
            Note::Guarded { wait, again } => {
                self.trouble = Some("the server of the leader lock is too young to be trusted".to_owned());
                let message = "the server of the leader lock may have forgotten an older lock; waiting";
                if *again {
                    tracing::debug!(?wait, "{message}");
                } else {
                    tracing::info!(?wait, "{message}");
                }
            }
            Note::Deposed(epoch, pause) => self.deposed(*epoch, *pause),
            Note::Unreplicated { reached, expected } => {
                self.trouble = Some(format!("the leader lock is on {reached} of {expected} replicas"));
                tracing::warn!(reached, expected, "the leader lock did not reach all replicas");
            }
            Note::WorkLingers(epoch) => {
                tracing::error!(%epoch, "guarded work does not end; this node stays out until it has");
            }
        }
    }
}

/// What to do about two nodes that share a store and no lock.
const UNSHARED: &str = "another node uses the same store with another lock; nodes on several machines need leader.backend = \"redis\" and \
     one redis_url, nodes on one machine one home or that as well";

async fn within<T>(
    timeout: Duration,
    operation: &'static str,
    lease: &dyn Lease,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let patience = patience(timeout);
    match tokio::time::timeout(patience, call).await {
        Ok(reply) => reply,
        Err(_) => Err(Error::Unreachable {
            operation,
            place: lease.place(),
            problem: format!("no answer within {patience:?}"),
        }),
    }
}

/// A little less than the elector's own, so that it hears where the answer is missing before it gives up.
fn patience(timeout: Duration) -> Duration {
    timeout - timeout / 20
}
