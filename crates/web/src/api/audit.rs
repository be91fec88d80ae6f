//! Who did what, and who asks.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use stargate_access::audit::PAGE_MAX;
use stargate_access::{ActionFilter, ActionId, ActionRow, Role};
use utoipa::IntoParams;

use crate::api::types::access as types;
use crate::app::Shared;
use crate::caller::Caller;
use crate::error::{Problem, Result};
use crate::input::{Params, given, number};

/// Which actions.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditParams {
    /// Only by this one.
    pub(crate) actor: Option<String>,
    /// Only this action, or all below a prefix: `job.*`.
    pub(crate) action: Option<String>,
    /// Only to this.
    pub(crate) target: Option<String>,
    /// Only before this one: `next_before` of the page before.
    #[param(value_type = Option<i64>)]
    pub(crate) before: Option<String>,
    /// How many; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<String>,
}

#[utoipa::path(get, path = "/audit", tag = "access", summary = "Who did what, newest first",
    params(AuditParams), responses((status = 200, body = types::Actions)))]
pub(crate) async fn list(
    State(shared): State<Shared>,
    caller: Caller,
    Params(params): Params<AuditParams>,
) -> Result<Json<types::Actions>> {
    actions(&shared, &caller, params).await.map(Json)
}

/// Who did what.
pub(crate) async fn actions(shared: &Shared, caller: &Caller, params: AuditParams) -> Result<types::Actions> {
    caller.need(Role::Operate)?;
    let before = number("before", params.before.as_deref(), 1..=i64::MAX)?;
    let filter = ActionFilter {
        actor: given(params.actor),
        action: given(params.action),
        target: given(params.target),
        before: before.map(ActionId),
        limit: number("limit", params.limit.as_deref(), 1..=PAGE_MAX)?
            .unwrap_or(ActionFilter::default().limit),
    };
    let Some(audit) = &shared.audit else {
        return Ok(types::Actions { actions: Vec::new(), next_before: None });
    };
    let limit = filter.limit as usize;
    let rows = audit.actions(filter).await.map_err(|error| match error {
        stargate_access::Error::Invalid { field, problem } => Problem::invalid(field, problem),
        error => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the audit cannot be read");
            Problem::unavailable(error.code(), "the audit cannot be read now; try again")
        }
    })?;
    let next_before = rows.last().filter(|_| rows.len() >= limit).map(|row| row.id.0);
    Ok(types::Actions { actions: rows.into_iter().map(action).collect(), next_before })
}

fn action(row: ActionRow) -> types::Action {
    types::Action {
        id: row.id.0,
        at: row.at,
        actor: row.actor,
        token: row.token.map(|token| token.to_string()),
        role: Some(row.role.as_str().to_owned()),
        action: row.action,
        target: row.target,
        detail: row.detail,
        request_id: row.request_id,
        source: row.source.as_str().to_owned(),
        outcome: row.outcome,
        finished_at: row.finished_at,
    }
}

#[utoipa::path(get, path = "/whoami", tag = "access", summary = "Who asks, and what they may do",
    responses((status = 200, body = types::Whoami)))]
pub(crate) async fn whoami(State(shared): State<Shared>, caller: Caller) -> Json<types::Whoami> {
    Json(who(&shared, &caller))
}

/// Who asks.
pub(crate) fn who(shared: &Shared, caller: &Caller) -> types::Whoami {
    types::Whoami {
        name: caller.name.clone(),
        role: caller.role.map(|role| role.as_str().to_owned()),
        read_only: shared.options.read_only,
    }
}
