//! Cuts a page into parts that can be written one after the other.
//!
//! A part holds each key once, so that the result is that of writing the items one by one, whatever the store; and it
//! stays below the memory that a batch may take.

use std::collections::HashSet;

use sha2::{Digest as _, Sha256};

use crate::item::{Item, Reject};

/// What became of one record.
#[derive(Debug, Clone)]
pub enum Transformed {
    /// It is an item.
    Item(Item),
    /// It is kept aside.
    Reject(Reject),
}

impl Transformed {
    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Item(item) => item.body.get().len() + item.entity_id.len() + 64 * item.columns.len(),
            Self::Reject(reject) => reject.record.get().len() + reject.reason.len(),
        }
    }
}

/// What is written in one batch.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// Each key once.
    pub items: Vec<Item>,
    /// What is kept aside.
    pub rejects: Vec<Reject>,
    /// What it takes in memory, about.
    pub bytes: usize,
    /// Its entities.
    keys: HashSet<String>,
}

impl Part {
    /// Records in it.
    pub fn len(&self) -> usize {
        self.items.len() + self.rejects.len()
    }

    /// Whether no item of it is of an entity of the other.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        self.items.iter().all(|item| !other.keys.contains(&item.entity_id))
    }

    /// Takes in what comes after it and is apart from it.
    pub fn extend(&mut self, next: Self) {
        self.items.extend(next.items);
        self.rejects.extend(next.rejects);
        self.keys.extend(next.keys);
        self.bytes += next.bytes;
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Collects records into parts.
#[derive(Debug)]
pub struct Parts {
    bytes_max: usize,
    part: Part,
}

impl Parts {
    /// Parts of at most so many bytes; a record that is larger alone is a part alone.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, part: Part::default() }
    }

    /// Takes the next record. Answers the part before it, if it does not fit into that.
    pub fn push(&mut self, record: Transformed) -> Option<Part> {
        let bytes = record.bytes();
        let is_full = !self.part.is_empty() && self.part.bytes + bytes > self.bytes_max;
        // Also after a reject of the same entity: an item resolves what was kept aside before it.
        let is_repeated =
            matches!(&record, Transformed::Item(item) if self.part.keys.contains(&item.entity_id));
        let finished = (is_full || is_repeated).then(|| std::mem::take(&mut self.part));
        self.part.bytes += bytes;
        match record {
            Transformed::Item(item) => {
                self.part.keys.insert(item.entity_id.clone());
                self.part.items.push(item);
            }
            Transformed::Reject(reject) => {
                self.part.keys.extend(reject.entity_id.clone());
                self.part.rejects.push(reject);
            }
        }
        finished
    }

    /// What is left.
    pub fn finish(self) -> Part {
        self.part
    }
}

/// The checksum after one more record: that of the same records in the same order is the same, however they were paged.
pub fn checksum(before: &str, record: &Transformed) -> String {
    let mut next = Sha256::new_with_prefix(before);
    match record {
        Transformed::Item(item) => {
            next.update((item.entity_id.len() as u64).to_be_bytes());
            next.update(&item.entity_id);
            next.update(item.hash);
        }
        Transformed::Reject(reject) => {
            next.update(u64::MAX.to_be_bytes());
            next.update(reject.record.get());
        }
    }
    hex(&next.finalize())
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 0xf));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn item(key: &str, body: &str) -> Transformed {
        let body = RawValue::from_string(format!("{body:?}")).unwrap();
        Transformed::Item(Item { entity_id: key.to_owned(), hash: [0; 32], body, columns: Vec::new() })
    }

    fn cut(bytes_max: usize, records: Vec<Transformed>) -> Vec<String> {
        let mut parts = Parts::new(bytes_max);
        let mut all: Vec<Part> = records.into_iter().filter_map(|record| parts.push(record)).collect();
        all.push(parts.finish());
        let keys =
            |part: Part| part.items.into_iter().map(|item| item.entity_id).collect::<Vec<_>>().join(" ");
        all.into_iter().map(keys).collect()
    }

    #[test]
    fn a_repeated_key_begins_another_part() {
        let records = ["a", "b", "a", "c", "c"].map(|key| item(key, "")).to_vec();
        assert_eq!(cut(1000, records), ["a b", "a c", "c"]);
    }

    fn reject(key: &str) -> Transformed {
        Transformed::Reject(Reject {
            record: RawValue::from_string("1".to_owned()).unwrap(),
            cause: "type".to_owned(),
            reason: String::new(),
            entity_id: Some(key.to_owned()),
        })
    }

    #[test]
    fn an_item_comes_after_the_reject_of_the_same_entity_and_not_with_it() {
        assert_eq!(cut(1000, vec![reject("a"), item("b", ""), item("a", "")]), ["b", "a"]);
        assert_eq!(cut(1000, vec![item("a", ""), reject("a"), item("b", "")]), ["a b"]);
    }

    #[test]
    fn parts_stay_below_the_limit_and_a_giant_comes_alone() {
        let (small, giant) = ("x".repeat(10), "x".repeat(100));
        let records = vec![
            item("a", &small),
            item("b", &small),
            item("c", &giant),
            item("d", &small),
            item("e", &small),
        ];
        assert_eq!(cut(30, records), ["a b", "c", "d e"]);
        assert_eq!(cut(30, Vec::new()), [""]);
    }

    #[test]
    fn the_checksum_depends_on_the_items_and_their_order_and_not_on_the_pages() {
        let after = |before: &str, keys: &[&str]| {
            keys.iter().fold(before.to_owned(), |sum, key| checksum(&sum, &item(key, "")))
        };
        let sum = |keys: &[&str]| after("", keys);
        assert_eq!(sum(&["a", "bc"]), after(&sum(&["a"]), &["bc"]));
        assert_ne!(sum(&["a", "bc"]), sum(&["ab", "c"]));
        assert_ne!(sum(&["a", "b"]), sum(&["b", "a"]));
        assert_ne!(after("x", &["a"]), sum(&["a"]));
        assert_ne!(checksum("", &reject("1")), checksum("", &item("1", "")));
    }
}
