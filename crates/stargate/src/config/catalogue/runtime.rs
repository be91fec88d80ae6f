//! The settings of what jobs leave behind and where they come from: artifacts, clips, scratch, other queues.

use std::path::PathBuf;
use std::time::Duration;

use stargate_base::Secret;
use stargate_queue::job::ATTEMPTS_MAX;

use super::{
    MINUTE, any, check_queues, length, number, read_list, read_switch, read_text, show_length, within,
};
use crate::config::artifacts_url::{self, ArtifactsUrl};
use crate::config::layer::{Described, Setting};
use crate::config::size;

/// All of them, as they appear in the documentation.
pub(super) fn described() -> Vec<Described> {
    vec![
        ARTIFACTS.described(),
        ENDPOINT.described(),
        REGION.described(),
        ACCESS_KEY_ID.described(),
        SECRET_ACCESS_KEY.described(),
        SESSION_TOKEN.described(),
        MACHINE_ROLE.described(),
        FFMPEG.described(),
        FFPROBE.described(),
        INPUT_MAX.described(),
        CLIP_MAX.described(),
        SOURCE_DIRS.described(),
        ALLOW_PRIVATE.described(),
        CLIP_TIMEOUT.described(),
        CLIP_ATTEMPTS.described(),
        CLIP_BACKOFF.described(),
        CLIP_BACKOFF_MAX.described(),
        CLIP_CONCURRENCY.described(),
        SCRATCH_DIR.described(),
        SCRATCH_AGE.described(),
        SCRATCH_SIZE.described(),
        SCRATCH_INTERVAL.described(),
        PGBOSS_DSN.described(),
        PGBOSS_SCHEMA.described(),
        PGBOSS_QUEUES.described(),
        PGBOSS_POLL.described(),
    ]
}

const DAY: Duration = Duration::from_secs(86_400);

pub(in crate::config) const ARTIFACTS: Setting<ArtifactsUrl> = Setting {
    key: "artifacts.url",
    about: "Where the files are kept that jobs make: a folder or `s3://BUCKET/PREFIX`.",
    default: "`HOME/artifacts`",
    flag: "",
    env: &["STARGATE_ARTIFACTS"],
    read: artifacts_url::parse,
    check: any,
    show: ToString::to_string,
};
pub(in crate::config) const ENDPOINT: Setting<String> = Setting {
    key: "artifacts.endpoint",
    about: "The address of an S3 server that is not Amazon's, `https://…` or `http://…`.",
    default: "Amazon's",
    flag: "",
    env: &["STARGATE_S3_ENDPOINT", "AWS_ENDPOINT_URL"],
    read: read_text,
    check: |text| check_endpoint(text),
    show: Clone::clone,
};
pub(in crate::config) const REGION: Setting<String> = Setting {
    key: "artifacts.region",
    about: "The region of the bucket.",
    default: "us-east-1",
    flag: "",
    env: &["AWS_REGION"],
    read: read_text,
    check: |text| check_region(text),
    show: Clone::clone,
};
pub(in crate::config) const ACCESS_KEY_ID: Setting<Secret> = secret(
    "artifacts.access_key_id",
    "Who asks the S3 server; goes with the next one. A secret.",
    &["AWS_ACCESS_KEY_ID"],
);
pub(in crate::config) const SECRET_ACCESS_KEY: Setting<Secret> = secret(
    "artifacts.secret_access_key",
    "What signs the requests to the S3 server. A secret.",
    &["AWS_SECRET_ACCESS_KEY"],
);
pub(in crate::config) const SESSION_TOKEN: Setting<Secret> = secret(
    "artifacts.session_token",
    "Goes with a key that was lent for a while. A secret.",
    &["AWS_SESSION_TOKEN"],
);
pub(in crate::config) const MACHINE_ROLE: Setting<bool> = Setting {
    key: "artifacts.machine_role",
    about: "Without a key: ask the cloud for the role of this machine or container.",
    default: "false",
    flag: "",
    env: &["STARGATE_S3_MACHINE_ROLE"],
    read: read_switch,
    check: any,
    show: ToString::to_string,
};
pub(in crate::config) const FFMPEG: Setting<PathBuf> = path(
    "clip.ffmpeg",
    "The program that cuts: a path, or a name in `PATH`.",
    "ffmpeg",
    &["STARGATE_FFMPEG"],
);
pub(in crate::config) const FFPROBE: Setting<PathBuf> = path(
    "clip.ffprobe",
    "The program that looks into sources and results: a path, or a name in `PATH`.",
    "ffprobe",
    &["STARGATE_FFPROBE"],
);
pub(in crate::config) const INPUT_MAX: Setting<u64> =
    bytes("clip.max_input", "The largest source, 1KiB to 16TiB.", "4GiB", |n| {
        within(*n, 1 << 10, 16 << 40, show_size)
    });
