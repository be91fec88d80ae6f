//! The settings of webhooks.

use std::time::Duration;

use stargate_jobs::courier::TIMEOUT_MAX;

use super::{any, length, number, read_switch, show_length, within};
use crate::config::layer::{Described, Setting};

/// All of them, as they appear in the documentation.
pub(super) fn described() -> Vec<Described> {
    vec![ALLOW_PRIVATE.described(), TIMEOUT.described(), CONCURRENCY.described()]
}

pub(in crate::config) const ALLOW_PRIVATE: Setting<bool> = Setting {
    key: "webhooks.allow_private",
    about: "Whether webhooks may lead into private networks. Then whoever may enter one can have a worker POST there.",
    default: "false",
    flag: "",
    env: &["STARGATE_WEBHOOKS_ALLOW_PRIVATE"],
    read: read_switch,
    check: any,
    show: ToString::to_string,
};
pub(in crate::config) const TIMEOUT: Setting<Duration> = length(
    "webhooks.timeout",
    "How long a webhook's server may take to answer, 100ms to 50s; then it is tried again.",
    "30s",
    &[],
    |d| within(*d, Duration::from_millis(100), TIMEOUT_MAX, show_length),
);
pub(in crate::config) const CONCURRENCY: Setting<u64> = number(
    "webhooks.concurrency",
    "Deliveries at once in one process, 1 to 4096: servers that keep it waiting leave the rest to other jobs.",
    "half of `worker.concurrency`",
    "",
    &[],
    |n| within(*n, 1, 4096, u64::to_string),
);
