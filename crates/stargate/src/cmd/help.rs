//! `stargate help`: the help of a command, or the page of an error code, without a network.

use clap::{Args, CommandFactory as _};

use crate::cli::Cli;
use crate::error_pages::{self, Page};
use crate::failure::{Exit, Failure, Result};
use crate::output::{self, Output};

/// `help`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate help job enqueue        what a command takes
  stargate help NOT_LEADER         what an error code means, and what to do about it
  stargate help --codes            every error code")]
pub(crate) struct Help {
    /// A command, or an error code
    #[arg(value_name = "COMMAND|CODE", conflicts_with = "codes")]
    words: Vec<String>,
    /// List the error codes
    #[arg(long)]
    codes: bool,
}

impl Help {
    /// Prints what was asked for.
    pub(crate) fn run(&self, out: Output) -> Result<()> {
        if self.codes {
            list(out);
            return Ok(());
        }
        if let [word] = self.words.as_slice()
            && let Some(page) = error_pages::find(word)
            // `timeout` might become a command one day; what exists wins unless it is written as a code.
            && (error_pages::looks_like_code(word) || Cli::command().find_subcommand(word).is_none())
        {
            print(&page, out);
            return Ok(());
        }
        let mut command = Cli::command();
        command.build();
        let mut found = &mut command;
        for word in &self.words {
            found = match found.find_subcommand_mut(word) {
                Some(inner) => inner,
                None => return Err(unknown(&self.words.join(" "))),
            };
        }
        out.line(found.render_help().ansi());
        Ok(())
    }
}

/// The page of a code, for `help` and `explain`.
pub(crate) fn print(page: &Page, out: Output) {
    match out.json {
        true => out.json(&serde_json::json!({
            "code": page.code, "summary": page.summary(), "text": page.text,
        })),
        false => out.line(page.render()),
    }
}

fn list(out: Output) {
    if out.json {
        let pages = error_pages::all();
        let views = pages.map(|page| serde_json::json!({ "code": page.code, "summary": page.summary() }));
        out.json(&views.collect::<Vec<_>>());
        return;
    }
    let mut table = output::table(&["code", "meaning"]);
    for page in error_pages::all() {
        table.add_row(vec![page.code.to_owned(), page.summary()]);
    }
    out.table(&table, "no codes");
}

/// Neither a command nor a code; names what may have been meant.
pub(crate) fn unknown(text: &str) -> Failure {
    let failure =
        Failure::new(Exit::NotFound, "NOT_FOUND", format!("{text} is neither a command nor an error code"));
    match error_pages::similar(text).as_slice() {
        [] => failure.help("'stargate --help' lists the commands, 'stargate help --codes' the codes"),
        near => failure.help(format!("did you mean {}?", near.join(", "))),
    }
}
