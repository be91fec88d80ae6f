//! Everything the program prints. Results go to standard output, the rest to standard error; colours are left out
//! where the terminal has none or `NO_COLOR` is set.

use std::io::Write as _;
use std::time::Duration;

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};
use jiff::Timestamp;
use serde::Serialize;
use stargate_queue::State;

use crate::failure::Failure;

/// Where and how a command prints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Whether programs read it.
    pub(crate) json: bool,
}

impl Output {
    /// A line of the result.
    pub(crate) fn line(self, text: impl std::fmt::Display) {
        // A reader that went away (`| head`) is no reason to fail.
        drop(writeln!(anstream::stdout(), "{text}"));
    }

    /// Text of the result as it is.
    pub(crate) fn raw(self, text: &[u8]) {
        drop(std::io::stdout().write_all(text));
    }

    /// A remark for people; left out when programs read.
    pub(crate) fn note(self, text: impl std::fmt::Display) {
        if !self.json {
            drop(writeln!(anstream::stderr(), "{text}"));
        }
    }

    /// A result for programs.
    pub(crate) fn json<T: Serialize + ?Sized>(self, value: &T) {
        match serde_json::to_string_pretty(value) {
            Ok(text) => drop(writeln!(std::io::stdout(), "{text}")),
            Err(error) => drop(writeln!(std::io::stderr(), "cannot write JSON: {error}")),
        }
    }

    /// A result for programs that read line by line.
    pub(crate) fn json_line<T: Serialize + ?Sized>(self, value: &T) {
        if let Ok(text) = serde_json::to_string(value) {
            drop(writeln!(std::io::stdout(), "{text}"));
        }
    }

    /// A table, or a sentence when it has no rows.
    pub(crate) fn table(self, table: &Table, empty: &str) {
        if table.is_empty() {
            self.note(dim(empty));
        } else {
            let text = table.trim_fmt();
            match anstream::AutoStream::choice(&std::io::stdout()) {
                // Without colours the padding that stood inside them is at the end of lines.
                anstream::ColorChoice::Never => {
                    let plain = anstream::adapter::strip_str(&text).to_string();
                    self.line(plain.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"));
                }
                _ => self.line(text),
            }
        }
    }

    /// The end of a command that failed.
    pub(crate) fn failure(self, failure: &Failure) {
        if self.json {
            drop(writeln!(std::io::stderr(), "{}", failure.to_json()));
        } else {
            drop(writeln!(anstream::stderr(), "{}", failure.render()));
        }
    }
}

/// A table with these columns and no lines around.
pub(crate) fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // Some terminals do not tell their width, or one in which nothing can be read.
    if table.width().is_none_or(|width| width >= 60) {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    // Colours are always written and taken out again by the stream if they are not wanted.
    table.enforce_styling();
    let head = columns.iter().map(|name| Cell::new(name.to_uppercase()).add_attribute(Attribute::Dim));
    table.set_header(head.collect::<Vec<_>>());
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    table
}

/// A cell for a job's state, in its colour.
pub(crate) fn state_cell(state: State) -> Cell {
    let colour = match state {
        State::Queued => Color::Cyan,
        State::Processing => Color::Yellow,
        State::Done => Color::Green,
        State::Failed => Color::Red,
        State::Cancelled => Color::DarkGrey,
    };
    Cell::new(state).fg(colour)
}

/// Whether standard error shows colours.
pub(crate) fn stderr_has_colours() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

/// A line for something that writes to standard error itself, without colours if they are not wanted.
pub(crate) fn for_stderr(line: String) -> String {
    if stderr_has_colours() { line } else { anstream::adapter::strip_str(&line).to_string() }
}

/// Quiet text.
pub(crate) fn dim(text: impl std::fmt::Display) -> String {
    use owo_colors::OwoColorize as _;
    text.dimmed().to_string()
}

/// Loud text.
pub(crate) fn bold(text: impl std::fmt::Display) -> String {
    use owo_colors::OwoColorize as _;
    text.bold().to_string()
}

/// A time as people say it: `3 s ago`, `in 4 min`.
pub(crate) fn when(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.duration_since(now).as_secs_f64();
    let length = short(Duration::from_secs_f64(seconds.abs()));
    match seconds {
        s if s.abs() < 1.0 => "now".to_owned(),
        s if s < 0.0 => format!("{length} ago"),
        _ => format!("in {length}"),
    }
}

/// A length of time in one or two units: `850 ms`, `12 s`, `4 min`, `3 h 20 min`, `5 d`.
pub(crate) fn short(length: Duration) -> String {
    let seconds = length.as_secs();
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {small_unit}"),
    };
    match seconds {
        0 => format!("{} ms", length.as_millis()),
        1..=9 if length.subsec_millis() >= 100 => format!("{:.1} s", length.as_secs_f64()),
        1..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", (seconds + 30) / 60),
        7200..=172_799 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// A number with thin groups: `1 234 567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_words() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |text: &str| when(text.parse().unwrap(), now);
        assert_eq!(at("2026-01-01T00:00:00.5Z"), "now");
        assert_eq!(at("2026-01-01T00:00:45Z"), "in 45 s");
        assert_eq!(at("2025-12-31T23:30:00Z"), "30 min ago");
        assert_eq!(at("2026-01-01T03:20:00Z"), "in 3 h 20 min");
        assert_eq!(at("2026-01-06T00:00:00Z"), "in 5 d");
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1234), "1 234");
        assert_eq!(grouped(1_234_567), "1 234 567");
    }
}
