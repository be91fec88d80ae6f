//! Takes secrets out of what a tap says (INV-8).

use serde_json::Value;
use stargate_directive::source::Garbled;

use crate::problem;

/// Shorter values are too likely to be part of innocent words.
const SECRET_BYTES_MIN: usize = 4;
/// The shortest line of a secret of several lines that is looked for by itself.
const LINE_BYTES_MIN: usize = 12;
/// What is looked at of a line that is no record, before it is cut: a secret must not be cut in two.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// What stands in place of a secret.
const MASK: &str = "***";

/// Settings whose values are secret even if they are written out in the directive.
const SECRET_NAMES: [&str; 8] =
    ["password", "passwd", "secret", "token", "api_key", "apikey", "private_key", "authorization"];

/// What must not be seen, longest first.
#[derive(Default)]
pub(super) struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl Secrets {
    /// Adds a secret in all the ways in which a program may print it.
    pub(super) fn add(&mut self, secret: &str) {
        let quoted = Value::from(secret).to_string();
        let quoted = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(&quoted);
        let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        let ways = [secret, quoted, &encoded, &encoded.replace('+', "%20")].map(str::to_owned);
        let lines = secret.lines().filter(|line| line.len() >= LINE_BYTES_MIN).map(str::to_owned);
        for way in ways.into_iter().chain(lines) {
            if way.len() >= SECRET_BYTES_MIN && !self.0.contains(&way) {
                self.0.push(way);
            }
        }
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    }

    /// Adds the texts of a setting whose name says that they are secret.
    pub(super) fn add_named(&mut self, name: &str, value: &Value) {
        match value {
            Value::String(text) if is_secret(name) => self.add(text),
            Value::Object(fields) => fields.iter().for_each(|(name, value)| self.add_named(name, value)),
            Value::Array(values) => values.iter().for_each(|value| self.add_named(name, value)),
            _ => {}
        }
    }

    /// A line that is no record, without them.
    pub(super) fn garbled(&self, line: &[u8], what: &str) -> Garbled {
        let head = String::from_utf8_lossy(&line[..line.len().min(HEAD_BYTES_MAX)]);
        problem::garbled(self.redact(&head).as_bytes(), format!("the line {what}"))
    }

    /// The text without them.
    pub(super) fn redact(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| {
            if text.contains(secret.as_str()) { text.replace(secret.as_str(), MASK) } else { text }
        })
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_in_all_the_ways_they_are_printed() {
        let mut secrets = Secrets::default();
        secrets.add("p@ss \"word\"");
        secrets.add("p@ss");
        secrets.add("abc"); // too short
        secrets.add("-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n");
        assert_eq!(
            secrets.redact(r#"a p@ss "word" b p@ss \"word\" c p%40ss%20%22word%22 d p@ss abc"#),
            "a *** b *** c *** d *** abc"
        );
        assert_eq!(secrets.redact("key is MIIEvQIBADANBgkq here"), "key is *** here");
        assert!(!format!("{secrets:?}").contains("p@ss"));
    }

    #[test]
    fn settings_that_are_called_secret_are() {
        let mut secrets = Secrets::default();
        let config = serde_json::json!({"user": "alice", "DB_Password": "hunter22",
            "headers": [{"Authorization": "Bearer xyz"}], "auth_token": 1234});
        secrets.add_named("", &config);
        assert_eq!(secrets.redact("alice hunter22 Bearer xyz 1234"), "alice *** *** 1234");
    }
}
