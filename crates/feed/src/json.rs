//! Finds places of a JSON text without building it: the records, where to go on, how many there are.
//!
//! The whole text is read, so that one that is cut or no JSON is known before any of its records is used.

use std::cell::Cell;
use std::fmt;
use std::io::BufRead;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::squeeze::{Squeezed, State};

/// The longest text that may say where to go on.
pub(crate) const NEXT_BYTES_MAX: usize = 16 * 1024;
/// What is kept of a string of a text that may be larger than memory. A character takes up to six bytes as an escape, so
/// that what was cut is longer than [`NEXT_BYTES_MAX`] and known as such.
const KEPT_BYTES: usize = 6 * (NEXT_BYTES_MAX + 1);

/// JSON pointers, taken apart.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    paths: [Option<Vec<String>>; 3],
}

const RECORDS: usize = 0;
const NEXT: usize = 1;
const TOTAL: usize = 2;

impl Wanted {
    pub(crate) fn new(records: &str, next: Option<&str>, total: Option<&str>) -> Self {
        Self { paths: [Some(records), next, total].map(|pointer| pointer.map(tokens)) }
    }
}

fn tokens(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|token| token.replace("~1", "/").replace("~0", "~")).collect()
}

/// What is at a place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Seen {
    #[default]
    Missing,
    Null,
    Boolean,
    /// A whole number, as it is written.
    Whole(String),
    OtherNumber,
    Text(String),
    LongText,
    Array,
    Object,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "nothing",
            Self::Null => "null",
            Self::Boolean => "true or false",
            Self::Whole(_) => "a number",
            Self::OtherNumber => "a number that is not whole or has more than 64 bits",
            Self::Text(_) => "text",
            Self::LongText => "a very long text",
            Self::Array => "an array",
            Self::Object => "an object",
        })
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    seen: [Seen; 3],
    /// Records there are.
    pub(crate) count: u64,
    /// The records, if they were to be taken.
    pub(crate) records: Vec<Box<RawValue>>,
    /// Bytes before the first record, if they were only to be counted.
    pub(crate) records_at: u64,
}

impl Found {
    pub(crate) fn at_records(&self) -> &Seen {
        &self.seen[RECORDS]
    }

    pub(crate) fn at_next(&self) -> &Seen {
        &self.seen[NEXT]
    }

    pub(crate) fn at_total(&self) -> &Seen {
        &self.seen[TOTAL]
    }
}

/// Reads a text in memory and takes its records.
pub(crate) fn take(text: &str, wanted: &Wanted) -> serde_json::Result<Found> {
    let mut found = Found::default();
    let mut json = serde_json::Deserializer::from_str(text);
    Walk::new(wanted, &mut found, Mode::Take).deserialize(&mut json)?;
    json.end()?;
    Ok(found)
}

/// Reads a text that may be larger than memory and counts its records.
pub(crate) fn count(text: impl BufRead, wanted: &Wanted) -> serde_json::Result<Found> {
    let (mut found, consumed) = (Found::default(), Cell::new(0));
    let text = Squeezed { text, consumed: &consumed, kept_max: KEPT_BYTES, state: State::default() };
    let mut json = serde_json::Deserializer::from_reader(text);
    Walk::new(wanted, &mut found, Mode::Count(&consumed)).deserialize(&mut json)?;
    json.end()?;
    Ok(found)
}

#[derive(Clone, Copy)]
enum Mode<'c> {
    Take,
    Count(&'c Cell<u64>),
}

/// One value on the way to a place.
struct Walk<'w> {
    wanted: &'w Wanted,
    found: &'w mut Found,
    mode: Mode<'w>,
    /// Which of the places are here or below.
    open: [bool; 3],
    depth: usize,
}

impl<'w> Walk<'w> {
    fn new(wanted: &'w Wanted, found: &'w mut Found, mode: Mode<'w>) -> Self {
        let open = [RECORDS, NEXT, TOTAL].map(|place| wanted.paths[place].is_some());
        Self { wanted, found, mode, open, depth: 0 }
    }

