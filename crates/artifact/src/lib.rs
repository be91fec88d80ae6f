//! Results of jobs that are files, and the scratch space in which they are made.
//!
//! A reader at an artifact's key sees nothing, or a complete artifact, whenever a process dies
//! ([`Artifacts::publish`]): it is written under a temporary name, verified, synced, and then moved ([`Local`]) or
//! completed as one upload ([`S3`]). Beside it lies a [`Manifest`] with its size and SHA-256; it is written last, so
//! an artifact with a manifest that fits is complete.
//!
//! Publication is fenced (INV-2). An attempt that lost its lease publishes nothing: its [`Permit`] is asked at the
//! last moment, and asked again if a pause follows ([`PERMISSION_AGE_MAX`]). And because even the last instant can be
//! followed by a pause, publishing never replaces a valid artifact: the first one stays, and an attempt that comes later adopts it. A folder ensures that with a lock and a
//! rename that does not replace, a bucket with conditional writes; [`s3`] tells what holds on which server.
//!
//! | a process dies at | what lies there | what the next attempt does |
//! | --- | --- | --- |
//! | `begun` to `permitted` | nothing; a temporary file or an incomplete upload, seen by nobody | publishes, and removes the temporary file |
//! | `moved` | a complete artifact without a manifest | folder: counts it as damaged and replaces it; bucket: describes and adopts it |
//! | `described` | a valid artifact | adopts it |

pub mod error;
pub mod key;
pub mod local;
pub mod manifest;
pub mod permit;
pub mod s3;
pub mod scratch;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

pub use error::{Error, Result};
pub use key::Key;
pub use local::Local;
pub use manifest::Manifest;
pub use permit::{PERMISSION_AGE_MAX, Permit};
pub use s3::S3;

/// Where artifacts are kept.
#[async_trait]
pub trait Artifacts: std::fmt::Debug + Send + Sync + 'static {
    /// What lies under a key. Reads it all: an artifact counts as valid only if its size and SHA-256 are those of
    /// its manifest. Where an artifact is known to be whole without one, it is given its manifest first.
    async fn find(&self, key: &Key) -> Result<Found>;

    /// Makes `file`, which is complete, the artifact under `key`.
    ///
    /// A valid artifact that is already there stays, and is the answer. A damaged one is replaced.
    async fn publish(&self, key: &Key, file: &Path, by: Publisher<'_>) -> Result<Published>;

    /// Removes what publications that died have left behind and nobody has touched for `age`; gives the number of
    /// files. What is in use stays. A bucket has rules of its own for that.
    async fn sweep(&self, age: Duration) -> Result<u64> {
        let _ = age;
        Ok(0)
    }

    /// Whether artifacts can be written, read and removed here; for `doctor`.
    async fn check(&self) -> Result<()>;

    /// Where the artifact under `key` is, for people: a path or an `s3://` address.
    fn location(&self, key: &Key) -> String;
}

/// What lies under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Absent,
    /// An artifact that is what its manifest says.
    Valid(Manifest),
    /// Something else; says what is wrong.
    Damaged(String),
}

/// How a publication ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// The file is the artifact now.
    Stored(Manifest),
    /// A valid artifact was there first and stayed.
    Adopted(Manifest),
}

/// Who publishes.
#[derive(Clone, Copy)]
pub struct Publisher<'a> {
    /// Names the attempt in temporary names and in the manifest, e.g. `3` of job 17 as `17-3`.
    pub attempt: &'a str,
    /// Says whether the attempt may still publish.
    pub permit: &'a dyn Permit,
    /// What else there is to know of the artifact; kept in its manifest for those who adopt it. At most
    /// [`manifest::ABOUT_BYTES_MAX`] bytes of JSON.
    pub about: Option<&'a serde_json::Value>,
    /// Is told each step; for tests that end the process at one of them.
    pub steps: &'a dyn Steps,
}

impl Publisher<'_> {
    fn check(&self) -> Result<()> {
        // The attempt's name is part of file names.
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if !(1..=30).contains(&self.attempt.len()) || !self.attempt.chars().all(plain) {
            return Err(Error::Attempt { attempt: self.attempt.to_owned() });
        }
        match self.about.map_or(0, |about| manifest::ascii(about).len()) {
            0..=manifest::ABOUT_BYTES_MAX => Ok(()),
            bytes => Err(Error::About { bytes }),
        }
    }
}

/// A point in a publication at which a process can die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing has been written.
    Begun,
    /// A part of the bytes has been written under a temporary name, or as a part of an upload.
    HalfWritten,
    /// All bytes have been written and verified, but not synced.
    Written,
    /// The bytes are durable, still under a temporary name or as an incomplete upload.
    Synced,
    /// The attempt was told that it still holds its job.
    Permitted,
    /// The artifact is under its key; the manifest is not.
    Moved,
    /// The manifest is there as well.
    Described,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::Begun,
        Self::HalfWritten,
        Self::Written,
        Self::Synced,
        Self::Permitted,
        Self::Moved,
        Self::Described,
    ];

    /// Its name in settings and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::HalfWritten => "half-written",
            Self::Written => "written",
            Self::Synced => "synced",
            Self::Permitted => "permitted",
            Self::Moved => "moved",
            Self::Described => "described",
        }
    }
}

/// Is told the steps of a publication.
pub trait Steps: Send + Sync {
    /// The publication has reached this point.
    fn reached(&self, step: Step);
}

/// Nobody is told.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Steps for Unobserved {
    fn reached(&self, _: Step) {}
}

/// Does blocking work where it holds nobody up. It goes on even if nobody waits for it any more.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::Interrupted { source: error }),
    }
}
