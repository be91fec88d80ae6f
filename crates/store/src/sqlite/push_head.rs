//! The heads of refs.

use rusqlite::{Connection, OptionalExtension as _, Row};
use stargate_repo::reconcile::is_fill;
use stargate_repo::{Head, Link, PushEventId, RefUpdate};

use super::error::Step;
use super::session::sql;
use crate::repo_rows::page;

/// A page by ref.
pub(super) fn list(conn: &Connection, repo: &str, after: &str, limit: u32) -> Step<Vec<Head>> {
    let mut list = conn.prepare_cached(sql!("push_head_page"))?;
    let rows = list.query_map((repo, after, page(limit)), read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The head of one ref.
pub(super) fn find(conn: &Connection, repo: i64, ref_name: &str) -> rusqlite::Result<Option<Head>> {
    conn.prepare_cached(sql!("push_head_find"))?.query_row((repo, ref_name), read).optional()
}

/// Lets a new event be the head, if it does not tell of the past.
pub(super) fn follow(
    conn: &Connection,
    before: Option<&Head>,
    id: PushEventId,
    request_id: &str,
    update: &RefUpdate,
) -> rusqlite::Result<()> {
    if !is_fill(request_id) && before.is_none_or(|head| head.gives_way(id, update)) {
        let values = (id.0, before.map(|head| head.event.0), Head::torn(before, update));
        conn.prepare_cached(sql!("push_head_set"))?.execute(values)?;
    }
    Ok(())
}

/// What was recorded of a hole, if a hook now tells of it.
pub(super) fn find_fill(
    conn: &Connection,
    repo: i64,
    request_id: &str,
    before: Option<&Head>,
    update: &RefUpdate,
) -> rusqlite::Result<Option<PushEventId>> {
    if is_fill(request_id) || Head::torn(before, update).is_none() {
        return Ok(None);
    }
    let values = (repo, &update.ref_name, &update.old_oid, &update.new_oid);
    let mut find = conn.prepare_cached(sql!("push_fill_find"))?;
    find.query_row(values, |row| Ok(row.get::<_, Option<i64>>(0)?.map(PushEventId)))
}

/// A page of the events of refs whose way may have a hole.
pub(super) fn links(conn: &Connection, repo: &str, after: i64, limit: u32) -> Step<Vec<Link>> {
    let mut list = conn.prepare_cached(sql!("push_link_page"))?;
    let rows = list.query_map((repo, after, page(limit)), |row| {
        let Head { event, update, request_id } = read(row)?;
        Ok(Link { event, update, request_id, follows: row.get(5)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Head> {
    Ok(Head {
        event: PushEventId(row.get(0)?),
        update: RefUpdate { ref_name: row.get(1)?, old_oid: row.get(2)?, new_oid: row.get(3)? },
        request_id: row.get(4)?,
    })
}
