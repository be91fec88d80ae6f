//! Takes secrets out of what is to leave the house (INV-8).
//!
//! Three nets, one behind the other: values whose names tell what they are; texts that have the form of a secret; and the
//! very values that the environment and the configuration file of this machine hold under such names, wherever they turn up.

use serde_json::Value;
use stargate_access::audit::{REDACTED, SECRET_NAMES};

/// Words in the name of a variable or key whose value is a secret, beside those of the audit.
const MORE_NAMES: [&str; 6] = ["passwd", "credential", "private", "access_key", "cookie", "dsn"];
/// What stands before a secret in a header.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];
/// The beginning of a token of ours.
const TOKEN: &str = "sg_";
/// Shorter values would take common words out of every text.
const KNOWN_BYTES_MIN: usize = 5;

/// What is known to be secret here.
#[derive(Debug, Default)]
pub(super) struct Scrubber {
    known: Vec<String>,
}

impl Scrubber {
    /// Knows the secrets of an environment and of a configuration file.
    pub(super) fn new(
        environment: impl Iterator<Item = (String, String)>,
        configuration: Option<&toml::Table>,
    ) -> Self {
        let mut scrubber = Self::default();
        for (_, value) in environment.filter(|(name, value)| is_secret(name) || value.contains("://")) {
            scrubber.learn(&value);
        }
        if let Some(table) = configuration {
            scrubber.learn_table(table, false);
        }
        // The longest first: one secret may be part of another.
        scrubber.known.sort_by_key(|text| std::cmp::Reverse(text.len()));
        scrubber.known.dedup();
        scrubber
    }

    /// Knows one more secret. Of a URL only its password is one.
    pub(super) fn learn(&mut self, text: &str) {
        if let Ok(url) = url::Url::parse(text)
            && url.has_host()
        {
            if let Some(password) = url.password() {
                self.known.push(password.to_owned());
            }
            return;
        }
        // What names a variable is not the secret itself.
        if text.len() >= KNOWN_BYTES_MIN && !text.starts_with("${env:") && !text.starts_with('/') {
            self.known.push(text.to_owned());
        }
    }

    fn learn_table(&mut self, table: &toml::Table, all: bool) {
        for (name, value) in table {
            // What a program is given as environment is kept like a secret everywhere.
            let secret = all || is_secret(name) || name == "env";
            self.learn_value(value, secret);
        }
    }

    fn learn_value(&mut self, value: &toml::Value, secret: bool) {
        match value {
            toml::Value::String(text) if secret || text.contains("://") => self.learn(text),
            toml::Value::Table(table) => self.learn_table(table, secret),
            toml::Value::Array(items) => items.iter().for_each(|item| self.learn_value(item, secret)),
            _ => {}
        }
    }

