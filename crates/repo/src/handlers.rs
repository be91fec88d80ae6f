//! The kinds of jobs that follow a push.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stargate_base::ErrorClass;
use stargate_queue::context::Context;
use stargate_queue::handler::{Failure, Registry};
use stargate_queue::kind::{KindSpec, Profile};
use stargate_queue::{Error, NewJob, Result};

use crate::measure::{Measure, RepoSize};
use crate::push::PushEventId;
use crate::repository::{RepoId, check_name};
use crate::store::SharedPushes;
use crate::webhook::{Courier, Delivery, DeliveryId};

/// Writes what follows from one ref of a push. Payload `{"push_event_id": 1}`.
pub const PUSH_PROCESS: &str = "push:process";
/// Measures a repository. Payload `{"repo": "team/app"}`.
pub const SIZE_RECALC: &str = "repo:size_recalc";
/// Sends one event to one hook. Payload `{"delivery_id": 1}`.
pub const WEBHOOK_DELIVER: &str = "webhook:deliver";

/// The event of a delivery that begins, in the timeline of its job.
const DELIVERING: &str = "delivering";
/// The event, hook or repository that a job is about is not there any more.
const GONE: &str = "NOT_FOUND";
/// How long measuring may take.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(1800);
/// How long a delivery may take. A courier gives up earlier, so that the failure tells which server it was.
pub const DELIVER_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a push is tried: the last time some 18 hours after the first.
const PUSH_ATTEMPTS: u16 = 25;
/// How often a hook is tried: the last time some five hours after the first.
const DELIVER_ATTEMPTS: u16 = 12;
/// Jobs of one repository that may be measuring when another is to wait.
pub const SIZE_JOBS_MAX: u32 = 8;

#[derive(Debug, Serialize, Deserialize)]
struct ProcessPayload {
    push_event_id: PushEventId,
}

