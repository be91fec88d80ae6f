//! The heads of refs.

use rusqlite::{Connection, OptionalExtension as _, Row};
use stargate_repo::{Head, PushEventId, RefUpdate};

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
    update: &RefUpdate,
) -> rusqlite::Result<()> {
    if before.is_none_or(|head| head.gives_way(id, update)) {
        conn.prepare_cached(sql!("push_head_set"))?.execute((id.0, before.map(|head| head.event.0)))?;
    }
    Ok(())
}

fn read(row: &Row<'_>) -> rusqlite::Result<Head> {
    Ok(Head {
        event: PushEventId(row.get(0)?),
        update: RefUpdate { ref_name: row.get(1)?, old_oid: row.get(2)?, new_oid: row.get(3)? },
        request_id: row.get(4)?,
    })
}
