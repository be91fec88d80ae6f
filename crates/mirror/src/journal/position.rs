//! A place in the journal, and how to tell that it is still the same place.

use serde::{Deserialize, Serialize};

/// A place in the journal: right after a line.
///
/// It names the line before it by number, extent and checksum, so that a reader can see whether the journal is still
/// the one in which it was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Which journal.
    pub journal_id: String,
    /// The file, by number.
    pub segment: u64,
    /// The first byte after the line, newline included.
    pub offset: u64,
    /// The highest number read so far; 0 before the first.
    pub seq: u64,
    /// The first byte of the line. Equal to `offset` when no line of this file has been read.
    pub line_from: u64,
    /// CRC-32C of the line with its newline.
    #[serde(with = "hex")]
    pub line_crc: u32,
    /// How far the latest full segments were read. Somebody may still append to one: a writer who opened it before it
    /// was full and does not look at its name again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tails: Vec<Tail>,
}

/// How far a full segment was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// The segment.
    pub segment: u64,
    /// The first byte that was not read.
    pub offset: u64,
}

/// Why a position is no place in the journal that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The checkpoint cannot be read.
    #[error("the checkpoint cannot be read")]
    Unreadable,
    /// The checkpoint belongs to another journal.
    #[error("the checkpoint belongs to another journal")]
    OtherJournal,
    /// Its segment is not there.
    #[error("the segment of the checkpoint is not there")]
    NoSegment,
    /// Its segment ends before it.
    #[error("the journal is shorter than it was")]
    Shorter,
    /// Another line stands there.
    #[error("the journal has another line where the last one was read")]
    OtherLine,
    /// The file that was read is gone or has been replaced.
    #[error("the journal was removed or replaced")]
    Replaced,
}

/// Checksums as people write them.
mod hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(crc: &u32, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{crc:08x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        let text = String::deserialize(from)?;
        u32::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}
