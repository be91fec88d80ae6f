//! `stargate config …`: the effective settings.

use clap::Subcommand;

use crate::output;
use crate::run::App;

/// `config …`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every effective value with where it came from; secrets as ***
    Show,
}

impl ConfigCommand {
    /// Runs the command.
    pub(crate) fn run(&self, app: &App) {
        let Self::Show = self;
        let mut shown = app.settings.shown.clone();
        shown.sort_by(|a, b| a.key.cmp(&b.key));
        if app.out.json {
            app.out.json(&shown);
            return;
        }
        let mut table = output::table(&["setting", "value", "from"]);
        for value in &shown {
            table.add_row(vec![value.key.clone(), value.value.clone(), value.origin.to_string()]);
        }
        app.out.table(&table, "no settings");
    }
}
