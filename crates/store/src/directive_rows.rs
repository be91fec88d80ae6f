//! What both adapters share about directives: what is compared, what is kept as JSON, and what is refused.

use std::collections::HashSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use stargate_directive::doc::Doc;
pub(crate) use stargate_directive::item::FIXED_COLUMNS;
use stargate_directive::item::{Batch, Column, ColumnType, Hash, Item, Persisted, Rows, Table, Value};
use stargate_directive::kv::{Expected, Key, Purpose, Put, PutAnswer};
use stargate_directive::run::{NewRun, Outcome, RunId};
use stargate_directive::source::Owner;
use stargate_directive::{canonical, metrics};
use stargate_queue::job::Json;
use stargate_queue::{Error, Result};

/// Who writes cursors, as `last_writer` says it before the directive's name.
const AGENT: &str = "meta-worker";
/// Longest names that come from outside: run, batch, workflow, worker, writer.
pub(crate) const NAME_BYTES_MAX: usize = 256;
/// Longest entity; a key of an index must have room for it.
pub(crate) const ENTITY_BYTES_MAX: usize = 1024;
/// Delivered announcements that are removed with one that arrives.
pub(crate) const OUTBOX_PURGED_MAX: i64 = 20;
/// Longest reason of a write by hand.
const SPEC_REF_BYTES_MAX: usize = 4096;
/// How much of a delivery's problem is kept.
const PROBLEM_CHARS_MAX: usize = 1000;

/// `last_writer` of what a run writes.
pub(crate) fn writer_of(directive: &str) -> String {
    format!("{AGENT}:{directive}")
}

/// What a request asks for, to tell its repetition from another request of the same name.
pub(crate) fn request_hash(
    value: Option<&RawValue>,
    purpose: Purpose,
    spec_ref: Option<&str>,
    ttl: Option<Duration>,
) -> String {
    let mut sum = Sha256::new();
    match value {
        Some(value) => sum.update(record_bytes(value)),
        None => sum.update(b"removed"),
    }
    sum.update(purpose_word(purpose));
    for part in
        [spec_ref.unwrap_or("\0").as_bytes(), &ttl.map_or(u128::MAX, |ttl| ttl.as_micros()).to_be_bytes()]
    {
        sum.update((part.len() as u64).to_be_bytes());
        sum.update(part);
    }
    hex(&sum.finalize().into())
}

/// The hash that makes a quarantined record known again, as hex.
pub(crate) fn record_hash(record: &RawValue) -> String {
    hex(&record_bytes(record))
}

/// A hash that does not depend on white space and the order of keys; that of the text if it cannot be read, as numbers
/// out of range cannot.
fn record_bytes(json: &RawValue) -> Hash {
    match serde_json::from_str::<Doc<'_>>(json.get()) {
        Ok(value) => canonical::hash([Some(&value)]),
        Err(_) => Sha256::digest(json.get()).into(),
    }
}

/// Lower-case hex.
pub(crate) fn hex(hash: &Hash) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    let mut text = String::with_capacity(2 * hash.len());
    for byte in hash {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// Who has the lease, as kept under its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseValue {
    /// The run.
    pub(crate) run: String,
    /// Who executes it.
    pub(crate) worker: String,
}

impl LeaseValue {
    /// As kept for a run.
    pub(crate) fn of(run: &NewRun) -> Result<Json> {
        to_json(&Self { run: run.id.0.clone(), worker: run.worker.clone() })
    }

    /// As read.
    pub(crate) fn read(key: &Key, text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|_| Error::Conflict {
            problem: format!(
                "the value under {key} is not the lease of a run; remove it, with a reason, to go on"
            ),
        })
    }
}

/// JSON of what is always JSON.
pub(crate) fn to_json(value: &impl Serialize) -> Result<Json> {
    serde_json::value::to_raw_value(value)
        .map_err(|error| Error::invalid("value", format!("is no JSON: {error}")))
}

/// A version as its column keeps it; the one that was expected, null for none.
pub(crate) fn expected_column(expected: Expected) -> Option<i64> {
    match expected {
        Expected::Absent => None,
        Expected::Version(version) => Some(crate::repo_rows::signed(version)),
    }
}

/// The word of a purpose.
pub(crate) fn purpose_word(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Cursor => "cursor",
        Purpose::Checkpoint => "checkpoint",
        Purpose::Lock => "lock",
    }
}

