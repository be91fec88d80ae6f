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
        let work = async {
            let mut total = PurgeReport::default();
            loop {
                let report = desk.jobs.purge(request).await?;
                total.done += report.done;
                total.failed += report.failed;
                total.actions += report.actions;
                if report == PurgeReport::default() {
                    return Ok::<_, stargate_queue::Error>(total);
                }
            }
        };
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
