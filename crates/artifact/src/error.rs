//! What can go wrong with artifacts, scratch directories and sources.

use std::io;
use std::path::PathBuf;

use stargate_base::ErrorClass;

/// Answer of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong with artifacts, scratch directories and sources.
///
/// Trouble with storage is transient even where only an operator can end it (a full disk, a refused key): the jobs
/// must not be lost for it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key is not a plain relative path.
    #[error(
        "{key:?} cannot be the key of an artifact: write names of letters, digits, '.', '_' and '-' between slashes"
    )]
    Key {
        /// What was given.
        key: String,
    },
    /// The name of an attempt cannot be part of a file's name.
    #[error("{attempt:?} cannot name an attempt: write up to 30 letters, digits, '_' and '-'")]
    Attempt {
        /// What was given.
        attempt: String,
    },
    /// What is to be kept about an artifact is too long.
    #[error(
        "what is to be kept about the artifact has {bytes} bytes as JSON, more than {}",
        crate::manifest::ABOUT_BYTES_MAX
    )]
    About {
        /// Its length.
        bytes: usize,
    },
    /// The attempt lost its lease before it could publish.
    #[error("the attempt no longer holds its job, so it publishes nothing")]
    Fenced,
    /// Another publication of the same job has not ended in time; it may belong to a process that stands still.
    #[error("{} is held by another publication of the same job: {holder}", path.display())]
    Busy {
        /// The lock.
        path: PathBuf,
        /// What the one that holds it has written into it.
        holder: String,
    },
    /// Every answer of the [`Permit`](crate::Permit) was old before it could be used.
    #[error(
        "{place} was not published: each time too much time passed after the answer that the attempt holds its job"
    )]
    Unsure {
        /// Where.
        place: String,
    },
    /// The file to be published cannot be read.
    #[error("cannot read {} to publish it", path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What was read back is not what was written.
    #[error("{place} is not what was written to it: {detail}")]
    Mismatch {
        /// Where.
        place: String,
        /// What differs.
        detail: String,
    },
    /// The disk or the quota is used up.
    #[error("no space is left to {what} {place}")]
    Full {
        /// What was tried.
        what: &'static str,
        /// Where.
        place: String,
        /// The answer.
        source: BoxError,
    },
    /// Permissions, keys or a read-only file system forbid it.
    #[error("not allowed to {what} {place}")]
    Denied {
        /// What was tried.
        what: &'static str,
        /// Where.
        place: String,
        /// The answer.
        source: BoxError,
    },
    /// Any other trouble with the store of artifacts.
    #[error("cannot {what} {place}")]
    Store {
        /// What was tried.
        what: &'static str,
        /// Where.
        place: String,
        /// Why.
        source: BoxError,
    },
    /// The server wrote an object although the condition for it did not hold.
    #[error(
        "the server at {place} ignores conditions (If-None-Match), so an old attempt could replace a new artifact"
    )]
    Unconditional {
        /// Where.
        place: String,
    },
    /// The settings of an S3 store cannot be used.
    #[error("the S3 settings cannot be used: {detail}")]
    Settings {
        /// What is wrong.
        detail: String,
    },
    /// The address of a source is not `s3://bucket/key`.
    #[error("{address:?} is no address of an object: write s3://bucket/key")]
    SourceAddress {
        /// What was given.
        address: String,
    },
    /// There is no such source.
    #[error("there is no {address}")]
    SourceMissing {
        /// Its address.
        address: String,
    },
    /// The source may not be read.
    #[error("not allowed to read {address}")]
    SourceDenied {
        /// Its address.
        address: String,
        /// The answer.
        source: BoxError,
    },
    /// The source is larger than allowed.
    #[error("{address} has {bytes} bytes, more than the {bytes_max} allowed")]
    SourceTooLarge {
        /// Its address.
        address: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The source could not be read this time.
    #[error("cannot read {address}")]
    SourceUnavailable {
        /// Its address.
        address: String,
        /// Why.
        source: BoxError,
    },
    /// The name of a job cannot be part of a directory's name.
    #[error("{job:?} cannot name a scratch directory: write letters, digits, '_' and '-'")]
    ScratchName {
        /// What was given.
        job: String,
    },
    /// Scratch directories cannot be made or looked through.
    #[error("cannot {what} scratch directories in {}", path.display())]
    Scratch {
        /// What was tried.
        what: &'static str,
        /// The root.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The work was ended from outside, as happens when the process stops.
    #[error("the work on a file was interrupted")]
    Interrupted {
        /// How.
        source: tokio::task::JoinError,
    },
}

/// An error of the system or of a server.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Error {
    /// What retry code looks at.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Key { .. }
            | Self::Attempt { .. }
            | Self::About { .. }
            | Self::ScratchName { .. }
            | Self::SourceAddress { .. }
            | Self::SourceMissing { .. }
            | Self::SourceDenied { .. }
            | Self::SourceTooLarge { .. } => ErrorClass::ValidationFailure,
            Self::Settings { .. } | Self::Unconditional { .. } => ErrorClass::Fatal,
            Self::Fenced
            | Self::Busy { .. }
            | Self::Unsure { .. }
            | Self::Input { .. }
            | Self::Mismatch { .. }
            | Self::Full { .. }
            | Self::Denied { .. }
            | Self::Store { .. }
            | Self::SourceUnavailable { .. }
            | Self::Scratch { .. }
            | Self::Interrupted { .. } => ErrorClass::RetryableTransient,
        }
    }

    /// Trouble with a file of the store.
    pub(crate) fn file(what: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        let (place, source) = (path.display().to_string(), source);
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::Full { what, place, source: source.into() }
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::Denied { what, place, source: source.into() }
            }
            _ => Self::Store { what, place, source: source.into() },
        }
    }

    /// Trouble with an object of the store.
    pub(crate) fn object(what: &'static str, place: String, source: object_store::Error) -> Self {
        match source {
            object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
                Self::Denied { what, place, source: source.into() }
            }
            _ => Self::Store { what, place, source: source.into() },
        }
    }
}
