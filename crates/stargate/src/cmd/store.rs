//! `stargate store …`: moves a live SQLite store to Postgres.

use clap::{Args, Subcommand};
use serde::Serialize;
use stargate_base::Tasks;
use stargate_queue::Error;
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_store::transfer::{self, Moved, Report};

use crate::config::store_url::{self, StoreUrl};
use crate::failure::{Failure, Result};
use crate::output::{self, grouped};
use crate::run::App;
use crate::signals;

/// `store …`
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Move a live SQLite store to an empty Postgres database
    Move(Move),
}

/// `store move`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate store move --to postgres://app@db/app
  stargate store move --to postgres://app@db/app --abort

Nothing has to be stopped. From the first copied row on, this store refuses writes and names the
new one; nothing that was accepted is lost. Running jobs are taken over there when their leases
end. If the move fails, this store goes on as before. If it is killed, run the same command again,
or take writes again with --abort.")]
pub(crate) struct Move {
    /// The empty database to move to: postgres://…
    #[arg(long, value_name = "URL", required_unless_present = "abort")]
    to: Option<String>,
    /// Take writes again after a move that was not finished
    #[arg(long)]
    abort: bool,
}

#[derive(Serialize)]
struct View {
    store: String,
    completed_earlier: bool,
    tables: Vec<Table>,
}

#[derive(Serialize)]
struct Table {
    table: &'static str,
    rows: u64,
}

impl StoreCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        match self {
            Self::Move(moving) => moving.run(app).await,
        }
    }
}

impl Move {
    async fn run(&self, app: &App) -> Result<()> {
        let StoreUrl::Sqlite(path) = &app.settings.store else {
            let message = format!("{} is not a SQLite store; only those can be moved", app.settings.store);
            return Err(Failure::config(message).help("name the file with --store sqlite:PATH"));
        };
        // Opening would make an empty one.
        if !path.is_file() {
            return Err(Error::NotFound { what: "store", name: app.settings.store.to_string() }.into());
        }
        let target = self.to.as_deref().map(target).transpose()?;
        let from = Sqlite::open(path, sqlite::Options::default()).await?;
        let ended = match target {
            Some((url, shown)) => {
                let options = postgres::Options { migrate: !self.abort, ..postgres::Options::default() };
                let to = Postgres::connect(&url, options).await?;
                let ended = if self.abort {
                    abort(app, &from, Some(&to)).await
                } else {
                    transfer(app, &from, &to, &shown).await
                };
                to.close().await;
                ended
            }
            None => abort(app, &from, None).await,
        };
        from.close().await;
        ended
    }
}

/// The URL with its password, and the one to show.
fn target(text: &str) -> Result<(String, String)> {
    let parsed = store_url::parse(text).map_err(|problem| Failure::config(format!("--to {problem}")))?;
    match &parsed {
        StoreUrl::Postgres(url) => Ok((url.reveal().to_owned(), parsed.to_string())),
        StoreUrl::Sqlite(_) => {
            Err(Failure::config("--to names a file; a store can only be moved to postgres://…"))
        }
    }
}

async fn abort(app: &App, from: &Sqlite, to: Option<&Postgres>) -> Result<()> {
    transfer::abort_move(from, to).await?;
    match app.out.json {
        true => {
            app.out.json(&serde_json::json!({ "store": app.settings.store.to_string(), "aborted": true }))
        }
        false => app.out.line(format!("{} takes writes again", app.settings.store)),
    }
    Ok(())
}

async fn transfer(app: &App, from: &Sqlite, to: &Postgres, shown: &str) -> Result<()> {
    let tasks = Tasks::new();
    let stop = signals::stop_token(&tasks)?;
    let mut last = "";
    // Asked between two batches: a move that is stopped is undone like one that failed.
    let progress = |moved: Moved| {
        if stop.is_cancelled() {
            return Err(Error::Conflict { problem: "the move was stopped; nothing was moved".to_owned() });
        }
        if moved.rows == moved.rows_total && moved.table != last {
            app.out.note(output::dim(format!("{} {}", grouped(moved.rows), moved.table)));
            last = moved.table;
        }
        Ok(())
    };
    let ended = transfer::move_to_postgres(from, to, shown, progress).await;
    tasks.stop();
    tasks.join().await;
    report(app, &ended?, shown);
    Ok(())
}

fn report(app: &App, report: &Report, shown: &str) {
    if app.out.json {
        let tables =
            report.tables.iter().map(|moved| Table { table: moved.table, rows: moved.rows }).collect();
        let (store, completed_earlier) = (shown.to_owned(), report.earlier);
        app.out.json(&View { store, completed_earlier, tables });
        return;
    }
    let mut table = output::table(&["table", "rows"]);
    for moved in &report.tables {
        table.add_row(vec![moved.table.to_owned(), grouped(moved.rows)]);
    }
    app.out.table(&table, "nothing to move");
    if report.earlier {
        app.out.line("\nan earlier run had completed the move");
    }
    app.out.line(format!("\n{} now refuses writes. Start everything with:\n", app.settings.store));
    app.out.line(format!("  {}", output::bold(format!("STARGATE_STORE={shown}"))));
    if shown.contains("***") {
        app.out.note("with the password in place of ***");
    }
}
