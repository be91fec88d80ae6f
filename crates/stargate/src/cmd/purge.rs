//! `stargate purge`: removes finished jobs and audited actions beyond their retention.

use std::time::Duration;

use clap::Args;
use stargate_queue::store::{PurgeReport, PurgeRequest};

use crate::auditing::Desk;
use crate::config::interval;
use crate::failure::Result;
use crate::output;
use crate::run::App;

/// `purge`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stargate purge --done-older-than 7d --failed-older-than 30d")]
pub(crate) struct Purge {
    /// Remove done and cancelled jobs that ended so long ago [default: 14d]
    #[arg(long, value_name = "TIME", value_parser = interval::parse)]
    done_older_than: Option<Duration>,
    /// Remove failed jobs that ended so long ago [default: 30d]
    #[arg(long, value_name = "TIME", value_parser = interval::parse)]
    failed_older_than: Option<Duration>,
    /// Remove audited actions that are so old [default: 400d]
    #[arg(long, value_name = "TIME", value_parser = interval::parse)]
    audit_older_than: Option<Duration>,
}

impl Purge {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let desk = Desk::open(app).await?;
        let default = PurgeRequest::default();
        let request = PurgeRequest {
            done_age: self.done_older_than.unwrap_or(default.done_age),
            failed_age: self.failed_older_than.unwrap_or(default.failed_age),
            actions_age: self.audit_older_than.unwrap_or(default.actions_age),
            ..default
        };
        let detail = serde_json::json!({
            "done_age_sec": request.done_age.as_secs(),
            "failed_age_sec": request.failed_age.as_secs(),
            "actions_age_sec": request.actions_age.as_secs(),
        });
        let work = whole(request, async || desk.jobs.purge(request).await);
        let total = desk.act("jobs.purge", "finished jobs", detail, work).await?;
        match app.out.json {
            true => app.out.json(&serde_json::json!({
                "done": total.done, "failed": total.failed, "actions": total.actions,
            })),
            false => app.out.line(format!(
                "removed {} done or cancelled and {} failed jobs, and {} audited actions",
                output::grouped(total.done),
                output::grouped(total.failed),
                output::grouped(total.actions)
            )),
        }
        Ok(())
    }
}

/// Purges batch by batch, until one was not full. Not until one is empty: meanwhile further jobs become old enough, and where many
/// jobs end that would go on for ever.
async fn whole(
    request: PurgeRequest,
    batch: impl AsyncFn() -> stargate_queue::Result<PurgeReport>,
) -> stargate_queue::Result<PurgeReport> {
    let mut total = PurgeReport::default();
    loop {
        let report = batch().await?;
        total.done += report.done;
        total.failed += report.failed;
        total.actions += report.actions;
        if report.is_short(request) {
            return Ok(total);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_purge_ends_although_jobs_become_old_enough_all_the_time() {
        let request = PurgeRequest { batch: 10, ..PurgeRequest::default() };
        let left = Cell::new(25_u64);
        let batch = async || {
            let done = left.get().min(10);
            left.set(left.get() - done + 1);
            assert!(left.get() < 100, "it goes on and on");
            Ok(PurgeReport { done, ..PurgeReport::default() })
        };
        assert_eq!(whole(request, batch).await.unwrap().done, 27);
        assert_eq!(left.get(), 1, "what came meanwhile is left to the next one");
    }
}
