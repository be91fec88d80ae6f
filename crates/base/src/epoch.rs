//! The number of a term of leadership, issued by the store that is to be protected.
//!
//! Only the store can refuse a write of yesterday's leader: a pause may fall between any check and the write it was
//! for. So the store itself issues the number, in a transaction, and compares it inside every guarded write.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a term: higher than that of every term before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(u64);

impl Epoch {
    /// An epoch as the store wrote it.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, for statements and displays.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
