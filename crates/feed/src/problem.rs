//! The errors that the sources here have in common.

use std::io;

use stargate_base::ErrorClass;
use stargate_directive::source::{Garbled, SourceError};

/// Bytes of a text that is no record which are kept.
const TEXT_KEPT: usize = 1024;

pub(crate) fn transient(code: &'static str, message: impl Into<String>) -> SourceError {
    SourceError::new(ErrorClass::RetryableTransient, code, message)
}

pub(crate) fn fatal(code: &'static str, message: impl Into<String>) -> SourceError {
    SourceError::new(ErrorClass::Fatal, code, message)
}

/// What is there is not what the directive says.
pub(crate) fn shape(message: impl Into<String>) -> SourceError {
    SourceError::new(ErrorClass::ValidationFailure, "SOURCE_SHAPE", message)
}

/// What was read so far does not hold together: from the beginning again.
pub(crate) fn restart(code: &'static str, message: impl Into<String>) -> SourceError {
    SourceError { restart: true, ..transient(code, message) }
}

/// Where to go on cannot be understood.
pub(crate) fn pointer(of: &str) -> SourceError {
    fatal(
        "SOURCE_POINTER",
        format!(
            "the cursor was not written by {of}: the directive has changed since; set the cursor back to the \
             beginning to read everything again"
        ),
    )
}

/// The room for what is too large for memory does not work.
pub(crate) fn scratch(error: &io::Error) -> SourceError {
    let what = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "the disk is full",
        _ => "the scratch folder does not work",
    };
    transient(
        "SCRATCH_UNAVAILABLE",
        format!("cannot keep an answer that is too large for memory: {what} ({error}); make room for it"),
    )
}

/// Blocking work ended before it was done.
pub(crate) fn interrupted(error: &tokio::task::JoinError) -> SourceError {
    transient("SOURCE_UNREACHABLE", format!("reading the source broke off: {error}"))
}

/// Text that is no record, cut to a bearable length.
pub(crate) fn garbled(bytes: &[u8], problem: impl Into<String>) -> Garbled {
    // NUL cannot be stored as text everywhere.
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_KEPT)]).replace('\0', "\u{FFFD}");
    Garbled { text, problem: problem.into() }
}
