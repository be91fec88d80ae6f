//! `jobs:purge_completed`: removes finished jobs and audited actions beyond their retention, in batches that lock nothing for long.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stargate_base::ErrorClass;
use stargate_queue::context::Context;
use stargate_queue::handler::{Failure, Registry};
use stargate_queue::kind::{Detail, Profile};
use stargate_queue::store::{PurgeReport, PurgeRequest, Store};
use stargate_queue::{Error, Json, Result};
use tokio_util::sync::CancellationToken;

use crate::execution::stopped;

/// The kind.
pub const KIND: &str = "jobs:purge_completed";
/// Jobs removed by one statement.
pub const BATCH: u32 = 5000;

const DAYS_MAX: f64 = 36_500.0;

/// The payload; every field may be left out or null, and so may the payload itself.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default)]
struct Payload {
    completed_older_than_days: Option<f64>,
    failed_older_than_days: Option<f64>,
    audit_older_than_days: Option<f64>,
}

impl Default for Payload {
    fn default() -> Self {
        Self {
            completed_older_than_days: Some(14.0),
            failed_older_than_days: Some(30.0),
            audit_older_than_days: Some(400.0),
        }
    }
}

/// The result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Purged {
    done: u64,
    failed: u64,
    actions: u64,
}

/// Registers the kind.
pub fn register(registry: &mut Registry) -> Result<()> {
    let profile = Profile {
        timeout: Duration::from_secs(3600),
        concurrency: Some(1),
        timeline: Detail::States,
        ..Profile::default()
    };
    registry.handle(KIND, profile, run)
}

async fn run(context: Context, payload: Json) -> Result<Purged, Failure> {
    let request = request(payload.get())?;
    let mut batches = 0_u32;
    let mut total = PurgeReport::default();
    loop {
        let (report, short) = run_once(context.store().as_ref(), request, context.stopping()).await?;
        total.done += report.done;
        total.failed += report.failed;
        total.actions += report.actions;
        if short {
            let PurgeReport { done, failed, actions } = total;
            tracing::info!(done, failed, actions, "finished jobs and old actions were purged");
            return Ok(Purged { done, failed, actions });
        }
        batches = batches.saturating_add(1);
        context.progress(percent(batches)).await;
    }
}

/// Removes one batch; the second answer tells whether it was the last.
async fn run_once(
    store: &dyn Store,
    request: PurgeRequest,
    stopping: &CancellationToken,
) -> Result<(PurgeReport, bool), Failure> {
    if stopping.is_cancelled() {
        return Err(stopped());
    }
    let report = store.purge(request).await.map_err(failure)?;
    Ok((report, report.is_short(request)))
}

/// How much is left is not known without counting it, which would cost as much as removing it. The percentage
/// only shows that it moves.
fn percent(batches: u32) -> u8 {
    let share = f64::from(batches) / (f64::from(batches) + 10.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 99")]
    let percent = (share * 99.0) as u8;
    percent
}

fn request(payload: &str) -> Result<PurgeRequest, Failure> {
    let payload: Option<Payload> =
        serde_json::from_str(payload).map_err(|error| invalid(error.to_string()))?;
    let (payload, default) = (payload.unwrap_or_default(), Payload::default());
    let age = |name, days: Option<f64>, or: Option<f64>| match days.or(or) {
        Some(days) if (0.0..=DAYS_MAX).contains(&days) => Ok(Duration::from_secs_f64(days * 86_400.0)),
        other => Err(invalid(format!("{name} is {other:?}; allowed are 0 to {DAYS_MAX} days"))),
    };
    Ok(PurgeRequest {
        done_age: age(
            "completed_older_than_days",
            payload.completed_older_than_days,
            default.completed_older_than_days,
        )?,
        failed_age: age(
            "failed_older_than_days",
            payload.failed_older_than_days,
            default.failed_older_than_days,
        )?,
        actions_age: age(
            "audit_older_than_days",
            payload.audit_older_than_days,
            default.audit_older_than_days,
        )?,
        batch: BATCH,
    })
}

fn invalid(message: String) -> Failure {
    Failure::new("PAYLOAD_INVALID", ErrorClass::ValidationFailure, message)
}

fn failure(error: Error) -> Failure {
    Failure::new(error.code(), error.class(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_payload_means_14_30_and_400_days() {
        for payload in ["{}", "null", r#"{"other":1,"failed_older_than_days":null}"#] {
            let request = request(payload).unwrap();
            assert_eq!(request.done_age, Duration::from_secs(14 * 86_400), "{payload}");
            assert_eq!(request.failed_age, Duration::from_secs(30 * 86_400), "{payload}");
            assert_eq!(request.actions_age, Duration::from_secs(400 * 86_400), "{payload}");
        }
        assert_eq!(
            request(r#"{"completed_older_than_days":0.5}"#).unwrap().done_age,
            Duration::from_secs(43_200)
        );
    }

    #[test]
    fn impossible_ages_are_refused_by_name() {
        for payload in [r#"{"failed_older_than_days":-1}"#, r#"{"failed_older_than_days":1e300}"#] {
            let failure = request(payload).unwrap_err();
            assert!(failure.error.message.contains("failed_older_than_days"), "{failure:?}");
            assert_eq!(failure.error.class, ErrorClass::ValidationFailure);
        }
        assert!(request("[").is_err());
        assert!(request(r#"{"completed_older_than_days":"x"}"#).is_err());
    }

    #[test]
    fn the_percentage_rises_and_never_reaches_the_end() {
        assert!((1..2000).all(|n| percent(n) <= percent(n + 1) && percent(n) <= 99));
    }
}
