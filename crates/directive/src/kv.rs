//! Small values with a version: cursors, partial progress, leases of runs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_queue::job::Json;
use stargate_queue::{Error, Result};
use std::time::Duration;

/// The longest key.
pub const KEY_MAX: usize = 256;

/// Names a value: `tenant/<t>/project/<p>/…`, lower-case, without white space.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

impl Key {
    /// A key of a tenant's project.
    pub fn new(tenant: &str, project: &str, path: &str) -> Result<Self> {
        Self::try_from(format!("tenant/{tenant}/project/{project}/{path}"))
    }

    /// A key below this one: `…/partial`, `…/run`.
    pub fn below(&self, part: &str) -> Result<Self> {
        Self::try_from(format!("{self}/{part}"))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.0
    }
}

impl TryFrom<String> for Key {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let is_part = |part: &&str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b))
        };
        let is_placed =
            matches!(parts.as_slice(), ["tenant", _, "project", _, rest @ ..] if !rest.is_empty());
        if text.len() > KEY_MAX || !is_placed || !parts.iter().all(is_part) {
            let problem = format!(
                "must be tenant/T/project/P/… of at most {KEY_MAX} lower-case letters, digits, '-', '_' and '.', not {text:?}"
            );
            return Err(Error::invalid("key", problem));
        }
        Ok(Self(text))
    }
}

/// The keys of one directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// How far it has come: a [`crate::Cursor`].
    pub cursor: Key,
    /// How far beyond: a [`crate::Partial`].
    pub partial: Key,
    /// Who runs it.
    pub run: Key,
}

impl Keys {
    /// Those of a tenant's directive.
    pub fn of(tenant: &str, project: &str, directive: &str) -> Result<Self> {
        let cursor = Key::new(tenant, project, &format!("directive/{directive}/cursor"))?;
        let run = Key::new(tenant, project, &format!("directive/{directive}/run"))?;
        Ok(Self { partial: cursor.below("partial")?, cursor, run })
    }
}

/// What a value is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// How far a directive has come.
    Cursor,
    /// How far a page has come.
    Checkpoint,
    /// Who runs a directive.
    Lock,
}

/// A value with what belongs to it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name.
    pub key: Key,
    /// JSON.
    pub value: Json,
    /// Rises by one with each write, also over a removal.
    pub version: u64,
    /// The write that made it so.
    pub request_id: String,
    /// `<agent>:<directive>`.
    pub last_writer: String,
    /// What it is for.
    pub purpose: Purpose,
    /// Why, if somebody wrote it by hand.
    pub spec_ref: Option<String>,
    /// When, by the store's clock.
    pub updated_at: Timestamp,
}

/// What a writer believes is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// No value.
    Absent,
    /// A value of this version.
    Version(u64),
}

/// A write that compares first.
#[derive(Debug, Clone)]
pub struct Put {
    /// Its name.
    pub key: Key,
    /// JSON; `None` removes.
    pub value: Option<Json>,
    /// What must be there.
    pub expected: Expected,
    /// Names the write, the same at each repetition.
    pub request_id: String,
    /// `<agent>:<directive>`.
    pub writer: String,
    /// What it is for.
    pub purpose: Purpose,
    /// Why, if somebody writes it by hand; then it leaves a row in the audit.
    pub spec_ref: Option<String>,
    /// How long it lives without being written again.
    pub ttl: Option<Duration>,
}

/// What became of a write.
#[derive(Debug, Clone)]
pub enum PutAnswer {
    /// It is written, now or by the same request before.
    Stored {
        /// The version now.
        version: u64,
    },
    /// Something else is there, or the request had another content before.
    Conflict {
        /// What is there.
        current: Option<Entry>,
    },
}

/// A write by hand, as kept in the audit.
#[derive(Debug, Clone)]
pub struct Override {
    /// Which value.
    pub key: Key,
    /// Who.
    pub writer: String,
    /// Why.
    pub spec_ref: String,
    /// What was there; `None` if nothing was.
    pub before: Option<Json>,
    /// What was put there; `None` if it was removed.
    pub after: Option<Json>,
    /// The version since.
    pub version: u64,
    /// When.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_placed_in_a_project_and_plain() {
        let key = Key::new("acme", "core", "directive/issues/cursor").unwrap();
        assert_eq!(key.as_str(), "tenant/acme/project/core/directive/issues/cursor");
        assert_eq!(key.below("partial").unwrap().as_str().rsplit_once('/').unwrap().1, "partial");
        for (tenant, project, path) in [
            ("", "core", "a"),
            ("acme", "core", ""),
            ("Acme", "core", "a"),
            ("acme", "a b", "a"),
            ("acme", "core", "a//b"),
            ("acme/x", "core", "a"),
            ("acme", "core", &"x".repeat(KEY_MAX)),
        ] {
            assert!(Key::new(tenant, project, path).is_err(), "{tenant} {project} {path}");
        }
    }
}