/// The purpose of a word; what is not known is a checkpoint, which nobody takes for a cursor.
pub(crate) fn purpose(word: &str) -> Purpose {
    match word {
        "cursor" => Purpose::Cursor,
        "lock" => Purpose::Lock,
        _ => Purpose::Checkpoint,
    }
}

/// The outcome of a word.
pub(crate) fn outcome(word: &str) -> Outcome {
    match word {
        "succeeded" => Outcome::Succeeded,
        "cancelled" => Outcome::Cancelled,
        _ => Outcome::Failed,
    }
}

/// Where the keys end that begin so: the smallest text that is greater than all of them. Keys are ASCII below DEL.
pub(crate) fn prefix_end(prefix: &str) -> String {
    format!("{prefix}\u{7f}")
}

/// What an announcement is about.
pub(crate) fn outbox_key(owner: &Owner, entity: &str) -> String {
    format!("{}/{}/{}/{entity}", owner.tenant, owner.project, owner.directive)
}

/// What an announcement says.
pub(crate) fn payload(owner: &Owner, item: &Item, is_new: bool, version: i64) -> Result<String> {
    #[derive(Serialize)]
    struct Payload<'p> {
        directive: &'p str,
        tenant_id: &'p str,
        project_id: &'p str,
        entity_id: &'p str,
        change: &'p str,
        version: i64,
        body: &'p RawValue,
    }
    let payload = Payload {
        directive: &owner.directive,
        tenant_id: &owner.tenant,
        project_id: &owner.project,
        entity_id: &item.entity_id,
        change: if is_new { "created" } else { "updated" },
        version,
        body: &item.body,
    };
    serde_json::to_string(&payload).map_err(|error| Error::invalid("body", format!("is no JSON: {error}")))
}

/// A delivery's problem, cut to a bearable length.
pub(crate) fn short_problem(problem: &str) -> String {
    storable(&problem.chars().take(PROBLEM_CHARS_MAX).collect::<String>())
}

