//! Takes a SQLite store to Postgres while producers and workers are at work, with nothing lost.
//!
//! ```text
//!   target                                source
//!   begin, lock, is it empty?
//!                                         freeze: every writer, in every process, is told of the target
//!   rows, table by table  ◀────────────   pages by key: nothing changes any more
//!   verify counts and sums
//!                                         "deciding": from here on only the target knows how it ended
//!   commit, notify
//!                                         "complete"
//! ```
//!
//! The target's side is one transaction: before it commits nobody there sees a row, and whatever fails leaves no
//! trace. What is acknowledged by the source before it froze is in the copy; what is refused afterwards was never
//! accepted. Running jobs keep their leases; their workers cannot beat any more, so the jobs are recovered on the
//! target as after any other loss of a worker.
//!
//! Where the process may die:
//! - before "deciding": the source stays frozen, the target is untouched. Moving again starts over; [`abort_move`]
//!   thaws the source.
//! - after it: the target is asked, under the same lock, whether the commit arrived. Moving again does that first.

pub(crate) mod sink;
mod table;

use stargate_base::ErrorClass;
use stargate_queue::{Error, Result};

use crate::postgres::Postgres;
use crate::postgres::import::{Import, Origin};
use crate::sqlite::Sqlite;
use crate::sqlite::export::{Moving, Undo};
use sink::SINKS;
pub(crate) use table::Table;

/// How far a table has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The table.
    pub table: &'static str,
    /// Rows written so far.
    pub rows: u64,
    /// Rows there are to write.
    pub rows_total: u64,
}

/// What a move did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The tables in the order in which they were moved.
    pub tables: Vec<Moved>,
    /// The move had been completed by an earlier run; this one only found out.
    pub earlier: bool,
}

/// Moves everything in `from` to `to` and leaves `from` frozen, its writers being told of `target_display`.
///
/// `progress` hears of every batch; when it answers an error the move ends with that error. After any error that
/// leaves no doubt about the target the source takes writes again.
pub async fn move_to_postgres(
    from: &Sqlite,
    to: &Postgres,
    target_display: &str,
    mut progress: impl FnMut(Moved) -> Result<()>,
) -> Result<Report> {
    let id = from.move_id().await?;
    from.move_allowed(target_display).await?;
    // Locked before the source is frozen: nothing is refused while we wait for the lock.
    let mut import = to.import_begin().await?;
    if let Some(origin) = import.origin().await? {
        return already_there(from, &id, target_display, origin).await;
    }
    if import.occupied().await? {
        return Err(Error::Conflict {
            problem: format!(
                "{target_display} holds jobs already, or held some once; move to an empty database"
            ),
        });
    }
    let token = from.move_begin(target_display).await?;
    let decided = match copy(from, &mut import, &mut progress).await {
        Ok(tables) => decide(from, &mut import, &id, &token, &tables).await.map(|()| tables),
        Err(error) => Err(error),
    };
    let tables = match decided {
        Ok(tables) => tables,
        Err(error) => {
            // Ends the target's transaction first.
            drop(import);
            undo(from, &token).await;
            return Err(error);
        }
    };
    let committed = import.commit().await;
    drop(import);
    if let Err(error) = committed {
        committed_after_all(from, to, &id, &token, error).await?;
    }
    from.move_complete(target_display).await?;
    to.import_analyze().await;
    Ok(Report { tables, earlier: false })
}

/// Takes writes again in a store whose move was not finished. `to`, the target of that move, is needed only when
/// the process died while the move was being committed.
pub async fn abort_move(from: &Sqlite, to: Option<&Postgres>) -> Result<()> {
    let problem = match from.moving().await? {
        Moving::No => "this store is not being moved".to_owned(),
        Moving::Complete(target) => {
            format!(
                "the move to {target} is complete; the jobs are there, and taking writes here would run them twice"
            )
        }
        Moving::Copying(_) => return undo_or_tell(from, Undo::Copying).await,
        Moving::Deciding(target) => {
            let Some(to) = to else {
                let problem = format!(
                    "the move to {target} may have been committed; name it with --to, so that it can be asked"
                );
                return Err(Error::Conflict { problem });
            };
            let id = from.move_id().await?;
            let arrived = to.import_begin().await?.origin().await?.is_some_and(|origin| origin.source == id);
            if !arrived {
                return undo_or_tell(from, Undo::Deciding).await;
            }
            from.move_complete(&target).await?;
            format!("the move to {target} was committed; the jobs are there")
        }
    };
    Err(Error::Conflict { problem })
}

/// Takes writes again if the move is still where it was when the caller looked.
async fn undo_or_tell(from: &Sqlite, which: Undo<'_>) -> Result<()> {
    if from.move_undo(which).await? {
        return Ok(());
    }
    let problem = "the move has gone on meanwhile, so it is still running; stop it, then abort it".to_owned();
    Err(Error::Conflict { problem })
}

