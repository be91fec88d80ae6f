//! New rows are copied into a sink's table, which takes the server half as long as a statement that looks for each.
//!
//! A key that is there already ends the copy and its transaction. So what is copied is what was looked for and not found,
//! or what a run may well expect to be new because all of its batch before was; if that is wrong the batch is tried
//! again with a look, and the run copies nothing from then on.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::{Mutex, PoisonError};

use bytes::{BufMut as _, BytesMut};
use jiff::Timestamp;
use stargate_directive::item::{ColumnType, Value};
use stargate_directive::source::Owner;
use stargate_directive::{Lease, Table};
use stargate_queue::{Error, Result};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Column, Row};

use super::connect::Session;
use super::error::code;
use super::sink_rows::{Change, Texts};
use crate::directive_rows::counts_differ;

const OPERATION: &str = "copy to the sink's table";

/// Fewer rows are written by a statement: a copy takes two round trips more.
const COPY_ROWS_MIN: usize = 100;

/// Runs remembered at most.
const RUNS_MAX: usize = 1000;

/// The form of JSON that the server takes.
const JSONB_VERSION: u8 = 1;

/// What a batch of a run is expected to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Expecting {
    /// Nothing is known: it is looked for, and copied if all of it is new.
    #[default]
    Anything,
    /// All new.
    New,
    /// A copy has failed: looked for, and written by a statement.
    Known,
}

impl Expecting {
    /// Whether so many rows are looked for first.
    pub(crate) fn looks(self, rows: usize) -> bool {
        self != Self::New || rows < COPY_ROWS_MIN
    }

    /// Whether these are copied.
    pub(crate) fn copies(self, changes: &[Change<'_>]) -> bool {
        self != Self::Known && changes.len() >= COPY_ROWS_MIN && changes.iter().all(Change::is_new)
    }

    /// What is expected after a batch of so many items, of which so many were new.
    fn after(self, items: usize, new: u64) -> Self {
        match self {
            Self::Known => Self::Known,
            _ if items >= COPY_ROWS_MIN && new == items as u64 => Self::New,
            _ => Self::Anything,
        }
    }
}

/// What is expected of runs, by the key of their lease.
#[derive(Debug, Default)]
pub(crate) struct Expectations(Mutex<HashMap<String, (u64, Expecting)>>);

impl Expectations {
    /// Of a run's next batch.
    pub(crate) fn of(&self, lease: &Lease) -> Expecting {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(lease.key.as_str()).filter(|(version, _)| *version == lease.version);
        found.map(|(_, expecting)| *expecting).unwrap_or_default()
    }

    /// A batch of so many items was written, of which so many were new.
    pub(crate) fn wrote(&self, lease: &Lease, items: usize, new: u64) {
        let before = self.of(lease);
        let after = before.after(items, new);
        if before != after {
            self.keep(lease, after);
        }
    }

    /// A batch failed: whether it was because a copy was tried, and is not the next time.
    pub(crate) fn failed(&self, lease: &Lease, error: &Error) -> bool {
        // A key that is there already; and what cannot be done by a copy, like obeying the policies of a table.
        let is_of_copy = matches!(code(error), Some("23505" | "0A000"));
        let is_first = is_of_copy && self.of(lease) != Expecting::Known;
        if is_first {
            self.keep(lease, Expecting::Known);
        }
        is_first
    }

    fn keep(&self, lease: &Lease, expecting: Expecting) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= RUNS_MAX {
            known.clear();
        }
        known.insert(lease.key.as_str().to_owned(), (lease.version, expecting));
    }
}

/// A table as the transaction that copies to it has found it.
#[derive(Debug)]
pub(crate) struct Moment {
    now: Timestamp,
    types: Vec<Type>,
}

impl Moment {
    /// What [`Texts::moment`] answered. None if a column has another type than it should: the form of a copy does not tell
    /// them apart, a statement does.
    pub(crate) fn of(table: &Table, row: &Row) -> Option<Self> {
        let types = types(table);
        let found = row.columns().iter().skip(1).map(Column::type_);
        found.eq(&types).then(|| Self { now: row.get(0), types })
    }
}

