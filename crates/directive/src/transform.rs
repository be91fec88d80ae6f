//! Makes items of records: key, hash, columns, and what keeps a record from becoming one.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value as JsonValue;
use serde_json::value::RawValue;
use stargate_queue::job::Json;

use crate::canonical::{self, Sum};
use crate::doc::{Doc, Place};
use crate::item::{Column, ColumnType, Item, Reject, Value};
use crate::pace::BATCH_BYTES_MAX;
use crate::parts::Transformed;
use crate::source::Garbled;

/// The longest key of an item.
pub const KEY_BYTES_MAX: usize = 512;
/// The most digits that a number has with its exponent written out.
const DIGITS_MAX: usize = 16_000;
/// How much of a value a reason shows.
const SHOWN_MAX: usize = 80;

/// Checks a record against a schema: the place and the problem, if it does not fit.
pub type Schema = dyn Fn(&JsonValue) -> Result<(), String> + Send + Sync;

/// How records become items.
pub struct Mapping {
    /// What names an entity.
    key: Vec<Place>,
    /// What counts as its content; all of it if empty.
    hash: Vec<Place>,
    /// The mapped columns.
    columns: Vec<Filling>,
    /// What a record must look like.
    schema: Option<Box<Schema>>,
    /// How every hash begins: it tells mappings apart that make other columns of the same record.
    seed: Sum,
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("key", &self.key)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

/// A mapped column and where its value comes from.
#[derive(Debug, Clone)]
pub struct Field {
    /// The column.
    pub column: Column,
    /// Where its value comes from.
    pub from: From,
    /// What it is where the record has nothing or null there.
    pub default: Option<JsonValue>,
}

/// Where the value of a column comes from.
#[derive(Debug, Clone)]
pub enum From {
    /// A place in the record.
    Pointer(String),
    /// Text around places in the record.
    Template(Vec<Piece>),
    /// Always the same.
    Constant(JsonValue),
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it stands.
    Text(String),
    /// What the record has there.
    Pointer(String),
}

/// A column, ready to be filled from one record after the other.
#[derive(Debug)]
struct Filling {
    column: Column,
    from: Origin,
    default: Option<Doc<'static>>,
}

/// As [`From`], with places instead of pointers.
#[derive(Debug)]
enum Origin {
    Place(Place),
    Template(Vec<Stretch>),
    Constant(Doc<'static>),
}

/// As [`Piece`].
#[derive(Debug)]
enum Stretch {
    Text(String),
    Place(Place),
}

/// Why a record cannot become an item.
#[derive(Debug)]
struct Unfit {
    cause: &'static str,
    reason: String,
}

/// What a record says, without the record.
struct Told {
    entity_id: String,
    hash: crate::item::Hash,
    columns: Vec<Value>,
}

impl Mapping {
    /// `key` and `hash` are JSON pointers: to what names an entity, and to what counts as its content, all of it if empty.
    ///
    /// What the columns are made of is part of every hash: with another mapping rows are written again, and a new column
    /// is not empty until its record changes.
    pub fn new(key: Vec<String>, hash: Vec<String>, fields: Vec<Field>, schema: Option<Box<Schema>>) -> Self {
        let mut seed = Sum::default();
        if !fields.is_empty() {
            seed.add(Some(&Doc::Text(format!("{fields:?}").into())));
        }
        let places = |pointers: Vec<String>| pointers.iter().map(|text| Place::from(text.as_str())).collect();
        let columns = fields.into_iter().map(Filling::of).collect();
        Self { key: places(key), hash: places(hash), columns, schema, seed: seed.settled() }
    }

    /// Makes an item of a record, or says why not.
    pub fn apply(&self, record: Result<Json, Garbled>) -> Transformed {
        let record = match record {
            Ok(record) => record,
            Err(garbled) => return Transformed::Reject(no_json(garbled)),
        };
        let doc: Doc<'_> = match serde_json::from_str(record.get()) {
            Ok(doc) => doc,
            Err(error) => {
                let garbled = Garbled { text: record.get().to_owned(), problem: error.to_string() };
                return Transformed::Reject(no_json(garbled));
            }
        };
        let key = self.key_of(&doc);
        let entity_id = key.as_ref().ok().cloned();
        let told = key.and_then(|entity_id| self.read(entity_id, &doc, record.get()));
        drop(doc);
        match told {
            Ok(Told { entity_id, hash, columns }) => {
                Transformed::Item(Item { entity_id, hash, body: record, columns })
            }
            Err(Unfit { cause, reason }) => {
                Transformed::Reject(Reject { record, cause: cause.to_owned(), reason, entity_id })
            }
        }
    }

