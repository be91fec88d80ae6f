//! Tables that directives write to: made on first use, widened when columns are mapped anew, and filled with what
//! changed. Works on any connection, the store's own or another database's.

use std::collections::HashMap;
use std::fmt::Write as _;

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, OptionalExtension as _, params_from_iter};
use stargate_directive::item::{Column, ColumnType, Counts, Item, Table, Value};
use stargate_directive::source::Owner;
use stargate_queue::Error;

use super::error::{Failure, Step};
use super::rows::{instant, wrong};
use super::session::sql;
use crate::directive_rows::{
    FIXED_COLUMNS, column_gone, columns_json, columns_to_add, counts_differ, hex, not_a_sink, quoted,
    row_refused,
};

/// Where the store's own database keeps which tables are sinks.
pub(crate) const OWN_REGISTRY: &str = "directive_sink";

/// One row.
const KEY: &str = "tenant_id = ?1 and project_id = ?2 and directive = ?3 and entity_id = ?4";

/// A row that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// Which of the items.
    pub(crate) index: usize,
    /// Whether it was not there before.
    pub(crate) is_new: bool,
    /// The row's version now.
    pub(crate) version: i64,
}

/// What an upsert did, item by item.
pub(crate) fn counts(items: usize, changes: &[Change]) -> Counts {
    let created = changes.iter().filter(|change| change.is_new).count() as u64;
    let updated = changes.len() as u64 - created;
    Counts { created, updated, unchanged: (items as u64).saturating_sub(created + updated), failed: 0 }
}

/// Makes the table if it is not there and adds the columns it lacks; refuses a table that is not a sink's.
/// `registry` names the table that says which ones are; `now` is in microseconds.
pub(crate) fn ensure(conn: &Connection, registry: &str, table: &Table, now: i64) -> Step<()> {
    let name = &table.name;
    let actual = actual_columns(conn, name)?;
    let Some(known) = registered(conn, registry, name)? else {
        if is_taken(conn, name)? {
            return Err(not_a_sink(name).into());
        }
        create(conn, name, &table.columns)?;
        return register(conn, registry, name, &table.columns, now);
    };
    let new = columns_to_add(table, &known)?;
    let mut missing = Vec::new();
    if !actual.is_empty() {
        missing = missing_columns(table, &actual)?;
        if new.is_empty() && missing.is_empty() {
            return Ok(());
        }
    }
    let columns: Vec<Column> = known.iter().chain(new).cloned().collect();
    if actual.is_empty() {
        // Somebody dropped it: it is made as it was, and all items are new to it.
        create(conn, name, &columns)?;
    }
    for column in missing {
        let (table, column, kind) = (quoted(name), quoted(&column.name), type_word(column.kind));
        conn.execute(&format!("alter table {table} add column {column} {kind}"), [])?;
    }
    register(conn, registry, name, &columns, now)
}

/// Writes the items that are new or have another hash; what it wrote. The caller has made sure of the table and that
/// nobody else writes to it: the lease, or the transaction.
pub(crate) fn upsert(
    conn: &Connection,
    owner: &Owner,
    table: &Table,
    items: &[Item],
    now: i64,
) -> Step<Vec<Change>> {
    let name = quoted(&table.name);
    let mut find = conn.prepare_cached(&find_text(&name))?;
    let mut insert = conn.prepare_cached(&insert_text(&name, &table.columns))?;
    let mut update = conn.prepare_cached(&update_text(&name, &table.columns))?;
    let at = time_text(instant(now));
    let mut changes = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let hash = hex(&item.hash);
        let found = find_row(&mut find, owner, &item.entity_id, &hash)?;
        let (statement, version) = match found {
            Found::Same => continue,
            Found::Other(version) => (&mut update, version + 1),
            Found::Nothing => (&mut insert, 1),
        };
        let written = execute(statement, owner, item, &hash, version, &at);
        let written = written.map_err(|error| refused(&table.name, error))?;
        if written != 1 {
            return Err(counts_differ(1, written as u64).into());
        }
        changes.push(Change { index, is_new: matches!(found, Found::Nothing), version });
    }
    Ok(changes)
}

