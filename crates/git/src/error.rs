//! What can go wrong when git is used, each with a class and a code. No message contains a secret: what git said has
//! passed the redactor before it gets here.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use stargate_base::ErrorClass;

use crate::name::BadName;
use crate::oid::BadOid;
use crate::run::Answer;

/// The result of an operation with git.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong when git is used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting that cannot work.
    #[error("{setting}: {problem}")]
    Invalid {
        /// The setting, named as in the configuration.
        setting: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// A name that must not reach git.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A text that is no object id.
    #[error(transparent)]
    Oid(#[from] BadOid),
    /// Not a repository.
    #[error("{path} is not a bare git repository: {problem}")]
    NotARepository {
        /// Where it should be.
        path: PathBuf,
        /// What is missing.
        problem: &'static str,
    },
    /// git could not be started.
    #[error("cannot start {program}")]
    Start {
        /// The program, as configured.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The connection to the running git broke.
    #[error("cannot read what git {operation} says")]
    Pipe {
        /// The subcommand.
        operation: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// git did not end in time and was killed.
    #[error("git {operation} did not end within {after:?}{}", said(stderr))]
    TimedOut {
        /// The subcommand.
        operation: &'static str,
        /// How long it was given.
        after: Duration,
        /// What it had said until then.
        stderr: String,
    },
    /// git failed.
    #[error("git {operation} failed ({}){}", answer.end, said(&answer.stderr))]
    Failed {
        /// The subcommand.
        operation: &'static str,
        /// How it ended and what it said.
        answer: Box<Answer>,
    },
    /// git wrote more than it was allowed to.
    #[error("git {operation} wrote more than {bytes_max} bytes")]
    TooMuch {
        /// The subcommand.
        operation: &'static str,
        /// What it was allowed.
        bytes_max: usize,
    },
    /// git answered something that is not understood.
    #[error("cannot understand what git {operation} wrote: {line:?}")]
    Unreadable {
        /// The subcommand.
        operation: &'static str,
        /// The line, shortened and redacted.
        line: String,
    },
    /// A file or directory that git needs could not be made.
    #[error("cannot prepare {path} for git")]
    Prepare {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

fn said(stderr: &str) -> String {
    let line = stderr.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    if line.is_empty() { String::new() } else { format!(": {line}") }
}

impl Error {
    pub(crate) fn invalid(setting: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { setting, problem: problem.into() }
    }

    /// How retry code is to treat it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid { .. } | Self::Name(_) | Self::Oid(_) => ErrorClass::ValidationFailure,
            Self::NotARepository { .. } | Self::TooMuch { .. } | Self::Unreadable { .. } => ErrorClass::Fatal,
            Self::Start { source, .. } if source.kind() == io::ErrorKind::NotFound => ErrorClass::Fatal,
            Self::Start { .. }
            | Self::Pipe { .. }
            | Self::TimedOut { .. }
            | Self::Failed { .. }
            | Self::Prepare { .. } => ErrorClass::RetryableTransient,
        }
    }

    /// The stable code that clients match on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } | Self::Name(_) | Self::Oid(_) => "INVALID",
            Self::NotARepository { .. } => "NOT_A_REPOSITORY",
            Self::Start { .. } | Self::Prepare { .. } => "GIT_NOT_STARTED",
            Self::TimedOut { .. } => "GIT_TIMED_OUT",
            Self::Pipe { .. } | Self::Failed { .. } | Self::TooMuch { .. } | Self::Unreadable { .. } => {
                "GIT_FAILED"
            }
        }
    }
}