    /// JSON without secrets, at any depth.
    pub(super) fn value(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields.iter_mut() {
                    match is_secret(name) && !value.is_null() && !value.is_boolean() && !value.is_number() {
                        true => *value = REDACTED.into(),
                        false => self.value(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::String(text) => *text = self.text(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A text without secrets.
    pub(super) fn text(&self, text: &str) -> String {
        let mut clean = text.to_owned();
        for secret in &self.known {
            clean = clean.replace(secret, REDACTED);
        }
        clean.lines().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().chain(&MORE_NAMES).any(|secret| name.contains(secret))
}

/// A line without what has the form of a secret.
fn line(text: &str) -> String {
    named(&in_urls(&tokens(&schemed(text))))
}

/// `Bearer abc` as `Bearer [redacted]`.
fn schemed(text: &str) -> String {
    let mut clean = text.to_owned();
    for scheme in SCHEMES {
        let mut from = 0;
        while let Some(at) =
            clean[from..].to_ascii_lowercase().find(scheme).map(|at| from + at + scheme.len())
        {
            from = replaced(&mut clean, at);
        }
    }
    clean
}

/// Tokens of ours.
fn tokens(text: &str) -> String {
    let mut clean = text.to_owned();
    let mut from = 0;
    while let Some(at) = clean[from..].find(TOKEN).map(|at| from + at) {
        let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        let end = clean[at..].find(ends).map_or(clean.len(), |end| at + end);
        // The public part alone names a token and is no secret.
        if end - at > 30 {
            clean.replace_range(at..end, REDACTED);
        }
        from = (at + TOKEN.len()).min(clean.len());
    }
    clean
}

/// `scheme://user:password@host` without the password.
fn in_urls(text: &str) -> String {
    let mut clean = text.to_owned();
    let mut from = 0;
    while let Some(at) = clean[from..].find("://").map(|at| from + at + 3) {
        let end = clean[at..].find(|c: char| c.is_whitespace() || "/\"'<>".contains(c));
        let end = end.map_or(clean.len(), |end| at + end);
        if let Some(sign) = clean[at..end].rfind('@').map(|sign| at + sign)
            && let Some(colon) = clean[at..sign].find(':').map(|colon| at + colon)
        {
            clean.replace_range(colon + 1..sign, "***");
        }
        from = at;
    }
    clean
}

/// `password=abc`, `"token": "abc"` and the like.
fn named(text: &str) -> String {
    let mut clean = text.to_owned();
    for name in SECRET_NAMES.iter().chain(&MORE_NAMES) {
        let mut from = 0;
        while let Some(at) = clean[from..].to_ascii_lowercase().find(name).map(|at| from + at + name.len()) {
            from = match value_after(&clean, at) {
                Some(value) => replaced(&mut clean, value),
                None => at,
            };
        }
    }
    clean
}

/// Where the value begins that a name is followed by: after the rest of the name, a sign and quotes.
fn value_after(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let name_end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c)))?;
    let sign = rest[name_end..].find(['=', ':']).filter(|sign| {
        rest[name_end..name_end + sign].chars().all(|c| c == ' ' || c == '"' || c == '\\' || c == '\'')
    })?;
    let after = name_end + sign + 1;
    let start = rest[after..].find(|c: char| !(c == ' ' || c == '"' || c == '\\' || c == '\''))?;
    Some(at + after + start)
}

/// Replaces the word that begins at a place; answers where to go on.
fn replaced(text: &mut String, at: usize) -> usize {
    let end = text[at..].find(|c: char| c.is_whitespace() || "\"',;&}\\".contains(c));
    let end = end.map_or(text.len(), |end| at + end);
    if end > at {
        text.replace_range(at..end, REDACTED);
        return at + REDACTED.len();
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str) -> String {
        Scrubber::default().text(text)
    }

    #[test]
    fn what_has_the_form_of_a_secret_is_taken_out() {
        assert_eq!(
            clean("GET / Authorization: Bearer abc.def x"),
            "GET / Authorization: [redacted] [redacted] x"
        );
        assert_eq!(clean("password=hunter2 user=ann"), "password=[redacted] user=ann");
        assert_eq!(clean(r#"{"api_key": "hunter2", "n": 1}"#), r#"{"api_key": "[redacted]", "n": 1}"#);
        assert_eq!(clean("postgres://ann:hunter2@db/app"), "postgres://ann:***@db/app");
        assert_eq!(clean("DB_PASSWORD: hunter2"), "DB_PASSWORD: [redacted]");
        let token = format!("sg_{}_{}", "a".repeat(12), "b".repeat(43));
        assert_eq!(clean(&format!("x {token} y")), "x [redacted] y");
        assert_eq!(clean("the token was refused\nsecond line"), "the token was refused\nsecond line");
        assert_eq!(clean("https://h/a?b=c"), "https://h/a?b=c");
    }

    #[test]
    fn what_is_known_here_is_taken_out_wherever_it_turns_up() {
        let configuration: toml::Table = toml::from_str(
            "store = \"postgres://u:swordfish@h/d\"\n[kinds.a]\nenv = { PLAIN = \"opensesame\", X = \"1\" }\n\
             [webhooks.secrets]\nteam = \"correct-horse\"\nother = \"${env:OTHER}\"\n[leader]\nredis_url = \"redis://:battery1@h\"\n",
        )
        .unwrap();
        let environment = [("MY_TOKEN", "tulip-field"), ("HOME", "/home/ann"), ("X_SECRET", "abc")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let scrubber = Scrubber::new(environment.into_iter(), Some(&configuration));
        let text = "swordfish opensesame correct-horse battery1 tulip-field /home/ann abc 1 OTHER";
        assert_eq!(
            scrubber.text(text),
            "[redacted] [redacted] [redacted] [redacted] [redacted] /home/ann abc 1 OTHER"
        );
    }

    #[test]
    fn names_tell_in_json_at_any_depth() {
        let mut value =
            serde_json::json!({ "a": [{ "Password": "x", "token": 3 }], "b": { "apiToken": ["y"] } });
        Scrubber::default().value(&mut value);
        assert_eq!(
            value,
            serde_json::json!({ "a": [{ "Password": REDACTED, "token": 3 }], "b": { "apiToken": REDACTED } })
        );
    }
}
