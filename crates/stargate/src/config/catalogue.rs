//! Every setting with one value: its names, its meaning, its range. `docs/config.md` is generated from here.

pub(super) mod directives;
pub(super) mod git;
pub(super) mod leader;
pub(super) mod mirror;
pub(super) mod otel;
pub(super) mod runtime;
pub(super) mod temporal;
pub(super) mod web;
pub(super) mod webhooks;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use stargate_base::Secret;
use stargate_queue::job::{ATTEMPTS_MAX, check_name};

use super::layer::{Described, Setting};
use super::store_url::StoreUrl;
use super::{LogFormat, interval, store_url};

/// All of them, as they appear in the documentation.
pub(crate) fn described() -> Vec<Described> {
    let mut all = vec![
        HOME.described(),
        STORE.described(),
        LISTEN_DSN.described(),
        CONCURRENCY.described(),
        QUEUES.described(),
        HEARTBEAT.described(),
        LEASE.described(),
        POLL.described(),
        SHUTDOWN.described(),
        BUFFER.described(),
        WATERMARK.described(),
        LOAD.described(),
        PAUSE.described(),
        KEEP_SCRATCH.described(),
        MAX_ATTEMPTS.described(),
        WORKER_LISTEN.described(),
        API_LISTEN.described(),
        MAX_DEPTH.described(),
        web::READ_ONLY.described(),
        web::RATE_LIMIT.described(),
        web::BASE_PATH.described(),
        web::REDACT.described(),
        NAMESPACE.described(),
        LOG_FORMAT.described(),
        LOG_FILTER.described(),
    ];
    all.extend(runtime::described());
    all.extend(leader::described());
    all.extend(git::described());
    all.extend(mirror::described());
    all.extend(webhooks::described());
    all.extend(directives::described());
    all.extend(temporal::described());
    all.extend(otel::described());
    all
}

const MINUTE: Duration = Duration::from_secs(60);

pub(super) const HOME: Setting<PathBuf> = Setting {
    key: "home",
    about: "Directory for everything Stargate keeps.",
    default: "`.stargate`",
    flag: "--home",
    env: &["STARGATE_HOME"],
    read: |text| Ok(PathBuf::from(text)),
    check: any,
    show: |path| path.display().to_string(),
};
pub(super) const STORE: Setting<StoreUrl> = Setting {
    key: "store",
    about: "Where jobs are kept: `sqlite:PATH` or `postgres://…`.",
    default: "`sqlite:HOME/stargate.db`",
    flag: "--store",
    env: &["STARGATE_STORE", "DATABASE_URL"],
    read: store_url::parse,
    check: any,
    show: ToString::to_string,
};
pub(super) const LISTEN_DSN: Setting<Secret> = Setting {
    key: "listen_dsn",
    about: "A direct Postgres connection for LISTEN, when `store` goes through a pooler in transaction mode. A secret.",
    default: "none",
    flag: "",
    env: &["STARGATE_LISTEN_DSN"],
    read: |text| Ok(Secret::new(text)),
    check: any,
    show: ToString::to_string,
};
pub(super) const CONCURRENCY: Setting<u64> = number(
    "worker.concurrency",
    "Jobs run at once, 1 to 4096.",
    "4",
    "--workers",
    &["STARGATE_WORKERS", "MAX_CONCURRENCY"],
    |n| within(*n, 1, 4096, u64::to_string),
);
pub(super) const QUEUES: Setting<Vec<String>> = Setting {
    key: "worker.queues",
    about: "Queues served; an empty list means all.",
    default: "all",
    flag: "--queue",
    env: &["STARGATE_QUEUES"],
    read: read_list,
    check: |queues| check_queues(queues),
    show: |queues| if queues.is_empty() { "all".to_owned() } else { queues.join(", ") },
};
pub(super) const HEARTBEAT: Setting<Duration> = length(
    "worker.heartbeat",
    "Time between two signs of life, 50ms to 10m.",
    "10s",
    &["HEARTBEAT_INTERVAL_SEC"],
    |d| within(*d, Duration::from_millis(50), MINUTE * 10, show_length),
);
pub(super) const LEASE: Setting<Duration> = length(
    "worker.lease",
    "Silence after which a running job counts as abandoned, at least two heartbeats, at most 24h.",
    "three heartbeats",
    &["LEASE_TIMEOUT_SEC"],
    |d| within(*d, Duration::from_millis(100), MINUTE * 1440, show_length),
);
pub(super) const POLL: Setting<Duration> =
    length("worker.poll", "How often to look although nobody called, 10ms to 10m.", "5s", &[], |d| {
        within(*d, Duration::from_millis(10), MINUTE * 10, show_length)
    });
