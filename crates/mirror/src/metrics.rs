//! The names of the metrics of the mirror.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::dead_letter::Reason;
use crate::status::Status;

/// Entries that are accounted for, by `status`.
pub const ENTRIES_PROCESSED: &str = "mirror_entries_processed_total";
/// Pushes that were tried again, by `reason`.
pub const RETRIES: &str = "mirror_retries_total";
/// Entries that were given up, by `reason`.
pub const DEAD_LETTERS: &str = "mirror_dead_letters_total";
/// Age of the oldest entry that is not accounted for; 0 when there is none.
pub const LAG: &str = "mirror_lag_seconds";
/// Entries that are not accounted for.
pub const BACKLOG: &str = "mirror_backlog_entries";
/// 1 while the remote counts as away.
pub const BREAKER_OPEN: &str = "mirror_breaker_open";

/// Entries that were given up and not requeued.
pub const OPEN_LETTERS: &str = "mirror_open_dead_letters";
/// Age of the oldest of them; 0 when there is none.
pub const OLDEST_LETTER: &str = "mirror_oldest_dead_letter_seconds";

/// Metrics that go up and down, each with one line about it, for the exporter and the catalogue.
pub const GAUGES: &[(&str, &str)] = &[
    (LAG, "Age of the oldest entry that is not mirrored yet; 0 when there is none"),
    (BACKLOG, "Entries that are not mirrored yet"),
    (BREAKER_OPEN, "1 while the remote counts as away"),
    (OPEN_LETTERS, "Dead letters that were not requeued, told by the leader"),
    (OLDEST_LETTER, "Age of the oldest dead letter that was not requeued; 0 when there is none"),
];

/// Metrics that only rise.
pub const COUNTERS: &[(&str, &str)] = &[
    (ENTRIES_PROCESSED, "Entries that were accounted for, by status"),
    (RETRIES, "Pushes that were tried again, by reason"),
    (DEAD_LETTERS, "Entries that were given up, by reason"),
];

/// What is known of each repository of this process. The gauges have no label, so they show the worst or the sum.
static REPOS: Mutex<BTreeMap<PathBuf, Figures>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    backlog: u64,
    lag_seconds: f64,
    away: bool,
}

/// The figures of one repository. They end with it.
#[derive(Debug)]
pub(crate) struct Metrics {
    repo: PathBuf,
}

impl Metrics {
    pub(crate) fn new(repo: &Path) -> Self {
        let metrics = Self { repo: repo.to_owned() };
        metrics.set(|_| {});
        metrics
    }

    pub(crate) fn waiting(&self, backlog: u64, lag_seconds: f64) {
        self.set(|figures| (figures.backlog, figures.lag_seconds) = (backlog, lag_seconds));
    }

    pub(crate) fn away(&self, away: bool) {
        self.set(|figures| figures.away = away);
    }

    fn set(&self, change: impl FnOnce(&mut Figures)) {
        let mut repos = REPOS.lock().unwrap_or_else(PoisonError::into_inner);
        change(repos.entry(self.repo.clone()).or_default());
        show(&repos);
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        let mut repos = REPOS.lock().unwrap_or_else(PoisonError::into_inner);
        repos.remove(&self.repo);
        show(&repos);
    }
}

fn show(repos: &BTreeMap<PathBuf, Figures>) {
    let backlog: u64 = repos.values().map(|figures| figures.backlog).sum();
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 entries")]
    metrics::gauge!(BACKLOG).set(backlog as f64);
    metrics::gauge!(LAG).set(repos.values().map(|figures| figures.lag_seconds).fold(0.0, f64::max));
    metrics::gauge!(BREAKER_OPEN).set(if repos.values().any(|figures| figures.away) { 1.0 } else { 0.0 });
}

pub(crate) fn processed(status: Status, count: usize) {
    let status = match status {
        Status::Completed => "completed",
        Status::DeadLetter => "dead-letter",
        Status::Superseded => "superseded",
    };
    metrics::counter!(ENTRIES_PROCESSED, "status" => status).increment(count as u64);
}

pub(crate) fn retried(reason: &'static str) {
    metrics::counter!(RETRIES, "reason" => reason).increment(1);
}

pub(crate) fn dead_lettered(reason: Reason) {
    metrics::counter!(DEAD_LETTERS, "reason" => reason_text(reason)).increment(1);
}

/// The word for a reason in metrics and logs.
pub fn reason_text(reason: Reason) -> &'static str {
    match reason {
        Reason::Malformed => "malformed",
        Reason::Rejected => "rejected",
        Reason::Diverged => "diverged",
        Reason::Timeout => "timeout",
        Reason::Auth => "auth",
        Reason::Outage => "outage",
        Reason::Local => "local",
    }
}
