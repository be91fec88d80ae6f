//! The files of a worker: what is read of the journal and not accounted for yet, and how it becomes so.
//!
//! Everything here blocks and runs on a thread for that. The order of writes is the point: dead letters, status
//! records, then what was read of the journal, then the checkpoint; each is durable before the next begins.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stargate_base::clock;
use stargate_git::Oid;

use super::{Step, Steps};
use crate::checkpoint::Checkpoint;
use crate::dead_letter::{DeadLetter, DeadLetters, NewLetter, Reason, Requeue, Return};
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::journal::{Journal, Line, Next, Position, Reader, Resume};
use crate::lock::WorkerLock;
use crate::metrics;
use crate::plan::{Pending, TXN_ENTRIES_MAX, Task, What};
use crate::reconcile;
use crate::routes::{Routes, names_of};
use crate::status::{Index, Record, Status, Statuses};

/// How many open letters are looked through, the newest first, for those that come back and for refs.
pub(crate) const LETTERS_OPEN_MAX: usize = 100_000;
/// What is known of the journal, in memory.
pub(super) struct Books {
    repo: PathBuf,
    pub(super) journal: Journal,
    reader: Reader,
    statuses: Statuses,
    pub(super) letters: DeadLetters,
    routes: Routes,
    lock: Arc<WorkerLock>,
    steps: Arc<dyn Steps>,
    /// Lines that were read and are not accounted for, and what is to be done with each.
    lines: VecDeque<Line>,
    pending: VecDeque<Pending>,
    /// What has a status record; only until the end of the journal was reached once.
    index: Option<Index>,
    /// Lines were read since the journal was synced.
    unsynced: bool,
}

/// How an entry ended.
#[derive(Debug, Clone)]
pub(super) struct Settlement {
    pub(super) status: Status,
    pub(super) via: &'static str,
    pub(super) attempts: u32,
}

/// Why an entry is given up.
#[derive(Debug, Clone)]
pub(super) struct Surrender {
    pub(super) verdict: crate::classify::Verdict,
    pub(super) reason: Reason,
    pub(super) returns: Return,
    pub(super) attempts: u32,
    pub(super) first_attempt_at: Timestamp,
}

/// What waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Backlog {
    pub(super) entries: u64,
    pub(super) lag: Duration,
}

impl Books {
    pub(super) fn open(
        repo: &Path,
        routes: &Routes,
        lock: &Arc<WorkerLock>,
        steps: Arc<dyn Steps>,
    ) -> Result<Self> {
        let journal = Journal::open(repo)?;
        let letters = DeadLetters::open(repo)?;
        letters.rebuild_view()?;
        let statuses = Statuses::open(repo)?;
        let (reader, resume) = journal.resume()?;
        report(&resume);
        let index = Some(statuses.index()?);
        Ok(Self {
            repo: repo.to_owned(),
            journal,
            reader,
            statuses,
            letters,
            routes: routes.clone(),
            lock: Arc::clone(lock),
            steps,
            lines: VecDeque::new(),
            pending: VecDeque::new(),
            index,
            unsynced: false,
        })
    }

    /// Reads lines until `most` wait or there are no more. A transaction is read to its end, so that it can go whole.
    pub(super) fn fill(&mut self, most: usize) -> Result<()> {
        while self.lines.len() < most || self.is_in_transaction(most) {
            match self.reader.next()? {
                Next::Line(line) => self.take(*line),
                Next::NotYet => {
                    self.index = None;
                    break;
                }
                Next::Broken(mismatch) => {
                    tracing::warn!(%mismatch, "the journal is not the one that was read; it is read again");
                    *self = Self::open(&self.repo, &self.routes, &self.lock, Arc::clone(&self.steps))?;
                }
            }
        }
        self.steps.reached(Step::Read);
        Ok(())
    }

    /// Whether the last line that was read belongs to a transaction, of which more may follow.
    fn is_in_transaction(&self, most: usize) -> bool {
        let last = self.pending.back().map(|entry| &entry.what);
        matches!(last, Some(What::Push(Task { txn: Some(_), .. })))
            && self.lines.len() < most + TXN_ENTRIES_MAX
    }

