//! A run that is watched.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use stargate_directive::Run as DirectiveRun;

use crate::output::{self, Output};

/// What a person sees meanwhile.
pub(crate) struct Screen {
    out: Output,
    bar: Option<ProgressBar>,
    /// What was said last where there is no terminal.
    waiting: Option<String>,
}

impl Screen {
    pub(crate) fn new(out: Output, name: &str) -> Self {
        let is_wanted = !out.json && std::io::stderr().is_terminal();
        let bar = is_wanted.then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}  {msg}") {
                bar.set_style(style);
            }
            bar.set_prefix(name.to_owned());
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Self { out, bar, waiting: None }
    }

    /// Shows how far a run has come.
    pub(crate) fn show(&mut self, run: &DirectiveRun) {
        let Some(bar) = &self.bar else {
            if self.waiting != run.beat.waiting_for {
                self.waiting.clone_from(&run.beat.waiting_for);
                self.waiting.iter().for_each(|reason| self.out.note(format!("waiting: {reason}")));
            }
            return;
        };
        let counts = run.counts;
        let mut text = format!("page {}  {} items", run.pages, output::grouped(counts.total()));
        if counts.failed > 0 {
            text.push_str(&format!("  {} quarantined", output::grouped(counts.failed)));
        }
        if let Some(reason) = &run.beat.waiting_for {
            text.push_str(&format!("  waiting: {reason}"));
        }
        bar.set_message(text);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
