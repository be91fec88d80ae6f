//! `jobs:retry_matching`: retries all failed jobs that match a filter, in chunks, with progress.
//!
//! What an operator asks for by filter may be hundreds of thousands of jobs. As a job of its own it survives a restart,
//! shows how far it is, can be cancelled, and can wait for another one: with `after: [canary]` nothing is retried unless
//! the canary is done.
//!
//! Only jobs are retried that had failed before this one was enqueued. So one that fails again meanwhile is left alone,
//! also if this job has to begin anew.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use stargate_base::ErrorClass;
use stargate_queue::bulk::{RETRY_MATCHING, RetryMatching};
use stargate_queue::context::Context;
use stargate_queue::handler::{Failure, Registry};
use stargate_queue::kind::{Detail, Profile};
use stargate_queue::listing::JobFilter;
use stargate_queue::store::Store;
use stargate_queue::{Error, JobId, Json, Result, State};

use crate::execution::stopped;

/// The kind.
pub const KIND: &str = RETRY_MATCHING;
/// Jobs retried by one transaction: small enough that it holds nobody up.
pub const CHUNK: u32 = 500;

/// How often all are gone through: a job whose parent comes in a later chunk can be retried in the next pass.
const PASSES_MAX: u32 = 5;
/// How far the jobs are counted beforehand, for the percentage.
const COUNT_MAX: u64 = 100_000;

/// The result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Retried {
    /// Jobs that wait again.
    retried: u64,
    /// Jobs that matched and could not be retried: a parent that has not succeeded, a unique key that another one holds.
    left: u64,
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

async fn run(context: Context, payload: Json) -> Result<Retried, Failure> {
    let asked = request(payload.get())?;
    let store = context.store().as_ref();
    let own = store.job(context.job()).await.map_err(failure)?;
    let asked_at = own.map_or(Timestamp::MAX, |job| job.created_at);
    let total = store.jobs_count(asked.clone(), COUNT_MAX).await.map_err(failure)?.count;
    let mut sum = Retried::default();
    for _ in 0..PASSES_MAX {
        let (mut before, mut pass) = (asked.before, Retried::default());
        loop {
            if context.stopping().is_cancelled() {
                return Err(stopped());
            }
            let filter = JobFilter { before, ..asked.clone() };
            let (chunk, next) = run_once(store, filter, asked_at).await?;
            pass.retried += chunk.retried;
            pass.left += chunk.left;
            context.progress(percent(sum.retried + pass.retried, total)).await;
            match next {
                Some(next) => before = Some(next),
                None => break,
            }
        }
        sum = Retried { retried: sum.retried + pass.retried, left: pass.left };
        if pass.retried == 0 || pass.left == 0 {
            break;
        }
    }
    tracing::info!(retried = sum.retried, left = sum.left, "failed jobs were retried");
    Ok(sum)
}

/// Retries one chunk; the second answer tells where the next one begins.
async fn run_once(
    store: &dyn Store,
    filter: JobFilter,
    asked_at: Timestamp,
) -> Result<(Retried, Option<JobId>), Failure> {
    let found = store.jobs_found(filter).await.map_err(failure)?;
    let failed_before = |end: Option<Timestamp>| end.is_some_and(|end| end <= asked_at);
    let ids: Vec<JobId> =
        found.jobs.iter().filter(|job| failed_before(job.finished_at)).map(|job| job.id).collect();
    let retried = store.retry_many(ids.clone()).await.map_err(failure)?.len();
    let chunk = Retried { retried: retried as u64, left: (ids.len() - retried) as u64 };
    Ok((chunk, found.next_before))
}

/// The share of what was counted; it stays below the end, because others may have failed since.
fn percent(retried: u64, total: u64) -> u8 {
    u8::try_from((retried * 100 / total.max(1)).min(99)).unwrap_or(99)
}

fn request(payload: &str) -> Result<JobFilter, Failure> {
    let refused = |error: serde_json::Error| invalid(error.to_string());
    // Read as an object first: serde takes a list for a structure too, and an empty one would match everything.
    let named: BTreeMap<String, serde_json::Value> = serde_json::from_str(payload).map_err(refused)?;
    if named.get("filter").is_some_and(|filter| !filter.is_object()) {
        return Err(invalid("filter is not an object".to_owned()));
    }
    let asked: RetryMatching = serde_json::from_str(payload).map_err(refused)?;
    let filter =
        JobFilter { states: vec![State::Failed], before: asked.before_id, limit: CHUNK, ..asked.filter };
    filter.check().map_err(|error| invalid(error.to_string()))?;
    Ok(filter)
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
    fn only_failed_jobs_are_asked_for_whatever_the_filter_says() {
        let payload =
            r#"{"filter":{"kind":"k","code":"C","states":["done"],"limit":7,"before":3},"before_id":9}"#;
        let filter = request(payload).unwrap();
        assert_eq!(
            (filter.states, filter.limit, filter.before),
            (vec![State::Failed], CHUNK, Some(JobId(9)))
        );
        assert_eq!((filter.kind.as_deref(), filter.code.as_deref()), (Some("k"), Some("C")));
        assert_eq!(request("{}").unwrap().before, None);
    }

    #[test]
    fn a_filter_with_a_typing_error_does_not_become_one_that_matches_everything() {
        for payload in [
            r#"{"filter":{"kidn":"k"}}"#,
            r#"{"fliter":{}}"#,
            r#"{"filter":[]}"#,
            "[]",
            "null",
            r#"{"filter":{"search":""}}"#,
        ] {
            let failure = request(payload).unwrap_err();
            assert_eq!(failure.error.class, ErrorClass::ValidationFailure, "{payload}");
        }
    }

    #[test]
    fn the_percentage_stays_below_the_end() {
        assert_eq!([percent(0, 0), percent(5, 10), percent(10, 10), percent(500, 10)], [0, 50, 99, 99]);
    }
}
