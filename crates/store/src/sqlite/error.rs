//! Translation of SQLite's errors. Nothing above this file sees the driver's.

use std::sync::Arc;

use rusqlite::ErrorCode;
use stargate_base::ErrorClass;
use stargate_queue::Error;

/// The result of a step inside the store.
pub(crate) type Step<T> = Result<T, Failure>;

/// What a step inside the store can fail with: the driver's error, or an answer that is meant for the caller.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The driver's error; the operation's name is added where it leaves the store.
    Sql(Arc<rusqlite::Error>),
    /// An answer for the caller.
    Answer(Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(Arc::new(error))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Answer(error)
    }
}

impl Failure {
    /// The driver's error, if it is one.
    pub(super) fn fault(&self) -> Option<Arc<rusqlite::Error>> {
        match self {
            Self::Sql(error) => Some(Arc::clone(error)),
            Self::Answer(_) => None,
        }
    }

    /// The error as the caller sees it; `operation` follows "the store could not".
    pub(crate) fn into_error(self, operation: &'static str) -> Error {
        match self {
            Self::Answer(error) => error,
            Self::Sql(error) => translate(operation, error),
        }
    }
}

/// Names the cause and the remedy of a driver's error.
pub(super) fn translate(operation: &'static str, error: Arc<rusqlite::Error>) -> Error {
    let (class, hint) = judge(&error);
    Error::Store { operation, class, hint, source: Box::new(error) }
}

/// The error for a file beside the database that cannot be opened or locked.
pub(super) fn file(operation: &'static str, error: std::io::Error) -> Error {
    use std::io::ErrorKind;
    let (class, hint) = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => (ErrorClass::Fatal, Some(READ_ONLY)),
        ErrorKind::NotFound => (ErrorClass::Fatal, Some(NOT_FOUND)),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (ErrorClass::RetryableTransient, Some(FULL)),
        _ => (ErrorClass::RetryableTransient, None),
    };
    Error::Store { operation, class, hint, source: Box::new(error) }
}

/// The error for a command that was lost with the writer: nothing of it was committed.
pub(super) fn writer_lost(operation: &'static str) -> Error {
    Error::Store {
        operation,
        class: ErrorClass::RetryableTransient,
        hint: None,
        source: "the writer stopped before the command was committed".into(),
    }
}

const FULL: &str = "the disk is full; free some space, nothing that was accepted is lost";
const READ_ONLY: &str = "the file or its folder is not writable by this user";
const NOT_FOUND: &str = "the file or its folder does not exist or cannot be opened";
const IO: &str = "the disk reported an error; see the system log and the health of the disk";
const CORRUPT: &str =
    "the file is damaged; restore it from a backup, or save what is left with sqlite3 .recover";
const FOREIGN: &str = "the file is not a SQLite database; is the path right?";
const BUSY: &str = "another program has kept the database locked; end its transaction";

fn judge(error: &rusqlite::Error) -> (ErrorClass, Option<&'static str>) {
    use ErrorClass::{Conflict, Fatal, RetryableTransient, ValidationFailure};
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => (RetryableTransient, Some(FULL)),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (Fatal, Some(READ_ONLY)),
        Some(ErrorCode::CannotOpen) => (Fatal, Some(NOT_FOUND)),
        Some(ErrorCode::SystemIoFailure) => (RetryableTransient, Some(IO)),
        Some(ErrorCode::DatabaseCorrupt) => (Fatal, Some(CORRUPT)),
        Some(ErrorCode::NotADatabase) => (Fatal, Some(FOREIGN)),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (RetryableTransient, Some(BUSY)),
        Some(ErrorCode::OutOfMemory) => (RetryableTransient, None),
        // As on Postgres, where they are the classes 22 and 23.
        Some(ErrorCode::TooBig | ErrorCode::TypeMismatch) => (ValidationFailure, None),
        Some(ErrorCode::ConstraintViolation) => (Conflict, None),
        _ => (Fatal, None),
    }
}
