//! Tables that directives write to: made on first use, widened when new columns are named, and never a table of somebody
//! else's.
//!
//! They lie in the schema `public`, where their readers look for them. The registry says which they are.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use stargate_directive::Table;
use stargate_directive::item::{Column, ColumnType};
use stargate_queue::{Error, Result};
use tokio_postgres::types::Type;

use super::connect::{Ask, Session};
use super::error::{code, database, fatal, transient};
use super::sink_rows::Texts;
use super::sql;
use crate::directive_rows::{column_gone, columns_json, columns_to_add, not_a_sink, quoted, row_refused};

const OPERATION: &str = "make the sink's table";

/// Tables remembered at most, and sets of columns of each: directives that share a table may map others.
const REMEMBERED_MAX: usize = 1000;
const REMEMBERED_EACH_MAX: usize = 16;

/// The columns every sink has, as the database calls their types.
const FIXED: [(&str, &str); 9] = [
    ("tenant_id", "text"),
    ("project_id", "text"),
    ("directive", "text"),
    ("entity_id", "text"),
    ("hash", "text"),
    ("version", "bigint"),
    ("body", "jsonb"),
    ("created_at", "timestamp with time zone"),
    ("updated_at", "timestamp with time zone"),
];

/// Which of a database's tables are sinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registry {
    /// The store's own database, whose migrations made it.
    Own,
    /// Another database: made there on first use.
    Foreign,
}

impl Registry {
    fn table(self) -> &'static str {
        match self {
            Self::Own => "stargate.directive_sink",
            Self::Foreign => "public.stargate_sink",
        }
    }
}

/// A table as it was seen, and its statements.
type Seen = (Table, Arc<Texts>);

/// Tables that this process has seen to be as they should be, by name.
#[derive(Debug, Default)]
pub(crate) struct Sinks(RwLock<HashMap<String, Vec<Seen>>>);

impl Sinks {
    /// The statements for a table that is known.
    pub(crate) fn texts(&self, table: &Table) -> Option<Arc<Texts>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let seen = known.get(&table.name)?.iter().find(|(seen, _)| seen == table);
        seen.map(|(_, texts)| texts.clone())
    }

    /// Remembers a table.
    pub(crate) fn remember(&self, table: &Table) -> Arc<Texts> {
        if let Some(texts) = self.texts(table) {
            return texts;
        }
        let texts = Arc::new(Texts::of(table));
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        let seen = known.entry(table.name.clone()).or_default();
        if seen.len() >= REMEMBERED_EACH_MAX {
            seen.clear();
        }
        seen.push((table.clone(), texts.clone()));
        texts
    }

    /// Forgets a table that is not as it was.
    pub(crate) fn forget(&self, table: &Table) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&table.name);
    }
}

/// The text of a statement with places to be filled in.
macro_rules! template {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/sinks/", $name, ".sql"))
    };
}
pub(super) use template;

/// Fills the places `{name}` of a statement. What is filled in is not looked at again, so no name can act as a place.
pub(super) fn fill(template: &str, parts: &[(&str, &str)]) -> String {
    let (mut text, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('{') {
        let (place, behind) = after.split_once('}').unwrap_or((after, ""));
        text.push_str(before);
        text.push_str(parts.iter().find(|(name, _)| *name == place).map_or("", |(_, part)| part));
        rest = behind;
    }
    text + rest
}

/// The table's full name.
pub(crate) fn full_name(table: &Table) -> String {
    format!("public.{}", quoted(&table.name))
}

/// As the database calls it.
fn type_name(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Text => "text",
        ColumnType::Integer => "bigint",
        ColumnType::Float => "double precision",
        ColumnType::Boolean => "boolean",
        ColumnType::Timestamp => "timestamp with time zone",
        ColumnType::Json => "jsonb",
    }
}

/// What is to be done with a table.
#[derive(Debug, PartialEq, Eq)]
enum Work<'t> {
    Create,
    Add(Vec<&'t Column>),
}

/// A column that is there: its name and its type.
type Found = (String, String);

