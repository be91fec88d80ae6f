//! Directives: what there are, how they stand, and having them run.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use stargate_access::Role;
use stargate_queue::SharedStore;
use stargate_queue::store::PAGE_MAX;
use utoipa::IntoParams;

use crate::api::JOB_BYTES_MAX;
use crate::api::types::directives as types;
use crate::app::Shared;
use crate::caller::{Actor, Caller, Change};
use crate::error::{Answer, Problem, Result};
use crate::input::{JsonBody, MaybeJson, Params, flag, given, number};
use crate::redact::Sight;

/// Runs that are shown with a directive, and of a page that asks for no number.
const RUNS_SHOWN: u32 = 10;
const RUNS_PAGE: u32 = 50;
/// Records of a page that asks for no number.
const RECORDS_PAGE: u32 = 50;
/// Records of one request that are tried again.
const RETRIED_MAX: usize = 1000;

/// Knows the directives of this node and has them run, on whichever engine. Where jobs are written it is given the store
/// as the leader sees it.
#[async_trait]
pub trait Directing: std::fmt::Debug + Send + Sync + 'static {
    /// What there are.
    async fn list(&self) -> Answer<types::Directives>;

    /// One with its cursor and its last runs.
    async fn show(&self, name: &str, runs: u32) -> Answer<types::DirectiveDetail>;

    /// Has a run begun, unless one goes on.
    async fn start(&self, jobs: &SharedStore, name: &str) -> Answer<types::RunStarted>;

    /// A page of runs, newest first.
    async fn runs(
        &self,
        directive: Option<&str>,
        before: Option<&str>,
        limit: u32,
    ) -> Answer<Vec<types::Run>>;

    /// One run.
    async fn run(&self, id: &str) -> Answer<types::Run>;

    /// Asks a run to end where its cursor is; answers it as it is then.
    async fn cancel(&self, jobs: &SharedStore, id: &str) -> Answer<types::Run>;

    /// Where a directive stands.
    async fn cursor(&self, name: &str) -> Answer<types::CursorDetail>;

    /// Moves it by hand.
    async fn cursor_set(&self, name: &str, cursor: types::NewCursor) -> Answer<types::CursorMoved>;

    /// Records that could not become items, newest first.
    async fn quarantine(&self, asked: types::QuarantineAsked) -> Answer<Vec<types::Quarantined>>;

    /// One of them.
    async fn quarantined(&self, id: i64) -> Answer<types::Quarantined>;

    /// Tries records of a directive again: these, or all.
    async fn quarantine_retry(&self, name: &str, ids: &[i64]) -> Answer<types::QuarantineRetried>;

    /// Marks a record as dealt with.
    async fn quarantine_resolve(&self, id: i64) -> Answer<()>;
}

/// What directs here. A node that does not has no directives.
fn directing(shared: &Shared) -> Result<&Arc<dyn Directing>> {
    shared.directing.as_ref().ok_or_else(|| Problem::not_found("directive", "on this node"))
}

#[utoipa::path(get, path = "/directives", tag = "directives", summary = "All directives",
    responses((status = 200, body = types::Directives)))]
pub(crate) async fn list(State(shared): State<Shared>) -> Result<Json<types::Directives>> {
    all(&shared).await.map(Json)
}

/// All directives.
pub(crate) async fn all(shared: &Shared) -> Result<types::Directives> {
    match &shared.directing {
        Some(directing) => Ok(directing.list().await?),
        None => Ok(types::Directives { engine: "embedded".to_owned(), directives: Vec::new() }),
    }
}

/// How much is told.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct DirectiveParams {
    /// How many runs; 10 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    runs: Option<String>,
}

#[utoipa::path(get, path = "/directives/{name}", tag = "directives", summary = "A directive with its cursor and its last runs",
    params(("name" = String, Path, description = "The directive"), DirectiveParams),
    responses((status = 200, body = types::DirectiveDetail)))]
pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Params(params): Params<DirectiveParams>,
) -> Result<Json<types::DirectiveDetail>> {
    let runs = number("runs", params.runs.as_deref(), 1..=PAGE_MAX)?.unwrap_or(RUNS_SHOWN);
    one(&shared, &name, runs).await.map(Json)
}

/// A directive with its cursor and its last runs.
pub(crate) async fn one(shared: &Shared, name: &str, runs: u32) -> Result<types::DirectiveDetail> {
    Ok(directing(shared)?.show(name, runs).await?)
}

#[utoipa::path(post, path = "/directives/{name}/runs", tag = "directives", summary = "Have a run begin, unless one goes on",
    params(("name" = String, Path, description = "The directive")),
    responses((status = 202, body = types::RunStarted)))]
pub(crate) async fn start(
    actor: Actor,
    Path(name): Path<String>,
) -> Result<(StatusCode, Json<types::RunStarted>)> {
    Ok((StatusCode::ACCEPTED, Json(start_run(&actor, &name).await?)))
}

/// Has a run begin.
pub(crate) async fn start_run(actor: &Actor, name: &str) -> Result<types::RunStarted> {
    let directing = directing(actor.shared())?;
    let change = Change::new("directive.run", Role::Operate, name);
    actor.carry_out(change, |jobs| async move { Ok(directing.start(&jobs, name).await?) }).await
}

