//! What can go wrong with leadership, each with a class and a code.

use stargate_base::ErrorClass;

use crate::lease::Holder;

/// The result of an operation on leadership.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with leadership.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Settings that cannot work.
    #[error("{setting}: {problem}")]
    Invalid {
        /// The setting or settings, named as in the configuration.
        setting: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// This node does not lead now.
    #[error("this node is not the leader{}", leader.as_ref().map(|l| format!("; {l} is")).unwrap_or_default())]
    NotLeader {
        /// Who does, as far as this node knows.
        leader: Option<Holder>,
    },
    /// The lock could not be reached, or not in time.
    #[error("cannot {operation} the leader lock in {place}: {problem}")]
    Unreachable {
        /// What was tried, in a word that follows "cannot".
        operation: &'static str,
        /// Where the lock is kept, without any password.
        place: String,
        /// What the other side or the network said.
        problem: String,
    },
    /// The protected store gave no epoch.
    #[error("the store issued no epoch: {problem}")]
    Epoch {
        /// What it said.
        problem: String,
    },
}

impl Error {
    pub(crate) fn invalid(setting: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { setting, problem: problem.into() }
    }

    /// How retry code is to treat it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid { .. } => ErrorClass::ValidationFailure,
            Self::NotLeader { .. } | Self::Unreachable { .. } | Self::Epoch { .. } => {
                ErrorClass::RetryableTransient
            }
        }
    }

    /// The stable code that clients match on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "INVALID",
            Self::NotLeader { .. } => "NOT_LEADER",
            Self::Unreachable { .. } => "LEADER_LOCK_UNREACHABLE",
            Self::Epoch { .. } => "EPOCH_NOT_ISSUED",
        }
    }
}
