//! Who did what: a row for every action that an operator takes.
//!
//! # Rules
//!
//! 1. An action is begun before it is carried out, and finished when its outcome is known: a crash in between leaves an
//!    action without an outcome, never an outcome without an action.
//! 2. When `begin` has answered, the row survives any crash. Its time is the store's (INV-6).
//! 3. Rows are only ever added: `finish` enters the outcome once, a second one changes nothing, and nothing else changes or
//!    removes a row but the purge, beyond its retention (400 days by default).
//! 4. What is written holds no secret: values under telling names ([`SECRET_NAMES`]) and texts that look like a token are
//!    replaced, and everything has a bound; what is too long is cut, not refused (INV-7, INV-8).
//! 5. `actions` is a page, newest first, by id. Whoever leads or not: auditing is not guarded by an epoch.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::grant::Role;
use crate::token::{PREFIX, TokenId};

/// The largest page.
pub const PAGE_MAX: u32 = 1000;
/// How long the names of actors, actions and outcomes may be.
pub const NAME_BYTES_MAX: usize = 200;
/// How long a target may be.
pub const TARGET_BYTES_MAX: usize = 500;
/// How large the detail may be: 4 KiB.
pub const DETAIL_BYTES_MAX: usize = 4 << 10;
/// Values whose names contain one of these, in whatever case, are not kept.
pub const SECRET_NAMES: [&str; 5] = ["password", "token", "secret", "authorization", "api_key"];
/// What stands in their place.
pub const REDACTED: &str = "[redacted]";
/// The outcome of an action that did what it was to do; others are the codes of errors.
pub const OK: &str = "ok";

/// Where actions are kept, shared by everything in the process.
pub type SharedAudit = Arc<dyn Audit>;

/// Where actions are kept. The module text has the rules.
#[async_trait]
pub trait Audit: Send + Sync + fmt::Debug + 'static {
    /// Enters an action that is about to be carried out.
    async fn begin(&self, action: NewAction) -> Result<ActionId>;

    /// Enters how it ended: [`OK`] or the code of an error.
    async fn finish(&self, id: ActionId, outcome: &str) -> Result<()>;

    /// A page of actions, newest first.
    async fn actions(&self, filter: ActionFilter) -> Result<Vec<ActionRow>>;
}

/// Names an action; rises with time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActionId(pub i64);

impl fmt::Display for ActionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ActionId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The way an action came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A request to the API.
    Api,
    /// A form of the page.
    Page,
    /// A command that opened the store itself.
    Cli,
}

impl Source {
    /// Every source.
    pub const ALL: [Self; 3] = [Self::Api, Self::Page, Self::Cli];

    /// The name in JSON and in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Page => "page",
            Self::Cli => "cli",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Source {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|source| source.as_str() == name);
        known.ok_or_else(|| Error::invalid("source", format!("{name:?} is none of api, page, cli")))
    }
}

/// An action that is about to be carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAction {
    /// Who: the name of a token, `local` without one, `cli:USER@HOST` for a command.
    pub actor: String,
    /// The token that let them in, if it was one.
    pub token: Option<TokenId>,
    /// What they were allowed to do.
    pub role: Role,
    /// What: `job.retry`, `queue.pause` and so on.
    pub action: String,
    /// To what: a job's id, the name of a queue.
    pub target: String,
    /// The particulars: a filter, a new value. See rule 4.
    pub detail: Value,
    /// The id of the request, to find it in the log.
    pub request_id: Option<String>,
    /// Which way it came.
    pub source: Source,
}

impl NewAction {
    /// The action as it is kept: without secrets and within the bounds. Stores do this themselves.
    #[must_use]
    pub fn fit(mut self) -> Self {
        redact(&mut self.detail);
        let bytes = self.detail.to_string().len();
        if bytes > DETAIL_BYTES_MAX {
            self.detail = serde_json::json!({ "omitted_bytes": bytes });
        }
        self.actor = cut(&self.actor, NAME_BYTES_MAX);
        self.action = cut(&self.action, NAME_BYTES_MAX);
        self.target = cut(&self.target, TARGET_BYTES_MAX);
        self.request_id = self.request_id.map(|id| cut(&id, NAME_BYTES_MAX));
        self
    }
}

/// An outcome as it is kept.
pub fn fit_outcome(outcome: &str) -> String {
    cut(outcome, NAME_BYTES_MAX)
}

/// Which actions to list; all that is given must fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionFilter {
    /// Only of this actor.
    pub actor: Option<String>,
    /// Only this action, or all below a prefix that ends in `*` (`job.*`).
    pub action: Option<String>,
    /// Only to this target.
    pub target: Option<String>,
    /// Only actions with a smaller id: the keyset for the next page.
    pub before: Option<ActionId>,
    /// Page size, 1 to [`PAGE_MAX`].
    pub limit: u32,
}

impl Default for ActionFilter {
    fn default() -> Self {
        Self { actor: None, action: None, target: None, before: None, limit: 50 }
    }
}

