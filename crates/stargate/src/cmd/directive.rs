//! `stargate directive …`: what directives there are and whether they are right.

mod cancel;
mod check;
mod cursor;
mod list;
mod quarantine;
mod remote;
mod run;
pub(crate) mod sample;
pub(crate) mod screen;
mod show;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stargate_base::ErrorClass;
use stargate_directive::file;
use stargate_directive::steps::Trouble;

use crate::config::directives::Engine;
use crate::failure::{Exit, Failure, Result};
use crate::output::Output;
use crate::run::App;

/// `directive …`
#[derive(Debug, Subcommand)]
pub(crate) enum DirectiveCommand {
    /// Check directives; exits 1 if one is wrong, so that it can gate a change
    Check(Check),
    /// List directives with where their records come from and go to
    List(list::List),
    /// Show a directive with its cursor and its runs
    Show(show::Show),
    /// Run a directive and wait for its end
    Run(run::Run),
    /// End a run where its cursor is
    Cancel(cancel::Cancel),
    /// Where a directive stands, and moving it by hand
    #[command(subcommand)]
    Cursor(cursor::CursorCommand),
    /// Records that could not become items
    #[command(subcommand)]
    Quarantine(quarantine::QuarantineCommand),
    /// Serve a local API with made-up items, to try directives on
    Sample(sample::Sample),
    /// Print the JSON Schema of a directive's file, for editors
    #[command(after_help = "Example:\n  stargate directive schema > directive.schema.json")]
    Schema,
}

/// `directive check`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate directive check
  stargate directive check directives/issues.toml
  stargate directive check --json directives | jq '.problems[]'

Problems are printed one a line as FILE:LINE:COLUMN: what is wrong. Variables of the
environment that are not set here are a warning: they may be set where the workers run.")]
pub(crate) struct Check {
    /// Files, or directories of them [default: directives.dir]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// `--engine`
#[derive(Debug, Args)]
pub(crate) struct EngineChoice {
    /// What executes directives [env: STARGATE_ENGINE] [default: embedded]
    #[arg(long, value_enum, value_name = "ENGINE")]
    engine: Option<Engine>,
}

impl DirectiveCommand {
    /// The engine that the command line names.
    pub(crate) fn engine(&self) -> Option<Engine> {
        match self {
            Self::List(list) => list.engine.engine,
            Self::Show(show) => show.engine.engine,
            Self::Run(run) => run.engine.engine,
            Self::Cancel(cancel) => cancel.engine.engine,
            _ => None,
        }
    }

    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        if let Some(node) = &app.remote {
            return remote::run(self, app, node).await;
        }
        match self {
            Self::Check(check) => check::run(&check.paths, app),
            Self::List(_) => list::run(app).await,
            Self::Show(show) => show.run(app).await,
            Self::Run(run) => run.run(app).await,
            Self::Cancel(cancel) => cancel.run(app).await,
            Self::Cursor(cursor) => cursor.run(app).await,
            Self::Quarantine(quarantine) => quarantine.run(app).await,
            Self::Sample(sample) => sample.run(app).await,
            Self::Schema => {
                schema(app.out);
                Ok(())
            }
        }
    }
}

/// Prints the JSON Schema. Needs no settings.
pub(crate) fn schema(out: Output) {
    out.raw(file::SCHEMA.as_bytes());
}

/// What the cluster says, if it does: what is in the store is shown without it.
fn if_there<T>(out: Output, answer: Result<T>) -> Option<T> {
    answer.map_err(|failure| out.note(failure.message)).ok()
}

/// What was found, or why not, as a command fails.
pub(crate) fn found<T>(found: Result<T, Trouble>) -> Result<T> {
    found.map_err(failed)
}

/// Why a run or its directive cannot go on, as a command fails.
pub(crate) fn failed(trouble: Trouble) -> Failure {
    let exit = match (trouble.code.as_str(), trouble.class) {
        ("DIRECTIVE_MISSING", _) => Exit::NotFound,
        (_, ErrorClass::Conflict) => Exit::Conflict,
        _ => Exit::Input,
    };
    let failure = Failure::new(exit, &trouble.code, trouble.message);
    match exit {
        Exit::NotFound => failure.help("'stargate directive list' shows what there is"),
        _ => failure,
    }
}
