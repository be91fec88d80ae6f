//! Rows of a query on a SQLite file. The connection can write nothing; it reads outside the async threads, and a query
//! that takes too long is interrupted.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, InterruptHandle, OpenFlags, OptionalExtension as _};
use serde::Serializer as _;
use serde::ser::SerializeMap as _;
use serde_json::json;
use serde_json::value::RawValue;
use stargate_directive::Pointer;
use stargate_directive::source::{Feed, Garbled, Page, Record, Records, SourceError};
use tokio::task::JoinHandle;

use super::error::{foreign_pointer, null_watermarks, of_sqlite, shape, timed_out, unreachable, writes};
use super::query::{Query, Statement, around};
use super::spool::Spool;
use super::{PAGE_ROWS_MAX, Terms};

/// How long a lock of others is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a thread may take to hear that it is to stop, before it is told again.
const INTERRUPT_AGAIN: Duration = Duration::from_millis(50);
/// How much of a row that is no text is kept.
const GARBLED_CHARS_MAX: usize = 1000;

/// A query on a SQLite file.
pub(super) struct SqliteFeed {
    /// `None` while a thread has it.
    reader: Option<Reader>,
    /// The thread, and how to end what it does.
    running: Option<JoinHandle<(Reader, Result<Page, SourceError>)>>,
    interrupt: Option<InterruptHandle>,
    page_time_max: Duration,
}

/// What reads; it wanders between the feed and a thread.
#[derive(Debug)]
struct Reader {
    path: PathBuf,
    connection: Option<Connection>,
    query: Query,
    scratch: PathBuf,
    position: Position,
    /// The highest watermark there was at the beginning.
    last: Option<Value>,
}

/// Where the next page begins.
#[derive(Debug, Clone)]
enum Position {
    Beginning,
    /// With this value: rows may have got it since.
    At(Value),
    /// Beyond it: all of its rows were in the page before.
    After(Value),
}

impl SqliteFeed {
    /// A feed that opens the file when it is first asked.
    pub(super) fn new(
        path: PathBuf,
        query: Query,
        from: &Pointer,
        terms: Terms,
    ) -> Result<Self, SourceError> {
        let position = position(from)?;
        let reader = Reader { path, connection: None, query, scratch: terms.scratch, position, last: None };
        Ok(Self { reader: Some(reader), running: None, interrupt: None, page_time_max: terms.page_time_max })
    }

    /// Waits for the thread to give the reader back.
    async fn finished(&mut self) -> Result<Page, SourceError> {
        let Some(running) = &mut self.running else { return Err(unfit()) };
        let joined = running.await;
        self.running = None;
        let (reader, page) = joined.map_err(|_| unfit())?;
        self.reader = Some(reader);
        page
    }

    /// Ends what the thread does and waits for it. Only a statement that runs can be interrupted, so it is told again
    /// until it has heard.
    async fn stop(&mut self) -> Result<Page, SourceError> {
        loop {
            if let Some(interrupt) = &self.interrupt {
                interrupt.interrupt();
            }
            if let Ok(page) = tokio::time::timeout(INTERRUPT_AGAIN, self.finished()).await {
                return page;
            }
        }
    }
}

impl fmt::Debug for SqliteFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteFeed").field("reader", &self.reader).finish_non_exhaustive()
    }
}

/// A call before was given up, or failed in a way that was not foreseen.
fn unfit() -> SourceError {
    unreachable("the feed was given up in the middle of a page; it must be opened again")
}

#[async_trait]
impl Feed for SqliteFeed {
    async fn page(&mut self, size: u32) -> Result<Page, SourceError> {
        let mut reader = self.reader.take().ok_or_else(unfit)?;
        if reader.connection.is_none() {
            let (path, opening) = (reader.path.clone(), tokio::task::spawn_blocking);
            let opened = opening(move || open(&path)).await.map_err(|_| unfit())?;
            match opened {
                Ok(connection) => {
                    self.interrupt = Some(connection.get_interrupt_handle());
                    reader.connection = Some(connection);
                }
                Err(error) => {
                    self.reader = Some(reader);
                    return Err(error);
                }
            }
        }
        let size = size.clamp(1, PAGE_ROWS_MAX);
        self.running = Some(tokio::task::spawn_blocking(move || {
            let page = reader.page(size);
            (reader, page)
        }));
        let most = self.page_time_max;
        if let Ok(page) = tokio::time::timeout(most, self.finished()).await {
            return page;
        }
        // It may have ended just now.
        self.stop().await.map_err(|_| timed_out(most))
    }

