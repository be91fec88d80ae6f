//! The settings of directives.

use std::path::PathBuf;

use super::{any, check_queues, number, read_list, within};
use crate::config::directives::Engine;
use crate::config::layer::{Described, Setting};

/// All of them, as they appear in the documentation.
pub(super) fn described() -> Vec<Described> {
    vec![DIR.described(), QUEUES.described(), TENANT_CONCURRENCY.described(), ENGINE.described()]
}

pub(in crate::config) const DIR: Setting<PathBuf> = Setting {
    key: "directives.dir",
    about: "Where directives lie, each in a file NAME.toml; relative to `stargate.toml`.",
    default: "`directives`",
    flag: "",
    env: &[],
    read: |text| Ok(PathBuf::from(text)),
    check: any,
    show: |path| path.display().to_string(),
};
pub(in crate::config) const QUEUES: Setting<Vec<String>> = Setting {
    key: "directives.queues",
    about: "Queues that a directive may name.",
    default: "meta-py, meta-ts",
    flag: "",
    env: &[],
    read: read_list,
    check: |queues| match queues.is_empty() {
        true => Err("is empty; no directive could run".to_owned()),
        false => check_queues(queues),
    },
    show: |queues| queues.join(", "),
};
pub(in crate::config) const TENANT_CONCURRENCY: Setting<u64> = number(
    "directives.tenant_concurrency",
    "Runs of one tenant at once, over all workers, 1 to 4096.",
    "no limit",
    "",
    &[],
    |n| within(*n, 1, 4096, u64::to_string),
);
pub(in crate::config) const ENGINE: Setting<Engine> = Setting {
    key: "directives.engine",
    about: "What executes directives: `embedded` (jobs on the queue) or `temporal` (workflows on the cluster of `[temporal]`).",
    default: "embedded",
    flag: "--engine",
    env: &["STARGATE_ENGINE"],
    read: Engine::read,
    check: any,
    show: |engine| engine.as_str().to_owned(),
};
