//! Schedules and limits.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::json;
use serde_json::value::RawValue;
use stargate_access::Role;
use stargate_queue::limits::{Limit, Rate};
use stargate_queue::schedule::{self, Schedule};
use stargate_queue::{Error, NewJob};

use crate::api::types::plans as types;
use crate::api::types::{Enqueued, plans};
use crate::api::{JOB_BYTES_MAX, enqueue};
use crate::app::Shared;
use crate::caller::{Actor, Caller, Change};
use crate::error::{Problem, Result};
use crate::input::JsonBody;

#[utoipa::path(get, path = "/schedules", tag = "schedules", summary = "All schedules with their next instants, and in words",
    responses((status = 200, body = types::Schedules)))]
pub(crate) async fn schedules(
    State(shared): State<Shared>,
    caller: Caller,
) -> Result<Json<types::Schedules>> {
    all_schedules(&shared, &caller).await.map(Json)
}

/// All schedules.
pub(crate) async fn all_schedules(shared: &Shared, caller: &Caller) -> Result<types::Schedules> {
    let (found, sight) = (shared.store().schedules().await?, caller.sight(shared));
    Ok(types::Schedules {
        schedules: found.into_iter().map(|schedule| types::Schedule::of(schedule, sight)).collect(),
    })
}

#[utoipa::path(get, path = "/schedules/{name}", tag = "schedules", summary = "One schedule",
    params(("name" = String, Path, description = "The schedule")), responses((status = 200, body = types::Schedule)))]
pub(crate) async fn schedule(
    State(shared): State<Shared>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<types::Schedule>> {
    let found = find(&shared, &name).await?;
    Ok(Json(types::Schedule::of(found, caller.sight(&shared))))
}

async fn find(shared: &Shared, name: &str) -> Result<Schedule> {
    let found = shared.store().schedules().await?.into_iter().find(|schedule| schedule.name == name);
    found.ok_or_else(|| Problem::not_found("schedule", name))
}

#[utoipa::path(put, path = "/schedules/{name}", tag = "schedules", summary = "Add a schedule, or replace the one of that name",
    params(("name" = String, Path, description = "The schedule")), request_body = types::NewSchedule,
    responses((status = 200, body = types::Schedule)))]
pub(crate) async fn put_schedule(
    actor: Actor,
    Path(name): Path<String>,
    body: JsonBody<types::NewSchedule, JOB_BYTES_MAX>,
) -> Result<Json<types::Schedule>> {
    save_schedule(&actor, name, body.value).await.map(Json)
}

/// Adds a schedule or replaces the one of that name.
pub(crate) async fn save_schedule(
    actor: &Actor,
    name: String,
    wanted: types::NewSchedule,
) -> Result<types::Schedule> {
    let schedule = Schedule {
        name: name.clone(),
        cron: wanted.cron,
        time_zone: wanted.time_zone.unwrap_or_else(|| "UTC".to_owned()),
        kind: wanted.kind,
        queue: wanted.queue.unwrap_or_else(|| "default".to_owned()),
        payload: wanted.payload.map_or_else(empty, Ok)?,
        priority: wanted.priority.unwrap_or_default(),
        next_at: None,
        last_at: None,
    };
    schedule.check()?;
    if !(0..=9999).contains(&schedule.priority) {
        let problem = format!("is {}; allowed are 0 to 9999", schedule.priority);
        return Err(Problem::invalid("priority", problem));
    }
    let known = actor.store().kinds().await?;
    if !known.iter().any(|spec| spec.name == schedule.kind) {
        let known = known.into_iter().map(|spec| spec.name).collect();
        return Err(Error::UnknownKind { kind: schedule.kind, known }.into());
    }
    let change = Change::new("schedule.put", Role::Operate, &name)
        .with(json!({ "cron": schedule.cron, "time_zone": schedule.time_zone, "kind": schedule.kind }));
    actor.change(change, |store| async move { schedule::put(store.as_ref(), schedule).await }).await?;
    Ok(types::Schedule::of(find(actor.shared(), &name).await?, actor.sight()))
}

fn empty() -> Result<Box<RawValue>> {
    RawValue::from_string("{}".to_owned()).map_err(|_| Problem::internal())
}

#[utoipa::path(delete, path = "/schedules/{name}", tag = "schedules", summary = "Remove a schedule",
    params(("name" = String, Path, description = "The schedule")), responses((status = 200, body = plans::Removed)))]
pub(crate) async fn remove_schedule(actor: Actor, Path(name): Path<String>) -> Result<Json<types::Removed>> {
    drop_schedule(&actor, name).await.map(Json)
}