    async fn close(mut self: Box<Self>) {
        if self.running.is_some() {
            let _ = self.stop().await;
        }
        if let Some(reader) = self.reader.take() {
            let _ = tokio::task::spawn_blocking(move || drop(reader)).await;
        }
    }
}

/// Opens a file that must be there. Nothing can be written through the connection; the file itself is opened for writing
/// if it may be, or SQLite could not recover a log that a crash has left.
fn open(path: &Path) -> Result<Connection, SourceError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        Ok(connection)
    });
    opened.map_err(|error| of_sqlite(&error, None))
}

impl Reader {
    fn page(&mut self, size: u32) -> Result<Page, SourceError> {
        let connection = self.connection.take().ok_or_else(unfit)?;
        let page = self.read(&connection, size);
        // After an error it is opened anew: the file may have been replaced.
        if page.is_ok() {
            self.connection = Some(connection);
        }
        page
    }

    /// A page in one snapshot.
    fn read(&mut self, connection: &Connection, size: u32) -> Result<Page, SourceError> {
        let snapshot = connection.unchecked_transaction().map_err(|error| of_sqlite(&error, None))?;
        if self.last.is_none() {
            self.last = self.look(connection)?;
        }
        let Some(last) = self.last.clone() else {
            let records = Records::memory(Vec::new());
            return Ok(Page { records, next: Some(self.next()?), is_last: true });
        };
        let edge = self.edge(connection, &last, size)?;
        let is_last = edge.as_ref().is_none_or(|edge| *edge == last);
        let (spool, read) = self.rows(connection, edge.as_ref().unwrap_or(&last))?;
        snapshot.finish().map_err(|error| of_sqlite(&error, None))?;
        let records = spool.finish()?;
        if let Some(read) = read {
            self.position = Position::After(read);
        }
        Ok(Page { records, next: Some(self.next()?), is_last })
    }

    /// The highest watermark; `None` if there are no rows.
    fn look(&self, connection: &Connection) -> Result<Option<Value>, SourceError> {
        let asks = self.query.within(around!("sqlite_has_nulls"), &[]);
        if value(connection, &asks, [])? == Some(Value::Integer(1)) {
            let counts = self.query.within(around!("sqlite_nulls"), &[]);
            let Some(Value::Integer(nulls)) = value(connection, &counts, [])? else { return Err(unfit()) };
            return Err(null_watermarks(&self.query, nulls));
        }
        value(connection, &self.query.within(around!("sqlite_span"), &[]), [])
    }

    /// The watermark of the last row of a page; `None` if there are fewer rows than asked for.
    fn edge(&self, connection: &Connection, last: &Value, size: u32) -> Result<Option<Value>, SourceError> {
        let asks = self.bounded(around!("sqlite_edge"), size);
        value(connection, &asks, [self.from(), last])
    }

    /// The rows of a page and the last watermark among them.
    fn rows(&self, connection: &Connection, edge: &Value) -> Result<(Spool, Option<Value>), SourceError> {
        let asks = self.bounded(around!("sqlite_page"), 0);
        let refused = |error: rusqlite::Error| of_sqlite(&error, Some(&asks));
        let mut prepared = prepare(connection, &asks)?;
        let names: Vec<String> = prepared.column_names().map(str::to_owned).collect();
        let mut rows = prepared.query([self.from(), edge]).map_err(refused)?;
        let (mut spool, mut last) = (Spool::new(self.scratch.clone()), None);
        while let Some(row) = rows.next().map_err(refused)? {
            spool.push(record(&names, row).map_err(refused)?)?;
            last = Some(row.get(0).map_err(refused)?);
        }
        Ok((spool, last))
    }

    fn bounded(&self, template: &str, size: u32) -> Statement {
        let compared = |sign: &str| format!("stargate_row.{} {sign} ?1", self.query.watermark());
        let after = match self.position {
            Position::Beginning => "?1 is null".to_owned(),
            Position::At(_) => compared(">="),
            Position::After(_) => compared(">"),
        };
        self.query.within(template, &[("{after}", &after), ("{size}", &size.to_string())])
    }