/// Which runs.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunParams {
    /// Only of this directive.
    pub(crate) directive: Option<String>,
    /// Only before this one: `next_before` of the page before.
    pub(crate) before: Option<String>,
    /// How many; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<String>,
}

#[utoipa::path(get, path = "/runs", tag = "directives", summary = "Runs of directives, newest first",
    params(RunParams), responses((status = 200, body = types::Runs)))]
pub(crate) async fn runs(
    State(shared): State<Shared>,
    Params(params): Params<RunParams>,
) -> Result<Json<types::Runs>> {
    page_of_runs(&shared, params).await.map(Json)
}

/// A page of runs.
pub(crate) async fn page_of_runs(shared: &Shared, params: RunParams) -> Result<types::Runs> {
    let limit = number("limit", params.limit.as_deref(), 1..=PAGE_MAX)?.unwrap_or(RUNS_PAGE);
    let Some(directing) = &shared.directing else {
        return Ok(types::Runs { runs: Vec::new(), next_before: None });
    };
    let (directive, before) = (given(params.directive), given(params.before));
    let runs = directing.runs(directive.as_deref(), before.as_deref(), limit).await?;
    let next_before = runs.last().filter(|_| runs.len() >= limit as usize).map(|run| run.run_id.clone());
    Ok(types::Runs { runs, next_before })
}

#[utoipa::path(get, path = "/runs/{id}", tag = "directives", summary = "One run",
    params(("id" = String, Path, description = "The run")), responses((status = 200, body = types::Run)))]
pub(crate) async fn run(State(shared): State<Shared>, Path(id): Path<String>) -> Result<Json<types::Run>> {
    one_run(&shared, &id).await.map(Json)
}

/// One run.
pub(crate) async fn one_run(shared: &Shared, id: &str) -> Result<types::Run> {
    Ok(directing(shared)?.run(id).await?)
}

#[utoipa::path(post, path = "/runs/{id}/cancel", tag = "directives", summary = "Ask a run to end where its cursor is",
    params(("id" = String, Path, description = "The run")), responses((status = 202, body = types::Run)))]
pub(crate) async fn cancel(actor: Actor, Path(id): Path<String>) -> Result<(StatusCode, Json<types::Run>)> {
    Ok((StatusCode::ACCEPTED, Json(cancel_run(&actor, &id).await?)))
}

/// Asks a run to end.
pub(crate) async fn cancel_run(actor: &Actor, id: &str) -> Result<types::Run> {
    let directing = directing(actor.shared())?;
    let change = Change::new("run.cancel", Role::Operate, id);
    actor.carry_out(change, |jobs| async move { Ok(directing.cancel(&jobs, id).await?) }).await
}

#[utoipa::path(get, path = "/directives/{name}/cursor", tag = "directives", summary = "Where a directive stands, and moves by hand",
    params(("name" = String, Path, description = "The directive")), responses((status = 200, body = types::CursorDetail)))]
pub(crate) async fn cursor(
    State(shared): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<types::CursorDetail>> {
    show_cursor(&shared, &name).await.map(Json)
}

/// Where a directive stands.
pub(crate) async fn show_cursor(shared: &Shared, name: &str) -> Result<types::CursorDetail> {
    Ok(directing(shared)?.cursor(name).await?)
}

#[utoipa::path(put, path = "/directives/{name}/cursor", tag = "directives", summary = "Move a directive by hand; the reason is kept",
    params(("name" = String, Path, description = "The directive")), request_body = types::NewCursor,
    responses((status = 200, body = types::CursorMoved)))]
pub(crate) async fn put_cursor(
    actor: Actor,
    Path(name): Path<String>,
    body: JsonBody<types::NewCursor, JOB_BYTES_MAX>,
) -> Result<Json<types::CursorMoved>> {
    move_cursor(&actor, &name, body.value).await.map(Json)
}

/// Moves a directive by hand.
pub(crate) async fn move_cursor(
    actor: &Actor,
    name: &str,
    cursor: types::NewCursor,
) -> Result<types::CursorMoved> {
    let directing = directing(actor.shared())?;
    if cursor.spec_ref.trim().is_empty() {
        return Err(Problem::invalid("spec_ref", "is empty; name what asks for this: an issue, a decision"));
    }
    if cursor.pointer.is_some() == cursor.beginning {
        return Err(Problem::invalid("pointer", "and beginning exclude each other; send one of them"));
    }
    let change = Change::new("cursor.set", Role::Operate, name)
        .with(json!({ "spec_ref": cursor.spec_ref, "beginning": cursor.beginning }));
    actor.carry_out(change, |_| async move { Ok(directing.cursor_set(name, cursor).await?) }).await
}

/// Which records.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct QuarantineParams {
    /// `true`: also those that were dealt with.
    #[param(value_type = Option<bool>)]
    pub(crate) all: Option<String>,
    /// Only before this one: `next_before` of the page before.
    #[param(value_type = Option<i64>)]
    pub(crate) before: Option<String>,
    /// How many; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<String>,
}