impl ActionFilter {
    /// Refuses impossible values, naming the field.
    pub fn check(&self) -> Result<()> {
        if !(1..=PAGE_MAX).contains(&self.limit) {
            let problem = format!("is {}; allowed are 1 to {PAGE_MAX}", self.limit);
            return Err(Error::invalid("limit", problem));
        }
        let texts = [("actor", &self.actor), ("action", &self.action), ("target", &self.target)];
        match texts.into_iter().find(|(_, text)| text.as_ref().is_some_and(|text| text.contains('\0'))) {
            Some((field, _)) => {
                Err(Error::invalid(field, "contains the character U+0000, which no action has"))
            }
            None => Ok(()),
        }
    }
}

/// An action as the store knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionRow {
    /// Its name.
    pub id: ActionId,
    /// When it was begun.
    pub at: Timestamp,
    /// Who.
    pub actor: String,
    /// The token that let them in, if it was one.
    pub token: Option<TokenId>,
    /// What they were allowed to do.
    pub role: Role,
    /// What.
    pub action: String,
    /// To what.
    pub target: String,
    /// The particulars.
    pub detail: Value,
    /// The id of the request.
    pub request_id: Option<String>,
    /// Which way it came.
    pub source: Source,
    /// When it was finished; absent when it is under way, or its process died.
    pub finished_at: Option<Timestamp>,
    /// How it ended: [`OK`] or the code of an error.
    pub outcome: Option<String>,
}

/// Takes out what is secret, at any depth.
fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                let name = name.to_ascii_lowercase();
                if SECRET_NAMES.iter().any(|secret| name.contains(secret)) && !value.is_null() {
                    *value = REDACTED.into();
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::String(text) => *text = without_tokens(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text without what looks like a token.
fn without_tokens(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(PREFIX) {
        let (before, found) = rest.split_at(at);
        let end = found.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(found.len());
        clean.push_str(before);
        // The public part alone names a token and is no secret; it is shorter than this.
        clean.push_str(if end > 2 * crate::token::ID_CHARS { REDACTED } else { &found[..end] });
        rest = &found[end..];
    }
    clean.push_str(rest);
    clean
}

/// A text without tokens and control characters, cut to so many bytes.
fn cut(text: &str, bytes_max: usize) -> String {
    let clean: String = without_tokens(text)
        .chars()
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if clean.len() <= bytes_max {
        return clean;
    }
    let end = clean.floor_char_boundary(bytes_max.saturating_sub('…'.len_utf8()));
    format!("{}…", &clean[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::Grant;
    use crate::token::NewToken;

    fn action(detail: Value) -> NewAction {
        NewAction {
            actor: "ci".to_owned(),
            token: None,
            role: Role::Operate,
            action: "job.retry".to_owned(),
            target: "7".to_owned(),
            detail,
            request_id: None,
            source: Source::Api,
        }
    }

    #[test]
    fn what_is_secret_by_its_name_is_not_kept_at_any_depth() {
        let detail = serde_json::json!({
            "a": [{ "Password": "hunter2", "DB_PASSWORD": "hunter2", "x": { "apiToken": ["hunter2"] } }],
            "Authorization": { "scheme": "hunter2" }, "api_key": 1, "plain": "kept", "secret": null,
        });
        let kept = action(detail).fit().detail.to_string();
        assert!(!kept.contains("hunter2") && kept.contains("\"plain\":\"kept\""), "{kept}");
        assert!(kept.contains("\"secret\":null"), "{kept}");
    }

    #[test]
    fn a_token_is_kept_nowhere_whatever_it_is_called() {
        let (token, text) = NewToken::issue("ci", vec![Grant::EVERYTHING], None).unwrap();
        let text = text.reveal();
        let mut given = action(serde_json::json!({ "note": format!("x {text}, y"), "list": [text] }));
        given.target = format!("job {text}");
        given.actor = text.to_owned();
        let kept = format!("{:?}", given.fit());
        assert!(!kept.contains(&text[20..]), "{kept}");
        let named = action(serde_json::json!({ "id": format!("sg_{}", token.id) })).fit();
        assert_eq!(named.detail["id"], format!("sg_{}", token.id), "the public part may be named");
    }

    #[test]
    fn what_is_too_long_is_cut_and_not_refused() {
        let mut given = action(serde_json::json!({ "x": "y".repeat(DETAIL_BYTES_MAX) }));
        given.target = "ä".repeat(TARGET_BYTES_MAX);
        given.actor = "a\n\0b".to_owned();
        let kept = given.fit();
        assert_eq!(kept.detail, serde_json::json!({ "omitted_bytes": DETAIL_BYTES_MAX + 8 }));
        assert!(kept.target.len() <= TARGET_BYTES_MAX && kept.target.ends_with('…'), "{}", kept.target);
        assert_eq!(kept.actor, "a\u{fffd}\u{fffd}b");
        assert_eq!(kept.clone().fit(), kept, "what fits stays");
    }
}