    /// Whether a place is exactly here.
    fn is_here(&self, place: usize) -> bool {
        let length = self.wanted.paths[place].as_ref().map(Vec::len);
        self.open[place] && length == Some(self.depth)
    }

    fn note(&mut self, seen: &Seen) {
        for place in [RECORDS, NEXT, TOTAL] {
            if self.is_here(place) {
                self.found.seen[place] = seen.clone();
            }
        }
    }

    /// Which places are below a key, if any is.
    fn below(&self, key: &str) -> Option<[bool; 3]> {
        let is_below = |place: usize| {
            let token = self.wanted.paths[place].as_ref().and_then(|path| path.get(self.depth));
            self.open[place] && token.is_some_and(|token| token == key)
        };
        let open = [RECORDS, NEXT, TOTAL].map(is_below);
        open.contains(&true).then_some(open)
    }

    fn child(&mut self, open: [bool; 3]) -> Walk<'_> {
        Walk { wanted: self.wanted, found: self.found, mode: self.mode, open, depth: self.depth + 1 }
    }

    /// The array of records.
    fn records<'de, A: SeqAccess<'de>>(&mut self, mut array: A) -> Result<(), A::Error> {
        self.found.records.clear();
        self.found.count = 0;
        match self.mode {
            Mode::Take => {
                while let Some(record) = array.next_element::<Box<RawValue>>()? {
                    if let Some(open) = self.below(&self.found.count.to_string()) {
                        let mut json = serde_json::Deserializer::from_str(record.get());
                        self.child(open).deserialize(&mut json).map_err(A::Error::custom)?;
                    }
                    self.found.records.push(record);
                    self.found.count += 1;
                }
                Ok(())
            }
            Mode::Count(consumed) => {
                self.found.records_at = consumed.get();
                self.found.count = self.elements(array)?;
                Ok(())
            }
        }
    }

    /// Any array; answers how many it has.
    fn elements<'de, A: SeqAccess<'de>>(&mut self, mut array: A) -> Result<u64, A::Error> {
        let mut index = 0_u64;
        loop {
            let is_end = match self.below(&index.to_string()) {
                Some(open) => array.next_element_seed(self.child(open))?.is_none(),
                None => array.next_element::<IgnoredAny>()?.is_none(),
            };
            if is_end {
                return Ok(index);
            }
            index += 1;
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        if self.open.contains(&true) {
            json.deserialize_any(self)
        } else {
            IgnoredAny::deserialize(json).map(|_| ())
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(mut self) -> Result<(), E> {
        self.note(&Seen::Null);
        Ok(())
    }

    fn visit_bool<E>(mut self, _: bool) -> Result<(), E> {
        self.note(&Seen::Boolean);
        Ok(())
    }

    fn visit_u64<E>(mut self, number: u64) -> Result<(), E> {
        self.note(&Seen::Whole(number.to_string()));
        Ok(())
    }

    fn visit_i64<E>(mut self, number: i64) -> Result<(), E> {
        self.note(&Seen::Whole(number.to_string()));
        Ok(())
    }

    fn visit_f64<E>(mut self, _: f64) -> Result<(), E> {
        self.note(&Seen::OtherNumber);
        Ok(())
    }

    fn visit_str<E>(mut self, text: &str) -> Result<(), E> {
        let is_long = text.len() > NEXT_BYTES_MAX;
        self.note(&if is_long { Seen::LongText } else { Seen::Text(text.to_owned()) });
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, array: A) -> Result<(), A::Error> {
        self.note(&Seen::Array);
        if self.is_here(RECORDS) { self.records(array) } else { self.elements(array).map(|_| ()) }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut object: A) -> Result<(), A::Error> {
        self.note(&Seen::Object);
        while let Some(key) = object.next_key::<String>()? {
            match self.below(&key) {
                Some(open) => object.next_value_seed(self.child(open))?,
                None => {
                    object.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(text: &str, wanted: &Wanted) -> Found {
        let (taken, counted) = (take(text, wanted).unwrap(), count(text.as_bytes(), wanted).unwrap());
        assert_eq!((&taken.seen, taken.count), (&counted.seen, counted.count), "{text}");
        assert_eq!(taken.count, taken.records.len() as u64);
        if *taken.at_records() == Seen::Array {
            let before = usize::try_from(counted.records_at).unwrap();
            assert!(text[..before].ends_with('['), "{text}: {before}");
        }
        taken
    }

    fn text(text: &str) -> Seen {
        Seen::Text(text.to_owned())
    }

    #[test]
    fn places_are_found_wherever_they_are() {
        let wanted = Wanted::new("/data/items", Some("/meta/a~1b~0c"), Some("/meta/total"));
        let json =
            r#" {"x":[1,{"data":2}],"meta":{"a/b~c":"t","total":12},"data":{"items": [ {"id":1}, 2 ]}} "#;
        let found = both(json, &wanted);
        assert_eq!((found.at_next(), found.at_total()), (&text("t"), &Seen::Whole("12".to_owned())));
        assert_eq!(found.records.iter().map(|r| r.get()).collect::<Vec<_>>(), [r#"{"id":1}"#, "2"]);
    }

    #[test]
    fn a_place_may_be_the_whole_or_inside_the_records() {
        let whole = both("[1,[2],\"3\"]", &Wanted::new("", None, None));
        assert_eq!(whole.count, 3);
        let inside = both(r#"{"r":[{"n":"a"},{"n":"b"}]}"#, &Wanted::new("/r", Some("/r/1/n"), None));
        assert_eq!((inside.at_next(), inside.count), (&text("b"), 2));
        let before = both(r#"[{"next":7},[1,2]]"#, &Wanted::new("/1", Some("/0/next"), None));
        assert_eq!((before.at_next(), before.count), (&Seen::Whole("7".to_owned()), 2));
    }

    #[test]
    fn what_is_there_instead_is_told() {
        let wanted = Wanted::new("/items", Some("/next"), Some("/total"));
        let cases = [
            (r#"{"items":{}}"#, Seen::Object, Seen::Missing, Seen::Missing),
            (r#"{"items":null,"next":null}"#, Seen::Null, Seen::Null, Seen::Missing),
            (r#"{"items":"x","next":false,"total":1.5}"#, text("x"), Seen::Boolean, Seen::OtherNumber),
            (r#""items""#, Seen::Missing, Seen::Missing, Seen::Missing),
            (
                r#"{"next":18446744073709551616,"total":-1}"#,
                Seen::Missing,
                Seen::OtherNumber,
                Seen::Whole("-1".to_owned()),
            ),
        ];
        for (json, records, next, total) in cases {
            let found = both(json, &wanted);
            assert_eq!((found.at_records(), found.at_next(), found.at_total()), (&records, &next, &total));
        }
        let long = format!(r#"{{"next":"{}"}}"#, "x".repeat(NEXT_BYTES_MAX + 1));
        assert_eq!(both(&long, &wanted).at_next(), &Seen::LongText);
    }

    #[test]
    fn of_a_key_that_stands_twice_the_last_counts() {
        let found = both(r#"{"items":[1,2,3],"items":[4]}"#, &Wanted::new("/items", None, None));
        assert_eq!(found.records.iter().map(|r| r.get()).collect::<Vec<_>>(), ["4"]);
    }

    #[test]
    fn text_that_is_cut_or_goes_on_is_no_json() {
        let wanted = Wanted::new("/items", None, None);
        for json in ["", "{\"items\":[1,2", "{\"items\":[1]} x", "<html>", "{\"items\":[1,]}"] {
            assert!(take(json, &wanted).is_err(), "{json}");
            assert!(count(json.as_bytes(), &wanted).is_err(), "{json}");
        }
    }
}