/// Whether every item is there with its hash: what was written is not only believed.
pub(crate) fn holds_all(conn: &Connection, owner: &Owner, table: &Table, items: &[Item]) -> Step<bool> {
    let mut find = conn.prepare_cached(&find_text(&quoted(&table.name)))?;
    for item in items {
        if !matches!(find_row(&mut find, owner, &item.entity_id, &hex(&item.hash))?, Found::Same) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Every sink of the store's own database that is there, with the columns that are, and how many rows it has.
pub(crate) fn all(conn: &Connection) -> Step<Vec<(Table, u64)>> {
    let mut list = conn.prepare(sql!("export_sinks"))?;
    let names: Vec<String> = list.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let mut sinks = Vec::new();
    for name in names {
        let actual = actual_columns(conn, &name)?;
        if actual.is_empty() {
            continue;
        }
        let mut columns = registered(conn, OWN_REGISTRY, &name)?.unwrap_or_default();
        columns.retain(|column| actual.contains_key(&column.name));
        let count = format!("select count(*) from {}", quoted(&name));
        let rows: i64 = conn.query_row(&count, [], |row| row.get(0))?;
        sinks.push((Table { name, columns }, rows.unsigned_abs()));
    }
    Ok(sinks)
}

#[derive(Clone, Copy)]
enum Found {
    Nothing,
    Same,
    Other(i64),
}

fn find_row(find: &mut CachedStatement<'_>, owner: &Owner, entity: &str, hash: &str) -> Step<Found> {
    let key = (&owner.tenant, &owner.project, &owner.directive, entity);
    let found = find.query_row(key, |row| {
        let is_same = row.get_ref(0)?.as_str().is_ok_and(|kept| kept == hash);
        Ok(if is_same { Found::Same } else { Found::Other(row.get(1)?) })
    });
    Ok(found.optional()?.unwrap_or(Found::Nothing))
}

fn execute(
    statement: &mut CachedStatement<'_>,
    owner: &Owner,
    item: &Item,
    hash: &str,
    version: i64,
    at: &str,
) -> rusqlite::Result<usize> {
    let fixed: [&dyn ToSql; 8] = [
        &owner.tenant,
        &owner.project,
        &owner.directive,
        &item.entity_id,
        &hash,
        &version,
        &item.body.get(),
        &at,
    ];
    let mapped: Vec<Bound<'_>> = item.columns.iter().map(Bound::of).collect();
    let mapped = mapped.iter().map(|value| value as &dyn ToSql);
    statement.execute(params_from_iter(fixed.into_iter().chain(mapped)))
}

/// A rule that somebody added to the table is theirs to mend.
fn refused(table: &str, error: rusqlite::Error) -> Failure {
    match &error {
        rusqlite::Error::SqliteFailure(failure, said) if failure.code == ErrorCode::ConstraintViolation => {
            row_refused(table, said.as_deref().unwrap_or("a constraint is violated")).into()
        }
        _ => error.into(),
    }
}

/// The key is ?1 to ?4, as in the other statements.
fn find_text(name: &str) -> String {
    format!("select hash, version from {name} where {KEY}")
}

/// Values ?1 to ?8 are tenant, project, directive, entity, hash, version, body, time; the mapped ones follow.
fn insert_text(name: &str, columns: &[Column]) -> String {
    let (mut names, mut values) = (FIXED_COLUMNS.join(", "), "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8".to_owned());
    for (index, column) in columns.iter().enumerate() {
        let _ = write!(names, ", {}", quoted(&column.name));
        let _ = write!(values, ", ?{}", index + 9);
    }
    format!("insert into {name} ({names}) values ({values})")
}

fn update_text(name: &str, columns: &[Column]) -> String {
    let mut sets = "hash = ?5, version = ?6, body = ?7, updated_at = ?8".to_owned();
    for (index, column) in columns.iter().enumerate() {
        let _ = write!(sets, ", {} = ?{}", quoted(&column.name), index + 9);
    }
    format!("update {name} set {sets} where {KEY}")
}

/// An ordinary table with a key beside it: bodies may be large, and keys are looked up far more often than bodies.
fn create(conn: &Connection, name: &str, columns: &[Column]) -> Step<()> {
    if name.starts_with("sqlite_") {
        return Err(Error::invalid("sink.table", "must not begin with sqlite_, which is SQLite's own").into());
    }
    let mut text = format!(
        "create table {} (tenant_id text not null, project_id text not null, directive text not null, \
         entity_id text not null, hash text not null, version integer not null, body text not null, \
         created_at text not null, updated_at text not null",
        quoted(name)
    );
    for column in columns {
        let _ = write!(text, ", {} {}", quoted(&column.name), type_word(column.kind));
    }
    text.push_str(", primary key (tenant_id, project_id, directive, entity_id)) strict");
    conn.execute(&text, [])?;
    Ok(())
}

/// Times are texts that people can read, and that sort as times do.
fn type_word(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Text | ColumnType::Timestamp | ColumnType::Json => "text",
        ColumnType::Integer | ColumnType::Boolean => "integer",
        ColumnType::Float => "real",
    }
}

/// The mapped columns that a table lacks; an error if one is there with another type or one of the others is gone.
fn missing_columns<'t>(table: &'t Table, actual: &HashMap<String, String>) -> Step<Vec<&'t Column>> {
    if let Some(gone) = FIXED_COLUMNS.into_iter().find(|&name| !actual.contains_key(name)) {
        return Err(column_gone(&table.name, gone).into());
    }
    let mut missing = Vec::new();
    for column in &table.columns {
        match actual.get(&column.name) {
            None => missing.push(column),
            Some(kind) if kind.eq_ignore_ascii_case(type_word(column.kind)) => {}
            Some(kind) => {
                let problem = format!(
                    "{} has the column {} as {kind}, not as {}; map the value to a column of another name",
                    table.name,
                    column.name,
                    type_word(column.kind)
                );
                return Err(Error::invalid("sink.table", problem).into());
            }
        }
    }
    Ok(missing)
}

