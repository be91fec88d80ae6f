//! How far a directive has come.

use serde::{Deserialize, Serialize};

/// Where a source goes on: a number, a token, a bookmark. Only the source that gave it out understands it.
///
/// It is the source's own value and nothing around it: a pointer that holds the pointer before it would grow with every
/// page.
pub type Pointer = serde_json::Value;

/// How far a directive has come, as kept in the key-value store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cursor {
    /// Where the source goes on; null is its beginning.
    pub source_pointer: Pointer,
    /// Items accounted for since the beginning of the source.
    pub processed_count: u64,
    /// Over their keys and hashes in order: two runs over the same data end with the same one.
    pub checksum: String,
    /// The batch that moved it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_id: Option<String>,
    /// Why it is here, if somebody moved it by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_ref: Option<String>,
}

/// How much of what comes after the cursor is accounted for: a page that is written in parts, or records of a source
/// that has not yet said where to go on.
///
/// Whoever takes up the run fetches these records again and writes them again ([`crate::Batch::replayed`]): those that
/// are the same cost nothing and are not counted twice. For another run, or at another cursor, it means nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// Records.
    pub accounted: u64,
    /// The run that has counted them.
    pub run: String,
    /// The version of the cursor that they come after; 0 if there is none.
    pub cursor_version: u64,
}