/// Copies changes of which all are new, within the caller's transaction.
pub(crate) async fn copy(
    s: &mut Session<'_>,
    texts: &Texts,
    moment: &Moment,
    owner: &Owner,
    changes: &[Change<'_>],
) -> Result<()> {
    let rows = changes.iter().map(|change| row(owner, moment.now, change));
    let copied = s.copy(OPERATION, &texts.copy, &moment.types, rows).await?;
    if copied != changes.len() as u64 {
        // A trigger of the table can do that.
        return Err(counts_differ(changes.len() as u64, copied));
    }
    Ok(())
}

fn types(table: &Table) -> Vec<Type> {
    let fixed = [
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::JSONB,
        Type::TIMESTAMPTZ,
        Type::TIMESTAMPTZ,
    ];
    let mapped = table.columns.iter().map(|column| match column.kind {
        ColumnType::Text => Type::TEXT,
        ColumnType::Integer => Type::INT8,
        ColumnType::Float => Type::FLOAT8,
        ColumnType::Boolean => Type::BOOL,
        ColumnType::Timestamp => Type::TIMESTAMPTZ,
        ColumnType::Json => Type::JSONB,
    });
    fixed.into_iter().chain(mapped).collect()
}

fn row<'a>(owner: &'a Owner, now: Timestamp, change: &Change<'a>) -> Vec<Cell<'a>> {
    let item = change.item;
    let mut row = Vec::with_capacity(9 + item.columns.len());
    row.extend([
        Cell::Text(&owner.tenant),
        Cell::Text(&owner.project),
        Cell::Text(&owner.directive),
        Cell::Text(&item.entity_id),
        Cell::Text(change.hash),
        Cell::Number(change.version),
        Cell::Json(item.body.get()),
        Cell::Time(now),
        Cell::Time(now),
    ]);
    row.extend(item.columns.iter().map(Cell::Value));
    row
}

/// A value of a row. It was checked to be of its column's type.
#[derive(Debug)]
enum Cell<'a> {
    Text(&'a str),
    Number(i64),
    Json(&'a str),
    Time(Timestamp),
    Value(&'a Value),
}

impl ToSql for Cell<'_> {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::Text(text) => text.to_sql(kind, out),
            Self::Number(number) => number.to_sql(kind, out),
            Self::Time(at) => at.to_sql(kind, out),
            Self::Json(json) => {
                out.put_u8(JSONB_VERSION);
                out.put_slice(json.as_bytes());
                Ok(IsNull::No)
            }
            Self::Value(value) => match value {
                Value::Null => Ok(IsNull::Yes),
                Value::Text(text) => text.to_sql(kind, out),
                Value::Integer(number) => number.to_sql(kind, out),
                Value::Float(number) => number.to_sql(kind, out),
                Value::Boolean(flag) => flag.to_sql(kind, out),
                Value::Timestamp(at) => at.to_sql(kind, out),
                Value::Json(json) => Self::Json(json.get()).to_sql(kind, out),
            },
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use stargate_directive::RunId;
    use stargate_directive::kv::Keys;

    use super::*;

    fn lease(version: u64) -> Lease {
        let key = Keys::of("t", "p", "d").unwrap().run;
        Lease { run: RunId("r".to_owned()), key, version }
    }

    #[test]
    fn a_run_of_new_rows_goes_on_without_a_look_until_one_is_not_new() {
        let (all, rows) = (Expectations::default(), COPY_ROWS_MIN);
        assert_eq!(all.of(&lease(1)), Expecting::Anything);
        all.wrote(&lease(1), rows, rows as u64);
        assert_eq!(all.of(&lease(1)), Expecting::New);
        assert_eq!(all.of(&lease(2)), Expecting::Anything, "another lease looks for itself");
        all.wrote(&lease(1), rows, rows as u64 - 1);
        assert_eq!(all.of(&lease(1)), Expecting::Anything);
        all.wrote(&lease(1), 1, 1);
        assert_eq!(all.of(&lease(1)), Expecting::Anything, "a single row tells nothing");
    }
}