/// Text without NUL, which Postgres keeps nowhere; so nowhere is it kept that a store could not be moved there.
pub(crate) fn storable(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

/// Checks a write of a value before the store is bothered.
pub(crate) fn check_put(put: &Put) -> Result<()> {
    check_names(&[("request_id", &put.request_id), ("writer", &put.writer)])?;
    match put.spec_ref.as_deref() {
        Some(text) if text.len() > SPEC_REF_BYTES_MAX || text.contains('\0') => {
            let problem =
                format!("must have at most {SPEC_REF_BYTES_MAX} bytes and no NUL, not {}", text.len());
            Err(Error::invalid("spec_ref", problem))
        }
        _ => Ok(()),
    }
}

/// Counts a write of a value that found another version.
pub(crate) fn count_put(answer: Result<PutAnswer>) -> Result<PutAnswer> {
    if matches!(answer, Ok(PutAnswer::Conflict { .. })) {
        metrics::conflict();
    }
    answer
}

/// Counts a batch whose lease or cursor has another version.
pub(crate) fn count_batch(written: Result<Persisted>) -> Result<Persisted> {
    if matches!(written, Err(Error::Conflict { .. })) {
        metrics::conflict();
    }
    written
}

/// Checks names before the store is bothered.
pub(crate) fn check_names(names: &[(&'static str, &str)]) -> Result<()> {
    for (field, name) in names {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
            return Err(Error::invalid(
                field,
                format!("must have 1 to {NAME_BYTES_MAX} bytes, not {}", name.len()),
            ));
        }
    }
    Ok(())
}

/// Checks a run before the store is bothered.
pub(crate) fn check_run(run: &NewRun) -> Result<()> {
    check_names(&[
        ("run", &run.id.0),
        ("directive", &run.directive),
        ("tenant", &run.tenant),
        ("project", &run.project),
        ("engine", &run.engine),
        ("workflow_id", &run.workflow_id),
        ("worker", &run.worker),
    ])
}

/// Checks a batch before the store is bothered: what is wrong here would make counts that do not add up.
pub(crate) fn check_batch(batch: &Batch) -> Result<()> {
    check_names(&[("request_id", &batch.request_id)])?;
    match &batch.rows {
        Rows::Here { table, items, .. } => check_items(table, items),
        Rows::Elsewhere { entities, .. } => entities.iter().try_for_each(|entity| check_entity(entity)),
    }
}

/// The entities that a batch has items of.
pub(crate) fn entities(rows: &Rows) -> Vec<&str> {
    match rows {
        Rows::Here { items, .. } => items.iter().map(|item| item.entity_id.as_str()).collect(),
        Rows::Elsewhere { entities, .. } => entities.iter().map(String::as_str).collect(),
    }
}

fn check_entity(entity: &str) -> Result<()> {
    if entity.is_empty() || entity.len() > ENTITY_BYTES_MAX || entity.contains('\0') {
        let problem = format!("must have 1 to {ENTITY_BYTES_MAX} bytes and no NUL, not {}", entity.len());
        return Err(Error::invalid("entity_id", problem));
    }
    Ok(())
}

/// Each key once, and values of the columns' types.
pub(crate) fn check_items(table: &Table, items: &[Item]) -> Result<()> {
    let mut keys = HashSet::with_capacity(items.len());
    for item in items {
        let entity = &item.entity_id;
        check_entity(entity)?;
        if !keys.insert(entity.as_str()) {
            return Err(Error::invalid("items", format!("name the entity {entity:?} more than once")));
        }
        if item.columns.len() != table.columns.len() {
            let problem = format!(
                "have {} values for the {} columns of {} at {entity:?}",
                item.columns.len(),
                table.columns.len(),
                table.name
            );
            return Err(Error::invalid("items", problem));
        }
        for (column, value) in table.columns.iter().zip(&item.columns) {
            if !fits(column.kind, value) {
                let problem =
                    format!("have a value of another type in the column {} at {entity:?}", column.name);
                return Err(Error::invalid("items", problem));
            }
        }
    }
    Ok(())
}

fn fits(kind: ColumnType, value: &Value) -> bool {
    matches!(
        (kind, value),
        (_, Value::Null)
            | (ColumnType::Text, Value::Text(_))
            | (ColumnType::Integer, Value::Integer(_))
            | (ColumnType::Float, Value::Float(_))
            | (ColumnType::Boolean, Value::Boolean(_))
            | (ColumnType::Timestamp, Value::Timestamp(_))
            | (ColumnType::Json, Value::Json(_))
    )
}

/// The columns that a table lacks; an error if one is there with another type. `known`: what the registry says.
pub(crate) fn columns_to_add<'t>(table: &'t Table, known: &[Column]) -> Result<Vec<&'t Column>> {
    let mut missing = Vec::new();
    for column in &table.columns {
        match known.iter().find(|other| other.name == column.name) {
            None => missing.push(column),
            Some(other) if other.kind == column.kind => {}
            Some(other) => {
                let problem = format!(
                    "{} has the column {} as {}, not as {}; map the value to a column of another name",
                    table.name,
                    column.name,
                    other.kind.as_str(),
                    column.kind.as_str()
                );
                return Err(Error::invalid("sink.table", problem));
            }
        }
    }
    Ok(missing)
}

/// A table that is there and was not made for directives.
pub(crate) fn not_a_sink(table: &str) -> Error {
    let problem = format!(
        "{table} is there and was not made for directives; name another table, or rename that one and let it be made anew"
    );
    Error::invalid("sink.table", problem)
}

/// A sink's table that lost a column it had.
pub(crate) fn column_gone(table: &str, column: &str) -> Error {
    let problem = format!(
        "{table} has lost its column {column}; add it again, or rename the table and let it be made anew"
    );
    Error::invalid("sink.table", problem)
}

/// A sink's table that takes a row no more, because somebody added a rule to it. `said` names the rule, not the row.
pub(crate) fn row_refused(table: &str, said: &str) -> Error {
    let problem = format!(
        "{table} does not take a row: {said}; remove the constraint, index or trigger that was added to it, or rename the \
         table and let it be made anew"
    );
    Error::invalid("sink.table", problem)
}

/// A name as an identifier in SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A batch of a run that has not the lease.
pub(crate) fn lease_lost(run: &RunId) -> Error {
    Error::Conflict {
        problem: format!("run {run} does not have the lease of its directive any more; nothing was written"),
    }
}

/// A cursor that somebody else moved.
pub(crate) fn cursor_moved(key: &Key, expected: Expected, found: Option<i64>) -> Error {
    let word = |version: Option<i64>| version.map_or("absent".to_owned(), |v| format!("at version {v}"));
    let problem = format!(
        "{key} was expected {} and is {}; nothing was written",
        word(expected_column(expected)),
        word(found)
    );
    Error::Conflict { problem }
}

/// Counts that do not add up to what was given.
pub(crate) fn counts_differ(given: u64, found: u64) -> Error {
    Error::Conflict { problem: format!("{found} items of {given} are accounted for; nothing was written") }
}

