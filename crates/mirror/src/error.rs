//! What can go wrong with the mirror, each with a class and a code.

use std::io;
use std::path::{Path, PathBuf};

use stargate_base::ErrorClass;

/// The result of an operation on the mirror.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with the mirror.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file did not work.
    #[error("cannot {operation} {path}")]
    Io {
        /// What was tried, in words that follow "cannot".
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file system has no room. Nothing was accepted; what was half written has been taken back.
    #[error("no space left to write {path}")]
    Full {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A sync failed. What was written before may be gone although it can still be read, and the system reports
    /// that only once: the process must end at once, and what it believed is read again from the disk.
    #[error("cannot make {path} durable; this process must end")]
    FailStop {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file that somebody could have planted, or that is not what it must be.
    #[error("{path} {problem}")]
    Unsafe {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong and what to do, in words that follow the path.
        problem: &'static str,
    },
    /// A file that is not as it was written.
    #[error("{path} is damaged; restore it from a backup, or move it elsewhere")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where it stops making sense.
        #[source]
        source: serde_json::Error,
    },
    /// A value that cannot be written.
    #[error("{what}: {problem}")]
    Invalid {
        /// Which value.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Another process pushes what is in this repository.
    #[error("{path} is held by {holder}")]
    Locked {
        /// The lock.
        path: PathBuf,
        /// Who has it, as far as the system and it say.
        holder: String,
        /// Whether it led in an earlier term, so that the lock may be taken over.
        earlier: bool,
    },
    /// git did not work, or was asked for something it must not be asked for.
    #[error(transparent)]
    Git(#[from] stargate_git::Error),
    /// This node may not push: another one leads.
    #[error("this node is not the leader; only the leader's mirror pushes")]
    NotLeader,
    /// There is no such dead letter.
    #[error("there is no dead letter {id}")]
    NoDeadLetter {
        /// The id that was asked for.
        id: String,
    },
    /// A dead letter that cannot be requeued.
    #[error("dead letter {id} {problem}")]
    NotRequeueable {
        /// Its id.
        id: String,
        /// Why not, in words that follow the id.
        problem: String,
    },
}

impl From<stargate_git::BadName> for Error {
    fn from(error: stargate_git::BadName) -> Self {
        Self::Git(error.into())
    }
}

impl From<stargate_git::BadOid> for Error {
    fn from(error: stargate_git::BadOid) -> Self {
        Self::Git(error.into())
    }
}

impl Error {
    pub(crate) fn invalid(what: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { what, problem: problem.into() }
    }

    /// What to make of an error of the system: a full disk is told apart.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let path = path.to_owned();
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path, source },
                _ => Self::Io { operation, path, source },
            }
        }
    }

    /// What to make of an error of a sync.
    pub(crate) fn fail_stop(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::FailStop { path: path.to_owned(), source }
    }

    /// Whether the process must end because of it.
    pub fn is_fail_stop(&self) -> bool {
        matches!(self, Self::FailStop { .. })
    }

    /// How retry code is to treat it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Io { .. } | Self::Full { .. } | Self::NotLeader => ErrorClass::RetryableTransient,
            Self::Git(error) => error.class(),
            Self::Locked { .. } => ErrorClass::Conflict,
            Self::Invalid { .. } | Self::NoDeadLetter { .. } | Self::NotRequeueable { .. } => {
                ErrorClass::ValidationFailure
            }
            Self::FailStop { .. } | Self::Unsafe { .. } | Self::Damaged { .. } => ErrorClass::Fatal,
        }
    }

    /// The stable code that clients match on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "IO",
            Self::Git(error) => error.code(),
            Self::NotLeader => "NOT_LEADER",
            Self::Full { .. } => "MIRROR_DISK_FULL",
            Self::FailStop { .. } => "MIRROR_FAIL_STOP",
            Self::Unsafe { .. } => "MIRROR_FILES_UNSAFE",
            Self::Damaged { .. } => "MIRROR_FILE_DAMAGED",
            Self::Invalid { .. } => "INVALID",
            Self::Locked { .. } => "MIRROR_LOCKED",
            Self::NoDeadLetter { .. } => "NOT_FOUND",
            Self::NotRequeueable { .. } => "WRONG_STATE",
        }
    }
}
