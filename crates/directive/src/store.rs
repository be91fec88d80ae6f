//! What a store promises about directives.
//!
//! # Rules
//!
//! Values
//!  1. `kv_put` compares and writes in one statement: of two writers with the same expectation one is stored. The version
//!     rises by one with every write of a key, and does not begin anew after a removal.
//!  2. A repeated request id with the same content is `Stored` with the version it got; with another content it is a
//!     `Conflict`. The last request of each key is remembered.
//!  3. A value whose time to live is over is absent for every reader and writer.
//!  4. A store that cannot be reached is an error; it is never "no value".
//!  5. A write with a `spec_ref` leaves a row in the audit: who, when, from what, to what, why; in the same transaction.
//!
//! Runs
//!  6. `run_begin` gives out the lease if the key is free, its time is over, or it is held for the same run; each time
//!     with a higher version, so that an execution that was replaced can write nothing more. The run's row is made, or
//!     taken up, in the same transaction. A run that has ended is not begun again: `Conflict`. If the lease of another
//!     run was over and is taken, that run ends as failed, saying who took its place.
//!  7. `run_beat` keeps what the run says of itself, renews the lease and answers whether it is still held and whether the
//!     run is to be cancelled. It does not raise the version, and never makes the lease shorter than it is.
//!  8. `run_end` records the outcome and gives the lease back, once.
//!
//! Batches
//!  9. `persist` does all of its writes in one transaction or none: rows, announcements, quarantine, the run's counts,
//!     cursor or partial progress. It is refused with `Conflict` unless the lease is held in that version, and the
//!     cursor has the version that is expected. The last page is noted with the run (`source_ended`).
//! 10. A batch with the request id of the run's last one is answered as that was (`first: false`), and nothing is written:
//!     the answer to the first was lost.
//! 11. A row is named by tenant, project, directive and entity. With the same hash it is not written. Otherwise it is, its
//!     version rises by one, and there is one announcement if there is a topic.
//! 12. The counts add up to items and rejects, or the transaction is rolled back. Counts of rows elsewhere are added as
//!     they are. Of a batch that is `replayed`, unchanged items and rejects that were kept aside before are left out of
//!     the answer and of the run's counts, after that check.
//! 13. The table is made on first use, mapped columns are added when new ones are named. A table that is there and is
//!     not a sink's, or a column of another type, is refused with `Invalid` and a remedy.
//! 14. The same reject (directive, record) is kept once and counted. An item that is persisted resolves the quarantined
//!     records of its entity; so does naming them (`Batch::resolves`).
//!
//! Announcements
//! 15. `outbox_next` gives undelivered ones in the order of their numbers, only those above `after` if it is named: a
//!     page whose deliveries fail must not hide what comes behind it. `outbox_failed` raises the attempts of an
//!     announcement by one. `outbox_done` is true once.
//!     `outbox_notify` sends an announcement as a notification and notes it as delivered in one transaction; a store that
//!     has none (SQLite) answers `Invalid`.
//! 16. Delivered ones are removed after [`OUTBOX_KEPT`], a few with every `outbox_done`.
//!
//! 17. No page is larger than [`PAGE_MAX`].
//! 18. Runs that have ended, resolved records and rows of the audit are removed after [`RUNS_KEPT`], at most
//!     [`RUNS_PURGED_MAX`] of each with every `run_end`. What is open stays however long.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stargate_queue::Result;
pub use stargate_queue::store::PAGE_MAX;

use crate::item::{Batch, Persisted};
use crate::kv::{Entry, Key, Override, Put, PutAnswer};
use crate::outbox::{Announcement, OutboxId, Waiting};
use crate::quarantine::{QuarantineFilter, QuarantineId, Quarantined};
use crate::run::{Beat, Begin, End, Lease, NewRun, Run, RunId};

/// How long delivered announcements are kept.
pub const OUTBOX_KEPT: Duration = Duration::from_secs(48 * 3600);

/// How long runs that ended, resolved records and writes by hand are kept.
pub const RUNS_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

/// How many of each are removed with a run that ends.
pub const RUNS_PURGED_MAX: u32 = 100;

/// Shared by everything in the process.
pub type SharedDirectives = Arc<dyn Directives>;

/// Where values, runs, batches and announcements are kept. The module text has the rules.
#[async_trait]
pub trait Directives: Send + Sync + Debug + 'static {
    /// Reads a value; `None` only if there is none.
    async fn kv_get(&self, key: &Key) -> Result<Option<Entry>>;

    /// Compares and writes.
    async fn kv_put(&self, put: Put) -> Result<PutAnswer>;

    /// A page of values whose keys begin so, by key, from after the one named.
    async fn kv_list(&self, prefix: &str, after: Option<&str>, limit: u32) -> Result<Vec<Entry>>;

    /// Writes by hand to values whose keys begin so, newest first.
    async fn kv_overrides(&self, prefix: &str, limit: u32) -> Result<Vec<Override>>;

    /// Takes the lease of a directive for a run.
    async fn run_begin(&self, run: NewRun) -> Result<Begin>;

    /// Renews the lease.
    async fn run_beat(&self, lease: &Lease, lease_for: Duration, beat: Beat) -> Result<Standing>;

    /// Records how a run ended and gives its lease back; false if that had been done or the lease is another's.
    async fn run_end(&self, lease: &Lease, end: End) -> Result<bool>;

    /// Asks a run to stop; false if it has ended or there is none.
    async fn run_cancel(&self, run: &RunId) -> Result<bool>;

    /// One run.
    async fn run(&self, run: &RunId) -> Result<Option<Run>>;

    /// A page of runs, newest first, from before the one named.
    async fn runs(&self, directive: Option<&str>, before: Option<&RunId>, limit: u32) -> Result<Vec<Run>>;

    /// Writes a batch.
    async fn persist(&self, batch: Batch) -> Result<Persisted>;

    /// A page of quarantined records, newest first.
    async fn quarantine(&self, filter: QuarantineFilter) -> Result<Vec<Quarantined>>;

    /// Notes that a quarantined record is dealt with; false if that is known or it is not there.
    async fn quarantine_resolve(&self, id: QuarantineId) -> Result<bool>;

    /// A page of announcements that are not delivered, by number, from after the one named.
    async fn outbox_next(
        &self,
        topic: &str,
        after: Option<OutboxId>,
        limit: u32,
    ) -> Result<Vec<Announcement>>;

    /// Notes that an announcement has arrived.
    async fn outbox_done(&self, id: OutboxId) -> Result<bool>;

    /// Sends an announcement over a channel of the store's own and notes that it has arrived. One whose payload is too
    /// long for the channel is sent with `"body": null`.
    async fn outbox_notify(&self, channel: &str, id: OutboxId) -> Result<bool>;

    /// Announcements of each topic that are not delivered, and the time of the oldest.
    async fn outbox_waiting(&self) -> Result<Vec<Waiting>>;

    /// Notes that a delivery was tried in vain.
    async fn outbox_failed(&self, id: OutboxId, problem: &str) -> Result<()>;
}

/// How a run stands, as its beat is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It goes on.
    Held,
    /// Somebody asked it to stop.
    CancelAsked,
    /// Another execution has its lease.
    Lost,
}
