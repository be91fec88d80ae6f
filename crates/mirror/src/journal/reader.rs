//! Reads the journal, line by line, through the change of files, and notices when it is not the same journal.
//!
//! What has no newline yet is not written yet and is read again from its beginning each time, because its writer may
//! take it back. What was read before is looked at again with each block, so that a journal that was cut short and
//! has grown again is noticed.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::raw::{Raw, crc_between, read_at_most};
use super::{Journal, Mismatch, Position, Tail};
use crate::entry::{self, Entry, LINE_BYTES_MAX, Malformed, Place};
use crate::error::{Error, Result};
use crate::files::is_at;

/// What is read at once. Longer than any line of ours.
pub(super) const BLOCK: usize = 4 * LINE_BYTES_MAX;
/// How many full segments are looked at again for lines that came late.
const TAILS_MAX: usize = 4;

/// Reads the journal.
#[derive(Debug)]
pub struct Reader {
    journal: Journal,
    /// The file that is read; none while the journal has none.
    file: Option<File>,
    position: Position,
    /// Bytes of the file: how many there are, and where in it they begin.
    block: Box<[u8]>,
    filled: usize,
    block_from: u64,
}

/// Where a reader began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// There was no checkpoint: at the oldest line.
    Beginning,
    /// Right after the line of the checkpoint.
    Checkpoint,
    /// The checkpoint does not fit the journal: at the oldest line there is. Nothing is passed over; the status
    /// records tell which entries are accounted for already.
    Rescan(Mismatch),
}

/// What a reader found.
#[derive(Debug)]
pub enum Next {
    /// A whole line.
    Line(Box<Line>),
    /// Nothing, or only the beginning of a line.
    NotYet,
    /// This is not the journal that was read so far. Call [`Journal::resume`] again.
    Broken(Mismatch),
}

/// A whole line.
#[derive(Debug, Clone)]
pub struct Line {
    /// What it says.
    pub entry: Result<Entry, Malformed>,
    /// Its bytes without the newline, as far as an entry can have.
    pub raw: Vec<u8>,
    /// The file it stands in.
    pub segment: u64,
    /// Its first byte.
    pub from: u64,
    /// The first byte after its newline.
    pub to: u64,
    /// CRC-32C of the line with its newline.
    pub crc: u32,
    /// The position to store once this line, and all before it, are accounted for.
    pub position: Position,
}

impl Line {
    /// The id by which the line is known, also if it is no entry.
    pub fn entry_id(&self) -> String {
        let place = Place { segment: self.segment, offset: self.from };
        match &self.entry {
            Ok(entry) => entry.entry_id.clone(),
            Err(_) => entry::id_of(&self.raw, place),
        }
    }
}

impl Reader {
    pub(super) fn new(journal: Journal, file: Option<File>, position: Position) -> Self {
        let block_from = position.offset;
        Self { journal, file, position, block: vec![0; BLOCK].into(), filled: 0, block_from }
    }

    /// After the last line that was read.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// The next whole line.
    #[expect(clippy::should_implement_trait, reason = "an end that is none, and errors: no iterator")]
    pub fn next(&mut self) -> Result<Next> {
        loop {
            if let Some(found) = self.line_of_file()? {
                return Ok(found);
            }
            match self.whereabouts()? {
                Whereabouts::Written => return self.late_line(),
                Whereabouts::Gone => return Ok(Next::Broken(Mismatch::Replaced)),
                // What was written before it was renamed can be seen by now.
                Whereabouts::Full => match self.line_of_file()? {
                    Some(found) => return Ok(found),
                    None => self.go_on()?,
                },
            }
        }
    }

    /// Reads a line again: what could not be understood may have been read while it was being changed. None if there
    /// is no whole line any more.
    pub fn reread(&self, line: &Line) -> Result<Option<Line>> {
        let Some(file) = self.journal.open_segment(line.segment)? else { return Ok(None) };
        let raw = Raw::read(&file, line.from).map_err(self.reading())?;
        Ok(raw.filter(|raw| line.from + raw.bytes == line.to).map(|raw| {
            let mut again = line.clone();
            again.entry = raw.understand(line.segment, line.from);
            again.crc = raw.crc;
            again.raw = raw.kept;
            if again.position.segment == line.segment {
                again.position.line_crc = raw.crc;
            }
            again
        }))
    }

    /// Makes everything that was read so far durable. To be called before a checkpoint: writers sync after they have
    /// let others read.
    pub fn sync(&self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.sync_data().map_err(Error::fail_stop(&self.path()))
    }

    /// The next whole line of this file.
    fn line_of_file(&mut self) -> Result<Option<Next>> {
        loop {
            if let Some(line) = self.line_of_block() {
                return Ok(Some(Next::Line(Box::new(line))));
            }
            if self.file.is_none() {
                // Not only the one that is written: it may have become full before we ever saw it.
                self.file = self.journal.open_segment(self.position.segment)?;
            }
            if let Some(mismatch) = self.look_back()? {
                return Ok(Some(Next::Broken(mismatch)));
            }
            if !self.refill()? {
                return Ok(None);
            }
            if !self.block[..self.filled].contains(&b'\n') {
                // Longer than a block, if it has an end at all.
                let Some(file) = &self.file else { return Ok(None) };
                let raw = Raw::read(file, self.position.offset).map_err(self.reading())?;
                return Ok(raw.map(|raw| Next::Line(Box::new(self.pass(&raw)))));
            }
        }
    }

