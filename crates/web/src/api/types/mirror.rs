//! Mirrors as they go over the wire.

use jiff::Timestamp;
use serde::Serialize;
use stargate_mirror::Report;
use stargate_mirror::dead_letter::Stored;

/// The mirrors of this node.
#[derive(Debug, Serialize)]
pub struct Mirrors {
    /// One for each repository.
    pub mirrors: Vec<Mirror>,
}

/// How one mirror stands.
#[derive(Debug, Serialize)]
pub struct Mirror {
    /// The repository.
    pub repo: String,
    /// `closed`: the remote answers; `open` or `probing`: it is away.
    pub breaker: Option<String>,
    /// What the remote said last while it was away.
    pub error: Option<String>,
    /// Refs whose last entry the remote did not want.
    pub parked: Vec<String>,
    /// Entries that wait.
    pub backlog: u64,
    /// Whether that was counted to the end.
    pub backlog_is_exact: bool,
    /// When the oldest of them was accepted.
    pub oldest_pending_at: Option<Timestamp>,
    /// How long ago that was.
    pub lag_seconds: f64,
    /// When nothing will wait any more, if nothing comes in and the remote answers.
    pub caught_up_in_seconds: Option<f64>,
    /// Dead letters that nobody has requeued.
    pub dead_letters: usize,
    /// When an entry was mirrored last.
    pub last_mirrored_at: Option<Timestamp>,
}

impl Mirror {
    pub(crate) fn of(repo: String, report: Report) -> Self {
        let worker = report.worker.unwrap_or_default();
        Self {
            repo,
            breaker: Some(worker.breaker).filter(|word| !word.is_empty()),
            error: worker.error,
            parked: worker.parked,
            backlog: report.backlog,
            backlog_is_exact: report.backlog_is_exact,
            oldest_pending_at: report.oldest_pending_at,
            lag_seconds: report.lag_seconds,
            caught_up_in_seconds: report.caught_up_in_seconds,
            dead_letters: report.dead_letters,
            last_mirrored_at: report.last_mirrored.map(|record| record.at),
        }
    }
}

/// What a mirror gave up.
#[derive(Debug, Serialize)]
pub struct DeadLetters {
    /// In the order of the journal; as they are kept on disk.
    pub dead_letters: Vec<Stored>,
}
