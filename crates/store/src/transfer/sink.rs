//! The tables that directives write to, which no migration knows: their statements are made from the registry.
//!
//! Each value travels as text and is read by the type of its column there. Columns that somebody added by hand stay
//! behind: nobody has said what they hold.

use std::fmt::Write as _;

use stargate_directive::item::{Column, ColumnType, Table};

use crate::directive_rows::{FIXED_COLUMNS, quoted};

/// How the moved rows of all sinks are called in a report.
pub(crate) const SINKS: &str = "sinks";

/// A page of a sink's rows with their numbers: every column as SQLite has it. ?1 the number before the page, ?2 rows at
/// most.
pub(crate) fn export_text(table: &Table) -> String {
    let mut text = "select rowid".to_owned();
    for name in names(table) {
        let _ = write!(text, ", {}", quoted(name));
    }
    let _ = write!(text, " from {} where rowid > ?1 order by rowid limit ?2", quoted(&table.name));
    text
}

/// Writes rows; how many. $1 the rows as a JSON array of objects of texts
pub(crate) fn import_text(table: &Table) -> String {
    let (mut columns, mut values, mut types) = (String::new(), String::new(), String::new());
    for (name, kind) in names(table).zip(kinds(table)) {
        let (name, comma) = (quoted(name), if columns.is_empty() { "" } else { ", " });
        let cast = if kind == "jsonb" { "::jsonb" } else { "" };
        let read = if kind == "jsonb" { "text" } else { kind };
        let _ = write!(columns, "{comma}{name}");
        let _ = write!(values, "{comma}r.{name}{cast}");
        let _ = write!(types, "{comma}{name} {read}");
    }
    format!(
        "with written as (insert into public.{} ({columns}) select {values} \
         from json_to_recordset($1::text::json) as r ({types}) returning 1) select count(*) from written",
        quoted(&table.name)
    )
}

/// The names of all columns, in the order of [`export_text`].
pub(crate) fn names(table: &Table) -> impl Iterator<Item = &str> {
    FIXED_COLUMNS.into_iter().chain(table.columns.iter().map(|column| column.name.as_str()))
}

fn kinds(table: &Table) -> impl Iterator<Item = &'static str> {
    let fixed = FIXED_COLUMNS.into_iter().map(|name| match name {
        "version" => "bigint",
        "body" => "jsonb",
        "created_at" | "updated_at" => "timestamptz",
        _ => "text",
    });
    let mapped = |column: &Column| match column.kind {
        ColumnType::Text => "text",
        ColumnType::Integer => "bigint",
        ColumnType::Float => "double precision",
        ColumnType::Boolean => "boolean",
        ColumnType::Timestamp => "timestamptz",
        ColumnType::Json => "jsonb",
    };
    fixed.chain(table.columns.iter().map(mapped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_read_as_text_and_names_are_quoted() {
        let column = |name: &str, kind| Column { name: name.to_owned(), kind };
        let columns = vec![column("order", ColumnType::Json), column("size", ColumnType::Integer)];
        let table = Table { name: "items".to_owned(), columns };
        let text = import_text(&table);
        assert!(text.contains("\"updated_at\", \"order\", \"size\") select"), "{text}");
        assert!(text.contains("r.\"order\"::jsonb, r.\"size\" from"), "{text}");
        assert!(text.contains("\"order\" text, \"size\" bigint)"), "{text}");
        let text = export_text(&table);
        assert!(
            text.ends_with("\"order\", \"size\" from \"items\" where rowid > ?1 order by rowid limit ?2"),
            "{text}"
        );
    }
}