    /// Takes the next line out of the block, passing over empty ones.
    fn line_of_block(&mut self) -> Option<Line> {
        loop {
            let at = usize::try_from(self.position.offset.checked_sub(self.block_from)?).ok()?;
            let rest = self.block[..self.filled].get(at..)?;
            let length = rest.iter().position(|b| *b == b'\n')?;
            let raw = Raw::of(&rest[..=length]);
            let line = self.pass(&raw);
            if !raw.is_blank() {
                return Some(line);
            }
        }
    }

    /// Moves past a line.
    fn pass(&mut self, raw: &Raw) -> Line {
        let (segment, from) = (self.position.segment, self.position.offset);
        let entry = raw.understand(segment, from);
        if let Ok(Entry { seq: Some(seq), checked: true, .. }) = entry {
            self.position.seq = self.position.seq.max(seq);
        }
        self.position.line_from = from;
        self.position.offset = from + raw.bytes;
        self.position.line_crc = raw.crc;
        let (to, crc) = (self.position.offset, raw.crc);
        Line { entry, raw: raw.kept.clone(), segment, from, to, crc, position: self.position.clone() }
    }

    /// Reads the next block. False if it holds no more than the beginning of a line.
    fn refill(&mut self) -> Result<bool> {
        let Some(file) = &self.file else { return Ok(false) };
        self.block_from = self.position.offset;
        self.filled = 0;
        let read = read_at_most(file, &mut self.block, self.block_from).map_err(self.reading())?;
        let useful = read == BLOCK || self.block[..read].contains(&b'\n');
        if useful {
            // Otherwise its writer may take it back, and it must not be put together with what comes next.
            self.filled = read;
        }
        Ok(useful)
    }

    /// Whether what was read last is still there.
    pub(super) fn look_back(&self) -> Result<Option<Mismatch>> {
        let Position { offset, line_from, line_crc, .. } = self.position;
        let Some(file) = &self.file else {
            return Ok((offset > 0).then_some(Mismatch::Replaced));
        };
        let bytes = file.metadata().map_err(self.reading())?.len();
        if bytes < offset || line_from > offset {
            return Ok(Some(Mismatch::Shorter));
        }
        let crc = crc_between(file, line_from, offset).map_err(self.reading())?;
        Ok((line_from < offset && crc != Some(line_crc)).then_some(Mismatch::OtherLine))
    }

    fn whereabouts(&self) -> Result<Whereabouts> {
        let active = self.journal.files.path(&self.journal.lines.active());
        let full = self.journal.files.path(&self.journal.lines.rotated(self.position.segment));
        Ok(match &self.file {
            Some(file) if is_at(file, &active)? => Whereabouts::Written,
            Some(file) if is_at(file, &full)? => Whereabouts::Full,
            Some(_) => Whereabouts::Gone,
            None if self.journal.open_active()?.1 == self.position.segment => Whereabouts::Written,
            None => Whereabouts::Full,
        })
    }

    /// To the next file. That it is not there yet is no reason to wait here.
    fn go_on(&mut self) -> Result<()> {
        // Once it is left, nobody would sync it before the checkpoint passes it.
        self.sync()?;
        let left = self.position.segment;
        let (file, segment) = self.journal.open_after(left)?;
        if segment != left + 1 {
            tracing::warn!(left, next = segment, "segments of the journal are missing");
        }
        self.file = file;
        (self.filled, self.block_from) = (0, 0);
        let position = &mut self.position;
        position.tails.push(Tail { segment: left, offset: position.offset });
        let surplus = position.tails.len().saturating_sub(TAILS_MAX);
        position.tails.drain(..surplus);
        (position.segment, position.offset, position.line_from, position.line_crc) = (segment, 0, 0, 0);
        Ok(())
    }

    /// A line that was appended to a full segment after we had left it.
    fn late_line(&mut self) -> Result<Next> {
        for index in 0..self.position.tails.len() {
            let Tail { segment, offset } = self.position.tails[index];
            let name = self.journal.lines.rotated(segment);
            let path = self.journal.files.path(&name);
            if !std::fs::symlink_metadata(&path).is_ok_and(|found| found.len() > offset) {
                continue;
            }
            let Some(file) = self.journal.files.open_read(&name)? else { continue };
            let mut from = offset;
            while let Some(raw) = Raw::read(&file, from).map_err(Error::io("read", &path))? {
                let to = from + raw.bytes;
                self.position.tails[index].offset = to;
                if !raw.is_blank() {
                    file.sync_data().map_err(Error::fail_stop(&path))?;
                    let entry = raw.understand(segment, from);
                    let position = self.position.clone();
                    let (crc, raw) = (raw.crc, raw.kept);
                    let line = Line { entry, raw, segment, from, to, crc, position };
                    return Ok(Next::Line(Box::new(line)));
                }
                from = to;
            }
        }
        Ok(Next::NotYet)
    }

    fn path(&self) -> PathBuf {
        self.journal.files.path(&self.journal.lines.active())
    }

    fn reading(&self) -> impl FnOnce(io::Error) -> Error {
        let path = self.path();
        move |error| Error::io("read", &path)(error)
    }
}

/// Where the file is that we have open.
enum Whereabouts {
    /// It is the one that is written.
    Written,
    /// It is full and was renamed.
    Full,
    /// It has neither name.
    Gone,
}
