//! The schema: numbered files, forward only, run under a lock and recorded with their checksums.

use std::time::Duration;

use stargate_queue::{Error, Result};
use tokio_postgres::types::Type;

use super::connect::{Line, Session};
use super::error::is_missing_table;
use super::sql;

/// A numbered step of the schema.
struct Migration {
    version: i64,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "jobs", sql: include_str!("../../migrations/postgres/0001_jobs.sql") },
    Migration {
        version: 2,
        name: "source_link",
        sql: include_str!("../../migrations/postgres/0002_source_link.sql"),
    },
    Migration {
        version: 3,
        name: "leadership",
        sql: include_str!("../../migrations/postgres/0003_leadership.sql"),
    },
    Migration { version: 4, name: "git", sql: include_str!("../../migrations/postgres/0004_git.sql") },
    Migration { version: 5, name: "access", sql: include_str!("../../migrations/postgres/0005_access.sql") },
    Migration {
        version: 6,
        name: "push_head",
        sql: include_str!("../../migrations/postgres/0006_push_head.sql"),
    },
    Migration {
        version: 7,
        name: "push_hole",
        sql: include_str!("../../migrations/postgres/0007_push_hole.sql"),
    },
    Migration {
        version: 8,
        name: "directives",
        sql: include_str!("../../migrations/postgres/0008_directives.sql"),
    },
    Migration {
        version: 9,
        name: "overview",
        sql: include_str!("../../migrations/postgres/0009_overview.sql"),
    },
    Migration {
        version: 10,
        name: "history_finished",
        sql: include_str!("../../migrations/postgres/0010_history_finished.sql"),
    },
    Migration {
        version: 11,
        name: "term_end",
        sql: include_str!("../../migrations/postgres/0011_term_end.sql"),
    },
];

/// How long a step may take: an index of all finished jobs takes seconds for each million.
const STEP_PATIENCE: Duration = Duration::from_secs(3600);

/// The newest schema this program knows.
pub(super) const KNOWN: i64 = MIGRATIONS[MIGRATIONS.len() - 1].version;

/// Brings the schema up to date. Processes that start at once wait for each other.
pub(super) async fn run(line: &Line) -> Result<()> {
    const OPERATION: &str = "migrate";
    let mut s = line.session().await?;
    // The common case needs no right to create anything.
    if version(&mut s).await? == KNOWN {
        return Ok(());
    }
    s.begin().await?;
    // Another process may be at it, and it may take as long as any step does.
    s.batch_within(STEP_PATIENCE, OPERATION, sql!("migration_table")).await?;
    let found = version(&mut s).await?;
    if found > KNOWN {
        s.rollback().await?;
        return Err(Error::SchemaTooNew { found, known: KNOWN });
    }
    for migration in MIGRATIONS.iter().filter(|migration| migration.version > found) {
        s.batch_within(STEP_PATIENCE, OPERATION, migration.sql).await?;
        let sum = checksum(migration.sql);
        s.rows(
            OPERATION,
            sql!("migration_insert"),
            &[(&migration.version, Type::INT8), (&migration.name, Type::TEXT), (&sum, Type::TEXT)],
        )
        .await?;
    }
    s.commit().await
}

/// The schema in the database; 0 when it was never migrated.
pub(super) async fn version(s: &mut Session<'_>) -> Result<i64> {
    const OPERATION: &str = "tell its schema";
    match s.value(OPERATION, sql!("migration_version"), &[]).await {
        Err(error) if is_missing_table(&error) => Ok(0),
        told => told,
    }
}

/// Refuses a schema that this program does not fit.
pub(super) fn fits(found: i64) -> Result<()> {
    match found {
        found if found > KNOWN => Err(Error::SchemaTooNew { found, known: KNOWN }),
        found if found < KNOWN => Err(Error::SchemaTooOld { found, known: KNOWN }),
        _ => Ok(()),
    }
}

/// FNV-1a: it only has to notice an edited file.
fn checksum(sql: &str) -> String {
    let hash = sql.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