pub(super) const SHUTDOWN: Setting<Duration> = length(
    "worker.shutdown_timeout",
    "How long running jobs get when the process is asked to stop, 0s to 1h.",
    "15s",
    &["SHUTDOWN_TIMEOUT_SEC"],
    |d| within(*d, Duration::ZERO, MINUTE * 60, show_length),
);
pub(super) const BUFFER: Setting<u64> = number(
    "worker.buffer_max",
    "Jobs held ready beyond the running ones, 0 to 100000.",
    "1000",
    "",
    &[],
    |n| within(*n, 0, 100_000, u64::to_string),
);
pub(super) const WATERMARK: Setting<u64> = number(
    "worker.high_watermark",
    "Waiting jobs above which the queue counts as deep.",
    "500",
    "",
    &["HIGH_WATERMARK"],
    |n| within(*n, 1, 1_000_000_000, u64::to_string),
);
pub(super) const LOAD: Setting<f64> = Setting {
    key: "worker.load_threshold",
    about: "1-minute load above which the machine counts as loaded; deep and loaded together pause claiming.",
    default: "number of CPUs",
    flag: "",
    env: &["LOAD_THRESHOLD"],
    read: read_number,
    check: |load| within(*load, 0.01, 100_000.0, f64::to_string),
    show: ToString::to_string,
};
pub(super) const PAUSE: Setting<Duration> = length(
    "worker.pause_interval",
    "How long such a pause lasts, 10ms to 10m.",
    "3s",
    &["PAUSE_INTERVAL_SEC"],
    |d| within(*d, Duration::from_millis(10), MINUTE * 10, show_length),
);
pub(super) const KEEP_SCRATCH: Setting<bool> = Setting {
    key: "worker.keep_scratch",
    about: "Keep the scratch directories of programs and clips that succeeded.",
    default: "false",
    flag: "",
    env: &["KEEP_SCRATCH_ON_SUCCESS"],
    read: read_switch,
    check: any,
    show: ToString::to_string,
};
pub(super) const MAX_ATTEMPTS: Setting<u64> = number(
    "worker.max_attempts",
    "Executions allowed for kinds that do not say, 1 to 1000.",
    "5",
    "",
    &["MAX_ATTEMPTS"],
    |n| within(*n, 1, u64::from(ATTEMPTS_MAX), u64::to_string),
);
pub(super) const WORKER_LISTEN: Setting<SocketAddr> = address(
    "worker.listen",
    "Where `stargate worker` serves health and metrics; elsewhere than on this machine only if there is a token.",
    "127.0.0.1:9090",
);
pub(super) const API_LISTEN: Setting<SocketAddr> = address(
    "api.listen",
    "Where `stargate up` and `stargate serve` listen; elsewhere than on this machine only if there is a token (`stargate token add`).",
    "127.0.0.1:8080",
);
pub(super) const MAX_DEPTH: Setting<u64> = number(
    "api.max_depth",
    "Over so many waiting jobs an enqueue over HTTP is answered with 429.",
    "no limit",
    "",
    &["STARGATE_MAX_DEPTH"],
    |n| within(*n, 1, 1_000_000_000, u64::to_string),
);
pub(super) const NAMESPACE: Setting<String> = Setting {
    key: "metrics.namespace",
    about: "Prefix before `worker_` and `mirror_` in the names of metrics.",
    default: "none",
    flag: "",
    env: &["STARGATE_METRICS_NAMESPACE"],
    read: read_text,
    check: check_namespace,
    show: |name| if name.is_empty() { "none".to_owned() } else { name.clone() },
};
pub(super) const LOG_FORMAT: Setting<LogFormat> = Setting {
    key: "log.format",
    about: "How log lines look: `human` or `json`.",
    default: "human",
    flag: "--log",
    env: &["STARGATE_LOG"],
    read: read_log_format,
    check: any,
    show: |format| if *format == LogFormat::Json { "json".to_owned() } else { "human".to_owned() },
};
pub(super) const LOG_FILTER: Setting<String> = Setting {
    key: "log.filter",
    about: "Which log lines appear, e.g. `info,stargate_queue=debug`.",
    default: "info",
    flag: "",
    env: &["STARGATE_LOG_FILTER", "RUST_LOG"],
    read: read_text,
    check: any,
    show: |filter| if filter.is_empty() { "info".to_owned() } else { filter.clone() },
};

