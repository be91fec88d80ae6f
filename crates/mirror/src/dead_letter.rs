//! The dead letters: entries that were given up, each with all that is needed to understand and to requeue it.
//!
//! Each is a file of its own, `dead-letter/<id>.json`, written whole and never changed, so that one more costs the
//! same however many there are. Its id is made of the line's place in the journal and its checksum: a worker that dies
//! between a dead letter and the status record makes the same one again, not a second. Beside it lie
//! `<id>.requeue.json` while it is being requeued and `<id>.requeued.json` afterwards.
//!
//! `mirror-dead-letter.ndjson` is for reading: a line with the whole letter and `"state":"open"` when it is added, a
//! short line with `"state":"requeued"` when it is requeued; the last line of an id counts. It is made anew from the
//! files when a worker starts and after a purge, so nothing is lost when it is.

mod letter;
mod requeue;

use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use stargate_base::{chain, clock};

pub use self::letter::{DeadLetter, JournalPlace, NewLetter, Payload, PerRef, Reason, Return};
pub use self::requeue::{Requeue, Requeued};
use crate::entry;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::lines::LineFile;

/// How long dead letters are kept at least.
pub const RETENTION_MIN: Duration = Duration::from_secs(30 * 24 * 60 * 60);

const DIR: &str = "dead-letter";
const STEM: &str = "mirror-dead-letter";
/// What the file of a letter can have at most: a line of the journal twice, once in base64, an error, and what was said of each ref,
/// where JSON takes six bytes for one that cannot be shown.
const LETTER_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The lock under which letters are requeued and purged.
const LOCK: &str = "lock";

/// The dead letters of a repository.
#[derive(Debug, Clone)]
pub struct DeadLetters {
    files: Files,
    view: LineFile,
}

/// A dead letter and what was done about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stored {
    /// The letter.
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// Whether it was requeued.
    pub state: State,
    /// When and as what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeued: Option<Requeued>,
}

/// What was done about a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing.
    Open,
    /// It is in the journal again.
    Requeued,
}

impl DeadLetters {
    /// Opens the dead letters of a bare repository.
    pub fn open(repo: &Path) -> Result<Self> {
        let files = Files::open(repo)?;
        // Purged rather than continued elsewhere: never full.
        let view = LineFile::new(files.clone(), STEM, u64::MAX);
        Ok(Self { files: files.below(DIR)?, view })
    }

    /// Adds a letter and answers its id when it is durable. The same line at the same place gives the same letter.
    pub fn add(&self, new: NewLetter) -> Result<String> {
        let mut letter = new.into_letter();
        if !self.files.publish(&record(&letter.dead_letter_id), &json(&letter)?)? {
            let there = pass_over_damaged(self.read(&letter.dead_letter_id))?;
            if there.is_some_and(|there| there.is_of_same_line(&letter)) {
                return Ok(letter.dead_letter_id);
            }
            letter.dead_letter_id = format!("{}-{}", letter.dead_letter_id, entry::new_id());
            self.files.publish(&record(&letter.dead_letter_id), &json(&letter)?)?;
        }
        let id = letter.dead_letter_id.clone();
        self.show_line(&Stored { letter, state: State::Open, requeued: None })?;
        Ok(id)
    }

    /// The letters, in the order of the journal, at most `limit`, after the letter `after`.
    pub fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<Stored>> {
        let ids = self.ids()?.into_iter().filter(|id| after.is_none_or(|after| id.as_str() > after));
        let mut letters = Vec::new();
        for id in ids {
            if letters.len() >= limit {
                break;
            }
            // Purged between listing and reading, or damaged.
            letters.extend(pass_over_damaged(self.find(&id))?);
        }
        Ok(letters)
    }

    /// Letters that were not requeued, newest first, at most `limit`. Only those are read.
    pub fn open_letters(&self, limit: usize) -> Result<Vec<DeadLetter>> {
        let names = self.files.names()?;
        let is_requeued = |id: &str| names.binary_search(&requeue::done(id)).is_ok();
        let open = names.iter().rev().filter_map(|name| id_of(name)).filter(|id| !is_requeued(id));
        let mut letters = Vec::new();
        for id in open.take(limit) {
            // Purged between listing and reading, or damaged.
            letters.extend(pass_over_quietly(self.read(id))?);
        }
        Ok(letters)
    }

    /// One letter.
    pub fn show(&self, id: &str) -> Result<Stored> {
        self.find(id)?.ok_or_else(|| Error::NoDeadLetter { id: id.to_owned() })
    }

    /// When the oldest of the letters that were not requeued was written. Letters are in the order of the journal, which
    /// is that of their time but for what was tried long.
    pub fn oldest_open(&self) -> Result<Option<Timestamp>> {
        let names = self.files.names()?;
        let is_requeued = |id: &str| names.binary_search(&requeue::done(id)).is_ok();
        for id in names.iter().filter_map(|name| id_of(name)).filter(|id| !is_requeued(id)) {
            // Purged between listing and reading, or damaged.
            if let Some(letter) = pass_over_quietly(self.read(id))? {
                return Ok(Some(letter.dead_lettered_at));
            }
        }
        Ok(None)
    }

