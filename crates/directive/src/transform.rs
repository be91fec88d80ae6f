//! Makes items of records: key, hash, columns, and what keeps a record from becoming one.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value as JsonValue;
use serde_json::value::RawValue;
use stargate_queue::job::Json;

use crate::canonical;
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
    /// JSON pointers to what names an entity.
    pub key: Vec<String>,
    /// JSON pointers to what counts as its content; all of it if empty.
    pub hash: Vec<String>,
    /// The mapped columns.
    pub fields: Vec<Field>,
    /// What a record must look like.
    pub schema: Option<Box<Schema>>,
    /// Tells mappings apart that make other columns of the same record.
    seed: Option<JsonValue>,
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("key", &self.key)
            .field("fields", &self.fields)
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

/// Why a record cannot become an item.
#[derive(Debug)]
struct Unfit {
    cause: &'static str,
    reason: String,
}

impl Mapping {
    /// What the columns are made of is part of every hash: with another mapping rows are written again, and a new column
    /// is not empty until its record changes.
    pub fn new(key: Vec<String>, hash: Vec<String>, fields: Vec<Field>, schema: Option<Box<Schema>>) -> Self {
        let seed = (!fields.is_empty()).then(|| JsonValue::String(format!("{fields:?}")));
        Self { key, hash, fields, schema, seed }
    }

    /// Makes an item of a record, or says why not.
    pub fn apply(&self, record: Result<Json, Garbled>) -> Transformed {
        let record = match record {
            Ok(record) => record,
            Err(garbled) => return Transformed::Reject(no_json(garbled)),
        };
        let value: JsonValue = match serde_json::from_str(record.get()) {
            Ok(value) => value,
            Err(error) => {
                let garbled = Garbled { text: record.get().to_owned(), problem: error.to_string() };
                return Transformed::Reject(no_json(garbled));
            }
        };
        let key = self.key_of(&value);
        let entity_id = key.as_ref().ok().cloned();
        let item = key.and_then(|entity_id| {
            check_body(record.get(), &value)?;
            if let Some(Err(problem)) = self.schema.as_ref().map(|schema| schema(&value)) {
                return Err(Unfit { cause: "schema", reason: problem });
            }
            let columns = self.fields.iter().map(|field| field.value(&value)).collect::<Result<_, _>>()?;
            Ok((entity_id, columns))
        });
        match item {
            Ok((entity_id, columns)) => {
                let hash = self.hash_of(&value, record.get());
                Transformed::Item(Item { entity_id, hash, body: record, columns })
            }
            Err(Unfit { cause, reason }) => {
                Transformed::Reject(Reject { record, cause: cause.to_owned(), reason, entity_id })
            }
        }
    }

    /// One value is its own text. Several are a JSON array, which no other values make.
    fn key_of(&self, record: &JsonValue) -> Result<String, Unfit> {
        let mut parts = Vec::with_capacity(self.key.len());
        for pointer in &self.key {
            match record.pointer(pointer) {
                Some(number @ JsonValue::Number(_)) if canonical::is_rounded(number) => {
                    let reason =
                        format!("the number at {pointer:?} has more than 64 bits; as text it could be a key");
                    return Err(Unfit { cause: "key-number", reason });
                }
                Some(part @ (JsonValue::String(_) | JsonValue::Number(_) | JsonValue::Bool(_))) => {
                    parts.push(part)
                }
                None => {
                    return Err(Unfit { cause: "key-missing", reason: format!("nothing at {pointer:?}") });
                }
                Some(other) => {
                    let reason = format!("{} at {pointer:?} cannot name an entity", shown(other));
                    return Err(Unfit { cause: "key-missing", reason });
                }
            }
        }
        let key = match parts.as_slice() {
            [JsonValue::String(text)] => text.clone(),
            [other] => other.to_string(),
            several => JsonValue::Array(several.iter().map(|part| (*part).clone()).collect()).to_string(),
        };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let reason = format!("the key has {} bytes; 1 to {KEY_BYTES_MAX} are possible", key.len());
            return Err(Unfit { cause: "key-length", reason });
        }
        Ok(key)
    }

    fn hash_of(&self, record: &JsonValue, text: &str) -> crate::item::Hash {
        // Numbers that were rounded when they were read are told apart by the text they came in.
        let text = canonical::is_rounded(record).then(|| JsonValue::String(text.to_owned()));
        let seed = self.seed.iter().chain(&text).map(Some);
        match self.hash.as_slice() {
            [] => canonical::hash(seed.chain([Some(record)])),
            named => canonical::hash(seed.chain(named.iter().map(|pointer| record.pointer(pointer)))),
        }
    }
}

