//! The side of a move that is left: frozen, read page by page, and in the end told how it went.
//!
//! `meta` keeps where the move stands: `moved_to` the target (whoever reads it refuses writes), `move` one of
//! `copying TOKEN`, `deciding TOKEN` and `complete`. The token tells one run from the next: a run that was thought
//! dead can neither thaw nor complete what its successor works on.

use std::collections::HashMap;

use rand::RngExt as _;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension as _};
use stargate_directive::item::Table as SinkTable;
use stargate_queue::{Error, Result};

use super::Sqlite;
use super::error::Step;
use super::session::{Session, sql};
use super::writer::{MOVED_TO, Rank};
use crate::transfer::{Table, sink};

/// The key in `meta` that says where a move stands.
const MOVE: &str = "move";
/// The key in `meta` that names this store to others.
const STORE_ID: &str = "store_id";
const COPYING: &str = "copying ";
const DECIDING: &str = "deciding ";
const COMPLETE: &str = "complete";

/// Rows of a page at most.
const PAGE_ROWS_MAX: i64 = 2000;
/// Bytes after which a page is full.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Where a move stands, with its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Moving {
    /// Nothing is being moved.
    No,
    /// Rows are being copied, or were when the process died.
    Copying(String),
    /// The target was asked to commit; only it knows how that ended.
    Deciding(String),
    /// The jobs are there.
    Complete(String),
}

impl Moving {
    /// Refuses a move to elsewhere while another target may hold the jobs.
    fn allows(&self, target: &str) -> Result<()> {
        let problem = match self {
            Self::Complete(other) if other != target => format!("this store was moved to {other} already"),
            Self::Deciding(other) if other != target => {
                format!("a move to {other} may have been committed; finish or abort that one first")
            }
            _ => return Ok(()),
        };
        Err(Error::Conflict { problem })
    }
}

/// Which move is undone.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Undo<'a> {
    /// That of this run, however far it is.
    Run(&'a str),
    /// Anybody's that still copies.
    Copying,
    /// Anybody's whose target was asked to commit, and has not.
    Deciding,
}

/// Some rows of a table.
#[derive(Debug)]
pub(crate) struct Page {
    /// A JSON array.
    pub(crate) json: String,
    /// Rows in it.
    pub(crate) rows: u64,
    /// The key of the last row.
    pub(crate) last: Key,
}

/// Some rows of a sink.
#[derive(Debug)]
pub(crate) struct SinkPage {
    /// A JSON array.
    pub(crate) json: String,
    /// Rows in it.
    pub(crate) rows: u64,
    /// The number of the last row.
    pub(crate) last: i64,
}

/// Where a page ends.
pub(crate) type Key = [Value; 2];

/// Numbers that only rise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counters {
    /// The last job id given out.
    pub(crate) job: i64,
    /// The last lane.
    pub(crate) lane: i64,
    /// The last worker.
    pub(crate) worker: i64,
    /// Virtual time of fair sharing in millionths.
    pub(crate) vtime: i64,
    /// The epoch of the newest term of leadership; 0 before the first.
    pub(crate) epoch: i64,
    /// The last announcement of a directive.
    pub(crate) announcement: i64,
    /// The last record that was kept aside.
    pub(crate) quarantined: i64,
    /// The last audited action.
    pub(crate) action: i64,
}

impl Sqlite {
    /// The name of this store in the books of a target, given now if it has none.
    pub(crate) async fn move_id(&self) -> Result<String> {
        self.writer
            .write(Rank::Moved, "name itself", |s| {
                if let Some(id) = get(s.conn, STORE_ID)? {
                    return Ok(id);
                }
                let id = format!("{:032x}", rand::rng().random::<u128>());
                put(s, STORE_ID, &id)?;
                Ok(id)
            })
            .await
    }

    /// Where a move stands.
    pub(crate) async fn moving(&self) -> Result<Moving> {
        self.readers.read("tell where it is moved", |r| moving(r.conn)).await
    }

    /// Refuses a move to elsewhere while another target may hold the jobs.
    pub(crate) async fn move_allowed(&self, target: &str) -> Result<()> {
        self.moving().await?.allows(target)
    }

    /// Refuses every further write, in all processes; answers the token of this run.
    pub(crate) async fn move_begin(&self, target: &str) -> Result<String> {
        let (target, token) = (target.to_owned(), format!("{:016x}", rand::rng().random::<u64>()));
        self.writer
            .write(Rank::Moved, "freeze itself", move |s| {
                // Another run may have got as far since this one looked.
                moving(s.conn)?.allows(&target)?;
                put(s, MOVED_TO, &target)?;
                put(s, MOVE, &format!("{COPYING}{token}"))?;
                Ok(token)
            })
            .await
    }

