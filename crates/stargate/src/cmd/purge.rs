//! `stargate purge`: removes finished jobs beyond their retention.

use std::time::Duration;

use clap::Args;
use stargate_queue::store::{PurgeReport, PurgeRequest};

use crate::config::interval;
use crate::failure::Result;
use crate::output;
use crate::run::App;

/// Small enough that no transaction holds others up.
const BATCH: u32 = 5000;
const DAY: Duration = Duration::from_secs(86_400);

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
}

impl Purge {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let store = app.jobs().await?;
        let request = PurgeRequest {
            done_age: self.done_older_than.unwrap_or(DAY * 14),
            failed_age: self.failed_older_than.unwrap_or(DAY * 30),
            batch: BATCH,
        };
        let mut total = PurgeReport::default();
        loop {
            let report = store.purge(request).await?;
            total.done += report.done;
            total.failed += report.failed;
            if report.done + report.failed == 0 {
                break;
            }
        }
        match app.out.json {
            true => app.out.json(&serde_json::json!({ "done": total.done, "failed": total.failed })),
            false => app.out.line(format!(
                "removed {} done or cancelled and {} failed jobs",
                output::grouped(total.done),
                output::grouped(total.failed)
            )),
        }
        Ok(())
    }
}