/// An earlier run committed, or the target belongs to another store.
async fn already_there(from: &Sqlite, id: &str, target: &str, origin: Origin) -> Result<Report> {
    if origin.source != id {
        let problem = format!("another store was moved to {target} already; move to an empty database");
        return Err(Error::Conflict { problem });
    }
    from.move_complete(target).await?;
    let tables = Table::ALL.into_iter().map(|table| {
        let rows = origin.rows.get(table.name()).copied().unwrap_or(0);
        Moved { table: table.name(), rows, rows_total: rows }
    });
    let rows = origin.rows.get(SINKS).copied().unwrap_or(0);
    let sinks = Moved { table: SINKS, rows, rows_total: rows };
    Ok(Report { tables: tables.chain([sinks]).collect(), earlier: true })
}

/// Copies every table and checks the copy.
async fn copy(
    from: &Sqlite,
    import: &mut Import<'_>,
    progress: &mut impl FnMut(Moved) -> Result<()>,
) -> Result<Vec<Moved>> {
    let counts = from.export_counts().await?;
    let counters = from.export_counters().await?;
    import.workers_set_aside(counters.worker).await?;
    let mut tables = Vec::new();
    for table in Table::ALL {
        let rows_total = counts.get(table.name()).copied().unwrap_or(0);
        let mut moved = Moved { table: table.name(), rows: 0, rows_total };
        let mut after = None;
        loop {
            let page = from.export_page(table, after).await?;
            if page.rows == 0 {
                break;
            }
            let written = import.rows(table, &page.json).await?;
            if written != page.rows {
                return Err(differs(table.name(), page.rows, written));
            }
            moved.rows += written;
            progress(moved)?;
            after = Some(page.last);
        }
        if moved.rows != rows_total {
            return Err(differs(table.name(), rows_total, moved.rows));
        }
        tables.push(moved);
    }
    tables.push(copy_sinks(from, import, progress).await?);
    import.counters(&counters).await?;
    let (ours, theirs) = (from.export_sums().await?, import.sums().await?);
    for (table, sum) in &ours {
        match theirs.get(table) {
            Some(other) if other == sum => {}
            other => return Err(differs(table, sum, other)),
        }
    }
    Ok(tables)
}

/// Copies the tables that directives write to. The registry is there already, so that each is made as it was.
async fn copy_sinks(
    from: &Sqlite,
    import: &mut Import<'_>,
    progress: &mut impl FnMut(Moved) -> Result<()>,
) -> Result<Moved> {
    let sinks = from.export_sinks().await?;
    let rows_total = sinks.iter().map(|(_, rows)| rows).sum();
    let mut moved = Moved { table: SINKS, rows: 0, rows_total };
    for (table, rows) in sinks {
        import.sink(&table).await?;
        let (mut written, mut after) = (0, i64::MIN);
        loop {
            let page = from.export_sink_page(table.clone(), after).await?;
            if page.rows == 0 {
                break;
            }
            written += import.sink_rows(&table, &page.json).await?;
            after = page.last;
            progress(Moved { rows: moved.rows + written, ..moved })?;
        }
        if written != rows {
            return Err(differs(&table.name, rows, written));
        }
        moved.rows += written;
    }
    Ok(moved)
}

/// The last step before the commit. Whoever thawed the source meanwhile, or began another move, is found out here.
async fn decide(
    from: &Sqlite,
    import: &mut Import<'_>,
    id: &str,
    token: &str,
    tables: &[Moved],
) -> Result<()> {
    let rows = tables.iter().map(|moved| (moved.table.to_owned(), moved.rows)).collect();
    import.finish(&Origin { source: id.to_owned(), rows }).await?;
    from.move_decide(token).await
}

/// The connection broke during the commit: asks the target how it ended.
async fn committed_after_all(
    from: &Sqlite,
    to: &Postgres,
    id: &str,
    token: &str,
    error: Error,
) -> Result<()> {
    let asked = async { to.import_begin().await?.origin().await };
    match asked.await {
        Ok(Some(origin)) if origin.source == id => Ok(()),
        Ok(_) => {
            undo(from, token).await;
            Err(error)
        }
        Err(silent) => Err(Error::Store {
            operation: "tell whether the move was committed",
            class: ErrorClass::RetryableTransient,
            hint: Some("this store stays frozen; run the same command again when the target answers"),
            source: Box::new(silent),
        }),
    }
}

async fn undo(from: &Sqlite, token: &str) {
    if let Err(error) = from.move_undo(Undo::Run(token)).await {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "the store stays frozen although its move failed; abort the move to take writes again"
        );
    }
}

fn differs(table: &str, ours: impl std::fmt::Debug, theirs: impl std::fmt::Debug) -> Error {
    Error::Store {
        operation: "verify the copy",
        class: ErrorClass::Fatal,
        hint: Some("nothing was moved"),
        source: format!("table {table} has {ours:?} here and {theirs:?} in the target").into(),
    }
}
