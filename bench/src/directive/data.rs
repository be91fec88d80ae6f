//! The rows: the same for everybody and, from a seed, the same each time.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

const SEED: u64 = 20_261_116;
/// Words in the longest text of a row: with them a row has about 350 bytes.
const NOTE_WORDS: usize = 16;
const TAGS: usize = 3;
const WORDS: [&str; 24] = [
    "amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "jetty", "knoll",
    "larch", "maple", "north", "ochre", "pine", "quartz", "reef", "slate", "tundra", "umber", "vale",
    "willow", "zephyr",
];

/// The files that are loaded, and what must be in a table afterwards.
pub(super) struct Data {
    /// A row on each line.
    pub(super) lines: PathBuf,
    /// The same as messages of a Singer tap.
    pub(super) singer: PathBuf,
    pub(super) rows: u64,
    /// The size of the lines.
    pub(super) bytes: u64,
    /// The sum of the column `age`.
    pub(super) ages: i64,
}

impl Data {
    /// Writes both files.
    pub(super) fn write(folder: &Path, rows: u64) -> Result<Self> {
        let (lines, singer) = (folder.join("rows.jsonl"), folder.join("rows.singer"));
        let mut to_lines = BufWriter::new(File::create(&lines)?);
        let mut to_singer = BufWriter::new(File::create(&singer)?);
        let mut random = StdRng::seed_from_u64(SEED);
        let (mut ages, mut bytes) = (0, 0);
        writeln!(to_singer, "{}", schema())?;
        for id in 0..rows {
            let age = random.random_range(18..=90);
            let line = row(id, age, &mut random).to_string();
            writeln!(to_lines, "{line}")?;
            writeln!(to_singer, r#"{{"type":"RECORD","stream":"rows","record":{line}}}"#)?;
            ages += i64::from(age);
            bytes += line.len() as u64 + 1;
        }
        writeln!(to_singer, "{}", json!({ "type": "STATE", "value": { "rows": rows } }))?;
        to_lines.flush()?;
        to_singer.flush()?;
        Ok(Self { lines, singer, rows, bytes, ages })
    }
}

fn row(id: u64, age: i32, random: &mut StdRng) -> Value {
    let mut word = || *WORDS.choose(random).unwrap_or(&"");
    let (name, family, street, city) = (word(), word(), word(), word());
    let note = (0..NOTE_WORDS).map(|_| word()).collect::<Vec<_>>().join(" ");
    let tags: Vec<&str> = (0..TAGS).map(|_| word()).collect();
    let (month, day) = (random.random_range(1..=12), random.random_range(1..=28));
    let (hour, minute) = (random.random_range(0..24), random.random_range(0..60));
    json!({
        "id": id,
        "name": format!("{name} {family}"),
        "email": format!("{name}.{family}.{id}@example.org"),
        "age": age,
        "score": f64::from(random.random_range(0..1_000_000)) / 1000.0,
        "active": random.random_bool(0.5),
        "created_at": format!("2026-{month:02}-{day:02}T{hour:02}:{minute:02}:00Z"),
        "address": {
            "street": format!("{} {street} road", random.random_range(1..200)),
            "city": city,
            "zip": random.random_range(10_000..100_000).to_string(),
        },
        "tags": tags,
        "note": note,
    })
}

/// What a tap says before its records.
fn schema() -> Value {
    let text = json!({ "type": "string" });
    json!({ "type": "SCHEMA", "stream": "rows", "key_properties": ["id"], "schema": {
        "type": "object",
        "properties": {
            "id": { "type": "integer" },
            "name": text,
            "email": text,
            "age": { "type": "integer" },
            "score": { "type": "number" },
            "active": { "type": "boolean" },
            "created_at": { "type": "string", "format": "date-time" },
            "address": { "type": "object", "properties": { "street": text, "city": text, "zip": text } },
            "tags": { "type": "array", "items": text },
            "note": text,
        },
    } })
}