/// A run that wants to begin although it has ended.
pub(crate) fn run_ended(run: &RunId, outcome: &str) -> Error {
    Error::Conflict { problem: format!("run {run} has ended: {outcome}; begin another one") }
}

/// A run that wants to begin under the name of another directive's.
pub(crate) fn run_of_another(run: &RunId, directive: &str) -> Error {
    Error::Conflict { problem: format!("run {run} is one of the directive {directive}; choose another name") }
}

/// Why a run failed whose lease another one took.
pub(crate) fn replaced(by: &NewRun) -> String {
    format!("its lease ran out, and run {} of {} took its place", by.id, by.worker)
}

/// Notifications are Postgres's.
pub(crate) fn no_notifications() -> Error {
    let problem = "needs Postgres: SQLite cannot notify; deliver over HTTP or to a file";
    Error::invalid("outbox", problem)
}

/// Columns as the registry keeps them.
pub(crate) fn columns_json(columns: &[Column]) -> Result<Json> {
    to_json(&columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Json {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn table(columns: &[(&str, ColumnType)]) -> Table {
        let column = |&(name, kind): &(&str, ColumnType)| Column { name: name.to_owned(), kind };
        Table { name: "items".to_owned(), columns: columns.iter().map(column).collect() }
    }

    #[test]
    fn a_hash_is_lower_case_hex() {
        let mut hash = [0; 32];
        hash[..3].copy_from_slice(&[0x01, 0xaf, 0xf0]);
        assert_eq!(hex(&hash), format!("01aff0{}", "00".repeat(29)));
    }

    #[test]
    fn a_request_is_known_by_what_it_asks_for() {
        let ttl = Some(Duration::from_secs(1));
        let first = request_hash(Some(&raw("{\"a\":1}")), Purpose::Cursor, Some("x"), ttl);
        assert_eq!(first, request_hash(Some(&raw("{ \"a\": 1 }")), Purpose::Cursor, Some("x"), ttl));
        let others = [
            request_hash(Some(&raw("{\"a\":2}")), Purpose::Cursor, Some("x"), ttl),
            request_hash(None, Purpose::Cursor, Some("x"), ttl),
            request_hash(Some(&raw("{\"a\":1}")), Purpose::Lock, Some("x"), ttl),
            request_hash(Some(&raw("{\"a\":1}")), Purpose::Cursor, None, ttl),
            request_hash(Some(&raw("{\"a\":1}")), Purpose::Cursor, Some("x"), None),
        ];
        assert!(others.iter().all(|other| *other != first), "{others:?}");
        assert_eq!(others.iter().collect::<HashSet<_>>().len(), others.len());
    }

    #[test]
    fn a_record_that_cannot_be_read_is_known_by_its_text() {
        let deep = |number: u32| raw(&format!("{}{number}{}", "[".repeat(200), "]".repeat(200)));
        assert_eq!(record_hash(&raw("[1, 2]")), record_hash(&raw("[1,2]")));
        assert_eq!(record_hash(&deep(1)), record_hash(&deep(1)));
        assert_ne!(record_hash(&deep(1)), record_hash(&deep(2)));
    }

    #[test]
    fn columns_are_added_or_refused() {
        let known = table(&[("a", ColumnType::Text), ("b", ColumnType::Integer)]).columns;
        let same = table(&[("b", ColumnType::Integer)]);
        assert!(columns_to_add(&same, &known).unwrap().is_empty());
        let more = table(&[("c", ColumnType::Json), ("a", ColumnType::Text)]);
        assert_eq!(columns_to_add(&more, &known).unwrap(), [&more.columns[0]]);
        let other = table(&[("a", ColumnType::Timestamp)]);
        let problem = columns_to_add(&other, &known).unwrap_err().to_string();
        assert!(problem.contains("a as text, not as timestamp"), "{problem}");
    }

    #[test]
    fn prefixes_end_after_all_that_begins_so() {
        let end = prefix_end("tenant/a");
        assert!("tenant/a" < end.as_str() && "tenant/a/z" < end.as_str() && "tenant/b" > end.as_str());
    }

    #[test]
    fn names_have_bounds() {
        assert!(check_names(&[("run", "x"), ("worker", &"x".repeat(NAME_BYTES_MAX))]).is_ok());
        for bad in ["", "a\0b", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(check_names(&[("run", bad)]).is_err(), "{bad:?}");
        }
    }
}
