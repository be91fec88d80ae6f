//! Rows of sinks: what is there is compared with what came, and only what differs is sent.

use jiff::Timestamp;
use stargate_directive::item::{ColumnType, Value};
use stargate_directive::source::Owner;
use stargate_directive::{Counts, Item, Table};
use stargate_queue::Result;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::{Ask, Param, Session};
use super::error::transient;
use super::sink::{fill, full_name, template};
use crate::directive_rows::{counts_differ, hex, quoted};

/// Rows of one statement at most.
const CHUNK_ROWS_MAX: usize = 1000;
/// Bytes of bodies in one statement, unless one alone is larger: the driver copies them all.
const CHUNK_BYTES_MAX: usize = 4 << 20;
/// Parameters of the statement that writes before those of the mapped columns: now, owner, keys, hashes, bodies.
const PARAMS_FIXED: usize = 7;

const OPERATION: &str = "write to the sink's table";

/// The statements for one table.
#[derive(Debug)]
pub(crate) struct Texts {
    find: String,
    put: String,
    moment: String,
    /// For rows of which all are new.
    pub(super) copy: String,
}

impl Texts {
    /// Those of a table.
    pub(crate) fn of(table: &Table) -> Self {
        let name = full_name(table);
        let find = fill(template!("postgres_find"), &[("table", &name)]);
        let [put, moment, copy] = writing(&name, table);
        Self { find, put, moment, copy }
    }

    /// Asks for the time, and for the types of the table's columns.
    pub(crate) fn moment<'a>(&'a self, now: &'a Option<Timestamp>) -> Ask<'a> {
        Ask::new(&self.moment, [(now as _, Type::TIMESTAMPTZ)])
    }

    /// Asks which of these items are new or differ.
    pub(crate) fn find<'a>(&'a self, owner: &'a Owner, sought: &'a Sought<'a>) -> Ask<'a> {
        let params = [
            (&owner.tenant as _, Type::TEXT),
            (&owner.project as _, Type::TEXT),
            (&owner.directive as _, Type::TEXT),
            (&sought.keys as _, Type::TEXT_ARRAY),
            (&sought.hashes as _, Type::TEXT_ARRAY),
        ];
        Ask::new(&self.find, params)
    }

    /// Writes a chunk: rows written, and how many of them are new.
    pub(crate) fn put<'a>(
        &'a self,
        now: &'a Option<Timestamp>,
        owner: &'a Owner,
        chunk: &'a Chunk<'a>,
    ) -> Ask<'a> {
        let mut params: Vec<Param<'a>> = vec![
            (now as _, Type::TIMESTAMPTZ),
            (&owner.tenant as _, Type::TEXT),
            (&owner.project as _, Type::TEXT),
            (&owner.directive as _, Type::TEXT),
            (&chunk.keys as _, Type::TEXT_ARRAY),
            (&chunk.hashes as _, Type::TEXT_ARRAY),
            (&chunk.bodies as _, Type::TEXT_ARRAY),
        ];
        params.extend(chunk.columns.iter().map(Values::param));
        Ask::new(&self.put, params)
    }
}

/// The statement that writes rows, the one that comes before a copy, and the copy.
fn writing(name: &str, table: &Table) -> [String; 3] {
    let [mut columns, mut values, mut arrays, mut names, mut sets, mut theirs] = [const { String::new() }; 6];
    for (n, column) in table.columns.iter().enumerate() {
        let (number, column_name) = (n + PARAMS_FIXED + 1, quoted(&column.name));
        // JSON travels as text.
        let (array, cast) = match column.kind {
            ColumnType::Text => ("text", ""),
            ColumnType::Integer => ("bigint", ""),
            ColumnType::Float => ("double precision", ""),
            ColumnType::Boolean => ("boolean", ""),
            ColumnType::Timestamp => ("timestamptz", ""),
            ColumnType::Json => ("text", "::jsonb"),
        };
        columns.push_str(&format!(", {column_name}"));
        theirs.push_str(&format!(", t.{column_name}"));
        values.push_str(&format!(", n.c{n}{cast}"));
        arrays.push_str(&format!(", ${number}::{array}[]"));
        names.push_str(&format!(", c{n}"));
        sets.push_str(&format!(", {column_name} = excluded.{column_name}"));
    }
    let parts = [
        ("table", name),
        ("columns", &columns),
        ("values", &values),
        ("arrays", &arrays),
        ("names", &names),
        ("sets", &sets),
        ("theirs", &theirs),
    ];
    [template!("postgres_put"), template!("postgres_moment"), template!("postgres_copy")]
        .map(|text| fill(text, &parts))
}

