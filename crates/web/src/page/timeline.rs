//! A job's timeline for people: one line an event, progress drawn together, and the attempts it tells of.

use jiff::Timestamp;
use serde::Deserialize;

use super::html::{self, Html};
use super::json;
use crate::api::types::Event;

/// A line of the timeline.
pub(crate) struct Line {
    pub(crate) class: &'static str,
    pub(crate) what: String,
    pub(crate) at: Html,
    /// How long after the line before.
    pub(crate) after: Option<String>,
    pub(crate) text: String,
    /// What the event carries beyond that.
    pub(crate) data: Option<Html>,
}

/// One execution.
#[derive(Debug, PartialEq)]
pub(crate) struct Attempt {
    pub(crate) number: String,
    pub(crate) worker: String,
    pub(crate) began_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    /// The event that ended it; empty while it goes on.
    pub(crate) ended: String,
    pub(crate) error: Option<String>,
}

impl Attempt {
    /// How long it took, or takes so far.
    pub(crate) fn took(&self) -> String {
        self.ended_at.map_or_else(|| "running".to_owned(), |ended| html::between(&self.began_at, &ended))
    }

    /// The word and colour of its end.
    pub(crate) fn badge(&self) -> &'static str {
        match self.ended.as_str() {
            "" => "processing",
            "done" => "done",
            "failed" | "requeued:retry" | "requeued:stale" => "failed",
            "cancelled" => "cancelled",
            _ => "paused",
        }
    }
}

/// What an event may carry.
#[derive(Debug, Default, Deserialize)]
struct Data {
    attempt: Option<u64>,
    worker: Option<String>,
    code: Option<String>,
    message: Option<String>,
    progress: Option<u64>,
    percent: Option<u64>,
}

fn data(event: &Event) -> Data {
    serde_json::from_str(event.data.get()).unwrap_or_default()
}

fn said(data: &Data) -> Option<String> {
    let message = data.message.as_deref()?;
    Some(data.code.as_deref().map_or_else(|| message.to_owned(), |code| format!("{code}: {message}")))
}

/// The lines, in the order in which it happened.
pub(crate) fn lines(events: &[Event]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut before: Option<Timestamp> = None;
    let mut rest = events.iter().peekable();
    while let Some(event) = rest.next() {
        let (mut last, mut drawn) = (event, 1);
        while event.event == "progress" && rest.peek().is_some_and(|next| next.event == "progress") {
            last = rest.next().unwrap_or(last);
            drawn += 1;
        }
        lines.push(line(event, last, drawn, before));
        before = Some(last.at);
    }
    lines
}

fn line(first: &Event, last: &Event, drawn: usize, before: Option<Timestamp>) -> Line {
    let told = data(last);
    let (class, own) = match first.event.as_str() {
        "done" | "uploaded" | "source:ready" => ("good", false),
        "failed" | "requeued:stale" => ("bad", false),
        "requeued:retry" | "cancelled" | "cancel:requested" | "aborted:shutdown" => ("warn", false),
        "processing" => ("busy", false),
        "created" | "progress" | "requeued:operator" => ("", false),
        _ => ("", true),
    };
    let text = match first.event.as_str() {
        "processing" => format!(
            "attempt {} on {}",
            told.attempt.map_or_else(|| "?".to_owned(), |number| number.to_string()),
            told.worker.as_deref().unwrap_or("a worker")
        ),
        "progress" => {
            let percent =
                told.progress.or(told.percent).map_or_else(String::new, |percent| format!("to {percent} %"));
            if drawn > 1 { format!("{percent}, in {drawn} steps") } else { percent }
        }
        _ => said(&told).unwrap_or_default(),
    };
    let carries = !matches!(last.data.get().trim(), "{}" | "null");
    Line {
        class,
        what: first.event.clone(),
        at: html::ago(&last.at),
        after: before.map(|before| html::between(&before, &last.at)),
        data: (carries && (own || (text.is_empty() && first.event != "created")))
            .then(|| json::pretty(last.data.get())),
        text,
    }
}

/// The attempts, newest first.
pub(crate) fn attempts(events: &[Event]) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    for event in events {
        let told = data(event);
        match event.event.as_str() {
            "processing" => attempts.push(Attempt {
                number: told.attempt.map_or_else(|| "?".to_owned(), |number| number.to_string()),
                worker: told.worker.unwrap_or_default(),
                began_at: event.at,
                ended_at: None,
                ended: String::new(),
                error: None,
            }),
            "done" | "failed" | "cancelled" | "requeued:retry" | "requeued:stale" | "aborted:shutdown" => {
                if let Some(open) = attempts.last_mut().filter(|attempt| attempt.ended_at.is_none()) {
                    open.ended_at = Some(event.at);
                    open.ended.clone_from(&event.event);
                    open.error = said(&told);
                }
            }
            _ => {}
        }
    }
    attempts.reverse();
    attempts
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn events(all: &[(&str, &str)]) -> Vec<Event> {
        let event = |(index, (name, data)): (usize, &(&str, &str))| Event {
            seq: u32::try_from(index).unwrap() + 1,
            at: Timestamp::from_second(1_000 + i64::try_from(index).unwrap()).unwrap(),
            event: (*name).to_owned(),
            data: RawValue::from_string((*data).to_owned()).unwrap(),
        };
        all.iter().enumerate().map(event).collect()
    }

    #[test]
    fn attempts_are_told_newest_first_with_how_they_ended() {
        let events = events(&[
            ("created", "{}"),
            ("processing", r#"{"attempt":1,"worker":"w"}"#),
            ("requeued:retry", r#"{"code":"EXEC_FAILED","message":"exit 1"}"#),
            ("processing", r#"{"attempt":2,"worker":"w"}"#),
        ]);
        let attempts = attempts(&events);
        let told: Vec<_> =
            attempts.iter().map(|one| (one.number.as_str(), one.badge(), one.error.as_deref())).collect();
        assert_eq!(told, [("2", "processing", None), ("1", "failed", Some("EXEC_FAILED: exit 1"))]);
        assert_eq!(attempts[1].took(), "1 s");
    }

    #[test]
    fn progress_is_drawn_together_and_own_events_keep_their_data() {
        let events = events(&[
            ("created", r#"{"kind":"k"}"#),
            ("progress", r#"{"progress":3}"#),
            ("progress", r#"{"progress":70}"#),
            ("thumb", r#"{"n":12345678901234567890}"#),
        ]);
        let lines = lines(&events);
        let told: Vec<_> = lines.iter().map(|line| (line.what.as_str(), line.text.as_str())).collect();
        assert_eq!(told, [("created", ""), ("progress", "to 70 %, in 2 steps"), ("thumb", "")]);
        assert!(lines[2].data.as_ref().is_some_and(|data| data.to_string().contains("12345678901234567890")));
        assert!(lines[0].data.is_none());
    }
}
