//! The body of an answer: in memory while it is small, in a file without a name when it is not.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Cursor, Read, Seek as _, SeekFrom, Write};
use std::path::PathBuf;

use flate2::write::MultiGzDecoder;
use stargate_directive::source::{Records, SourceError};

use crate::elements::{Elements, RECORD_BYTES_MAX};
use crate::json::{self, Found, Wanted};
use crate::problem::scratch;

/// What is kept in memory at most.
pub(crate) const MEMORY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The largest body that is taken.
const BODY_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// What a file is read by.
const BUFFER: usize = 64 * 1024;
/// What is looked at of a body that is no JSON.
const BEGINNING: u64 = 4096;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Why a body cannot be used.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// Our own disk.
    Scratch(SourceError),
    /// It is larger than any may be.
    TooLarge,
    /// It is not what it should be; with its beginning.
    Garbled { problem: String, beginning: Vec<u8> },
}

/// Takes a body piece by piece. Writing may block.
#[derive(Debug)]
pub(crate) struct Intake(Inner);

#[derive(Debug)]
enum Inner {
    Plain(Store),
    Gzip(Box<MultiGzDecoder<Store>>),
}

impl Intake {
    pub(crate) fn new(scratch: PathBuf, is_gzip: bool) -> Self {
        let store = Store { scratch, memory: Vec::new(), file: None, length: 0 };
        Self(if is_gzip { Inner::Gzip(Box::new(MultiGzDecoder::new(store))) } else { Inner::Plain(store) })
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        let taken = match &mut self.0 {
            Inner::Plain(store) => store.write_all(bytes),
            Inner::Gzip(decoder) => decoder.write_all(bytes),
        };
        taken.map_err(|error| judged(&error))
    }

    /// All of it has come.
    pub(crate) fn finish(self) -> Result<Body, BodyError> {
        let store = match self.0 {
            Inner::Plain(store) => store,
            Inner::Gzip(decoder) => decoder.finish().map_err(|error| judged(&error))?,
        };
        Ok(store.file.map_or_else(|| Body::Memory(store.memory), Body::File))
    }
}

fn judged(error: &io::Error) -> BodyError {
    match error.kind() {
        io::ErrorKind::FileTooLarge => BodyError::TooLarge,
        // Of the decoder: the file gives none of these.
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            BodyError::Garbled {
                problem: format!("its compression is broken: {error}"),
                beginning: Vec::new(),
            }
        }
        _ => BodyError::Scratch(scratch(error)),
    }
}

#[derive(Debug)]
struct Store {
    scratch: PathBuf,
    memory: Vec<u8>,
    /// It has no name: it is gone with the process, however that ends.
    file: Option<File>,
    length: u64,
}

