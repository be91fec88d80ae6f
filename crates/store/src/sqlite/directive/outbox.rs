//! Announcements.

use rusqlite::Connection;
use stargate_directive::outbox::{Announcement, OutboxId, Waiting};
use stargate_directive::store::{OUTBOX_KEPT, PAGE_MAX};

use super::super::error::Step;
use super::super::rows::{instant, json, span_micros};
use super::super::session::{Session, sql};
use crate::directive_rows::OUTBOX_PURGED_MAX;
use crate::repo_rows::page;

pub(super) fn next(
    conn: &Connection,
    topic: &str,
    after: Option<OutboxId>,
    limit: u32,
) -> Step<Vec<Announcement>> {
    let mut list = conn.prepare_cached(sql!("directive_outbox_next"))?;
    let rows = list.query_map((topic, after.map_or(0, |id| id.0), page(limit)), |row| {
        Ok(Announcement {
            id: OutboxId(row.get(0)?),
            topic: row.get(1)?,
            key: row.get(2)?,
            payload: json(row, 3)?,
            created_at: instant(row.get(4)?),
            attempts: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn done(s: &Session<'_>, OutboxId(id): OutboxId) -> Step<bool> {
    let is_first = s.conn.prepare_cached(sql!("directive_outbox_done"))?.exists((s.now, id))?;
    let until = s.now - span_micros(OUTBOX_KEPT);
    s.conn.prepare_cached(sql!("directive_outbox_purge"))?.execute((until, OUTBOX_PURGED_MAX))?;
    Ok(is_first)
}

pub(super) fn failed(s: &Session<'_>, OutboxId(id): OutboxId, problem: &str) -> Step<()> {
    s.conn.prepare_cached(sql!("directive_outbox_failed"))?.execute((id, problem))?;
    Ok(())
}

pub(super) fn waiting(conn: &Connection) -> Step<Vec<Waiting>> {
    let mut list = conn.prepare_cached(sql!("directive_outbox_waiting"))?;
    let rows = list.query_map([PAGE_MAX], |row| {
        Ok(Waiting {
            topic: row.get(0)?,
            count: row.get::<_, i64>(1)?.unsigned_abs(),
            since: instant(row.get(2)?),
            problem: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
