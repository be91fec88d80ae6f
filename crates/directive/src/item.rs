//! What a batch consists of.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stargate_queue::job::Json;

use crate::cursor::{Cursor, Partial};
use crate::kv::Expected;
use crate::quarantine::QuarantineId;
use crate::run::Lease;

/// What a column of a sink's table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    /// Text.
    Text,
    /// A whole number of 64 bits.
    Integer,
    /// A floating-point number of 64 bits.
    Float,
    /// True or false.
    Boolean,
    /// A point in time, RFC 3339.
    Timestamp,
    /// Any JSON.
    Json,
}

impl ColumnType {
    /// The word of files and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Float => "float",
            Self::Boolean => "boolean",
            Self::Timestamp => "timestamp",
            Self::Json => "json",
        }
    }
}

/// The columns that every sink's table has, in its order; the mapped ones follow.
pub const FIXED_COLUMNS: [&str; 9] = [
    "tenant_id",
    "project_id",
    "directive",
    "entity_id",
    "hash",
    "version",
    "body",
    "created_at",
    "updated_at",
];

/// A mapped column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name; checked to be a plain lower-case identifier.
    pub name: String,
    /// What it holds.
    pub kind: ColumnType,
}

/// Where a directive's items go: a table with the [`FIXED_COLUMNS`] and the mapped ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Its name; checked to be a plain lower-case identifier.
    pub name: String,
    /// The mapped columns; may be none.
    pub columns: Vec<Column>,
}

/// A value of a mapped column, of the column's type or null.
#[derive(Debug, Clone)]
pub enum Value {
    /// Nothing.
    Null,
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// True or false.
    Boolean(bool),
    /// A point in time.
    Timestamp(jiff::Timestamp),
    /// Any JSON.
    Json(Json),
}

/// A SHA-256 over what of an item counts as its content.
pub type Hash = [u8; 32];

/// A record, transformed.
#[derive(Debug, Clone)]
pub struct Item {
    /// Names the entity within the directive, tenant and project.
    pub entity_id: String,
    /// Tells whether it changed.
    pub hash: Hash,
    /// The record.
    pub body: Json,
    /// As many values as the table has mapped columns, in their order.
    pub columns: Vec<Value>,
}

/// A record that cannot become an item. It is kept aside with its reason and counts as accounted for.
#[derive(Debug, Clone)]
pub struct Reject {
    /// The record as it came; text that is no JSON is a JSON string.
    pub record: Json,
    /// A stable word: `schema`, `key-missing`, `type`, …
    pub cause: String,
    /// What is wrong, at which place of the record.
    pub reason: String,
    /// The entity, if that much could be read.
    pub entity_id: Option<String>,
}

/// What is to be written in one transaction.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The run that writes it.
    pub lease: Lease,
    /// Names the batch, the same at each repetition by the same holder of the lease.
    pub request_id: String,
    /// Its items.
    pub rows: Rows,
    /// What is kept aside.
    pub rejects: Vec<Reject>,
    /// Quarantined records that became items of this batch.
    pub resolves: Vec<QuarantineId>,
    /// Whether these records were accounted for before, as [`Partial`] says: what is unchanged or kept aside already is
    /// not counted again.
    pub replayed: bool,
    /// What becomes of the cursor.
    pub advance: Advance,
}

/// The items of a batch.
#[derive(Debug, Clone)]
pub enum Rows {
    /// They are to be written, with the cursor.
    Here {
        /// Where they go.
        table: Arc<Table>,
        /// Each key once. A batch that is tried again shares them.
        items: Arc<Vec<Item>>,
        /// Under which topic changes are announced, if they are.
        topic: Option<Arc<str>>,
    },
    /// They are in another database already, and counted there.
    Elsewhere {
        /// What became of them.
        counts: Counts,
        /// Whom they are about: what was kept aside of them before is resolved.
        entities: Vec<String>,
    },
}

/// What a batch does to the cursor.
#[derive(Debug, Clone)]
pub enum Advance {
    /// It ends one or several whole pages: the cursor moves, and what was noted as partial is forgotten.
    Page {
        /// The cursor's version when the run read or wrote it last.
        expected: Expected,
        /// Where it is now.
        cursor: Cursor,
        /// Pages that end with this batch.
        pages: u32,
        /// Whether the source ends with it: noted with the run, which has only to be finalized then.
        is_last: bool,
    },
    /// A part of a page: the cursor stays, and the progress is noted under the key `…/cursor/partial`.
    Part(Partial),
    /// The batch has nothing to do with the source: quarantined records that are tried again.
    Still,
}

/// What became of items. Their sum is how many were fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Were not there before.
    pub created: u64,
    /// Were there with another hash.
    pub updated: u64,
    /// Were there with the same hash: nothing was written.
    pub unchanged: u64,
    /// Were kept aside.
    pub failed: u64,
}

impl Counts {
    /// All of them.
    pub fn total(self) -> u64 {
        self.created + self.updated + self.unchanged + self.failed
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.created += more.created;
        self.updated += more.updated;
        self.unchanged += more.unchanged;
        self.failed += more.failed;
    }
}

/// What a written batch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Persisted {
    /// What became of its items.
    pub counts: Counts,
    /// The version of the cursor now; `None` while there is none.
    pub cursor_version: Option<u64>,
    /// False when the batch had been written before and this answer is the one of then.
    pub first: bool,
    /// Whether somebody asked the run to stop.
    pub cancel_asked: bool,
}
