//! A look at the file's health: how it is written, whether it is whole, whether it has room to grow.

use std::path::{Path, PathBuf};

use stargate_queue::Result;
use stargate_queue::store::Finding;

use super::Sqlite;
use super::session::sql;
use super::writer::Rank;
use crate::bytes::human;

/// Checking a larger file takes minutes and reads all of it.
const CHECK_BYTES_MAX: u64 = 1 << 30;
/// A log of this size is never copied back: somebody reads without end.
const WAL_BYTES_WARN: u64 = 512 << 20;
/// Less room than this, and the next burst of jobs may not fit.
const FREE_BYTES_WARN: u64 = 1 << 30;
const FREE_BYTES_FAIL: u64 = 64 << 20;
/// Free pages are only worth a word from this size on.
const SLACK_BYTES_WARN: u64 = 1 << 30;
/// `pragma synchronous` answers numbers: 2 full, 3 extra.
const SYNCHRONOUS_FULL: i64 = 2;

pub(super) async fn diagnose(store: &Sqlite) -> Result<Vec<Finding>> {
    let path = store.readers.path().to_owned();
    let (journal, bytes, free) = store
        .readers
        .read("tell how it is journaled", |r| {
            let mut look = r.conn.prepare_cached(sql!("diagnose"))?;
            Ok(look.query_row([], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
            })?)
        })
        .await?;
    let (bytes, free) = (bytes.unsigned_abs(), free.unsigned_abs());
    let synchronous: i64 = store
        .writer
        .write(Rank::Moved, "tell how it syncs", |s| {
            Ok(s.conn.prepare_cached(sql!("diagnose_synchronous"))?.query_row([], |row| row.get(0))?)
        })
        .await?;
    let mut findings = vec![journaling(&journal, synchronous), size(bytes, free)];
    findings.push(if bytes < CHECK_BYTES_MAX { integrity(store).await? } else { unchecked(bytes) });
    findings.push(log(&path));
    findings.push(room(&path));
    if let Some(target) = store.moved_to().await? {
        findings.push(Finding::fail(
            "moved",
            format!("this store was moved to {target} and takes no writes"),
            "set STARGATE_STORE to that one; if the move was never finished: stargate store move --abort",
        ));
    }
    Ok(findings)
}

fn journaling(journal: &str, synchronous: i64) -> Finding {
    const NAME: &str = "durability";
    let found = format!("journal_mode {journal}, synchronous {}", synchronous_name(synchronous));
    if journal != "wal" {
        let remedy =
            "close every other program that has the file open, then start again; WAL needs a local disk";
        return Finding::fail(NAME, found, remedy);
    }
    if synchronous < SYNCHRONOUS_FULL {
        return Finding::fail(NAME, found, "a power failure loses accepted jobs; report this as a bug");
    }
    Finding::ok(NAME, found)
}

fn synchronous_name(number: i64) -> &'static str {
    match number {
        0 => "off",
        1 => "normal",
        2 => "full",
        _ => "extra",
    }
}

fn size(bytes: u64, free: u64) -> Finding {
    let found = format!("{}, of which {} are free", human(bytes), human(free));
    if free > SLACK_BYTES_WARN && free > bytes / 2 {
        return Finding::warn("file size", found, "stop all processes and run: sqlite3 FILE vacuum");
    }
    Finding::ok("file size", found)
}

async fn integrity(store: &Sqlite) -> Result<Finding> {
    let answer: String = store
        .readers
        .read("check its pages", |r| {
            Ok(r.conn.prepare_cached(sql!("diagnose_quick_check"))?.query_row([], |row| row.get(0))?)
        })
        .await?;
    Ok(match answer.as_str() {
        "ok" => Finding::ok("integrity", "no damage found"),
        damage => Finding::fail(
            "integrity",
            format!("the file is damaged: {damage}"),
            "stop all processes and restore a backup, or save what is left with: sqlite3 FILE .recover",
        ),
    })
}

fn unchecked(bytes: u64) -> Finding {
    Finding::ok(
        "integrity",
        format!("not checked, {} would take long; sqlite3 FILE 'pragma quick_check'", human(bytes)),
    )
}

fn log(database: &Path) -> Finding {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    let bytes = std::fs::metadata(PathBuf::from(name)).map_or(0, |data| data.len());
    let found = format!("{} of write-ahead log", human(bytes));
    if bytes > WAL_BYTES_WARN {
        return Finding::warn(
            "log",
            found,
            "a program reads the file in a transaction that does not end; end it",
        );
    }
    Finding::ok("log", found)
}

fn room(database: &Path) -> Finding {
    let folder = database.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let remedy = "make room, or shorten the retention: stargate purge --done-older-than 3d";
    match rustix::fs::statvfs(folder) {
        Err(error) => Finding::warn("room", format!("cannot ask for free space: {error}"), "check the disk"),
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize);
            let found = format!("{} free beside the file", human(free));
            match free {
                0..FREE_BYTES_FAIL => Finding::fail("room", found, remedy),
                FREE_BYTES_FAIL..FREE_BYTES_WARN => Finding::warn("room", found, remedy),
                _ => Finding::ok("room", found),
            }
        }
    }
}
