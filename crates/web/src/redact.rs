//! What not everybody may see: values under telling names, such as `password`.
//!
//! Payloads, results, events and records are shown to everybody who may read, and people put secrets into them. Who may
//! not operate sees `[redacted]` in the place of a value whose name contains one of the words of `web.redact`. All else
//! stays as it was written, numbers of any size included: the text is rewritten, not parsed into numbers and back.

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use stargate_queue::job::Json;

/// The names that are redacted unless something else is said.
pub const NAMES: [&str; 5] = ["password", "token", "secret", "authorization", "api_key"];
/// What stands in the place of a value.
const REDACTED: &str = "\"[redacted]\"";
/// Deeper than this nothing is shown: looking for names costs a look at all below for every level.
const DEPTH_MAX: usize = 64;

/// Knows the names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Redactor {
    words: Vec<String>,
}

impl Redactor {
    /// Hides values whose names contain one of these words, in whatever case.
    pub(crate) fn new(words: &[String]) -> Self {
        let words = words.iter().map(|word| word.trim().to_lowercase()).filter(|word| !word.is_empty());
        Self { words: words.collect() }
    }

    /// Whether anything is hidden at all.
    pub(crate) fn hides(&self) -> bool {
        !self.words.is_empty()
    }

    fn is_telling(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.words.iter().any(|word| name.contains(word.as_str()))
    }

    /// The text of a value as it may be shown; none if all of it may.
    fn rewritten(&self, text: &str) -> Option<String> {
        // Names may be written with escapes, so only a text without any can be passed unread.
        if !text.contains('\\') && !self.is_telling(text) {
            return None;
        }
        let mut shown = String::with_capacity(text.len());
        self.write(text, &mut shown, 0);
        Some(shown)
    }

    fn write(&self, text: &str, shown: &mut String, depth: usize) {
        let text = text.trim();
        let is_nested = text.starts_with(['{', '[']);
        if is_nested && depth >= DEPTH_MAX {
            shown.push_str(REDACTED);
            return;
        }
        match text.as_bytes().first() {
            Some(b'{') => match serde_json::from_str::<Fields<'_>>(text) {
                Ok(Fields(fields)) => self.write_fields(&fields, shown, depth),
                Err(_) => shown.push_str(REDACTED),
            },
            Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(text) {
                Ok(items) => {
                    shown.push('[');
                    for (index, item) in items.iter().enumerate() {
                        if index > 0 {
                            shown.push(',');
                        }
                        self.write(item.get(), shown, depth + 1);
                    }
                    shown.push(']');
                }
                Err(_) => shown.push_str(REDACTED),
            },
            _ => shown.push_str(text),
        }
    }

    fn write_fields(&self, fields: &[(String, &RawValue)], shown: &mut String, depth: usize) {
        shown.push('{');
        for (index, (name, value)) in fields.iter().enumerate() {
            if index > 0 {
                shown.push(',');
            }
            // A text as a value cannot fail to be written as JSON.
            shown.push_str(&Value::from(name.as_str()).to_string());
            shown.push(':');
            match self.is_telling(name) && value.get() != "null" {
                true => shown.push_str(REDACTED),
                false => self.write(value.get(), shown, depth + 1),
            }
        }
        shown.push('}');
    }
}

/// What somebody may see.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sight<'a> {
    /// Everything.
    Whole,
    /// All but values under telling names.
    Without(&'a Redactor),
}

impl Sight<'_> {
    /// A value as it may be shown.
    pub(crate) fn json(self, json: Json) -> Json {
        let Self::Without(redactor) = self else { return json };
        let Some(shown) = redactor.rewritten(json.get()) else { return json };
        RawValue::from_string(shown).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }

    /// The same for a value that was parsed.
    pub(crate) fn value(self, value: Value) -> Value {
        let Self::Without(redactor) = self else { return value };
        let Some(shown) = redactor.rewritten(&value.to_string()) else { return value };
        serde_json::from_str(&shown).unwrap_or_default()
    }
}

/// The fields of an object in their order, unread.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let redactor = Redactor::new(&NAMES.map(str::to_owned));
        let json = RawValue::from_string(text.to_owned()).unwrap();
        Sight::Without(&redactor).json(json).get().to_owned()
    }

    #[test]
    fn values_under_telling_names_are_hidden_at_any_depth_and_in_any_case() {
        assert_eq!(shown(r#"{"a":1,"Password":"x"}"#), r#"{"a":1,"Password":"[redacted]"}"#);
        assert_eq!(shown(r#"[{"b":[{"DB_SECRET":{"c":1}}]}]"#), r#"[{"b":[{"DB_SECRET":"[redacted]"}]}]"#);
        assert_eq!(
            shown(r#"{"api_key":null,"apiToken":["x"]}"#),
            r#"{"api_key":null,"apiToken":"[redacted]"}"#
        );
        assert_eq!(shown("{\"p\\u0061ssword\":\"x\"}"), r#"{"password":"[redacted]"}"#);
    }

    #[test]
    fn all_else_stays_as_it_was_written() {
        for text in ["1", "null", "\"password\"", r#"{"n":12345678901234567890123,"f":1.10e5}"#, "[ 1, 2 ]"] {
            assert_eq!(shown(text), text);
        }
        let mixed = r#"{"n":12345678901234567890123,"token":1,"f":1.10e5,"t":"a\nb","d":1,"d":2}"#;
        let expected =
            r#"{"n":12345678901234567890123,"token":"[redacted]","f":1.10e5,"t":"a\nb","d":1,"d":2}"#;
        assert_eq!(shown(mixed), expected);
    }

    #[test]
    fn depth_costs_neither_the_stack_nor_a_secret() {
        let deep = format!("{}{{\"secret\":\"x\"}}{}", "[".repeat(100_000), "]".repeat(100_000));
        let shown = shown(&deep);
        assert!(!shown.contains("\"x\"") && shown.len() < 1000, "{}", shown.len());
    }

    #[test]
    fn without_words_nothing_is_hidden() {
        let redactor = Redactor::new(&[" ".to_owned()]);
        assert!(!redactor.hides());
        let json = RawValue::from_string(r#"{"password":"x\n"}"#.to_owned()).unwrap();
        assert_eq!(Sight::Without(&redactor).json(json).get(), r#"{"password":"x\n"}"#);
        assert_eq!(
            Sight::Whole.value(serde_json::json!({ "password": 1 })),
            serde_json::json!({ "password": 1 })
        );
    }
}
