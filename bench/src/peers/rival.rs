//! The rivals, and the five operations that each of their programs knows. `peers/queue/rust/kit` says what those answer.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::install::Installed;
use crate::git::client::answer;
use crate::latency;

/// A program that neither answers nor ends is given up.
const PATIENCE: Duration = Duration::from_mins(5);
/// So long a worker is there for single jobs, which the producer needs a third of.
pub(super) const STARTS_SEC: u64 = 30;
/// What a worker does once when it starts should not be taken for a slow start of a job.
const WARM_UP: Duration = Duration::from_millis(1500);

/// Where it comes from, and its program.
pub(super) enum Home {
    Npm(&'static str),
    Pip(&'static str),
    Crate(&'static str),
}

/// Another queue.
pub(super) struct Rival {
    pub(super) name: &'static str,
    pub(super) home: Home,
    /// `default`, and others that its program knows.
    pub(super) settings: &'static [&'static str],
    /// Counts the jobs that are not done.
    pub(super) left: &'static str,
}

pub(super) const RIVALS: [Rival; 7] = [
    Rival {
        name: "graphile-worker",
        home: Home::Npm("graphile-worker.mjs"),
        settings: &["best", "default"],
        left: "select count(*) from graphile_worker._private_jobs",
    },
    Rival {
        name: "pg-boss",
        home: Home::Npm("pg-boss.mjs"),
        settings: &["best", "default"],
        left: "select count(*) from pgboss.job where name = 'noop' and state <> 'completed'",
    },
    Rival {
        name: "procrastinate",
        home: Home::Pip("procrastinate_peer.py"),
        settings: &["best", "default"],
        left: "select count(*) from procrastinate_jobs where status <> 'succeeded'",
    },
    Rival {
        name: "graphile_worker",
        home: Home::Crate("peer-graphile-worker"),
        settings: &["own benchmark", "best", "default"],
        left: "select count(*) from graphile_worker._private_jobs",
    },
    Rival {
        name: "apalis-postgres",
        home: Home::Crate("peer-apalis"),
        settings: &["batches of 500", "best", "default"],
        left: "select count(*) from apalis.jobs where status <> 'Done'",
    },
    Rival {
        name: "awa",
        home: Home::Crate("peer-awa"),
        settings: &["best", "default"],
        // Its view of all jobs takes minutes with 50,000 of them.
        left: "select ((select count(*) from awa.ready_entries) - (select count(*) from awa.done_entries)
                - coalesce((select sum(completed_count) from awa.receipt_completion_batches), 0))::bigint",
    },
    Rival {
        name: "underway",
        home: Home::Crate("peer-underway"),
        settings: &["best", "default"],
        left: "select count(*) from underway.task where state <> 'succeeded'",
    },
];

/// A rival with one of its settings, on a database of its own.
pub(super) struct Run<'a> {
    pub(super) rival: &'static Rival,
    pub(super) settings: &'static str,
    pub(super) url: String,
    pub(super) bound_sec: u64,
    pub(super) installed: &'a Installed,
}

/// So many jobs in so much time.
#[derive(Deserialize)]
pub(super) struct Took {
    pub(super) jobs: u64,
    seconds: f64,
}

/// By job, on the machine's monotonic clock, in milliseconds.
#[derive(Deserialize)]
struct Times {
    times: Vec<(u64, f64)>,
}

impl Took {
    pub(super) fn rate(&self) -> f64 {
        self.jobs as f64 / self.seconds
    }
}

impl Run<'_> {
    fn command(&self, operation: &str, jobs: u64) -> Command {
        let mut command = self.installed.command(self.rival);
        command.args([operation, &jobs.to_string()]);
        command.env("DATABASE_URL", &self.url).env("PEER_SETTINGS", self.settings);
        command.env("PEER_LEFT", self.rival.left).env("PEER_BOUND_SEC", self.bound_sec.to_string());
        command
    }

    async fn answer(&self, operation: &str, jobs: u64) -> Result<String> {
        let answer = tokio::time::timeout(PATIENCE, answer(self.command(operation, jobs)));
        let said = answer.await.with_context(|| format!("{operation} took more than {PATIENCE:?}"))?;
        Ok(last_line(&said.with_context(|| format!("{operation} failed"))?))
    }

    pub(super) async fn setup(&self) -> Result<()> {
        self.answer("setup", 0).await.map(drop)
    }

    pub(super) async fn insert(&self, jobs: u64) -> Result<Took> {
        Ok(serde_json::from_str(&self.answer("insert", jobs).await?)?)
    }

    pub(super) async fn drain(&self, jobs: u64) -> Result<Took> {
        Ok(serde_json::from_str(&self.answer("drain", jobs).await?)?)
    }

    /// How long each of some single jobs waited for its start on an idle queue, with the producer in another process.
    pub(super) async fn waits(&self) -> Result<Vec<f64>> {
        let jobs = latency::JOBS as u64;
        let mut worker = self.command("work", jobs);
        worker.env("PEER_BOUND_SEC", STARTS_SEC.to_string());
        let mut worker = worker.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut lines = BufReader::new(worker.stdout.take().context("no output")?).lines();
        while lines.next_line().await?.context("the worker ended")? != "READY" {}
        tokio::time::sleep(WARM_UP).await;
        let returned: Times = serde_json::from_str(&self.answer("produce", jobs).await?)?;
        let mut said = String::new();
        while let Some(line) = lines.next_line().await? {
            said = line;
        }
        worker.wait().await?;
        let starts: Times = serde_json::from_str(&said)?;
        Ok(latency::waits(&returned.times, &starts.times))
    }
}

/// Some say more than the answer.
fn last_line(said: &str) -> String {
    said.lines().last().unwrap_or_default().to_owned()
}
