//! Tables that directives write to: made on first use, widened, never taken from others. The rules are in
//! `stargate_directive::store`.

use std::sync::Arc;

use stargate_directive::item::{Batch, ColumnType, Item, Rows, Table, Value as Cell};
use stargate_directive::{Expected, Lease};

use super::prelude::*;
use crate::ingest::{Ingest, batch, counts, item, page, raw, run_of, table_of};

const ABSENT: Expected = Expected::Absent;

fn at(version: u64) -> Expected {
    Expected::Version(version)
}

fn into(table: &Arc<Table>, lease: &Lease, request: &str, items: Vec<Item>, expected: Expected) -> Batch {
    let rows = Rows::Here { table: Arc::clone(table), items: Arc::new(items), topic: None };
    Batch { rows, ..batch(lease, request, Vec::new(), page(expected, 1)) }
}

fn bare(entity: &str, columns: Vec<Cell>) -> Item {
    Item { columns, ..item(entity, "a") }
}

fn text(text: &str) -> Cell {
    Cell::Text(text.to_owned())
}

pub async fn a_table_is_made_on_first_use_and_widened_when_columns_are_named(t: &Ingest) {
    let lease = t.begin("r1").await;
    let none = table_of("things", &[]);
    t.persist(into(&none, &lease, "b1", vec![bare("1", Vec::new())], ABSENT)).await;
    let one = table_of("things", &[("title", ColumnType::Text)]);
    let second = t
        .persist(into(
            &one,
            &lease,
            "b2",
            vec![bare("1", vec![text("x")]), bare("2", vec![text("x")])],
            at(1),
        ))
        .await;
    assert_eq!(second.counts, counts(1, 0, 1, 0));
    let two = table_of("things", &[("size", ColumnType::Integer), ("title", ColumnType::Text)]);
    let changed = Item { hash: [7; 32], ..bare("1", vec![Cell::Integer(-5), text("y")]) };
    t.persist(into(&two, &lease, "b3", vec![changed], at(2))).await;
    let rows = t.sql("select entity_id, version, title, size from things order by entity_id").await;
    assert_eq!(rows, [["1", "2", "y", "-5"], ["2", "1", "x", "NULL"]]);
    t.persist(into(&none, &lease, "b4", vec![bare("3", Vec::new())], at(3))).await;
    assert_eq!(t.number("select count(*) from things").await, 3, "columns that are mapped no more stay");
}

pub async fn every_type_of_column_is_kept(t: &Ingest) {
    let lease = t.begin("r1").await;
    let table = table_of(
        "things",
        &[
            ("a_text", ColumnType::Text),
            ("a_number", ColumnType::Integer),
            ("a_float", ColumnType::Float),
            ("a_flag", ColumnType::Boolean),
            ("a_time", ColumnType::Timestamp),
            ("a_json", ColumnType::Json),
            ("order", ColumnType::Text),
        ],
    );
    let values = vec![
        text("é '\"; drop table things"),
        Cell::Integer(i64::MIN),
        Cell::Float(-0.1),
        Cell::Boolean(true),
        Cell::Timestamp("2026-02-03T04:05:06.123456Z".parse().unwrap()),
        Cell::Json(raw(&json!({ "a": [1, null] }))),
        text("a reserved word"),
    ];
    let nulls = (0..7).map(|_| Cell::Null).collect();
    t.persist(into(&table, &lease, "b1", vec![bare("1", values), bare("2", nulls)], ABSENT)).await;
    let columns = "a_text, a_number, a_float, cast(a_flag as integer), a_json, \"order\"";
    let rows = t.sql(&format!("select {columns} from things order by entity_id")).await;
    assert_eq!(rows[0][..4], ["é '\"; drop table things", "-9223372036854775808", "-0.1", "1"]);
    assert_eq!(serde_json::from_str::<Value>(&rows[0][4]).unwrap(), json!({ "a": [1, null] }));
    assert_eq!(rows[0][5], "a reserved word");
    assert_eq!(rows[1], ["NULL"; 6]);
    let times = t.sql("select a_time from things order by entity_id").await;
    assert!(times[0][0].starts_with("2026-02-03") && times[0][0].contains("04:05:06.123456"), "{times:?}");
}

pub async fn a_table_that_was_not_made_for_directives_is_refused(t: &Ingest) {
    t.sql("create table mine (entity_id text)").await;
    t.sql("create view seen as select entity_id from mine").await;
    let lease = t.begin("r1").await;
    for name in ["mine", "seen"] {
        let table = table_of(name, &[]);
        let given = into(&table, &lease, "b1", vec![bare("1", Vec::new())], ABSENT);
        let refused = t.directives.persist(given).await.expect_err("it is another's");
        assert_eq!(refused.code(), "INVALID");
        assert!(refused.to_string().contains("name another table"), "{refused}");
    }
    assert_eq!(t.number("select count(*) from mine").await, 0);
    assert!(t.entry(&crate::ingest::keys().cursor).await.is_none());
}