/// What a table lacks. `found` are its columns, none if it is not there.
fn work<'t>(table: &'t Table, is_sink: bool, found: &[Found]) -> Result<Work<'t>> {
    if found.is_empty() {
        return Ok(Work::Create);
    }
    let name = &table.name;
    if !is_sink {
        return Err(not_a_sink(name));
    }
    let of = |column: &str| found.iter().find(|(name, _)| name == column).map(|(_, kind)| kind.as_str());
    let other = |column: &str, is: &str, wanted: &str| {
        let problem = format!(
            "{name} has the column {column} as {is}, not as {wanted}; map the value to a column of another name"
        );
        Err(Error::invalid("sink.table", problem))
    };
    for (column, wanted) in FIXED {
        match of(column) {
            Some(is) if is == wanted => {}
            Some(is) => return other(column, is, wanted),
            None => return Err(column_gone(name, column)),
        }
    }
    let mut missing = Vec::new();
    for column in &table.columns {
        match (of(&column.name), type_name(column.kind)) {
            (None, _) => missing.push(column),
            (Some(is), wanted) if is == wanted => {}
            (Some(is), wanted) => return other(&column.name, is, wanted),
        }
    }
    Ok(Work::Add(missing))
}

fn creation(table: &Table) -> String {
    let name = full_name(table);
    let mut columns = String::new();
    for (column, kind) in FIXED {
        // The parts of the key are compared by their bytes, which is fastest and the same everywhere.
        let collation = if kind == "text" { " collate \"C\"" } else { "" };
        columns.push_str(&format!("{column} {kind}{collation} not null, "));
    }
    for column in &table.columns {
        columns.push_str(&format!("{} {}, ", quoted(&column.name), type_name(column.kind)));
    }
    // What differs most comes first: the other way round each look for a row compares three texts that are all the same.
    let key = "primary key (entity_id, directive, project_id, tenant_id)";
    format!("create table {name} ({columns}{key}) with (fillfactor = 90)")
}

fn addition(table: &Table, missing: &[&Column]) -> String {
    let columns: Vec<String> = missing
        .iter()
        .map(|column| format!("add column {} {}", quoted(&column.name), type_name(column.kind)))
        .collect();
    format!("alter table {} {}", full_name(table), columns.join(", "))
}

/// Makes the table, or what it lacks, within the caller's transaction. Whoever does so at the same time waits.
pub(crate) async fn ensure(
    s: &mut Session<'_>,
    registry: Registry,
    now: Option<Timestamp>,
    table: &Table,
) -> Result<()> {
    s.rows(OPERATION, sql!("sink_lock"), &[]).await?;
    let place = registry.table();
    if registry == Registry::Foreign {
        let text = format!(
            "create table if not exists {place} (table_name text primary key, columns json not null, created_at timestamptz not null)"
        );
        s.batch(OPERATION, &text).await.map_err(refused)?;
        s.batch(OPERATION, template!("postgres_fence")).await.map_err(refused)?;
    }
    let (known, found) = look(s, place, table).await?;
    let work = work(table, known.is_some(), &found)?;
    let known = known.unwrap_or_default();
    // A column that somebody dropped is missing and known all the same.
    let new = columns_to_add(table, &known)?;
    let is_registered = new.is_empty();
    let columns = known.iter().chain(new).cloned().collect();
    let whole = Table { name: table.name.clone(), columns };
    match &work {
        // What was dropped is made as it was, with all columns that were ever mapped.
        Work::Create => s.batch(OPERATION, &creation(&whole)).await.map_err(refused)?,
        Work::Add(missing) if missing.is_empty() && is_registered => return Ok(()),
        Work::Add(missing) if missing.is_empty() => {}
        Work::Add(missing) => s.batch(OPERATION, &addition(table, missing)).await.map_err(refused)?,
    }
    register(s, place, now, table, &whole.columns).await
}

/// A row that the table does not take because of a rule that somebody added: trying again is of no use. `own`: the
/// schema whose tables are not sinks.
pub(crate) fn of_row(error: Error, table: &Table, own: Option<&str>) -> Error {
    let said = database(&error)
        .filter(|db| db.code().code().starts_with("23") && (own.is_none() || db.schema() != own))
        // Somebody else added a row of this owner; the next look finds it.
        .filter(|db| !db.constraint().is_some_and(|name| name.ends_with("_pkey")))
        .map(|db| format!("{} ({})", db.message(), db.code().code()));
    said.map_or(error, |said| row_refused(&table.name, &said))
}

