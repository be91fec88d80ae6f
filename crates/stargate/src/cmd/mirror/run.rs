//! `stargate mirror run`.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use stargate_base::{Tasks, chain};
use stargate_mirror::{Drained, Round, Worker, metrics};

use super::At;
use super::permit::NodePermit;
use crate::failure::{Failure, Result};
use crate::mirroring::supervise;
use crate::output::grouped;
use crate::run::App;
use crate::signals;

/// `mirror run`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate mirror run --repo tools            until Ctrl-C or SIGTERM
  stargate mirror run --repo /srv/x.git --once

'stargate up' and 'stargate serve' do this by themselves for all repositories that have the remote.
Exits 9 if another node leads, 4 if another process mirrors the repository already, and with --once
1 if the remote is away.")]
pub(crate) struct Run {
    #[command(flatten)]
    at: At,
    /// End when nothing is left to do
    #[arg(long)]
    pub(crate) once: bool,
    /// Push only the newest of waiting entries whose commits follow each other
    #[arg(long)]
    coalesce: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Done {
    repo: String,
    /// `idle`: nothing is left; `waiting`: the remote is away; `stopped`.
    end: &'static str,
    /// Entries that still wait, as far as they were read.
    waiting: u64,
    processed: BTreeMap<String, u64>,
    retries: BTreeMap<String, u64>,
    dead_letters: BTreeMap<String, u64>,
}

impl Run {
    pub(super) async fn run(&self, app: &App) -> Result<()> {
        let mut target = self.at.target(app).await?;
        target.config.coalesce |= self.coalesce;
        let recorded = stargate_web::metrics::install(None, &[]);
        let recorded = recorded.map_err(|error| Failure::config(chain(&error)))?;
        let permit = NodePermit::ask(app).await?;
        let (tasks, signals) = (Tasks::new(), Tasks::new());
        let stop = signals::stop_token(&signals)?;
        permit.watch(app, &tasks, tasks.stopping())?;
        let asked = permit.clone();
        let (name, url) = (target.name.clone(), target.url.clone().unwrap_or_default());
        let path = target.repo.path().to_owned();
        let remote = target.config.remote.clone();
        let opening = tokio::task::spawn_blocking(move || {
            Worker::open(target.git, target.repo, target.config, Arc::new(permit))
        });
        let opened = opening.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let mut worker = opened?;
        tracing::info!(repo = name, %remote, url, "mirroring");
        let ended = match self.once {
            true => worker.drain(stop).await,
            false => {
                // Where nobody tells of new lines, they are looked for.
                let _watched = supervise::watch().and_then(|watch| watch.add(&path, worker.handle()).ok());
                worker.run(stop).await.map(|end| Drained { end, left: worker.handle().state().backlog })
            }
        };
        drop(worker);
        let text = recorded.render();
        let done = Done {
            repo: name,
            end: "failed",
            waiting: 0,
            processed: counts(&text, metrics::ENTRIES_PROCESSED),
            retries: counts(&text, metrics::RETRIES),
            dead_letters: counts(&text, metrics::DEAD_LETTERS),
        };
        let outcome = report(app, done, ended, &asked);
        tasks.join().await;
        signals.join().await;
        outcome
    }
}

fn report(app: &App, done: Done, ended: stargate_mirror::Result<Drained>, permit: &NodePermit) -> Result<()> {
    let (end, failure) = match &ended {
        Ok(Drained { end: Round::Waiting(_), .. }) => ("waiting", Some(away())),
        Ok(Drained { end: Round::NotLeader, .. }) => {
            let overtaken = || Failure::from(stargate_mirror::Error::NotLeader);
            ("not-leader", Some(permit.failure().unwrap_or_else(overtaken)))
        }
        Ok(Drained { end: Round::Stopped, .. }) => ("stopped", None),
        Ok(_) => ("idle", None),
        Err(_) => ("failed", None),
    };
    let done = Done { end, waiting: ended.as_ref().map_or(0, |drained| drained.left), ..done };
    // What a program reads is either a result or an error.
    match (app.out.json, &failure, &ended) {
        (true, None, Ok(_)) => app.out.json(&done),
        (true, ..) => {}
        _ => app.out.note(done.sentence()),
    }
    tracing::info!(
        repo = done.repo,
        end = done.end,
        processed = ?done.processed,
        retries = ?done.retries,
        dead_letters = ?done.dead_letters,
        "mirroring ended"
    );
    ended?;
    failure.map_or(Ok(()), Err)
}

impl Done {
    fn sentence(&self) -> String {
        let count =
            |counts: &BTreeMap<String, u64>, key: &str| grouped(counts.get(key).copied().unwrap_or(0));
        let sum = |counts: &BTreeMap<String, u64>| grouped(counts.values().sum());
        format!(
            "{}: {} completed, {} superseded, {} dead-lettered, {} retries, {} waiting",
            self.repo,
            count(&self.processed, "completed"),
            count(&self.processed, "superseded"),
            count(&self.processed, "dead-letter"),
            sum(&self.retries),
            grouped(self.waiting)
        )
    }
}

fn away() -> Failure {
    Failure::failed("MIRROR_REMOTE_AWAY", "the remote is away; what waits is pushed when it answers again")
        .help("'stargate mirror status' tells what it said; run this again, or without --once")
}

/// The values of a counter by its one label, out of what Prometheus would read.
fn counts(text: &str, metric: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (labels, value) = line.strip_prefix(metric)?.strip_prefix('{')?.split_once("} ")?;
        let label = labels.split('"').nth(1)?;
        Some((label.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_their_label() {
        let text = "# TYPE a_total counter\na_total{status=\"completed\"} 3\na_total{status=\"dead-letter\"} 1\nb_total 4\n";
        let expected = BTreeMap::from([("completed".to_owned(), 3), ("dead-letter".to_owned(), 1)]);
        assert_eq!((counts(text, "a_total"), counts(text, "b_total")), (expected, BTreeMap::new()));
    }
}