    fn take(&mut self, line: Line) {
        self.unsynced = true;
        let entry_id = line.entry_id();
        let settled = self.index.as_ref().and_then(|index| index.status(&entry_id, line.crc));
        let what = match (settled, &line.entry) {
            (Some(_), _) => What::Settled,
            (None, Err(malformed)) => What::Malformed(malformed.reason.clone()),
            (None, Ok(entry)) => task(entry, &self.routes).map_or_else(What::Refuse, What::Push),
        };
        self.lines.push_back(line);
        self.pending.push_back(Pending { entry_id, what });
    }

    pub(super) fn pending(&mut self) -> &[Pending] {
        self.pending.make_contiguous()
    }

    /// Reads the first line again; true if it is an entry now.
    pub(super) fn reread(&mut self) -> Result<bool> {
        let Some(line) = self.lines.front() else { return Ok(false) };
        let Some(again) = self.reader.reread(line)? else { return Ok(false) };
        let Ok(entry) = &again.entry else { return Ok(false) };
        let what = task(entry, &self.routes).map_or_else(What::Refuse, What::Push);
        self.pending[0] = Pending { entry_id: again.entry_id(), what };
        self.lines[0] = again;
        Ok(true)
    }

    /// The first entries ended so. They are accounted for when this answers.
    pub(super) fn settle(&mut self, settlements: &[Settlement]) -> Result<()> {
        self.lock.check()?;
        let now = clock::wall();
        let mut records = Vec::with_capacity(settlements.len());
        for ((settlement, line), entry) in settlements.iter().zip(&self.lines).zip(&self.pending) {
            let mut record = Record::new(&entry.entry_id, line.crc, settlement.status, settlement.attempts);
            record.via = Some(settlement.via.to_owned());
            record.lag_ms = lag_of(line, now).map(|lag| u64::try_from(lag.as_millis()).unwrap_or(u64::MAX));
            records.push(record);
            metrics::processed(settlement.status, 1);
        }
        self.statuses.append(&records)?;
        self.steps.reached(Step::Recorded);
        self.pass(settlements.len())
    }

    /// Gives up the first entries: a dead letter each, then as above. Answers the letters' ids.
    pub(super) fn give_up(&mut self, count: usize, surrender: &Surrender) -> Result<Vec<String>> {
        self.lock.check()?;
        let mut ids = Vec::with_capacity(count);
        for line in self.lines.iter().take(count) {
            let verdict = &surrender.verdict;
            let letter = NewLetter::new(line, surrender.reason, &verdict.error)
                .tried(surrender.attempts, surrender.first_attempt_at)
                .returning(surrender.returns)
                .said(verdict.git_exit, verdict.per_ref.clone());
            let id = self.letters.add(letter)?;
            metrics::dead_lettered(surrender.reason);
            tracing::error!(
                entry_id = line.entry_id(),
                dead_letter_id = id,
                reason = metrics::reason_text(surrender.reason),
                attempts = surrender.attempts,
                error = verdict.error,
                "an entry was given up: stargate mirror dead-letter show"
            );
            ids.push(id);
        }
        self.steps.reached(Step::DeadLettered);
        let settlement =
            Settlement { status: Status::DeadLetter, via: "dead-letter", attempts: surrender.attempts };
        self.settle(&vec![settlement; count])?;
        Ok(ids)
    }

    /// Moves the checkpoint past the first entries, which have status records.
    pub(super) fn pass(&mut self, count: usize) -> Result<()> {
        let mut position: Option<Position> = None;
        for _ in 0..count {
            self.pending.pop_front();
            position = self.lines.pop_front().map(|line| line.position).or(position);
        }
        let Some(position) = position else { return Ok(()) };
        // Writers sync after they have let others read, so a line that was read may not be on disk yet.
        if std::mem::take(&mut self.unsynced) {
            self.reader.sync()?;
            self.steps.reached(Step::Synced);
        }
        // The checkpoint of whoever has the lock now must not be put back.
        self.lock.check()?;
        Checkpoint::store(&self.repo, &position)?;
        self.steps.reached(Step::Checkpointed);
        Ok(())
    }

