//! The names of the queue's metrics, and handles made once so that a job costs no look-ups.

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram};

use crate::retry::Label;

/// Good beats.
pub const HEARTBEATS: &str = "worker_heartbeats_total";
/// Expired leases dealt with, by `reason`.
pub const RECOVERED: &str = "worker_recovered_jobs_total";
/// Retries, by `code` and `error_class`.
pub const RETRIES: &str = "worker_retry_attempts_total";
/// Writes refused because another worker holds the job now.
pub const DUPLICATE_SKIPS: &str = "worker_duplicate_skips_total";
/// Claims that were called for and came back empty: another worker was faster.
pub const ACQUIRE_FAILS: &str = "worker_atomic_acquire_fail_total";
/// Handlers running, all kinds.
pub const INFLIGHT: &str = "worker_inflight_jobs";
/// Pauses because of depth and load.
pub const PAUSES: &str = "worker_pauses_total";
/// 1 while claiming pauses because of depth and load.
pub const PAUSED: &str = "worker_paused";
/// Executions by `kind` and `outcome`.
pub const PROCESSED: &str = "worker_jobs_processed_total";
/// Handler time by `kind`.
pub const DURATION: &str = "worker_job_duration_seconds";
/// Handlers running by `kind`.
pub const IN_FLIGHT: &str = "worker_in_flight";
/// Jobs by `queue` and `state`.
pub const QUEUE_DEPTH: &str = "worker_queue_depth";
/// Time from due to claimed by `kind`.
pub const WAIT: &str = "worker_job_wait_seconds";
/// Age of the oldest job that could run and does not.
pub const OLDEST_READY: &str = "worker_oldest_ready_seconds";
/// Age of the oldest failed job that is looked at.
pub const OLDEST_FAILED: &str = "worker_oldest_failed_seconds";
/// Handlers that may run at once.
pub const SLOTS: &str = "worker_slots";
/// Time since the last good beat.
pub const BEAT_AGE: &str = "worker_heartbeat_age_seconds";
/// Jobs claimed and waiting in the local buffer.
pub const BUFFERED: &str = "worker_buffered_jobs";

/// Items of a source, by `source` and `outcome`.
pub const INTAKE: &str = "worker_intake_total";
/// Items of a source that are taken and not settled, by `source`.
pub const INTAKE_OPEN: &str = "worker_intake_open";

/// Every metric with its kind and one line about it, for the exporter and the catalogue.
pub const CATALOGUE: &[(&str, MetricKind, &str)] = &[
    (HEARTBEATS, MetricKind::Counter, "Good heartbeats sent by this process"),
    (RECOVERED, MetricKind::Counter, "Jobs recovered from expired leases, by reason"),
    (RETRIES, MetricKind::Counter, "Executions that will be tried again, by error code and class"),
    (DUPLICATE_SKIPS, MetricKind::Counter, "Writes refused because another worker holds the job now"),
    (
        ACQUIRE_FAILS,
        MetricKind::Counter,
        "Claims after a wake-up that found nothing: another worker was faster",
    ),
    (INFLIGHT, MetricKind::Gauge, "Handlers running in this process"),
    (PAUSES, MetricKind::Counter, "Pauses of claiming because of queue depth and load"),
    (
        PAUSED,
        MetricKind::Gauge,
        "1 while this process pauses claiming because of queue depth and load, else 0",
    ),
    (PROCESSED, MetricKind::Counter, "Executions ended, by kind and outcome (ok, retry, failed, poison)"),
    (DURATION, MetricKind::Histogram, "Time handlers took, by kind"),
    (IN_FLIGHT, MetricKind::Gauge, "Handlers running, by kind"),
    (QUEUE_DEPTH, MetricKind::Gauge, "Unfinished and failed jobs, by queue and state"),
    (WAIT, MetricKind::Histogram, "Time from due to claimed, by kind"),
    (OLDEST_READY, MetricKind::Gauge, "Age of the oldest job that could run now but does not"),
    (
        OLDEST_FAILED,
        MetricKind::Gauge,
        "Time since the oldest failed job that is kept ended, of the newest 20000; 0 when there is none",
    ),
    (SLOTS, MetricKind::Gauge, "Handlers that this process runs at once at most"),
    (BEAT_AGE, MetricKind::Gauge, "Time since the last good heartbeat of this process"),
    (BUFFERED, MetricKind::Gauge, "Jobs claimed by this process that wait for a free handler"),
    (
        INTAKE,
        MetricKind::Counter,
        "Items of another queue, by source and outcome (taken, refused, completed, failed, cancelled, lost, late)",
    ),
    (INTAKE_OPEN, MetricKind::Gauge, "Items of another queue that are taken and not settled, by source"),
];

/// How a metric is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only rises.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// Handles of one process.
pub(crate) struct Metrics {
    pub(crate) heartbeats: Counter,
    pub(crate) recovered_stale: Counter,
    pub(crate) duplicate_skips: Counter,
    pub(crate) acquire_fails: Counter,
    pub(crate) pauses: Counter,
    pub(crate) paused: Gauge,
    pub(crate) inflight: Gauge,
    pub(crate) buffered: Gauge,
    pub(crate) slots: Gauge,
    kinds: BTreeMap<Arc<str>, KindMetrics>,
}

/// Handles of one kind.
pub(crate) struct KindMetrics {
    pub(crate) duration: Histogram,
    pub(crate) wait: Histogram,
    pub(crate) in_flight: Gauge,
    outcomes: [Counter; 4],
}

impl Metrics {
    pub(crate) fn new<'a>(kinds: impl Iterator<Item = &'a Arc<str>>) -> Self {
        Self {
            heartbeats: metrics::counter!(HEARTBEATS),
            recovered_stale: metrics::counter!(RECOVERED, "reason" => "stale"),
            duplicate_skips: metrics::counter!(DUPLICATE_SKIPS),
            acquire_fails: metrics::counter!(ACQUIRE_FAILS),
            pauses: metrics::counter!(PAUSES),
            paused: metrics::gauge!(PAUSED),
            inflight: metrics::gauge!(INFLIGHT),
            buffered: metrics::gauge!(BUFFERED),
            slots: metrics::gauge!(SLOTS),
            kinds: kinds.map(|kind| (kind.clone(), KindMetrics::new(kind))).collect(),
        }
    }

    pub(crate) fn kind(&self, kind: &str) -> Option<&KindMetrics> {
        self.kinds.get(kind)
    }
}

impl KindMetrics {
    fn new(kind: &str) -> Self {
        let outcome = |label: Label| metrics::counter!(PROCESSED, "kind" => kind.to_owned(), "outcome" => label.as_str());
        Self {
            duration: metrics::histogram!(DURATION, "kind" => kind.to_owned()),
            wait: metrics::histogram!(WAIT, "kind" => kind.to_owned()),
            in_flight: metrics::gauge!(IN_FLIGHT, "kind" => kind.to_owned()),
            outcomes: [Label::Ok, Label::Retry, Label::Failed, Label::Poison].map(outcome),
        }
    }

    pub(crate) fn ended(&self, label: Label) {
        let [ok, retry, failed, poison] = &self.outcomes;
        match label {
            Label::Ok => ok,
            Label::Retry => retry,
            Label::Failed => failed,
            Label::Poison => poison,
        }
        .increment(1);
    }
}
