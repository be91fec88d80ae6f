//! Mirrors as they go over the wire.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stargate_mirror::Report;
use stargate_mirror::compare::{Pair, Standing as RefStanding};
use stargate_mirror::dead_letter::{self, Stored};
use stargate_mirror::report::{RefReport, Standing};
use stargate_mirror::verify;
use utoipa::ToSchema;

use crate::api::mirror::MirrorPlace;
use crate::redact::Sight;

/// The mirrors of this node.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Mirrors {
    /// One for each repository.
    pub mirrors: Vec<Mirror>,
}

/// How one mirror stands.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Mirror {
    /// The repository.
    pub repo: String,
    /// The remote, by its name in the repository.
    pub remote: String,
    /// Where that is, without any password.
    pub url: Option<String>,
    /// In a word: `caught-up`, `catching-up`, `remote-away`, `not-running` or `no-remote`.
    pub standing: String,
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
    /// Entries a second, lately.
    pub speed: Option<f64>,
    /// When nothing will wait any more, if nothing comes in and the remote answers.
    pub caught_up_in_seconds: Option<f64>,
    /// Dead letters that nobody has requeued.
    pub dead_letters: usize,
    /// When an entry was mirrored last.
    pub last_mirrored_at: Option<Timestamp>,
}

impl Mirror {
    pub(crate) fn of(place: &MirrorPlace, report: Report) -> Self {
        let standing = Standing::of(&report, place.url.is_some()).as_str().to_owned();
        let worker = report.worker.unwrap_or_default();
        Self {
            repo: place.repo.clone(),
            remote: place.remote.clone(),
            url: place.url.clone(),
            standing,
            breaker: Some(worker.breaker).filter(|word| !word.is_empty()),
            error: worker.error,
            parked: worker.parked,
            backlog: report.backlog,
            backlog_is_exact: report.backlog_is_exact,
            oldest_pending_at: report.oldest_pending_at,
            lag_seconds: report.lag_seconds,
            speed: report.speed,
            caught_up_in_seconds: report.caught_up_in_seconds,
            dead_letters: report.dead_letters,
            last_mirrored_at: report.last_mirrored.map(|record| record.at),
        }
    }
}

/// How one mirror stands, with its refs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MirrorDetail {
    /// As in the list.
    #[serde(flatten)]
    pub mirror: Mirror,
    /// Refs for which something waits or was given up, by name; all others are as they should be.
    pub refs: Vec<MirrorRef>,
    /// Whether these are all of them.
    pub refs_are_all: bool,
    /// How far the journal is accounted for.
    #[schema(value_type = Option<Object>)]
    pub checkpoint: Option<Value>,
}

impl MirrorDetail {
    pub(crate) fn of(place: &MirrorPlace, report: Report) -> Self {
        let checkpoint = report.checkpoint.as_ref().and_then(|found| serde_json::to_value(found).ok());
        let refs = report.refs.iter().cloned().map(MirrorRef::from).collect();
        let refs_are_all = report.refs_are_all;
        Self { mirror: Mirror::of(place, report), refs, refs_are_all, checkpoint }
    }
}

/// How one ref stands.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MirrorRef {
    /// Its name here.
    #[serde(rename = "ref")]
    pub name: String,
    /// Entries that wait, as far as they were counted.
    pub waiting: u64,
    /// When the oldest of them was accepted.
    pub oldest_pending_at: Option<Timestamp>,
    /// How long ago that was.
    pub lag_seconds: f64,
    /// Whether the remote did not want its last entry.
    pub parked: bool,
    /// Its dead letters that nobody has requeued.
    pub dead_letters: u64,
}

impl From<RefReport> for MirrorRef {
    fn from(found: RefReport) -> Self {
        Self {
            name: found.name,
            waiting: found.waiting,
            oldest_pending_at: found.oldest_pending_at,
            lag_seconds: found.lag_seconds,
            parked: found.parked,
            dead_letters: found.dead_letters,
        }
    }
}

