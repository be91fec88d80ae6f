//! The checkpoint: how far the journal is accounted for. All before it has a status record; the worker goes on after.
//!
//! It is replaced whole: a new file is written, synced, renamed, and the directory synced. What is in the journal up to
//! it must be durable first ([`Reader::sync`](crate::Reader::sync)), and the status records too.
//!
//! Whether it fits the journal that there is, is for the reader to find out: the checkpoint names the last line by
//! extent and checksum. If it does not fit, nothing is guessed: the journal is read from its oldest line.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_base::clock;

use crate::error::{Error, Result};
use crate::files::Files;
use crate::journal::Position;

const NAME: &str = "mirror-worker.offset";
const VERSION: u32 = 1;
/// What a checkpoint can have at most; it has some 300 bytes.
const BYTES_MAX: u64 = 64 * 1024;

/// How far the journal is accounted for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    version: u32,
    /// Up to here.
    #[serde(flatten)]
    pub position: Position,
    /// When it was stored.
    pub at: Timestamp,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// Nothing was ever accounted for.
    Absent,
    /// There is one, but it cannot be read.
    Unreadable,
    /// This.
    Found(Checkpoint),
}

impl Checkpoint {
    /// Reads the checkpoint of a repository.
    pub fn load(repo: &Path) -> Result<Loaded> {
        Self::load_from(&Files::open(repo)?)
    }

    /// Stores a new one in its place, and answers when it is durable.
    pub fn store(repo: &Path, position: &Position) -> Result<Self> {
        let checkpoint = Self { version: VERSION, position: position.clone(), at: clock::wall() };
        let mut content = serde_json::to_vec(&checkpoint)
            .map_err(|error| Error::invalid("checkpoint", error.to_string()))?;
        content.push(b'\n');
        Files::open(repo)?.replace(NAME, &content)?;
        Ok(checkpoint)
    }

    pub(crate) fn load_from(files: &Files) -> Result<Loaded> {
        let Some(content) = files.read(NAME, BYTES_MAX)? else { return Ok(Loaded::Absent) };
        Ok(match serde_json::from_slice::<Self>(&content) {
            Ok(checkpoint) if checkpoint.version == VERSION => Loaded::Found(checkpoint),
            _ => Loaded::Unreadable,
        })
    }
}

/// The number up to which entries are accounted for; 0 if nobody knows.
pub(crate) fn seq(files: &Files) -> u64 {
    match Checkpoint::load_from(files) {
        Ok(Loaded::Found(checkpoint)) => checkpoint.position.seq,
        _ => 0,
    }
}
