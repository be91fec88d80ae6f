//! What a tap says on one line.

use serde::Deserialize;
use serde_json::value::RawValue;
use stargate_queue::job::Json;

/// A message of a tap, as far as it matters here.
#[derive(Debug)]
pub(super) enum Message {
    /// A stream and what its records are known by.
    Schema {
        /// The stream.
        stream: String,
        /// May be empty.
        keys: Vec<String>,
    },
    /// A record of a stream.
    Record {
        /// The stream.
        stream: String,
        /// As it came.
        record: Json,
    },
    /// Where the tap could go on after all it has said so far.
    State(serde_json::Value),
    /// Records are in files beside, not in the lines.
    Batch {
        /// The stream.
        stream: String,
    },
    /// A version of a stream, or something of a tap's own. The contract allows to pass it over.
    Other,
}

#[derive(Deserialize)]
struct Line<'l> {
    #[serde(rename = "type")]
    kind: String,
    stream: Option<String>,
    key_properties: Option<Vec<String>>,
    #[serde(borrow)]
    record: Option<&'l RawValue>,
    value: Option<serde_json::Value>,
}

/// Reads a line that is not blank, or says what is wrong with it.
pub(super) fn read(line: &[u8]) -> Result<Message, String> {
    let parsed: Line<'_> =
        serde_json::from_slice(line).map_err(|error| format!("is no Singer message: {error}"))?;
    let lacks = |what: &str| format!("is a Singer message of type {} without \"{what}\"", parsed.kind);
    let stream = || parsed.stream.clone().ok_or_else(|| lacks("stream"));
    match parsed.kind.to_ascii_uppercase().as_str() {
        "SCHEMA" => {
            Ok(Message::Schema { stream: stream()?, keys: parsed.key_properties.unwrap_or_default() })
        }
        "RECORD" => {
            let record = parsed.record.ok_or_else(|| lacks("record"))?;
            Ok(Message::Record { stream: stream()?, record: record.to_owned() })
        }
        // A state of null is where every tap begins: it tells nothing.
        "STATE" => Ok(parsed.value.map_or(Message::Other, Message::State)),
        "BATCH" => Ok(Message::Batch { stream: stream()? }),
        _ => Ok(Message::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_in_any_case_and_unknown_ones_are_passed_over() {
        let record =
            read(br#"{"type":"Record","stream":"a","record":{"n":12345678901234567890123}}"#).unwrap();
        let Message::Record { stream, record } = record else { panic!("{record:?}") };
        assert_eq!((stream.as_str(), record.get()), ("a", r#"{"n":12345678901234567890123}"#), "digits stay");
        let schema = read(br#"{"type":"schema","stream":"a","schema":{},"key_properties":["id"]}"#).unwrap();
        assert!(matches!(schema, Message::Schema { stream, keys } if stream == "a" && keys == ["id"]));
        assert!(matches!(read(br#"{"type":"STATE","value":{"a":1}}"#), Ok(Message::State(v)) if v["a"] == 1));
        for other in [
            r#"{"type":"ACTIVATE_VERSION","stream":"a","version":1}"#,
            r#"{"type":"SOMETHING"}"#,
            r#"{"type":"STATE","value":null}"#,
        ] {
            assert!(matches!(read(other.as_bytes()), Ok(Message::Other)), "{other}");
        }
    }

    #[test]
    fn what_is_no_message_says_why() {
        for (line, why) in [
            ("Traceback (most recent call last):", "no Singer message"),
            ("[1]", "no Singer message"),
            (r#"{"record":{}}"#, "missing field `type`"),
            (r#"{"type":"RECORD","stream":"a"}"#, "without \"record\""),
            (r#"{"type":"RECORD","record":{}}"#, "without \"stream\""),
            (r#"{"type":"RECORD","stream":"a","record":{"x":NaN}}"#, "no Singer message"),
        ] {
            let problem = read(line.as_bytes()).unwrap_err();
            assert!(problem.contains(why), "{line}: {problem}");
        }
    }
}
