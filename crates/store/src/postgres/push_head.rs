//! The heads of refs.

use std::collections::HashMap;

use stargate_queue::Result;
use stargate_repo::reconcile::is_fill;
use stargate_repo::{Head, Link, NewPush, PushEventId, RefUpdate};
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
    let mut after: HashMap<&str, (Head, Option<String>)> = HashMap::new();
    for &(event, update) in new.iter().filter(|_| !is_fill(request_id)) {
        let name = update.ref_name.as_str();
        let head = after.get(name).map(|(head, _)| head).or_else(|| before.get(name));
        if head.is_none_or(|head| head.gives_way(event, update)) {
            let torn = Head::torn(head, update);
            let head = Head { event, update: update.clone(), request_id: request_id.to_owned() };
            after.insert(name, (head, torn));
        }
    }
    if after.is_empty() {
        return Ok(());
    }
    let (heads, torn): (Vec<i64>, Vec<Option<&str>>) =
        after.values().map(|(head, torn)| (head.event.0, torn.as_deref())).unzip();
    let old: Vec<i64> = after.keys().filter_map(|name| before.get(*name)).map(|head| head.event.0).collect();
    let params =
        [(&heads as _, Type::INT8_ARRAY), (&old as _, Type::INT8_ARRAY), (&torn as _, Type::TEXT_ARRAY)];
    s.rows("record the push", sql!("push_head_set"), &params).await.map(drop)
}

/// What was recorded of holes that a hook now tells of.
pub(super) async fn find_fills(
    s: &mut Session<'_>,
    repo: i64,
    before: &Heads,
    push: &NewPush,
) -> Result<HashMap<RefUpdate, PushEventId>> {
    let is_late = |update: &&RefUpdate| Head::torn(before.get(&update.ref_name), update).is_some();
    let late: Vec<&RefUpdate> = match is_fill(&push.request_id) {
        true => Vec::new(),
        false => push.updates.iter().filter(is_late).collect(),
    };
    if late.is_empty() {
        return Ok(HashMap::new());
    }
    let refs: Vec<&str> = late.iter().map(|update| update.ref_name.as_str()).collect();
    let old: Vec<&str> = late.iter().map(|update| update.old_oid.as_str()).collect();
    let new: Vec<&str> = late.iter().map(|update| update.new_oid.as_str()).collect();
    let params = [
        (&repo as _, Type::INT8),
        (&refs as _, Type::TEXT_ARRAY),
        (&old as _, Type::TEXT_ARRAY),
        (&new as _, Type::TEXT_ARRAY),
    ];
    let rows = s.rows("record the push", sql!("push_fill_find"), &params).await?;
    let read = |row: &Row| {
        let update = RefUpdate { ref_name: row.get(1), old_oid: row.get(2), new_oid: row.get(3) };
        (update, PushEventId(row.get(0)))
    };
    Ok(rows.iter().map(read).collect())
}

/// A page of the events of refs whose way may have a hole.
pub(super) async fn links(s: &mut Session<'_>, repo: &str, after: i64, limit: u32) -> Result<Vec<Link>> {
    let limit = page(limit);
    let params = [(&repo as _, Type::TEXT), (&after as _, Type::INT8), (&limit as _, Type::INT8)];
    let rows = s.rows("list links", sql!("push_link_page"), &params).await?;
    let link = |row: &Row| {
        let Head { event, update, request_id } = read(row);
        Link { event, update, request_id, follows: row.get(5) }
    };
    Ok(rows.iter().map(link).collect())
}

fn read(row: &Row) -> Head {
    Head {
        event: PushEventId(row.get(0)),
        update: RefUpdate { ref_name: row.get(1), old_oid: row.get(2), new_oid: row.get(3) },
        request_id: row.get(4),
    }
}
