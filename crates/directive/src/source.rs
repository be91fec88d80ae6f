//! Where records come from.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use stargate_base::ErrorClass;
use stargate_queue::job::Json;

use crate::cursor::Pointer;

/// A page as a source gave it.
#[derive(Debug)]
pub struct Page {
    /// Its records in the source's order.
    pub records: Records,
    /// Where to go on after this page; `None` if the source said nothing new.
    pub next: Option<Pointer>,
    /// Whether there is nothing after it.
    pub is_last: bool,
}

/// The records of a page: in memory, or in a file if they are too large for it.
#[derive(Debug)]
pub enum Records {
    /// In memory; text that is no JSON is an error of its own.
    Memory(Vec<Result<Json, Garbled>>),
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
    /// The next page of about `size` records.
    async fn page(&mut self, size: u32) -> Result<Page, SourceError>;

    /// Ends it: processes are gone and connections closed when this returns.
    async fn close(self: Box<Self>);
}

/// Why a source gave no page.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// How it is to be treated.
    pub class: ErrorClass,
    /// A stable code: `SOURCE_HTTP_STATUS`, `SOURCE_GARBLED`, …
    pub code: &'static str,
    /// What happened and what to do about it; without secrets.
    pub message: String,
    /// When the source wants to be asked again.
    pub retry_after: Option<Duration>,
}
