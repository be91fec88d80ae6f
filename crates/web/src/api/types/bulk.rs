//! Many jobs at once.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Job;

/// What is to be done to many jobs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// What.
    pub action: BulkAction,
    /// To all jobs that match. Either this or `ids`; an empty one means all.
    pub filter: Option<BulkFilter>,
    /// To these jobs.
    #[schema(max_items = 10000)]
    pub ids: Option<Vec<i64>>,
    /// To so many at most, the newest first; 1000 by default.
    #[schema(minimum = 1, maximum = 10000)]
    pub limit: Option<u32>,
    /// Only tell what would be done.
    #[serde(default)]
    pub dry_run: bool,
    /// With `dry_run`: look at no more jobs than a listing does for one answer. `scanned_all` tells whether that was enough.
    #[serde(default)]
    pub glance: bool,
}

/// What can be done to many jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BulkAction {
    /// Have failed jobs run again.
    Retry,
    /// End waiting jobs, and ask the workers of running ones to stop.
    Cancel,
}

impl BulkAction {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
        }
    }
}

/// Which jobs; each field narrows them down, as the parameters of `GET jobs` do.
#[derive(Debug, Default, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkFilter {
    /// One or several states, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Only this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Created since this instant, or so long ago: `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Created before this instant, or so long ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Only this limit key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_key: Option<String>,
    /// Only with this error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Text that occurs in payload, unique key or error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub q: Option<String>,
}

/// What was done to many jobs, or would be.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BulkDone {
    /// What.
    pub action: BulkAction,
    /// Jobs that match, counted no further than `limit`.
    pub matched: u64,
    /// Jobs that were changed; 0 for a dry run.
    pub changed: u64,
    /// Whether more match than `limit`, or may among those that were not looked at: ask again.
    pub more: bool,
    /// Whether everything was looked at, up to `limit`. False when that took too long, or was only glanced at: `matched`
    /// counts those that were found so far.
    #[serde(default)]
    pub scanned_all: bool,
    /// Whether nothing was to be changed.
    pub dry_run: bool,
    /// The first jobs that match, as they were before.
    pub sample: Vec<Job>,
}
