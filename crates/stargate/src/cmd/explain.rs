//! `stargate explain`: why a job is not running, and what to do about it.

use clap::Args;
use stargate_queue::JobId;
use stargate_queue::explain::{Explanation, explain_under};

use crate::argument;
use crate::assemble;
use crate::failure::Result;
use crate::output::{self, Output};
use crate::run::App;

/// `explain`
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The job's id
    #[arg(value_parser = argument::job_id)]
    job: JobId,
}

impl Explain {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let store = app.jobs().await?;
        let pressure = assemble::pool_config(&app.settings.worker).pressure;
        let explanation = explain_under(store.as_ref(), self.job, &pressure).await?;
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
        print(&explanation, app.out);
        Ok(())
    }
}

/// The answer in one line, then what it does not say yet. The summary names the first reason, so a single one is
/// not told again, and several are told as a list only.
fn print(explanation: &Explanation, out: Output) {
    let summary = &explanation.summary;
    let job = output::bold(format!("job {}", explanation.job));
    let answer = |words: &str| out.line(format!("{job} {}", words.strip_prefix("it ").unwrap_or(words)));
    let command = |indent: &str, command: &Option<String>| {
        if let Some(command) = command {
            out.line(format!("{indent}{}", output::dim(command)));
        }
    };
    match explanation.reasons.as_slice() {
        [only] if summary.ends_with(&only.text) => {
            answer(summary);
            command("  ", &only.command);
        }
        reasons => {
            match reasons.first().and_then(|first| summary.strip_suffix(&first.text)) {
                Some(start) => {
                    answer(&format!("{} for {} reasons:", start.trim_end_matches(": "), reasons.len()))
                }
                None => answer(summary),
            }
            for reason in reasons {
                out.line(format!("  - {}", reason.text));
                command("      ", &reason.command);
            }
        }
    }
}