    /// From here on only the target knows how the move ended.
    pub(crate) async fn move_decide(&self, token: &str) -> Result<()> {
        let (before, after) = (format!("{COPYING}{token}"), format!("{DECIDING}{token}"));
        self.writer
            .write(Rank::Moved, "decide about its move", move |s| {
                if get(s.conn, MOVED_TO)?.is_none() || get(s.conn, MOVE)? != Some(before) {
                    let problem = "the move was aborted, or begun again by somebody else".to_owned();
                    return Err(Error::Conflict { problem }.into());
                }
                put(s, MOVE, &after)
            })
            .await
    }

    /// The jobs are at the target.
    pub(crate) async fn move_complete(&self, target: &str) -> Result<()> {
        let target = target.to_owned();
        self.writer
            .write(Rank::Moved, "complete its move", move |s| {
                put(s, MOVED_TO, &target)?;
                put(s, MOVE, COMPLETE)
            })
            .await
    }

    /// Takes writes again; false if the move is not, or no longer, what is to be undone.
    pub(crate) async fn move_undo(&self, which: Undo<'_>) -> Result<bool> {
        let (begin, end) = match which {
            Undo::Run(token) => ("", format!(" {token}")),
            Undo::Copying => (COPYING, String::new()),
            Undo::Deciding => (DECIDING, String::new()),
        };
        self.writer
            .write(Rank::Moved, "take writes again", move |s| {
                let state = get(s.conn, MOVE)?;
                if !state.is_some_and(|state| state.starts_with(begin) && state.ends_with(&end)) {
                    return Ok(false);
                }
                for key in [MOVED_TO, MOVE] {
                    s.conn.prepare_cached(sql!("meta_remove"))?.execute([key])?;
                }
                s.wake = true;
                Ok(true)
            })
            .await
    }

