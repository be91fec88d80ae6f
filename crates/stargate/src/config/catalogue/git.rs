//! The settings of the git gateway.

use std::path::PathBuf;
use std::time::Duration;

use stargate_access::RepoPattern;
use stargate_git::RefPattern;
use stargate_repo::push::REFS_MAX;

use super::{any, length, number, read_list, show_length, within};
use crate::config::layer::{Described, Setting};
use crate::config::size;

/// All of them, as they appear in the documentation.
pub(super) fn described() -> Vec<Described> {
    vec![
        ROOT.described(),
        PROGRAM.described(),
        FAST_FORWARD_ONLY.described(),
        TAKE_WATERMARKS.described(),
        MAX_REFS.described(),
        MAX_PUSH.described(),
        MAX_FETCH_REQUEST.described(),
        MAX_FETCHES.described(),
        MAX_PUSHES.described(),
        TIMEOUT.described(),
    ]
}

pub(in crate::config) const ROOT: Setting<PathBuf> = Setting {
    key: "git.root",
    about: "Where the repositories are that `/git` serves, `stargate repo` makes and the mirror mirrors.",
    default: "`HOME/repos`",
    flag: "",
    env: &["STARGATE_GIT_ROOT"],
    read: |text| Ok(PathBuf::from(text)),
    check: any,
    show: |path| path.display().to_string(),
};
pub(in crate::config) const PROGRAM: Setting<PathBuf> = Setting {
    key: "git.program",
    about: "The git to use, 2.36 or newer: a name that is looked up in PATH, or a path.",
    default: "git",
    flag: "",
    env: &[],
    read: |text| Ok(PathBuf::from(text)),
    check: any,
    show: |path| path.display().to_string(),
};
pub(in crate::config) const FAST_FORWARD_ONLY: Setting<Vec<String>> = Setting {
    key: "git.fast_forward_only",
    about: "Refs that pushes may neither rewind nor delete, as `refs/heads/main` or `refs/heads/release/*`. Those that are mirrored (`mirror.refs`) always belong to them.",
    default: "none",
    flag: "",
    env: &[],
    read: read_list,
    check: |patterns| {
        let check = |pattern: &String| RefPattern::parse(pattern).map(drop);
        patterns.iter().try_for_each(check).map_err(|error| error.to_string())
    },
    show: |patterns| if patterns.is_empty() { "none".to_owned() } else { patterns.join(", ") },
};
pub(in crate::config) const TAKE_WATERMARKS: Setting<Vec<String>> = Setting {
    key: "git.take_watermarks",
    about: "Repositories that another Stargate mirrors to, by name or as `backup/*`: they take its watermarks, `refs/kv-mirror/*`, which nobody may push elsewhere.",
    default: "none",
    flag: "",
    env: &[],
    read: read_list,
    check: |patterns| {
        let check = |pattern: &String| pattern.parse::<RepoPattern>().map(drop);
        patterns.iter().try_for_each(check).map_err(|error| error.to_string())
    },
    show: |patterns| if patterns.is_empty() { "none".to_owned() } else { patterns.join(", ") },
};
pub(in crate::config) const MAX_REFS: Setting<u64> =
    number("git.max_refs", "Refs that one push may move, 1 to 10000.", "1000", "", &[], |n| {
        within(*n, 1, REFS_MAX as u64, u64::to_string)
    });
pub(in crate::config) const MAX_PUSH: Setting<u64> = Setting {
    key: "git.max_push",
    about: "Bytes of one push, unpacked, 1KiB to 1TiB. A larger one is refused.",
    default: "4GiB",
    flag: "",
    env: &[],
    read: size::parse,
    check: |n| within(*n, 1 << 10, 1 << 40, |n| size::show(*n)),
    show: |n| size::show(*n),
};
pub(in crate::config) const MAX_FETCH_REQUEST: Setting<u64> = Setting {
    key: "git.max_fetch_request",
    about: "Bytes of what one fetch asks for, unpacked, 1KiB to 1GiB: the commits that a client wants and has.",
    default: "64MiB",
    flag: "",
    env: &[],
    read: size::parse,
    check: |n| within(*n, 1 << 10, 1 << 30, |n| size::show(*n)),
    show: |n| size::show(*n),
};
pub(in crate::config) const MAX_FETCHES: Setting<u64> = number(
    "git.max_fetches",
    "Fetches that run at once, 1 to 10000, over HTTP and as many over SSH; more wait for 10 s, then they are told to come back.",
    "64",
    "",
    &[],
    |n| within(*n, 1, 10_000, u64::to_string),
);
pub(in crate::config) const MAX_PUSHES: Setting<u64> =
    number("git.max_pushes", "Pushes that run at once, 1 to 10000, in the same way.", "16", "", &[], |n| {
        within(*n, 1, 10_000, u64::to_string)
    });
pub(in crate::config) const TIMEOUT: Setting<Duration> =
    length("git.timeout", "How long one fetch or push may take, 1s to 24h.", "1h", &[], |d| {
        within(*d, Duration::from_secs(1), Duration::from_secs(86_400), show_length)
    });
