//! What the drivers' errors mean to a directive.

use std::time::Duration;

use rusqlite::ErrorCode;
use stargate_base::ErrorClass::{Conflict, Fatal, RetryableTransient, ValidationFailure};
use stargate_base::chain;
use stargate_directive::source::SourceError;
use stargate_queue::Error;
use tokio_postgres::error::{DbError, ErrorPosition};

use super::query::{Query, Statement};

/// The database refused the query, or the query does not do.
pub(super) const QUERY: &str = "SOURCE_QUERY";
/// Rows are not what a feed can go through.
pub(super) const SHAPE: &str = "SOURCE_SHAPE";
const SETTING: &str = "SOURCE_SETTING";
const REFUSED: &str = "SOURCE_REFUSED";
const UNREACHABLE: &str = "SOURCE_UNREACHABLE";
const TIMEOUT: &str = "SOURCE_TIMEOUT";
const SINK_REFUSED: &str = "SINK_REFUSED";
const SINK_UNREACHABLE: &str = "SINK_UNREACHABLE";
const SINK_COUNTS: &str = "SINK_COUNTS";
const SINK_FENCED: &str = "SINK_FENCED";

/// What was tried when rows are not as they were written.
const VERIFY: &str = "verify a batch";
const VERIFY_HINT: &str = "a trigger or a rule of the table changes what is written; remove it";

/// What was tried when another execution has gone on.
const FENCE: &str = "write for an execution that was replaced";

/// Something in the directive is wrong and stays wrong.
pub(super) fn setting(message: impl Into<String>) -> SourceError {
    SourceError::new(Fatal, SETTING, message)
}

/// The cursor is of another source.
pub(super) fn foreign_pointer() -> SourceError {
    let message = "the cursor was not written by a query: it must be null or {\"after\": WATERMARK}; set it back to the \
                   beginning to read everything again";
    SourceError::new(Fatal, "SOURCE_POINTER", message)
}

/// Null watermarks are never after anything: their rows would be skipped without a word.
pub(super) fn null_watermarks(query: &Query, count: i64) -> SourceError {
    let watermark = query.watermark();
    shape(format!(
        "{count} rows of the query have no watermark ({watermark} is null) and would never be read; write \
         COALESCE({watermark}, …) in the query, or leave them out with WHERE {watermark} IS NOT NULL"
    ))
}

/// Rows are not what a feed can go through.
pub(super) fn shape(message: impl Into<String>) -> SourceError {
    SourceError::new(ValidationFailure, SHAPE, message)
}

/// The database cannot be reached now.
pub(super) fn unreachable(message: impl Into<String>) -> SourceError {
    SourceError::new(RetryableTransient, UNREACHABLE, message)
}

/// The query would change something.
pub(super) fn writes(said: &str) -> SourceError {
    let message = format!("the query of the source writes ({said}); it must only read");
    SourceError::new(ValidationFailure, QUERY, message)
}

/// A page took too long.
pub(super) fn timed_out(most: Duration) -> SourceError {
    let message = format!(
        "the source's database gave no page within {} s; an index on the watermark column would help",
        most.as_secs()
    );
    SourceError::new(RetryableTransient, TIMEOUT, message)
}

/// No room for a page, or its file does not work.
pub(super) fn scratch(error: &std::io::Error) -> SourceError {
    let message = format!("cannot keep a page of the source in the scratch folder: {error}; make room there");
    SourceError::new(RetryableTransient, "SCRATCH_UNAVAILABLE", message)
}

/// A connection that could not be made.
pub(super) fn of_connecting(error: &Error) -> SourceError {
    let Error::Store { class, hint, source, .. } = error else { return setting(error.to_string()) };
    if let Some(error) = source.downcast_ref::<tokio_postgres::Error>() {
        return of_postgres(error, None);
    }
    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
    let message = format!("the database cannot be reached: {source}{hint}");
    if *class == RetryableTransient { unreachable(message) } else { setting(message) }
}