/// Every mirrored ref of both sides, and whether they agree.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Verification {
    /// All refs are equal, and so are the watermarks of ledgers.
    pub verified: bool,
    /// Refs that are equal.
    pub equal: usize,
    /// Refs that are not.
    pub different: usize,
    /// Ledgers whose watermark says something else than they do.
    pub stale_watermarks: Vec<String>,
    /// All of them, those that differ first, at most 1000.
    pub refs: Vec<RefPair>,
}

/// Refs of one verification that are told one by one.
const PAIRS_MAX: usize = 1000;

impl From<verify::Verification> for Verification {
    fn from(found: verify::Verification) -> Self {
        let mut refs = found.refs;
        refs.sort_by_key(|pair| pair.standing == RefStanding::Equal);
        Self {
            verified: found.verified,
            equal: found.equal,
            different: found.different,
            stale_watermarks: found.stale_watermarks,
            refs: refs.into_iter().take(PAIRS_MAX).map(RefPair::from).collect(),
        }
    }
}

/// One ref of both sides.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RefPair {
    /// Its name here.
    #[serde(rename = "ref")]
    pub name: String,
    /// Its name there.
    pub remote_ref: String,
    /// What it is here.
    pub local: Option<String>,
    /// What it is there.
    pub remote: Option<String>,
    /// `equal`, `ahead`, `behind`, `diverged`, `only-here` or `only-there`.
    pub standing: String,
}

impl From<Pair> for RefPair {
    fn from(pair: Pair) -> Self {
        let standing = match pair.standing {
            RefStanding::Equal => "equal",
            RefStanding::Ahead => "ahead",
            RefStanding::Behind => "behind",
            RefStanding::Diverged => "diverged",
            RefStanding::OnlyHere => "only-here",
            RefStanding::OnlyThere => "only-there",
        };
        Self {
            name: pair.name.to_string(),
            remote_ref: pair.remote_ref.to_string(),
            local: pair.local.map(|oid| oid.as_str().to_owned()),
            remote: pair.remote.map(|oid| oid.as_str().to_owned()),
            standing: standing.to_owned(),
        }
    }
}

/// An entry that a mirror gave up.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeadLetter {
    /// The repository.
    pub repo: String,
    /// Its id.
    pub dead_letter_id: String,
    /// Of which entry.
    pub entry_id: String,
    /// `malformed`, `rejected`, `diverged`, `timeout`, `auth`, `outage` or `local`.
    pub reason: String,
    /// What was said, without secrets.
    pub error: String,
    /// What git exited with.
    pub git_exit: Option<i32>,
    /// What was said about each ref.
    pub per_ref: Vec<RefStatus>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was tried first.
    pub first_attempt_at: Timestamp,
    /// When it was given up.
    pub dead_lettered_at: Timestamp,
    /// Where its line stands in the journal.
    #[schema(value_type = Object)]
    pub journal: Value,
    /// Its line.
    #[schema(value_type = Object)]
    pub payload: Value,
    /// `open` or `requeued`.
    pub state: String,
    /// As what it was requeued.
    pub requeued: Option<Requeued>,
}

/// What was said about a ref.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RefStatus {
    /// The ref.
    #[serde(rename = "ref")]
    pub name: String,
    /// What was said.
    pub status: String,
}

/// That an entry was put into the journal again.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Requeued {
    /// The id of the new entry.
    pub entry_id: String,
    /// Its number.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
}

impl DeadLetter {
    pub(crate) fn of(repo: &str, stored: Stored) -> Self {
        let letter = stored.letter;
        let state = match stored.state {
            dead_letter::State::Open => "open",
            dead_letter::State::Requeued => "requeued",
        };
        let per_ref = letter.per_ref.into_iter();
        Self {
            repo: repo.to_owned(),
            dead_letter_id: letter.dead_letter_id,
            entry_id: letter.entry_id,
            reason: reason(letter.reason),
            error: letter.error,
            git_exit: letter.git_exit,
            per_ref: per_ref.map(|one| RefStatus { name: one.ref_name, status: one.status }).collect(),
            attempts: letter.attempts,
            first_attempt_at: letter.first_attempt_at,
            dead_lettered_at: letter.dead_lettered_at,
            journal: serde_json::to_value(&letter.journal).unwrap_or_default(),
            payload: serde_json::to_value(&letter.payload).unwrap_or_default(),
            state: state.to_owned(),
            requeued: stored.requeued.map(Requeued::from),
        }
    }
}

