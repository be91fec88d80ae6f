//! The settings of leadership.

use std::path::PathBuf;
use std::time::Duration;

use stargate_base::Secret;
use stargate_leader::config::TTL_RANGE;
use stargate_leader::redis::Replicas;

use super::{any, length, read_switch, read_text, show_length, within};
use crate::config::interval;
use crate::config::layer::{Described, Setting};
use crate::config::leader::BackendName;

/// All of them, as they appear in the documentation.
pub(super) fn described() -> Vec<Described> {
    vec![
        BACKEND.described(),
        CAMPAIGN.described(),
        INSTANCE.described(),
        ADDRESS.described(),
        FORWARD_WRITES.described(),
        REDIS_URL.described(),
        KEY.described(),
        AUTHORITY.described(),
        REPLICAS.described(),
        TTL.described(),
        RENEW_EVERY.described(),
        RENEW_RETRIES.described(),
        RENEW_UNTIL_DEADLINE.described(),
        RETRY_EVERY.described(),
        RETRY_MAX.described(),
        MARGIN.described(),
        CALL_TIMEOUT.described(),
        STARTUP_GUARD.described(),
    ]
}

/// The longest wait of a standby.
const RETRY_RANGE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(3600));
/// More replicas than anybody has.
const REPLICAS_MAX: usize = 100;