#[utoipa::path(get, path = "/directives/{name}/quarantine", tag = "directives", summary = "Records of a directive that could not become items",
    params(("name" = String, Path, description = "The directive"), QuarantineParams),
    responses((status = 200, body = types::Quarantine)))]
pub(crate) async fn quarantine(
    State(shared): State<Shared>,
    caller: Caller,
    Path(name): Path<String>,
    Params(params): Params<QuarantineParams>,
) -> Result<Json<types::Quarantine>> {
    page_of_quarantine(&shared, &caller, Some(name), params).await.map(Json)
}

/// A page of records that could not become items.
pub(crate) async fn page_of_quarantine(
    shared: &Shared,
    caller: &Caller,
    directive: Option<String>,
    params: QuarantineParams,
) -> Result<types::Quarantine> {
    let asked = types::QuarantineAsked {
        directive,
        all: flag("all", params.all.as_deref())?,
        before: number("before", params.before.as_deref(), i64::MIN..=i64::MAX)?,
        limit: number("limit", params.limit.as_deref(), 1..=PAGE_MAX)?.unwrap_or(RECORDS_PAGE),
    };
    let limit = asked.limit as usize;
    let records = directing(shared)?.quarantine(asked).await?;
    let next_before = records.last().filter(|_| records.len() >= limit).map(|record| record.id);
    let sight = caller.sight(shared);
    let records = records.into_iter().map(|record| seen(record, sight)).collect();
    Ok(types::Quarantine { records, next_before })
}

fn seen(mut record: types::Quarantined, sight: Sight<'_>) -> types::Quarantined {
    record.record = sight.json(record.record);
    record
}

#[utoipa::path(get, path = "/quarantine/{id}", tag = "directives", summary = "One record that could not become an item",
    params(("id" = i64, Path, description = "The record")), responses((status = 200, body = types::Quarantined)))]
pub(crate) async fn quarantined(
    State(shared): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<types::Quarantined>> {
    let record = directing(&shared)?.quarantined(record_id(&id)?).await?;
    Ok(Json(seen(record, caller.sight(&shared))))
}

fn record_id(text: &str) -> Result<i64> {
    let missing = || Problem::not_found("quarantined record", text.chars().take(40).collect::<String>());
    text.parse().map_err(|_| missing())
}

#[utoipa::path(post, path = "/directives/{name}/quarantine/retry", tag = "directives", summary = "Try records again, after the directive was mended",
    params(("name" = String, Path, description = "The directive")),
    request_body(content = Option<types::RetryQuarantined>, description = "May be left out: all"),
    responses((status = 200, body = types::QuarantineRetried)))]
pub(crate) async fn retry_records(
    actor: Actor,
    Path(name): Path<String>,
    body: MaybeJson<types::RetryQuarantined, JOB_BYTES_MAX>,
) -> Result<Json<types::QuarantineRetried>> {
    retry_quarantined(&actor, &name, body.0.unwrap_or_default().ids).await.map(Json)
}

#[utoipa::path(post, path = "/quarantine/{id}/retry", tag = "directives", summary = "Try one record again",
    params(("id" = i64, Path, description = "The record")), responses((status = 200, body = types::QuarantineRetried)))]
pub(crate) async fn retry_record(
    actor: Actor,
    Path(id): Path<String>,
) -> Result<Json<types::QuarantineRetried>> {
    let id = record_id(&id)?;
    let record = directing(actor.shared())?.quarantined(id).await?;
    retry_quarantined(&actor, &record.directive, vec![id]).await.map(Json)
}

/// Tries records of a directive again: these, or all.
pub(crate) async fn retry_quarantined(
    actor: &Actor,
    name: &str,
    ids: Vec<i64>,
) -> Result<types::QuarantineRetried> {
    if ids.len() > RETRIED_MAX {
        let problem = format!("has {} entries; allowed are {RETRIED_MAX}", ids.len());
        return Err(Problem::invalid("ids", problem));
    }
    let directing = directing(actor.shared())?;
    let change = Change::new("quarantine.retry", Role::Operate, name).with(json!({ "ids": &ids }));
    let work = |_| async move { Ok(directing.quarantine_retry(name, &ids).await?) };
    actor.carry_out(change, work).await
}

#[utoipa::path(post, path = "/quarantine/{id}/resolve", tag = "directives", summary = "Mark a record as dealt with; it is kept",
    params(("id" = i64, Path, description = "The record")), responses((status = 200, body = types::QuarantineResolved)))]
pub(crate) async fn resolve(actor: Actor, Path(id): Path<String>) -> Result<Json<types::QuarantineResolved>> {
    resolve_record(&actor, record_id(&id)?).await.map(Json)
}

/// Marks a record as dealt with.
pub(crate) async fn resolve_record(actor: &Actor, id: i64) -> Result<types::QuarantineResolved> {
    let directing = directing(actor.shared())?;
    let change = Change::new("quarantine.resolve", Role::Operate, id);
    actor.carry_out(change, |_| async move { Ok(directing.quarantine_resolve(id).await?) }).await?;
    Ok(types::QuarantineResolved { id, resolved: true })
}
