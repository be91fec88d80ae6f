//! Many jobs at once: what operators do by filter.
//!
//! Up to [`BULK_MAX`] named jobs are one transaction of the store (`retry_many`, `cancel_many`). What is larger than
//! that is itself a job, of the kind [`RETRY_MATCHING`]: it shows its progress, survives a restart and can be cancelled.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::job::JobId;
use crate::listing::JobFilter;

/// The most jobs that one call of `retry_many` or `cancel_many` takes.
pub const BULK_MAX: usize = 1000;
/// The kind that retries all failed jobs that match a filter.
pub const RETRY_MATCHING: &str = "jobs:retry_matching";

/// The payload of a job of the kind [`RETRY_MATCHING`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryMatching {
    /// Which failed jobs. Its `states`, `before` and `limit` say nothing here.
    #[serde(default)]
    pub filter: JobFilter,
    /// Only jobs with a smaller id, so that those are not retried that fail only afterwards; all when absent.
    #[serde(default)]
    pub before_id: Option<JobId>,
}

/// Refuses more jobs than one call takes.
pub fn check_ids(ids: &[JobId]) -> Result<()> {
    if ids.len() > BULK_MAX {
        return Err(Error::invalid("ids", format!("are {}; at most {BULK_MAX} are allowed", ids.len())));
    }
    Ok(())
}
