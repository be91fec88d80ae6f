//! Looking at jobs and deciding about them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use stargate_access::Role;
use stargate_queue::event::Event;
use stargate_queue::job::Json as Payload;
use stargate_queue::store::{Cancelled, JobFilter, PAGE_MAX};
use stargate_queue::{JobId, State as JobState};
use utoipa::IntoParams;

use crate::api::types::bulk::BulkFilter;
use crate::api::{JOB_BYTES_MAX, types};
use crate::app::Shared;
use crate::caller::{Actor, Caller, Change, forbidden};
use crate::error::{Problem, Result};
use crate::input::{MaybeJson, Params, given, job_id, number, timestamp_or_age};
use crate::lead::Reader;

/// How many events are shown with a job.
const LAST_EVENTS: usize = 20;

/// Which jobs to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    /// One or several states, separated by commas: `queued`, `processing`, `done`, `failed`, `cancelled`.
    pub(crate) state: Option<String>,
    /// Only this kind.
    pub(crate) kind: Option<String>,
    /// Only this queue.
    pub(crate) queue: Option<String>,
    /// Created since this instant, or so long ago: `2026-01-31T12:00:00Z`, `1h`.
    pub(crate) since: Option<String>,
    /// Created before this instant, or so long ago.
    pub(crate) until: Option<String>,
    /// Only this limit key.
    pub(crate) limit_key: Option<String>,
    /// Only with this error code.
    pub(crate) code: Option<String>,
    /// Text that occurs in payload, unique key or error message. Needs the role operate where payloads are redacted.
    pub(crate) q: Option<String>,
    /// Only jobs before this one: `next_before` of the page before.
    #[param(value_type = Option<i64>)]
    pub(crate) before: Option<String>,
    /// How many; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<String>,
}

impl ListParams {
    /// The filter, for who may search.
    pub(crate) fn filter(self, shared: &Shared, caller: &Caller) -> Result<JobFilter> {
        let limit = number("limit", self.limit.as_deref(), 1..=PAGE_MAX)?;
        let before = given(self.before).map(|before| {
            let wrong = || Problem::invalid("before", format!("{before:?} is not a job's id"));
            before.parse().map(JobId).map_err(|_| wrong())
        });
        let wanted = BulkFilter {
            state: self.state,
            kind: self.kind,
            queue: self.queue,
            since: self.since,
            until: self.until,
            limit_key: self.limit_key,
            code: self.code,
            q: self.q,
        };
        let mut filter = filter(wanted, shared, caller)?;
        filter.before = before.transpose()?;
        filter.limit = limit.unwrap_or(filter.limit);
        Ok(filter)
    }
}

/// Reads a filter. Looking for a text in payloads tells what is in them, so it is for who may see them whole.
pub(crate) fn filter(wanted: BulkFilter, shared: &Shared, caller: &Caller) -> Result<JobFilter> {
    let instant = |field, text| given(text).map(|text| timestamp_or_age(field, &text)).transpose();
    let mut filter = JobFilter {
        kind: given(wanted.kind),
        queue: given(wanted.queue),
        limit_key: given(wanted.limit_key),
        code: given(wanted.code),
        search: given(wanted.q),
        since: instant("since", wanted.since)?,
        until: instant("until", wanted.until)?,
        ..JobFilter::default()
    };
    for state in given(wanted.state).as_deref().into_iter().flat_map(|states| states.split(',')) {
        filter.states.push(state.trim().parse::<JobState>()?);
    }
    if filter.search.is_some() && shared.redactor.hides() && !caller.may(Role::Operate) {
        let mut problem = forbidden(Role::Operate);
        problem.message.push_str(": q looks into payloads, of which parts are hidden (web.redact)");
        return Err(problem);
    }
    filter.check()?;
    Ok(filter)
}

#[utoipa::path(get, path = "/jobs", tag = "jobs", summary = "A page of jobs, newest first", params(ListParams),
    responses((status = 200, body = types::JobPage)))]
pub(crate) async fn list(
    State(shared): State<Shared>,
    caller: Caller,
    Params(params): Params<ListParams>,
) -> Result<Json<types::JobPage>> {
    let filter = params.filter(&shared, &caller)?;
    page(&shared, &caller, filter).await.map(Json)
}

/// A page of jobs.
pub(crate) async fn page(shared: &Shared, caller: &Caller, filter: JobFilter) -> Result<types::JobPage> {
    let found = shared.store().jobs_found(filter).await?;
    let sight = caller.sight(shared);
    Ok(types::JobPage {
        jobs: found.jobs.into_iter().map(|job| types::Job::of(job, sight)).collect(),
        next_before: found.next_before.map(|id| id.0),
        scanned_all: found.scanned_all,
    })
}

#[utoipa::path(get, path = "/jobs/{id}", tag = "jobs", summary = "A job with its last events",
    params(("id" = i64, Path, description = "The job")), responses((status = 200, body = types::JobWithEvents)))]
