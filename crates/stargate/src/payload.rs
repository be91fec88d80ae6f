//! Reads a job's payload from the command line: inline JSON, `@FILE`, or `-` for standard input.

use std::io::Read as _;

use serde_json::value::RawValue;
use stargate_queue::Json;
use stargate_queue::job::PAYLOAD_BYTES_MAX;

use crate::failure::{Failure, Result};

/// `{}`: what a job gets that says nothing.
pub(crate) fn empty() -> Json {
    RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
}

/// What serializes as JSON.
pub(crate) fn of<T: serde::Serialize>(value: &T) -> Result<Json> {
    serde_json::value::to_raw_value(value)
        .map_err(|error| Failure::input(format!("cannot be written as JSON: {error}")))
}

/// Reads the argument; without one the payload is `{}`.
pub(crate) fn read(argument: Option<&str>) -> Result<Json> {
    let (text, from) = match argument {
        None => return Ok(empty()),
        Some("-") => (bounded(std::io::stdin().lock(), "standard input")?, "standard input".to_owned()),
        Some(text) => match text.strip_prefix('@') {
            Some(path) => {
                let file = std::fs::File::open(path)
                    .map_err(|error| Failure::io(format!("cannot read {path}"), &error))?;
                (bounded(file, path)?, path.to_owned())
            }
            None => (text.to_owned(), "the payload".to_owned()),
        },
    };
    let trimmed = text.trim().to_owned();
    RawValue::from_string(trimmed).map_err(|error| {
        Failure::input(format!("{from} is not JSON: {error}"))
            .help("write JSON in single quotes, e.g. '{\"size\": 200}', or @FILE, or - for standard input")
    })
}

/// One byte over the limit is enough to know that it is too much.
fn bounded(reader: impl std::io::Read, from: &str) -> Result<String> {
    let mut text = String::new();
    let limit = u64::try_from(PAYLOAD_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(4096);
    reader
        .take(limit)
        .read_to_string(&mut text)
        .map_err(|error| Failure::io(format!("cannot read {from}"), &error))?;
    if text.trim().len() > PAYLOAD_BYTES_MAX {
        let bytes = text.trim().len();
        return Err(stargate_queue::Error::TooLarge {
            field: "payload",
            bytes,
            bytes_max: PAYLOAD_BYTES_MAX,
        }
        .into());
    }
    Ok(text)
}
