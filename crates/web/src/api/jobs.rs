//! Looking at jobs and deciding about them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use stargate_queue::event::Event;
use stargate_queue::store::{Cancelled, JobFilter, PAGE_MAX};
use stargate_queue::{JobId, State as JobState};

use crate::api::types;
use crate::app::Shared;
use crate::error::{Problem, Result};
use crate::input::{Params, job_id, timestamp_or_age};
use crate::lead::{Reader, Writer};

/// How many events are shown with a job.
const LAST_EVENTS: usize = 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// One or several, separated by commas.
    state: Option<String>,
    kind: Option<String>,
    queue: Option<String>,
    since: Option<String>,
    before: Option<String>,
    limit: Option<String>,
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    Params(params): Params<ListParams>,
) -> Result<Json<types::JobPage>> {
    let filter = filter(params)?;
    let limit = filter.limit as usize;
    let jobs = shared.store().jobs(filter).await?;
    let next_before = jobs.last().filter(|_| jobs.len() >= limit).map(|job| job.id.0);
    Ok(Json(types::JobPage { jobs: jobs.into_iter().map(types::Job::from).collect(), next_before }))
}

fn filter(params: ListParams) -> Result<JobFilter> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let mut filter =
        JobFilter { kind: given(params.kind), queue: given(params.queue), ..JobFilter::default() };
    for state in given(params.state).as_deref().into_iter().flat_map(|states| states.split(',')) {
        filter.states.push(state.trim().parse::<JobState>()?);
    }
    if let Some(since) = given(params.since) {
        filter.since = Some(timestamp_or_age("since", &since)?);
    }
    if let Some(before) = given(params.before) {
        let id = before
            .parse()
            .map_err(|_| Problem::invalid("before", format!("{before:?} is not a job's id")))?;
        filter.before = Some(JobId(id));
    }
    if let Some(limit) = given(params.limit) {
        let number = limit.parse().ok().filter(|number| (1..=PAGE_MAX).contains(number));
        let wrong = || Problem::invalid("limit", format!("is {limit}; allowed are 1 to {PAGE_MAX}"));
        filter.limit = number.ok_or_else(wrong)?;
    }
    Ok(filter)
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Result<Json<types::JobWithEvents>> {
    let id = job_id(&id)?;
    let job = shared.store().job(id).await?.ok_or_else(|| Problem::not_found("job", id))?;
    let events = last_events(shared.store(), id, LAST_EVENTS).await?;
    Ok(Json(types::JobWithEvents {
        job: job.into(),
        events: events.into_iter().map(types::Event::from).collect(),
    }))
}

/// The end of a timeline. Numbers have no gaps (rule 18), so the end of a long one is found by doubling steps and
/// then halving, instead of reading all of it.
async fn last_events(store: &Reader, id: JobId, count: usize) -> Result<Vec<Event>> {
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

pub(crate) async fn retry(
    State(shared): State<Shared>,
    writer: Writer,
    Path(id): Path<String>,
) -> Result<Json<types::Job>> {
    let id = job_id(&id)?;
    writer.write(|store| async move { store.retry(id).await }).await?;
    let job = shared.store().job(id).await?.ok_or_else(|| Problem::not_found("job", id))?;
    Ok(Json(job.into()))
}

pub(crate) async fn cancel(
    writer: Writer,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<types::Cancelled>)> {
    let id = job_id(&id)?;
    let (status, outcome) = match writer.write(|store| async move { store.cancel(id).await }).await? {
        Cancelled::Ended => (StatusCode::OK, "ended"),
        Cancelled::Requested => (StatusCode::ACCEPTED, "requested"),
    };
    Ok((status, Json(types::Cancelled { id: id.0, outcome })))
}
