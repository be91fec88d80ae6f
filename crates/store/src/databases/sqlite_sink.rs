//! Tables of directives in another SQLite file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use stargate_base::clock::wall;
use stargate_directive::source::{ForeignSink, Owner, SourceError};
use stargate_directive::{Counts, Item, Table};
use stargate_queue::Result;

use super::error::{of_sink, unreachable, unverified};
use super::fence;
use super::query::around;
use crate::directive_rows::check_items;
use crate::repo_rows::signed;
use crate::sqlite::error::Step;
use crate::sqlite::sink;

const OPERATION: &str = "write rows elsewhere";

/// The table there that says which ones were made for directives.
const REGISTRY: &str = "stargate_sink";
/// How long a lock of others is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(8);

/// A SQLite file with tables for rows.
#[derive(Debug)]
pub(super) struct SqliteSink {
    path: PathBuf,
    connection: Arc<Mutex<Option<Connection>>>,
}

impl SqliteSink {
    /// A sink that opens the file, made when needed, when it is first used.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, connection: Arc::default() }
    }
}

#[async_trait]
impl ForeignSink for SqliteSink {
    async fn upsert(
        &self,
        owner: &Owner,
        fence: u64,
        table: &Table,
        items: Vec<Item>,
    ) -> Result<Counts, SourceError> {
        check_items(table, &items).map_err(|error| of_sink(&error))?;
        let (path, place) = (self.path.clone(), Arc::clone(&self.connection));
        let (owner, table) = (owner.clone(), table.clone());
        let writing = tokio::task::spawn_blocking(move || {
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            // A connection that failed is not used again.
            let mut connection = match place.take() {
                Some(connection) => connection,
                None => open(&path)?,
            };
            let counts = write(&mut connection, &owner, signed(fence), &table, &items)?;
            *place = Some(connection);
            Ok(counts)
        });
        let written: Step<Counts> = writing.await.map_err(|_| unreachable("the write was given up"))?;
        written.map_err(|failure| of_sink(&failure.into_error(OPERATION)))
    }
}

/// Opens the file. Whatever its owner has set, a commit that has answered survives a crash: the cursor follows it (INV-5).
fn open(path: &Path) -> Step<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "synchronous", "full")?;
    Ok(connection)
}

fn write(
    connection: &mut Connection,
    owner: &Owner,
    fence: i64,
    table: &Table,
    items: &[Item],
) -> Step<Counts> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    raise_fence(&transaction, owner, fence)?;
    let counts = write_within(&transaction, owner, table, items)?;
    transaction.commit()?;
    Ok(counts)
}

fn raise_fence(s: &Transaction<'_>, owner: &Owner, fence: i64) -> Step<()> {
    s.execute(around!("sqlite_fence"), [])?;
    let mut raise = s.prepare_cached(around!("sqlite_fence_raise"))?;
    let owner_and_fence = (&owner.tenant, &owner.project, &owner.directive, fence);
    let highest = raise.query_row(owner_and_fence, |row| row.get(0))?;
    Ok(fence::check(owner, fence, highest)?)
}

fn write_within(s: &Transaction<'_>, owner: &Owner, table: &Table, items: &[Item]) -> Step<Counts> {
    let now = wall().as_microsecond();
    s.execute(around!("sqlite_registry"), [])?;
    sink::ensure(s, REGISTRY, table, now)?;
    let counts = sink::counts(items.len(), &sink::upsert(s, owner, table, items, now)?);
    if counts.total() != items.len() as u64 || !sink::holds_all(s, owner, table, items)? {
        return Err(unverified(items.len(), 1).into());
    }
    Ok(counts)
}
