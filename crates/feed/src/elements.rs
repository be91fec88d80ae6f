//! The elements of a JSON array one after the other, from a file that does not fit into memory.
//!
//! The array was read before and is known to be JSON; here it is only cut.

use std::io::{self, BufRead};

use serde_json::value::RawValue;
use stargate_directive::source::{Garbled, Record, SourceError};

use crate::problem::{garbled, scratch};

/// The largest record that is taken into memory.
pub(crate) const RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Cuts an array. The reader is behind its opening bracket.
#[derive(Debug)]
pub(crate) struct Elements<R> {
    reader: R,
    bytes_max: usize,
    /// From 1.
    number: u64,
    is_done: bool,
}

impl<R: BufRead> Elements<R> {
    pub(crate) fn new(reader: R, bytes_max: usize) -> Self {
        Self { reader, bytes_max, number: 0, is_done: false }
    }

    /// Goes to the next element; whether there is one.
    fn find(&mut self) -> io::Result<bool> {
        loop {
            let bytes = self.reader.fill_buf()?;
            let Some(first) = bytes.first() else { return Err(io::ErrorKind::UnexpectedEof.into()) };
            match first {
                b']' => return Ok(false),
                b',' | b' ' | b'\n' | b'\r' | b'\t' => self.reader.consume(1),
                _ => return Ok(true),
            }
        }
    }

    /// The bytes of an element, at most as many as may be taken, and how many it has.
    fn read(&mut self) -> io::Result<(Vec<u8>, u64)> {
        let (mut text, mut length, mut state) = (Vec::new(), 0_u64, State::default());
        loop {
            let bytes = self.reader.fill_buf()?;
            if bytes.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let end = bytes.iter().position(|byte| state.ends_before(*byte));
            let taken = end.unwrap_or(bytes.len());
            let room = self.bytes_max.saturating_sub(text.len());
            text.extend_from_slice(&bytes[..taken.min(room)]);
            length += taken as u64;
            self.reader.consume(taken);
            if end.is_some() {
                return Ok((text, length));
            }
        }
    }

    fn element(&mut self) -> io::Result<Option<Record>> {
        if !self.find()? {
            return Ok(None);
        }
        self.number += 1;
        let (text, length) = self.read()?;
        Ok(Some(self.record(text, length)))
    }

    fn record(&self, text: Vec<u8>, length: u64) -> Record {
        let number = self.number;
        if length > text.len() as u64 {
            let problem = format!("record {number} has {length} bytes; at most {} are taken", self.bytes_max);
            return Err(garbled(&text, problem));
        }
        let mut text = String::from_utf8(text)
            .map_err(|error| garbled(error.as_bytes(), format!("record {number} is not UTF-8")))?;
        text.truncate(text.trim_ascii_end().len());
        let beginning = garbled(text.as_bytes(), "");
        RawValue::from_string(text)
            .map_err(|error| Garbled { problem: format!("record {number} is no JSON: {error}"), ..beginning })
    }
}

impl<R: BufRead> Iterator for Elements<R> {
    type Item = Result<Record, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let next = self.element().map_err(|error| scratch(&error)).transpose();
        self.is_done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Where in an element the reader is.
#[derive(Debug, Default)]
struct State {
    depth: u32,
    is_text: bool,
    is_escaped: bool,
}

impl State {
    /// Whether the element ends before this byte.
    fn ends_before(&mut self, byte: u8) -> bool {
        if self.is_text {
            if self.is_escaped {
                self.is_escaped = false;
            } else if byte == b'\\' {
                self.is_escaped = true;
            } else if byte == b'"' {
                self.is_text = false;
            }
            return false;
        }
        match byte {
            b'"' => self.is_text = true,
            b'[' | b'{' => self.depth += 1,
            b',' | b']' if self.depth == 0 => return true,
            b']' | b'}' => self.depth -= 1,
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(array: &str, bytes_max: usize) -> Vec<String> {
        // A tiny buffer, so that every element lies across its border.
        let reader = io::BufReader::with_capacity(3, array.as_bytes());
        let show = |record: Record| match record {
            Ok(json) => json.get().to_owned(),
            Err(garbled) => format!("{} <- {}", garbled.problem, garbled.text),
        };
        Elements::new(reader, bytes_max).map(|record| show(record.unwrap())).collect()
    }

    #[test]
    fn elements_are_cut_where_they_end_and_nowhere_else() {
        assert_eq!(cut("]", 99), [""; 0]);
        let elements = [r#"{"a":[1,{"b":"],}"}]}"#, r#""x\"],\\""#, "-1.5e3", "null", "[]", "[[],[]]"];
        assert_eq!(cut(&format!(" {} ]", elements.join(" ,\n ")), 99), elements);
        assert_eq!(cut(&format!("{}],\"more\":[1]", elements.join(",")), 99), elements);
    }

    #[test]
    fn one_that_is_too_large_is_told_by_its_size_and_the_rest_goes_on() {
        let large = format!("\"{}\"", "x".repeat(100));
        let cut = cut(&format!("1,{large},2]"), 20);
        assert_eq!(cut[0], "1");
        assert!(cut[1].starts_with("record 2 has 102 bytes; at most 20 are taken <- \"xxx"), "{}", cut[1]);
        assert_eq!(cut[2], "2");
    }

    #[test]
    fn one_that_is_not_text_is_garbled_and_the_rest_goes_on() {
        let reader: &[u8] = b"1,\"\xff\",2]";
        let records: Vec<Record> = Elements::new(reader, 99).map(Result::unwrap).collect();
        assert!(records[0].is_ok() && records[2].is_ok());
        assert_eq!(records[1].as_ref().unwrap_err().problem, "record 2 is not UTF-8");
    }

    #[test]
    fn a_file_that_ends_too_early_is_an_error_and_the_last() {
        let mut elements = Elements::new(&b"1,{\"a\":"[..], 99);
        assert!(elements.next().unwrap().is_ok());
        assert!(elements.next().unwrap().is_err());
        assert!(elements.next().is_none());
    }
}
