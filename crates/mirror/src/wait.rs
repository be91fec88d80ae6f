//! Reading one's writes: waits until the remote has a commit of a namespace.

use std::time::Duration;

use stargate_git::{Git, Oid, RefPattern, RepoDir};
use tokio::time::Instant;

use crate::config::Config;
use crate::error::Result;

/// From one look to the next, unless told otherwise.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How soon the second look comes; each further one doubles that, up to the interval.
const LOOK_FIRST: Duration = Duration::from_millis(100);

/// How waiting ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// The remote has it.
    Visible {
        /// What the watermark is.
        watermark: Oid,
    },
    /// It did not in time.
    TimedOut {
        /// What the watermark was last, if it was.
        watermark: Option<Oid>,
        /// What went wrong when it was asked last, if something did.
        error: Option<String>,
    },
}

/// Waits until the watermark of a namespace is `oid` or descends from it. A remote that is away is asked again.
pub async fn wait(
    git: &Git,
    repo: &RepoDir,
    config: &Config,
    ns: &str,
    oid: &Oid,
    timeout: Duration,
    every: Duration,
) -> Result<Waited> {
    let name = config.routes.watermark(ns)?;
    let pattern = [RefPattern::parse(name.as_str())?];
    let deadline = Instant::now() + timeout;
    let (mut last, mut looked_at, mut pause) = (None, None, LOOK_FIRST.min(every));
    loop {
        let mut error = None;
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        match git.ls_remote(repo, &config.remote, &pattern, config.push_timeout.min(left)).await {
            Ok(refs) => {
                let now = refs.get(&name).cloned();
                // Histories are compared only when it has moved.
                let compared = match &now {
                    Some(watermark) if now != looked_at => {
                        contains(git, repo, config, oid, watermark, &name).await
                    }
                    _ => Ok(false),
                };
                match (compared, &now) {
                    (Ok(true), Some(watermark)) => {
                        return Ok(Waited::Visible { watermark: watermark.clone() });
                    }
                    (Ok(_), _) => looked_at.clone_from(&now),
                    // What it descends from could not be found out: once more with the next look.
                    (Err(trouble), _) => error = Some(trouble.to_string()),
                }
                last = now;
            }
            Err(trouble) => error = Some(trouble.to_string()),
        }
        if Instant::now() >= deadline {
            return Ok(Waited::TimedOut { watermark: last, error });
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
        pause = (pause * 2).min(every);
    }
}

/// Whether a watermark is a commit or descends from it. What is not here is fetched, beside the repository.
async fn contains(
    git: &Git,
    repo: &RepoDir,
    config: &Config,
    oid: &Oid,
    watermark: &Oid,
    name: &stargate_git::RefName,
) -> Result<bool> {
    if let Ok(answer) = git.is_ancestor(repo, oid, watermark).await {
        return Ok(answer);
    }
    let aside = git.fetch_aside(repo, &config.remote, name, config.push_timeout).await?;
    // A commit that neither side has is in no history.
    Ok(aside.git().is_ancestor(repo, oid, watermark).await.unwrap_or(false))
}
