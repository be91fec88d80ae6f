//! Records that could not become items.

use rusqlite::{Connection, Row};
use stargate_directive::item::Reject;
use stargate_directive::quarantine::{QuarantineFilter, QuarantineId, Quarantined};
use stargate_directive::run::RunId;
use stargate_directive::source::Owner;

use super::super::error::Step;
use super::super::rows::{instant, json};
use super::super::session::{Session, sql};
use crate::directive_rows::{record_hash, storable};
use crate::repo_rows::page;

/// Keeps a record aside; whether it was known. One that is known and `counts` was seen once more.
pub(super) fn put(s: &Session<'_>, owner: &Owner, run: &RunId, reject: &Reject, counts: bool) -> Step<bool> {
    let hash = record_hash(&reject.record);
    let (cause, reason) = (storable(&reject.cause), storable(&reject.reason));
    let entity = reject.entity_id.as_deref().map(storable);
    let is_new = s.conn.prepare_cached(sql!("directive_quarantine_insert"))?.exists((
        s.now,
        &owner.directive,
        &owner.tenant,
        &owner.project,
        &hash,
        &run.0,
        reject.record.get(),
        &cause,
        &reason,
        &entity,
    ))?;
    if !is_new {
        let values = (
            &owner.directive,
            &owner.tenant,
            &owner.project,
            &hash,
            cause,
            reason,
            entity,
            i64::from(counts),
        );
        s.conn.prepare_cached(sql!("directive_quarantine_again"))?.execute(values)?;
    }
    Ok(!is_new)
}

/// Notes that a record is dealt with, once.
pub(super) fn resolve(s: &Session<'_>, QuarantineId(id): QuarantineId) -> Step<bool> {
    Ok(s.conn.prepare_cached(sql!("directive_quarantine_resolve"))?.exists((s.now, id))?)
}

/// Notes that the records of these entities became items. Mostly there are none, and one look tells so.
pub(super) fn resolve_entities(s: &Session<'_>, owner: &Owner, entities: &[&str]) -> Step<()> {
    let (directive, tenant, project) = (&owner.directive, &owner.tenant, &owner.project);
    let mut look = s.conn.prepare_cached(sql!("directive_quarantine_waits"))?;
    if !look.query_row((directive, tenant, project), |row| row.get(0))? {
        return Ok(());
    }
    let mut resolve = s.conn.prepare_cached(sql!("directive_quarantine_resolve_entity"))?;
    for entity in entities {
        resolve.execute((s.now, directive, tenant, project, entity))?;
    }
    Ok(())
}

pub(super) fn list(conn: &Connection, filter: &QuarantineFilter) -> Step<Vec<Quarantined>> {
    let (before, limit) = (filter.before.map_or(i64::MAX, |id| id.0), page(filter.limit));
    let mut list = conn.prepare_cached(match (&filter.directive, filter.resolved) {
        (None, _) => sql!("directive_quarantine_page"),
        (Some(_), false) => sql!("directive_quarantine_page_open"),
        (Some(_), true) => sql!("directive_quarantine_page_directive"),
    })?;
    let rows = match &filter.directive {
        None => list.query_map((before, limit, filter.resolved), read)?,
        Some(directive) => list.query_map((before, limit, directive), read)?,
    };
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Quarantined> {
    Ok(Quarantined {
        id: QuarantineId(row.get(0)?),
        directive: row.get(1)?,
        tenant: row.get(2)?,
        project: row.get(3)?,
        run: RunId(row.get(4)?),
        record: json(row, 5)?,
        cause: row.get(6)?,
        reason: row.get(7)?,
        entity_id: row.get(8)?,
        seen: row.get::<_, i64>(9)?.unsigned_abs(),
        created_at: instant(row.get(10)?),
        resolved_at: row.get::<_, Option<i64>>(11)?.map(instant),
    })
}
