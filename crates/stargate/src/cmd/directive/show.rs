//! `stargate directive show`: a directive with its cursor and its runs.

use clap::Args;
use comfy_table::{Cell, Color};
use jiff::Timestamp;
use stargate_directive::file::Directive;
use stargate_directive::kv::Keys;
use stargate_directive::{Cursor, Outcome, Run};

use super::{EngineChoice, found};
use crate::config::directives::Engine;
use crate::directing::{Catalogue, director, steer};
use crate::failure::Result;
use crate::output::{self, Output};
use crate::run::App;
use crate::temporal::{self, WorkflowView};

/// `directive show`
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The directive
    pub(super) name: String,
    /// How many runs to show
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) runs: u32,
    #[command(flatten)]
    pub(super) engine: EngineChoice,
}

impl Show {
    /// Reads and prints.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let directive = found(Catalogue::of(&app.settings).find(&self.name))?;
        let keys = Keys::of(&directive.tenant, &directive.project, &directive.name)?;
        let stores = app.stores().await?;
        let store = stores.directives.as_ref();
        let workflow = match app.settings.directives.engine {
            Engine::Embedded => None,
            Engine::Temporal => {
                super::if_there(app.out, temporal::state(&app.settings, &self.name).await).flatten()
            }
        };
        if app.out.json {
            app.out.json(&director::detail(&stores.directives, directive, self.runs, workflow).await?);
            return Ok(());
        }
        let runs = store.runs(Some(&self.name), None, self.runs).await?;
        let cursor = store.kv_get(&keys.cursor).await?;
        let partial = store.kv_get(&keys.partial).await?;
        let quarantined = steer::waiting(store, &self.name).await?;
        let now = stores.jobs.now().await?;
        head(&directive, app.out);
        match cursor
            .as_ref()
            .and_then(|entry| Some((entry, serde_json::from_str::<Cursor>(entry.value.get()).ok()?)))
        {
            Some((entry, cursor)) => app.out.line(format!(
                "cursor     {} · {} processed · version {} · {}",
                cursor.source_pointer,
                output::grouped(cursor.processed_count),
                entry.version,
                output::when(entry.updated_at, now)
            )),
            None => app.out.line("cursor     none yet"),
        }
        if let Some(partial) = partial {
            app.out.line(format!("beyond it  {}", partial.value));
        }
        app.out.line(format!("quarantine {quarantined} waiting"));
        if let Some(workflow) = &workflow {
            show_workflow(workflow, now, app.out);
        }
        app.out.line("");
        list(&runs, now, app.out);
        Ok(())
    }
}

fn head(directive: &Directive, out: Output) {
    out.line(format!("{}  {}/{}", output::bold(&directive.name), directive.tenant, directive.project));
    out.line(format!("file       {}", directive.path.display()));
    out.line(format!("queue      {}", directive.queue));
    out.line(format!("source     {}, pages of {}", directive.source.kind(), directive.page_size));
    let outbox =
        directive.sink.outbox.as_ref().map(|topic| format!(", announced as {topic}")).unwrap_or_default();
    out.line(format!("sink       table {}{outbox}", directive.sink.table.name));
    if let Some(schedule) = &directive.schedule {
        out.line(format!("schedule   {} ({})", schedule.cron, schedule.time_zone));
    }
}

fn show_workflow(workflow: &WorkflowView, now: Timestamp, out: Output) {
    let began =
        workflow.started_at.map(|at| format!(" · began {}", output::when(at, now))).unwrap_or_default();
    out.line(format!(
        "workflow   {} · {} · {} events{began}",
        workflow.workflow_id, workflow.status, workflow.history_events
    ));
    for pending in &workflow.pending {
        let failure = pending.last_failure.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let next =
            pending.next_attempt_at.map(|at| format!(", next {}", output::when(at, now))).unwrap_or_default();
        out.line(format!("           {} · attempt {}{next}{failure}", pending.activity, pending.attempt));
    }
}

fn list(runs: &[Run], now: Timestamp, out: Output) {
    let columns = ["run", "", "began", "pages", "created", "updated", "unchanged", "quarantined", "error"];
    let mut table = output::table(&columns);
    for run in runs {
        let (word, colour) = match run.outcome {
            None => ("running", Color::Yellow),
            Some(outcome @ Outcome::Succeeded) => (outcome.as_str(), Color::Green),
            Some(outcome @ Outcome::Failed) => (outcome.as_str(), Color::Red),
            Some(outcome @ Outcome::Cancelled) => (outcome.as_str(), Color::DarkGrey),
        };
        let waiting = run.beat.waiting_for.as_ref().filter(|_| run.outcome.is_none());
        let waiting = waiting.map(|reason| format!("waits: {reason}"));
        table.add_row(vec![
            Cell::new(&run.id),
            Cell::new(word).fg(colour),
            Cell::new(output::when(run.started_at, now)),
            Cell::new(run.pages),
            Cell::new(run.counts.created),
            Cell::new(run.counts.updated),
            Cell::new(run.counts.unchanged),
            Cell::new(run.counts.failed),
            Cell::new(run.error.clone().or(waiting).unwrap_or_default()),
        ]);
    }
    out.table(&table, "no runs yet; 'stargate directive run NAME' begins one");
}
