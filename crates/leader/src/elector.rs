//! Who leads, decided: a state machine without clock, network or tasks.
//!
//! Events go in with the time they are seen at, actions come out. Everything that is asked for carries a number, and
//! an answer to anything but the current question is dropped. The moment a question was asked is remembered here:
//! trust in a lock counts from then, because the lock may have been taken any time after.

mod event;
mod guard;
mod standby;
mod state;
mod step;
#[cfg(test)]
mod tests;

use std::time::Duration;

use rand::rngs::StdRng;

use crate::boot::Instant;
use crate::config::Config;
use crate::epoch::Epoch;
use crate::error::{Error, Result};
use crate::lease::{Released, Renewed, Token};
use crate::term::Term;
pub use event::{Action, Event, Known, Manner, Note, Phase, Reason};
use guard::ServerGuard;
use state::{Ask, Leaving, Pending, Renewal, Rest, State, Yielding};

/// A standby tries this much after the lock should be free, spread so that standbys do not collide.
const JITTER_MS: std::ops::RangeInclusive<u64> = 1..=50;

/// A hint that the lock is free spreads the tries by this much.
const HINT_JITTER_MS: std::ops::RangeInclusive<u64> = 0..=20;

/// A node that makes room for others looks who leads so many times in the pause between two tries of a standby.
const LOOKS: u32 = 20;

/// In a handover, work that was asked to end has so long; then it is dropped where it stands. A successor does not wait
/// for a slow store: what is left of a dropped write, the store takes before it records the end of the term, or not at all.
const POLITENESS: Duration = Duration::from_millis(500);

/// Being deposed is remembered for so many times the longest pause: two nodes that depose each other wait longer and
/// longer.
const FEUD_MEMORY: u32 = 10;

/// The state machine of one node.
///
/// ```
/// use rand::SeedableRng as _;
/// use stargate_leader::boot::Instant;
/// use stargate_leader::elector::{Action, Event};
/// use stargate_leader::{Config, Elector, Holder, Phase, Settings};
///
/// let settings = Settings::of(Holder { instance: "node-1".to_owned(), address: None });
/// let now = Instant::default();
/// let rng = rand::rngs::StdRng::seed_from_u64(1);
/// let mut elector = Elector::new(Config::new(settings).unwrap(), rng, now);
/// // The first thing it wants is the lock.
/// let actions = elector.handle(now, Event::Tick);
/// assert!(matches!(actions[..], [Action::Acquire(..)]));
/// assert_eq!(elector.phase(), Phase::Standby);
/// ```
#[derive(Debug)]
pub struct Elector {
    config: Config,
    rng: StdRng,
    guard: ServerGuard,
    state: State,
    /// Names the next acquisition. Kept over failed calls, because one of them may have succeeded unseen.
    token: Token,
    /// Whether a bid with this token failed without an answer.
    unsure: bool,
    /// A lock of ours that may still be there and is to be removed on the next contact.
    debt: Option<Token>,
    calls: u64,
    /// Troubles in a row while not leading.
    troubles: u32,
    stopping: bool,
    /// Others go first.
    yielding: Option<Yielding>,
    /// A hint came while a question was open; the answer may be older than the hint.
    hinted: bool,
    /// The server run whose wait was told.
    guarded: Option<String>,
    /// When the store last deposed us, and how often in a row.
    deposed: Option<(Instant, u32)>,
    known: Option<Known>,
    epoch_last: Option<Epoch>,
}

/// What one event led to.
type Out = Vec<Action>;

impl Elector {
    /// A node that has not tried yet. The generator makes tokens: seed it from the system.
    pub fn new(config: Config, mut rng: StdRng, now: Instant) -> Self {
        let token = Token::random(&mut rng);
        let guard = ServerGuard::new(config.startup_guard, config.ttl);
        Self {
            config,
            rng,
            guard,
            state: State::Resting { until: now, why: Rest::Ready },
            token,
            unsure: false,
            debt: None,
            calls: 0,
            troubles: 0,
            stopping: false,
            yielding: None,
            hinted: false,
            guarded: None,
            deposed: None,
            known: None,
            epoch_last: None,
        }
    }

