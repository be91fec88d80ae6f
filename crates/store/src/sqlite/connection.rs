//! How connections are opened: the one that writes, and those that read.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::Step;

/// How long a connection waits for a lock that a foreign tool holds; our own writers queue at a lock file first. Shorter
/// than the patience of those who queue there meanwhile, so that they are not the ones who get the error.
const BUSY_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a checkpoint waits for readers: heartbeats wait behind it.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_millis(50);
/// Statements kept compiled; more than there are files in `sql/sqlite`, and three for each of a few sinks.
const STATEMENTS: usize = 320;

/// Opens the connection that writes. Commits are durable when they return (INV-1): WAL with `synchronous=FULL`.
pub(super) fn writing(path: &Path) -> Step<Connection> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    // A checkpoint syncs the database file; a longer log makes that rarer.
    connection.pragma_update(None, "wal_autocheckpoint", 8000)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    connection.pragma_update(None, "cache_size", -(32 << 10))?;
    Ok(connection)
}

/// Opens a connection that only reads. It is not opened read-only: SQLite could then not take part in the
/// recovery of the log after a crash.
pub(super) fn reading(path: &Path) -> Step<Connection> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", -(8 << 10))?;
    Ok(connection)
}

/// Moves the log into the database and empties it; false when readers were in the way for too long.
pub(super) fn checkpoint(connection: &Connection) -> Step<bool> {
    connection.busy_timeout(CHECKPOINT_TIMEOUT)?;
    let held_up = connection.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, bool>(0));
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(!held_up?)
}

fn open(path: &Path, flags: OpenFlags) -> Step<Connection> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise a statement is compiled anew whenever its parameters change, in case another index fits better.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Rows are joined by statements of ours only; checking each insert again would cost the hot path.
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    Ok(connection)
}

/// Whether commits wait until they are on the disk. One that does takes all earlier ones with it. Not to be changed
/// within a transaction.
pub(super) fn wait_for_disk(conn: &Connection, wait: bool) -> rusqlite::Result<()> {
    conn.pragma_update(None, "synchronous", if wait { "full" } else { "normal" })
}