impl Write for Store {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.length += bytes.len() as u64;
        if self.length > BODY_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if self.file.is_none() && self.memory.len() + bytes.len() > MEMORY_BYTES_MAX {
            let mut file = tempfile::tempfile_in(&self.scratch)?;
            file.write_all(&self.memory)?;
            self.memory = Vec::new();
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(bytes)?,
            None => self.memory.extend_from_slice(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A whole body.
#[derive(Debug)]
pub(crate) enum Body {
    Memory(Vec<u8>),
    File(File),
}

impl Body {
    /// What the body says, and its records, which are not read before they are asked for if there are many.
    pub(crate) fn read(self, wanted: &Wanted) -> Result<(Found, Records), BodyError> {
        match self {
            Self::Memory(bytes) => {
                let start = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
                let Ok(text) = std::str::from_utf8(&bytes[start..]) else {
                    // One bad record must not spoil the page: they are cut apart first.
                    return stream(Cursor::new(bytes), wanted);
                };
                let mut found = json::take(text, wanted).map_err(|error| no_json(&error, &bytes))?;
                let records = std::mem::take(&mut found.records);
                Ok((found, Records::memory(records.into_iter().map(Ok).collect())))
            }
            Self::File(file) => stream(file, wanted),
        }
    }
}

/// Reads a body twice: what it says, then its records.
fn stream<R>(body: R, wanted: &Wanted) -> Result<(Found, Records), BodyError>
where
    R: Read + io::Seek + Send + 'static,
{
    let broken = |error: io::Error| BodyError::Scratch(scratch(&error));
    let mut body = BufReader::with_capacity(BUFFER, body);
    body.seek(SeekFrom::Start(0)).map_err(broken)?;
    let has_mark = body.fill_buf().map_err(broken)?.starts_with(BYTE_ORDER_MARK);
    let start = if has_mark { BYTE_ORDER_MARK.len() as u64 } else { 0 };
    body.seek(SeekFrom::Start(start)).map_err(broken)?;
    let found = match json::count(&mut body, wanted) {
        Ok(found) => found,
        Err(error) if error.is_io() => return Err(BodyError::Scratch(scratch(&error.into()))),
        Err(error) => {
            let mut beginning = Vec::new();
            body.seek(SeekFrom::Start(0)).map_err(broken)?;
            body.take(BEGINNING).read_to_end(&mut beginning).map_err(broken)?;
            return Err(no_json(&error, &beginning));
        }
    };
    if found.records_at == 0 {
        return Ok((found, Records::memory(Vec::new())));
    }
    body.seek(SeekFrom::Start(start + found.records_at)).map_err(broken)?;
    Ok((found, Records::stream(Elements::new(body, RECORD_BYTES_MAX))))
}

fn no_json(error: &serde_json::Error, bytes: &[u8]) -> BodyError {
    let what = if error.is_eof() { "ends too early" } else { "is no JSON" };
    let beginning = bytes[..bytes.len().min(BEGINNING as usize)].to_vec();
    BodyError::Garbled { problem: format!("the answer {what}: {error}"), beginning }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(pieces: &[&[u8]], is_gzip: bool) -> Result<Body, BodyError> {
        let mut intake = Intake::new(std::env::temp_dir(), is_gzip);
        pieces.iter().try_for_each(|piece| intake.take(piece))?;
        intake.finish()
    }

    fn read(body: Body) -> (u64, Vec<String>) {
        let (found, records) = body.read(&Wanted::new("/items", None, None)).unwrap();
        let records = records.map(|record| match record.unwrap() {
            Ok(json) => json.get().to_owned(),
            Err(garbled) => garbled.problem,
        });
        (found.count, records.collect())
    }

    #[test]
    fn a_body_is_the_same_in_memory_and_in_a_file() {
        let small = body(&[b"{\"items\":[1,", b"{\"a\":2}]}"], false).unwrap();
        assert!(matches!(small, Body::Memory(_)));
        assert_eq!(read(small), (2, vec!["1".to_owned(), "{\"a\":2}".to_owned()]));
        let filling = " ".repeat(MEMORY_BYTES_MAX);
        let large =
            body(&[b"\xef\xbb\xbf{\"items\":[1,", filling.as_bytes(), b"{\"a\":2}]}"], false).unwrap();
        assert!(matches!(large, Body::File(_)));
        assert_eq!(read(large), (2, vec!["1".to_owned(), "{\"a\":2}".to_owned()]));
    }

    #[test]
    fn one_record_that_is_not_text_does_not_spoil_the_page() {
        let body = body(&[b"\xef\xbb\xbf{\"items\":[1,\"\xff\",3]}"], false).unwrap();
        assert_eq!(read(body), (3, ["1", "record 2 is not UTF-8", "3"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn compressed_bodies_are_read_and_broken_ones_refused() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(b"{\"items\":[1,2]}").unwrap();
        let compressed = encoder.finish().unwrap();
        assert_eq!(read(body(&[&compressed], true).unwrap()).0, 2);
        for broken in [&compressed[..compressed.len() - 9], &compressed[..4], b"{\"items\":[]}"] {
            let read = body(&[broken], true).and_then(|body| body.read(&Wanted::new("/items", None, None)));
            assert!(matches!(read, Err(BodyError::Garbled { .. })), "{read:?}");
        }
    }

    #[test]
    fn a_scratch_folder_that_is_not_there_is_told_and_may_come_back() {
        let mut intake = Intake::new(PathBuf::from("/nowhere/at/all"), false);
        intake.take(&vec![b' '; MEMORY_BYTES_MAX]).unwrap();
        let Err(BodyError::Scratch(error)) = intake.take(b" ") else { unreachable!() };
        assert_eq!(
            (error.code, error.class),
            ("SCRATCH_UNAVAILABLE", stargate_base::ErrorClass::RetryableTransient)
        );
    }
}
