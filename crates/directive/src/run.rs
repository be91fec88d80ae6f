//! One execution of a directive from the cursor to the end of its source.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cursor::Cursor;
use crate::item::Counts;
use crate::kv::Key;
use crate::retry::Failures;

/// Names a run: a ULID, or what the engine calls it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub String);

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A run that wants to begin, or to go on after its worker died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// Its name.
    pub id: RunId,
    /// The directive.
    pub directive: String,
    /// Whose data it is.
    pub tenant: String,
    /// Of which project.
    pub project: String,
    /// `embedded` or `temporal`.
    pub engine: String,
    /// The workflow or job it is an execution of.
    pub workflow_id: String,
    /// Who executes it: for whoever finds the lease taken.
    pub worker: String,
    /// The key under which the lease is kept.
    pub lease: Key,
    /// How long the lease lasts without a beat.
    pub lease_for: Duration,
}

/// The right to write batches of a directive. Whoever takes it over gets a higher number, and the holder before can
/// write nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The run.
    pub run: RunId,
    /// The key under which it is kept.
    pub key: Key,
    /// The version of that key.
    pub version: u64,
}

/// What became of the wish to run.
#[derive(Debug, Clone, PartialEq)]
pub enum Begin {
    /// The run has the lease.
    Begun {
        /// The right to write.
        lease: Lease,
        /// The run as it stands: new, or as far as it had come.
        run: Box<Run>,
    },
    /// Another run has it.
    Held {
        /// Which.
        run: RunId,
        /// Executed by whom.
        worker: String,
        /// Until when, if no beat comes.
        until: Timestamp,
    },
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It came to the end of its source.
    Succeeded,
    /// It needs an operator.
    Failed,
    /// It was told to stop.
    Cancelled,
}

impl Outcome {
    /// The word of logs, metrics and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A run as read from the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its name.
    pub id: RunId,
    /// The directive.
    pub directive: String,
    /// Whose data it is.
    pub tenant: String,
    /// Of which project.
    pub project: String,
    /// `embedded` or `temporal`.
    pub engine: String,
    /// The workflow or job it is an execution of.
    pub workflow_id: String,
    /// How it ended; `None` while it goes on.
    pub outcome: Option<Outcome>,
    /// Pages accounted for.
    pub pages: u64,
    /// What became of its items.
    pub counts: Counts,
    /// The cursor it wrote last.
    pub cursor: Option<Cursor>,
    /// What it said last about itself.
    pub beat: Beat,
    /// Whether all pages are accounted for ([`crate::Advance::Page`] with `is_last`).
    pub source_ended: bool,
    /// Whether somebody asked it to stop.
    pub cancel_asked: bool,
    /// Why it failed.
    pub error: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was heard of last.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// What a run says about itself between its batches; enough for another worker to take it up as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// Items a page has at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_size: Option<u32>,
    /// What failed since something worked.
    #[serde(default)]
    pub failures: Failures,
    /// Why it waits, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
}

/// The steps of a run, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Step {
    /// The directive is read and its run entered.
    AcquireContext,
    /// The cursor is read.
    ResolveCursor,
    /// The source is asked for a page.
    FetchSourceData,
    /// Records become items.
    Transform,
    /// Items are written.
    Persist,
    /// The cursor is moved.
    AdvanceCursor,
    /// The outcome is recorded.
    Finalize,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::AcquireContext,
        Self::ResolveCursor,
        Self::FetchSourceData,
        Self::Transform,
        Self::Persist,
        Self::AdvanceCursor,
        Self::Finalize,
    ];

    /// The word of logs, the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AcquireContext => "AcquireContext",
            Self::ResolveCursor => "ResolveCursor",
            Self::FetchSourceData => "FetchSourceData",
            Self::Transform => "Transform",
            Self::Persist => "Persist",
            Self::AdvanceCursor => "AdvanceCursor",
            Self::Finalize => "Finalize",
        }
    }
}

/// How a run ended, to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// How.
    pub outcome: Outcome,
    /// Why it failed.
    pub error: Option<String>,
}
