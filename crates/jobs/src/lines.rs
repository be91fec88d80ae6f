//! The lines a program writes on its stdout, and what they mean.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use stargate_queue::event;
use stargate_queue::job::{Json, PAYLOAD_BYTES_MAX, check_json_size};

/// The longest line that is read: the largest result with its envelope.
pub(crate) const LINE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 1024;

/// What a line says.
#[derive(Debug, Clone)]
pub(crate) enum Said {
    /// `{"progress":40}`
    Progress(u8),
    /// `{"event":"name","data":{}}`
    Event(String, Value),
    /// `{"result":{}}`
    Result(Json),
    /// A result that cannot be kept, and why. Losing it in silence would make a wrong success of it.
    BadResult(String),
}

/// Splits a stream into lines without ever holding more than one of bounded length.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    line: Vec<u8>,
    /// The current line is too long; nothing of it is kept until it ends.
    over: bool,
}

impl Splitter {
    /// Takes the next bytes and adds what the completed lines say, in order.
    pub(crate) fn push(&mut self, mut bytes: &[u8], said: &mut Vec<Said>) {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.take(&bytes[..end], said);
            self.finish(said);
            bytes = &bytes[end + 1..];
        }
        self.take(bytes, said);
    }

    /// The stream ended: what is left is a line too.
    pub(crate) fn finish(&mut self, said: &mut Vec<Said>) {
        if !self.over {
            said.extend(read(&self.line));
        }
        self.over = false;
        self.line.clear();
    }

    fn take(&mut self, bytes: &[u8], said: &mut Vec<Said>) {
        if self.over {
            return;
        }
        let room = LINE_BYTES_MAX - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() <= room {
            return;
        }
        if self.line.trim_ascii_start().starts_with(b"{\"result\"") {
            said.push(Said::BadResult(format!("is on a line of more than {LINE_BYTES_MAX} bytes")));
        } else {
            tracing::debug!(
                bytes_max = LINE_BYTES_MAX,
                "a line of the program's output is too long, ignored"
            );
        }
        self.over = true;
        self.line = Vec::new();
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    progress: Option<f64>,
    event: Option<String>,
    data: Option<Value>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

/// What one line says. A line may say several things; one that is no JSON object says nothing.
fn read(line: &[u8]) -> Vec<Said> {
    let line = line.trim_ascii();
    if !line.starts_with(b"{") {
        return ignored(line);
    }
    let Ok(parsed) = serde_json::from_slice::<Line<'_>>(line) else { return ignored(line) };
    let mut said = Vec::new();
    if let Some(percent) = parsed.progress.filter(|p| p.is_finite()) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=100")]
        said.push(Said::Progress(percent.clamp(0.0, 100.0) as u8));
    }
    if let Some(name) = parsed.event.as_deref().and_then(event_name) {
        said.push(Said::Event(name, event_data(parsed.data)));
    }
    if let Some(result) = parsed.result {
        said.push(match check_json_size("result", result.get()) {
            Ok(()) => Said::Result(result.to_owned()),
            Err(error) => Said::BadResult(error.to_string()),
        });
    }
    said
}

fn ignored(line: &[u8]) -> Vec<Said> {
    if !line.is_empty() {
        tracing::debug!(bytes = line.len(), "a line of the program's output is no report, ignored");
    }
    Vec::new()
}

/// Names that the engine itself writes: a program cannot claim in the timeline that its job was cancelled.
const RESERVED: [&str; 10] = [
    event::CREATED,
    event::PROCESSING,
    event::PROGRESS,
    event::REQUEUED_STALE,
    event::REQUEUED_RETRY,
    event::REQUEUED_OPERATOR,
    event::ABORTED_SHUTDOWN,
    event::DONE,
    event::FAILED,
    event::CANCELLED,
];

fn event_name(name: &str) -> Option<String> {
    let mut name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
    name.truncate(name.floor_char_boundary(event::NAME_BYTES_MAX));
    if name.is_empty() || RESERVED.contains(&name.as_str()) {
        tracing::debug!(name, "an event of the program has no name of its own, ignored");
        return None;
    }
    Some(name)
}

/// Event data is an object, and one that both stores can keep.
fn event_data(data: Option<Value>) -> Value {
    let data = match data {
        Some(data @ Value::Object(_)) => data,
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(other) => serde_json::json!({ "value": other }),
    };
    match check_json_size("data", &data.to_string()) {
        Ok(()) => data,
        Err(error) => serde_json::json!({ "refused": error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> Vec<String> {
        let (mut splitter, mut said) = (Splitter::default(), Vec::new());
        for chunk in chunks {
            splitter.push(chunk, &mut said);
        }
        splitter.finish(&mut said);
        said.iter().map(|said| format!("{said:?}")).collect()
    }

    #[test]
    fn reports_are_read_and_everything_else_is_ignored() {
        let said = split(&[b"hello\n{\"progress\":40}\r\n[1]\n{\"progress\":\"x\"}\n{}\n{\"event\":\"a:b\",\"data\":{\"n\":1}}\n",
            b"{\"result\":{\"big\":12345678901234567890123}}\n\n{broken\n\xFF\xFE\n"]);
        assert_eq!(said.len(), 3, "{said:?}");
        assert_eq!(said[0], "Progress(40)");
        assert!(said[1].contains("a:b") && said[1].contains("Number(1)"), "{}", said[1]);
        assert!(said[2].contains("12345678901234567890123"), "{}", said[2]);
    }

    #[test]
    fn a_line_may_come_in_pieces_and_without_a_newline_at_the_end() {
        assert_eq!(split(&[b"{\"prog", b"ress\":", b"7}\n{\"progress\":8}"]), ["Progress(7)", "Progress(8)"]);
    }

    #[test]
    fn percentages_out_of_range_are_clamped() {
        assert_eq!(
            split(&[b"{\"progress\":-5}\n{\"progress\":1e9}\n{\"progress\":33.9}\n"]),
            ["Progress(0)", "Progress(100)", "Progress(33)"]
        );
    }

    #[test]
    fn a_line_without_end_takes_no_memory_and_the_next_one_is_read() {
        let (mut splitter, mut said) = (Splitter::default(), Vec::new());
        for _ in 0..100 {
            splitter.push(&[b'x'; 65536], &mut said);
            assert!(splitter.line.capacity() <= 2 * LINE_BYTES_MAX);
        }
        splitter.push(b"\n{\"progress\":1}\n", &mut said);
        assert!(matches!(said[..], [Said::Progress(1)]), "{said:?}");
    }

    #[test]
    fn a_result_that_cannot_be_kept_is_told_and_not_lost() {
        let long = format!("{{\"result\":\"{}\"}}\n", "x".repeat(LINE_BYTES_MAX));
        assert!(split(&[long.as_bytes()])[0].starts_with("BadResult"));
        assert!(split(&[b"{\"result\":\"a\\u0000\"}\n"])[0].starts_with("BadResult"));
    }

    #[test]
    fn event_data_is_always_an_object_that_both_stores_can_keep() {
        assert!(split(&[b"{\"event\":\"e\",\"data\":[1]}\n"])[0].contains("value"));
        assert!(split(&[b"{\"event\":\"e\",\"data\":{\"a\":\"\\u0000\"}}\n"])[0].contains("refused"));
        assert!(split(&[b"{\"event\":\" \\u0000\\n \"}\n"]).is_empty());
        assert!(split(&[b"{\"event\":\"done\"}\n"]).is_empty(), "the engine's own name");
    }
}
