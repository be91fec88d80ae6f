//! Failed jobs by their cause, and what went on lately.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::json;
use stargate_access::Role;
use stargate_queue::bulk::{RETRY_MATCHING, RetryMatching};
use stargate_queue::listing::{BUCKETS_MAX, check_activity};
use stargate_queue::store::{JobFilter, PAGE_MAX};
use stargate_queue::{JobId, NewJob, SharedStore, State as JobState};
use utoipa::IntoParams;

use crate::api::JOB_BYTES_MAX;
use crate::api::types::failures as types;
use crate::app::Shared;
use crate::caller::{Actor, Change};
use crate::error::{Problem, Result};
use crate::input::{JsonBody, Params, duration, given, number};

/// Groups that are told without being asked for.
const GROUPS_SHOWN: u32 = 100;
/// How far jobs are counted.
const COUNTED_MAX: u64 = 10_000;
/// What is shown of the past unless something else is asked for.
const WINDOW: &str = "1h";
const BUCKETS: u32 = 60;

/// How much is told.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FailureParams {
    /// How many groups; 100 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: Option<String>,
}

#[utoipa::path(get, path = "/failures", tag = "failures", summary = "Failed jobs by kind and code, most first",
    params(FailureParams), responses((status = 200, body = types::Failures)))]
pub(crate) async fn list(
    State(shared): State<Shared>,
    Params(params): Params<FailureParams>,
) -> Result<Json<types::Failures>> {
    let limit = number("limit", params.limit.as_deref(), 1..=PAGE_MAX)?.unwrap_or(GROUPS_SHOWN);
    groups(&shared, limit).await.map(Json)
}

/// Failed jobs by their cause.
pub(crate) async fn groups(shared: &Shared, limit: u32) -> Result<types::Failures> {
    let groups = shared.store().failures(limit).await?;
    Ok(types::Failures { failures: groups.into_iter().map(types::FailureGroup::from).collect() })
}

#[utoipa::path(post, path = "/failures/requeue", tag = "failures",
    summary = "Have all failed jobs of a kind and code run again, by a job that shows its progress",
    request_body = types::RequeueFailures, responses((status = 202, body = types::FailuresRequeued)))]
pub(crate) async fn requeue(
    actor: Actor,
    body: JsonBody<types::RequeueFailures, JOB_BYTES_MAX>,
) -> Result<(axum::http::StatusCode, Json<types::FailuresRequeued>)> {
    let done = requeue_group(&actor, body.value).await?;
    Ok((axum::http::StatusCode::ACCEPTED, Json(done)))
}

/// Has failed jobs of a kind and code run again. With a canary the newest goes first, and the others follow when it is done.
pub(crate) async fn requeue_group(
    actor: &Actor,
    wanted: types::RequeueFailures,
) -> Result<types::FailuresRequeued> {
    let types::RequeueFailures { kind, code, canary } = wanted;
    let filter = JobFilter {
        states: vec![JobState::Failed],
        kind: Some(kind.clone()),
        code: Some(code.clone()),
        ..JobFilter::default()
    };
    filter.check()?;
    let matched = actor.store().jobs_count(filter.clone(), COUNTED_MAX).await?.count;
    let found = actor.store().jobs_found(JobFilter { limit: 1, ..filter.clone() }).await?;
    let Some(newest) = found.jobs.first().map(|job| job.id) else {
        return Err(Problem::not_found("failed job of", format!("{kind} with {code}")));
    };
    // Those that fail only afterwards are not part of it.
    let before_id = Some(if canary { newest } else { JobId(newest.0.saturating_add(1)) });
    let mut others = others(filter, before_id)?;
    let change = Change::new("failures.requeue", Role::Operate, format!("{kind} {code}"))
        .with(json!({ "matched": matched, "canary": canary.then_some(newest.0) }));
    let needs_others = !canary || matched > 1;
    let job = actor
        .change(change, |store: SharedStore| async move {
            if canary {
                store.retry(newest).await?;
                others.after = vec![newest];
            }
            match needs_others {
                true => Ok(store.enqueue(vec![others]).await?.first().map(|job| job.id.0)),
                false => Ok(None),
            }
        })
        .await?;
    Ok(types::FailuresRequeued { matched, canary: canary.then_some(newest.0), job })
}

/// The job that retries the rest.
fn others(filter: JobFilter, before_id: Option<JobId>) -> Result<NewJob> {
    let payload = serde_json::value::to_raw_value(&RetryMatching { filter, before_id });
    Ok(NewJob::new(RETRY_MATCHING, payload.map_err(|_| Problem::internal())?))
}

/// Which stretch of time.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ActivityParams {
    /// How far back: `1h` by default, 31 days at most.
    pub(crate) window: Option<String>,
    /// Into how many stretches that is cut; 60 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub(crate) buckets: Option<String>,
}

#[utoipa::path(get, path = "/activity", tag = "workers", summary = "What was done, failed and waited for lately",
    params(ActivityParams), responses((status = 200, body = types::Activity)))]
pub(crate) async fn show_activity(
    State(shared): State<Shared>,
    Params(params): Params<ActivityParams>,
) -> Result<Json<types::Activity>> {
    activity(&shared, params).await.map(Json)
}

/// What went on lately.
pub(crate) async fn activity(shared: &Shared, params: ActivityParams) -> Result<types::Activity> {
    let window = duration("window", given(params.window).as_deref().unwrap_or(WINDOW))?;
    let buckets = number("buckets", params.buckets.as_deref(), 1..=BUCKETS_MAX)?.unwrap_or(BUCKETS);
    check_activity(window, buckets)?;
    let found = shared.store().activity(window, buckets).await?;
    Ok(types::Activity {
        window_sec: window.as_secs_f64(),
        bucket_sec: window.as_secs_f64() / f64::from(buckets),
        buckets: found.into_iter().map(types::Bucket::from).collect(),
    })
}