/// The columns that a table has, with their types; none if it is not there.
fn actual_columns(conn: &Connection, name: &str) -> Step<HashMap<String, String>> {
    let mut list = conn.prepare_cached(sql!("sink_columns"))?;
    let names = list.query_map([name], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

/// Whether anything has the name: a table, a view or an index.
fn is_taken(conn: &Connection, name: &str) -> Step<bool> {
    let mut find = conn.prepare_cached(sql!("sink_taken"))?;
    Ok(find.exists([name])?)
}

fn registered(conn: &Connection, registry: &str, name: &str) -> Step<Option<Vec<Column>>> {
    let text = format!("select columns from {} where table_name = ?1", quoted(registry));
    let mut get = conn.prepare_cached(&text)?;
    let found: Option<String> = get.query_row([name], |row| row.get(0)).optional()?;
    let columns = found.map(|text| serde_json::from_str(&text).map_err(|error| wrong(0, error)));
    Ok(columns.transpose()?)
}

fn register(conn: &Connection, registry: &str, name: &str, columns: &[Column], now: i64) -> Step<()> {
    let text = format!(
        "insert into {} (table_name, columns, created_at) values (?1, ?2, ?3) \
         on conflict (table_name) do update set columns = excluded.columns",
        quoted(registry)
    );
    conn.execute(&text, (name, columns_json(columns)?.get(), now))?;
    Ok(())
}

/// RFC 3339 with microseconds, always as many digits: so texts sort as times do.
fn time_text(at: jiff::Timestamp) -> String {
    format!("{at:.6}")
}

/// A mapped value as SQLite takes it.
enum Bound<'v> {
    Borrowed(ValueRef<'v>),
    Time(String),
}

impl<'v> Bound<'v> {
    fn of(value: &'v Value) -> Self {
        Self::Borrowed(match value {
            Value::Null => ValueRef::Null,
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Integer(number) => ValueRef::Integer(*number),
            Value::Float(number) => ValueRef::Real(*number),
            Value::Boolean(yes) => ValueRef::Integer(i64::from(*yes)),
            Value::Json(json) => ValueRef::Text(json.get().as_bytes()),
            Value::Timestamp(at) => return Self::Time(time_text(*at)),
        })
    }
}

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Borrowed(value) => ToSqlOutput::Borrowed(*value),
            Self::Time(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}
