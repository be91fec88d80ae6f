//! `stargate directive quarantine …`: records that could not become items.

use clap::{Args, Subcommand};
use stargate_base::Tasks;
use stargate_directive::quarantine::{QuarantineFilter, QuarantineId, Quarantined};

use crate::auditing::audited;
use crate::directing::{steer, view};
use crate::failure::Result;
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
    pub(super) name: Option<String>,
    /// Also those that were dealt with
    #[arg(long)]
    pub(super) all: bool,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) limit: u32,
    /// Only with a smaller number than this: the next page
    #[arg(long, value_name = "ID")]
    pub(super) before: Option<i64>,
}

/// One record.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its number
    pub(super) id: i64,
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
    pub(super) name: String,
    /// Only this one, repeatable [default: all]
    #[arg(long = "id", value_name = "ID")]
    pub(super) ids: Vec<i64>,
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
            app.out.json(&records.into_iter().map(view::record).collect::<Vec<_>>());
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
        let record = steer::record(stores.directives.as_ref(), self.id).await?;
        if app.out.json {
            app.out.json(&view::record(record));
            return Ok(());
        }
        print(&record, app.out);
        Ok(())
    }

    async fn resolve(&self, app: &App) -> Result<()> {
        let stores = app.stores().await?;
        let work = steer::resolve(stores.directives.as_ref(), self.id);
        audited(&stores.audit, "quarantine.resolve", self.id, serde_json::Value::Null, work).await?;
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
        let detail = serde_json::json!({ "ids": self.ids });
        let work = steer::retry_records(&app.settings, &stores.directives, &tasks, &self.name, &self.ids);
        let retried = audited(&stores.audit, "quarantine.retry", &self.name, detail, work).await?;
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

fn cut(text: &str) -> String {
    match text.char_indices().nth(REASON_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
