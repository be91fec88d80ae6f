//! How records become items: key, hash, schema, columns.

use std::path::Path;

use toml::Spanned;

use super::reserved::column;
use super::value::pointer;
use super::{Problems, beside};
use crate::file::json::json;
use crate::file::{ItemSpec, raw, schema};
use crate::item::{Column, ColumnType, FIXED_COLUMNS};
use crate::transform::{Field, From, Piece};

pub(super) fn item(raw: &raw::Item, path: &Path, problems: &mut Problems<'_>) -> Option<ItemSpec> {
    if raw.key.get_ref().is_empty() {
        problems.add(raw.key.span(), "must name at least one place: key = [\"/id\"]");
        return None;
    }
    let pointers = |given: &[Spanned<String>], problems: &mut Problems<'_>| {
        let all: Vec<Option<String>> =
            given.iter().map(|text| problems.read(text, |text| pointer(text))).collect();
        all.into_iter().collect::<Option<Vec<String>>>()
    };
    let key = pointers(raw.key.get_ref(), problems);
    let hash = pointers(&raw.hash, problems);
    let schema = problems.read_or(&raw.schema, None, |name| {
        let found = schema::read(&beside(path, name))?;
        schema::compile(&found).map(drop).map_err(|problem| format!("{name:?} {problem}"))?;
        Ok(Some(found))
    });
    let mut fields = Vec::with_capacity(raw.map.len());
    for (name, given) in &raw.map {
        let column = problems.read(name, |name| match column(name) {
            Ok(name) if FIXED_COLUMNS.contains(&name.as_str()) => {
                Err(format!("{name:?} is a column that every table has; choose another name"))
            }
            name => name,
        });
        let field = problems.read(given, field);
        if let (Some(name), Some((kind, from, default))) = (column, field) {
            fields.push(Field { column: Column { name, kind }, from, default });
        }
    }
    Some(ItemSpec { key: key?, hash: hash?, schema: schema?, fields })
}

type FieldParts = (ColumnType, From, Option<serde_json::Value>);

fn field(given: &raw::Field) -> Result<FieldParts, String> {
    let table = match given {
        raw::Field::Place(place) => return Ok((ColumnType::Text, From::Pointer(pointer(place)?), None)),
        raw::Field::Table(table) => table,
    };
    let kind = match table.kind.as_deref() {
        None | Some("text") => ColumnType::Text,
        Some("integer") => ColumnType::Integer,
        Some("float") => ColumnType::Float,
        Some("boolean") => ColumnType::Boolean,
        Some("timestamp") => ColumnType::Timestamp,
        Some("json") => ColumnType::Json,
        Some(other) => {
            return Err(format!(
                "type {other:?} is not known; known are text, integer, float, boolean, timestamp and json"
            ));
        }
    };
    let from = match (&table.from, &table.template, &table.constant) {
        (Some(place), None, None) => From::Pointer(pointer(place)?),
        (None, Some(text), None) => From::Template(template(text)?),
        (None, None, Some(value)) => From::Constant(json(value)?),
        _ => return Err("needs exactly one of from, template and constant".to_owned()),
    };
    Ok((kind, from, table.default.as_ref().map(json).transpose()?))
}

/// `"{/owner}/{/name}"`; `{{` and `}}` stand for themselves.
fn template(text: &str) -> Result<Vec<Piece>, String> {
    let unclosed =
        || format!("{text:?} has a brace without its other half; write \"{{{{\" for a brace itself");
    let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        plain.push_str(before);
        if after.starts_with("{{") || after.starts_with("}}") {
            plain.push_str(&after[..1]);
            rest = &after[2..];
            continue;
        }
        let place = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let (place, after) = place.filter(|(place, _)| !place.contains('{')).ok_or_else(unclosed)?;
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(Piece::Pointer(pointer(place)?));
        rest = after;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}