impl DeadLetter {
    /// As somebody may see it.
    pub(crate) fn seen(mut self, sight: Sight<'_>) -> Self {
        self.payload = sight.value(self.payload);
        self
    }
}

impl From<dead_letter::Requeued> for Requeued {
    fn from(done: dead_letter::Requeued) -> Self {
        Self { entry_id: done.entry_id, seq: done.seq, at: done.at }
    }
}

/// The word of a reason.
pub(crate) fn reason(reason: dead_letter::Reason) -> String {
    stargate_mirror::metrics::reason_text(reason).to_owned()
}

/// What mirrors gave up: one by one, or by cause.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DeadLetters {
    /// In the order of the journal; empty if causes were asked for.
    pub dead_letters: Vec<DeadLetter>,
    /// By cause, most first; null unless they were asked for.
    pub causes: Option<Vec<Cause>>,
    /// Whether there are more than these.
    pub more: bool,
}

/// Dead letters with the same cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cause {
    /// Why they were given up.
    pub reason: String,
    /// What was said about the newest.
    pub error: String,
    /// How many there are, by repository.
    pub repos: BTreeMap<String, u64>,
    /// How many there are.
    pub count: u64,
    /// The newest of them.
    pub newest: String,
    /// When that was given up.
    pub last_at: Timestamp,
    /// When the first was given up.
    pub oldest_at: Timestamp,
}

/// Which dead letters to put into the journal again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequeueLetters {
    /// Of this repository; with `reason` it may be left out for all.
    pub repo: Option<String>,
    /// These.
    #[schema(max_items = 1000)]
    pub ids: Option<Vec<String>>,
    /// All that were given up for this reason and not requeued, 1000 at most.
    pub reason: Option<String>,
    /// Also those that were requeued before; with `ids` only.
    #[serde(default)]
    pub again: bool,
}

/// What was put into the journal again.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LettersRequeued {
    /// One for each that was.
    pub requeued: Vec<RequeuedLetter>,
    /// One for each that could not be.
    pub failed: Vec<LetterFailed>,
    /// Whether more match than were requeued at once: ask again.
    pub more: bool,
}

/// A dead letter that is in the journal again.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RequeuedLetter {
    /// The repository.
    pub repo: String,
    /// The letter.
    pub dead_letter_id: String,
    /// The new entry.
    #[serde(flatten)]
    pub requeued: Requeued,
}

/// A dead letter that could not be put into the journal again.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LetterFailed {
    /// The repository.
    pub repo: String,
    /// The letter.
    pub dead_letter_id: String,
    /// Why.
    pub error: String,
}

/// Which dead letters to remove.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PurgeLetters {
    /// Of this repository.
    pub repo: String,
    /// Given up so long ago, 30 days at least; `mirror.dead_letter_retention` by default.
    pub older_than: Option<String>,
}

/// What was removed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LettersPurged {
    /// The repository.
    pub repo: String,
    /// The letters.
    pub purged: Vec<String>,
}

/// A repository.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Repo {
    /// Its name.
    pub name: String,
    /// Its default branch.
    pub default_branch: Option<String>,
    /// What that is at.
    pub default_oid: Option<String>,
    /// Its size.
    pub bytes: Option<u64>,
    /// Its objects.
    pub objects: Option<u64>,
    /// When it was pushed to last.
    pub pushed_at: Option<Timestamp>,
}

/// All repositories.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Repos {
    /// By name.
    pub repos: Vec<Repo>,
}
