//! The status records: what became of each entry.
//!
//! A record is appended and synced after its entry was pushed or given up, and before the checkpoint moves. A worker
//! that dies in between reads the entry again and finds its record here ([`Statuses::index`]). Records older than the
//! last few files are gone; an entry that is read again after that is compared with the remote like a new one.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_base::clock;

use crate::entry::ENTRY_ID_BYTES_MAX;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::lines::{LineFile, Unended, visit_last};

/// The most records that are looked at for the index, newest first.
pub const INDEX_RECORDS_MAX: usize = 200_000;
/// The most records of one append.
pub const APPEND_RECORDS_MAX: usize = 10_000;

const STEM: &str = "mirror-status";
/// The size from which a file counts as full: some hundred thousand records.
const FILE_BYTES: u64 = 16 * 1024 * 1024;
/// How many full files are kept.
const FILES_KEPT: usize = 8;

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The remote has it.
    Completed,
    /// It was given up; there is a dead letter.
    DeadLetter,
    /// The remote has something newer.
    Superseded,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Of which entry.
    pub entry_id: String,
    /// What became of it.
    pub status: Status,
    /// When.
    pub at: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// How: `push`, `already-mirrored`, `coalesced`, …
    #[serde(default)]
    pub via: Option<String>,
    /// From the entry's time stamp until now.
    #[serde(default)]
    pub lag_ms: Option<u64>,
    /// Checksum of its line, so that two entries to which their writer gave the same id are told apart.
    #[serde(default)]
    pub line_crc: Option<String>,
}

/// The status records of a repository.
#[derive(Debug, Clone)]
pub struct Statuses {
    files: Files,
    lines: LineFile,
}

/// Which entries have a record.
#[derive(Debug, Default)]
pub struct Index {
    records: HashMap<(String, Option<String>), Status>,
}

impl Statuses {
    /// Opens the records of a bare repository.
    pub fn open(repo: &Path) -> Result<Self> {
        Self::open_with(repo, FILE_BYTES)
    }

    /// The same with another size of files.
    pub fn open_with(repo: &Path, file_bytes: u64) -> Result<Self> {
        let files = Files::open(repo)?;
        let lines = LineFile::new(files.clone(), STEM, file_bytes.max(1));
        Ok(Self { files, lines })
    }

    /// Appends records and answers when they are durable.
    pub fn append(&self, records: &[Record]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        if records.len() > APPEND_RECORDS_MAX {
            let problem = format!("{} at once, more than {APPEND_RECORDS_MAX}", records.len());
            return Err(Error::invalid("status records", problem));
        }
        let mut lines = Vec::new();
        for record in records {
            if record.entry_id.len() > ENTRY_ID_BYTES_MAX {
                return Err(Error::invalid("entry_id", "is too long"));
            }
            serde_json::to_writer(&mut lines, record)
                .map_err(|error| Error::invalid("status record", error.to_string()))?;
            lines.push(b'\n');
        }
        self.lines.turn()?.append(&lines)?.sync()?;
        self.forget()
    }

    /// The latest records, newest first, at most `limit`.
    pub fn latest(&self, limit: usize) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        self.visit(limit, |record| records.push(record))?;
        Ok(records)
    }

    /// Which entries have a record, as far back as records are kept or [`INDEX_RECORDS_MAX`] reach.
    pub fn index(&self) -> Result<Index> {
        let mut index = Index::default();
        // Newest first: the newest record of an entry counts.
        self.visit(INDEX_RECORDS_MAX, |record| {
            index.records.entry((record.entry_id, record.line_crc)).or_insert(record.status);
        })?;
        Ok(index)
    }

    fn visit(&self, limit: usize, mut each: impl FnMut(Record)) -> Result<()> {
        let full = self.lines.numbers()?.into_iter().rev().map(|number| self.lines.rotated(number));
        let mut left = limit;
        for name in [self.lines.active()].into_iter().chain(full) {
            let Some(file) = self.files.open_read(&name)? else { continue };
            let mut visit = || -> io::Result<()> {
                let bytes = file.metadata()?.len();
                visit_last(&file, bytes, Unended::PassedOver, |line| {
                    // What cannot be read tells nothing about any entry; the entry is looked at again.
                    if let (1.., Ok(record)) = (left, serde_json::from_slice(line)) {
                        each(record);
                        left -= 1;
                    }
                    left > 0
                })
            };
            visit().map_err(Error::io("read", &self.files.path(&name)))?;
        }
        Ok(())
    }

    /// Removes the oldest full files.
    fn forget(&self) -> Result<()> {
        let numbers = self.lines.numbers()?;
        for number in &numbers[..numbers.len().saturating_sub(FILES_KEPT)] {
            self.files.remove(&self.lines.rotated(*number))?;
        }
        Ok(())
    }
}

impl Index {
    /// What became of the entry of this id, if its line had this checksum.
    pub fn status(&self, entry_id: &str, line_crc: u32) -> Option<Status> {
        self.records.get(&(entry_id.to_owned(), Some(crc_text(line_crc)))).copied()
    }

    /// Enters what was just recorded.
    pub fn enter(&mut self, record: &Record) {
        self.records.insert((record.entry_id.clone(), record.line_crc.clone()), record.status);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl Record {
    /// A record of now.
    pub fn new(entry_id: impl Into<String>, line_crc: u32, status: Status, attempts: u32) -> Self {
        Self {
            entry_id: entry_id.into(),
            status,
            at: clock::wall(),
            attempts,
            via: None,
            lag_ms: None,
            line_crc: Some(crc_text(line_crc)),
        }
    }
}

fn crc_text(crc: u32) -> String {
    format!("{crc:08x}")
}
