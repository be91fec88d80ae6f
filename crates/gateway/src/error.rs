//! What can go wrong with repositories and their hooks, each with a class and a code.

use std::io;
use std::path::PathBuf;

use stargate_base::ErrorClass;

use crate::name::RepoName;

/// Answer of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong with repositories and their hooks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not the name of a repository.
    #[error("{name:?} cannot name a repository: it {problem}")]
    Name {
        /// What was given, cut off and escaped.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A setting that cannot work.
    #[error("{setting} {problem}")]
    Setting {
        /// As it is named in the configuration.
        setting: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// No repository of that name.
    #[error("no repository {name}")]
    NotFound {
        /// The name.
        name: RepoName,
    },
    /// The name is taken.
    #[error("repository {name} exists already")]
    Exists {
        /// The name.
        name: RepoName,
    },
    /// More repositories than are listed.
    #[error("{} holds more than {max} repositories", root.display())]
    TooMany {
        /// Where they lie.
        root: PathBuf,
        /// The limit.
        max: usize,
    },
    /// Everything that may run at once is running.
    #[error("{max} {what} over SSH run already ({setting}); try again in a moment")]
    Busy {
        /// Fetches or pushes.
        what: &'static str,
        /// How many may run.
        max: usize,
        /// What bounds them.
        setting: &'static str,
    },
    /// The command of an SSH client is none that is served.
    #[error("{problem}; only git fetch and git push are served here")]
    Command {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The file system did not do it.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was tried, in words that follow "cannot".
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Git did not do it.
    #[error("cannot {what}")]
    Git {
        /// What was tried, in words that follow "cannot".
        what: &'static str,
        /// What git or the system said.
        #[source]
        source: stargate_git::Error,
    },
}

impl Error {
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    /// How retry code is to treat it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Name { .. } | Self::Setting { .. } | Self::NotFound { .. } | Self::Command { .. } => {
                ErrorClass::ValidationFailure
            }
            Self::Exists { .. } => ErrorClass::Conflict,
            Self::TooMany { .. } => ErrorClass::Fatal,
            Self::Io { .. } | Self::Busy { .. } => ErrorClass::RetryableTransient,
            Self::Git { source, .. } => source.class(),
        }
    }

    /// The stable code that clients match on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Name { .. } | Self::Setting { .. } | Self::Command { .. } => "INVALID",
            Self::NotFound { .. } => "NOT_FOUND",
            Self::Exists { .. } => "CONFLICT",
            Self::Busy { .. } => "BUSY",
            Self::TooMany { .. } | Self::Io { .. } => "IO",
            Self::Git { source, .. } => source.code(),
        }
    }
}
