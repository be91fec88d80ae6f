//! What the environment gave to a directive's address and headers, kept out of what is stored and shown (INV-8).
//!
//! In a text that is kept, such a value is replaced by a mark that says whose it was and how it was written. `<` and `>`
//! stand in no address as it is written, so a mark cannot be mistaken. A later request fills the marks in again, with
//! what the variables hold then.

use std::borrow::Cow;

use stargate_directive::file::HttpSource;

use crate::Surroundings;

/// Shorter values are too likely to be part of innocent words.
const HIDDEN_BYTES_MIN: usize = 4;
/// Parts of a value that are looked for by themselves.
const PARTS_MAX: usize = 64;
/// Where a value that is more than one part of an address is cut.
const BETWEEN_PARTS: [char; 8] = ['/', '?', '&', '=', '#', '@', ':', ';'];
/// What programs leave as it is when they encode a text, besides letters and digits.
const PLAIN: [&str; 6] = ["-._~", "-._~+", "-._*", "-._~/", "-._~!*'()", "-._~!*'()/?=:@$,;"];
/// How often a text may be encoded: an address within an address twice.
const DEPTH_MAX: u8 = 2;

/// What is hidden, longest first.
#[derive(Default)]
pub(super) struct Hidden(Vec<Value>);

/// A text that is hidden.
struct Value {
    /// The variable, which part of it, and how often that was decoded: `TOKEN.0.0`.
    of: String,
    text: String,
}

/// How a text is written in an address.
#[derive(Clone, Copy)]
struct Style {
    depth: u8,
    plain: usize,
    is_lower: bool,
    is_plus: bool,
}

enum Piece {
    Text(String),
    Mark(String),
}

impl Hidden {
    /// The variables that a source's address and headers name.
    pub(super) fn new(source: &HttpSource, around: &Surroundings) -> Self {
        let mut hidden = Self::default();
        let texts = std::iter::once(&source.url).chain(source.headers.values());
        for name in texts.flat_map(|text| text.variables()) {
            hidden.add(name, &(around.environment)(name).unwrap_or_default());
        }
        hidden
    }

    fn add(&mut self, name: &str, value: &str) {
        let parts = value.split(BETWEEN_PARTS).filter(|part| *part != value).take(PARTS_MAX);
        for (part, text) in std::iter::once(value).chain(parts).enumerate() {
            // It may stand in the environment as it must be written in an address.
            let decoded = [text.to_owned(), decoded(text, false), decoded(text, true)];
            for (way, text) in decoded.into_iter().enumerate() {
                if text.len() >= HIDDEN_BYTES_MIN && !self.0.iter().any(|value| value.text == text) {
                    self.0.push(Value { of: format!("{name}.{part}.{way}"), text });
                }
            }
        }
        self.0.sort_by_key(|value| std::cmp::Reverse(value.text.len()));
    }

    /// The texts, in the ways they are usually written.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        let styles = [false, true].map(|is_lower| Style { depth: 1, plain: 0, is_lower, is_plus: false });
        self.0.iter().flat_map(move |value| {
            std::iter::once(value.text.clone()).chain(styles.map(|style| style.write(&value.text)))
        })
    }

    /// A part of an address with marks in place of what is hidden.
    pub(super) fn hide(&self, text: &str) -> String {
        let mut pieces = vec![Piece::Text(text.to_owned())];
        for value in &self.0 {
            for (depth, is_form) in [(0, false), (1, false), (1, true), (DEPTH_MAX, false)] {
                pieces = pieces.into_iter().flat_map(|piece| value.cut(piece, depth, is_form)).collect();
            }
        }
        pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => Cow::Borrowed(text.as_str()),
                Piece::Mark(mark) => Cow::Owned(format!("<{mark}>")),
            })
            .collect()
    }

    /// What a mark stands for.
    pub(super) fn fill(&self, mark: &str) -> Option<String> {
        let (of, style) = mark.rsplit_once('.')?;
        let style = Style::all().nth(style.parse().ok()?)?;
        let value = self.0.iter().find(|value| value.of == of)?;
        Some(style.write(&value.text))
    }
}

impl Value {
    /// A piece, cut where this value stands in it.
    fn cut(&self, piece: Piece, depth: u8, is_form: bool) -> Vec<Piece> {
        let Piece::Text(text) = piece else { return vec![piece] };
        let units = units(&text, depth, is_form);
        let (mut pieces, mut from, mut at) = (Vec::new(), 0, 0);
        while at + self.text.len() <= units.len() {
            let found = &units[at..at + self.text.len()];
            if !found.iter().map(|unit| unit.byte).eq(self.text.bytes()) {
                at += 1;
                continue;
            }
            let (begin, end) = (found[0].begin, found[found.len() - 1].end);
            pieces.push(Piece::Text(text[from..begin].to_owned()));
            pieces.push(Piece::Mark(format!(
                "{}.{}",
                self.of,
                self.style(&text[begin..end], depth, is_form)
            )));
            (from, at) = (end, at + self.text.len());
        }
        pieces.push(Piece::Text(text[from..].to_owned()));
        pieces
    }

    /// The number of the style in which this value is written so; else of one that means the same.
    fn style(&self, written: &str, depth: u8, is_form: bool) -> usize {
        let same = Style::all().position(|style| style.write(&self.text) == written);
        // A plus that stays one and a plus that is a space are two things.
        let is_plus_plain = !is_form && written.contains('+');
        let alike = |style: Style| {
            (style.depth, style.is_plus) == (depth, is_form)
                && PLAIN[style.plain].contains('+') == is_plus_plain
        };
        same.or_else(|| Style::all().position(alike)).unwrap_or_default()
    }
}

