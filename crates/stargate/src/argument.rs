//! Arguments whose own parsers would answer in the words of a parser.

use jiff::Timestamp;
use stargate_queue::JobId;

/// A job's id.
pub(crate) fn job_id(text: &str) -> Result<JobId, String> {
    text.parse().map_err(|_| "a job's id is a number; 'stargate job list' shows them".to_owned())
}

/// An instant.
pub(crate) fn instant(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "write an instant with its offset, e.g. 2026-12-24T18:00:00Z".to_owned())
}
