//! Files of lines: JSONL and CSV.
//!
//! A pointer names a byte of the file and what stands at its beginning and before that byte, so that a run goes on in the
//! middle, and a file that was replaced is read from its beginning. A page is read ahead, off the threads that must not
//! block. Values of CSV are text, and an empty one is the empty text; types are made by the mapping.
//!
//! A last line without an end may be one that is still written. It ends the pass, whatever comes after it meanwhile, and
//! the pointer stays before it. If it is a record it is given out, and again by the next run that goes on there. If it
//! is none, it is left to that run; in a full pass, where the file counts as it is, it is given out as what it is.

mod csv;
mod jsonl;
mod position;

use std::io::{self, BufRead as _};
use std::path::PathBuf;

use async_trait::async_trait;
use stargate_directive::Pointer;
use stargate_directive::file::{FileSource, Format, Mode};
use stargate_directive::source::{Feed, Page, Record, Records, SourceError};
use tokio::task::{JoinHandle, spawn_blocking};

use self::csv::Csv;
use self::position::{Input, Position};
use crate::problem::{fatal, interrupted, restart, shape, transient};

/// A page ends when it has so many bytes, however many records were asked for.
const PAGE_BYTES: u64 = 8 * 1024 * 1024;

pub(crate) async fn open(
    source: &FileSource,
    mode: Mode,
    from: &Pointer,
) -> Result<Box<dyn Feed>, SourceError> {
    let mut feed = FileFeed { source: source.clone(), mode, pointer: from.clone(), ahead: None };
    // What is wrong with the file is told at once.
    let reading = feed.begin().await?;
    feed.ahead = Some(Ahead::Ready(Box::new(reading)));
    Ok(Box::new(feed))
}

#[derive(Debug)]
struct FileFeed {
    source: FileSource,
    mode: Mode,
    /// After the last page that was given out.
    pointer: Pointer,
    ahead: Option<Ahead>,
}

/// What is known of the next page.
#[derive(Debug)]
enum Ahead {
    Ready(Box<Reading>),
    Read(JoinHandle<(Reading, Result<FilePage, SourceError>)>),
}

#[async_trait]
impl Feed for FileFeed {
    async fn page(&mut self, size: u32) -> Result<Page, SourceError> {
        let task = match self.ahead.take() {
            Some(Ahead::Read(task)) => task,
            Some(Ahead::Ready(reading)) => read(*reading, size),
            // After an error, from where the last good page ended.
            None => read(self.begin().await?, size),
        };
        let (reading, page) = task.await.map_err(|error| interrupted(&error))?;
        let page = page?;
        if !page.is_last {
            self.ahead = Some(Ahead::Read(read(reading, size)));
        }
        self.pointer = page.next.clone();
        let records = Records::memory(page.records);
        Ok(Page { records, next: Some(page.next), is_last: page.is_last })
    }

    async fn close(mut self: Box<Self>) {
        if let Some(Ahead::Read(task)) = self.ahead.take() {
            let _ = task.await;
        }
    }
}

impl FileFeed {
    async fn begin(&self) -> Result<Reading, SourceError> {
        let (source, mode, pointer) = (self.source.clone(), self.mode, self.pointer.clone());
        spawn_blocking(move || Reading::begin(&source, mode, &pointer))
            .await
            .map_err(|error| interrupted(&error))?
    }
}

fn read(mut reading: Reading, size: u32) -> JoinHandle<(Reading, Result<FilePage, SourceError>)> {
    spawn_blocking(move || {
        let page = reading.page(size);
        (reading, page)
    })
}

#[derive(Debug)]
struct FilePage {
    records: Vec<Record>,
    next: Pointer,
    is_last: bool,
}

/// An opened file. All of it blocks.
#[derive(Debug)]
struct Reading {
    path: PathBuf,
    input: Input,
    /// What lines are; of CSV with its header.
    csv: Option<Csv>,
    mode: Mode,
    /// Where the page begins that is read next, with what stands before it.
    at: Position,
}

/// A line or row, and whether the file says that it is whole.
struct Line {
    record: Record,
    is_ended: bool,
}

impl Reading {
    fn begin(source: &FileSource, mode: Mode, from: &Pointer) -> Result<Self, SourceError> {
        let path = source.path.clone();
        let from = Position::read(from)?;
        let mut input = Input::open(&path).map_err(|error| unreadable(&path, &error))?;
        let csv = match source.format {
            Format::Jsonl => None,
            Format::Csv => Some(Csv::begin(&mut input, &path)?),
        };
        if let Some(from) = from {
            input.go_to(&from, &path)?;
        }
        let at = input.place(input.position()).map_err(|error| unreadable(&path, &error))?;
        Ok(Self { path, input, csv, mode, at })
    }

    fn page(&mut self, size: u32) -> Result<FilePage, SourceError> {
        let page = self.lines(size).and_then(|(records, next, is_last)| {
            // What was read is worth something only if the file is still the one it began with.
            if !self.input.is_same(&self.at)? {
                return Ok(None);
            }
            self.at = self.input.place(next)?;
            Ok(Some(FilePage { records, next: self.at.write(), is_last }))
        });
        page.map_err(|error| unreadable(&self.path, &error))?.ok_or_else(|| shifted(&self.path))
    }

    /// Records, where to go on, and whether that is the end.
    fn lines(&mut self, size: u32) -> io::Result<(Vec<Record>, (u64, u64), bool)> {
        let (mut records, begin) = (Vec::new(), self.input.offset());
        let mut next = self.input.position();
        while records.len() < size.max(1) as usize && self.input.offset() - begin < PAGE_BYTES {
            let line = match &mut self.csv {
                None => jsonl::line(&mut self.input)?,
                Some(csv) => csv.row(&mut self.input)?,
            };
            let Some(line) = line else {
                next = self.input.position();
                return Ok((records, next, true));
            };
            if !line.is_ended {
                let (path, number) = (self.path.display(), next.1);
                tracing::debug!(%path, line = number, "the last line has no end yet");
                let is_taken = line.record.is_ok() || self.mode == Mode::Full;
                records.extend(Some(line.record).filter(|_| is_taken));
                return Ok((records, next, true));
            }
            records.push(line.record);
            next = self.input.position();
        }
        let is_last = self.input.fill_buf()?.is_empty();
        Ok((records, next, is_last))
    }
}

/// The file is not what it was: nobody knows what of it was read.
fn shifted(path: &std::path::Path) -> SourceError {
    let path = path.display();
    restart("SOURCE_SHIFTED", format!("{path} is another file than before; it is read from its beginning"))
}

/// Why a file cannot be read.
fn unreadable(path: &std::path::Path, error: &io::Error) -> SourceError {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            transient("SOURCE_UNREACHABLE", format!("{path} is not there; put it there, or correct `path`"))
        }
        io::ErrorKind::PermissionDenied => {
            fatal("SOURCE_REFUSED", format!("{path} may not be read by the worker's user: {error}"))
        }
        io::ErrorKind::InvalidInput => shape(format!("{path}: {error}")),
        _ => transient("SOURCE_UNREACHABLE", format!("{path} cannot be read: {error}")),
    }
}
