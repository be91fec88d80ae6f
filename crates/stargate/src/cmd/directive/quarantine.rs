//! `stargate directive quarantine …`: records that could not become items.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use stargate_base::Tasks;
use stargate_directive::quarantine::{QuarantineFilter, QuarantineId, Quarantined};
use stargate_directive::store::PAGE_MAX;
use stargate_directive::{Directives, RunId, steps};

use super::{failed, found};
use crate::config::directives::Engine;
use crate::directing::Runner;
use crate::failure::{Exit, Failure, Result};
use crate::output::{self, Output};
use crate::run::App;

/// How much of a reason the list shows.
const REASON_SHOWN: usize = 90;

/// `directive quarantine …`
#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// List records that were kept aside, newest first
    List(List),
    /// Show one with its record
    Show(Named),
    /// Try records again, after the directive or its schema was mended
    Retry(Retry),
    /// Mark one as dealt with; its record is kept
    Resolve(Named),
}

/// `directive quarantine list`
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only of this directive
    name: Option<String>,
    /// Also those that were dealt with
    #[arg(long)]
    all: bool,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only with a smaller number than this: the next page
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
}

/// One record.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its number
    id: i64,
}

/// `directive quarantine retry`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate directive quarantine retry issues
  stargate directive quarantine retry issues --id 17 --id 18

Records that fit now become items and are announced like any other; the rest stay. The
cursor is not touched.")]
pub(crate) struct Retry {
    /// The directive
    name: String,
    /// Only this one, repeatable [default: all]
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<i64>,
}

#[derive(Serialize)]
struct QuarantinedView<'a> {
    id: i64,
    directive: &'a str,
    tenant_id: &'a str,
    project_id: &'a str,
    run_id: &'a str,
    entity_id: Option<&'a str>,
    cause: &'a str,
    reason: &'a str,
    seen: u64,
    record: &'a RawValue,
    created_at: Timestamp,
    resolved_at: Option<Timestamp>,
}

impl QuarantineCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        match self {
            Self::List(list) => list.run(app).await,
            Self::Show(named) => named.show(app).await,
            Self::Retry(retry) => retry.run(app).await,
            Self::Resolve(named) => named.resolve(app).await,
        }
    }
}

impl List {
    async fn run(&self, app: &App) -> Result<()> {
        let stores = app.stores().await?;
        let filter = QuarantineFilter {
            directive: self.name.clone(),
            resolved: self.all,
            before: self.before.map(QuarantineId),
            limit: self.limit,
        };
        let records = stores.directives.quarantine(filter).await?;
        if app.out.json {
            app.out.json(&records.iter().map(view).collect::<Vec<_>>());
            return Ok(());
        }
        let now = stores.jobs.now().await?;
        let mut table = output::table(&["id", "directive", "entity", "cause", "seen", "since", "reason"]);
        for record in &records {
            table.add_row(vec![
                record.id.0.to_string(),
                record.directive.clone(),
                record.entity_id.clone().unwrap_or_else(|| "-".to_owned()),
                record.cause.clone(),
                record.seen.to_string(),
                output::when(record.created_at, now),
                cut(&record.reason),
            ]);
        }
        app.out.table(&table, "nothing is quarantined");
        Ok(())
    }
}

impl Named {
    async fn show(&self, app: &App) -> Result<()> {
        let stores = app.stores().await?;
        let record = one(stores.directives.as_ref(), self.id).await?;
        if app.out.json {
            app.out.json(&view(&record));
            return Ok(());
        }
        print(&record, app.out);
        Ok(())
    }

    async fn resolve(&self, app: &App) -> Result<()> {
        let stores = app.stores().await?;
        let is_new = stores.directives.quarantine_resolve(QuarantineId(self.id)).await?;
        if !is_new {
            one(stores.directives.as_ref(), self.id).await?;
        }
        match app.out.json {
            true => app.out.json(&serde_json::json!({ "id": self.id, "resolved": true })),
            false => app.out.line(format!("record {} is marked as dealt with", self.id)),
        }
        Ok(())
    }
}

impl Retry {
    async fn run(&self, app: &App) -> Result<()> {
        let stores = app.stores().await?;
        let tasks = Tasks::new();
        let runner = Runner::new(&app.settings, &stores.directives, &tasks);
        let directive = found(runner.catalogue.find(&self.name))?;
        let run = RunId(format!("quarantine-{}", ulid::Ulid::generate()));
        let assignment = found(runner.assignment(directive, run, Engine::Embedded, 1))?;
        for id in &self.ids {
            one(stores.directives.as_ref(), *id).await?;
        }
        let only: Vec<QuarantineId> = self.ids.iter().copied().map(QuarantineId).collect();
        let retried = steps::retry_quarantined(assignment, &only).await.map_err(failed)?;
        tasks.join().await;
        match app.out.json {
            true => app.out.json(
                &serde_json::json!({ "directive": self.name, "resolved": retried.resolved, "failed": retried.unfit }),
            ),
            false => app.out.line(format!(
                "{} became items, {} still do not fit",
                output::grouped(retried.resolved),
                output::grouped(retried.unfit)
            )),
        }
        Ok(())
    }
}

/// The record of a number.
async fn one(store: &dyn Directives, id: i64) -> Result<Quarantined> {
    let before = Some(QuarantineId(id.saturating_add(1)));
    let filter = QuarantineFilter { directive: None, resolved: true, before, limit: 1 };
    let found = store.quarantine(filter).await?.into_iter().find(|record| record.id.0 == id);
    found.ok_or_else(|| {
        Failure::new(Exit::NotFound, "NOT_FOUND", format!("no quarantined record {id}"))
            .help("'stargate directive quarantine list --all' shows what there is")
    })
}

fn print(record: &Quarantined, out: Output) {
    out.line(format!("directive  {} ({}/{})", record.directive, record.tenant, record.project));
    out.line(format!("entity     {}", record.entity_id.as_deref().unwrap_or("-")));
    out.line(format!("cause      {}", record.cause));
    out.line(format!("reason     {}", record.reason));
    out.line(format!(
        "seen       {} times since {}, first by run {}",
        record.seen, record.created_at, record.run
    ));
    if let Some(at) = record.resolved_at {
        out.line(format!("resolved   {at}"));
    }
    out.line("record");
    let pretty = serde_json::from_str::<serde_json::Value>(record.record.get())
        .and_then(|value| serde_json::to_string_pretty(&value));
    out.line(pretty.unwrap_or_else(|_| record.record.get().to_owned()));
}

fn view(record: &Quarantined) -> QuarantinedView<'_> {
    QuarantinedView {
        id: record.id.0,
        directive: &record.directive,
        tenant_id: &record.tenant,
        project_id: &record.project,
        run_id: &record.run.0,
        entity_id: record.entity_id.as_deref(),
        cause: &record.cause,
        reason: &record.reason,
        seen: record.seen,
        record: &record.record,
        created_at: record.created_at,
        resolved_at: record.resolved_at,
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(REASON_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// How many records of a directive wait for somebody; counted up to a page.
pub(super) async fn waiting(store: &dyn Directives, name: &str) -> Result<usize> {
    let directive = Some(name.to_owned());
    let filter = QuarantineFilter { directive, resolved: false, before: None, limit: PAGE_MAX };
    Ok(store.quarantine(filter).await?.len())
}
