//! The schema: numbered files, forward only, each recorded with its checksum.

use rusqlite::Connection;
use stargate_queue::Error;

use super::error::Step;

/// A numbered step of the schema.
struct Migration {
    version: i64,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "jobs", sql: include_str!("../../migrations/sqlite/0001_jobs.sql") },
    Migration {
        version: 2,
        name: "source_link",
        sql: include_str!("../../migrations/sqlite/0002_source_link.sql"),
    },
    Migration {
        version: 3,
        name: "leadership",
        sql: include_str!("../../migrations/sqlite/0003_leadership.sql"),
    },
    Migration { version: 4, name: "git", sql: include_str!("../../migrations/sqlite/0004_git.sql") },
    Migration { version: 5, name: "access", sql: include_str!("../../migrations/sqlite/0005_access.sql") },
    Migration {
        version: 6,
        name: "push_head",
        sql: include_str!("../../migrations/sqlite/0006_push_head.sql"),
    },
    Migration {
        version: 7,
        name: "push_hole",
        sql: include_str!("../../migrations/sqlite/0007_push_hole.sql"),
    },
    Migration {
        version: 8,
        name: "directives",
        sql: include_str!("../../migrations/sqlite/0008_directives.sql"),
    },
    Migration {
        version: 9,
        name: "overview",
        sql: include_str!("../../migrations/sqlite/0009_overview.sql"),
    },
];

/// The newest schema this program knows.
pub(super) const KNOWN: i64 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Brings the schema up to date. The caller holds the writer's lock, so that two processes starting at once do
/// not both try.
pub(super) fn run(connection: &mut Connection, now: i64) -> Step<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    transaction.execute(include_str!("../../sql/sqlite/migration_table.sql"), [])?;
    let found = version(&transaction)?;
    if found > KNOWN {
        return Err(Error::SchemaTooNew { found, known: KNOWN }.into());
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > found) {
        transaction.execute_batch(migration.sql)?;
        transaction.execute(
            include_str!("../../sql/sqlite/migration_insert.sql"),
            (migration.version, migration.name, checksum(migration.sql), now),
        )?;
    }
    transaction.commit()?;
    Ok(())
}

/// The schema in the file; 0 when it was never migrated.
pub(super) fn version(connection: &Connection) -> Step<i64> {
    let sql = include_str!("../../sql/sqlite/migration_version.sql");
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// FNV-1a: it only has to notice an edited file.
fn checksum(sql: &str) -> String {
    let hash = sql.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
