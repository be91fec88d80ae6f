//! Finds the file in which to read, while writers rename and make files.

use std::fs::File;

use super::{Journal, Mismatch, Position, Reader, Resume};
use crate::checkpoint::{Checkpoint, Loaded};
use crate::error::Result;
use crate::files::is_at;

impl Journal {
    /// A reader that goes on where the checkpoint says, or begins anew if that is not possible.
    pub fn resume(&self) -> Result<(Reader, Resume)> {
        let checkpoint = match Checkpoint::load_from(&self.files)? {
            Loaded::Absent => return Ok((self.read_all()?, Resume::Beginning)),
            Loaded::Unreadable => return Ok((self.read_all()?, Resume::Rescan(Mismatch::Unreadable))),
            Loaded::Found(checkpoint) => checkpoint,
        };
        match self.read_from(&checkpoint.position)? {
            Ok(reader) => Ok((reader, Resume::Checkpoint)),
            Err(mismatch) => Ok((self.read_all()?, Resume::Rescan(mismatch))),
        }
    }

    /// A reader at the oldest line there is.
    pub fn read_all(&self) -> Result<Reader> {
        let first = self.lines.numbers()?.first().copied();
        let (file, segment) = match first {
            Some(number) => (self.files.open_read(&self.lines.rotated(number))?, number),
            None => self.open_active()?,
        };
        Ok(Reader::new(self.clone(), file, self.beginning(segment)))
    }

    /// A reader right after a line, if that line is still there.
    pub fn read_from(&self, position: &Position) -> Result<Result<Reader, Mismatch>> {
        if position.journal_id != self.id {
            return Ok(Err(Mismatch::OtherJournal));
        }
        let Some(file) = self.open_segment(position.segment)? else { return Ok(Err(Mismatch::NoSegment)) };
        let reader = Reader::new(self.clone(), Some(file), position.clone());
        Ok(match reader.look_back()? {
            Some(mismatch) => Err(mismatch),
            None => Ok(reader),
        })
    }

    fn beginning(&self, segment: u64) -> Position {
        Position {
            journal_id: self.id.clone(),
            segment,
            offset: 0,
            seq: 0,
            line_from: 0,
            line_crc: 0,
            tails: Vec::new(),
        }
    }

    /// Opens a segment by its number, full or not.
    pub(super) fn open_segment(&self, number: u64) -> Result<Option<File>> {
        // It may become full between the two looks; then it has its number by the second one.
        let (active, active_number) = self.open_active()?;
        if active_number == number && active.is_some() {
            return Ok(active);
        }
        self.files.open_read(&self.lines.rotated(number))
    }

    /// Opens the segment that follows another.
    pub(super) fn open_after(&self, left: u64) -> Result<(Option<File>, u64)> {
        loop {
            if let Some(number) = self.lines.numbers()?.into_iter().find(|number| *number > left) {
                return Ok((self.files.open_read(&self.lines.rotated(number))?, number));
            }
            let (file, number) = self.open_active()?;
            // A lower number: somebody removed the full ones, and what is written now is all that follows. A higher
            // one: it became full while we looked.
            if number <= left + 1 {
                return Ok((file, number));
            }
        }
    }

    /// Opens the segment that is written and finds out its number.
    pub(super) fn open_active(&self) -> Result<(Option<File>, u64)> {
        let path = self.files.path(&self.lines.active());
        loop {
            let file = self.files.open_read(&self.lines.active())?;
            let number = self.lines.numbers()?.last().map_or(1, |last| last + 1);
            match &file {
                // Renamed while we counted: the number may be that of its successor.
                Some(open) if !is_at(open, &path)? => {}
                None if path.exists() => {}
                _ => return Ok((file, number)),
            }
        }
    }
}