/// Items as they are looked for.
#[derive(Debug)]
pub(crate) struct Sought<'i> {
    items: &'i [Item],
    keys: Vec<&'i str>,
    hashes: Vec<String>,
}

impl<'i> Sought<'i> {
    /// These items.
    pub(crate) fn of(items: &'i [Item]) -> Self {
        Self {
            items,
            keys: items.iter().map(|item| item.entity_id.as_str()).collect(),
            hashes: items.iter().map(|item| hex(&item.hash)).collect(),
        }
    }

    /// How many they are.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// What [`Texts::find`] answered.
    pub(crate) fn differing(&self, rows: &[Row]) -> Vec<Change<'_>> {
        rows.iter().filter_map(|row| self.change(row.get(0), row.get(1))).collect()
    }

    /// All of them, if none is there.
    pub(crate) fn all_new(&self) -> Vec<Change<'_>> {
        (1..).map_while(|place| self.change(place, None)).collect()
    }

    fn change(&self, place: i64, version: Option<i64>) -> Option<Change<'_>> {
        let n = usize::try_from(place).ok()?.checked_sub(1)?;
        let version = version.map_or(1, |version| version + 1);
        Some(Change { item: self.items.get(n)?, hash: self.hashes.get(n)?, version })
    }
}

/// An item that is new or differs from what is there.
#[derive(Debug)]
pub(crate) struct Change<'i> {
    pub(crate) item: &'i Item,
    pub(super) hash: &'i str,
    /// The row's version afterwards.
    pub(crate) version: i64,
}

impl Change<'_> {
    /// Whether there was no row.
    pub(crate) fn is_new(&self) -> bool {
        self.version == 1
    }
}

/// What became of items if these changed.
pub(crate) fn counts(items: usize, changes: &[Change<'_>]) -> Counts {
    let created = changes.iter().filter(|change| change.is_new()).count();
    let updated = changes.len() - created;
    Counts {
        created: created as u64,
        updated: updated as u64,
        unchanged: (items - created - updated) as u64,
        failed: 0,
    }
}

/// Parts of the changes that are not too large for a statement.
pub(crate) fn chunks<'c, 'i>(changes: &'c [Change<'i>]) -> Vec<&'c [Change<'i>]> {
    let mut chunks = Vec::new();
    let (mut from, mut bytes) = (0, 0);
    for (n, change) in changes.iter().enumerate() {
        let size = change.item.body.get().len();
        if n > from && (n - from >= CHUNK_ROWS_MAX || bytes + size > CHUNK_BYTES_MAX) {
            chunks.push(&changes[from..n]);
            (from, bytes) = (n, 0);
        }
        bytes += size;
    }
    if from < changes.len() {
        chunks.push(&changes[from..]);
    }
    chunks
}

/// Changes column by column, as the statement takes them.
#[derive(Debug)]
pub(crate) struct Chunk<'a> {
    keys: Vec<&'a str>,
    hashes: Vec<&'a str>,
    bodies: Vec<&'a str>,
    columns: Vec<Values<'a>>,
    new: usize,
}

impl<'a> Chunk<'a> {
    /// Of changes; the values were checked to be of their columns' types.
    pub(crate) fn of(table: &Table, changes: &'a [Change<'_>]) -> Self {
        Self {
            keys: changes.iter().map(|change| change.item.entity_id.as_str()).collect(),
            hashes: changes.iter().map(|change| change.hash).collect(),
            bodies: changes.iter().map(|change| change.item.body.get()).collect(),
            columns: (0..table.columns.len())
                .map(|n| Values::of(table.columns[n].kind, n, changes))
                .collect(),
            new: changes.iter().filter(|change| change.is_new()).count(),
        }
    }

    /// Checks that the statement has written what it was to write.
    pub(crate) fn check(&self, rows: &[Row]) -> Result<()> {
        let (written, new) = rows.first().map_or((0, 0), |row| (row.get::<_, i64>(0), row.get::<_, i64>(1)));
        if usize::try_from(written) != Ok(self.keys.len()) {
            // A trigger or a rule of the table can do that.
            return Err(counts_differ(self.keys.len() as u64, written.unsigned_abs()));
        }
        if usize::try_from(new) != Ok(self.new) {
            return Err(transient(OPERATION, "somebody else wrote to the table meanwhile"));
        }
        Ok(())
    }
}