    /// Rows of each table.
    pub(crate) async fn export_counts(&self) -> Result<HashMap<String, u64>> {
        self.readers
            .read("count its rows", |r| {
                let mut count = r.conn.prepare_cached(sql!("export_count"))?;
                let rows = count.query_map([], |row| {
                    let rows: i64 = row.get(1)?;
                    Ok((row.get(0)?, rows.unsigned_abs()))
                })?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    /// The numbers that only rise.
    pub(crate) async fn export_counters(&self) -> Result<Counters> {
        self.readers
            .read("read its counters", |r| {
                let mut get = r.conn.prepare_cached(sql!("export_counters"))?;
                Ok(get.query_row([], |row| {
                    Ok(Counters {
                        job: row.get(0)?,
                        lane: row.get(1)?,
                        worker: row.get(2)?,
                        vtime: row.get(3)?,
                        epoch: row.get(4)?,
                        announcement: row.get(5)?,
                        quarantined: row.get(6)?,
                        action: row.get(7)?,
                    })
                })?)
            })
            .await
    }

    /// Rows and a sum over the contents of each table that must arrive unchanged.
    pub(crate) async fn export_sums(&self) -> Result<HashMap<String, (i64, i64)>> {
        self.readers
            .read("sum its rows up", |r| {
                let mut sum = r.conn.prepare_cached(sql!("transfer_sum"))?;
                let rows = sum.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    /// The tables that directives write to, as they are here, with their rows.
    pub(crate) async fn export_sinks(&self) -> Result<Vec<(SinkTable, u64)>> {
        self.readers.read("list its sinks", |r| super::sink::all(r.conn)).await
    }

    /// The rows of a sink after a number.
    pub(crate) async fn export_sink_page(&self, table: SinkTable, after: i64) -> Result<SinkPage> {
        self.readers.read("read its rows", move |r| sink_page(r.conn, &table, after)).await
    }

    /// The rows after a key.
    pub(crate) async fn export_page(&self, table: Table, after: Option<Key>) -> Result<Page> {
        self.readers.read("read its rows", move |r| page(r.conn, table, after)).await
    }
}

fn page(conn: &Connection, table: Table, after: Option<Key>) -> Step<Page> {
    let [first, second] = after.unwrap_or([Value::Null, Value::Null]);
    let mut page = Page { json: String::from("["), rows: 0, last: [first.clone(), second.clone()] };
    let mut select = conn.prepare_cached(statement(table))?;
    let mut rows = select.query((first, second, PAGE_ROWS_MAX))?;
    while page.json.len() < PAGE_BYTES_MAX
        && let Some(row) = rows.next()?
    {
        if page.rows > 0 {
            page.json.push(',');
        }
        page.json.push_str(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?);
        page.rows += 1;
        page.last = [row.get(1)?, row.get(2)?];
    }
    page.json.push(']');
    Ok(page)
}

/// Each value as text: its column there knows how to read it.
fn sink_page(conn: &Connection, table: &SinkTable, after: i64) -> Step<SinkPage> {
    let mut page = SinkPage { json: String::from("["), rows: 0, last: after };
    let mut select = conn.prepare(&sink::export_text(table))?;
    let mut rows = select.query((after, PAGE_ROWS_MAX))?;
    while page.json.len() < PAGE_BYTES_MAX
        && let Some(row) = rows.next()?
    {
        page.last = row.get(0)?;
        let mut object = serde_json::Map::new();
        for (index, name) in sink::names(table).enumerate() {
            object.insert(name.to_owned(), as_text(row.get_ref(index + 1)?));
        }
        if page.rows > 0 {
            page.json.push(',');
        }
        page.json.push_str(&serde_json::Value::Object(object).to_string());
        page.rows += 1;
    }
    page.json.push(']');
    Ok(page)
}

fn as_text(value: ValueRef<'_>) -> serde_json::Value {
    serde_json::Value::String(match value {
        ValueRef::Null => return serde_json::Value::Null,
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text).into_owned(),
    })
}

fn statement(table: Table) -> &'static str {
    match table {
        Table::Kind => sql!("export_kind"),
        Table::Lane => sql!("export_lane"),
        Table::Worker => sql!("export_worker"),
        Table::LimitRule => sql!("export_limit_rule"),
        Table::LimitKey => sql!("export_limit_key"),
        Table::Pause => sql!("export_pause"),
        Table::Schedule => sql!("export_schedule"),
        Table::Idempotency => sql!("export_idempotency"),
        Table::JobHistory => sql!("export_job_history"),
        Table::Job => sql!("export_job"),
        Table::JobEvent => sql!("export_job_event"),
        Table::JobParent => sql!("export_job_parent"),
        Table::JobCancel => sql!("export_job_cancel"),
        Table::SourceLink => sql!("export_source_link"),
        Table::LeaderTerm => sql!("export_leader_term"),
        Table::Repo => sql!("export_repo"),
        Table::PushEvent => sql!("export_push_event"),
        Table::Webhook => sql!("export_webhook"),
        Table::WebhookOutbox => sql!("export_webhook_outbox"),
        Table::Token => sql!("export_token"),
        Table::Audit => sql!("export_audit"),
        Table::Kv => sql!("export_kv"),
        Table::KvOverride => sql!("export_kv_override"),
        Table::DirectiveRun => sql!("export_directive_run"),
        Table::DirectiveQuarantine => sql!("export_directive_quarantine"),
        Table::DirectiveOutbox => sql!("export_directive_outbox"),
        Table::DirectiveSink => sql!("export_directive_sink"),
    }
}

fn moving(conn: &Connection) -> Step<Moving> {
    let Some(target) = get(conn, MOVED_TO)? else { return Ok(Moving::No) };
    Ok(match get(conn, MOVE)? {
        Some(state) if state == COMPLETE => Moving::Complete(target),
        Some(state) if state.starts_with(DECIDING) => Moving::Deciding(target),
        _ => Moving::Copying(target),
    })
}

fn get(conn: &Connection, key: &str) -> Step<Option<String>> {
    Ok(conn.prepare_cached(sql!("meta_get"))?.query_row([key], |row| row.get(0)).optional()?)
}

fn put(s: &Session<'_>, key: &str, value: &str) -> Step<()> {
    s.conn.prepare_cached(sql!("meta_put"))?.execute((key, value))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::Options;

    #[tokio::test]
    async fn what_has_gone_on_since_somebody_looked_is_neither_undone_nor_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&folder.path().join("jobs.db"), Options::default()).await.unwrap();
        let token = store.move_begin("there").await.unwrap();
        assert!(!store.move_undo(Undo::Deciding).await.unwrap(), "it copies");
        store.move_decide(&token).await.unwrap();
        assert!(!store.move_undo(Undo::Copying).await.unwrap(), "the target may have committed");
        assert!(!store.move_undo(Undo::Run("another")).await.unwrap());
        let elsewhere = store.move_begin("elsewhere").await;
        assert!(matches!(elsewhere, Err(Error::Conflict { .. })), "{elsewhere:?}");
        assert_eq!(store.moving().await.unwrap(), Moving::Deciding("there".into()));
        assert!(store.move_undo(Undo::Run(&token)).await.unwrap());
        assert_eq!(store.moving().await.unwrap(), Moving::No);
    }
}
