//! Directives: ingestion that never skips, never repeats and never half-writes.
//!
//! ```text
//!   AcquireContext ── ResolveCursor ──▶ FetchSourceData ── Transform ── Persist ── AdvanceCursor ──▶ Finalize
//!        the file        lease and           a page         items and     one transaction: rows, outbox,
//!                        cursor                             rejects       quarantine, counts and cursor
//!                                         └──────────────── for each page ────────────────┘
//! ```
//!
//! The cursor never passes data that is not accounted for (INV-5): it is moved by the transaction that wrote the batch,
//! and only if as many items were created, updated, unchanged or quarantined as were fetched. A run that dies is taken
//! up at its last page; what it had fetched and not written is fetched again, and upserts by key and hash make that
//! invisible.

pub mod canonical;
pub mod cursor;
pub mod doc;
pub mod file;
pub mod item;
pub mod kv;
pub mod metrics;
pub mod outbox;
pub mod pace;
pub mod parts;
pub mod quarantine;
pub mod retry;
pub mod run;
pub mod source;
pub mod steps;
pub mod store;
pub mod transform;

pub use cursor::{Cursor, Partial, Pointer};
pub use item::{Advance, Batch, Counts, Item, Persisted, Reject, Rows, Table};
pub use kv::{Entry, Expected, Key, Override, Put, PutAnswer};
pub use run::{Beat, Begin, End, Lease, NewRun, Outcome, Run, RunId, Step};
pub use store::{Directives, SharedDirectives, Standing};
