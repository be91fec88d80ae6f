//! What readers ask for and are told: which jobs, how many, what failed and what was done.
//!
//! Everything here is bounded. A listing or a count costs what it shows, however many jobs there are. What no index
//! answers (`search`) looks at [`SCAN_MAX`] rows at most, fewer where that takes long, and says where it stopped.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_base::ErrorClass;

use crate::error::{Error, Result};
use crate::job::{Job, JobId, State};

/// The largest page.
pub const PAGE_MAX: u32 = 1000;
/// How many rows a listing or a count that looks at them one by one ([`JobFilter::scans`]) looks at before it says
/// where to go on. It may end earlier, when it takes long.
pub const SCAN_MAX: u32 = 20_000;
/// How many failed jobs `failures` looks at, from the newest on.
pub const FAILURES_SCAN_MAX: u32 = 20_000;
/// The most buckets that `activity` tells of.
pub const BUCKETS_MAX: u32 = 1000;
/// How far back `activity` looks: 31 days.
pub const WINDOW_MAX: std::time::Duration = std::time::Duration::from_secs(31 * 86_400);
/// The longest text that is searched for.
pub const SEARCH_BYTES_MAX: usize = 500;

/// Which jobs to list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobFilter {
    /// Only these states; empty means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<State>,
    /// Only this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only this queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Only this limit key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_key: Option<String>,
    /// Only jobs whose last error has this code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Only jobs in whose payload, unique key or error message this text occurs. Payloads are compared as the text they
    /// came as; of letters, A to Z and a to z are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Only jobs created at or after this instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Only jobs created before this instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Only jobs with a smaller id: the keyset for the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<JobId>,
    /// Page size, 1 to [`PAGE_MAX`].
    pub limit: u32,
}

impl Default for JobFilter {
    fn default() -> Self {
        Self {
            states: Vec::new(),
            kind: None,
            queue: None,
            limit_key: None,
            code: None,
            search: None,
            since: None,
            until: None,
            before: None,
            limit: 50,
        }
    }
}

impl JobFilter {
    /// Refuses impossible values, naming the field.
    pub fn check(&self) -> Result<()> {
        if !(1..=PAGE_MAX).contains(&self.limit) {
            let problem = format!("is {}; allowed are 1 to {PAGE_MAX}", self.limit);
            return Err(Error::invalid("limit", problem));
        }
        if let Some(search) = &self.search
            && !(1..=SEARCH_BYTES_MAX).contains(&search.len())
        {
            let problem = format!("has {} bytes; allowed are 1 to {SEARCH_BYTES_MAX}", search.len());
            return Err(Error::invalid("search", problem));
        }
        let texts = [
            ("kind", &self.kind),
            ("queue", &self.queue),
            ("limit_key", &self.limit_key),
            ("code", &self.code),
            ("search", &self.search),
        ];
        match texts.into_iter().find(|(_, text)| text.as_ref().is_some_and(|text| text.contains('\0'))) {
            Some((field, _)) => Err(Error::invalid(field, "contains the character U+0000, which no job has")),
            None => Ok(()),
        }
    }

    /// Whether rows have to be looked at one by one. For the codes of failed jobs there is an index.
    pub fn scans(&self) -> bool {
        self.search.is_some() || (self.code.is_some() && self.states != [State::Failed])
    }
}

/// A page of jobs, and where the next one begins.
#[derive(Debug, Clone)]
pub struct Found {
    /// The jobs, newest first.
    pub jobs: Vec<Job>,
    /// What to pass as `before` to go on; none at the end.
    pub next_before: Option<JobId>,
    /// False when the look ended early, at [`SCAN_MAX`] rows or because it took long, though the page is not full and
    /// there are more rows.
    pub scanned_all: bool,
}

/// How many jobs there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// So many were counted.
    pub count: u64,
    /// False when the look ended early, as that of a page does: there may be more.
    pub scanned_all: bool,
}

/// Failed jobs with the same kind and code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailureGroup {
    /// What was to be done.
    pub kind: String,
    /// The code of the error.
    pub code: String,
    /// The class of the newest one's error.
    pub class: ErrorClass,
    /// How many there are among the newest [`FAILURES_SCAN_MAX`] failed jobs.
    pub count: u64,
    /// The newest of them, by id.
    pub newest: JobId,
    /// When the last of them ended.
    pub last_at: Timestamp,
    /// When the first of them ended.
    pub oldest_at: Timestamp,
    /// The error message of the newest.
    pub message: String,
    /// The queues they were in, by name.
    pub queues: Vec<String>,
}

/// What ended in one stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Activity {
    /// When it begins; it ends where the next one begins, the last one now.
    pub from: Timestamp,
    /// Jobs that ended well.
    pub done: u64,
    /// Jobs that ended badly.
    pub failed: u64,
    /// Jobs that an operator ended.
    pub cancelled: u64,
    /// How long half of those that ran had waited at most, from their due time to the claim; within five per cent.
    pub wait_p50_ms: Option<u64>,
    /// How long nineteen of twenty had waited at most.
    pub wait_p95_ms: Option<u64>,
    /// False while the store has not yet looked so far back; the counts are too low then. It gets further with each call.
    pub complete: bool,
}

/// How a stretch of time is cut into buckets, and what is asked for is checked.
pub fn check_activity(window: std::time::Duration, buckets: u32) -> Result<()> {
    if !(1..=BUCKETS_MAX).contains(&buckets) {
        return Err(Error::invalid("buckets", format!("is {buckets}; allowed are 1 to {BUCKETS_MAX}")));
    }
    if window > WINDOW_MAX || window.as_secs() < u64::from(buckets) {
        let problem = "is out of range; allowed are a second for each bucket, and at most 31 days";
        return Err(Error::invalid("window", problem));
    }
    Ok(())
}
