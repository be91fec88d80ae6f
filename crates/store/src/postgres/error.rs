//! Translates the driver's errors; above this file nobody sees them.

use stargate_base::{Epoch, ErrorClass};
use stargate_queue::{Error, Result};
use tokio_postgres::error::SqlState;

/// What a job that does not exist raises inside the database.
const NO_SUCH_JOB: &str = "SG404";

/// What a leader's write raises whose term is over.
const DEPOSED: &str = "SG409";

/// The statement took longer than we wait.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
pub(crate) struct TimedOut(pub(crate) std::time::Duration);

/// Translates an error of the driver.
pub(crate) fn translate(operation: &'static str, error: tokio_postgres::Error) -> Error {
    if let Some(db) = error.as_db_error()
        && db.code().code() == NO_SUCH_JOB
    {
        let name = db.message().trim_start_matches("no job ").to_owned();
        return Error::NotFound { what: "job", name };
    }
    if let Some(db) = error.as_db_error()
        && db.code().code() == DEPOSED
        && let Some(deposed) = deposed(db.message())
    {
        return deposed;
    }
    let (class, hint) = judge(&error);
    Error::Store { operation, class, hint, source: Box::new(error) }
}

/// What the database says about a term that is over: both epochs.
fn deposed(message: &str) -> Option<Error> {
    let (mine, newest) = message.strip_prefix("epoch ")?.split_once(" is over: ")?;
    let (epoch, current) = (Epoch::new(mine.parse().ok()?), Epoch::new(newest.parse().ok()?));
    Some(Error::Deposed { epoch, current })
}

/// An error that trying again can mend.
pub(crate) fn transient(
    operation: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::Store { operation, class: ErrorClass::RetryableTransient, hint: None, source: source.into() }
}

/// An error that only a change of the settings can mend.
pub(crate) fn fatal(
    operation: &'static str,
    hint: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::Store { operation, class: ErrorClass::Fatal, hint: Some(hint), source: source.into() }
}

/// Two transactions collided and this one was rolled back: running it again is all that is needed.
pub(crate) fn is_collision(error: &Error) -> bool {
    let code = driver(error).and_then(tokio_postgres::Error::code);
    matches!(code, Some(c) if *c == SqlState::T_R_DEADLOCK_DETECTED || *c == SqlState::T_R_SERIALIZATION_FAILURE)
}

/// A lane that was remembered does not exist: the transaction that made it was rolled back after all.
pub(crate) fn is_lost_lane(error: &Error) -> bool {
    driver(error).and_then(tokio_postgres::Error::code) == Some(&SqlState::NOT_NULL_VIOLATION)
}

/// There is no such table, or nothing at all.
pub(crate) fn is_missing_table(error: &Error) -> bool {
    driver(error).and_then(tokio_postgres::Error::code) == Some(&SqlState::UNDEFINED_TABLE)
}

/// The unique key of a job is held by another.
pub(crate) fn is_unique_key_taken(error: &Error) -> bool {
    driver(error).and_then(tokio_postgres::Error::code) == Some(&SqlState::UNIQUE_VIOLATION)
}

/// The connection has no such prepared statement, or has another of that name: there is a pooler in between that does
/// not keep track of them.
pub(crate) fn is_lost_statement(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(c) if *c == SqlState::INVALID_SQL_STATEMENT_NAME || *c == SqlState::DUPLICATE_PSTATEMENT)
}

/// Answers a lost race by doing it again, a few times.
pub(crate) const COLLISIONS_MAX: u32 = 8;

/// Whether to run a transaction again that ended this way. After a lost statement they are sent whole.
pub(crate) fn again<T>(result: &Result<T>, tries: u32) -> bool {
    let can_help = |error: &Error| {
        is_collision(error) || is_lost_lane(error) || driver(error).is_some_and(is_lost_statement)
    };
    tries < COLLISIONS_MAX && result.as_ref().is_err_and(can_help)
}

/// The code with which the server refused.
pub(crate) fn code(error: &Error) -> Option<&str> {
    driver(error).and_then(tokio_postgres::Error::code).map(SqlState::code)
}

/// What the server said.
pub(crate) fn database(error: &Error) -> Option<&tokio_postgres::error::DbError> {
    driver(error).and_then(tokio_postgres::Error::as_db_error)
}

/// The driver's error, if it is one.
fn driver(error: &Error) -> Option<&tokio_postgres::Error> {
    let Error::Store { source, .. } = error else { return None };
    source.downcast_ref()
}

fn judge(error: &tokio_postgres::Error) -> (ErrorClass, Option<&'static str>) {
    let Some(code) = error.code() else {
        // Not an answer of the server: the connection broke, was refused, or was never made.
        return (ErrorClass::RetryableTransient, None);
    };
    match code.code() {
        "28P01" | "28000" => (
            ErrorClass::Fatal,
            Some(
                "check the user, the password and the server's pg_hba.conf; if it asks for encryption add sslmode=require",
            ),
        ),
        "3D000" => (ErrorClass::Fatal, Some("the database does not exist; create it first")),
        "42501" => (ErrorClass::Fatal, Some("the user lacks a right; it must own the schema stargate")),
        "42P01" | "3F000" | "42883" | "42703" => {
            (ErrorClass::Fatal, Some("the schema is not what it should be; run 'stargate migrate'"))
        }
        "53100" => (ErrorClass::RetryableTransient, Some("the server's disk is full")),
        "53300" => (
            ErrorClass::RetryableTransient,
            Some("the server has too many connections; raise max_connections"),
        ),
        // A standby, or a primary that has just been demoted.
        "25006" => (ErrorClass::RetryableTransient, Some("the server is read-only; is it a standby?")),
        // The cached plan is older than the table; the next use prepares it anew.
        "0A000" | "26000" | "42P05" => (ErrorClass::RetryableTransient, None),
        code => match &code[..2] {
            "08" | "40" | "53" | "55" | "57" | "58" | "25" | "XX" => (ErrorClass::RetryableTransient, None),
            "23" => (ErrorClass::Conflict, None),
            "22" => (ErrorClass::ValidationFailure, None),
            _ => (ErrorClass::Fatal, None),
        },
    }
}
