//! Figures, their medians, and what they are held against. Each is printed and, in a run of everything, noted.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// Names the file that figures and remarks are appended to, one JSON object a line.
pub(crate) const NOTES: &str = "STARGATE_BENCH_NOTES";

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value below which so many percent lie.
pub(crate) fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}

/// One thing that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// What it belongs to: the last heading before it.
    pub(crate) group: String,
    /// What it is. Runs are compared by it: it says nothing that may differ from run to run.
    pub(crate) what: String,
    /// Whose figure it is divided by, where that turns out only in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) against: Option<String>,
    pub(crate) value: f64,
    pub(crate) unit: String,
    pub(crate) goal: Goal,
}

impl Figure {
    /// What it is and whose it is divided by, for people.
    pub(crate) fn label(&self) -> String {
        match &self.against {
            None => self.what.clone(),
            Some(against) => format!("{}: {against}", self.what),
        }
    }
}

/// One line of the notes that a part leaves to the run of everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Noted {
    Figure(Figure),
    /// What a reader has to know and no figure tells, such as why a rival was not run.
    Remark {
        remark: String,
    },
}

/// What a figure is held against.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    None,
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    /// Whether a value reaches it; nothing if there is no goal.
    pub(crate) fn is_reached_by(self, value: f64) -> Option<bool> {
        match self {
            Self::None => None,
            Self::AtLeast(least) => Some(value >= least),
            Self::AtMost(most) => Some(value <= most),
        }
    }

    /// Where it lies.
    pub(crate) fn bound(self) -> Option<f64> {
        match self {
            Self::None => None,
            Self::AtLeast(bound) | Self::AtMost(bound) => Some(bound),
        }
    }

    /// In words.
    pub(crate) fn text(self) -> String {
        match self {
            Self::None => String::new(),
            Self::AtLeast(least) => format!("at least {least}"),
            Self::AtMost(most) => format!("at most {most}"),
        }
    }
}

/// A number as people read it.
pub(crate) fn number(value: f64) -> String {
    if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

static HEADING: Mutex<String> = Mutex::new(String::new());

/// Begins a group of figures, which is named by what stands before the first comma or colon.
pub(crate) fn heading(text: &str) {
    println!("{text}");
    let name = text.split([',', ':']).next().unwrap_or(text);
    name.clone_into(&mut HEADING.lock().unwrap_or_else(PoisonError::into_inner));
}

/// One line: what, how much, which goal, reached or not.
pub(crate) fn line(what: &str, value: f64, unit: &str, goal: &Goal) {
    print(&figure(what, value, unit, *goal));
}

/// The same for a ratio to somebody who turned out only in the run.
pub(crate) fn line_against(what: &str, against: &str, value: f64, goal: &Goal) {
    print(&Figure { against: Some(against.to_owned()), ..figure(what, value, "", *goal) });
}

/// Notes a figure that is printed in another form.
pub(crate) fn note(what: &str, value: f64, unit: &str, goal: Goal) {
    keep(&Noted::Figure(figure(what, value, unit, goal)));
}

/// What is not a figure, printed and noted.
pub(crate) fn remark(text: &str) {
    println!("{text}");
    keep(&Noted::Remark { remark: text.to_owned() });
}

/// What was noted in a file.
pub(crate) fn noted(path: &Path) -> Result<Vec<Noted>> {
    let text = std::fs::read_to_string(path).context("cannot read what was noted")?;
    text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("no note: {line}"))).collect()
}

fn figure(what: &str, value: f64, unit: &str, goal: Goal) -> Figure {
    let group = HEADING.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Figure { group, what: what.to_owned(), against: None, value, unit: unit.to_owned(), goal }
}

fn print(figure: &Figure) {
    if !figure.value.is_finite() {
        // JSON has no word for it, and what was not measured is no figure.
        return remark(&format!("{}: not measured", figure.label()));
    }
    let goal = figure.goal.text();
    let verdict = match figure.goal.is_reached_by(figure.value) {
        None => String::new(),
        Some(true) => format!("reached ({goal})"),
        Some(false) => format!("MISSED ({goal})"),
    };
    println!("{:<44} {:>12} {:<10} {verdict}", figure.label(), number(figure.value), figure.unit);
    keep(&Noted::Figure(figure.clone()));
}

fn keep(noted: &Noted) {
    if let Some(path) = std::env::var_os(NOTES) {
        append(Path::new(&path), noted);
    }
}

fn append(path: &Path, noted: &Noted) {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    writeln!(file, "{}", serde_json::to_string(noted).unwrap()).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_say_whether_they_are_reached() {
        assert_eq!(Goal::AtLeast(2.0).is_reached_by(2.0), Some(true));
        assert_eq!(Goal::AtLeast(2.0).is_reached_by(1.9), Some(false));
        assert_eq!(Goal::AtMost(2.0).is_reached_by(2.1), Some(false));
        assert_eq!(Goal::None.is_reached_by(0.0), None);
    }

    #[test]
    fn figures_and_remarks_are_read_as_they_were_noted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        let plain = figure("drain", 1.5, "jobs/s", Goal::AtLeast(1.0));
        let ratio =
            Figure { against: Some("peer x (best)".into()), ..figure("drain / x", 1.0, "", Goal::None) };
        let written = [
            Noted::Figure(plain),
            Noted::Remark { remark: "peer y (best): not run: no such \"thing\"".into() },
            Noted::Figure(ratio),
        ];
        written.iter().for_each(|noted| append(&path, noted));
        assert_eq!(noted(&path).unwrap(), written);
        std::fs::write(&path, "{\"group\": ").unwrap();
        assert!(noted(&path).unwrap_err().to_string().contains("no note"));
    }
}