/// An error of Postgres, with the place in the query that it names.
pub(super) fn of_postgres(error: &tokio_postgres::Error, statement: Option<&Statement>) -> SourceError {
    let Some(db) = error.as_db_error() else {
        return unreachable(format!("the source's database does not answer: {}", chain(error)));
    };
    let code = db.code().code();
    let said = format!("{} ({code})", db.message());
    match (code, code.get(..2).unwrap_or_default()) {
        ("42501" | "3D000", _) | (_, "28") => {
            let message =
                format!("the source's database refuses: {said}; check its user, password and rights");
            SourceError::new(Fatal, REFUSED, message)
        }
        ("57014", _) => {
            let message = format!("the source's database gave up the query: {said}");
            SourceError::new(RetryableTransient, TIMEOUT, message)
        }
        ("25006", _) => writes(&said),
        (_, "08" | "25" | "40" | "53" | "55" | "57" | "58" | "XX") => {
            unreachable(format!("the source's database cannot answer now: {said}"))
        }
        _ => {
            let place = statement.and_then(|statement| postgres_place(db, statement));
            query(&said, place, db.hint())
        }
    }
}

fn postgres_place(db: &DbError, statement: &Statement) -> Option<(usize, usize)> {
    match db.position()? {
        ErrorPosition::Original(character) => statement.place(statement.byte_of(*character as usize)),
        ErrorPosition::Internal { .. } => None,
    }
}

/// An error of SQLite, with the place in the query that it names.
pub(super) fn of_sqlite(error: &rusqlite::Error, statement: Option<&Statement>) -> SourceError {
    let said = sqlite_words(error);
    match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly) => writes(&said),
        Some(ErrorCode::CannotOpen) => {
            unreachable(format!("the source's database cannot be opened: {said}; is the path right?"))
        }
        Some(ErrorCode::PermissionDenied) => {
            let message = format!("the source's database refuses: {said}; check who may read the file");
            SourceError::new(Fatal, REFUSED, message)
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            setting(format!("the source's file is no SQLite database or is damaged: {said}"))
        }
        Some(ErrorCode::OperationInterrupted) => {
            let message = format!("the query of the source took too long: {said}");
            SourceError::new(RetryableTransient, TIMEOUT, message)
        }
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::DiskFull
            | ErrorCode::OutOfMemory
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::SchemaChanged,
        ) => unreachable(format!("the source's database cannot answer now: {said}")),
        _ => query(&said, sqlite_place(error, statement), None),
    }
}

/// What SQLite says, without the statement.
fn sqlite_words(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        rusqlite::Error::MultipleStatement => "it is more than one statement".to_owned(),
        other => other.to_string(),
    }
}

fn sqlite_place(error: &rusqlite::Error, statement: Option<&Statement>) -> Option<(usize, usize)> {
    let rusqlite::Error::SqlInputError { offset, .. } = error else { return None };
    statement?.place(usize::try_from(*offset).ok()?)
}

fn query(said: &str, place: Option<(usize, usize)>, hint: Option<&str>) -> SourceError {
    let place =
        place.map_or_else(String::new, |(line, column)| format!(" at line {line}, column {column} of it"));
    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
    let message = format!("the database refuses the query of the source: {said}{place}{hint}");
    SourceError::new(ValidationFailure, QUERY, message)
}

/// Not every row that was written is there with its content.
pub(super) fn unverified(items: usize, differing: usize) -> Error {
    let problem = format!("of {items} rows at least {differing} are not there as they were written");
    Error::Store { operation: VERIFY, class: Fatal, hint: Some(VERIFY_HINT), source: problem.into() }
}

/// Another execution went on meanwhile. `message` says all there is to say.
pub(super) fn fenced(message: String) -> Error {
    Error::Store { operation: FENCE, class: Conflict, hint: None, source: message.into() }
}

/// Why another database took no rows.
pub(super) fn of_sink(error: &Error) -> SourceError {
    let Error::Store { operation, class, hint, source } = error else {
        return SourceError::new(Fatal, SINK_REFUSED, format!("the sink refuses: {error}"));
    };
    if *operation == FENCE {
        return SourceError::new(Conflict, SINK_FENCED, source.to_string());
    }
    let said = match source.downcast_ref::<tokio_postgres::Error>().and_then(|error| error.as_db_error()) {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => chain(source.as_ref()),
    };
    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
    let message = format!("the sink's database could not {operation}: {said}{hint}");
    match (*operation, *class) {
        (VERIFY, _) => SourceError::new(Fatal, SINK_COUNTS, message),
        (_, RetryableTransient) => SourceError::new(RetryableTransient, SINK_UNREACHABLE, message),
        _ => SourceError::new(Fatal, SINK_REFUSED, message),
    }
}
