//! What jobs need besides the queue: ffmpeg, a place for artifacts, room for scratch, a pg-boss.

use std::path::Path;
use std::time::Duration;

use stargate_artifact::scratch::Limits;
use stargate_base::{Tasks, chain};

use super::{Check, host};
use crate::assemble;
use crate::config::Settings;
use crate::config::artifacts_url::ArtifactsUrl;
use crate::config::runtime::Pgboss;
use crate::config::size::words;
use crate::view::cut;

/// A server that needs longer is as good as unreachable.
const PATIENCE: Duration = Duration::from_secs(20);

/// Servers answer with whole documents; the beginning tells.
const FOUND_CHARS_MAX: usize = 320;

/// Every check.
pub(super) async fn checks(settings: &Settings) -> Vec<Check> {
    let mut checks = vec![
        program("ffmpeg", &settings.clip.ffmpeg).await,
        program("ffprobe", &settings.clip.ffprobe).await,
        artifacts(settings).await,
        scratch(settings).await,
    ];
    if let Some(pgboss) = &settings.pgboss {
        checks.push(source(pgboss).await);
    }
    checks
}

/// Only clips need it, so its absence is no failure.
async fn program(check: &'static str, path: &Path) -> Check {
    match host::version(path, "-version").await {
        Some(text) => {
            let line = text.lines().next().unwrap_or_default();
            let line = line.split(" Copyright").next().unwrap_or_default();
            Check::ok(check, format!("{} ({})", line.trim(), path.display()))
        }
        None => Check::warn(
            check,
            format!("cannot run {} -version", path.display()),
            format!(
                "install ffmpeg (Debian: apt-get install ffmpeg), or name the program with clip.{check} (STARGATE_{}); only clips need it",
                check.to_uppercase()
            ),
        ),
    }
}

/// Artifacts can be written, read and removed.
async fn artifacts(settings: &Settings) -> Check {
    let url = &settings.artifacts.url;
    let tasks = Tasks::new();
    let remedy = match url {
        ArtifactsUrl::Folder(_) => {
            "choose another place with STARGATE_ARTIFACTS (artifacts.url), or give this user the right to write there"
        }
        ArtifactsUrl::S3 { .. } => {
            "are bucket, artifacts.endpoint, artifacts.region and the two AWS_ keys right, and may they write there?"
        }
    };
    let store = match assemble::artifacts(settings, &tasks) {
        Ok(store) => store,
        Err(failure) => {
            return Check::fail(
                "artifacts",
                failure.message,
                failure.help.unwrap_or_else(|| remedy.to_owned()),
            );
        }
    };
    let checked = tokio::time::timeout(PATIENCE, store.check()).await;
    tasks.join().await;
    match checked {
        Ok(Ok(())) => Check::ok("artifacts", format!("{url} is writable")),
        Ok(Err(error)) => Check::fail("artifacts", cut(&chain(&error), FOUND_CHARS_MAX), remedy),
        Err(_) => {
            Check::fail("artifacts", format!("{url} did not answer in {} s", PATIENCE.as_secs()), remedy)
        }
    }
}

/// What is kept is within its limit, and the limit within the disk.
async fn scratch(settings: &Settings) -> Check {
    // Looks, and removes nothing.
    let limits = Limits { age_max: Duration::MAX, bytes_max: u64::MAX };
    let root = assemble::scratch_with(settings, limits);
    let dir = root.path().display();
    let found = match root.collect().await {
        Ok(found) => found,
        Err(error) => {
            let remedy = "choose another place with scratch.dir, or give this user the right to write there";
            return Check::fail("scratch", chain(&error), remedy);
        }
    };
    let max = settings.scratch.bytes_max;
    let told = format!(
        "{} of {} in {} directories at {dir}, {} in use",
        words(found.kept_bytes),
        words(max),
        found.kept,
        found.in_use
    );
    if found.kept_bytes > max {
        return Check::warn(
            "scratch",
            told,
            "'stargate scratch gc' removes the oldest; a running worker does it by itself",
        );
    }
    match host::free_bytes(root.path()) {
        Ok(free) if free < max - found.kept_bytes => Check::warn(
            "scratch",
            format!("{told}, {} free on the disk", words(free)),
            "the disk is full before the limit is reached: lower scratch.max_size, or make room",
        ),
        _ => Check::ok("scratch", told),
    }
}

/// pg-boss answers, and its schema is one we know.
async fn source(pgboss: &Pgboss) -> Check {
    let remedy = "is sources.pgboss.dsn right, is the server running, and has pg-boss made its schema?";
    let source = match assemble::pgboss(pgboss) {
        Ok(source) => source,
        Err(failure) => {
            return Check::fail(
                "pg-boss",
                failure.message,
                failure.help.unwrap_or_else(|| remedy.to_owned()),
            );
        }
    };
    let report = tokio::time::timeout(PATIENCE, source.check()).await;
    let queues: Vec<&str> = pgboss.queues.iter().map(|(queue, _)| queue.as_str()).collect();
    match report {
        Ok(Ok(report)) if report.queues_missing.is_empty() => Check::ok(
            "pg-boss",
            format!("schema {}, version {}, queues {}", pgboss.schema, report.version, queues.join(", ")),
        ),
        Ok(Ok(report)) => Check::warn(
            "pg-boss",
            format!(
                "schema {}, version {}; no queue {}",
                pgboss.schema,
                report.version,
                report.queues_missing.join(", ")
            ),
            "create it with boss.createQueue(…), or correct sources.pgboss.queues",
        ),
        Ok(Err(error)) => Check::fail("pg-boss", chain(&error), remedy),
        Err(_) => Check::fail("pg-boss", format!("no answer in {} s", PATIENCE.as_secs()), remedy),
    }
}