    fn read(&self, entity_id: String, doc: &Doc<'_>, text: &str) -> Result<Told, Unfit> {
        check_body(text, doc)?;
        self.check_schema(text)?;
        let columns = self.columns.iter().map(|column| column.value(doc)).collect::<Result<_, _>>()?;
        Ok(Told { entity_id, hash: self.hash_of(doc, text), columns })
    }

    fn check_schema(&self, text: &str) -> Result<(), Unfit> {
        let Some(schema) = &self.schema else { return Ok(()) };
        let value = serde_json::from_str(text).map_err(|error| error.to_string());
        value.and_then(|value| schema(&value)).map_err(|reason| Unfit { cause: "schema", reason })
    }

    /// One value is its own text. Several are a JSON array, which no other values make.
    fn key_of(&self, record: &Doc<'_>) -> Result<String, Unfit> {
        let mut parts = Vec::with_capacity(self.key.len());
        for place in &self.key {
            match record.at(place) {
                Some(number @ Doc::Number(_)) if canonical::is_rounded(number) => {
                    let reason =
                        format!("the number at {place:?} has more than 64 bits; as text it could be a key");
                    return Err(Unfit { cause: "key-number", reason });
                }
                Some(part @ (Doc::Text(_) | Doc::Number(_) | Doc::Bool(_))) => parts.push(part),
                None => {
                    return Err(Unfit { cause: "key-missing", reason: format!("nothing at {place:?}") });
                }
                Some(other) => {
                    let reason = format!("{} at {place:?} cannot name an entity", shown(other));
                    return Err(Unfit { cause: "key-missing", reason });
                }
            }
        }
        let key = match parts.as_slice() {
            [one] => plain(one),
            several => Doc::Array(several.iter().map(|part| (*part).clone()).collect()).to_string(),
        };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let reason = format!("the key has {} bytes; 1 to {KEY_BYTES_MAX} are possible", key.len());
            return Err(Unfit { cause: "key-length", reason });
        }
        Ok(key)
    }

    fn hash_of(&self, record: &Doc<'_>, text: &str) -> crate::item::Hash {
        let mut sum = self.seed.clone();
        // Numbers that were rounded when they were read are told apart by the text they came in.
        if canonical::is_rounded(record) {
            sum.add(Some(&Doc::Text(text.into())));
        }
        match self.hash.as_slice() {
            [] => sum.add(Some(record)),
            named => named.iter().for_each(|place| sum.add(record.at(place))),
        }
        sum.finish()
    }
}

/// What no store can keep, and what is too large for any batch.
fn check_body(text: &str, value: &Doc<'_>) -> Result<(), Unfit> {
    if text.len() > BATCH_BYTES_MAX {
        let reason = format!("has {} bytes; at most {BATCH_BYTES_MAX} are possible", text.len());
        return Err(Unfit { cause: "too-large", reason });
    }
    // Such a number takes a long text, or is next to nothing when it is read.
    let is_possible = text.len() > DIGITS_MAX || has_tiny_number(value);
    if is_possible && has_endless_number(text) {
        let reason = "has a number with more digits than databases can keep".to_owned();
        return Err(Unfit { cause: "number", reason });
    }
    // Postgres keeps no NUL in text or JSON; in SQLite it would end the text for many a reader.
    if text.contains("\\u0000") && has_nul(value) {
        let reason = "has the character U+0000 in a text, which databases cannot keep".to_owned();
        return Err(Unfit { cause: "nul-character", reason });
    }
    Ok(())
}

fn has_tiny_number(value: &Doc<'_>) -> bool {
    value.any(&|value| match value {
        Doc::Number(number) => number.is_f64() && number.as_f64().is_some_and(|float| float.abs() < 1e-300),
        _ => false,
    })
}

/// Whether a number has an exponent or so many digits that the `numeric` of Postgres cannot hold it.
fn has_endless_number(text: &str) -> bool {
    let (mut is_text, mut is_escaped) = (false, false);
    let (mut digits, mut exponent) = (0_usize, None::<usize>);
    for byte in text.bytes() {
        match (is_text, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => is_text = !is_text,
            (true, _) => {}
            (false, b'0'..=b'9') => match &mut exponent {
                Some(exponent) => {
                    *exponent = exponent.saturating_mul(10).saturating_add(usize::from(byte - b'0'))
                }
                None => digits += 1,
            },
            (false, b'e' | b'E') if digits > 0 => exponent = Some(0),
            (false, b'+' | b'-' | b'.') => {}
            (false, _) => (digits, exponent) = (0, None),
        }
        if digits.saturating_add(exponent.unwrap_or(0)) > DIGITS_MAX {
            return true;
        }
    }
    false
}

fn has_nul(value: &Doc<'_>) -> bool {
    match value {
        Doc::Text(text) => text.contains('\0'),
        Doc::Array(array) => array.iter().any(has_nul),
        Doc::Object(pairs) => pairs.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        Doc::Null | Doc::Bool(_) | Doc::Number(_) => false,
    }
}

