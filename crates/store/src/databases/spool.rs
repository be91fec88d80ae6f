//! The records of a page: in memory, and what is too much for that in a file without a name.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use serde_json::value::RawValue;
use stargate_base::ErrorClass;
use stargate_directive::source::{Garbled, Record, Records, SourceError};

use super::PAGE_ROWS_MAX;
use super::error::{scratch, shape};

/// What a page may take in memory.
const MEMORY_BYTES_MAX: usize = 8 << 20;
/// What a page may take on the disk.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// Collects the records of a page.
#[derive(Debug)]
pub(super) struct Spool {
    folder: PathBuf,
    memory: Vec<Record>,
    memory_bytes: usize,
    file: Option<BufWriter<File>>,
    file_bytes: u64,
    count: u32,
}

impl Spool {
    /// Writes into `folder` what does not fit into memory.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, memory: Vec::new(), memory_bytes: 0, file: None, file_bytes: 0, count: 0 }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Takes the next record.
    pub(super) fn push(&mut self, record: Record) -> Result<(), SourceError> {
        if self.count == PAGE_ROWS_MAX {
            return Err(shape(format!(
                "more than {PAGE_ROWS_MAX} rows have the same watermark and must be read together; let the query \
                 give one that is finer, such as the time and the id put together as text"
            )));
        }
        self.count += 1;
        let bytes = match &record {
            Ok(json) => json.get().len(),
            Err(garbled) => garbled.text.len() + garbled.problem.len(),
        };
        // What came first is read first, so nothing returns to memory once there is a file.
        if self.file.is_none() && self.memory_bytes + bytes <= MEMORY_BYTES_MAX {
            self.memory_bytes += bytes;
            self.memory.push(record);
            return Ok(());
        }
        self.file_bytes += bytes as u64;
        if self.file_bytes > FILE_BYTES_MAX {
            let message = format!(
                "a page of the source has more than {} GiB; make page_size smaller, or the watermark finer",
                FILE_BYTES_MAX >> 30
            );
            return Err(SourceError::new(ErrorClass::Fatal, "SOURCE_TOO_LARGE", message));
        }
        self.write(&record).map_err(|error| scratch(&error))
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(BufWriter::new(tempfile::tempfile_in(&self.folder)?)),
        };
        match record {
            Ok(json) => write_text(file, b'j', json.get()),
            Err(garbled) => {
                write_text(file, b't', &garbled.text)?;
                write_text(file, b'p', &garbled.problem)
            }
        }
    }

    /// All of them in their order.
    pub(super) fn finish(self) -> Result<Records, SourceError> {
        let Some(file) = self.file else { return Ok(Records::memory(self.memory)) };
        let rewound = file.into_inner().map_err(io::IntoInnerError::into_error).and_then(|mut file| {
            file.seek(SeekFrom::Start(0))?;
            Ok(file)
        });
        let file = Spooled(BufReader::new(rewound.map_err(|error| scratch(&error))?));
        Ok(Records::stream(self.memory.into_iter().map(Ok).chain(file)))
    }
}

/// Texts are written with what they are and their length.
fn write_text(file: &mut BufWriter<File>, kind: u8, text: &str) -> io::Result<()> {
    file.write_all(&[kind])?;
    file.write_all(&(text.len() as u64).to_le_bytes())?;
    file.write_all(text.as_bytes())
}

/// Reads back what was written.
struct Spooled(BufReader<File>);

impl Iterator for Spooled {
    type Item = Result<Record, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.record().map_err(|error| scratch(&error)).transpose()
    }
}

impl Spooled {
    fn record(&mut self) -> io::Result<Option<Record>> {
        Ok(match self.text()? {
            None => None,
            Some((b't', text)) => {
                let (_, problem) = self.text()?.ok_or(io::ErrorKind::UnexpectedEof)?;
                Some(Err(Garbled { text, problem }))
            }
            Some((_, text)) => Some(Ok(RawValue::from_string(text)?)),
        })
    }

    fn text(&mut self) -> io::Result<Option<(u8, String)>> {
        let mut kind = [0];
        if self.0.read(&mut kind)? == 0 {
            return Ok(None);
        }
        let mut length = [0; 8];
        self.0.read_exact(&mut length)?;
        let mut text = String::new();
        (&mut self.0).take(u64::from_le_bytes(length)).read_to_string(&mut text)?;
        if text.len() as u64 != u64::from_le_bytes(length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some((kind[0], text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_for_memory_comes_back_in_order_from_a_file_that_nobody_sees() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(folder.path().to_owned());
        let large = "x".repeat(1 << 20);
        let record = |n: usize| match n % 5 {
            3 => Err(Garbled { text: format!("{n}\n"), problem: "odd".to_owned() }),
            _ => Ok(RawValue::from_string(format!("{{\"n\": {n},\n \"x\": \"{large}\"}}")).unwrap()),
        };
        for n in 0..20 {
            spool.push(record(n)).unwrap();
        }
        assert!(spool.file.is_some());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let records: Vec<Record> = spool.finish().unwrap().map(Result::unwrap).collect();
        let same = |(n, got): (usize, &Record)| match (record(n), got) {
            (Ok(one), Ok(two)) => one.get() == two.get(),
            (Err(one), Err(two)) => one == *two,
            _ => false,
        };
        assert_eq!(records.len(), 20);
        assert!(records.iter().enumerate().all(same));
    }

    #[test]
    fn too_many_equal_watermarks_are_refused_with_a_remedy() {
        let mut spool = Spool::new(PathBuf::new());
        for _ in 0..PAGE_ROWS_MAX {
            spool.push(Ok(RawValue::NULL.to_owned())).unwrap();
        }
        let error = spool.push(Ok(RawValue::NULL.to_owned())).unwrap_err();
        assert_eq!((error.class, error.code), (ErrorClass::ValidationFailure, "SOURCE_SHAPE"));
        assert!(error.message.contains("finer"), "{error}");
    }
}
