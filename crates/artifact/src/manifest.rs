//! What an artifact must be: written beside it, after it.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::key::Key;

/// A manifest is some hundred bytes; whatever is longer is none.
pub(crate) const BYTES_MAX: u64 = 16 << 10;

/// Size and checksum of an artifact, and who made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Its key.
    pub key: String,
    /// Its length in bytes.
    pub size: u64,
    /// The SHA-256 of its bytes, in lower-case hexadecimal digits.
    pub sha256: String,
    /// The attempt that published it.
    pub attempt: String,
}

impl Manifest {
    pub(crate) fn new(key: &Key, sum: Sum, attempt: &str) -> Self {
        Self { key: key.to_string(), size: sum.size, sha256: sum.sha256, attempt: attempt.to_owned() }
    }

    /// As it is written.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(self).expect("text and a number can always be written as JSON");
        json.push(b'\n');
        json
    }

    /// What is wrong with bytes that were read from the place of a manifest, if they are not the one of `key`.
    pub(crate) fn read(key: &Key, json: &[u8]) -> Result<Self, String> {
        let manifest: Self =
            serde_json::from_slice(json).map_err(|error| format!("its manifest cannot be read: {error}"))?;
        if manifest.key != key.as_str() {
            return Err(format!("its manifest is of {:?}", manifest.key));
        }
        Ok(manifest)
    }

    /// What is wrong with an artifact that adds up to `sum`.
    pub(crate) fn judge(&self, sum: &Sum) -> Result<(), String> {
        if self.size != sum.size {
            return Err(format!("it has {} bytes, its manifest says {}", sum.size, self.size));
        }
        if self.sha256 != sum.sha256 {
            return Err(format!("its SHA-256 is {}, its manifest says {}", sum.sha256, self.sha256));
        }
        Ok(())
    }
}

/// What bytes add up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

/// Adds bytes up.
#[derive(Default)]
pub(crate) struct Summing {
    size: u64,
    hash: Sha256,
}

impl Summing {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.hash.update(bytes);
    }

    pub(crate) fn finish(self) -> Sum {
        let digest = self.hash.finalize();
        let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Sum { size: self.size, sha256 }
    }
}
