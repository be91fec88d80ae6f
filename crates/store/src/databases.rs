//! Databases that directives name: queries as sources, and tables elsewhere as sinks.
//!
//! ```text
//!   first page ─▶ no null watermarks? how far does it go? ─▶ rows from the pointer on, that value included
//!   next pages ─▶ rows after the last watermark, up to where the first page said
//! ```
//!
//! What a feed promises, if watermarks only rise (a row gets its watermark when it is written, and none is written later
//! with a lower one):
//!
//! - Nothing is skipped. A page holds all rows of its last watermark. What is written during a run with a watermark that
//!   was seen already can only have the highest one of then; there the feed ends, and the next one begins with that
//!   value again. Rows that come twice have the same hash and cost no write.
//! - A feed ends, however fast rows are added: it reads up to the highest watermark that it found at its beginning.
//! - Nothing is written to the database, whatever the query calls.
//!
//! A transaction that takes its time first and commits late breaks the condition. The query can wait for it:
//! `… where updated_at < now() - interval '1 minute'`.
//!
//! A sink elsewhere writes and verifies a batch in one transaction there, and the cursor follows; a batch that is written
//! again finds every hash the same. Tables that were not made for directives are left alone: the table `stargate_sink`
//! there says which were. The table `stargate_fence` beside it has the highest version of each directive's lease: an
//! execution that was paused and replaced is refused there.
//!
//! Rows of Postgres are read in the time zone UTC. Bytes are text in both: `\x` and hexadecimal digits.

mod address;
mod error;
mod fence;
mod postgres_feed;
mod postgres_sink;
mod query;
mod spool;
mod sqlite_feed;
mod sqlite_sink;

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use stargate_base::Secret;
use stargate_directive::Pointer;
use stargate_directive::source::{Databases, Feed, ForeignSink, SourceError};

use address::Address;
use query::Query;

/// How long a page may take before it counts as failed: a first page may have to sort a large table.
const PAGE_TIME_MAX: Duration = Duration::from_secs(300);

/// The most rows of a page. Only equal watermarks make a page larger than what was asked for.
const PAGE_ROWS_MAX: u32 = 100_000;

/// The store's own database, for directives that name none.
#[derive(Debug, Clone)]
pub enum Own {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres {
        /// The URL, which may hold a password.
        url: Secret,
        /// It leads to a pooler that does not keep prepared statements.
        pooled: bool,
    },
}

/// Opens databases with the drivers of the stores.
#[derive(Debug)]
pub struct Drivers {
    own: Address,
    scratch: PathBuf,
    page_time_max: Duration,
}

impl Drivers {
    /// `own` is the store's database; pages that are too large for memory are written into `scratch` meanwhile.
    pub fn new(own: Own, scratch: &Path) -> Self {
        let own = match own {
            Own::Sqlite(path) => Address::Sqlite(path),
            Own::Postgres { url, pooled } => Address::Postgres { url, pooled },
        };
        Self { own, scratch: scratch.to_owned(), page_time_max: PAGE_TIME_MAX }
    }

    /// The same with another time that a page may take.
    #[must_use]
    pub fn with_page_time_max(self, page_time_max: Duration) -> Self {
        Self { page_time_max, ..self }
    }
}

/// What a feed needs besides its query.
#[derive(Debug, Clone)]
struct Terms {
    scratch: PathBuf,
    page_time_max: Duration,
}

#[async_trait]
impl Databases for Drivers {
    async fn feed(
        &self,
        url: Option<&Secret>,
        query: &str,
        watermark: &str,
        from: &Pointer,
    ) -> Result<Box<dyn Feed>, SourceError> {
        let address = url.map_or_else(|| Ok(self.own.clone()), address::read)?;
        let query = Query::new(query, watermark)?;
        let terms = Terms { scratch: self.scratch.clone(), page_time_max: self.page_time_max };
        Ok(match address {
            Address::Sqlite(path) => Box::new(sqlite_feed::SqliteFeed::new(path, query, from, terms)?),
            Address::Postgres { url, pooled } => {
                Box::new(postgres_feed::PostgresFeed::new(&url, pooled, query, from, terms)?)
            }
        })
    }

    async fn sink(&self, url: &Secret) -> Result<Box<dyn ForeignSink>, SourceError> {
        Ok(match address::read(url)? {
            Address::Sqlite(path) => Box::new(sqlite_sink::SqliteSink::new(path)),
            Address::Postgres { url, pooled } => Box::new(postgres_sink::PostgresSink::new(&url, pooled)?),
        })
    }
}
