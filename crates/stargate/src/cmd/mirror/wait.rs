//! `stargate mirror wait`: reading one's writes on the other side.

use std::time::Duration;

use clap::Args;
use stargate_git::Oid;
use stargate_mirror::wait::{LOOK_EVERY, Waited, wait};

use super::At;
use crate::config::interval;
use crate::failure::{Exit, Failure, Result};
use crate::output::short;
use crate::run::App;

/// `mirror wait`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  git push && stargate mirror wait --repo tools --oid $(git rev-parse HEAD) --ns main

Exits 0 when the watermark of the namespace on the remote is the commit or descends from it, and 10
when it is not in time.")]
pub(crate) struct Wait {
    #[command(flatten)]
    at: At,
    /// The commit, with all its digits
    #[arg(long, value_name = "OID", value_parser = Oid::parse)]
    oid: Oid,
    /// The namespace: the last part of the name of its ref
    #[arg(long, value_name = "NAME", default_value = "main")]
    ns: String,
    /// How long to wait
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = interval::parse)]
    timeout: Duration,
}

impl Wait {
    pub(super) async fn run(&self, app: &App) -> Result<()> {
        let target = self.at.target(app).await?;
        let (ns, oid) = (&self.ns, &self.oid);
        let waited =
            wait(&target.git, &target.repo, &target.config, ns, oid, self.timeout, LOOK_EVERY).await?;
        match waited {
            Waited::Visible { watermark } => {
                match app.out.json {
                    true => {
                        app.out.json(&serde_json::json!({ "oid": oid, "ns": ns, "watermark": watermark }))
                    }
                    false => app.out.line(format!("the remote has {oid} (watermark {watermark})")),
                }
                Ok(())
            }
            Waited::TimedOut { watermark, error } => {
                let there =
                    watermark.map_or_else(|| "there is none".to_owned(), |oid| format!("it is {oid}"));
                let said = error.map(|error| format!("; {error}")).unwrap_or_default();
                let length = short(self.timeout);
                let message =
                    format!("the watermark of {ns} does not have {oid} after {length}: {there}{said}");
                Err(Failure::new(Exit::TimedOut, "TIMED_OUT", message)
                    .help("'stargate mirror status' tells how far the mirror is behind, and why"))
            }
        }
    }
}
