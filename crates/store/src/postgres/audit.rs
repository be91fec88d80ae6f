//! Audited actions.

use async_trait::async_trait;
use stargate_access::audit::fit_outcome;
use stargate_access::{ActionFilter, ActionId, ActionRow, Audit, NewAction, Result, TokenId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::error::{fatal, transient};
use super::{Postgres, sql};
use crate::repo_rows::{action_pattern, token_error};

#[async_trait]
impl Audit for Postgres {
    async fn begin(&self, action: NewAction) -> Result<ActionId> {
        const OPERATION: &str = "enter the action";
        let (action, now) = (action.fit(), self.inner.clock.for_statement());
        let (token, role) = (action.token.as_ref().map(TokenId::as_str), action.role.as_str());
        let (detail, source) = (action.detail.to_string(), action.source.as_str());
        let params = [
            (&now as _, Type::TIMESTAMPTZ),
            (&action.actor as _, Type::TEXT),
            (&token as _, Type::TEXT),
            (&role as _, Type::TEXT),
            (&action.action as _, Type::TEXT),
            (&action.target as _, Type::TEXT),
            (&detail as _, Type::TEXT),
            (&action.request_id as _, Type::TEXT),
            (&source as _, Type::TEXT),
        ];
        let rows = self.token_rows(OPERATION, sql!("audit_begin"), &params).await?;
        let row = rows.first().ok_or_else(|| token_error(transient(OPERATION, "no answer")))?;
        Ok(ActionId(row.get(0)))
    }

    async fn finish(&self, id: ActionId, outcome: &str) -> Result<()> {
        let (now, outcome) = (self.inner.clock.for_statement(), fit_outcome(outcome));
        let params = [(&now as _, Type::TIMESTAMPTZ), (&id.0 as _, Type::INT8), (&outcome as _, Type::TEXT)];
        self.token_rows("enter the outcome of an action", sql!("audit_finish"), &params).await.map(drop)
    }

    async fn actions(&self, filter: ActionFilter) -> Result<Vec<ActionRow>> {
        filter.check()?;
        let (exact, prefix) = action_pattern(filter.action.as_deref());
        let (before, limit) = (filter.before.map_or(i64::MAX, |id| id.0), i64::from(filter.limit));
        let params = [
            (&before as _, Type::INT8),
            (&filter.actor as _, Type::TEXT),
            (&exact as _, Type::TEXT),
            (&prefix as _, Type::TEXT),
            (&filter.target as _, Type::TEXT),
            (&limit as _, Type::INT8),
        ];
        self.token_rows("list actions", sql!("audit_list"), &params).await?.iter().map(read).collect()
    }
}

fn read(row: &Row) -> Result<ActionRow> {
    const HINT: &str = "a row of stargate.stargate_audit is damaged";
    let token = row.get::<_, Option<&str>>(3).map(str::parse).transpose()?;
    let detail: &str = row.get(7);
    Ok(ActionRow {
        id: ActionId(row.get(0)),
        at: row.get(1),
        actor: row.get(2),
        token,
        role: row.get::<_, &str>(4).parse()?,
        action: row.get(5),
        target: row.get(6),
        detail: serde_json::from_str(detail)
            .map_err(|error| token_error(fatal("read an action", HINT, error)))?,
        request_id: row.get(8),
        source: row.get::<_, &str>(9).parse()?,
        finished_at: row.get(10),
        outcome: row.get(11),
    })
}
