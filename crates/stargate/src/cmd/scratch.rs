//! `stargate scratch …`: what executions left behind.

use std::time::Duration;

use clap::{Args, Subcommand};
use stargate_artifact::scratch::{Collected, Limits};
use stargate_base::chain;

use crate::assemble;
use crate::config::{interval, size};
use crate::failure::{Exit, Failure, Result};
use crate::output;
use crate::run::App;

/// `scratch …`
#[derive(Debug, Subcommand)]
pub(crate) enum ScratchCommand {
    /// Remove what failed executions left behind: by age, then the oldest until the rest fits
    Gc(Gc),
}

/// `scratch gc`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate scratch gc                       as the worker does it every 10 minutes
  stargate scratch gc --max-age 1h          only keep the last hour
  stargate scratch gc --max-size 0          make all the room there is

Directories of running executions stay, so it can be run at any time.")]
pub(crate) struct Gc {
    /// Remove directories that nobody touched for so long [default: scratch.max_age, 7d]
    #[arg(long, value_name = "TIME", value_parser = interval::parse)]
    max_age: Option<Duration>,
    /// Then remove the oldest until the rest takes up no more than this [default: scratch.max_size, 10GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_size: Option<u64>,
}

impl ScratchCommand {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let Self::Gc(gc) = self;
        let limits = Limits {
            age_max: gc.max_age.unwrap_or(app.settings.scratch.age_max),
            bytes_max: gc.max_size.unwrap_or(app.settings.scratch.bytes_max),
        };
        let root = assemble::scratch_with(&app.settings, limits);
        let done = root.collect().await.map_err(|error| {
            Failure::new(Exit::Input, "IO", chain(&error))
                .help("is scratch.dir right, and may this user write there? 'stargate doctor' checks it")
        })?;
        report(app, root.path(), limits, done);
        // What could not be removed is a matter for a person: the disk goes on filling.
        if done.kept_bytes > limits.bytes_max {
            let (kept, max) = (size::words(done.kept_bytes), size::words(limits.bytes_max));
            return Err(Failure::new(
                Exit::Input,
                "IO",
                format!("{kept} stay, more than {max}: some directories could not be removed"),
            )
            .help("run it again with -v to see which, and as the user who runs the worker"));
        }
        Ok(())
    }
}

fn report(app: &App, root: &std::path::Path, limits: Limits, done: Collected) {
    if app.out.json {
        app.out.json(&serde_json::json!({
            "dir": root,
            "removed": done.removed,
            "removed_bytes": done.removed_bytes,
            "kept": done.kept,
            "kept_bytes": done.kept_bytes,
            "in_use": done.in_use,
            "age_max_sec": limits.age_max.as_secs_f64(),
            "bytes_max": limits.bytes_max,
        }));
        return;
    }
    let mut table = output::table(&["scratch", "directories", "size"]);
    table.add_row(["removed".to_owned(), output::grouped(done.removed), size::words(done.removed_bytes)]);
    table.add_row(["kept".to_owned(), output::grouped(done.kept), size::words(done.kept_bytes)]);
    table.add_row(["in use".to_owned(), output::grouped(done.in_use), "-".to_owned()]);
    app.out.table(&table, "nothing");
    app.out.note(output::dim(format!(
        "\n{}: kept for {}, up to {}",
        root.display(),
        interval::show(limits.age_max),
        size::show(limits.bytes_max)
    )));
}
