//! Where an elector stands. The drawing is in [`crate`].

use crate::boot::Instant;
use crate::elector::{Manner, Reason};
use crate::epoch::Epoch;
use crate::lease::Token;

/// Where an elector stands.
#[derive(Debug)]
pub(super) enum State {
    /// Not leading, until the next try.
    Resting { until: Instant, why: Rest },
    /// Not leading, an answer is awaited.
    Asking { call: Pending, what: Ask },
    /// The lock is ours; the store is to issue the epoch.
    Entering { lock: Lock, call: Pending },
    /// Leading.
    Leading { lock: Lock, epoch: Epoch, renewal: Renewal },
    /// Not leading any more; guarded work has been told to stop and is being joined.
    Leaving(Leaving),
    /// Guarded work has stopped; the lock is being given back.
    Freeing { token: Token, call: Pending, then: Rest },
    /// Done for good.
    Ended,
}

/// Guarded work has been told to stop.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) lock: Lock,
    pub(super) epoch: Epoch,
    pub(super) reason: Reason,
    pub(super) manner: Manner,
    /// When work that was asked to end is dropped.
    pub(super) polite_until: Instant,
    /// In an orderly handover the lock is kept until the work has ended, so that no successor starts beside it.
    pub(super) renewal: Option<Renewal>,
    /// The lock is known to be gone: there is nothing to give back.
    pub(super) lost: bool,
    /// When to complain that the work does not end.
    pub(super) complain: Option<Instant>,
}

/// Why an elector rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing speaks against trying at once.
    Ready,
    /// Another holds the lock.
    Held,
    /// Asked to step down, or deposed: others go first. Between two looks at who leads.
    Yield,
    /// The lock, or the store, could not be reached or was not good enough.
    Trouble,
    /// The server of the lock is too young.
    Guarded,
}

/// What is being asked for while not leading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    /// The lock.
    Acquire,
    /// To go on with a lock that an earlier call got us without our knowing.
    Adopt,
    /// Who has the lock.
    Look,
    /// That an old lock of ours be removed before we try again.
    Repay,
}

/// Others go first for a while.
#[derive(Debug, Clone, Copy)]
pub(super) struct Yielding {
    pub(super) until: Instant,
    /// Whether what is told now happened after we gave the lock back. A subscription may hold older news, which end
    /// with the news of our own release.
    pub(super) fresh: bool,
}

/// A lock we hold, and for how long we trust it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lock {
    pub(super) token: Token,
    /// When the request was sent that got or renewed it.
    pub(super) sent: Instant,
    pub(super) deadline: Instant,
}

/// A request whose answer is awaited.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) id: u64,
    pub(super) sent: Instant,
    pub(super) expires: Instant,
}

/// How far the next renewal is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Renewal {
    /// To be sent then, after so many failures.
    Due { at: Instant, failures: u32 },
    /// Sent.
    Asked { call: Pending, failures: u32 },
}

impl Renewal {
    pub(super) fn wake(self) -> Instant {
        match self {
            Self::Due { at, .. } => at,
            Self::Asked { call, .. } => call.expires,
        }
    }
}

impl State {
    /// When something happens without any event.
    pub(super) fn wake(&self) -> Option<Instant> {
        match self {
            Self::Resting { until, .. } => Some(*until),
            Self::Asking { call, .. } | Self::Freeing { call, .. } => Some(call.expires),
            Self::Entering { lock, call } => Some(call.expires.min(lock.deadline)),
            Self::Leading { lock, renewal, .. } => Some(renewal.wake().min(lock.deadline)),
            Self::Leaving(leaving) => {
                let polite = (leaving.manner == Manner::Politely).then_some(leaving.polite_until);
                let renewal = leaving.renewal.map(|renewal| renewal.wake().min(leaving.lock.deadline));
                [polite, renewal, leaving.complain].into_iter().flatten().min()
            }
            Self::Ended => None,
        }
    }
}