#[derive(Debug, Serialize, Deserialize)]
struct SizePayload {
    repo: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct DeliverPayload {
    delivery_id: DeliveryId,
}

/// The job that processes an event.
pub fn process_job(event: PushEventId, trace_id: Option<&str>) -> Result<NewJob> {
    let job = NewJob::of(PUSH_PROCESS, &ProcessPayload { push_event_id: event })?;
    Ok(NewJob { trace_id: trace_id.map(str::to_owned), ..job })
}

/// A job that measures a repository. A running one may have measured before the push, so a second may wait beside it
/// under the next `place`; the first place whose job is not running is the right one.
pub fn size_job(id: RepoId, name: &str, place: u32) -> Result<NewJob> {
    let job = NewJob::of(SIZE_RECALC, &SizePayload { repo: name.to_owned() })?;
    // The number, because a name may be longer than a unique key.
    let unique_key = match place {
        0 => format!("{SIZE_RECALC} {}", id.0),
        n => format!("{SIZE_RECALC} {} +{n}", id.0),
    };
    Ok(NewJob { unique_key: Some(unique_key), ..job })
}

/// The job that sends a delivery.
pub fn deliver_job(delivery: DeliveryId) -> Result<NewJob> {
    NewJob::of(WEBHOOK_DELIVER, &DeliverPayload { delivery_id: delivery })
}

/// The kinds as a store is told of them that has not heard of them from a worker.
pub fn kinds() -> Result<Vec<KindSpec>> {
    [(PUSH_PROCESS, push_profile()), (SIZE_RECALC, size_profile()), (WEBHOOK_DELIVER, deliver_profile())]
        .iter()
        .map(|(kind, profile)| KindSpec::new(kind, profile))
        .collect()
}

/// Nobody else tells of a push. And it is one transaction of ours: a worker that dies over it dies of something else, so losing some is
/// no reason to give up.
fn push_profile() -> Profile {
    Profile { max_attempts: PUSH_ATTEMPTS, max_crashes: PUSH_ATTEMPTS, ..Profile::default() }
}

fn size_profile() -> Profile {
    // Measuring reads the whole directory: two at a time are enough for a disk.
    Profile { timeout: MEASURE_TIMEOUT, concurrency: Some(2), ..Profile::default() }
}

fn deliver_profile() -> Profile {
    let (max_attempts, max_crashes) = (DELIVER_ATTEMPTS, DELIVER_ATTEMPTS);
    Profile { timeout: DELIVER_TIMEOUT, max_attempts, max_crashes, ..Profile::default() }
}

/// Registers the kinds that this process can serve: measuring where the repositories are, deliveries where there is a
/// courier. The others wait for a worker that can.
pub fn register(
    registry: &mut Registry,
    pushes: &SharedPushes,
    measure: Option<Arc<dyn Measure>>,
    courier: Option<Arc<dyn Courier>>,
) -> Result<()> {
    let store = pushes.clone();
    registry.handle(PUSH_PROCESS, push_profile(), move |_, payload| process(store.clone(), payload))?;
    if let Some(measure) = measure {
        let store = pushes.clone();
        registry.handle(SIZE_RECALC, size_profile(), move |_, payload| {
            recalculate(store.clone(), measure.clone(), payload)
        })?;
    }
    if let Some(courier) = courier {
        let store = pushes.clone();
        let profile = Profile { concurrency: courier.at_once(), ..deliver_profile() };
        registry.handle(WEBHOOK_DELIVER, profile, move |context, payload| {
            deliver(store.clone(), courier.clone(), context, payload)
        })?;
    }
    Ok(())
}

#[derive(Debug, Serialize)]
struct ProcessResult {
    first: bool,
    default_moved: bool,
    deliveries: u32,
}

async fn process(pushes: SharedPushes, payload: ProcessPayload) -> Result<ProcessResult, Failure> {
    let done = pushes.process(payload.push_event_id).await.map_err(failure)?;
    Ok(ProcessResult { first: done.first, default_moved: done.default_moved, deliveries: done.deliveries })
}

async fn recalculate(
    pushes: SharedPushes,
    measure: Arc<dyn Measure>,
    payload: SizePayload,
) -> Result<RepoSize, Failure> {
    let SizePayload { repo } = payload;
    check_name(&repo).map_err(failure)?;
    let measured = measure.measure(&repo).await.map_err(|error| {
        // The path in the error is a path of ours; what went wrong is enough.
        Failure::transient(format!("repository {repo} cannot be measured: {}", error.kind()))
    })?;
    let size = measured.ok_or_else(|| gone(format!("repository {repo} is not there")))?;
    if pushes.size_set(&repo, size).await.map_err(failure)? {
        return Ok(size);
    }
    Err(gone(format!("repository {repo} is not known any more")))
}

#[derive(Debug, Serialize)]
struct DeliverResult {
    delivered: bool,
}

async fn deliver(
    pushes: SharedPushes,
    courier: Arc<dyn Courier>,
    context: Context,
    payload: DeliverPayload,
) -> Result<DeliverResult, Failure> {
    let id = payload.delivery_id;
    let Some(delivery) = pushes.delivery(id).await.map_err(failure)? else {
        tracing::info!(delivery = %id, job = %context.job(), "nobody wants to hear of it any more");
        return Ok(DeliverResult { delivered: false });
    };
    if delivery.delivered_at.is_none() {
        context.event(DELIVERING, &about(&delivery)).await;
        let sent = context.stopping().run_until_cancelled(courier.deliver(&delivery)).await;
        sent.unwrap_or_else(|| Err(Failure::transient("stopped")))?;
        // A death before this is written has it sent again, under the same number.
        pushes.delivered(id).await.map_err(failure)?;
    }
    Ok(DeliverResult { delivered: true })
}

/// What the timeline tells of a delivery. Not the address: its path may be a password.
fn about(delivery: &Delivery) -> serde_json::Value {
    let (hook, event) = (&delivery.hook, &delivery.event);
    serde_json::json!({ "webhook": hook.id, "repo": event.repo, "ref": event.update.ref_name })
}

fn gone(message: String) -> Failure {
    Failure::new(GONE, ErrorClass::ValidationFailure, message)
}

/// A failure of the store, with the class that decides whether it is tried again.
fn failure(error: Error) -> Failure {
    let (code, class) = (error.code(), error.class());
    let text = Failure::from(error).error.message;
    Failure::new(code, class, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_the_documented_form() {
        assert_eq!(process_job(PushEventId(7), None).unwrap().payload.get(), r#"{"push_event_id":7}"#);
        assert_eq!(deliver_job(DeliveryId(8)).unwrap().payload.get(), r#"{"delivery_id":8}"#);
        let sizes: Vec<NewJob> = (0..2).map(|place| size_job(RepoId(1), "a/b", place).unwrap()).collect();
        assert_eq!(sizes[0].payload.get(), r#"{"repo":"a/b"}"#);
        assert_ne!(sizes[0].unique_key, sizes[1].unique_key);
    }

    #[test]
    fn the_jobs_of_every_repository_and_place_are_good_and_have_keys_of_their_own() {
        let name = "x".repeat(crate::repository::NAME_BYTES_MAX);
        let mut keys = Vec::new();
        for id in [1, 11, i64::MAX] {
            for place in 0..SIZE_JOBS_MAX {
                let job = size_job(RepoId(id), &name, place).unwrap();
                job.check(jiff::Timestamp::UNIX_EPOCH).unwrap();
                keys.push(job.unique_key.unwrap());
            }
        }
        let all = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }

    #[test]
    fn what_is_gone_is_poison_and_what_is_away_is_tried_again() {
        let missing = failure(Error::NotFound { what: "push event", name: "7".into() });
        assert_eq!((missing.error.code.as_str(), missing.error.class.is_poison()), ("NOT_FOUND", true));
        let away = failure(Error::Store {
            operation: "process the push",
            class: ErrorClass::RetryableTransient,
            hint: None,
            source: "connection closed".into(),
        });
        assert!(!away.error.class.is_poison());
        assert!(away.error.message.contains("connection closed"), "{}", away.error.message);
    }
}