    fn from(&self) -> &Value {
        match &self.position {
            Position::Beginning => &Value::Null,
            Position::At(value) | Position::After(value) => value,
        }
    }

    fn next(&self) -> Result<Pointer, SourceError> {
        match self.from() {
            Value::Null => Ok(Pointer::Null),
            Value::Integer(number) => Ok(json!({ "after": number })),
            // As text: not every reader of JSON gives back the same number.
            Value::Real(number) if number.is_finite() => {
                Ok(json!({ "after": { "real": number.to_string() } }))
            }
            Value::Text(text) => Ok(json!({ "after": text })),
            Value::Real(_) | Value::Blob(_) => Err(shape(format!(
                "a watermark ({}) is a blob or an infinite number; let the query give whole numbers or text, such as \
                 hex(…)",
                self.query.watermark()
            ))),
        }
    }
}

fn position(from: &Pointer) -> Result<Position, SourceError> {
    let Pointer::Object(fields) = from else {
        return if from.is_null() { Ok(Position::Beginning) } else { Err(foreign_pointer()) };
    };
    let value = match fields.get("after") {
        Some(Pointer::String(text)) => Some(Value::Text(text.clone())),
        Some(Pointer::Number(number)) => {
            number.as_i64().map(Value::Integer).or_else(|| number.as_f64().map(Value::Real))
        }
        Some(Pointer::Object(real)) => {
            let number = real.get("real").and_then(Pointer::as_str).and_then(|text| text.parse().ok());
            number.map(Value::Real)
        }
        _ => None,
    };
    value.map(Position::At).ok_or_else(foreign_pointer)
}

fn prepare<'c>(
    connection: &'c Connection,
    statement: &Statement,
) -> Result<rusqlite::Statement<'c>, SourceError> {
    let prepared = connection.prepare(&statement.text).map_err(|error| of_sqlite(&error, Some(statement)))?;
    if !prepared.readonly() {
        return Err(writes("SQLite says so"));
    }
    Ok(prepared)
}

fn value<'v>(
    connection: &Connection,
    statement: &Statement,
    params: impl IntoIterator<Item = &'v Value>,
) -> Result<Option<Value>, SourceError> {
    let params = rusqlite::params_from_iter(params);
    let found = prepare(connection, statement)?.query_row(params, |row| row.get(0)).optional();
    found.map_err(|error| of_sqlite(&error, Some(statement)))
}

/// A row as JSON with its columns in their order, after the watermark; text that is no UTF-8 makes it garbled.
fn record(names: &[String], row: &rusqlite::Row<'_>) -> rusqlite::Result<Record> {
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::new(&mut text);
    let mut fields = serializer.serialize_map(None).map_err(into_sqlite)?;
    for (index, name) in names.iter().enumerate().skip(1) {
        let written = match row.get_ref(index)? {
            ValueRef::Null => fields.serialize_entry(name, &()),
            ValueRef::Integer(number) => fields.serialize_entry(name, &number),
            ValueRef::Real(number) if number.is_finite() => fields.serialize_entry(name, &number),
            // As Postgres writes it.
            ValueRef::Real(number) => {
                fields.serialize_entry(name, if number > 0.0 { "Infinity" } else { "-Infinity" })
            }
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => fields.serialize_entry(name, text),
                Err(error) => return Ok(Err(garbled(name, bytes, error))),
            },
            ValueRef::Blob(bytes) => fields.serialize_entry(name, &hexadecimal(bytes)),
        };
        written.map_err(into_sqlite)?;
    }
    fields.end().map_err(into_sqlite)?;
    let text = String::from_utf8(text).map_err(into_sqlite)?;
    Ok(Ok(RawValue::from_string(text).map_err(into_sqlite)?))
}

fn into_sqlite(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

fn garbled(column: &str, bytes: &[u8], error: std::str::Utf8Error) -> Garbled {
    // NUL cannot be stored as text everywhere.
    let shown = String::from_utf8_lossy(bytes).replace('\0', "\u{FFFD}");
    let text = shown.chars().take(GARBLED_CHARS_MAX).collect();
    Garbled { text, problem: format!("the text in column {column} is no UTF-8: {error}") }
}

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        // Cannot fail on a string.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
