//! Where an artifact lies: the same key for every attempt of a job.

use std::fmt;

use crate::error::{Error, Result};

/// The key of an artifact, e.g. `results/17/clip.mp4`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    /// The key of a job's result.
    pub fn result(job: impl fmt::Display, name: &str) -> Result<Self> {
        Self::new(format!("results/{job}/{name}"))
    }

    /// A key: relative, of segments that are plain names, so that it can be a path below any root.
    pub fn new(key: String) -> Result<Self> {
        let plain = |segment: &str| {
            !segment.is_empty()
                && !segment.starts_with('.')
                && segment.len() <= 200
                && segment.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        };
        match key.len() <= 1000 && key.split('/').all(plain) {
            true => Ok(Self(key)),
            false => Err(Error::Key { key }),
        }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of the manifest beside it.
    pub fn manifest(&self) -> String {
        format!("{}.json", self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
