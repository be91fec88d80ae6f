//! Ingestion: rows are those of the source, each change announced once, and the cursor at the end (INV-5).

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Figures, Violation};
use crate::evidence::{Reader, Row};
use crate::site::Site;

pub(super) async fn judge(
    site: &Site,
    reader: &Reader,
    found: &mut Vec<Violation>,
    figures: &mut Figures,
) -> Result<()> {
    let mut expected = BTreeMap::new();
    for item in site.source.edit(|data| data.items().collect::<Vec<_>>()) {
        let item: Value = serde_json::from_str(&item).context("an item of the source")?;
        expected.insert(item["id"].to_string(), item["version"].to_string());
    }
    let query = "select i.number, i.edition, i.version, \
                 (select count(*) from @directive_outbox o where o.key = 'acme/core/issues/' || i.number) \
                 from items i order by i.number";
    let rows = reader.rows(query).await?;
    figures.rows = i64::try_from(rows.len()).unwrap_or(0);
    figures.runs = reader.number("select count(*) from @directive_run").await?;
    compare(&expected, &rows, found);
    let open = reader.number("select count(*) from @directive_run where ended_at is null").await?;
    if open > 1 {
        found.push(Violation::new(5, format!("{open} runs of one directive are open")));
    }
    Ok(())
}

/// What is in the source, by number and edition, and what lies in the table: number, edition, changes, announcements.
fn compare(expected: &BTreeMap<String, String>, rows: &[Row], found: &mut Vec<Violation>) {
    let mut there = BTreeMap::new();
    for row in rows {
        let column = |at: usize| row.get(at).and_then(Option::clone).unwrap_or_default();
        there.insert(column(0), column(1));
        if column(2) != column(3) {
            let what = format!(
                "item {} has changed {} times and was announced {} times",
                column(0),
                column(2),
                column(3)
            );
            found.push(Violation::new(5, what));
        }
    }
    for (id, version) in expected {
        match there.get(id) {
            Some(edition) if edition == version => {}
            Some(edition) => {
                found.push(Violation::new(5, format!("item {id} is edition {edition}, not {version}")))
            }
            None => found.push(Violation::new(5, format!("item {id} is in the source and in no row"))),
        }
    }
    for id in there.keys().filter(|id| !expected.contains_key(*id)) {
        found.push(Violation::new(5, format!("item {id} is in a row and not in the source")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_in_which_rows_can_differ_from_the_source_is_found() {
        let expected =
            BTreeMap::from([("0", "2"), ("1", "0")].map(|(id, edition)| (id.to_owned(), edition.to_owned())));
        let found = |rows: &[[&str; 4]]| {
            let rows: Vec<Row> =
                rows.iter().map(|row| row.map(|text| Some(text.to_owned())).to_vec()).collect();
            let mut found = Vec::new();
            compare(&expected, &rows, &mut found);
            found.into_iter().map(|violation| violation.what).collect::<Vec<_>>()
        };
        assert_eq!(found(&[["0", "2", "3", "3"], ["1", "0", "1", "1"]]), [""; 0]);
        assert_eq!(found(&[["0", "1", "2", "2"], ["1", "0", "1", "1"]]), ["item 0 is edition 1, not 2"]);
        assert_eq!(found(&[["0", "2", "3", "3"]]), ["item 1 is in the source and in no row"]);
        let twice = found(&[["0", "2", "3", "4"], ["1", "0", "1", "1"]]);
        assert_eq!(twice, ["item 0 has changed 3 times and was announced 4 times"]);
        let more = found(&[["0", "2", "3", "3"], ["1", "0", "1", "1"], ["2", "0", "1", "1"]]);
        assert_eq!(more, ["item 2 is in a row and not in the source"]);
    }
}