const fn number(
    key: &'static str,
    about: &'static str,
    default: &'static str,
    flag: &'static str,
    env: &'static [&'static str],
    check: fn(&u64) -> Result<(), String>,
) -> Setting<u64> {
    Setting { key, about, default, flag, env, read: read_number, check, show: u64::to_string }
}

const fn length(
    key: &'static str,
    about: &'static str,
    default: &'static str,
    env: &'static [&'static str],
    check: fn(&Duration) -> Result<(), String>,
) -> Setting<Duration> {
    Setting { key, about, default, flag: "", env, read: interval::parse, check, show: show_length }
}

const fn address(key: &'static str, about: &'static str, default: &'static str) -> Setting<SocketAddr> {
    let read = |text: &str| {
        text.trim()
            .parse()
            .map_err(|_| format!("{text:?} is not an address; write 127.0.0.1:8080 or [::1]:8080"))
    };
    Setting {
        key,
        about,
        default,
        flag: "--listen",
        env: &["STARGATE_LISTEN"],
        read,
        check: any,
        show: SocketAddr::to_string,
    }
}

fn read_number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("{text:?} is not a number that fits"))
}

fn read_text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

pub(super) fn read_log_format(text: &str) -> Result<LogFormat, String> {
    <LogFormat as clap::ValueEnum>::from_str(text, true)
        .map_err(|_| format!("{text:?} is none of human, json"))
}

fn read_switch(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(format!("{text:?} is none of 1, 0, true, false")),
    }
}

fn read_list(text: &str) -> Result<Vec<String>, String> {
    Ok(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect())
}

fn any<T>(_: &T) -> Result<(), String> {
    Ok(())
}

fn check_queues(queues: &[String]) -> Result<(), String> {
    queues.iter().try_for_each(|queue| check_name("queue", queue)).map_err(|error| error.to_string())
}

fn check_namespace(name: &String) -> Result<(), String> {
    let fits = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    match fits && name.len() <= 40 && !name.starts_with(|c: char| c.is_ascii_digit()) {
        true => Ok(()),
        false => {
            Err(format!("is {name:?}; allowed are up to 40 of a-z, 0-9 and _, not beginning with a digit"))
        }
    }
}

fn within<T: PartialOrd>(value: T, low: T, high: T, show: fn(&T) -> String) -> Result<(), String> {
    if value >= low && value <= high {
        return Ok(());
    }
    Err(format!("is {}; allowed are {} to {}", show(&value), show(&low), show(&high)))
}

fn show_length(length: &Duration) -> String {
    interval::show(*length)
}
