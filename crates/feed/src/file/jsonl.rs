//! Lines that are JSON values.

use std::io::{self, BufRead as _};

use serde_json::value::RawValue;
use stargate_directive::source::{Garbled, Record};

use super::Line;
use super::position::Input;
use crate::elements::RECORD_BYTES_MAX;
use crate::problem::garbled;

/// The next line that is not blank.
pub(super) fn line(input: &mut Input) -> io::Result<Option<Line>> {
    loop {
        let number = input.line();
        let (text, length, is_ended) = text(input)?;
        if length == 0 && !is_ended {
            return Ok(None);
        }
        if !text.trim_ascii().is_empty() {
            return Ok(Some(Line { record: record(text, length, number), is_ended }));
        }
    }
}

/// A line without its end and at most as much of it as may be taken, its length, and whether it has an end.
fn text(input: &mut Input) -> io::Result<(Vec<u8>, u64, bool)> {
    let (mut text, mut length) = (Vec::new(), 0_u64);
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok((text, length, false));
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(bytes.len());
        let room = RECORD_BYTES_MAX.saturating_sub(text.len());
        text.extend_from_slice(&bytes[..taken.min(room)]);
        length += taken as u64;
        input.consume(taken + usize::from(end.is_some()));
        if end.is_some() {
            return Ok((text, length, true));
        }
    }
}

fn record(text: Vec<u8>, length: u64, number: u64) -> Record {
    if length > text.len() as u64 {
        let problem = format!("line {number} has {length} bytes; at most {RECORD_BYTES_MAX} are taken");
        return Err(garbled(&text, problem));
    }
    let text = String::from_utf8(text)
        .map_err(|error| garbled(error.as_bytes(), format!("line {number} is not UTF-8")))?;
    let beginning = garbled(text.trim_ascii().as_bytes(), "");
    RawValue::from_string(text)
        .map_err(|error| Garbled { problem: format!("line {number} is no JSON: {error}"), ..beginning })
}