/// The values of one mapped column.
#[derive(Debug)]
enum Values<'a> {
    Text(Vec<Option<&'a str>>),
    Integer(Vec<Option<i64>>),
    Float(Vec<Option<f64>>),
    Boolean(Vec<Option<bool>>),
    Timestamp(Vec<Option<Timestamp>>),
}

impl<'a> Values<'a> {
    fn of(kind: ColumnType, n: usize, changes: &'a [Change<'_>]) -> Self {
        let values = changes.iter().map(|change| &change.item.columns[n]);
        macro_rules! those {
            ($pattern:pat => $value:expr) => {
                values.map(|value| if let $pattern = value { Some($value) } else { None }).collect()
            };
        }
        match kind {
            ColumnType::Text => Self::Text(those!(Value::Text(text) => text.as_str())),
            ColumnType::Json => Self::Text(those!(Value::Json(json) => json.get())),
            ColumnType::Integer => Self::Integer(those!(Value::Integer(number) => *number)),
            ColumnType::Float => Self::Float(those!(Value::Float(number) => *number)),
            ColumnType::Boolean => Self::Boolean(those!(Value::Boolean(flag) => *flag)),
            ColumnType::Timestamp => Self::Timestamp(those!(Value::Timestamp(at) => *at)),
        }
    }

    fn param(&self) -> Param<'_> {
        match self {
            Self::Text(values) => (values, Type::TEXT_ARRAY),
            Self::Integer(values) => (values, Type::INT8_ARRAY),
            Self::Float(values) => (values, Type::FLOAT8_ARRAY),
            Self::Boolean(values) => (values, Type::BOOL_ARRAY),
            Self::Timestamp(values) => (values, Type::TIMESTAMPTZ_ARRAY),
        }
    }
}

/// Writes checked items into a table that is as it should be, within the caller's transaction.
pub(crate) async fn upsert(
    s: &mut Session<'_>,
    now: Option<Timestamp>,
    owner: &Owner,
    table: &Table,
    items: &[Item],
) -> Result<Counts> {
    let texts = Texts::of(table);
    let sought = Sought::of(items);
    let found = s.rows_together(OPERATION, &[texts.find(owner, &sought)]).await?;
    let changes = sought.differing(found.first().map_or(&[], Vec::as_slice));
    for chunk in chunks(&changes) {
        let chunk = Chunk::of(table, chunk);
        let written = s.rows_together(OPERATION, &[texts.put(&now, owner, &chunk)]).await?;
        chunk.check(written.first().map_or(&[], Vec::as_slice))?;
    }
    Ok(counts(items.len(), &changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(n: usize, bytes: usize) -> Item {
        let body = serde_json::value::to_raw_value(&"x".repeat(bytes)).unwrap();
        Item { entity_id: n.to_string(), hash: [0; 32], body, columns: vec![] }
    }

    fn sizes(items: &[Item]) -> Vec<usize> {
        let sought = Sought::of(items);
        let changes = sought.all_new();
        assert_eq!(counts(items.len(), &changes).created, items.len() as u64);
        chunks(&changes).iter().map(|chunk| chunk.len()).collect()
    }

    #[test]
    fn statements_are_bounded_in_rows_and_bytes_and_an_item_alone_may_be_larger() {
        let small: Vec<Item> = (0..2500).map(|n| item(n, 10)).collect();
        assert_eq!(sizes(&small), [1000, 1000, 500]);
        let large: Vec<Item> =
            [1, 5, 1, 1, 1, 1].iter().enumerate().map(|(n, mb)| item(n, mb << 20)).collect();
        assert_eq!(sizes(&large), [1, 1, 3, 1]);
        assert!(sizes(&[]).is_empty());
    }
}
