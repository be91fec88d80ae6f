//! Audited actions.

use async_trait::async_trait;
use rusqlite::Row;
use stargate_access::audit::fit_outcome;
use stargate_access::{ActionFilter, ActionId, ActionRow, Audit, NewAction, Result};

use super::Sqlite;
use super::rows::{instant, wrong};
use super::session::sql;
use super::writer::Rank;
use crate::repo_rows::{action_pattern, token_error};

#[async_trait]
impl Audit for Sqlite {
    async fn begin(&self, action: NewAction) -> Result<ActionId> {
        let action = action.fit();
        let begun = self
            .writer
            .write(Rank::Normal, "enter the action", move |s| {
                let values = (
                    s.now,
                    &action.actor,
                    action.token.as_ref().map(|id| id.as_str()),
                    action.role.as_str(),
                    &action.action,
                    &action.target,
                    action.detail.to_string(),
                    &action.request_id,
                    action.source.as_str(),
                );
                let mut begin = s.conn.prepare_cached(sql!("audit_begin"))?;
                Ok(ActionId(begin.query_row(values, |row| row.get(0))?))
            })
            .await;
        begun.map_err(token_error)
    }

    async fn finish(&self, id: ActionId, outcome: &str) -> Result<()> {
        let outcome = fit_outcome(outcome);
        let finished = self
            .writer
            .write(Rank::Normal, "enter the outcome of an action", move |s| {
                s.conn.prepare_cached(sql!("audit_finish"))?.execute((s.now, id.0, outcome))?;
                Ok(())
            })
            .await;
        finished.map_err(token_error)
    }

    async fn actions(&self, filter: ActionFilter) -> Result<Vec<ActionRow>> {
        filter.check()?;
        let listed = self
            .readers
            .read("list actions", move |r| {
                let (exact, prefix) = action_pattern(filter.action.as_deref());
                let before = filter.before.map_or(i64::MAX, |id| id.0);
                let values = (before, &filter.actor, exact, prefix, &filter.target, filter.limit);
                let mut list = r.conn.prepare_cached(sql!("audit_list"))?;
                let rows = list.query_map(values, read)?;
                Ok(rows.collect::<rusqlite::Result<_>>()?)
            })
            .await;
        listed.map_err(token_error)
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<ActionRow> {
    let text = |column| row.get::<_, String>(column);
    let damaged = |error| rusqlite::Error::ToSqlConversionFailure(Box::new(error));
    let token: Option<String> = row.get(3)?;
    let detail = text(7)?;
    Ok(ActionRow {
        id: ActionId(row.get(0)?),
        at: instant(row.get(1)?),
        actor: row.get(2)?,
        token: token.map(|id| id.parse()).transpose().map_err(damaged)?,
        role: text(4)?.parse().map_err(damaged)?,
        action: row.get(5)?,
        target: row.get(6)?,
        detail: serde_json::from_str(&detail).map_err(|error| wrong(7, error))?,
        request_id: row.get(8)?,
        source: text(9)?.parse().map_err(damaged)?,
        finished_at: row.get::<_, Option<i64>>(10)?.map(instant),
        outcome: row.get(11)?,
    })
}