    /// When to send [`Event::Tick`] if nothing else happens before.
    pub fn wake(&self) -> Option<Instant> {
        self.state.wake()
    }

    /// Where the node stands.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Resting { .. } | State::Asking { .. } => Phase::Standby,
            State::Entering { .. } => Phase::Entering,
            State::Leading { .. } => Phase::Leader,
            State::Leaving(_) | State::Freeing { .. } => Phase::Leaving,
            State::Ended => Phase::Ended,
        }
    }

    /// The term, while there is one. Whether it is still valid is to be asked of the clock at each use.
    pub fn term(&self) -> Option<Term> {
        match &self.state {
            State::Leading { lock, epoch, .. } => Some(Term { epoch: *epoch, deadline: lock.deadline }),
            _ => None,
        }
    }

    /// Who leads, as far as this node knows.
    pub fn known(&self) -> Option<Known> {
        match &self.state {
            State::Leading { lock, .. } => {
                Some(Known { holder: self.config.holder.clone(), until: lock.deadline })
            }
            _ => self.known.clone(),
        }
    }

    /// Takes in what happened and says what to do about it.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        // First: an answer that arrives after the deadline is too late, whatever it says.
        self.expire(now, &mut out);
        match event {
            Event::Tick => {}
            Event::Acquired(id, reply) => self.on_acquired(now, id, reply, &mut out),
            Event::Renewed(id, reply) => self.on_renewed(now, id, reply, &mut out),
            Event::Released(id, reply) => self.on_released(now, id, reply, &mut out),
            Event::Issued(id, reply) => self.on_issued(now, id, reply, &mut out),
            Event::Joined => self.on_joined(now, &mut out),
            Event::Inspected(id, reply) => self.on_inspected(now, id, reply, &mut out),
            Event::Hint(hint) => self.on_hint(now, &hint),
            Event::Suspended => self.on_suspended(now, &mut out),
            Event::Deposed(epoch) => self.on_deposed(now, epoch, &mut out),
            Event::StepDown => self.on_step_down(now, &mut out),
            Event::Stop => self.on_stop(now, &mut out),
        }
        self.overdue(now, &mut out);
        self.due(now, &mut out);
        out
    }

    /// Ends what the clock has ended.
    fn expire(&mut self, now: Instant, out: &mut Out) {
        match &mut self.state {
            State::Leading { lock, .. } if now >= lock.deadline => self.leave(now, Reason::Expired, out),
            State::Entering { lock, .. } if now >= lock.deadline => {
                let token = lock.token;
                self.owe(token);
                self.rest(now, Rest::Trouble, out);
            }
            State::Leaving(leaving) => {
                if leaving.manner == Manner::Politely && now >= leaving.polite_until {
                    leaving.manner = Manner::AtOnce;
                    out.push(Action::StopWork(Manner::AtOnce));
                }
                if now >= leaving.lock.deadline {
                    leaving.renewal = None;
                }
            }
            _ => {}
        }
    }

    /// Treats questions without answer as failed.
    fn overdue(&mut self, now: Instant, out: &mut Out) {
        let late = |call: &Pending| (now >= call.expires).then_some(call.id);
        match &self.state {
            State::Asking { call, what } => match (late(call), what) {
                (Some(id), Ask::Acquire) => self.on_acquired(now, id, Err(unanswered("acquire")), out),
                (Some(id), Ask::Adopt) => self.on_renewed(now, id, Err(unanswered("renew")), out),
                (Some(id), Ask::Look) => self.on_inspected(now, id, Err(unanswered("inspect")), out),
                (Some(id), Ask::Repay) => self.on_released(now, id, Err(unanswered("release")), out),
                (None, _) => {}
            },
            State::Freeing { call, .. } => {
                if let Some(id) = late(call) {
                    self.on_released(now, id, Err(unanswered("release")), out);
                }
            }
            State::Entering { call, .. } => {
                if let Some(id) = late(call) {
                    let problem = "it did not answer in time".to_owned();
                    self.on_issued(now, id, Err(Error::Epoch { problem }), out);
                }
            }
            State::Leading { renewal: Renewal::Asked { call, .. }, .. }
            | State::Leaving(Leaving { renewal: Some(Renewal::Asked { call, .. }), .. }) => {
                if let Some(id) = late(call) {
                    self.on_renewed(now, id, Err(unanswered("renew")), out);
                }
            }
            _ => {}
        }
    }

    /// Asks what it is time to ask.
    fn due(&mut self, now: Instant, out: &mut Out) {
        match &mut self.state {
            State::Resting { until, .. } if now >= *until => self.try_again(now, out),
            State::Leading { lock, renewal: Renewal::Due { at, failures }, .. } if now >= *at => {
                let (lock, failures) = (*lock, *failures);
                let call = self.ask_renewal(now, lock, out);
                self.set_renewal(Renewal::Asked { call, failures });
            }
            State::Leaving(leaving) => {
                if leaving.complain.is_some_and(|at| now >= at) {
                    leaving.complain = None;
                    // Work that never ends must not keep the lock from others for ever.
                    leaving.renewal = None;
                    out.push(Action::Tell(Note::WorkLingers(leaving.epoch)));
                }
                if let Some(Renewal::Due { at, failures }) = leaving.renewal
                    && now >= at
                {
                    let lock = leaving.lock;
                    let call = self.ask_renewal(now, lock, out);
                    self.set_renewal(Renewal::Asked { call, failures });
                }
            }
            _ => {}
        }
    }

    fn on_renewed(&mut self, now: Instant, id: u64, reply: Result<Renewed>, out: &mut Out) {
        match &self.state {
            State::Asking { call, what: Ask::Adopt } if call.id == id => {
                let sent = call.sent;
                self.on_adopted(now, sent, reply, out);
            }
            State::Leading { lock, renewal: Renewal::Asked { call, failures }, .. } if call.id == id => {
                let (lock, sent, failures) = (*lock, call.sent, *failures);
                match judge_renewal(reply, out) {
                    Ok(true) => self.extended(lock, sent),
                    Ok(false) => self.leave(now, Reason::Lost, out),
                    Err(error) => self.renewal_failed(now, failures + 1, error, out),
                }
            }
            State::Leaving(Leaving { lock, renewal: Some(Renewal::Asked { call, .. }), .. })
                if call.id == id =>
            {
                let (lock, sent) = (*lock, call.sent);
                match judge_renewal(reply, out) {
                    Ok(true) => self.extended(lock, sent),
                    Ok(false) => self.lost_while_leaving(out),
                    Err(_) => {
                        let at = now + self.config.renew_retries[0];
                        self.set_renewal(Renewal::Due { at, failures: 0 });
                    }
                }
            }
            _ => {}
        }
    }

    fn on_released(&mut self, now: Instant, id: u64, reply: Result<Released>, out: &mut Out) {
        match &self.state {
            State::Asking { call, what: Ask::Repay } if call.id == id => match reply {
                Ok(_) => {
                    self.debt = None;
                    self.troubles = 0;
                    self.rest_for(now, Duration::ZERO, Rest::Ready, out);
                }
                Err(error) => self.trouble(now, error, out),
            },
            State::Freeing { token, call, then } if call.id == id => {
                let (token, then) = (*token, *then);
                match reply {
                    Ok(_) => self.rest(now, then, out),
                    Err(error) => {
                        // The lock may still be there. It ends by itself, but we can be faster.
                        self.owe(token);
                        self.trouble(now, error, out);
                    }
                }
            }
            _ => {}
        }
    }

    fn on_issued(&mut self, now: Instant, id: u64, reply: Result<Epoch>, out: &mut Out) {
        let State::Entering { lock, call } = &self.state else { return };
        if call.id != id {
            return;
        }
        let lock = *lock;
        let reply = reply.and_then(|epoch| match self.epoch_last {
            Some(last) if epoch <= last => {
                let problem = format!("{epoch} is not higher than {last}, which this node has had before");
                Err(Error::Epoch { problem })
            }
            _ => Ok(epoch),
        });
        match reply {
            Ok(epoch) => {
                self.troubles = 0;
                self.epoch_last = Some(epoch);
                self.known = None;
                let at = lock.sent + self.config.renew_every;
                self.state = State::Leading { lock, epoch, renewal: Renewal::Due { at, failures: 0 } };
                out.push(Action::StartWork(Term { epoch, deadline: lock.deadline }));
                out.push(Action::Tell(Note::BecameLeader(epoch)));
            }
            Err(error) => {
                let pause = self.pause();
                out.push(Action::Tell(Note::Trouble(error, pause)));
                self.free(now, lock.token, Rest::Trouble, out);
            }
        }
    }

    fn on_joined(&mut self, now: Instant, out: &mut Out) {
        let State::Leaving(leaving) = &self.state else { return };
        let (token, epoch, reason, lost) = (leaving.lock.token, leaving.epoch, leaving.reason, leaving.lost);
        out.push(Action::EndTerm(epoch, reason));
        let then = match reason {
            Reason::StepDown | Reason::Deposed => {
                let until = now + self.yield_for(reason);
                self.yielding = Some(Yielding { until, fresh: false });
                Rest::Ready
            }
            Reason::RenewalFailed => Rest::Trouble,
            Reason::Shutdown | Reason::Lost | Reason::Expired | Reason::Suspended => Rest::Ready,
        };
        if lost {
            self.rest(now, then, out);
        } else {
            self.free(now, token, then, out);
        }
    }

    fn on_suspended(&mut self, now: Instant, out: &mut Out) {
        match &self.state {
            State::Leading { .. } => self.leave(now, Reason::Suspended, out),
            State::Entering { lock, .. } => {
                let token = lock.token;
                self.free(now, token, Rest::Ready, out);
            }
            _ => {}
        }
    }

    fn on_deposed(&mut self, now: Instant, epoch: Epoch, out: &mut Out) {
        // A word about an earlier term says nothing about this one.
        if matches!(&self.state, State::Leading { epoch: current, .. } if *current == epoch) {
            let recent = |at: Instant| now.since(at) < self.config.retry_max * FEUD_MEMORY;
            let before = self.deposed.filter(|(at, _)| recent(*at)).map_or(0, |(_, times)| times);
            self.deposed = Some((now, before.saturating_add(1)));
            self.leave(now, Reason::Deposed, out);
            out.push(Action::Tell(Note::Deposed(epoch, self.yield_for(Reason::Deposed))));
        }
    }

    fn on_step_down(&mut self, now: Instant, out: &mut Out) {
        match &self.state {
            State::Leading { .. } => self.leave(now, Reason::StepDown, out),
            State::Entering { lock, .. } => {
                let token = lock.token;
                let until = now + self.yield_for(Reason::StepDown);
                self.yielding = Some(Yielding { until, fresh: false });
                self.free(now, token, Rest::Ready, out);
            }
            _ => {}
        }
    }

    fn on_stop(&mut self, now: Instant, out: &mut Out) {
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        match &self.state {
            State::Leading { .. } => self.leave(now, Reason::Shutdown, out),
            State::Entering { lock, .. } => {
                let token = lock.token;
                self.free(now, token, Rest::Ready, out);
            }
            State::Resting { .. } => self.rest_for(now, Duration::ZERO, Rest::Ready, out),
            // The answer decides what is left to clean up.
            State::Asking { .. } | State::Leaving(_) | State::Freeing { .. } | State::Ended => {}
        }
    }
}

/// Whether the lock was extended; an extension that did not reach all replicas does not count.
fn judge_renewal(reply: Result<Renewed>, out: &mut Out) -> Result<bool> {
    match reply? {
        Renewed::Extended => Ok(true),
        Renewed::Lost => Ok(false),
        Renewed::Unreplicated { reached, expected } => {
            out.push(Action::Tell(Note::Unreplicated { reached, expected }));
            Err(Error::Unreachable {
                operation: "renew",
                place: "all replicas".to_owned(),
                problem: format!("{reached} of {expected} have it"),
            })
        }
    }
}

fn unanswered(operation: &'static str) -> Error {
    Error::Unreachable { operation, place: "its backend".to_owned(), problem: "no answer in time".to_owned() }
}
