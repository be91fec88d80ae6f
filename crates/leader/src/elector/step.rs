//! The steps that the rules are made of: taking, keeping, leaving and giving back, resting and asking.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::RngExt as _;

use super::state::{Ask, Leaving, Lock, Pending, Renewal, Rest, State};
use super::{Action, Elector, Known, LOOKS, Manner, Note, Out, POLITENESS, Reason};
use crate::boot::Instant;
use crate::error::Error;
use crate::lease::{Bid, Incumbent, Token};

impl Elector {
    /// The lock is ours, asked for at `sent`.
    pub(super) fn granted(&mut self, now: Instant, sent: Instant, out: &mut Out) {
        self.troubles = 0;
        let lock = Lock { token: self.token, sent, deadline: sent + self.config.trust() };
        self.renew_token();
        if self.stopping {
            self.free(now, lock.token, Rest::Ready, out);
        } else if now >= lock.deadline {
            self.owe(lock.token);
            self.rest_for(now, Duration::ZERO, Rest::Ready, out);
        } else {
            let call = self.call(now, now.until(lock.deadline) / 2);
            out.push(Action::IssueEpoch(call.id, now.until(call.expires)));
            self.state = State::Entering { lock, call };
        }
    }

    pub(super) fn extended(&mut self, lock: Lock, sent: Instant) {
        let deadline = lock.deadline.max(sent + self.config.trust());
        let extended = Lock { sent, deadline, ..lock };
        let renewal = Renewal::Due { at: sent + self.config.renew_every, failures: 0 };
        match &mut self.state {
            State::Leading { lock, .. } | State::Leaving(Leaving { lock, .. }) => *lock = extended,
            _ => {}
        }
        self.set_renewal(renewal);
    }

    pub(super) fn renewal_failed(&mut self, now: Instant, failures: u32, error: Error, out: &mut Out) {
        out.push(Action::Tell(Note::RenewalFailed(failures, error)));
        let pauses = &self.config.renew_retries;
        let index = usize::try_from(failures - 1).unwrap_or(usize::MAX);
        let pause = pauses.get(index).or(pauses.last().filter(|_| self.config.renew_until_deadline));
        match pause {
            Some(pause) => self.set_renewal(Renewal::Due { at: now + *pause, failures }),
            None => self.leave(now, Reason::RenewalFailed, out),
        }
    }

    /// Ends the term: from now on this node does not lead.
    pub(super) fn leave(&mut self, now: Instant, reason: Reason, out: &mut Out) {
        let State::Leading { lock, epoch, renewal } = &self.state else { return };
        let manner = reason.manner();
        let polite_until = match reason.is_handover() {
            true => lock.deadline.min(now + POLITENESS),
            // Nobody can take over before anyway.
            false => lock.deadline,
        };
        let leaving = Leaving {
            lock: *lock,
            epoch: *epoch,
            reason,
            manner,
            polite_until,
            renewal: reason.is_handover().then_some(*renewal),
            lost: reason == Reason::Lost,
            complain: Some(now + self.config.ttl),
        };
        out.push(Action::StopWork(manner));
        out.push(Action::Tell(Note::LostLeadership(leaving.epoch, reason)));
        self.state = State::Leaving(leaving);
    }

    pub(super) fn lost_while_leaving(&mut self, out: &mut Out) {
        let State::Leaving(leaving) = &mut self.state else { return };
        leaving.lost = true;
        leaving.renewal = None;
        if leaving.manner == Manner::Politely {
            leaving.manner = Manner::AtOnce;
            out.push(Action::StopWork(Manner::AtOnce));
        }
    }

    /// Gives a lock back, then rests.
    pub(super) fn free(&mut self, now: Instant, token: Token, then: Rest, out: &mut Out) {
        self.retire(token);
        let call = self.call(now, self.config.call_timeout);
        out.push(Action::Release(call.id, self.bid(token, self.config.call_timeout)));
        self.state = State::Freeing { token, call, then };
    }

    pub(super) fn owe(&mut self, token: Token) {
        self.retire(token);
        self.debt = Some(token);
    }

    /// Sees to it that a lock that is given back is never ours again: see [`Token`].
    pub(super) fn retire(&mut self, token: Token) {
        if token == self.token {
            self.renew_token();
        }
    }

    pub(super) fn renew_token(&mut self) {
        self.token = Token::random(&mut self.rng);
        self.unsure = false;
    }

    pub(super) fn trouble(&mut self, now: Instant, error: Error, out: &mut Out) {
        out.push(Action::Tell(Note::Trouble(error, self.pause())));
        self.unsure |= matches!(self.state, State::Asking { what: Ask::Acquire | Ask::Adopt, .. });
        if self.stopping {
            return self.finish(now, out);
        }
        self.rest(now, Rest::Trouble, out);
    }

