//! Puts a dead letter into the journal again, as a new line.
//!
//! Steps: the id that the new entry will have is written down; the line is appended; that it was is written down. A
//! process that dies after the first or second step leaves the id, and whoever requeues the letter next looks for
//! that id in the journal and appends the line only if it is not there.

use std::fs::File;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stargate_base::clock;

use super::letter::REQUEUES;
use super::{DeadLetter, DeadLetters, LOCK, Payload, State};
use crate::entry::{self, NewEntry, Place};
use crate::error::{Error, Result};
use crate::journal::{Journal, Next};
use crate::lines::lock_within;

/// What our requeued lines say in `source`.
const SOURCE: &str = "requeue";

/// Whether a letter that was requeued before is requeued again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// No: the earlier answer is given.
    Once,
    /// Yes.
    Again,
}

/// That a letter was requeued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requeued {
    /// The id of the new entry.
    pub entry_id: String,
    /// Its number.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
}

/// That a letter is being requeued.
#[derive(Debug, Serialize, Deserialize)]
struct Intent {
    entry_id: String,
}

impl DeadLetters {
    /// Appends the letter's entry to the journal again, with `meta.requeue_of` (its entry), `meta.dead_letter_id` and
    /// `meta.requeues` (how often it was by then). Works while a worker runs.
    pub fn requeue(&self, journal: &Journal, id: &str, how: Requeue) -> Result<Requeued> {
        let _lock = self.lock()?;
        let stored = self.show(id)?;
        if let (Some(requeued), Requeue::Once) = (&stored.requeued, how) {
            return Ok(requeued.clone());
        }
        let entry = new_entry(&stored.letter)?;
        let (entry_id, earlier) = match self.unfinished(id, stored.requeued.as_ref())? {
            Some(entry_id) => {
                let earlier = find(journal, &entry_id)?;
                (entry_id, earlier)
            }
            None => {
                let entry_id = entry::new_id();
                self.files.replace(&intent(id), &super::json(&Intent { entry_id: entry_id.clone() })?)?;
                (entry_id, None)
            }
        };
        let seq = match earlier {
            Some(seq) => seq,
            None => append(journal, NewEntry { entry_id: Some(entry_id.clone()), ..entry })?,
        };
        let requeued = Requeued { entry_id, seq, at: clock::wall() };
        self.files.replace(&done(id), &super::json(&requeued)?)?;
        self.files.remove(&intent(id))?;
        self.show_line(&json!({
            "dead_letter_id": id, "entry_id": stored.letter.entry_id, "state": State::Requeued, "requeued": requeued,
        }))?;
        Ok(requeued)
    }

    /// The id that a process which died had chosen. One that was seen through to the end does not count.
    fn unfinished(&self, id: &str, finished: Option<&Requeued>) -> Result<Option<String>> {
        let intent: Option<Intent> = self.read_json(&intent(id))?;
        let chosen = intent.map(|intent| intent.entry_id);
        Ok(chosen.filter(|chosen| finished.is_none_or(|finished| finished.entry_id != *chosen)))
    }

    pub(super) fn requeued(&self, id: &str) -> Result<Option<Requeued>> {
        self.read_json(&done(id))
    }

    /// One at a time: two operators must not requeue the same letter.
    pub(super) fn lock(&self) -> Result<File> {
        let file = self.files.open_write(LOCK)?;
        lock_within(&file, clock::Moment::now()).map_err(Error::io("lock", &self.files.path(LOCK)))?;
        Ok(file)
    }
}

/// The file that says which id the new entry will have.
pub(super) fn intent(id: &str) -> String {
    format!("{id}.requeue.json")
}

/// The file that says that it was requeued.
pub(super) fn done(id: &str) -> String {
    format!("{id}.requeued.json")
}

fn new_entry(letter: &DeadLetter) -> Result<NewEntry> {
    let refused = |problem: &str| Error::NotRequeueable {
        id: letter.dead_letter_id.clone(),
        problem: problem.to_owned(),
    };
    let Payload::Entry(_) = &letter.payload else {
        return Err(refused("is a line that is no entry: append what was meant to the journal"));
    };
    let place = Place { segment: letter.journal.segment, offset: letter.journal.offset };
    // Its check was right when it was read; members may stand in another order now.
    let mut payload = letter.payload.clone();
    if let Payload::Entry(fields) = &mut payload {
        fields.remove("crc");
    }
    let entry = entry::parse(&payload.bytes(), place).map_err(|malformed| refused(&malformed.reason))?;
    let mut meta = entry.meta;
    meta.insert("requeue_of".to_owned(), Value::from(letter.entry_id.as_str()));
    meta.insert("dead_letter_id".to_owned(), Value::from(letter.dead_letter_id.as_str()));
    meta.insert(REQUEUES.to_owned(), Value::from(letter.requeues().saturating_add(1)));
    Ok(NewEntry {
        entry_id: None,
        ns: entry.ns,
        ref_name: entry.ref_name,
        old_oid: entry.old_oid,
        new_oid: entry.new_oid,
        pusher: entry.pusher,
        repo: entry.repo,
        source: SOURCE.to_owned(),
        meta,
    })
}

fn append(journal: &Journal, entry: NewEntry) -> Result<u64> {
    let appended = journal.append(&[entry])?;
    Ok(appended.first().map_or(0, |appended| appended.seq))
}

/// The number of the entry with this id, if the journal has it.
fn find(journal: &Journal, entry_id: &str) -> Result<Option<u64>> {
    let mut reader = journal.read_all()?;
    while let Next::Line(line) = reader.next()? {
        if let Ok(entry) = &line.entry
            && entry.entry_id == entry_id
        {
            // It may have been seen before it was durable, by its writer who is dead.
            reader.sync()?;
            return Ok(Some(entry.seq.unwrap_or(0)));
        }
    }
    Ok(None)
}
