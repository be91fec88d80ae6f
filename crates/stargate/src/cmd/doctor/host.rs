//! This machine: the home, the disk, git, the programs of the kinds.

use std::path::{Path, PathBuf};

use super::Check;
use crate::config::Settings;
use crate::config::kinds::HandlerPlan;
use crate::config::size::words;
use crate::program;

/// Less free space than this, and the next burst of jobs may not fit.
const FREE_BYTES_WARN: u64 = 1 << 30;
const FREE_BYTES_FAIL: u64 = 64 << 20;

/// The home can be written to.
pub(super) fn home(settings: &Settings) -> Check {
    let home = settings.home.display();
    let probe = || -> std::io::Result<()> {
        std::fs::create_dir_all(&settings.home)?;
        tempfile::tempfile_in(&settings.home).map(drop)
    };
    match probe() {
        Ok(()) => Check::ok("home", format!("{home} is writable")),
        Err(error) => Check::fail(
            "home",
            format!("{home} is not writable: {error}"),
            "choose another place with --home or STARGATE_HOME, or give this user the right to write there",
        ),
    }
}

/// There is room.
pub(super) fn disk(settings: &Settings) -> Check {
    let place = existing(&settings.home);
    let free = match free_bytes(&place) {
        Ok(free) => free,
        Err(error) => {
            return Check::warn("disk", format!("cannot ask {}: {error}", place.display()), "check the disk");
        }
    };
    let found = format!("{} free at {}", words(free), place.display());
    let remedy = "make room, or shorten the retention: stargate purge --done-older-than 3d";
    match free {
        0..FREE_BYTES_FAIL => Check::fail("disk", found, remedy),
        FREE_BYTES_FAIL..FREE_BYTES_WARN => Check::warn("disk", found, remedy),
        _ => Check::ok("disk", found),
    }
}

/// What this user may still write where a path is, or will be.
pub(super) fn free_bytes(path: &Path) -> rustix::io::Result<u64> {
    let stat = rustix::fs::statvfs(existing(path))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The nearest directory above that is there.
fn existing(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/")).to_owned()
}

/// What a program says about its version.
#[expect(clippy::disallowed_methods, reason = "asks a program for its version, once, outside of any job")]
pub(super) async fn version(program: &Path, argument: &str) -> Option<String> {
    let mut command = tokio::process::Command::new(program);
    let output = command.arg(argument).stdin(std::process::Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(std::time::Duration::from_secs(5), output).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The programs of the kinds can be found.
pub(super) fn programs(settings: &Settings) -> Vec<Check> {
    let missing: Vec<String> = settings
        .plans
        .kinds
        .iter()
        .filter_map(|kind| match &kind.handler {
            HandlerPlan::Exec { command, working_dir, .. } => {
                let program = command.first()?;
                (!program::found(Path::new(program), working_dir.as_deref()))
                    .then(|| format!("{program} of kind {}", kind.name))
            }
            HandlerPlan::Http { .. } => None,
        })
        .collect();
    let kinds = settings.plans.kinds.len();
    match missing.as_slice() {
        [] if kinds == 0 => vec![Check::ok("kinds", "none in the configuration, only the built-in ones")],
        [] => vec![Check::ok("kinds", format!("{kinds} in the configuration, all programs found"))],
        _ => {
            let remedy = "install them, or correct exec and working_dir in stargate.toml";
            vec![Check::fail("kinds", format!("not found or not executable: {}", missing.join(", ")), remedy)]
        }
    }
}
