//! Figures, their medians, and what they are held against. Each is printed and, in a run of everything, noted.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Names the file that figures are appended to, one JSON object a line.
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
    /// What it is.
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
    pub(crate) goal: Goal,
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
    let verdict = match goal.is_reached_by(value) {
        None => String::new(),
        Some(true) => format!("reached ({})", goal.text()),
        Some(false) => format!("MISSED ({})", goal.text()),
    };
    println!("{what:<44} {:>12} {unit:<10} {verdict}", number(value));
    note(what, value, unit, *goal);
}

/// Notes a figure that is printed in another form.
pub(crate) fn note(what: &str, value: f64, unit: &str, goal: Goal) {
    let Some(path) = std::env::var_os(NOTES) else { return };
    let group = HEADING.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let figure = Figure { group, what: what.to_owned(), value, unit: unit.to_owned(), goal };
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    writeln!(file, "{}", serde_json::to_string(&figure).unwrap()).unwrap();
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
}