/// Removes a schedule.
pub(crate) async fn drop_schedule(actor: &Actor, name: String) -> Result<types::Removed> {
    let change = Change::new("schedule.remove", Role::Operate, &name);
    let removed = actor.change(change, async |store: stargate_queue::SharedStore| {
        match store.schedule_remove(&name).await? {
            true => Ok(name),
            false => Err(Error::NotFound { what: "schedule", name }),
        }
    });
    Ok(types::Removed { name: removed.await?, removed: true })
}

#[utoipa::path(post, path = "/schedules/{name}/fire", tag = "schedules", summary = "Enqueue the job of a schedule now; its next instant stays",
    params(("name" = String, Path, description = "The schedule")), responses((status = 201, body = Enqueued)))]
pub(crate) async fn fire(
    actor: Actor,
    Path(name): Path<String>,
) -> Result<(axum::http::StatusCode, Json<Enqueued>)> {
    let enqueued = fire_schedule(&actor, &name).await?;
    Ok((axum::http::StatusCode::CREATED, Json(enqueued)))
}

/// Enqueues the job of a schedule now.
pub(crate) async fn fire_schedule(actor: &Actor, name: &str) -> Result<Enqueued> {
    let schedule = find(actor.shared(), name).await?;
    let job = NewJob {
        queue: schedule.queue,
        priority: schedule.priority,
        ..NewJob::new(schedule.kind, schedule.payload)
    };
    let change = Change::new("schedule.fire", Role::Operate, name);
    let enqueued = actor.audited(change, enqueue::enqueue(actor, None, vec![job])).await?;
    let Some(job) = enqueued.first() else { return Err(Problem::internal()) };
    Ok(Enqueued { id: job.id.0, existing: job.existing })
}

#[utoipa::path(get, path = "/limits", tag = "limits", summary = "All limits, most specific first",
    responses((status = 200, body = types::Limits)))]
pub(crate) async fn limits(State(shared): State<Shared>) -> Result<Json<types::Limits>> {
    all_limits(&shared).await.map(Json)
}

/// All limits.
pub(crate) async fn all_limits(shared: &Shared) -> Result<types::Limits> {
    let limits = shared.store().limits().await?;
    Ok(types::Limits { limits: limits.into_iter().map(types::Limit::from).collect() })
}

#[utoipa::path(put, path = "/limits/{pattern}", tag = "limits", summary = "Set the limits of all keys that match",
    params(("pattern" = String, Path, description = "A key, or a prefix that ends in *")), request_body = types::NewLimit,
    responses((status = 200, body = types::Limit)))]
pub(crate) async fn put_limit(
    actor: Actor,
    Path(pattern): Path<String>,
    body: JsonBody<types::NewLimit, JOB_BYTES_MAX>,
) -> Result<Json<types::Limit>> {
    save_limit(&actor, pattern, body.value).await.map(Json)
}

/// Sets the limits of all keys that match.
pub(crate) async fn save_limit(
    actor: &Actor,
    pattern: String,
    wanted: types::NewLimit,
) -> Result<types::Limit> {
    let rate = wanted.rate.filter(|rate| !rate.is_empty()).map(|rate| rate.parse::<Rate>()).transpose()?;
    let limit = Limit { pattern, concurrency: wanted.concurrency, rate, weight: wanted.weight.unwrap_or(1) };
    limit.check()?;
    let shown = types::Limit::from(limit.clone());
    let change = Change::new("limit.set", Role::Operate, &limit.pattern)
        .with(json!({ "concurrency": shown.concurrency, "rate": shown.rate, "weight": shown.weight }));
    actor.change(change, |store| async move { store.limit_set(limit).await }).await?;
    Ok(shown)
}

#[utoipa::path(delete, path = "/limits/{pattern}", tag = "limits", summary = "Remove a limit",
    params(("pattern" = String, Path, description = "The pattern as it was set")),
    responses((status = 200, body = types::Removed)))]
pub(crate) async fn remove_limit(actor: Actor, Path(pattern): Path<String>) -> Result<Json<types::Removed>> {
    drop_limit(&actor, pattern).await.map(Json)
}

/// Removes a limit.
pub(crate) async fn drop_limit(actor: &Actor, pattern: String) -> Result<types::Removed> {
    let change = Change::new("limit.remove", Role::Operate, &pattern);
    let removed = actor.change(change, async |store: stargate_queue::SharedStore| {
        match store.limit_remove(&pattern).await? {
            true => Ok(pattern),
            false => Err(Error::NotFound { what: "limit", name: pattern }),
        }
    });
    Ok(types::Removed { name: removed.await?, removed: true })
}
