//! `stargate explain`: why a job is not running, and what to do about it.

use clap::Args;
use stargate_queue::JobId;
use stargate_queue::explain::explain;

use crate::assemble::{self, Migrate};
use crate::failure::Result;
use crate::output;
use crate::run::App;

/// `explain`
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The job's id
    job: JobId,
}

impl Explain {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let store = assemble::open(&app.settings, Migrate::No).await?;
        let explanation = explain(store.as_ref(), self.job).await?;
        if app.out.json {
            let reasons = explanation.reasons.iter();
            let reasons =
                reasons.map(|reason| serde_json::json!({ "text": reason.text, "command": reason.command }));
            app.out.json(&serde_json::json!({
                "job": explanation.job,
                "state": explanation.state,
                "summary": explanation.summary,
                "reasons": reasons.collect::<Vec<_>>(),
            }));
            return Ok(());
        }
        app.out.line(format!(
            "{} {}",
            output::bold(format!("job {}:", explanation.job)),
            explanation.summary
        ));
        for reason in &explanation.reasons {
            app.out.line(format!("  - {}", reason.text));
            if let Some(command) = &reason.command {
                app.out.line(format!("      {}", output::dim(command)));
            }
        }
        Ok(())
    }
}
