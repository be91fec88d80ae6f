//! The names of the metrics of directives.

use stargate_base::ErrorClass;
use stargate_queue::metrics::MetricKind;

use crate::item::Counts;
use crate::run::Outcome;

/// Runs that ended, by `directive` and `outcome`.
pub const RUNS: &str = "worker_runs_total";
/// Items, by `directive` and `result`.
pub const ITEMS: &str = "worker_batch_processed_total";
/// Age of a directive's cursor, or of its last success if that is younger, by `directive`.
pub const CURSOR_LAG: &str = "worker_cursor_lag_seconds";
/// Writes of values that found another version.
pub const KV_CONFLICTS: &str = "kv_conflicts_total";

/// Every metric with its kind and one line about it.
pub const CATALOGUE: &[(&str, MetricKind, &str)] = &[
    (RUNS, MetricKind::Counter, "Runs of directives that ended, by outcome"),
    (ITEMS, MetricKind::Counter, "Items of directives, by what became of them"),
    (CURSOR_LAG, MetricKind::Gauge, "Seconds since a directive's cursor moved or its last run succeeded"),
    (KV_CONFLICTS, MetricKind::Counter, "Writes of values that found another version"),
];

/// Counts what a batch did.
pub(crate) fn batch(directive: &str, counts: Counts) {
    let results = [
        ("created", counts.created),
        ("updated", counts.updated),
        ("unchanged", counts.unchanged),
        ("failed", counts.failed),
    ];
    for (result, count) in results {
        metrics::counter!(ITEMS, "directive" => directive.to_owned(), "result" => result).increment(count);
    }
}

/// Counts a run that ended.
pub(crate) fn run(directive: &str, outcome: Outcome) {
    metrics::counter!(RUNS, "directive" => directive.to_owned(), "outcome" => outcome.as_str()).increment(1);
}

/// Counts a retry that the queue does not see.
pub fn retry(code: &str, class: ErrorClass) {
    let (code, class) = (code.to_owned(), class.as_str());
    metrics::counter!(stargate_queue::metrics::RETRIES, "code" => code, "error_class" => class).increment(1);
}

/// Counts a conflict.
pub fn conflict() {
    metrics::counter!(KV_CONFLICTS).increment(1);
}
