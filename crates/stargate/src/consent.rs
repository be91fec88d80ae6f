//! Asking before much is changed: on a terminal a question, elsewhere `--yes`.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::Args;

use crate::failure::{Exit, Failure, Result};
use crate::output::Output;

/// Whether to do it.
#[derive(Debug, Args, Clone, Copy, Default)]
pub(crate) struct Consent {
    /// Do it without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only tell what would be done
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

impl Consent {
    /// Asks whether to do something, in words that follow "really": `retry 12 jobs`.
    pub(crate) fn ask(self, out: Output, what: &str) -> Result<()> {
        if self.yes {
            return Ok(());
        }
        if out.json || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(Failure::new(
                Exit::Usage,
                "USAGE",
                format!("nobody is here to ask whether to {what}"),
            )
            .help("add --yes to do it, --dry-run to only look"));
        }
        drop(write!(anstream::stderr(), "{what}? [y/N] "));
        drop(anstream::stderr().flush());
        let mut answer = String::new();
        let read = std::io::stdin().lock().read_line(&mut answer);
        read.map_err(|error| Failure::io("cannot read the answer", &error))?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Failure::failed("NOT_DONE", "nothing was changed")),
        }
    }
}
