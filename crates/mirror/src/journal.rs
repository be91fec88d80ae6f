//! The journal: which refs moved, in order, for the worker to push on.
//!
//! Many processes append ([`Journal::append`]), each hook of each push among them; one worker reads
//! ([`Journal::resume`]). When an append has answered, its entries are on disk and stay there until the checkpoint is
//! past them *and* they are older than the retention ([`Journal::remove_segments`]). Only where nobody reads they go without
//! that ([`trim_unread`]).
//!
//! All calls block; none takes long.

mod open;
mod position;
mod raw;
mod reader;
mod unread;

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use stargate_base::clock;

pub use self::position::{Mismatch, Position, Tail};
pub use self::reader::{Line, Next, Reader, Resume};
pub use self::unread::{UNREAD_BYTES_MAX, UNREAD_SEGMENT_BYTES, trim_unread};
use crate::checkpoint::{self, Checkpoint};
use crate::entry::{self, NewEntry};
use crate::error::{Error, Result};
use crate::files::Files;
use crate::lines::{LineFile, find_last};

/// The most entries of one append: more refs than anybody pushes at once.
pub const APPEND_ENTRIES_MAX: usize = 10_000;
/// The size from which a segment counts as full, unless told otherwise.
pub const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

const STEM: &str = "mirror-journal";
/// The segment that is written.
pub(crate) const ACTIVE: &str = "mirror-journal.ndjson";
const ID: &str = "mirror-journal.id";
const ID_BYTES_MAX: u64 = 128;

/// The journal of a repository.
///
/// ```
/// use stargate_mirror::{Journal, NewEntry, Next};
///
/// let repo = tempfile::tempdir().unwrap();
/// let journal = Journal::open(repo.path()).unwrap();
/// let entry = NewEntry {
///     ref_name: "refs/kv/main".into(),
///     new_oid: "c".repeat(40),
///     source: "post-receive".into(),
///     ..NewEntry::default()
/// };
/// let appended = journal.append(&[entry]).unwrap();
///
/// let (mut reader, _) = journal.resume().unwrap();
/// let Next::Line(line) = reader.next().unwrap() else { panic!("nothing there") };
/// assert_eq!(line.entry.unwrap().entry_id, appended[0].entry_id);
/// ```
#[derive(Debug, Clone)]
pub struct Journal {
    files: Files,
    lines: LineFile,
    id: String,
}

/// An entry that is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Its id.
    pub entry_id: String,
    /// Its number.
    pub seq: u64,
}

/// A file of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its number, from 1.
    pub number: u64,
    /// Where it is.
    pub path: PathBuf,
    /// How large it is.
    pub bytes: u64,
    /// Whether it is full, so that nothing is appended to it any more.
    pub full: bool,
}

impl Journal {
    /// Opens the journal of a bare repository, and begins one if there is none.
    pub fn open(repo: &Path) -> Result<Self> {
        Self::open_with(repo, SEGMENT_BYTES)
    }

    /// The same with another size of segments.
    pub fn open_with(repo: &Path, segment_bytes: u64) -> Result<Self> {
        let files = Files::open(repo)?;
        let id = identify(&files)?;
        let lines = LineFile::new(files.clone(), STEM, segment_bytes.max(1));
        Ok(Self { files, lines, id })
    }

