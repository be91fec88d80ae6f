//! What goes into an elector and what comes out.

use std::fmt;
use std::time::Duration;

use crate::boot::Instant;
use crate::epoch::Epoch;
use crate::error::{Error, Result};
use crate::lease::{Acquired, Bid, Hint, Holder, Inspection, Released, Renewed};
use crate::term::Term;

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// Time has passed; see [`Elector::wake`](super::Elector::wake).
    Tick,
    /// The answer to [`Action::Acquire`].
    Acquired(u64, Result<Acquired>),
    /// The answer to [`Action::Renew`].
    Renewed(u64, Result<Renewed>),
    /// The answer to [`Action::Release`].
    Released(u64, Result<Released>),
    /// The answer to [`Action::IssueEpoch`].
    Issued(u64, Result<Epoch>),
    /// Guarded work has ended after [`Action::StopWork`].
    Joined,
    /// The answer to [`Action::Inspect`].
    Inspected(u64, Result<Inspection>),
    /// There is a reason to try now.
    Hint(Hint),
    /// The machine has just woken up from a suspend.
    Suspended,
    /// The store has refused a write of this epoch, because it is not the newest.
    Deposed(Epoch),
    /// An operator wants another node to lead.
    StepDown,
    /// The process is to end.
    Stop,
}

/// Something to be done.
#[derive(Debug, Clone)]
pub enum Action {
    /// Bid for the lock; answer with the number.
    Acquire(u64, Bid),
    /// Renew the lock; answer with the number.
    Renew(u64, Bid),
    /// Give the lock back; answer with the number.
    Release(u64, Bid),
    /// Look who has the lock, within the time given; answer with the number.
    Inspect(u64, Duration),
    /// Have the store issue an epoch within the time given; answer with the number.
    IssueEpoch(u64, Duration),
    /// Begin guarded work.
    StartWork(Term),
    /// End guarded work and tell when it has ended. Called a second time if patience has run out.
    StopWork(Manner),
    /// Record the end of a term.
    EndTerm(Epoch, Reason),
    /// Tell people.
    Tell(Note),
    /// Nothing more will happen.
    End,
}

/// How guarded work is to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Asked to; the lock is still ours meanwhile.
    Politely,
    /// Dropped where it stands.
    AtOnce,
}

/// Why a term ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The process ends.
    Shutdown,
    /// An operator asked for it.
    StepDown,
    /// Another node holds the lock, or nobody does.
    Lost,
    /// Renewing failed as often as it may.
    RenewalFailed,
    /// The lease ran out.
    Expired,
    /// The machine was suspended.
    Suspended,
    /// The store has issued another epoch.
    Deposed,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Shutdown,
        Self::StepDown,
        Self::Lost,
        Self::RenewalFailed,
        Self::Expired,
        Self::Suspended,
        Self::Deposed,
    ];

    /// The word in logs, metrics and the history.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::StepDown => "step-down",
            Self::Lost => "lost",
            Self::RenewalFailed => "renewal-failed",
            Self::Expired => "expired",
            Self::Suspended => "suspended",
            Self::Deposed => "deposed",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// Whether it was wanted: the lock is kept until the work has ended, and then given back.
    pub fn is_handover(self) -> bool {
        matches!(self, Self::Shutdown | Self::StepDown)
    }

    pub(super) fn manner(self) -> Manner {
        match self {
            Self::Shutdown | Self::StepDown | Self::RenewalFailed => Manner::Politely,
            Self::Lost | Self::Expired | Self::Suspended | Self::Deposed => Manner::AtOnce,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something people should know.
#[derive(Debug, Clone)]
pub enum Note {
    /// A term has begun.
    BecameLeader(Epoch),
    /// A term has ended.
    LostLeadership(Epoch, Reason),
    /// A renewal failed; so many in a row.
    RenewalFailed(u32, Error),
    /// The lock could not be taken or given back; trying again after the pause.
    Trouble(Error, Duration),
    /// Another node leads.
    Follows(Holder),
    /// The server of the lock may have forgotten an older lock.
    Guarded {
        /// For so long nothing is granted.
        wait: Duration,
        /// Told before, about the same wait.
        again: bool,
    },
    /// The store has another leader; this node stays behind for so long, unless it sees who leads.
    Deposed(Epoch, Duration),
    /// The lock is there but not on all replicas.
    Unreplicated {
        /// Replicas that have it.
        reached: usize,
        /// Replicas that should.
        expected: usize,
    },
    /// Guarded work has not ended, although it was told to long ago.
    WorkLingers(Epoch),
}

/// Where a node stands, for onlookers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not leading.
    Standby,
    /// The lock is ours, the epoch is not issued yet.
    Entering,
    /// Leading.
    Leader,
    /// Guarded work is ending, or the lock is being given back.
    Leaving,
    /// Over.
    Ended,
}

/// Who leads as far as a node knows, and until when that holds without news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The leader.
    pub holder: Holder,
    /// When its lock ends unless it is renewed.
    pub until: Instant,
}
