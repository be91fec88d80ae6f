//! Leaves out the inside of long texts, so that a JSON text of any size is walked through in little memory and time.
//!
//! What comes out is JSON if what goes in is: texts are cut between characters and between escapes.

use std::cell::Cell;
use std::io::{self, BufRead, Read};

/// A text with long strings cut. The parser asks for one byte after the other, so that `consumed` is where it is.
pub(crate) struct Squeezed<'c, R> {
    pub(crate) text: R,
    /// Bytes of the text that were read or left out.
    pub(crate) consumed: &'c Cell<u64>,
    /// Bytes of a string that are kept.
    pub(crate) kept_max: usize,
    pub(crate) state: State,
}

/// Where in the text we are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Outside,
    /// In a string, so many bytes of it.
    Inside(usize),
    /// Behind a backslash.
    Escape(usize),
    /// Before so many digits of an escape.
    Digits(usize, u8),
    /// In what is left out.
    Cut,
    /// Behind a backslash there.
    CutEscape,
}

impl State {
    /// What comes after a byte that is passed on.
    fn after(self, byte: u8) -> Self {
        match self {
            Self::Outside if byte == b'"' => Self::Inside(0),
            Self::Outside => Self::Outside,
            // Nothing is passed on of what is cut but the quote that ends it.
            Self::Cut | Self::CutEscape => Self::Outside,
            Self::Inside(_) if byte == b'"' => Self::Outside,
            Self::Inside(kept) if byte == b'\\' => Self::Escape(kept + 1),
            Self::Inside(kept) => Self::Inside(kept + 1),
            Self::Escape(kept) if byte == b'u' => Self::Digits(kept + 1, 4),
            Self::Escape(kept) | Self::Digits(kept, 1) => Self::Inside(kept + 1),
            Self::Digits(kept, left) => Self::Digits(kept + 1, left - 1),
        }
    }
}

impl<R: BufRead> Squeezed<'_, R> {
    fn consume(&mut self, count: usize) {
        self.text.consume(count);
        self.consumed.set(self.consumed.get() + count as u64);
    }
}

impl<R: BufRead> Read for Squeezed<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(into) = into.first_mut() else { return Ok(0) };
        loop {
            let bytes = self.text.fill_buf()?;
            let Some(byte) = bytes.first().copied() else { return Ok(0) };
            let is_boundary = byte & 0xc0 != 0x80;
            match self.state {
                State::CutEscape => {
                    self.state = State::Cut;
                    self.consume(1);
                }
                State::Cut if byte == b'\\' => {
                    self.state = State::CutEscape;
                    self.consume(1);
                }
                State::Cut if byte != b'"' => {
                    let end = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\'));
                    let count = end.unwrap_or(bytes.len());
                    self.consume(count);
                }
                State::Inside(kept) if kept >= self.kept_max && is_boundary => self.state = State::Cut,
                state => {
                    *into = byte;
                    self.state = state.after(byte);
                    self.consume(1);
                    return Ok(1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squeezed(text: &str, kept_max: usize) -> String {
        let consumed = Cell::new(0);
        let reader = io::BufReader::with_capacity(3, text.as_bytes());
        let mut squeezed = Squeezed { text: reader, consumed: &consumed, kept_max, state: State::default() };
        let mut out = String::new();
        squeezed.read_to_string(&mut out).unwrap();
        assert_eq!(consumed.get(), text.len() as u64);
        out
    }

    #[test]
    fn long_strings_are_cut_and_nothing_else_is() {
        let text = r#"{"abcdefgh": [123456789, "", "ab", "abcdef", true]}"#;
        assert_eq!(squeezed(text, 4), r#"{"abcd": [123456789, "", "ab", "abcd", true]}"#);
        assert_eq!(squeezed(text, 99), text);
    }

    #[test]
    fn strings_are_cut_between_characters_and_escapes() {
        let cases = [
            (r#""abc\"d\\e","x""#, r#""abc","x""#, 3),
            (r#""ab\"cdef""#, r#""ab\"""#, 3),
            (r#""ab\u00e9cdef""#, r#""ab\u00e9""#, 3),
            (r#""abcd\u00e9\"","x""#, r#""abc","x""#, 3),
            (r#""aé€x""#, r#""aé""#, 2),
        ];
        for (text, expected, kept_max) in cases {
            assert_eq!(squeezed(text, kept_max), expected, "{text}");
        }
    }

    #[test]
    fn whatever_is_cut_stays_json() {
        let text = r#"["é\u00e9\\\"\n€𝄞\ud834\udd1e", {"k\"ey": "\\\\\\\\\"end"}, "\"", "\\"]"#;
        serde_json::from_str::<serde_json::Value>(text).unwrap();
        for kept_max in 0..60 {
            let cut = squeezed(text, kept_max);
            // Half of a pair of surrogates may be left; the walk ignores what is in strings.
            serde_json::from_str::<serde::de::IgnoredAny>(&cut)
                .unwrap_or_else(|error| panic!("{cut}: {error}"));
        }
    }
}