pub(in crate::config) const CLIP_MAX: Setting<Duration> =
    length("clip.max_length", "The longest clip, 100ms to 24h.", "2m", &[], |d| {
        within(*d, Duration::from_millis(100), DAY, show_length)
    });
pub(in crate::config) const SOURCE_DIRS: Setting<Vec<PathBuf>> = Setting {
    key: "clip.source_dirs",
    about: "Folders that local sources must lie in; an empty list allows every file this process may read.",
    default: "any",
    flag: "",
    env: &[],
    read: |text| Ok(read_list(text)?.into_iter().map(PathBuf::from).collect()),
    check: |dirs| match dirs.iter().any(|dir| dir.as_os_str().is_empty()) {
        true => Err("names a folder without a name; write \".\" for the working directory".to_owned()),
        false => Ok(()),
    },
    show: |dirs| match dirs.is_empty() {
        true => "any".to_owned(),
        false => dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", "),
    },
};
pub(in crate::config) const ALLOW_PRIVATE: Setting<bool> = Setting {
    key: "clip.allow_private",
    about: "Whether URLs of sources may lead to private, loopback and link-local addresses.",
    default: "false",
    flag: "",
    env: &["STARGATE_CLIP_ALLOW_PRIVATE"],
    read: read_switch,
    check: any,
    show: ToString::to_string,
};
pub(in crate::config) const CLIP_TIMEOUT: Setting<Duration> =
    length("clip.timeout", "How long one execution of a clip may take, 1s to 7d.", "10m", &[], |d| {
        within(*d, Duration::from_secs(1), DAY * 7, show_length)
    });
