//! A hash of JSON that does not depend on the order of its keys or on white space.

use std::io::Write as _;

use sha2::{Digest as _, Sha256};

use crate::doc::Doc;
use crate::item::Hash;

/// Bytes that are hashed together: one by one they would take longer than the hash itself.
const TOGETHER: usize = 4096;

/// The hash of values one after the other; a missing one is not a null.
pub fn hash<'v>(values: impl IntoIterator<Item = Option<&'v Doc<'v>>>) -> Hash {
    let mut sum = Sum::default();
    values.into_iter().for_each(|value| sum.add(value));
    sum.finish()
}

/// Whether a value has numbers of which a 64-bit float keeps only the beginning: then two values may be the same here and
/// differ in their text.
pub fn is_rounded(value: &Doc<'_>) -> bool {
    value.any(&|value| match value {
        Doc::Number(number) => {
            let is_float = !number.is_i64() && !number.is_u64();
            is_float && number.as_f64().is_none_or(|float| float.abs() >= EXACT_MAX)
        }
        _ => false,
    })
}

/// Up to here each whole number is a 64-bit float of its own.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A hash that is not complete.
#[derive(Debug, Clone, Default)]
pub struct Sum {
    sum: Sha256,
    waiting: Vec<u8>,
}

impl Sum {
    /// Takes the next value; a missing one is not a null.
    pub fn add(&mut self, value: Option<&Doc<'_>>) {
        match value {
            Some(value) => self.feed(value),
            None => self.waiting.push(b'-'),
        }
    }

    /// The same with everything hashed that was taken: copies of it need not do that.
    #[must_use]
    pub fn settled(mut self) -> Self {
        self.sum.update(&self.waiting);
        Self { sum: self.sum, waiting: Vec::new() }
    }

    /// The hash of all of them.
    pub fn finish(mut self) -> Hash {
        self.sum.update(&self.waiting);
        self.sum.finalize().into()
    }

    /// Each value begins with a letter for its type, and text with its length, so that no two values read the same.
    fn feed(&mut self, value: &Doc<'_>) {
        match value {
            Doc::Null => self.waiting.push(b'n'),
            Doc::Bool(true) => self.waiting.push(b't'),
            Doc::Bool(false) => self.waiting.push(b'f'),
            Doc::Number(number) => self.number(number),
            Doc::Text(string) => self.text(b's', string),
            Doc::Array(array) => {
                self.head(b'a', array.len());
                array.iter().for_each(|value| self.feed(value));
            }
            Doc::Object(pairs) => {
                self.head(b'o', pairs.len());
                for (key, value) in pairs {
                    self.text(b'k', key);
                    self.feed(value);
                }
            }
        }
    }

    fn number(&mut self, number: &serde_json::Number) {
        self.head(b'd', 0);
        let from = self.waiting.len();
        // Writing to memory cannot fail.
        let _ = write!(self.waiting, "{number}");
        let length = (self.waiting.len() - from) as u64;
        self.waiting[from - size_of::<u64>()..from].copy_from_slice(&length.to_be_bytes());
    }

    fn text(&mut self, letter: u8, text: &str) {
        self.head(letter, text.len());
        self.waiting.extend_from_slice(text.as_bytes());
    }

    fn head(&mut self, letter: u8, length: usize) {
        if self.waiting.len() >= TOGETHER {
            self.sum.update(&self.waiting);
            self.waiting.clear();
        }
        self.waiting.push(letter);
        self.waiting.extend_from_slice(&(length as u64).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Hash {
        hash([Some(&serde_json::from_str(text).unwrap())])
    }

    #[test]
    fn order_of_keys_and_white_space_do_not_count() {
        assert_eq!(of(r#"{"a":1,"b":[true,null]}"#), of("{ \"b\": [true, null],\n \"a\": 1 }"));
    }

    #[test]
    fn everything_else_counts() {
        let all = [
            "1",
            "1.0",
            "\"1\"",
            "null",
            "[]",
            "{}",
            "\"\"",
            "[[]]",
            "[1,2]",
            "[2,1]",
            "[12]",
            r#"{"a":null}"#,
            r#"["a",null]"#,
            "true",
            "false",
            r#"{"a":{"b":1}}"#,
            r#"{"a":1,"b":{}}"#,
        ];
        let hashes: std::collections::HashSet<Hash> = all.iter().map(|text| of(text)).collect();
        assert_eq!(hashes.len(), all.len());
        assert_ne!(hash([None]), hash([Some(&Doc::Null)]));
        assert_ne!(hash([None, Some(&Doc::Null)]), hash([Some(&Doc::Null), None]));
    }

    #[test]
    fn it_stays_what_it_was() {
        // Hashes are kept in tables: another way to make them would have every row written again.
        let long = "x".repeat(3 * TOGETHER);
        let text = format!(r#"{{"b":[1,-2.5,true,null,"é"],"a":{{"long":"{long}","z":false}}}}"#);
        let shown: String = of(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(shown, "63e36c9785e51758aac225c38e513c989cdab59bf17282b63c0a9f6437315f6f");
    }
}
