//! The names of the metrics of leadership.

use crate::elector::Reason;
use crate::epoch::Epoch;

/// 1 on the leader, 0 elsewhere.
pub const ROLE: &str = "leader_role";
/// The epoch of this node's last term.
pub const EPOCH: &str = "leader_epoch";
/// What is left of the lease of this node's term.
pub const LEASE: &str = "leader_lease_seconds";
/// Terms begun (`acquired`) and ended, by `reason`.
pub const TRANSITIONS: &str = "leader_transitions_total";
/// Renewals that failed.
pub const RENEWAL_FAILURES: &str = "leader_renewal_failures_total";

/// The reason under which the beginning of a term is counted.
const ACQUIRED: &str = "acquired";

/// Metrics that go up and down, each with one line about it, for the exporter and the catalogue.
pub const GAUGES: &[(&str, &str)] = &[
    (ROLE, "1 on the leader, 0 elsewhere"),
    (EPOCH, "Epoch of the last term of this node"),
    (LEASE, "What is left of the lease of the leader lock, on the leader; 0 elsewhere"),
];

/// Metrics that only rise.
pub const COUNTERS: &[(&str, &str)] = &[
    (TRANSITIONS, "Terms begun (acquired) and ended by this node, by reason"),
    (RENEWAL_FAILURES, "Renewals of the leader lock that failed"),
];

pub(crate) fn standby() {
    metrics::gauge!(ROLE).set(0.0);
}

pub(crate) fn began(epoch: Epoch) {
    metrics::gauge!(ROLE).set(1.0);
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 terms")]
    metrics::gauge!(EPOCH).set(epoch.get() as f64);
    metrics::counter!(TRANSITIONS, "reason" => ACQUIRED).increment(1);
}

pub(crate) fn ended(reason: Reason) {
    standby();
    metrics::counter!(TRANSITIONS, "reason" => reason.as_str()).increment(1);
}

pub(crate) fn renewal_failed() {
    metrics::counter!(RENEWAL_FAILURES).increment(1);
}
