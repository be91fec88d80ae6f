//! git, and the remotes of the repositories.

use std::time::Duration;

use super::Check;
use crate::config::Settings;
use crate::mirroring::{Places, Target};
use crate::view::cut;

/// A remote that needs longer is as good as unreachable.
const PATIENCE: Duration = Duration::from_secs(10);
/// Remotes that are asked at most; the rest are as a rule on the same servers.
const REMOTES_MAX: usize = 20;
/// git says a lot; the beginning tells.
const FOUND_CHARS_MAX: usize = 320;

/// git is there and new enough.
pub(super) async fn git(settings: &Settings) -> Check {
    match settings.git.git().version().await {
        Ok(version) => Check::ok("git", version.to_string()),
        Err(error) => {
            Check::fail("git", error.to_string(), "install a newer git, or name it with git.program")
        }
    }
}

/// Every remote answers.
pub(super) async fn checks(settings: &Settings) -> Vec<Check> {
    let targets = match Places::of(settings).mirrored().await {
        Ok(targets) => targets,
        Err(failure) => {
            return vec![Check::fail(
                "mirror",
                failure.message,
                "is git.root right, and may this user read it?",
            )];
        }
    };
    if targets.is_empty() {
        let remote = &settings.mirror.config.remote;
        return vec![Check::ok("mirror", format!("no repository has the remote {remote}"))];
    }
    let mut checks = Vec::new();
    for target in targets.iter().take(REMOTES_MAX) {
        checks.push(remote(target).await);
    }
    if targets.len() > REMOTES_MAX {
        checks.push(Check::ok("mirror", format!("{} more were not asked", targets.len() - REMOTES_MAX)));
    }
    checks
}

async fn remote(target: &Target) -> Check {
    let url = target.url.as_deref().unwrap_or_default();
    let there = target.config.routes.there();
    match target.git.ls_remote(&target.repo, &target.config.remote, &there, PATIENCE).await {
        Ok(refs) => Check::ok("mirror", format!("{} -> {url}: answers, {} refs", target.name, refs.len())),
        Err(error) => Check::fail(
            "mirror",
            cut(&format!("{} -> {url}: {error}", target.name), FOUND_CHARS_MAX),
            "check the URL, the network, mirror.protocols, and mirror.token or mirror.ssh_key",
        ),
    }
}