pub(crate) async fn show(
    State(shared): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<types::JobWithEvents>> {
    one(&shared, &caller, job_id(&id)?).await.map(Json)
}

/// A job with its last events.
pub(crate) async fn one(shared: &Shared, caller: &Caller, id: JobId) -> Result<types::JobWithEvents> {
    let job = shared.store().job(id).await?.ok_or_else(|| Problem::not_found("job", id))?;
    let events = last_events(shared.store(), id, LAST_EVENTS).await?;
    let sight = caller.sight(shared);
    Ok(types::JobWithEvents {
        job: types::Job::of(job, sight),
        events: events.into_iter().map(|event| types::Event::of(event, sight)).collect(),
    })
}

/// The end of a timeline. Numbers have no gaps (rule 18), so the end of a long one is found by doubling steps and
/// then halving, instead of reading all of it.
pub(crate) async fn last_events(store: &Reader, id: JobId, count: usize) -> Result<Vec<Event>> {
    let mut page = store.events(id, 0, PAGE_MAX).await?;
    if page.len() < PAGE_MAX as usize {
        return Ok(page.split_off(page.len().saturating_sub(count)));
    }
    let (mut exists, mut beyond) = (PAGE_MAX, PAGE_MAX.saturating_mul(2));
    while !store.events(id, beyond, 1).await?.is_empty() && beyond < u32::MAX {
        (exists, beyond) = (beyond, beyond.saturating_mul(2));
    }
    while beyond - exists > 1 {
        let middle = exists + (beyond - exists) / 2;
        match store.events(id, middle, 1).await?.is_empty() {
            true => beyond = middle,
            false => exists = middle,
        }
    }
    let count = u32::try_from(count).unwrap_or(PAGE_MAX);
    Ok(store.events(id, beyond.saturating_sub(count), PAGE_MAX).await?)
}

#[utoipa::path(get, path = "/jobs/{id}/explain", tag = "jobs", summary = "Why a job does not run, and what would change that",
    params(("id" = i64, Path, description = "The job")), responses((status = 200, body = types::Explanation)))]
pub(crate) async fn explain(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<types::Explanation>> {
    explanation(&shared, job_id(&id)?).await.map(Json)
}

/// Why a job does not run.
pub(crate) async fn explanation(shared: &Shared, id: JobId) -> Result<types::Explanation> {
    Ok(shared.store().explain(id, shared.pressure.as_ref()).await?.into())
}

#[utoipa::path(post, path = "/jobs/{id}/retry", tag = "jobs", summary = "Have a failed job run again, with another payload if one is sent",
    params(("id" = i64, Path, description = "The job")),
    request_body(content = Option<types::Retry>, description = "May be left out"),
    responses((status = 200, body = types::Job)))]
pub(crate) async fn retry(
    actor: Actor,
    Path(id): Path<String>,
    body: MaybeJson<types::Retry, JOB_BYTES_MAX>,
) -> Result<Json<types::Job>> {
    let payload = body.0.unwrap_or_default().payload;
    retry_one(&actor, job_id(&id)?, payload).await.map(Json)
}

/// Has a failed job run again, perhaps with another payload.
pub(crate) async fn retry_one(actor: &Actor, id: JobId, payload: Option<Payload>) -> Result<types::Job> {
    let (action, bytes) = match &payload {
        Some(payload) => ("job.edit", Some(payload.get().len())),
        None => ("job.retry", None),
    };
    let change = Change::new(action, Role::Write, id).with(json!({ "payload_bytes": bytes }));
    let work = async |store: stargate_queue::SharedStore| match payload {
        Some(payload) => store.retry_edited(id, payload).await,
        None => store.retry(id).await,
    };
    actor.change(change, work).await?;
    let job = actor.store().job(id).await?.ok_or_else(|| Problem::not_found("job", id))?;
    Ok(types::Job::of(job, actor.sight()))
}

#[utoipa::path(post, path = "/jobs/{id}/cancel", tag = "jobs", summary = "End a waiting job, or ask the worker of a running one to stop",
    params(("id" = i64, Path, description = "The job")),
    responses((status = 200, body = types::Cancelled, description = "It has ended"),
        (status = 202, body = types::Cancelled, description = "Its worker was asked")))]
pub(crate) async fn cancel(
    actor: Actor,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<types::Cancelled>)> {
    let cancelled = cancel_one(&actor, job_id(&id)?).await?;
    let status = if cancelled.outcome == "ended" { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(cancelled)))
}

/// Ends a waiting job, or asks the worker of a running one to stop.
pub(crate) async fn cancel_one(actor: &Actor, id: JobId) -> Result<types::Cancelled> {
    let change = Change::new("job.cancel", Role::Write, id);
    let outcome = match actor.change(change, |store| async move { store.cancel(id).await }).await? {
        Cancelled::Ended => "ended",
        Cancelled::Requested => "requested",
    };
    Ok(types::Cancelled { id: id.0, outcome: outcome.to_owned() })
}
