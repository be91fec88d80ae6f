//! A hash of JSON that does not depend on the order of its keys or on white space.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::item::Hash;

/// The hash of values one after the other; a missing one is not a null.
pub fn hash<'v>(values: impl IntoIterator<Item = Option<&'v Value>>) -> Hash {
    let mut sum = Sha256::new();
    for value in values {
        match value {
            Some(value) => feed(&mut sum, value),
            None => sum.update(b"-"),
        }
    }
    sum.finalize().into()
}

/// Whether a value has numbers of which a 64-bit float keeps only the beginning: then two values may be the same here and
/// differ in their text.
pub fn is_rounded(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let is_float = !number.is_i64() && !number.is_u64();
            is_float && number.as_f64().is_none_or(|float| float.abs() >= EXACT_MAX)
        }
        Value::Array(array) => array.iter().any(is_rounded),
        Value::Object(object) => object.values().any(is_rounded),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Up to here each whole number is a 64-bit float of its own.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Each value begins with a letter for its type, and text with its length, so that no two values read the same.
fn feed(sum: &mut Sha256, value: &Value) {
    match value {
        Value::Null => sum.update(b"n"),
        Value::Bool(true) => sum.update(b"t"),
        Value::Bool(false) => sum.update(b"f"),
        Value::Number(number) => text(sum, b"d", &number.to_string()),
        Value::String(string) => text(sum, b"s", string),
        Value::Array(array) => {
            head(sum, b"a", array.len());
            array.iter().for_each(|value| feed(sum, value));
        }
        Value::Object(object) => {
            head(sum, b"o", object.len());
            let mut pairs: Vec<_> = object.iter().collect();
            pairs.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in pairs {
                text(sum, b"k", key);
                feed(sum, value);
            }
        }
    }
}

fn text(sum: &mut Sha256, letter: &[u8], text: &str) {
    head(sum, letter, text.len());
    sum.update(text);
}

fn head(sum: &mut Sha256, letter: &[u8], length: usize) {
    sum.update(letter);
    sum.update((length as u64).to_be_bytes());
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
        assert_ne!(hash([None]), hash([Some(&Value::Null)]));
        assert_ne!(hash([None, Some(&Value::Null)]), hash([Some(&Value::Null), None]));
    }
}
