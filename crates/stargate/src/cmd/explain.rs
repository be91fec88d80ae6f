//! `stargate explain`: why a job is not running, and what to do about it.

use clap::Args;
use stargate_queue::JobId;
use stargate_queue::explain::{Explanation, Reason, explain_under};
use stargate_web::api::types;

use super::help;
use crate::failure::{Exit, Failure, Result};
use crate::output::{self, Output};
use crate::run::App;
use crate::{assemble, error_pages};

/// `explain`
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// A job's id, or an error code
    #[arg(value_name = "JOB|CODE")]
    what: String,
}

impl Explain {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let Ok(job) = self.what.parse::<JobId>() else { return self.code(app.out) };
        let explanation = match &app.remote {
            Some(node) => through(node.read(&["jobs", &job.to_string(), "explain"], &[]).await?)?,
            None => {
                let pressure = assemble::pool_config(&app.settings.worker).pressure;
                explain_under(app.jobs().await?.as_ref(), job, &pressure).await?
            }
        };
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

impl Explain {
    fn code(&self, out: Output) -> Result<()> {
        let what = &self.what;
        match error_pages::find(what) {
            Some(page) => {
                help::print(&page, out);
                Ok(())
            }
            None if error_pages::looks_like_code(what) => Err(help::unknown(what)),
            None => {
                let message = format!("{what:?} is neither a job's id nor an error code");
                Err(Failure::new(Exit::Usage, "USAGE", message)
                    .help("'stargate job list' shows ids, 'stargate help --codes' the codes"))
            }
        }
    }
}

/// What a node says. It knows the load on its own machine.
fn through(answer: types::Explanation) -> Result<Explanation> {
    let reason = |reason: types::Reason| Reason { text: reason.text, command: reason.command };
    Ok(Explanation {
        job: JobId(answer.job),
        state: answer.state.parse()?,
        summary: answer.summary,
        reasons: answer.reasons.into_iter().map(reason).collect(),
    })
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
