//! JSON that was read and not copied: texts without escapes stay where they are in the record.
//!
//! Most of what becomes of a record is read once and thrown away, and most of the time that takes would go into making
//! room for it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::{Number, Value};

/// JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum Doc<'t> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    Text(Cow<'t, str>),
    /// An array.
    Array(Vec<Doc<'t>>),
    /// An object, in the order of its keys, each once: of several that are the same the last one counts.
    Object(Vec<(Cow<'t, str>, Doc<'t>)>),
}

impl<'t> Doc<'t> {
    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// What lies at a place.
    pub fn at(&self, place: &Place) -> Option<&Self> {
        place.steps.as_ref()?.iter().try_fold(self, |doc, step| match doc {
            Self::Object(pairs) => {
                let n = pairs.binary_search_by(|(key, _)| key.as_ref().cmp(step.key.as_str())).ok()?;
                Some(&pairs[n].1)
            }
            Self::Array(array) => array.get(step.number?),
            _ => None,
        })
    }

    /// Whether any number or text in it is so.
    pub fn any(&self, is_so: &impl Fn(&Self) -> bool) -> bool {
        match self {
            Self::Array(array) => array.iter().any(|doc| doc.any(is_so)),
            Self::Object(pairs) => pairs.iter().any(|(_, doc)| doc.any(is_so)),
            other => is_so(other),
        }
    }

    fn object(mut pairs: Vec<(Cow<'t, str>, Self)>) -> Self {
        if !pairs.is_sorted_by(|one, next| one.0 < next.0) {
            // Of the same key the last one comes first, and the others are left out.
            pairs.reverse();
            pairs.sort_by(|one, other| one.0.cmp(&other.0));
            pairs.dedup_by(|next, one| next.0 == one.0);
        }
        Self::Object(pairs)
    }
}

impl From<&Value> for Doc<'static> {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(bool) => Self::Bool(*bool),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::Text(Cow::Owned(text.clone())),
            Value::Array(array) => Self::Array(array.iter().map(Self::from).collect()),
            Value::Object(object) => Self::object(
                object.iter().map(|(key, value)| (Cow::Owned(key.clone()), value.into())).collect(),
            ),
        }
    }
}

/// As JSON, without white space.
impl fmt::Display for Doc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Doc<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(bool) => serializer.serialize_bool(*bool),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Array(array) => serializer.collect_seq(array),
            Self::Object(pairs) => serializer.collect_map(pairs.iter().map(|(key, doc)| (key, doc))),
        }
    }
}

impl<'de> Deserialize<'de> for Doc<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

/// A key of an object.
#[derive(serde::Deserialize)]
struct Key<'t>(#[serde(borrow)] Cow<'t, str>);

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Doc<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Doc<'de>, E> {
        Ok(Doc::Null)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Doc<'de>, E> {
        Ok(Doc::Bool(bool))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Doc<'de>, E> {
        Ok(Doc::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Doc<'de>, E> {
        Ok(Doc::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Doc<'de>, E> {
        Ok(Number::from_f64(number).map_or(Doc::Null, Doc::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Doc<'de>, E> {
        Ok(Doc::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Doc<'de>, E> {
        Ok(Doc::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut given: A) -> Result<Doc<'de>, A::Error> {
        let mut array = Vec::new();
        while let Some(doc) = given.next_element()? {
            array.push(doc);
        }
        Ok(Doc::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> Result<Doc<'de>, A::Error> {
        let mut pairs = Vec::new();
        while let Some((Key(key), doc)) = given.next_entry()? {
            pairs.push((key, doc));
        }
        Ok(Doc::object(pairs))
    }
}

/// A place in JSON, as a JSON pointer names it.
#[derive(Clone)]
pub struct Place {
    text: String,
    /// None if it is no pointer: then nothing lies there.
    steps: Option<Vec<Step>>,
}

#[derive(Clone)]
struct Step {
    key: String,
    /// In an array.
    number: Option<usize>,
}

impl From<&str> for Place {
    fn from(text: &str) -> Self {
        let steps = match text.strip_prefix('/') {
            Some(path) => Some(path.split('/').map(Step::of).collect()),
            None => text.is_empty().then(Vec::new),
        };
        Self { text: text.to_owned(), steps }
    }
}

impl Step {
    fn of(part: &str) -> Self {
        // As RFC 6901 has it: 0, or digits that begin with no 0.
        let is_number = part == "0" || (part.starts_with(|c: char| matches!(c, '1'..='9')));
        let number = part.parse().ok().filter(|_| is_number);
        Self { key: part.replace("~1", "/").replace("~0", "~"), number }
    }
}

/// As it was given.
impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 8] = [
        r#"{"b":[1,-2,3.5,1e300,18446744073709551615,true,false,null],"a":{"~x/y":"z","":"empty"}}"#,
        r#"{"a":1,"b":2,"a":{"c":[{"d":"first"}]},"a":3}"#,
        r#""a \"text\" with \u00e9scapes \n""#,
        "[]",
        "{}",
        "7",
        "null",
        r#"{"0":"a key","k":["a","b","c","d","e","f","g","h","i","j","k"]}"#,
    ];

    #[test]
    fn it_is_read_and_written_as_values_are() {
        for text in TEXTS {
            let (doc, value): (Doc<'_>, Value) =
                (serde_json::from_str(text).unwrap(), serde_json::from_str(text).unwrap());
            assert_eq!(doc, Doc::from(&value), "{text}");
            assert_eq!(doc.to_string(), value.to_string());
        }
        for text in ["", "{", "[1,]", "1e999", "{\"a\":1}x", &"[".repeat(200)] {
            assert!(serde_json::from_str::<Doc<'_>>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn places_are_those_of_values() {
        let places = [
            "",
            "/",
            "/a",
            "/b/0",
            "/b/2",
            "/b/01",
            "/b/+1",
            "/b/9",
            "/b/-",
            "/a/~0x~1y",
            "/a/",
            "/a/c/0/d",
            "/k/10",
            "/0",
            "a",
            "/a/x/y",
        ];
        for text in TEXTS {
            let (doc, value): (Doc<'_>, Value) =
                (serde_json::from_str(text).unwrap(), serde_json::from_str(text).unwrap());
            for place in places {
                let found = doc.at(&Place::from(place)).map(ToString::to_string);
                assert_eq!(found, value.pointer(place).map(ToString::to_string), "{place} in {text}");
            }
        }
    }
}