    /// Which journal this is.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Appends entries, all or none, and answers when they are on disk.
    ///
    /// They stand one after the other, in the order given, and no reader sees a part of a line. If the process dies
    /// before the answer, they may be there or not.
    pub fn append(&self, entries: &[NewEntry]) -> Result<Vec<Appended>> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        if entries.len() > APPEND_ENTRIES_MAX {
            let problem = format!("{} at once, more than {APPEND_ENTRIES_MAX}", entries.len());
            return Err(Error::invalid("entries", problem));
        }
        for entry in entries {
            entry.check()?;
        }
        // A journal that was cut short must not give numbers out again that the checkpoint is past.
        let passed = checkpoint::seq(&self.files);
        let turn = self.lines.turn()?;
        let last = match turn.find_last(entry::checked_seq)? {
            Some(seq) => Some(seq),
            None => self.last_seq_of_full()?,
        };
        let mut seq = last.unwrap_or(0).max(passed);
        let (mut lines, mut appended) = (Vec::new(), Vec::with_capacity(entries.len()));
        let at = now();
        for entry in entries {
            seq = seq.checked_add(1).ok_or_else(|| Error::invalid("seq", "the numbers are used up"))?;
            let entry_id = entry.id();
            entry.write(&entry_id, seq, at, &mut lines)?;
            appended.push(Appended { entry_id, seq });
        }
        turn.append(&lines)?.sync()?;
        Ok(appended)
    }

    /// All files, oldest first. The last is the one that is written, if there is one.
    pub fn segments(&self) -> Result<Vec<Segment>> {
        let numbers = self.lines.numbers()?;
        let active = numbers.last().map_or(1, |last| last + 1);
        let full = numbers.into_iter().map(|number| (number, self.lines.rotated(number), true));
        let all = full.chain([(active, self.lines.active(), false)]);
        let mut segments = Vec::new();
        for (number, name, full) in all {
            let path = self.files.path(&name);
            match std::fs::symlink_metadata(&path) {
                Ok(found) => segments.push(Segment { number, path, bytes: found.len(), full }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("look at", &path)(error)),
            }
        }
        Ok(segments)
    }

    /// How many bytes lie after a position: what is still to be read.
    pub fn bytes_after(&self, position: &Position) -> Result<u64> {
        let after = self.segments()?.into_iter().map(|segment| match segment.number {
            number if number < position.segment => 0,
            number if number > position.segment => segment.bytes,
            _ => segment.bytes.saturating_sub(position.offset),
        });
        Ok(after.sum())
    }

    /// Removes full segments that the checkpoint is past and that were last written before `written_before`. Answers
    /// their numbers.
    ///
    /// The newest full one stays, because the number of the next is taken from it; so does one with lines at its end
    /// that nobody has read.
    pub fn remove_segments(&self, checkpoint: &Checkpoint, written_before: Timestamp) -> Result<Vec<u64>> {
        let position = &checkpoint.position;
        let mut removed = Vec::new();
        if position.journal_id != self.id {
            return Ok(removed);
        }
        let mut full: Vec<Segment> = self.segments()?.into_iter().filter(|segment| segment.full).collect();
        full.pop();
        for segment in full.into_iter().filter(|segment| segment.number < position.segment) {
            let unread = |tail: &Tail| tail.segment == segment.number && tail.offset < segment.bytes;
            let found =
                std::fs::symlink_metadata(&segment.path).map_err(Error::io("look at", &segment.path))?;
            let written = Timestamp::from_second(found.mtime()).unwrap_or(Timestamp::MAX);
            if written < written_before && !position.tails.iter().any(unread) {
                self.files.remove(&self.lines.rotated(segment.number))?;
                removed.push(segment.number);
            }
        }
        Ok(removed)
    }

    /// The same by age.
    pub fn remove_segments_older_than(&self, checkpoint: &Checkpoint, age: Duration) -> Result<Vec<u64>> {
        let age = jiff::SignedDuration::try_from(age).unwrap_or(jiff::SignedDuration::MAX);
        let before = clock::wall().saturating_sub(age).unwrap_or(Timestamp::MIN);
        self.remove_segments(checkpoint, before)
    }

    /// The last number given out in the full segments.
    fn last_seq_of_full(&self) -> Result<Option<u64>> {
        for number in self.lines.numbers()?.into_iter().rev() {
            let name = self.lines.rotated(number);
            let Some(file) = self.files.open_read(&name)? else { continue };
            let path = self.files.path(&name);
            let bytes = file.metadata().map_err(Error::io("look at", &path))?.len();
            let found = find_last(&file, bytes, entry::checked_seq).map_err(Error::io("read", &path))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// Now, to the millisecond: nobody needs more, and lines stay short.
fn now() -> Timestamp {
    let now = clock::wall();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

/// Reads which journal this is, or begins one. Whoever is first decides.
fn identify(files: &Files) -> Result<String> {
    for _ in 0..2 {
        if let Some(content) = files.read(ID, ID_BYTES_MAX)? {
            let id = String::from_utf8_lossy(&content).trim().to_owned();
            if !id.is_empty() {
                return Ok(id);
            }
            // Only somebody else can have emptied it; a new one makes the checkpoint void, which is right.
            files.replace(ID, format!("{}\n", entry::new_id()).as_bytes())?;
        } else {
            files.publish(ID, format!("{}\n", entry::new_id()).as_bytes())?;
        }
    }
    let path = files.path(ID);
    Err(Error::Unsafe { path, problem: "cannot be kept: somebody removes or empties it" })
}