/// What the registry says, and what is there.
async fn look(
    s: &mut Session<'_>,
    registry: &str,
    table: &Table,
) -> Result<(Option<Vec<Column>>, Vec<Found>)> {
    let name = full_name(table);
    let registered = fill(template!("postgres_registered"), &[("registry", registry)]);
    let asks = [
        Ask::new(&registered, [(&table.name as _, Type::TEXT)]),
        Ask::new(sql!("sink_columns"), [(&name as _, Type::TEXT)]),
    ];
    let answers = s.rows_together(OPERATION, &asks).await?;
    let [registered, found] = answers.as_slice() else {
        return Err(transient(OPERATION, "too few answers"));
    };
    let hint = "the registry of sinks is damaged";
    let known = registered.first().map(|row| serde_json::from_str(row.get(0)));
    let known = known.transpose().map_err(|error| fatal(OPERATION, hint, error))?;
    Ok((known, found.iter().map(|row| (row.get(0), row.get(1))).collect()))
}

async fn register(
    s: &mut Session<'_>,
    registry: &str,
    now: Option<Timestamp>,
    table: &Table,
    columns: &[Column],
) -> Result<()> {
    let columns = columns_json(columns)?;
    let columns = columns.get();
    let text = fill(template!("postgres_register"), &[("registry", registry)]);
    let params =
        [(&now as _, Type::TIMESTAMPTZ), (&table.name as _, Type::TEXT), (&columns as _, Type::TEXT)];
    s.rows_together(OPERATION, &[Ask::new(&text, params)]).await.map(drop)
}

/// A right that is missing here is another one than elsewhere.
fn refused(error: Error) -> Error {
    let is_right = code(&error) == Some("42501");
    match error {
        Error::Store { operation, class, source, .. } if is_right => {
            let hint = "the user may make or change no tables in the schema public; grant it the right: grant create on schema public";
            Error::Store { operation, class, hint: Some(hint), source }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: &[(&str, ColumnType)]) -> Table {
        let column = |(name, kind): &(&str, ColumnType)| Column { name: (*name).to_owned(), kind: *kind };
        Table { name: "items".to_owned(), columns: columns.iter().map(column).collect() }
    }

    fn found(more: &[(&str, &str)]) -> Vec<Found> {
        let all = FIXED.iter().chain(more);
        all.map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect()
    }

    #[test]
    fn a_table_that_is_not_there_is_made_and_one_of_somebody_elses_is_refused() {
        let table = table(&[]);
        assert_eq!(work(&table, false, &[]).unwrap(), Work::Create);
        assert_eq!(work(&table, true, &[]).unwrap(), Work::Create);
        let problem = work(&table, false, &found(&[])).unwrap_err().to_string();
        assert!(problem.contains("name another table"), "{problem}");
    }

    #[test]
    fn missing_columns_are_added_and_others_must_have_their_type() {
        let table = table(&[("title", ColumnType::Text), ("size", ColumnType::Integer)]);
        let there = found(&[("title", "text")]);
        assert_eq!(work(&table, true, &there).unwrap(), Work::Add(vec![&table.columns[1]]));
        let there = found(&[("title", "text"), ("size", "bigint"), ("theirs", "money")]);
        assert_eq!(work(&table, true, &there).unwrap(), Work::Add(vec![]));
        let problem = work(&table, true, &found(&[("title", "integer")])).unwrap_err().to_string();
        assert!(problem.contains("title as integer, not as text"), "{problem}");
        assert!(work(&table, true, &found(&[])[1..]).is_err());
    }

    #[test]
    fn what_is_filled_in_is_not_filled_in_again() {
        assert_eq!(fill("a {x} b {y}{x} c", &[("x", "{y}"), ("y", "2")]), "a {y} b 2{y} c");
        assert_eq!(fill("nothing", &[]), "nothing");
    }

    #[test]
    fn names_are_quoted() {
        let odd = Table { name: "a\"b".to_owned(), columns: vec![] };
        assert_eq!(full_name(&odd), "public.\"a\"\"b\"");
        let table = table(&[("order", ColumnType::Json)]);
        assert!(creation(&table).contains("\"order\" jsonb, primary key"), "{}", creation(&table));
        assert_eq!(
            addition(&table, &[&table.columns[0]]),
            "alter table public.\"items\" add column \"order\" jsonb"
        );
    }
}
