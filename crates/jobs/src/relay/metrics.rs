//! The names of the relay's metrics, and handles made once.

use metrics::{Counter, Gauge};
use stargate_queue::metrics::MetricKind;

/// Deliveries of announcements, by `topic` and `result`.
pub const DELIVERED: &str = "outbox_delivered_total";
/// Announcements that wait for their delivery, by `topic`.
pub const WAITING: &str = "outbox_waiting";

/// Every metric with its kind and one line about it.
pub const CATALOGUE: &[(&str, MetricKind, &str)] = &[
    (DELIVERED, MetricKind::Counter, "Deliveries of announcements, by topic and result (delivered, failed)"),
    (
        WAITING,
        MetricKind::Gauge,
        "Announcements that wait for their delivery, by topic; told by the process that delivers them",
    ),
];

/// Handles of one topic.
pub(super) struct Counts {
    pub(super) delivered: Counter,
    pub(super) failed: Counter,
    waiting: Gauge,
}

impl std::fmt::Debug for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counts").finish_non_exhaustive()
    }
}

impl Counts {
    pub(super) fn new(topic: &str) -> Self {
        let result = |result: &'static str| metrics::counter!(DELIVERED, "topic" => topic.to_owned(), "result" => result);
        Self {
            delivered: result("delivered"),
            failed: result("failed"),
            waiting: metrics::gauge!(WAITING, "topic" => topic.to_owned()),
        }
    }

    pub(super) fn waiting(&self, count: u64) {
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a floating-point number")]
        self.waiting.set(count as f64);
    }

    /// Another process tells from now on.
    pub(super) fn gone(&self) {
        self.waiting.set(0.0);
    }
}