pub(in crate::config) const BACKEND: Setting<BackendName> = Setting {
    key: "leader.backend",
    about: "Where the lock is that decides who leads: `file` (nodes on one machine), `redis`, or `none` (the only node).",
    default: "file",
    flag: "",
    env: &["STARGATE_LEADER_BACKEND"],
    read: BackendName::read,
    check: any,
    show: |backend| backend.as_str().to_owned(),
};
pub(in crate::config) const CAMPAIGN: Setting<bool> = switch(
    "leader.campaign",
    "Whether this node may become leader. For `stargate worker`; `up` and `serve` take write requests and always take part.",
    "true, for `stargate worker` false",
    &["STARGATE_CAMPAIGN"],
);
pub(in crate::config) const INSTANCE: Setting<String> = Setting {
    key: "leader.instance",
    about: "The name of this node: up to 255 letters, digits, dots, dashes and underscores.",
    default: "host name and process id",
    flag: "",
    env: &["STARGATE_INSTANCE"],
    read: read_text,
    check: any,
    show: Clone::clone,
};
pub(in crate::config) const ADDRESS: Setting<String> = Setting {
    key: "leader.address",
    about: "Where others reach the API of this node, `http://HOST:PORT`; clients of a standby are sent there.",
    default: "the address listened on",
    flag: "",
    env: &["STARGATE_ADDRESS"],
    read: read_text,
    check: |text| check_address(text),
    show: Clone::clone,
};
pub(in crate::config) const FORWARD_WRITES: Setting<bool> = switch(
    "leader.forward_writes",
    "Whether a standby passes write requests on to the leader instead of refusing them.",
    "false",
    &[],
);
pub(in crate::config) const REDIS_URL: Setting<Secret> = Setting {
    key: "leader.redis_url",
    about: "The Redis of the lock: `redis://`, `rediss://` (TLS) or `redis+unix://`. A secret.",
    default: "none",
    flag: "",
    env: &["REDIS_URL"],
    read: |text| Ok(Secret::new(text)),
    check: any,
    show: ToString::to_string,
};
pub(in crate::config) const KEY: Setting<String> = Setting {
    key: "leader.key",
    about: "The key of the lock in Redis; one for each group of nodes.",
    default: "stargate:leader",
    flag: "",
    env: &[],
    read: read_text,
    check: |key| match key.is_empty() || key.len() > 512 {
        true => Err(format!("has {} bytes; allowed are 1 to 512", key.len())),
        false => Ok(()),
    },
    show: Clone::clone,
};
pub(in crate::config) const AUTHORITY: Setting<PathBuf> = Setting {
    key: "leader.authority",
    about: "A PEM file with the authority that signed the certificate of Redis.",
    default: "those of the system",
    flag: "",
    env: &[],
    read: |text| Ok(PathBuf::from(text)),
    check: any,
    show: |path| path.display().to_string(),
};
pub(in crate::config) const REPLICAS: Setting<Replicas> = Setting {
    key: "leader.replicas",
    about: "On how many replicas of Redis the lock must be before it counts: a number, 0 to 100, or `connected` for all that are.",
    default: "connected",
    flag: "",
    env: &[],
    read: read_replicas,
    check: |replicas| match replicas {
        Replicas::Connected => Ok(()),
        Replicas::Exactly(count) => within(*count, 0, REPLICAS_MAX, usize::to_string),
    },
    show: |replicas| match replicas {
        Replicas::Connected => "connected".to_owned(),
        Replicas::Exactly(count) => count.to_string(),
    },
};
pub(in crate::config) const TTL: Setting<Duration> = length(
    "leader.ttl",
    "How long the lock lives without renewal, 300ms to 1h: a dead leader is replaced after this time.",
    "30s",
    &[],
    |d| within(*d, TTL_RANGE.0, TTL_RANGE.1, show_length),
);
pub(in crate::config) const RENEW_EVERY: Setting<Duration> = length(
    "leader.renew_every",
    "How often the leader renews; less than half of `leader.ttl`.",
    "10s, at most a third of `leader.ttl`",
    &[],
    any,
);
pub(in crate::config) const RENEW_RETRIES: Setting<Vec<Duration>> = Setting {
    key: "leader.renew_retries",
    about: "Pauses before the further tries of a renewal that failed, 1 to 10 of them; then the leader steps down. They must end within `leader.ttl`.",
    default: "500ms, 1s, 2s; less for a `leader.ttl` below 30s",
    flag: "",
    env: &[],
    read: |text| text.split(',').map(interval::parse).collect(),
    check: any,
    show: |pauses| pauses.iter().map(show_length).collect::<Vec<_>>().join(", "),
};
pub(in crate::config) const RENEW_UNTIL_DEADLINE: Setting<bool> = switch(
    "leader.renew_until_deadline",
    "Go on trying to renew until the lease runs out, instead of stepping down after the retries.",
    "false",
    &[],
);
pub(in crate::config) const RETRY_EVERY: Setting<Duration> = length(
    "leader.retry_every",
    "How often a standby tries, 10ms to 1h, and its first pause while the lock cannot be reached.",
    "5s",
    &[],
    |d| within(*d, RETRY_RANGE.0, RETRY_RANGE.1, show_length),
);
pub(in crate::config) const RETRY_MAX: Setting<Duration> = length(
    "leader.retry_max",
    "Where that pause stops doubling, `leader.retry_every` to 1h.",
    "60s",
    &[],
    |d| within(*d, RETRY_RANGE.0, RETRY_RANGE.1, show_length),
);
pub(in crate::config) const MARGIN: Setting<Duration> = length(
    "leader.margin",
    "How much earlier than the lock the trust in it ends, 2 % to 50 % of `leader.ttl`.",
    "2s or 5 %, a fifteenth for a `leader.ttl` below 30s",
    &[],
    any,
);
pub(in crate::config) const CALL_TIMEOUT: Setting<Duration> = length(
    "leader.call_timeout",
    "How long one request to the lock may take, 10ms to 1s and at most a quarter of `leader.ttl`.",
    "1s or a tenth of `leader.ttl`",
    &[],
    any,
);
pub(in crate::config) const STARTUP_GUARD: Setting<bool> = switch(
    "leader.startup_guard",
    "Become leader only when Redis has been up for `leader.ttl`: it may have forgotten a lock that its owner still trusts.",
    "true",
    &[],
);

const fn switch(
    key: &'static str,
    about: &'static str,
    default: &'static str,
    env: &'static [&'static str],
) -> Setting<bool> {
    Setting { key, about, default, flag: "", env, read: read_switch, check: any, show: bool::to_string }
}

/// Reads `connected` or a number.
pub(in crate::config) fn read_replicas(text: &str) -> Result<Replicas, String> {
    match text.trim() {
        "connected" => Ok(Replicas::Connected),
        number => number
            .parse()
            .map(Replicas::Exactly)
            .map_err(|_| format!("is {number:?}; allowed are \"connected\" and 0 to {REPLICAS_MAX}")),
    }
}

/// An address that stands in the lock, in headers and in the log holds no password.
fn check_address(text: &str) -> Result<(), String> {
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = url.filter(url::Url::has_host) else {
        return Err("is not http://HOST:PORT or https://HOST:PORT".to_owned());
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err("holds a user or password; everybody may see this address".to_owned());
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err("has a path; write only http://HOST:PORT".to_owned());
    }
    Ok(())
}