pub async fn a_column_of_another_type_is_refused(t: &Ingest) {
    let lease = t.begin("r1").await;
    let first = table_of("things", &[("title", ColumnType::Text)]);
    t.persist(into(&first, &lease, "b1", vec![bare("1", vec![text("x")])], ABSENT)).await;
    let other = table_of("things", &[("extra", ColumnType::Text), ("title", ColumnType::Integer)]);
    let given = into(&other, &lease, "b2", vec![bare("2", vec![text("x"), Cell::Integer(1)])], at(1));
    let refused = t.directives.persist(given).await.expect_err("it is a text");
    assert_eq!(refused.code(), "INVALID");
    assert!(refused.to_string().contains("title"), "{refused}");
    t.persist(into(&first, &lease, "b3", vec![bare("2", vec![text("x")])], at(1))).await;
    let extra = table_of("things", &[("extra", ColumnType::Integer)]);
    t.persist(into(&extra, &lease, "b4", vec![bare("3", vec![Cell::Integer(1)])], at(2))).await;
}

pub async fn a_table_that_somebody_dropped_is_made_anew(t: &Ingest) {
    let lease = t.begin("r1").await;
    let table = table_of("things", &[("title", ColumnType::Text)]);
    t.persist(into(&table, &lease, "b1", vec![bare("1", vec![text("x")])], ABSENT)).await;
    t.sql("drop table things").await;
    let again = t.persist(into(&table, &lease, "b2", vec![bare("1", vec![text("x")])], at(1))).await;
    assert_eq!(again.counts, counts(1, 0, 0, 0));
    assert_eq!(t.number("select count(*) from things where title = 'x'").await, 1);
}

pub async fn racing_directives_make_a_table_once(t: &Ingest) {
    let others = [t.another().await, t.another().await];
    let mut leases = Vec::new();
    for number in 0..6 {
        leases.push(t.begin_as(run_of(&format!("r{number}"), "acme", &format!("d{number}"))).await.0);
    }
    let written = race(6, |number| {
        let directives = [&t.directives, &others[0], &others[1]][number % 3].clone();
        let name = format!("c{number}");
        let table = table_of("shared", &[("title", ColumnType::Text), (name.as_str(), ColumnType::Integer)]);
        let items = vec![bare("1", vec![text("x"), Cell::Integer(7)])];
        let given = into(&table, &leases[number], "b1", items, ABSENT);
        async move { directives.persist(given).await.map(|written| written.counts) }
    })
    .await;
    for answer in written {
        assert_eq!(answer.unwrap(), counts(1, 0, 0, 0));
    }
    assert_eq!(t.number("select count(*) from shared").await, 6);
    assert_eq!(t.number("select sum(coalesce(c0, 0) + coalesce(c5, 0)) from shared").await, 14);
}

pub async fn a_column_that_somebody_dropped_is_known_once(t: &Ingest) {
    let lease = t.begin("r1").await;
    let table = table_of("things", &[("title", ColumnType::Text), ("size", ColumnType::Integer)]);
    let one = |entity: &str| vec![bare(entity, vec![text("x"), Cell::Integer(1)])];
    t.persist(into(&table, &lease, "b1", one("1"), ABSENT)).await;
    t.sql("alter table things drop column title").await;
    t.persist(into(&table, &lease, "b2", one("2"), at(1))).await;
    t.sql("drop table things").await;
    let again = t.persist(into(&table, &lease, "b3", one("3"), at(2))).await;
    assert_eq!(again.counts, counts(1, 0, 0, 0));
    assert_eq!(t.sql("select title, size from things").await, [["x", "1"]]);
}

pub async fn a_dropped_column_does_not_come_back_with_another_type(t: &Ingest) {
    let lease = t.begin("r1").await;
    let first = table_of("things", &[("title", ColumnType::Text)]);
    t.persist(into(&first, &lease, "b1", vec![bare("1", vec![text("x")])], ABSENT)).await;
    t.sql("alter table things drop column title").await;
    let other = table_of("things", &[("title", ColumnType::Integer)]);
    let given = into(&other, &lease, "b2", vec![bare("2", vec![Cell::Integer(1)])], at(1));
    assert_eq!(t.refused(given).await, "INVALID");
}

pub async fn a_table_that_got_a_rule_says_what_to_do(t: &Ingest) {
    let lease = t.begin("r1").await;
    let table = table_of("things", &[("title", ColumnType::Text)]);
    t.persist(into(&table, &lease, "b1", vec![bare("1", vec![text("secret")])], ABSENT)).await;
    t.sql("create unique index titles on things (title)").await;
    let given = || into(&table, &lease, "b2", vec![bare("2", vec![text("secret")])], at(1));
    let refused = t.directives.persist(given()).await.expect_err("a title stands there once");
    assert_eq!(refused.code(), "INVALID", "{refused}");
    let told = refused.to_string();
    assert!(told.contains("things") && told.contains("remove the constraint"), "{told}");
    assert!(!told.contains("secret"), "{told}");
    assert_eq!(t.number("select count(*) from things").await, 1);
    t.sql("drop index titles").await;
    assert_eq!(t.persist(given()).await.counts, counts(1, 0, 0, 0));
}