    /// What waits, counted as far as it was read and estimated beyond.
    pub(super) fn backlog(&self, window: usize) -> Result<Backlog> {
        let mut entries = self.lines.len() as u64;
        if self.lines.len() >= window {
            let read: u64 = self.lines.iter().map(|line| line.to - line.from).sum();
            let rest = self.journal.bytes_after(self.reader.position())?;
            entries += rest * entries / read.max(1);
        }
        let now = clock::wall();
        let lag = self.lines.front().and_then(|line| lag_of(line, now)).unwrap_or_default();
        Ok(Backlog { entries, lag })
    }

    /// Letters that nobody has requeued, newest first.
    pub(super) fn open_letters(&self) -> Result<Vec<DeadLetter>> {
        self.letters.open_letters(LETTERS_OPEN_MAX)
    }

    /// Letters that are to be requeued when the remote takes pushes again, in the order of the journal.
    pub(super) fn outage_letters(&self) -> Result<Vec<String>> {
        let open = self.open_letters()?.into_iter().rev();
        let open = open.filter(|letter| letter.returns() == Return::WithRemote);
        Ok(open.map(|letter| letter.dead_letter_id).collect())
    }

    /// Puts letters into the journal again. What does not work now is tried again with the next comparison.
    pub(super) fn requeue(&self, ids: &[String]) -> Result<()> {
        for id in ids {
            match self.letters.requeue(&self.journal, id, Requeue::Once) {
                Ok(requeued) => {
                    tracing::info!(dead_letter_id = id, entry_id = requeued.entry_id, "requeued by itself");
                }
                Err(error) if error.is_fail_stop() => return Err(error),
                Err(error) => tracing::warn!(dead_letter_id = id, %error, "a dead letter cannot be requeued"),
            }
            self.steps.reached(Step::Requeued);
        }
        Ok(())
    }

    /// Removes segments that are accounted for and older than the retention.
    pub(super) fn tidy(&self, retention: Duration) -> Result<()> {
        if let crate::checkpoint::Loaded::Found(checkpoint) = Checkpoint::load(&self.repo)? {
            self.journal.remove_segments_older_than(&checkpoint, retention)?;
        }
        Ok(())
    }

    /// The newest object of each ref that waits, also beyond what was read.
    pub(super) fn newest_waiting(&self) -> Result<HashMap<String, String>> {
        let mut newest = HashMap::new();
        for line in &self.lines {
            reconcile::note(line, &mut newest);
        }
        if let Ok(ahead) = self.journal.read_from(self.reader.position())? {
            newest.extend(reconcile::newest(ahead)?);
        }
        Ok(newest)
    }
}

fn lag_of(line: &Line, now: Timestamp) -> Option<Duration> {
    let written = line.entry.as_ref().ok()?.timestamp?;
    Some(Duration::try_from(now.duration_since(written).max(SignedDuration::ZERO)).unwrap_or_default())
}

/// What an entry asks for, or why it must not be done.
fn task(entry: &Entry, routes: &Routes) -> Result<Task, String> {
    let (name, oid) = names_of(&entry.ref_name, &entry.new_oid).map_err(|error| error.to_string())?;
    if oid.is_zero() {
        return Err(format!("{name} was deleted here; deletions are not mirrored"));
    }
    let route = routes.route(&name, entry.ns.as_deref()).map_err(|error| error.to_string())?;
    let text = |key: &str| entry.meta.get(key).and_then(|value| value.as_str()).map(str::to_owned);
    Ok(Task {
        name,
        route,
        oid,
        old: entry.old_oid.as_deref().and_then(|oid| Oid::parse(oid).ok()),
        txn: text("txn_id").filter(|id| !id.is_empty()),
        requeued: text("requeue_of").is_some(),
    })
}

fn report(resume: &Resume) {
    match resume {
        Resume::Rescan(mismatch) => {
            tracing::warn!(%mismatch, "the checkpoint does not fit the journal; all of it is read again");
        }
        Resume::Beginning | Resume::Checkpoint => {}
    }
}

/// A thread that was to do this has gone; only a panic or the end of the runtime does that.
pub(super) fn lost() -> Error {
    Error::Invalid { what: "worker", problem: "its files are gone with a thread that fell over".to_owned() }
}