impl Filling {
    fn of(field: Field) -> Self {
        let place = |pointer: String| Place::from(pointer.as_str());
        let from = match field.from {
            From::Pointer(pointer) => Origin::Place(place(pointer)),
            From::Constant(value) => Origin::Constant(Doc::from(&value)),
            From::Template(pieces) => {
                let stretch = |piece| match piece {
                    Piece::Text(text) => Stretch::Text(text),
                    Piece::Pointer(pointer) => Stretch::Place(place(pointer)),
                };
                Origin::Template(pieces.into_iter().map(stretch).collect())
            }
        };
        Self { column: field.column, from, default: field.default.as_ref().map(Doc::from) }
    }

    fn value(&self, record: &Doc<'_>) -> Result<Value, Unfit> {
        let filled;
        let given = match &self.from {
            Origin::Place(place) => record.at(place),
            Origin::Constant(value) => Some(value),
            Origin::Template(stretches) => {
                filled = fill(stretches, record).map(|text| Doc::Text(text.into()));
                filled.as_ref()
            }
        };
        match given.filter(|value| !value.is_null()).or(self.default.as_ref()) {
            None | Some(Doc::Null) => Ok(Value::Null),
            Some(value) => convert(self.column.kind, value).ok_or_else(|| {
                let (column, kind) = (&self.column.name, self.column.kind);
                let place = match &self.from {
                    Origin::Place(place) => format!("{place:?}"),
                    Origin::Template(_) | Origin::Constant(_) => "its template".to_owned(),
                };
                let reason = format!("{} at {place} is no {kind:?} for the column {column}", shown(value));
                Unfit { cause: "type", reason }
            }),
        }
    }
}

/// Nothing if the record lacks any of the places.
fn fill(stretches: &[Stretch], record: &Doc<'_>) -> Option<String> {
    let mut text = String::new();
    for stretch in stretches {
        match stretch {
            Stretch::Text(piece) => text.push_str(piece),
            Stretch::Place(place) => {
                let found = record.at(place).filter(|value| !value.is_null())?;
                text.push_str(&plain(found));
            }
        }
    }
    Some(text)
}

/// Text as it is, everything else as JSON.
fn plain(value: &Doc<'_>) -> String {
    match value {
        Doc::Text(text) => text.to_string(),
        other => other.to_string(),
    }
}

/// As the type of a column. Numbers that came as text are numbers.
fn convert(kind: ColumnType, value: &Doc<'_>) -> Option<Value> {
    match (kind, value) {
        (ColumnType::Json, _) => raw(value).map(Value::Json),
        (ColumnType::Text, Doc::Text(_) | Doc::Number(_) | Doc::Bool(_)) => Some(Value::Text(plain(value))),
        (ColumnType::Integer, Doc::Number(number)) => number.as_i64().map(Value::Integer),
        (ColumnType::Integer, Doc::Text(text)) => text.trim().parse().ok().map(Value::Integer),
        (ColumnType::Float, Doc::Number(number)) => number.as_f64().map(Value::Float),
        (ColumnType::Float, Doc::Text(text)) => {
            text.trim().parse().ok().filter(|float: &f64| float.is_finite()).map(Value::Float)
        }
        (ColumnType::Boolean, Doc::Bool(bool)) => Some(Value::Boolean(*bool)),
        (ColumnType::Boolean, Doc::Text(text)) => text.trim().parse().ok().map(Value::Boolean),
        (ColumnType::Timestamp, Doc::Text(text)) => timestamp(text.trim()).map(Value::Timestamp),
        _ => None,
    }
}

/// RFC 3339, or a day, which begins in UTC.
///
/// From 4713 BC on, where the calendar of Postgres begins.
fn timestamp(text: &str) -> Option<Timestamp> {
    let read = text.parse().ok().or_else(|| {
        let day: jiff::civil::Date = text.parse().ok()?;
        Some(day.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
    });
    read.filter(|at: &Timestamp| at.to_zoned(jiff::tz::TimeZone::UTC).year() > -4712)
}

fn raw(value: &Doc<'_>) -> Option<Json> {
    serde_json::value::to_raw_value(value).ok()
}

fn no_json(garbled: Garbled) -> Reject {
    let text = garbled.text.replace('\0', "\u{FFFD}");
    // A text is always a JSON string.
    let record = raw(&Doc::Text(text.into())).unwrap_or_else(|| RawValue::NULL.to_owned());
    Reject { record, cause: "garbled".to_owned(), reason: garbled.problem, entity_id: None }
}

fn shown(value: &Doc<'_>) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
#[path = "transform_tests.rs"]
mod tests;