impl Style {
    fn all() -> impl Iterator<Item = Self> {
        (0..=DEPTH_MAX).flat_map(|depth| {
            (0..PLAIN.len() * 4).map(move |number| Self {
                depth,
                plain: number / 4,
                is_lower: number & 2 != 0,
                is_plus: number & 1 != 0,
            })
        })
    }

    fn write(self, text: &str) -> String {
        (0..self.depth).fold(text.to_owned(), |text, _| self.encoded(&text))
    }

    fn encoded(self, text: &str) -> String {
        text.bytes().fold(String::new(), |mut text, byte| {
            match byte {
                b' ' if self.is_plus => text.push('+'),
                _ if byte.is_ascii_alphanumeric() || PLAIN[self.plain].contains(byte as char) => {
                    text.push(byte as char);
                }
                _ if self.is_lower => text.push_str(&format!("%{byte:02x}")),
                _ => text.push_str(&format!("%{byte:02X}")),
            }
            text
        })
    }
}

/// A byte of a decoded text, and where it is written.
#[derive(Clone, Copy)]
struct Unit {
    byte: u8,
    begin: usize,
    end: usize,
}

/// The bytes of a text, decoded so many times; as in forms, a plus is a space.
fn units(text: &str, depth: u8, is_form: bool) -> Vec<Unit> {
    let plain = text.bytes().enumerate().map(|(at, byte)| Unit { byte, begin: at, end: at + 1 }).collect();
    (0..depth).fold(plain, |units: Vec<Unit>, _| {
        let (mut decoded, mut at) = (Vec::with_capacity(units.len()), 0);
        while let Some(unit) = units.get(at) {
            let escape = units.get(at + 1..at + 3).filter(|_| unit.byte == b'%');
            match escape.and_then(|pair| Some(16 * hex(pair[0].byte)? + hex(pair[1].byte)?)) {
                Some(byte) => decoded.push(Unit { byte, begin: unit.begin, end: units[at + 2].end }),
                None if is_form && unit.byte == b'+' => decoded.push(Unit { byte: b' ', ..*unit }),
                None => decoded.push(*unit),
            }
            at += if decoded.last().is_some_and(|last| last.end > unit.end) { 3 } else { 1 };
        }
        decoded
    })
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// A text decoded once.
pub(super) fn decoded(text: &str, is_form: bool) -> String {
    let bytes: Vec<u8> = units(text, 1, is_form).iter().map(|unit| unit.byte).collect();
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(values: &[(&str, &str)]) -> Hidden {
        let mut hidden = Hidden::default();
        values.iter().for_each(|(name, value)| hidden.add(name, value));
        hidden
    }

    /// The text as it is kept, having seen that it can be filled in again.
    fn hide(hidden: &Hidden, text: &str) -> String {
        let kept = hidden.hide(text);
        let mut filled = String::new();
        for (index, piece) in kept.split(['<', '>']).enumerate() {
            filled.push_str(&if index % 2 == 0 { piece.to_owned() } else { hidden.fill(piece).unwrap() });
        }
        assert_eq!(filled, text);
        kept
    }

    #[test]
    fn a_value_is_hidden_in_all_the_ways_it_is_written_and_comes_back_as_it_was() {
        let hidden = hidden(&[("K", "söme+key/x y=="), ("LONG", "söme+key/x y==z")]);
        for text in [
            "s%C3%B6me%2Bkey%2Fx%20y%3D%3D",
            "s%c3%b6me%2bkey%2fx+y%3d%3d",
            "s%C3%B6me%2Bkey/x+y==",
            "s%25C3%25B6me%252Bkey%252Fx%2520y%253D%253D",
        ] {
            for text in [text.to_owned(), format!("/a/{text}/b?c={text}&d=%3C")] {
                let kept = hide(&hidden, &text);
                assert!(!kept.contains("key") && kept.contains("<K.0.0."), "{kept}");
            }
            assert!(hide(&hidden, &format!("a={text}z")).contains("<LONG.0.0."));
        }
        assert_eq!(hide(&hidden, "/items?page=2"), "/items?page=2");
    }

    #[test]
    fn a_value_that_stands_encoded_in_the_environment_is_known_decoded_too() {
        let hidden = hidden(&[("K", "ab%2Fcd+ef%3D")]);
        for text in ["k=ab%2Fcd+ef%3D", "k=ab/cd%20ef=", "k=ab%2fcd+ef%3d"] {
            let kept = hide(&hidden, text);
            assert!(kept.starts_with("k=<K.0.") && !kept.contains("cd"), "{kept}");
        }
    }

    #[test]
    fn parts_of_an_address_that_is_all_hidden_are_hidden() {
        let hidden = hidden(&[("URL", "https://api.example/v1/secret-path?api_key=abcdef")]);
        let kept = hide(&hidden, "/v1/secret-path?api_key=abcdef&page=2");
        assert!(!kept.contains("secret") && !kept.contains("abcdef") && kept.ends_with("&page=2"), "{kept}");
    }

    #[test]
    fn what_is_not_named_any_more_cannot_be_filled_in() {
        let hidden = hidden(&[("K", "secret")]);
        for mark in ["OTHER.0.0.0", "K.1.0.0", "K.0.0.999", "K", ""] {
            assert_eq!(hidden.fill(mark), None, "{mark}");
        }
    }
}
