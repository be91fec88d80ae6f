//! What a dead letter says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stargate_base::clock;

use crate::journal::Line;

/// The longest text of an error that is kept.
const ERROR_BYTES_MAX: usize = 8 * 1024;
/// The most refs about which something is kept.
const REFS_MAX: usize = 1000;
/// How much of what was said of one of them.
const STATUS_BYTES_MAX: usize = 256;
/// Where an entry says in its `meta` how often it was requeued.
pub(super) const REQUEUES: &str = "requeues";

/// Why an entry was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The line is no entry.
    Malformed,
    /// The remote refuses it: a hook, a protected ref.
    Rejected,
    /// The remote has something that we have not.
    Diverged,
    /// The push took too long.
    Timeout,
    /// The remote does not let us in.
    Auth,
    /// The remote cannot be reached.
    Outage,
    /// Something is wrong here: an object is missing.
    Local,
}

/// When a letter is requeued by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Return {
    /// Never: an operator decides.
    Never,
    /// When the remote takes pushes again.
    WithRemote,
    /// After a while, a few times, each time after a longer while: nobody knows why it failed.
    Later,
}

/// An entry that was given up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Its id.
    pub dead_letter_id: String,
    /// Of which entry.
    pub entry_id: String,
    /// Why.
    pub reason: Reason,
    /// What was said, without secrets.
    pub error: String,
    /// What git exited with.
    pub git_exit: Option<i32>,
    /// What was said about each ref.
    pub per_ref: Vec<PerRef>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was tried first.
    pub first_attempt_at: Timestamp,
    /// When it was given up.
    pub dead_lettered_at: Timestamp,
    /// When it is requeued by itself. Letters of early versions do not say; see [`DeadLetter::returns`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returns: Option<Return>,
    /// Where its line stands.
    pub journal: JournalPlace,
    /// Its line.
    pub payload: Payload,
}

/// What was said about a ref.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerRef {
    /// The ref.
    #[serde(rename = "ref")]
    pub ref_name: String,
    /// What was said.
    pub status: String,
}

/// Where a line stands in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalPlace {
    /// Which journal.
    pub journal_id: String,
    /// Which file.
    pub segment: u64,
    /// Its first byte.
    pub offset: u64,
    /// Its length, with the newline.
    pub bytes: u64,
}

/// The line of a dead letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Payload {
    /// What is no entry, as bytes.
    Raw {
        /// The bytes; not all if `truncated`.
        base64: String,
        /// The same, if it is text.
        text: Option<String>,
        /// Whether bytes are missing at the end.
        truncated: bool,
    },
    /// The entry as it was written.
    Entry(Map<String, Value>),
}

/// A dead letter to be added.
#[derive(Debug, Clone)]
pub struct NewLetter {
    line: Line,
    reason: Reason,
    error: String,
    git_exit: Option<i32>,
    per_ref: Vec<PerRef>,
    attempts: u32,
    first_attempt_at: Timestamp,
    returns: Option<Return>,
}

impl NewLetter {
    /// A letter about a line of the journal. The error must not hold secrets.
    pub fn new(line: &Line, reason: Reason, error: impl Into<String>) -> Self {
        Self {
            line: line.clone(),
            reason,
            error: cut(error.into()),
            git_exit: None,
            per_ref: Vec::new(),
            attempts: 0,
            first_attempt_at: clock::wall(),
            returns: None,
        }
    }

    /// When it is to be requeued by itself.
    #[must_use]
    pub fn returning(self, returns: Return) -> Self {
        Self { returns: Some(returns), ..self }
    }

    /// How often it was tried, and since when.
    #[must_use]
    pub fn tried(self, attempts: u32, first_attempt_at: Timestamp) -> Self {
        Self { attempts, first_attempt_at, ..self }
    }

    /// What git exited with and said about each ref.
    #[must_use]
    pub fn said(self, git_exit: Option<i32>, mut per_ref: Vec<PerRef>) -> Self {
        per_ref.truncate(REFS_MAX);
        for PerRef { status, .. } in &mut per_ref {
            status.truncate(status.floor_char_boundary(STATUS_BYTES_MAX));
        }
        Self { git_exit, per_ref, ..self }
    }

    pub(super) fn into_letter(self) -> DeadLetter {
        let line = &self.line;
        DeadLetter {
            // Sorts as the journal does.
            dead_letter_id: format!("{:010}-{:012}-{:08x}", line.segment, line.from, line.crc),
            entry_id: line.entry_id(),
            reason: self.reason,
            error: self.error,
            git_exit: self.git_exit,
            per_ref: self.per_ref,
            attempts: self.attempts,
            first_attempt_at: self.first_attempt_at,
            dead_lettered_at: clock::wall(),
            returns: self.returns,
            journal: JournalPlace {
                journal_id: line.position.journal_id.clone(),
                segment: line.segment,
                offset: line.from,
                bytes: line.to - line.from,
            },
            payload: Payload::of(line),
        }
    }
}

impl DeadLetter {
    /// When it is requeued by itself.
    pub fn returns(&self) -> Return {
        self.returns.unwrap_or(match self.reason {
            Reason::Outage | Reason::Auth => Return::WithRemote,
            _ => Return::Never,
        })
    }

    /// How often its entry was requeued before.
    pub fn requeues(&self) -> u32 {
        let Payload::Entry(fields) = &self.payload else { return 0 };
        let count = fields.get("meta").and_then(|meta| meta.get(REQUEUES)).and_then(Value::as_u64);
        count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
    }

    /// The ref and the object of its entry.
    pub fn target(&self) -> Option<(&str, &str)> {
        let Payload::Entry(fields) = &self.payload else { return None };
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        Some((text("ref")?, text("new_oid").or_else(|| text("oid"))?))
    }

    pub(super) fn is_of_same_line(&self, other: &Self) -> bool {
        self.journal == other.journal && self.payload == other.payload
    }
}

impl Payload {
    fn of(line: &Line) -> Self {
        let entry = match &line.entry {
            Ok(_) => serde_json::from_slice(&line.raw).ok(),
            Err(_) => None,
        };
        entry.map_or_else(|| Self::raw(line), Self::Entry)
    }

    fn raw(line: &Line) -> Self {
        Self::Raw {
            base64: STANDARD.encode(&line.raw),
            text: String::from_utf8(line.raw.clone()).ok(),
            truncated: line.raw.len() as u64 + 1 < line.to - line.from,
        }
    }

    /// The bytes of the line, as far as they were kept.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Raw { base64, .. } => STANDARD.decode(base64).unwrap_or_default(),
            Self::Entry(fields) => serde_json::to_vec(fields).unwrap_or_default(),
        }
    }
}

fn cut(mut text: String) -> String {
    if text.len() > ERROR_BYTES_MAX {
        let end = (0..=ERROR_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
