//! Where in a file we are, and whether it is still the same file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stargate_directive::Pointer;
use stargate_directive::source::SourceError;

use super::{shifted, unreadable};
use crate::problem::pointer;

/// How much at its beginning, and as much before a place, tells a file from another one.
const SAMPLE_BYTES: u64 = 4096;
const BUFFER: usize = 64 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A place as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Position {
    /// Bytes before it.
    offset: u64,
    /// The number of the line that begins there, from 1.
    line: u64,
    /// A hash over the bytes before it, but only the first few of the file and the last few.
    file: String,
}

impl Position {
    /// What a pointer means; nothing is the beginning.
    pub(super) fn read(from: &Pointer) -> Result<Option<Self>, SourceError> {
        if from.is_null() {
            return Ok(None);
        }
        Deserialize::deserialize(from).map(Some).map_err(|_| pointer("a source of type file"))
    }

    /// As a pointer.
    pub(super) fn write(&self) -> Pointer {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// A file and where in it we are.
#[derive(Debug)]
pub(super) struct Input {
    file: BufReader<File>,
    offset: u64,
    line: u64,
}

impl Input {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "is no regular file"));
        }
        let mut input = Self { file: BufReader::with_capacity(BUFFER, file), offset: 0, line: 1 };
        if input.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
            input.consume(BYTE_ORDER_MARK.len());
        }
        Ok(input)
    }

    /// Goes to a place, if the file is still the one it belongs to.
    pub(super) fn go_to(&mut self, place: &Position, path: &Path) -> Result<(), SourceError> {
        let broken = |error: io::Error| unreadable(path, &error);
        if !self.is_same(place).map_err(broken)? {
            return Err(shifted(path));
        }
        self.file.seek(SeekFrom::Start(place.offset)).map_err(broken)?;
        (self.offset, self.line) = (place.offset, place.line);
        Ok(())
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// Bytes and lines before us.
    pub(super) fn position(&self) -> (u64, u64) {
        (self.offset, self.line)
    }

    /// A place as it is kept.
    pub(super) fn place(&self, (offset, line): (u64, u64)) -> io::Result<Position> {
        Ok(Position { offset, line, file: self.sample(offset)? })
    }

    /// Whether the file is still the one a place belongs to, and as long as what was read of it.
    pub(super) fn is_same(&self, place: &Position) -> io::Result<bool> {
        let length = self.file.get_ref().metadata()?.len();
        Ok(length >= place.offset.max(self.offset) && self.sample(place.offset)? == place.file)
    }

    /// A hash over what stands at the beginning and before a byte.
    fn sample(&self, offset: u64) -> io::Result<String> {
        let mut sample = vec![0; offset.min(2 * SAMPLE_BYTES) as usize];
        let (head, tail) = sample.split_at_mut(offset.min(SAMPLE_BYTES) as usize);
        self.file.get_ref().read_exact_at(head, 0)?;
        self.file.get_ref().read_exact_at(tail, offset - tail.len() as u64)?;
        let digest = Sha256::digest(&sample);
        Ok(digest[..16].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Passes over ends of lines; what is there then, or nothing at the end of the file.
    pub(super) fn skip_ends(&mut self) -> io::Result<Option<u8>> {
        loop {
            match self.fill_buf()?.first() {
                Some(b'\n' | b'\r') => self.consume(1),
                other => return Ok(other.copied()),
            }
        }
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?;
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        self.consume(count);
        Ok(count)
    }
}

/// Counts bytes and lines as they go.
impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.file.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.line += self.file.buffer()[..count].iter().filter(|byte| **byte == b'\n').count() as u64;
        self.offset += count as u64;
        self.file.consume(count);
    }
}
