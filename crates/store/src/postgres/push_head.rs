//! The heads of refs.

use std::collections::HashMap;

use stargate_queue::Result;
use stargate_repo::{Head, NewPush, PushEventId, RefUpdate};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::Session;
use super::sql;
use crate::repo_rows::page;

/// Heads by ref.
pub(super) type Heads = HashMap<String, Head>;

/// A page by ref.
pub(super) async fn list(s: &mut Session<'_>, repo: &str, after: &str, limit: u32) -> Result<Vec<Head>> {
    let limit = page(limit);
    let params = [(&repo as _, Type::TEXT), (&after as _, Type::TEXT), (&limit as _, Type::INT8)];
    let rows = s.rows("list heads", sql!("push_head_page"), &params).await?;
    Ok(rows.iter().map(read).collect())
}

/// The heads of the refs of a push. The repository's row is locked, so nobody moves them meanwhile.
pub(super) async fn find(s: &mut Session<'_>, repo: i64, push: &NewPush) -> Result<Heads> {
    let refs: Vec<&str> = push.updates.iter().map(|update| update.ref_name.as_str()).collect();
    let params = [(&repo as _, Type::INT8), (&refs as _, Type::TEXT_ARRAY)];
    let rows = s.rows("record the push", sql!("push_head_find"), &params).await?;
    Ok(rows.iter().map(read).map(|head| (head.update.ref_name.clone(), head)).collect())
}

/// Lets new events, in their order, be the heads, unless they tell of the past.
pub(super) async fn follow(
    s: &mut Session<'_>,
    before: &Heads,
    request_id: &str,
    new: &[(PushEventId, &RefUpdate)],
) -> Result<()> {
    let mut after: HashMap<&str, Head> = HashMap::new();
    for &(event, update) in new {
        let name = update.ref_name.as_str();
        let head = after.get(name).or_else(|| before.get(name));
        if head.is_none_or(|head| head.gives_way(event, update)) {
            after.insert(name, Head { event, update: update.clone(), request_id: request_id.to_owned() });
        }
    }
    if after.is_empty() {
        return Ok(());
    }
    let heads: Vec<i64> = after.values().map(|head| head.event.0).collect();
    let old: Vec<i64> = after.keys().filter_map(|name| before.get(*name)).map(|head| head.event.0).collect();
    let params = [(&heads as _, Type::INT8_ARRAY), (&old as _, Type::INT8_ARRAY)];
    s.rows("record the push", sql!("push_head_set"), &params).await.map(drop)
}

fn read(row: &Row) -> Head {
    Head {
        event: PushEventId(row.get(0)),
        update: RefUpdate { ref_name: row.get(1), old_oid: row.get(2), new_oid: row.get(3) },
        request_id: row.get(4),
    }
}
