//! The settings of the mirror.

use std::path::PathBuf;
use std::time::Duration;

use stargate_base::Secret;
use stargate_git::{Protocols, RefPattern, RemoteName};
use stargate_mirror::dead_letter::RETENTION_MIN;

use super::{MINUTE, any, length, read_list, read_switch, read_text, show_length, within};
use crate::config::layer::{Described, Setting};

/// All of them, as they appear in the documentation.
pub(super) fn described() -> Vec<Described> {
    vec![
        REMOTE.described(),
        PROTOCOLS.described(),
        REFS.described(),
        LEDGERS.described(),
        PUSH_TIMEOUT.described(),
        COALESCE.described(),
        RECONCILE_EVERY.described(),
        RESCAN_EVERY.described(),
        USERNAME.described(),
        TOKEN.described(),
        SSH_KEY.described(),
        KNOWN_HOSTS.described(),
        RETENTION.described(),
    ]
}

const DAY: Duration = Duration::from_secs(86_400);

pub(in crate::config) const REMOTE: Setting<RemoteName> = Setting {
    key: "mirror.remote",
    about: "The remote that a repository is mirrored to, by its name in the repository (`git remote add`). Repositories without it are not mirrored.",
    default: "github-origin",
    flag: "--remote",
    env: &["STARGATE_MIRROR_REMOTE"],
    read: read_remote,
    check: any,
    show: ToString::to_string,
};
pub(in crate::config) const PROTOCOLS: Setting<Protocols> = Setting {
    key: "mirror.protocols",
    about: "Transports that git may use for mirroring: of `https`, `ssh`, `http`, `git`, `file`. A list, or one text with commas.",
    default: "https,ssh",
    flag: "",
    env: &["STARGATE_MIRROR_PROTOCOLS"],
    read: read_protocols,
    check: any,
    show: ToString::to_string,
};
pub(in crate::config) const REFS: Setting<Vec<String>> = Setting {
    key: "mirror.refs",
    about: "Which refs are mirrored: names, or folders as `refs/kv/*`.",
    default: "`refs/kv/*`, `refs/kv-index/*`",
    flag: "",
    env: &["STARGATE_MIRROR_REFS"],
    read: read_list,
    check: |patterns| check_patterns(patterns),
    show: |patterns| patterns.join(", "),
};
pub(in crate::config) const LEDGERS: Setting<Vec<String>> = Setting {
    key: "mirror.ledgers",
    about: "Those of them that move the watermark `refs/kv-mirror/NS` of their namespace, the last part of their name.",
    default: "`refs/kv/*`",
    flag: "",
    env: &[],
    read: read_list,
    check: |patterns| check_patterns(patterns),
    show: |patterns| patterns.join(", "),
};
pub(in crate::config) const PUSH_TIMEOUT: Setting<Duration> = length(
    "mirror.push_timeout",
    "What one push to the remote is given, 1s to 1h; there are two more tries.",
    "30s",
    &["PUSH_TIMEOUT"],
    |d| within(*d, Duration::from_secs(1), MINUTE * 60, show_length),
);
pub(in crate::config) const COALESCE: Setting<bool> = Setting {
    key: "mirror.coalesce",
    about: "Whether waiting entries of one ref whose commits follow each other go as one push of the newest.",
    default: "false",
    flag: "--coalesce",
    env: &["STARGATE_MIRROR_COALESCE"],
    read: read_switch,
    check: any,
    show: ToString::to_string,
};
pub(in crate::config) const RECONCILE_EVERY: Setting<Duration> = length(
    "mirror.reconcile_every",
    "How often refs are compared with the remote's and with the recorded pushes, to find what a hook could not tell, 1s to 24h.",
    "1m",
    &[],
    |d| within(*d, Duration::from_secs(1), DAY, show_length),
);
pub(in crate::config) const RESCAN_EVERY: Setting<Duration> = length(
    "mirror.rescan_every",
    "How often the leader looks for repositories that are new or have got the remote, 100ms to 1h.",
    "5s",
    &[],
    |d| within(*d, Duration::from_millis(100), MINUTE * 60, show_length),
);
pub(in crate::config) const USERNAME: Setting<String> = Setting {
    key: "mirror.username",
    about: "The user that `mirror.token` belongs to.",
    default: "x-access-token",
    flag: "",
    env: &["STARGATE_MIRROR_USERNAME"],
    read: read_text,
    check: any,
    show: Clone::clone,
};
pub(in crate::config) const TOKEN: Setting<Secret> = Setting {
    key: "mirror.token",
    about: "A token for remotes over HTTPS; git is told it only for the host of the remote. A secret.",
    default: "none",
    flag: "",
    env: &["STARGATE_MIRROR_TOKEN"],
    read: |text| Ok(Secret::new(text)),
    check: any,
    show: ToString::to_string,
};
pub(in crate::config) const SSH_KEY: Setting<PathBuf> = file(
    "mirror.ssh_key",
    "The file of a private key for remotes over ssh: an absolute path.",
    "what ssh finds",
    &["STARGATE_MIRROR_SSH_KEY"],
);
pub(in crate::config) const KNOWN_HOSTS: Setting<PathBuf> = file(
    "mirror.known_hosts",
    "The only file of known hosts that counts then: an absolute path.",
    "what ssh finds",
    &["STARGATE_MIRROR_KNOWN_HOSTS"],
);
pub(in crate::config) const RETENTION: Setting<Duration> = length(
    "mirror.dead_letter_retention",
    "How long dead letters that were requeued are kept before the leader removes them, 30d to 3650d; open ones \
     stay until `dead-letter purge`.",
    "30d",
    &[],
    |d| within(*d, RETENTION_MIN, DAY * 3650, show_length),
);

const fn file(
    key: &'static str,
    about: &'static str,
    default: &'static str,
    env: &'static [&'static str],
) -> Setting<PathBuf> {
    let read = |text: &str| Ok(PathBuf::from(text));
    Setting { key, about, default, flag: "", env, read, check: any, show: |path| path.display().to_string() }
}

pub(in crate::config) fn read_remote(text: &str) -> Result<RemoteName, String> {
    RemoteName::parse(text).map_err(|error| error.to_string())
}

pub(in crate::config) fn read_protocols(text: &str) -> Result<Protocols, String> {
    Protocols::parse(text).map_err(|error| match error {
        stargate_git::Error::Invalid { problem, .. } => problem,
        other => other.to_string(),
    })
}

fn check_patterns(patterns: &[String]) -> Result<(), String> {
    match patterns.iter().find_map(|pattern| RefPattern::parse(pattern).err()) {
        Some(error) => Err(format!("has a wrong one: {error}")),
        None => Ok(()),
    }
}