    /// How many letters there are that were not requeued.
    pub fn open_count(&self) -> Result<usize> {
        let names = self.files.names()?;
        let is_requeued = |id: &str| names.binary_search(&requeue::done(id)).is_ok();
        Ok(names.iter().filter_map(|name| id_of(name)).filter(|id| !is_requeued(id)).count())
    }

    /// Removes letters that were dead-lettered longer ago than `older_than`, which must be [`RETENTION_MIN`] at least.
    /// Answers their ids. For an operator: an open letter may be the only trace of an entry. One that cannot be read stays:
    /// nobody knows how old it is.
    pub fn purge(&self, older_than: Duration) -> Result<Vec<String>> {
        self.purge_if(older_than, |_| true)
    }

    /// The same, for letters that were requeued only: a clock that is years ahead must not cost an entry.
    pub fn purge_requeued(&self, older_than: Duration) -> Result<Vec<String>> {
        let names = self.files.names()?;
        self.purge_if(older_than, |id| names.binary_search(&requeue::done(id)).is_ok())
    }

    fn purge_if(&self, older_than: Duration, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        if older_than < RETENTION_MIN {
            return Err(Error::invalid("older_than", "dead letters are kept for 30 days at least"));
        }
        let age = SignedDuration::try_from(older_than).unwrap_or(SignedDuration::MAX);
        let before = clock::wall().saturating_sub(age).unwrap_or(Timestamp::MIN);
        let lock = self.lock()?;
        let mut purged = Vec::new();
        for id in self.ids()?.into_iter().filter(|id| wanted(id)) {
            let letter = pass_over_damaged(self.read(&id))?;
            if letter.is_some_and(|letter| letter.dead_lettered_at < before) {
                self.files.remove(&record(&id))?;
                self.files.remove(&requeue::intent(&id))?;
                self.files.remove(&requeue::done(&id))?;
                purged.push(id);
            }
        }
        drop(lock);
        if !purged.is_empty() {
            self.rebuild_view()?;
        }
        Ok(purged)
    }

    /// Makes the readable view anew from the letters. For a worker that starts: the one before may have died between
    /// a letter and its line.
    pub fn rebuild_view(&self) -> Result<()> {
        // Under the lock of the view: a letter that is added meanwhile is listed here, or its line comes after.
        let turn = self.view.turn()?;
        self.files.sweep()?;
        turn.replace(|view| {
            for id in self.ids()? {
                if let Some(stored) = pass_over_damaged(self.find(&id))? {
                    view.write(&json(&stored)?)?;
                }
            }
            Ok(())
        })
    }

    fn show_line(&self, line: &impl Serialize) -> Result<()> {
        self.view.turn()?.append(&json(line)?)?.sync()
    }

    fn find(&self, id: &str) -> Result<Option<Stored>> {
        let Some(letter) = self.read(id)? else { return Ok(None) };
        let requeued = self.requeued(id)?;
        let state = if requeued.is_some() { State::Requeued } else { State::Open };
        Ok(Some(Stored { letter, state, requeued }))
    }

    fn read(&self, id: &str) -> Result<Option<DeadLetter>> {
        // An id comes from the command line, too, and must not lead out of the directory.
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Ok(None);
        }
        self.read_json(&record(id))
    }

    fn read_json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(content) = self.files.read(name, LETTER_BYTES_MAX)? else { return Ok(None) };
        let read = serde_json::from_slice(&content);
        read.map(Some).map_err(|source| Error::Damaged { path: self.files.path(name), source })
    }

    fn ids(&self) -> Result<Vec<String>> {
        Ok(self.files.names()?.iter().filter_map(|name| id_of(name)).map(str::to_owned).collect())
    }
}

/// What was read, or nothing of a letter that cannot be: one must not hold up the others, nor the mirroring of its
/// repository. Its file stays where it is, and is counted among the open ones.
fn pass_over_damaged<T>(read: Result<Option<T>>) -> Result<Option<T>> {
    pass_over(read, |code, why| tracing::error!(code, why, "a dead letter is passed over"))
}

/// The same for those who look all the time: it was told when the worker started.
fn pass_over_quietly<T>(read: Result<Option<T>>) -> Result<Option<T>> {
    pass_over(read, |code, why| tracing::debug!(code, why, "a dead letter is passed over"))
}

fn pass_over<T>(read: Result<Option<T>>, tell: impl FnOnce(&str, String)) -> Result<Option<T>> {
    match read {
        Err(error @ (Error::Damaged { .. } | Error::Unsafe { .. } | Error::Io { .. })) => {
            tell(error.code(), chain(&error));
            Ok(None)
        }
        other => other,
    }
}

/// The file of a letter.
fn record(id: &str) -> String {
    format!("{id}.json")
}

/// The id, if this is the file of a letter.
fn id_of(name: &str) -> Option<&str> {
    name.strip_suffix(".json").filter(|id| !id.contains('.'))
}

/// A line.
fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut line =
        serde_json::to_vec(value).map_err(|error| Error::invalid("dead letter", error.to_string()))?;
    line.push(b'\n');
    Ok(line)
}