pub(in crate::config) const CLIP_ATTEMPTS: Setting<u64> = number(
    "clip.max_attempts",
    "Executions allowed for a clip, 1 to 1000.",
    "`worker.max_attempts` where that is given, else 3",
    "",
    &[],
    |n| within(*n, 1, u64::from(ATTEMPTS_MAX), u64::to_string),
);
pub(in crate::config) const CLIP_BACKOFF: Setting<Duration> = length(
    "clip.backoff",
    "The wait before the second attempt at a clip, doubling, ± 20 %; 0s to 7d.",
    "30s",
    &[],
    |d| within(*d, Duration::ZERO, DAY * 7, show_length),
);
pub(in crate::config) const CLIP_BACKOFF_MAX: Setting<Duration> = length(
    "clip.backoff_max",
    "The longest wait between attempts at a clip, 0s to 7d.",
    "1h, or `clip.backoff` where that is more",
    &[],
    |d| within(*d, Duration::ZERO, DAY * 7, show_length),
);
pub(in crate::config) const CLIP_CONCURRENCY: Setting<u64> = number(
    "clip.concurrency",
    "Clips made at once in one process, 1 to 4096.",
    "`worker.concurrency`",
    "",
    &[],
    |n| within(*n, 1, 4096, u64::to_string),
);
pub(in crate::config) const SCRATCH_DIR: Setting<PathBuf> = path(
    "scratch.dir",
    "Where each execution of a program or clip gets a directory of its own.",
    "`HOME/scratch`",
    &[],
);
pub(in crate::config) const SCRATCH_AGE: Setting<Duration> = length(
    "scratch.max_age",
    "How long the directories of failed executions are kept, 1s to 3650d.",
    "7d",
    &[],
    |d| within(*d, Duration::from_secs(1), DAY * 3650, show_length),
);
pub(in crate::config) const SCRATCH_SIZE: Setting<u64> = bytes(
    "scratch.max_size",
    "How much they may hold together before the oldest go, 1KiB to 1024TiB.",
    "10GiB",
    |n| within(*n, 1 << 10, 1 << 50, show_size),
);
pub(in crate::config) const SCRATCH_INTERVAL: Setting<Duration> = length(
    "scratch.gc_interval",
    "How often a worker looks for directories to remove, 100ms to 24h.",
    "10m",
    &[],
    |d| within(*d, Duration::from_millis(100), DAY, show_length),
);
pub(in crate::config) const PGBOSS_DSN: Setting<Secret> = secret(
    "sources.pgboss.dsn",
    "The Postgres database of a pg-boss whose jobs are run here. A secret.",
    &["STARGATE_PGBOSS_DSN"],
);
pub(in crate::config) const PGBOSS_SCHEMA: Setting<String> = Setting {
    key: "sources.pgboss.schema",
    about: "The schema pg-boss was told to use.",
    default: "pgboss",
    flag: "",
    env: &[],
    read: read_text,
    check: |text| check_schema(text),
    show: Clone::clone,
};
pub(in crate::config) const PGBOSS_QUEUES: Setting<Vec<String>> = Setting {
    key: "sources.pgboss.queues",
    about: "The pg-boss queues whose jobs are taken, each as the kind of the same name unless `kinds` says otherwise.",
    default: "none",
    flag: "",
    env: &[],
    read: read_list,
    check: |queues| check_queues(queues),
    show: |queues| queues.join(", "),
};
pub(in crate::config) const PGBOSS_POLL: Setting<Duration> =
    length("sources.pgboss.poll", "How often to ask pg-boss for new jobs, 50ms to 1h.", "2s", &[], |d| {
        within(*d, Duration::from_millis(50), MINUTE * 60, show_length)
    });

const fn secret(key: &'static str, about: &'static str, env: &'static [&'static str]) -> Setting<Secret> {
    Setting {
        key,
        about,
        default: "none",
        flag: "",
        env,
        read: |text| Ok(Secret::new(text)),
        check: any,
        show: ToString::to_string,
    }
}

const fn path(
    key: &'static str,
    about: &'static str,
    default: &'static str,
    env: &'static [&'static str],
) -> Setting<PathBuf> {
    Setting {
        key,
        about,
        default,
        flag: "",
        env,
        read: |text| Ok(PathBuf::from(text)),
        check: |path| match path.as_os_str().is_empty() {
            true => Err("is empty".to_owned()),
            false => Ok(()),
        },
        show: |path| path.display().to_string(),
    }
}

const fn bytes(
    key: &'static str,
    about: &'static str,
    default: &'static str,
    check: fn(&u64) -> Result<(), String>,
) -> Setting<u64> {
    Setting { key, about, default, flag: "", env: &[], read: size::parse, check, show: show_size }
}

fn show_size(bytes: &u64) -> String {
    size::show(*bytes)
}

fn check_endpoint(text: &str) -> Result<(), String> {
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = url.filter(url::Url::has_host) else {
        return Err("is not an http:// or https:// URL".to_owned());
    };
    match url.username().is_empty() && url.password().is_none() {
        true => Ok(()),
        false => {
            Err("holds a user or password; give artifacts.access_key_id and artifacts.secret_access_key"
                .to_owned())
        }
    }
}

fn check_region(text: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match !text.is_empty() && text.len() <= 64 && text.chars().all(fits) {
        true => Ok(()),
        false => Err(format!("is {text:?}; allowed are letters, digits and '-', e.g. eu-central-1")),
    }
}

fn check_schema(text: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match !text.is_empty() && text.len() <= 50 && text.chars().all(fits) {
        true => Ok(()),
        false => Err(format!("is {text:?}; allowed are up to 50 letters, digits and '_'")),
    }
}
