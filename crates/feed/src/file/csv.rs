//! Rows of comma-separated values (RFC 4180) below a header. A row becomes an object of texts.

use std::collections::HashSet;
use std::io::{self, BufRead as _};
use std::path::Path;

use csv_core::{ReadRecordResult, Reader};
use serde_json::value::RawValue;
use stargate_directive::source::{Record, SourceError};

use super::position::Input;
use super::{Line, unreadable};
use crate::elements::RECORD_BYTES_MAX;
use crate::problem::{garbled, shape};

/// Columns at most.
const FIELDS_MAX: usize = 16 * 1024;
/// What memory begins with; it grows as rows do.
const OUTPUT_BYTES: usize = 64 * 1024;
const ENDS: usize = 64;

/// Reads rows.
#[derive(Debug)]
pub(super) struct Csv {
    rows: Rows,
    /// The names as JSON texts.
    names: Vec<String>,
}

/// Cuts rows into fields.
#[derive(Debug)]
struct Rows {
    reader: Reader,
    /// The fields of a row, one after the other, and where each ends.
    output: Vec<u8>,
    ends: Vec<usize>,
    /// What a row may have.
    bytes_max: usize,
}

/// What was read of a row.
struct Row {
    fields: usize,
    bytes: u64,
    is_too_large: bool,
    is_ended: bool,
}

impl Csv {
    /// Reads the header.
    pub(super) fn begin(input: &mut Input, path: &Path) -> Result<Self, SourceError> {
        Self::limited(input, path, RECORD_BYTES_MAX)
    }

    fn limited(input: &mut Input, path: &Path, bytes_max: usize) -> Result<Self, SourceError> {
        let (output, ends) = (vec![0; OUTPUT_BYTES.min(bytes_max)], vec![0; ENDS]);
        let mut rows = Rows { reader: Reader::new(), output, ends, bytes_max };
        let row = rows.next(input).map_err(|error| unreadable(path, &error))?;
        let path = path.display();
        let row = row.filter(|row| !row.is_too_large);
        let row = row.ok_or_else(|| shape(format!("{path} has no header that names its columns")))?;
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        for index in 0..row.fields {
            let number = index + 1;
            let name = rows.field(index).map(str::trim).unwrap_or_default().to_owned();
            if name.is_empty() {
                return Err(shape(format!("{path}: column {number} of the header has no name")));
            }
            if !seen.insert(name.clone()) {
                return Err(shape(format!("{path}: the header names {name:?} twice")));
            }
            names.push(serde_json::Value::String(name).to_string());
        }
        Ok(Self { rows, names })
    }

    /// The next row.
    pub(super) fn row(&mut self, input: &mut Input) -> io::Result<Option<Line>> {
        input.skip_ends()?;
        let number = input.line();
        let row = self.rows.next(input)?;
        Ok(row.map(|row| Line { is_ended: row.is_ended, record: self.record(&row, number) }))
    }

    fn record(&self, row: &Row, number: u64) -> Record {
        if row.is_too_large {
            let (bytes, most) = (row.bytes, self.rows.bytes_max);
            let problem = format!(
                "line {number}: the row has {bytes} bytes; at most {most} in {FIELDS_MAX} fields are taken"
            );
            return Err(garbled(&[], problem));
        }
        let fields: Option<Vec<&str>> = (0..row.fields).map(|index| self.rows.field(index)).collect();
        let all = &self.rows.output[..self.rows.ends[..row.fields].last().copied().unwrap_or(0)];
        let fields = fields.ok_or_else(|| garbled(all, format!("line {number} is not UTF-8")))?;
        if fields.len() != self.names.len() {
            let (have, want) = (fields.len(), self.names.len());
            let problem = format!("line {number} has {have} fields, the header {want}");
            return Err(garbled(fields.join(",").as_bytes(), problem));
        }
        let mut object = String::from("{");
        for (index, (name, value)) in self.names.iter().zip(&fields).enumerate() {
            object.push_str(if index > 0 { "," } else { "" });
            object.push_str(name);
            object.push(':');
            object.push_str(&serde_json::Value::from(*value).to_string());
        }
        object.push('}');
        RawValue::from_string(object).map_err(|error| garbled(all, format!("line {number}: {error}")))
    }
}

impl Rows {
    fn next(&mut self, input: &mut Input) -> io::Result<Option<Row>> {
        let (mut used, mut fields, mut last) = (0, 0, None);
        let (begin, mut is_too_large) = (input.offset(), false);
        loop {
            let bytes = input.fill_buf()?;
            let (result, read, written, ended) =
                self.reader.read_record(bytes, &mut self.output[used..], &mut self.ends[fields..]);
            last = bytes[..read].last().copied().or(last);
            (used, fields) = (used + written, fields + ended);
            input.consume(read);
            match result {
                ReadRecordResult::InputEmpty => {}
                // What does not fit is read to its end and thrown away.
                ReadRecordResult::OutputFull if self.output.len() >= self.bytes_max => {
                    (is_too_large, used) = (true, 0);
                }
                ReadRecordResult::OutputFull => {
                    self.output.resize((2 * self.output.len()).min(self.bytes_max), 0);
                }
                ReadRecordResult::OutputEndsFull if self.ends.len() >= FIELDS_MAX => {
                    (is_too_large, fields) = (true, 0);
                }
                ReadRecordResult::OutputEndsFull => {
                    self.ends.resize((2 * self.ends.len()).min(FIELDS_MAX), 0)
                }
                ReadRecordResult::Record => break,
                ReadRecordResult::End => return Ok(None),
            }
        }
        let is_ended = matches!(last, Some(b'\n' | b'\r'));
        // The second half of an end of line belongs to it.
        if last == Some(b'\r') && input.fill_buf()?.first() == Some(&b'\n') {
            input.consume(1);
        }
        Ok(Some(Row { fields, bytes: input.offset() - begin, is_too_large, is_ended }))
    }

    /// A field of the row that was read last, if it is text.
    fn field(&self, index: usize) -> Option<&str> {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        std::str::from_utf8(&self.output[begin..self.ends[index]]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_over_the_limit_is_told_by_its_size_and_the_rest_goes_on() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (long, many) = ("x".repeat(100), "y,".repeat(FIELDS_MAX));
        std::fs::write(file.path(), format!("a,b\n1,2\n{long},\"{long}\n\"\n3,4\n{many}\n5,6\n")).unwrap();
        let mut input = Input::open(file.path()).unwrap();
        let mut csv = Csv::limited(&mut input, file.path(), 40).unwrap();
        let mut rows = Vec::new();
        while let Some(line) = csv.row(&mut input).unwrap() {
            assert!(line.is_ended);
            rows.push(line.record.map_or_else(|garbled| garbled.problem, |json| json.get().to_owned()));
        }
        assert_eq!(
            [&rows[0], &rows[2], &rows[4]],
            [r#"{"a":"1","b":"2"}"#, r#"{"a":"3","b":"4"}"#, r#"{"a":"5","b":"6"}"#]
        );
        assert!(rows[1].starts_with("line 3: the row has 205 bytes; at most 40"), "{}", rows[1]);
        assert!(rows[3].starts_with("line 6: the row has 32769 bytes"), "{}", rows[3]);
    }
}
