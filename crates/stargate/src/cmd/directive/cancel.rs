//! `stargate directive cancel`: ends a run where its cursor is.

use std::time::{Duration, Instant};

use clap::Args;
use stargate_directive::{Run, RunId};
use stargate_queue::Error;

use super::EngineChoice;
use crate::assemble::Stores;
use crate::auditing::audited;
use crate::config::directives::Engine;
use crate::directing::{steer, view};
use crate::failure::{Exit, Failure, Result};
use crate::output;
use crate::run::App;
use crate::temporal;

/// How long a run may take to end: what it is writing is written, and a tap gets a few seconds to end.
const ENDED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// `directive cancel`
#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// The directive
    pub(super) name: String,
    #[command(flatten)]
    pub(super) engine: EngineChoice,
}

impl Cancel {
    /// Asks, and waits until it has ended.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let stores = app.stores().await?;
        let runs = stores.directives.runs(Some(&self.name), None, 50).await?;
        let is_temporal = |engine: &str| engine == Engine::Temporal.as_str();
        let wanted = self.engine.engine.map(Engine::as_str);
        let is_meant = |run: &Run| run.outcome.is_none() && wanted.is_none_or(|engine| run.engine == engine);
        let Some(run) = runs.into_iter().find(is_meant) else {
            // A workflow that no worker has taken up has no run yet.
            if is_temporal(app.settings.directives.engine.as_str())
                && temporal::cancel(&app.settings, &self.name).await?
            {
                app.out
                    .line(format!("the workflow of {} is asked to end; it had not begun to run", self.name));
                return Ok(());
            }
            return Err(Failure::new(
                Exit::NotFound,
                "NOT_FOUND",
                format!("no run of {} goes on", self.name),
            )
            .help(format!("'stargate directive show {}' lists those that ended", self.name)));
        };
        let work = steer::ask_to_end(&app.settings, stores.jobs.as_ref(), &stores.directives, &run);
        audited(&stores.audit, "run.cancel", &run.id, serde_json::Value::Null, work).await?;
        let run = ended(&stores, &run.id).await?;
        match app.out.json {
            true => app.out.json(&view::run(&run)),
            false => {
                let outcome = run.outcome.map_or("goes on", |outcome| outcome.as_str());
                app.out.line(format!(
                    "run {} {outcome} after {} pages, {} items; its cursor is kept",
                    run.id,
                    output::grouped(run.pages),
                    output::grouped(run.counts.total())
                ));
            }
        }
        Ok(())
    }
}

async fn ended(stores: &Stores, id: &RunId) -> Result<Run> {
    let started = Instant::now();
    loop {
        let run = stores.directives.run(id).await?;
        let run = run.ok_or_else(|| Error::NotFound { what: "run", name: id.to_string() })?;
        if run.outcome.is_some() {
            return Ok(run);
        }
        if started.elapsed() > ENDED_WITHIN {
            let message = format!("run {id} was asked to end and has not yet");
            return Err(Failure::new(Exit::TimedOut, "TIMED_OUT", message)
                .help("its worker may be away; the run ends when another takes it up"));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
