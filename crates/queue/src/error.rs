//! What can go wrong with the queue, each with a class, a code and a remedy.

use stargate_base::{Epoch, ErrorClass};

use crate::job::{JobId, State};

/// The result of a queue operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with the queue.
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
    /// A payload or result over the limit.
    #[error(
        "{field} has {bytes} bytes; at most {bytes_max} are allowed; store the data elsewhere and send a reference"
    )]
    TooLarge {
        /// The field, named as in the API.
        field: &'static str,
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        bytes_max: usize,
    },
    /// No worker ever registered this kind.
    #[error("unknown kind {kind:?}; known kinds: {}", if known.is_empty() { "none yet".to_owned() } else { known.join(", ") })]
    UnknownKind {
        /// The kind asked for.
        kind: String,
        /// The kinds that have been registered.
        known: Vec<String>,
    },
    /// Nothing of that name.
    #[error("no {what} {name}")]
    NotFound {
        /// `job`, `schedule`, `limit` …
        what: &'static str,
        /// Its name or id.
        name: String,
    },
    /// The job is not in a state from which this is possible.
    #[error("job {job} is {state}; {problem}")]
    WrongState {
        /// The job.
        job: JobId,
        /// Its state.
        state: State,
        /// What was asked and what is possible instead.
        problem: String,
    },
    /// Somebody else was faster, or the same key means something else.
    #[error("{problem}")]
    Conflict {
        /// What collides with what.
        problem: String,
    },
    /// Over `max_depth`.
    #[error("{waiting} jobs wait already, the limit is {depth_max}; try again later")]
    QueueFull {
        /// Jobs waiting, counted up to just over the limit.
        waiting: u64,
        /// The limit.
        depth_max: u64,
    },
    /// A leader wrote whose term is not the newest, or has ended.
    #[error("the term with epoch {epoch} is over, {}; ask the leader", successor(*epoch, *current))]
    Deposed {
        /// The epoch the write came with.
        epoch: Epoch,
        /// The epoch of the newest term.
        current: Epoch,
    },
    /// The database was written by a newer Stargate.
    #[error("the store has schema {found}, this program knows schemas up to {known}; use a newer stargate")]
    SchemaTooNew {
        /// The schema in the store.
        found: i64,
        /// The newest this program knows.
        known: i64,
    },
    /// The database was not migrated.
    #[error("the store has schema {found}, this program needs {known}; run 'stargate migrate'")]
    SchemaTooOld {
        /// The schema in the store.
        found: i64,
        /// The one this program needs.
        known: i64,
    },
    /// The database could not do it.
    #[error("the store could not {operation}{}", hint.map(|h| format!("; {h}")).unwrap_or_default())]
    Store {
        /// What was tried, in words that follow "could not".
        operation: &'static str,
        /// Whether trying again can help.
        class: ErrorClass,
        /// What to do about it, where that is known.
        hint: Option<&'static str>,
        /// The driver's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What has become of leadership since a term was over.
fn successor(epoch: Epoch, newest: Epoch) -> String {
    match epoch == newest {
        true => "and no other has begun yet".to_owned(),
        false => format!("the newest epoch is {newest}"),
    }
}

impl Error {
    /// A value that will stay wrong.
    pub fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { field, problem: problem.into() }
    }

    /// How retry code is to treat it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid { .. }
            | Self::TooLarge { .. }
            | Self::UnknownKind { .. }
            | Self::NotFound { .. } => ErrorClass::ValidationFailure,
            Self::WrongState { .. } | Self::Conflict { .. } => ErrorClass::Conflict,
            Self::QueueFull { .. } | Self::Deposed { .. } => ErrorClass::RetryableTransient,
            Self::SchemaTooNew { .. } | Self::SchemaTooOld { .. } => ErrorClass::Fatal,
            Self::Store { class, .. } => *class,
        }
    }

    /// The stable code that clients match on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "INVALID",
            Self::TooLarge { .. } => "PAYLOAD_TOO_LARGE",
            Self::UnknownKind { .. } => "UNKNOWN_KIND",
            Self::NotFound { .. } => "NOT_FOUND",
            Self::WrongState { .. } => "WRONG_STATE",
            Self::Conflict { .. } => "CONFLICT",
            Self::QueueFull { .. } => "QUEUE_FULL",
            Self::Deposed { .. } => "NOT_LEADER",
            Self::SchemaTooNew { .. } => "SCHEMA_TOO_NEW",
            Self::SchemaTooOld { .. } => "SCHEMA_TOO_OLD",
            Self::Store { .. } => "STORE_UNAVAILABLE",
        }
    }
}
