//! The bytes of a line, however long it is, and what they say.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::reader::BLOCK;
use crate::entry::{self, Entry, LINE_BYTES_MAX, Malformed, Place};

/// The bytes of a line that has its newline.
#[derive(Debug)]
pub(super) struct Raw {
    /// Without the newline; not more than an entry can have.
    pub(super) kept: Vec<u8>,
    /// All of it, with the newline.
    pub(super) bytes: u64,
    /// CRC-32C of all of it.
    pub(super) crc: u32,
}

impl Raw {
    /// Of bytes that end with a newline.
    pub(super) fn of(line: &[u8]) -> Self {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let kept = text[..text.len().min(LINE_BYTES_MAX)].to_vec();
        Self { kept, bytes: line.len() as u64, crc: crc32c::crc32c(line) }
    }

    /// Of the line that begins at `from`; none if it has no newline yet. Keeps no more of it than an entry can have.
    pub(super) fn read(file: &File, from: u64) -> io::Result<Option<Self>> {
        let mut line = Self { kept: Vec::new(), bytes: 0, crc: 0 };
        let mut block = vec![0; BLOCK];
        loop {
            let read = read_at_most(file, &mut block, from + line.bytes)?;
            let newline = block[..read].iter().position(|b| *b == b'\n');
            let piece = &block[..newline.map_or(read, |at| at + 1)];
            let text = &piece[..newline.unwrap_or(read)];
            let room = LINE_BYTES_MAX - line.kept.len();
            line.kept.extend_from_slice(&text[..text.len().min(room)]);
            line.crc = crc32c::crc32c_append(line.crc, piece);
            line.bytes += piece.len() as u64;
            if newline.is_some() {
                return Ok(Some(line));
            }
            if read < BLOCK {
                return Ok(None);
            }
        }
    }

    /// Empty lines say nothing: a writer ended a line that was whole already.
    pub(super) fn is_blank(&self) -> bool {
        self.bytes <= LINE_BYTES_MAX as u64 && self.kept.trim_ascii().is_empty()
    }

    pub(super) fn understand(&self, segment: u64, offset: u64) -> Result<Entry, Malformed> {
        if self.bytes > LINE_BYTES_MAX as u64 {
            let reason = format!("{} bytes, more than {LINE_BYTES_MAX}", self.bytes);
            return Err(Malformed { reason, raw: self.kept.clone(), bytes: self.bytes - 1 });
        }
        entry::parse(&self.kept, Place { segment, offset })
    }
}

/// CRC-32C of a part of a file; none if the file ends before it does.
pub(super) fn crc_between(file: &File, from: u64, to: u64) -> io::Result<Option<u32>> {
    let (mut at, mut crc) = (from, 0);
    let mut block = vec![0; BLOCK.min(usize::try_from(to - from).unwrap_or(BLOCK))];
    while at < to {
        let wanted = block.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
        let read = read_at_most(file, &mut block[..wanted], at)?;
        if read == 0 {
            return Ok(None);
        }
        crc = crc32c::crc32c_append(crc, &block[..read]);
        at += read as u64;
    }
    Ok(Some(crc))
}

/// Reads until the buffer is full or the file ends.
pub(super) fn read_at_most(file: &File, buffer: &mut [u8], from: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], from + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
