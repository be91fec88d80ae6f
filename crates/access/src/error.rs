//! What can go wrong with tokens. None of it holds the text of one.

use stargate_base::ErrorClass;

/// The result of an operation on tokens.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with tokens.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value that will stay wrong.
    #[error("{field} {problem}")]
    Invalid {
        /// The field, named as in the API.
        field: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// No token with that id.
    #[error("no token {id}; 'stargate token list' shows what there is")]
    NotFound {
        /// The public part of a token.
        id: String,
    },
    /// The address can be reached by others and nothing would keep them out.
    #[error(
        "{address} can be reached from other machines and there is no token yet; create one with 'stargate token add', or listen on 127.0.0.1"
    )]
    OpenToOthers {
        /// Where the process was told to listen.
        address: String,
    },
    /// The store could not be asked.
    #[error("tokens cannot be looked up or kept now")]
    Store {
        /// Whether trying again can help.
        class: ErrorClass,
        /// The store's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// A value that will stay wrong.
    pub(crate) fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { field, problem: problem.into() }
    }

    /// How retry code is to treat it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid { .. } | Self::NotFound { .. } => ErrorClass::ValidationFailure,
            Self::OpenToOthers { .. } => ErrorClass::Fatal,
            Self::Store { class, .. } => *class,
        }
    }

    /// The stable code that clients match on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "INVALID",
            Self::NotFound { .. } => "NOT_FOUND",
            Self::OpenToOthers { .. } => "OPEN_TO_OTHERS",
            Self::Store { .. } => "STORE_UNAVAILABLE",
        }
    }
}
