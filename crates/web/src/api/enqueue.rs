//! Enqueueing over HTTP: one job or a batch, once per `Idempotency-Key`.

use axum::Json;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use stargate_base::clock;
use stargate_queue::store::{Enqueued, Once};
use stargate_queue::{Due, Error, JobId, NewJob};

use crate::api::types::{Batch, BatchEnqueued, Delay, Enqueued as EnqueuedBody, NewJob as NewJobBody};
use crate::api::{BATCH_BYTES_MAX, BATCH_JOBS_MAX, JOB_BYTES_MAX};
use crate::caller::Actor;
use crate::error::{Problem, Result};
use crate::input::{JsonBody, duration, seconds_to_duration, timestamp, traceparent};
use crate::lead::Refused;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

#[utoipa::path(post, path = "/jobs", tag = "jobs", summary = "Enqueue a job",
    request_body = NewJobBody,
    params(("idempotency-key" = Option<String>, Header, description = "Repeated with the same body it answers the first result for 24 hours; with another body it is refused", max_length = 255),
        ("traceparent" = Option<String>, Header, description = "The trace the job belongs to")),
    responses((status = 201, body = EnqueuedBody, description = "It is new"), (status = 200, body = EnqueuedBody, description = "It was there already")))]
pub(crate) async fn one(
    actor: Actor,
    headers: HeaderMap,
    body: JsonBody<NewJobBody, JOB_BYTES_MAX>,
) -> Result<Response> {
    let job = new_job(body.value, traceparent(&headers))?;
    let once = once(&headers, "job", &body.bytes)?;
    let enqueued = enqueue(&actor, once, vec![job]).await?;
    let Some(&Enqueued { id, existing }) = enqueued.first() else { return Err(Problem::internal()) };
    let status = if existing { StatusCode::OK } else { StatusCode::CREATED };
    let base = &actor.shared().options.base_path;
    let location = [(header::LOCATION, format!("{base}/api/v1/jobs/{id}"))];
    Ok((status, location, Json(EnqueuedBody { id: id.0, existing })).into_response())
}

#[utoipa::path(post, path = "/jobs/batch", tag = "jobs", summary = "Enqueue up to 10000 jobs, all or none",
    request_body = Batch,
    params(("idempotency-key" = Option<String>, Header, description = "As for one job", max_length = 255),
        ("traceparent" = Option<String>, Header, description = "The trace the jobs belong to")),
    responses((status = 201, body = BatchEnqueued, description = "Some are new"), (status = 200, body = BatchEnqueued, description = "All were there already")))]
pub(crate) async fn batch(
    actor: Actor,
    headers: HeaderMap,
    body: JsonBody<Batch, BATCH_BYTES_MAX>,
) -> Result<Response> {
    let count = body.value.jobs.len();
    if !(1..=BATCH_JOBS_MAX).contains(&count) {
        return Err(Problem::invalid(
            "jobs",
            format!("has {count} entries; allowed are 1 to {BATCH_JOBS_MAX}"),
        ));
    }
    let trace = traceparent(&headers);
    let jobs = body.value.jobs.into_iter().enumerate();
    let jobs = jobs.map(|(index, job)| new_job(job, trace.clone()).map_err(|problem| at(index, problem)));
    let jobs = jobs.collect::<Result<Vec<_>>>()?;
    let once = once(&headers, "batch", &body.bytes)?;
    drop(body.bytes);
    let enqueued = enqueue(&actor, once, jobs).await?;
    let existing = enqueued.iter().filter(|job| job.existing).count();
    let answer = BatchEnqueued {
        ids: enqueued.iter().map(|job| job.id.0).collect(),
        created: enqueued.len() - existing,
        existing,
    };
    let status = if answer.created == 0 { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(answer)).into_response())
}

/// Accepts jobs, all or none.
pub(crate) async fn enqueue(actor: &Actor, once: Option<Once>, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
    let writer = actor.writer()?;
    check(&jobs)?;
    actor.shared().depth.enter(actor.store(), jobs.len() as u64).await?;
    let Some(once) = once else {
        return Ok(writer.write(|store| async move { store.enqueue(jobs).await }).await?);
    };
    let enqueued = writer.write(|store| async move { store.enqueue_once(once, jobs).await }).await;
    enqueued.map_err(|refused| match refused {
        Refused::ByStore(Error::Conflict { problem }) => {
            Problem::new(StatusCode::CONFLICT, "IDEMPOTENCY_MISMATCH", problem)
        }
        other => other.into(),
    })
}

/// The store checks again, with its own clock; here the answer can name the entry of a batch. An instant is left
/// to the store, whose clock decides (INV-6).
fn check(jobs: &[NewJob]) -> Result<()> {
    let now = clock::wall();
    for (index, job) in jobs.iter().enumerate() {
        let checked = job.check(now);
        if matches!(checked, Err(Error::Invalid { field: "run_at", .. })) && matches!(job.due, Due::At(_)) {
            continue;
        }
        checked
            .map_err(Problem::from)
            .map_err(|problem| if jobs.len() > 1 { at(index, problem) } else { problem })?;
    }
    Ok(())
}

fn at(index: usize, mut problem: Problem) -> Problem {
    problem.message = format!("jobs[{index}]: {}", problem.message);
    problem
}

fn new_job(body: NewJobBody, trace_id: Option<String>) -> Result<NewJob> {
    let due = match (body.delay, body.run_at) {
        (Some(_), Some(_)) => {
            return Err(Problem::invalid("run_at", "and delay exclude each other; send one of them"));
        }
        (Some(Delay::Seconds(seconds)), None) => Due::In(seconds_to_duration("delay", seconds)?),
        (Some(Delay::Text(text)), None) => Due::In(duration("delay", &text)?),
        (None, Some(text)) => Due::At(timestamp("run_at", &text)?),
        (None, None) => Due::Now,
    };
    let mut job = NewJob::new(body.kind, body.payload.unwrap_or_else(|| RawValue::NULL.to_owned()));
    if let Some(queue) = body.queue {
        job.queue = queue;
    }
    job.priority = body.priority.unwrap_or_default();
    job.due = due;
    job.max_attempts = body.max_attempts;
    job.unique_key = body.unique_key;
    job.limit_key = body.limit_key;
    job.after = body.after.into_iter().map(JobId).collect();
    job.trace_id = trace_id;
    Ok(job)
}

/// The client's key and a hash of what it asked for: the route and the very bytes of the body.
fn once(headers: &HeaderMap, route: &str, body: &[u8]) -> Result<Option<Once>> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()));
    let Some(key) = key else {
        let problem = format!("must be 1 to {IDEMPOTENCY_KEY_BYTES_MAX} printable ASCII characters");
        return Err(Problem::invalid("idempotency-key", problem));
    };
    let hash = Sha256::new().chain_update(route).chain_update([0]).chain_update(body).finalize();
    let fingerprint = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(Once { key: key.to_owned(), fingerprint }))
}