    /// The pause after the next trouble in a row.
    pub(super) fn pause(&self) -> Duration {
        let doubled = self.config.retry_every.saturating_mul(1 << self.troubles.min(16));
        doubled.min(self.config.retry_max)
    }

    pub(super) fn rest(&mut self, now: Instant, why: Rest, out: &mut Out) {
        let wait = match why {
            Rest::Ready => Duration::ZERO,
            Rest::Held | Rest::Guarded => self.config.retry_every,
            Rest::Yield => self.config.retry_every / LOOKS,
            Rest::Trouble => {
                let pause = self.pause();
                self.troubles = self.troubles.saturating_add(1);
                pause
            }
        };
        self.rest_for(now, wait, why, out);
    }

    pub(super) fn rest_for(&mut self, now: Instant, wait: Duration, why: Rest, out: &mut Out) {
        let mut until = now + wait;
        if let (Rest::Yield, Some(yielding)) = (why, self.yielding) {
            until = until.min(yielding.until);
        }
        self.state = State::Resting { until, why };
        if self.stopping {
            self.finish(now, out);
        }
    }

    /// Ends, after one last try to remove a lock that may be ours.
    pub(super) fn finish(&mut self, now: Instant, out: &mut Out) {
        let owed = self.debt.take().or(self.unsure.then_some(self.token));
        // What is tried now is not owed any more, and nothing else can be.
        self.unsure = false;
        let tried = matches!(self.state, State::Asking { what: Ask::Repay, .. } | State::Freeing { .. });
        match owed {
            Some(token) if !tried => {
                let call = self.call(now, self.config.call_timeout);
                out.push(Action::Release(call.id, self.bid(token, self.config.call_timeout)));
                self.state = State::Asking { call, what: Ask::Repay };
            }
            _ => {
                self.state = State::Ended;
                out.push(Action::End);
            }
        }
    }

    pub(super) fn try_again(&mut self, now: Instant, out: &mut Out) {
        self.yielding = self.yielding.filter(|yielding| now < yielding.until);
        let what = match (self.debt, self.yielding) {
            (Some(_), _) => Ask::Repay,
            (None, Some(_)) => Ask::Look,
            (None, None) => Ask::Acquire,
        };
        self.ask(now, what, out);
    }

    pub(super) fn ask(&mut self, now: Instant, what: Ask, out: &mut Out) {
        let timeout = self.config.call_timeout;
        let call = self.call(now, timeout);
        self.hinted = false;
        out.push(match (what, self.debt) {
            (Ask::Repay, Some(token)) => Action::Release(call.id, self.bid(token, timeout)),
            (Ask::Look, _) => Action::Inspect(call.id, timeout),
            (Ask::Adopt, _) => Action::Renew(call.id, self.bid(self.token, timeout)),
            (Ask::Acquire | Ask::Repay, _) => Action::Acquire(call.id, self.bid(self.token, timeout)),
        });
        self.state = State::Asking { call, what };
    }

    pub(super) fn ask_renewal(&mut self, now: Instant, lock: Lock, out: &mut Out) -> Pending {
        // Half of what is left, so that there is time for another try.
        let timeout = self.config.call_timeout.min(now.until(lock.deadline) / 2);
        let call = self.call(now, timeout);
        out.push(Action::Renew(call.id, self.bid(lock.token, timeout)));
        call
    }

    pub(super) fn set_renewal(&mut self, next: Renewal) {
        match &mut self.state {
            State::Leading { renewal, .. } => *renewal = next,
            State::Leaving(leaving) => leaving.renewal = Some(next),
            _ => {}
        }
    }

    pub(super) fn call(&mut self, now: Instant, timeout: Duration) -> Pending {
        self.calls += 1;
        Pending { id: self.calls, sent: now, expires: now + timeout.max(Duration::from_millis(1)) }
    }

    pub(super) fn bid(&self, token: Token, timeout: Duration) -> Bid {
        Bid {
            holder: self.config.holder.clone(),
            token,
            ttl: self.config.ttl,
            timeout,
            approved: self.guard.approved(),
        }
    }

    pub(super) fn remember(&mut self, now: Instant, incumbent: Option<&Incumbent>, out: &mut Out) {
        let known = incumbent.filter(|i| !i.value.holder.instance.is_empty()).map(|incumbent| Known {
            holder: incumbent.value.holder.clone(),
            until: now + incumbent.left.unwrap_or(self.config.ttl),
        });
        if let Some(known) = &known
            && self.known.as_ref().is_none_or(|before| before.holder != known.holder)
        {
            out.push(Action::Tell(Note::Follows(known.holder.clone())));
        }
        self.known = known;
    }

    pub(super) fn jitter(&mut self, milliseconds: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.rng.random_range(milliseconds))
    }
}