/// What no store can keep, and what is too large for any batch.
fn check_body(text: &str, value: &JsonValue) -> Result<(), Unfit> {
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

fn has_tiny_number(value: &JsonValue) -> bool {
    match value {
        JsonValue::Number(number) => {
            number.is_f64() && number.as_f64().is_some_and(|float| float.abs() < 1e-300)
        }
        JsonValue::Array(array) => array.iter().any(has_tiny_number),
        JsonValue::Object(object) => object.values().any(has_tiny_number),
        JsonValue::Null | JsonValue::Bool(_) | JsonValue::String(_) => false,
    }
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

fn has_nul(value: &JsonValue) -> bool {
    match value {
        JsonValue::String(text) => text.contains('\0'),
        JsonValue::Array(array) => array.iter().any(has_nul),
        JsonValue::Object(object) => object.iter().any(|(key, value)| key.contains('\0') || has_nul(value)),
        _ => false,
    }
}

impl Field {
    fn value(&self, record: &JsonValue) -> Result<Value, Unfit> {
        let given = match &self.from {
            From::Pointer(pointer) => record.pointer(pointer).cloned(),
            From::Template(pieces) => fill(pieces, record).map(JsonValue::String),
            From::Constant(value) => Some(value.clone()),
        };
        let given = given.filter(|value| !value.is_null()).or_else(|| self.default.clone());
        match given {
            None | Some(JsonValue::Null) => Ok(Value::Null),
            Some(value) => convert(self.column.kind, value).map_err(|value| {
                let (column, kind) = (&self.column.name, self.column.kind);
                let place = match &self.from {
                    From::Pointer(pointer) => format!("{pointer:?}"),
                    From::Template(_) | From::Constant(_) => "its template".to_owned(),
                };
                let reason = format!("{} at {place} is no {kind:?} for the column {column}", shown(&value));
                Unfit { cause: "type", reason }
            }),
        }
    }
}

/// Nothing if the record lacks any of the places.
fn fill(pieces: &[Piece], record: &JsonValue) -> Option<String> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(piece) => text.push_str(piece),
            Piece::Pointer(pointer) => match record.pointer(pointer)? {
                JsonValue::Null => return None,
                JsonValue::String(string) => text.push_str(string),
                other => text.push_str(&other.to_string()),
            },
        }
    }
    Some(text)
}

/// As the type of a column. Numbers that came as text are numbers.
fn convert(kind: ColumnType, value: JsonValue) -> Result<Value, JsonValue> {
    let converted = match (kind, &value) {
        (ColumnType::Json, _) => raw(&value).map(Value::Json),
        (ColumnType::Text, JsonValue::String(text)) => Some(Value::Text(text.clone())),
        (ColumnType::Text, JsonValue::Number(_) | JsonValue::Bool(_)) => Some(Value::Text(value.to_string())),
        (ColumnType::Integer, JsonValue::Number(number)) => number.as_i64().map(Value::Integer),
        (ColumnType::Integer, JsonValue::String(text)) => text.trim().parse().ok().map(Value::Integer),
        (ColumnType::Float, JsonValue::Number(number)) => number.as_f64().map(Value::Float),
        (ColumnType::Float, JsonValue::String(text)) => {
            text.trim().parse().ok().filter(|float: &f64| float.is_finite()).map(Value::Float)
        }
        (ColumnType::Boolean, JsonValue::Bool(bool)) => Some(Value::Boolean(*bool)),
        (ColumnType::Boolean, JsonValue::String(text)) => text.trim().parse().ok().map(Value::Boolean),
        (ColumnType::Timestamp, JsonValue::String(text)) => timestamp(text.trim()).map(Value::Timestamp),
        _ => None,
    };
    converted.ok_or(value)
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

fn raw(value: &JsonValue) -> Option<Json> {
    serde_json::value::to_raw_value(value).ok()
}

fn no_json(garbled: Garbled) -> Reject {
    let text = garbled.text.replace('\0', "\u{FFFD}");
    // A text is always a JSON string.
    let record = raw(&JsonValue::String(text)).unwrap_or_else(|| RawValue::NULL.to_owned());
    Reject { record, cause: "garbled".to_owned(), reason: garbled.problem, entity_id: None }
}

fn shown(value: &JsonValue) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
#[path = "transform_tests.rs"]
mod tests;
