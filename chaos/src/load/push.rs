//! A user with a clone, who commits and pushes until the push is taken.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::Shift;
use crate::ledger::{Answer, Line, now_micros};
use crate::site::Site;

/// What one push may take; git itself waits for ever.
const PATIENCE_SECONDS: &str = "20";

pub(super) async fn run(shift: Shift, branch: &'static str) -> Result<()> {
    let clone = shift.site.outside(&format!("clone-{branch}"));
    must(&shift.site, None, &["init", "-q", "-b", branch, &clone.display().to_string()]).await?;
    let mut number = 0;
    let mut taken = true;
    let mut again = false;
    while shift.goes_on() {
        if taken {
            // A commit more; one that was not taken is pushed again, perhaps with others.
            number += 1;
            again = false;
            let text = format!("{branch} {number}");
            must(&shift.site, Some(&clone), &["commit", "-q", "--allow-empty", "-m", &text]).await?;
        }
        let oid = must(&shift.site, Some(&clone), &["rev-parse", "HEAD"]).await?;
        let nodes = shift.site.crew().nodes();
        taken = false;
        for node in nodes {
            let url = format!("http://{}/git/r.git", node.address);
            let refspec = format!("HEAD:refs/heads/{branch}");
            let sent = now_micros()?;
            let output = git(&shift.site, Some(clone.clone()), &["push", "-q", &url, &refspec]).await?;
            // What hooks say comes to the pusher.
            shift.site.overhear(&output)?;
            if output.status.success() {
                let answer = Answer { node: node.instance, sent, answered: now_micros()?, again };
                shift.site.ledger.write(&Line::Push {
                    branch: branch.to_owned(),
                    oid: oid.clone(),
                    answer,
                })?;
                shift.counts.pushes.fetch_add(1, Ordering::Relaxed);
                taken = true;
                break;
            }
            again = true;
            shift.counts.failed_pushes.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    Ok(())
}

async fn must(site: &Arc<Site>, folder: Option<&Path>, arguments: &[&str]) -> Result<String> {
    let output = git(site, folder.map(Path::to_owned), arguments).await?;
    ensure!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The token goes by the environment, as INV-8 wants it of everybody.
async fn git(site: &Arc<Site>, folder: Option<PathBuf>, arguments: &[&str]) -> Result<Output> {
    #[expect(clippy::disallowed_methods, reason = "a user's own git")]
    let mut command = Command::new("timeout");
    command.args([PATIENCE_SECONDS, "git"]).args(arguments).stdin(Stdio::null());
    command.current_dir(folder.as_deref().unwrap_or(site.program.home()));
    command
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    for (name, value) in [("NAME", "A"), ("EMAIL", "a@example.com")] {
        command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
    }
    let header = format!("Authorization: Bearer {}", site.secrets.token);
    command
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "http.extraHeader")
        .env("GIT_CONFIG_VALUE_0", header);
    tokio::task::spawn_blocking(move || command.output()).await?.context("cannot start git")
}
