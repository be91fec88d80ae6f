//! Where records come from.

use std::fmt;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use stargate_base::{ErrorClass, Secret};
use stargate_queue::job::Json;

use crate::cursor::Pointer;
use crate::file::Directive;
use crate::item::{Counts, Item, Table};

/// A page as a source gave it.
#[derive(Debug)]
pub struct Page {
    /// Its records in the source's order.
    pub records: Records,
    /// Where to go on after this page; `None` if the source has not said. Then its records count as accounted for only
    /// together with those of a later page that says so.
    pub next: Option<Pointer>,
    /// Whether there is nothing after it.
    pub is_last: bool,
}

/// A record, or text that is none.
pub type Record = Result<Json, Garbled>;

/// The records of a page: from memory, or from a file if they are too large for it. Reading may block.
pub struct Records(Box<dyn Iterator<Item = Result<Record, SourceError>> + Send>);

impl Records {
    /// What is in memory.
    pub fn memory(records: Vec<Record>) -> Self {
        Self(Box::new(records.into_iter().map(Ok)))
    }

    /// What is read while it is asked for. After an error nothing more is asked.
    pub fn stream(records: impl Iterator<Item = Result<Record, SourceError>> + Send + 'static) -> Self {
        Self(Box::new(records))
    }
}

impl Iterator for Records {
    type Item = Result<Record, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Records")
    }
}

/// A record that is no JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Garbled {
    /// The text, cut to a bearable length.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

/// An opened source.
#[async_trait]
pub trait Feed: Send + Debug {
    /// The next page of about `size` records. Dropping the future leaves the feed fit only to be closed.
    async fn page(&mut self, size: u32) -> Result<Page, SourceError>;

    /// Ends it: processes are gone and connections closed when this returns.
    async fn close(self: Box<Self>);
}

/// Opens what directives name.
#[async_trait]
pub trait Sources: Send + Sync + Debug {
    /// The source of a directive where its cursor points to; null is its beginning.
    async fn open(&self, directive: &Directive, from: &Pointer) -> Result<Box<dyn Feed>, SourceError>;

    /// The place of its rows, if that is not the store.
    async fn sink(&self, directive: &Directive) -> Result<Option<Box<dyn ForeignSink>>, SourceError>;
}

/// Databases that a directive names, for its source or its sink. Drivers belong to the crate of the stores.
#[async_trait]
pub trait Databases: Send + Sync + Debug {
    /// A query whose rows are read in the order of a column that rises; the store's own database if no URL is given.
    async fn feed(
        &self,
        url: Option<&Secret>,
        query: &str,
        watermark: &str,
        from: &Pointer,
    ) -> Result<Box<dyn Feed>, SourceError>;

    /// A place for rows that is not the store's own.
    async fn sink(&self, url: &Secret) -> Result<Box<dyn ForeignSink>, SourceError>;
}

/// A place for rows in another database than the cursor's.
#[async_trait]
pub trait ForeignSink: Send + Sync + Debug {
    /// Writes items as a batch here would be, verifies that they are there, and counts them.
    ///
    /// `fence` is the version of the run's lease. It only rises, and is kept there with the rows' owner: whoever comes
    /// with a lower one than was seen is refused with `Conflict`, and writes nothing.
    async fn upsert(
        &self,
        owner: &Owner,
        fence: u64,
        table: &Table,
        items: Vec<Item>,
    ) -> Result<Counts, SourceError>;
}

/// Whose rows they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The tenant.
    pub tenant: String,
    /// The project.
    pub project: String,
    /// The directive.
    pub directive: String,
}

/// Why a source gave no page, or another database took no rows.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// How it is to be treated.
    pub class: ErrorClass,
    /// A stable code: `SOURCE_STATUS`, `SOURCE_GARBLED`, …
    pub code: &'static str,
    /// What happened and what to do about it; without secrets.
    pub message: String,
    /// When the source wants to be asked again.
    pub retry_after: Option<Duration>,
    /// Whether the source asks for less: pages shrink.
    pub limited: bool,
    /// Whether what was read so far does not hold together, so that the source must be read from its beginning.
    pub restart: bool,
}

impl SourceError {
    /// An error of a class.
    pub fn new(class: ErrorClass, code: &'static str, message: impl Into<String>) -> Self {
        Self { class, code, message: message.into(), retry_after: None, limited: false, restart: false }
    }
}
