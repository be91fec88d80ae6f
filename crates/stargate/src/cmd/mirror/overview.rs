//! How the mirrors stand, each in a line: for what shows everything at once.

use std::time::Duration;

use serde::Serialize;
use stargate_mirror::Report;
use stargate_mirror::report::Standing;
use stargate_web::api::types::mirror::Mirrors;

use crate::failure::Result;
use crate::mirroring::{Places, Target};
use crate::run::App;

/// How a mirror stands.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct MirrorLine {
    pub(crate) repo: String,
    /// `caught-up`, `catching-up`, `remote-away`, `not-running` or `no-remote`.
    pub(crate) standing: String,
    pub(crate) backlog: u64,
    lag_seconds: f64,
    #[serde(skip)]
    pub(crate) lag: Duration,
    pub(crate) dead_letters: usize,
    pub(crate) error: Option<String>,
}

impl MirrorLine {
    /// Whether the remote is, or whoever pushes to it.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.standing.as_str(), "remote-away" | "not-running")
    }

    fn of(target: Target) -> Result<Self> {
        let report = Report::of(target.repo.path())?;
        let standing = Standing::of(&report, target.url.is_some()).as_str().to_owned();
        Ok(Self {
            repo: target.name,
            standing,
            backlog: report.backlog,
            lag_seconds: report.lag_seconds,
            lag: seconds(report.lag_seconds),
            dead_letters: report.dead_letters,
            error: report.worker.and_then(|worker| worker.error),
        })
    }
}

/// All mirrors: of the node that was named, else of this configuration.
pub(crate) async fn mirrors(app: &App) -> Result<Vec<MirrorLine>> {
    let Some(node) = &app.remote else {
        let targets = Places::of(&app.settings).mirrored().await?;
        return targets.into_iter().map(MirrorLine::of).collect();
    };
    let found: Mirrors = node.read(&["mirror"], &[]).await?;
    let line = |mirror: stargate_web::api::types::mirror::Mirror| MirrorLine {
        repo: mirror.repo,
        standing: mirror.standing,
        backlog: mirror.backlog,
        lag_seconds: mirror.lag_seconds,
        lag: seconds(mirror.lag_seconds),
        dead_letters: mirror.dead_letters,
        error: mirror.error,
    };
    Ok(found.mirrors.into_iter().map(line).collect())
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
