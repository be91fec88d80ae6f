//! Not leading: what the answers to bids and looks mean, and when to try again.

use std::time::Duration;

use super::state::{Ask, Rest, State};
use super::{Action, Elector, HINT_JITTER_MS, JITTER_MS, Note, Out, Reason, judge_renewal};
use crate::boot::Instant;
use crate::error::Result;
use crate::lease::{Acquired, Hint, Incumbent, Inspection, Renewed, Server};

impl Elector {
    pub(super) fn on_acquired(&mut self, now: Instant, id: u64, reply: Result<Acquired>, out: &mut Out) {
        let State::Asking { call, what: Ask::Acquire } = &self.state else { return };
        if call.id != id {
            return;
        }
        let sent = call.sent;
        match reply {
            Ok(Acquired::Granted) => self.granted(now, sent, out),
            Ok(Acquired::Held(incumbent)) => self.on_held(now, &incumbent, out),
            Ok(Acquired::Unapproved(server, incumbent)) => {
                self.troubles = 0;
                self.remember(now, incumbent.as_ref(), out);
                self.judge(now, server, out);
            }
            Ok(Acquired::Unreplicated { reached, expected }) => {
                out.push(Action::Tell(Note::Unreplicated { reached, expected }));
                let token = self.token;
                self.free(now, token, Rest::Trouble, out);
            }
            Err(error) => self.trouble(now, error, out),
        }
    }

    pub(super) fn on_held(&mut self, now: Instant, incumbent: &Incumbent, out: &mut Out) {
        self.troubles = 0;
        if incumbent.value.token == Some(self.token) {
            // An earlier bid got it and its answer was lost. When exactly is unknown, so trust begins with a
            // renewal.
            if self.stopping {
                let token = self.token;
                self.free(now, token, Rest::Ready, out);
            } else {
                self.ask(now, Ask::Adopt, out);
            }
            return;
        }
        self.remember(now, Some(incumbent), out);
        self.rest_while_held(now, incumbent, out);
    }

    /// The answer to a look of a node that makes room for others.
    pub(super) fn on_inspected(&mut self, now: Instant, id: u64, reply: Result<Inspection>, out: &mut Out) {
        let State::Asking { call, what: Ask::Look } = &self.state else { return };
        if call.id != id {
            return;
        }
        let incumbent = match reply {
            Ok(inspection) => inspection.incumbent,
            Err(error) => return self.trouble(now, error, out),
        };
        self.troubles = 0;
        match incumbent {
            Some(incumbent) if incumbent.value.token == Some(self.token) => {
                // Got by a bid whose answer was lost. It is not our turn now.
                let token = self.token;
                self.free(now, token, Rest::Yield, out);
            }
            Some(incumbent) if incumbent.value.holder.instance != self.config.holder.instance => {
                // Another leads: this node has made room and is a standby like any other.
                self.yielding = None;
                self.remember(now, Some(&incumbent), out);
                self.rest_while_held(now, &incumbent, out);
            }
            _ if self.yielding.is_none() => self.rest(now, Rest::Ready, out),
            _ => self.rest(now, Rest::Yield, out),
        }
    }

    pub(super) fn on_adopted(&mut self, now: Instant, sent: Instant, reply: Result<Renewed>, out: &mut Out) {
        match judge_renewal(reply, out) {
            Ok(true) => self.granted(now, sent, out),
            Ok(false) => {
                self.renew_token();
                let wait = self.jitter(JITTER_MS);
                self.rest_for(now, wait, Rest::Ready, out);
            }
            Err(error) => self.trouble(now, error, out),
        }
    }

    pub(super) fn on_hint(&mut self, now: Instant, hint: &Hint) {
        if let Some(yielding) = &mut self.yielding {
            let ours = matches!(hint, Hint::Released(Some(by)) if *by == self.config.holder.instance);
            let others = matches!(hint, Hint::Released(Some(_))) && !ours;
            if others && yielding.fresh {
                // Another has led and gone.
                self.yielding = None;
            } else {
                yielding.fresh |= ours || *hint == Hint::Reachable;
            }
        }
        let soon = now + self.jitter(HINT_JITTER_MS);
        match &mut self.state {
            State::Resting { until, why: Rest::Held | Rest::Yield } => *until = soon.min(*until),
            // A release says nothing about what went wrong, and nodes that fail one after the other would wake each
            // other for ever.
            State::Resting { until, why: Rest::Trouble } if *hint == Hint::Reachable => {
                *until = soon.min(*until);
            }
            State::Asking { .. } => self.hinted = true,
            _ => {}
        }
    }

    /// Another has the lock.
    pub(super) fn rest_while_held(&mut self, now: Instant, incumbent: &Incumbent, out: &mut Out) {
        let free = incumbent.left.map(|left| left + self.jitter(JITTER_MS));
        let mut wait = free.map_or(self.config.retry_every, |free| free.min(self.config.retry_every));
        if std::mem::take(&mut self.hinted) {
            wait = wait.min(self.jitter(HINT_JITTER_MS));
        }
        self.rest_for(now, wait, Rest::Held, out);
    }

    /// Decides about a server that has not been approved yet.
    pub(super) fn judge(&mut self, now: Instant, server: Server, out: &mut Out) {
        let wait = self.guard.judge(now, &server);
        if wait.is_zero() {
            self.guarded = None;
            if !self.stopping {
                return self.ask(now, Ask::Acquire, out);
            }
        } else {
            let again = self.guarded.as_deref() == Some(&server.run);
            out.push(Action::Tell(Note::Guarded { wait, again }));
            self.guarded = Some(server.run);
        }
        self.rest_for(now, wait.min(self.config.retry_every), Rest::Guarded, out);
    }

    /// How long others go first.
    pub(super) fn yield_for(&self, reason: Reason) -> Duration {
        let usual = self.config.retry_every * 2;
        match (reason, self.deposed) {
            (Reason::Deposed, Some((_, times))) => {
                let longest = self.config.retry_max.max(usual);
                usual.saturating_mul(1 << times.saturating_sub(1).min(16)).min(longest)
            }
            _ => usual,
        }
    }
}
