//! New rows are copied into their table: with the same result as a statement, whatever is there already.

use stargate_base::{ErrorClass, Tasks};
use stargate_directive::item::{ColumnType, Item, Rows, Table, Value};
use stargate_directive::run::Lease;
use stargate_directive::{Advance, Batch, Directives, Expected, Persisted};
use stargate_queue::Error;
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::eventually;
use stargate_testkit::ingest::{batch, counts, item, items, page, raw, table_of};
use tokio_postgres::Client;

use crate::directives::{begin, next, number};
use crate::pooler::pooled;
use crate::{PATIENCE, connect, database};

/// Rows of a batch: more than a statement gets.
const ROWS: u32 = 150;
const ABSENT: Expected = Expected::Absent;

/// Notes the statements that insert.
const NOTED: &str = "create table if not exists noted (query text);
    create or replace function note() returns trigger language plpgsql as
    $$ begin insert into noted values (current_query()); return null; end $$;
    create trigger note after insert on public.items for each statement execute function note();";

fn wide(lease: &Lease, number: u32, expected: Expected) -> Batch {
    let rows = items(number * ROWS..(number + 1) * ROWS, "a");
    batch(lease, &format!("b{number}"), rows, page(expected, u64::from(number + 1)))
}

/// With the table made and its statements noted.
async fn noted(store: &Postgres, client: &Client) -> (Lease, Persisted) {
    let lease = begin(store, "r1").await;
    let made = store.persist(batch(&lease, "b", Vec::new(), page(ABSENT, 0))).await.unwrap();
    client.batch_execute(NOTED).await.unwrap();
    (lease, made)
}

/// How often rows were copied, and how often inserted by a statement.
async fn ways(client: &Client) -> (i64, i64) {
    let (copied, all) = (
        number(client, "select count(*) from noted where query like '%copy%'").await,
        number(client, "select count(*) from noted").await,
    );
    (copied, all - copied)
}

#[tokio::test(flavor = "multi_thread")]
async fn new_rows_are_copied_and_a_key_that_is_there_ends_that() {
    let database = database().await;
    let (store, client) = (connect(database.url()).await, database.client().await);
    let (lease, mut written) = noted(&store, &client).await;
    let each = u64::from(ROWS);
    for number in 0..3 {
        written = store.persist(wide(&lease, number, next(&written))).await.unwrap();
        assert_eq!(written.counts, counts(each, 0, 0, 0));
    }
    assert_eq!(ways(&client).await, (3, 0));
    // The next are expected to be new. Of these a third is, a third has changed and a third has not.
    let third = ROWS / 3;
    let mut mixed = items(0..third, "a");
    mixed.extend(items(third..2 * third, "changed"));
    mixed.extend(items(9000..9000 + third, "a"));
    let given = batch(&lease, "mixed", mixed, page(next(&written), 4));
    written = store.persist(given.clone()).await.unwrap();
    let third = u64::from(third);
    assert_eq!(written.counts, counts(third, third, third, 0));
    assert!(!store.persist(given).await.unwrap().first, "it was written once");
    written = store.persist(wide(&lease, 5, next(&written))).await.unwrap();
    assert_eq!(written.counts, counts(each, 0, 0, 0));
    assert_eq!(ways(&client).await, (3, 2), "after that nothing is copied in this run");
    let updated = "select count(*) from public.items where version = 2 and title = 'changed'";
    assert_eq!(number(&client, updated).await, i64::from(ROWS) / 3);
    let announced = number(&client, "select count(*) from stargate.directive_outbox").await;
    assert_eq!(announced, i64::from(ROWS) * 4 + 2 * i64::from(ROWS) / 3);
    let run = store.run(&lease.run).await.unwrap().unwrap();
    assert_eq!(run.counts, counts(4 * each + third, third, third, 0));
    drop((client, store));
    database.remove().await;
}

fn every_type() -> std::sync::Arc<Table> {
    use ColumnType::{Boolean, Float, Integer, Json, Text, Timestamp};
    let columns = [("t", Text), ("i", Integer), ("f", Float), ("b", Boolean), ("at", Timestamp), ("j", Json)];
    table_of("items", &columns)
}

fn every_value(n: u32) -> Item {
    let columns = match n % 4 {
        0 => vec![Value::Null, Value::Null, Value::Null, Value::Null, Value::Null, Value::Null],
        1 => vec![
            Value::Text("ünï \"quoted\" \\ \t\n".to_owned()),
            Value::Integer(i64::MIN),
            Value::Float(-0.1),
            Value::Boolean(true),
            Value::Timestamp("1999-12-31T23:59:59.123456Z".parse().unwrap()),
            Value::Json(raw(&serde_json::json!({ "a": [1, null, "x"] }))),
        ],
        2 => vec![
            Value::Text(String::new()),
            Value::Integer(i64::MAX),
            Value::Float(1e300),
            Value::Boolean(false),
            Value::Timestamp("-004000-01-01T00:00:00Z".parse().unwrap()),
            Value::Json(raw(&serde_json::json!(null))),
        ],
        _ => vec![
            Value::Text("x".repeat(5000)),
            Value::Integer(i64::from(n)),
            Value::Float(0.0),
            Value::Null,
            Value::Null,
            Value::Json(raw(&serde_json::json!("text"))),
        ],
    };
    Item { columns, ..item(&format!("e{n}"), "a") }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_copied_is_what_a_statement_writes() {
    let database = database().await;
    let (store, client) = (connect(database.url()).await, database.client().await);
    let lease = begin(&store, "r1").await;
    let given = |request: &str, range: std::ops::Range<u32>| {
        let rows = Rows::Here {
            table: every_type(),
            items: range.map(every_value).collect::<Vec<_>>().into(),
            topic: None,
        };
        Batch { rows, ..batch(&lease, request, Vec::new(), Advance::Still) }
    };
    store.persist(given("b0", 0..0)).await.unwrap();
    client.batch_execute(NOTED).await.unwrap();
    store.persist(given("b1", 0..ROWS)).await.unwrap();
    assert_eq!(ways(&client).await, (1, 0));
    client
        .batch_execute("create table copied as select * from public.items; delete from public.items")
        .await
        .unwrap();
    for n in 0..ROWS {
        store.persist(given(&format!("c{n}"), n..n + 1)).await.unwrap();
    }
    assert_eq!(ways(&client).await, (1, i64::from(ROWS)));
    let all = "tenant_id, project_id, directive, entity_id, hash, version, body, t, i, f, b, at, j";
    let differing = format!(
        "select count(*) from (select {all} from copied except select {all} from public.items
          union all select {all} from public.items except select {all} from copied) d"
    );
    assert_eq!(number(&client, &differing).await, 0);
    let there = "select count(*) from copied where created_at = updated_at and created_at > now() - interval '1 hour'";
    assert_eq!(number(&client, there).await, i64::from(ROWS));
    drop((client, store));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_is_not_copied_into_a_column_of_another_type() {
    let database = database().await;
    let (store, client) = (connect(database.url()).await, database.client().await);
    let (lease, made) = noted(&store, &client).await;
    let written = store.persist(wide(&lease, 0, next(&made))).await.unwrap();
    // As wide as the type that it was: a copy would take the one for the other. A statement does not.
    client.batch_execute("alter table public.items alter column size type double precision").await.unwrap();
    let written = store.persist(wide(&lease, 1, next(&written))).await.unwrap();
    assert_eq!(written.counts, counts(u64::from(ROWS), 0, 0, 0));
    let other = connect(database.url()).await;
    let refused = other.persist(wide(&lease, 2, next(&written))).await.unwrap_err();
    assert!(refused.to_string().contains("size as double precision, not as bigint"), "{refused}");
    assert_eq!(ways(&client).await, (1, 1));
    assert_eq!(
        number(&client, "select count(*) from public.items where size = 1").await,
        2 * i64::from(ROWS)
    );
    drop((client, store, other));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_table_swallows_or_refuses_are_missed_when_they_are_copied() {
    let database = database().await;
    let (store, client) = (connect(database.url()).await, database.client().await);
    let (lease, made) = noted(&store, &client).await;
    let written = store.persist(wide(&lease, 0, next(&made))).await.unwrap();
    let swallow =
        "create function swallow() returns trigger language plpgsql as $$ begin return null; end $$;
        create trigger swallow before insert on public.items for each row
        when (new.entity_id = 'e00155') execute function swallow();";
    client.batch_execute(swallow).await.unwrap();
    let refused = store.persist(wide(&lease, 1, next(&written))).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict { .. }), "{refused:?}");
    assert!(refused.to_string().contains("149 items of 150"), "{refused}");
    let rule = "drop trigger swallow on public.items;
        alter table public.items add constraint never check (title <> 'a') not valid";
    client.batch_execute(rule).await.unwrap();
    let refused = store.persist(wide(&lease, 1, next(&written))).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }) && refused.to_string().contains("23514"), "{refused:?}");
    assert_eq!(number(&client, "select count(*) from public.items").await, i64::from(ROWS));
    client.batch_execute("alter table public.items drop constraint never").await.unwrap();
    let written = store.persist(wide(&lease, 1, next(&written))).await.unwrap();
    assert_eq!(written.counts, counts(u64::from(ROWS), 0, 0, 0));
    assert_eq!(ways(&client).await, (2, 0));
    drop((client, store));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_while_rows_are_copied_lose_and_repeat_nothing() {
    const CUTS: i64 = 20;
    const PAGES_MAX: u32 = 5000;
    let database = database().await;
    let store = connect(database.url()).await;
    let lease = begin(&store, "r1").await;
    let client = database.client().await;
    let cutting = Tasks::new().spawn(async move {
        let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
            where datname = current_database() and pid <> pg_backend_pid() and query ilike '%copy %'
              and state <> 'idle'";
        let mut cuts = 0;
        while cuts < CUTS {
            cuts += number(&client, cut).await;
            tokio::task::yield_now().await;
        }
    });
    let (mut expected, mut pages) = (ABSENT, 0);
    while !cutting.is_finished() {
        let given = wide(&lease, pages, expected);
        let written = eventually(PATIENCE, "a batch that is written", || async {
            store.persist(given.clone()).await.map_err(|error| {
                assert_eq!(error.class(), ErrorClass::RetryableTransient, "{error:?}");
                error.to_string()
            })
        })
        .await;
        assert_eq!(written.counts, counts(u64::from(ROWS), 0, 0, 0), "page {pages}");
        expected = next(&written);
        pages += 1;
        assert!(pages < PAGES_MAX, "too few connections are cut");
    }
    let (client, rows) = (database.client().await, i64::from(pages * ROWS));
    assert_eq!(number(&client, "select count(*) from public.items where version = 1").await, rows);
    assert_eq!(number(&client, "select count(*) from stargate.directive_outbox").await, rows);
    let run = store.run(&lease.run).await.unwrap().unwrap();
    assert_eq!((run.pages, run.counts.created), (u64::from(pages), u64::from(pages * ROWS)));
    drop((client, store));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_rows_go_their_way_through_a_pooler() {
    let database = database().await;
    let client = database.client().await;
    let options = [Options::default(), Options { pooled: true, ..Options::default() }];
    let mut pages = 0;
    for (round, options) in options.into_iter().enumerate() {
        let store = Postgres::connect(&pooled(&database), options).await.unwrap();
        let lease = begin(&store, &format!("r{round}")).await;
        for _ in 0..5 {
            let rows = items(pages * ROWS..(pages + 1) * ROWS, "a");
            let given = batch(&lease, &format!("b{pages}"), rows, Advance::Still);
            assert_eq!(store.persist(given).await.unwrap().counts, counts(u64::from(ROWS), 0, 0, 0));
            pages += 1;
        }
        let end = stargate_directive::End { outcome: stargate_directive::Outcome::Succeeded, error: None };
        assert!(store.run_end(&lease, end).await.unwrap());
    }
    assert_eq!(number(&client, "select count(*) from public.items").await, i64::from(pages * ROWS));
    drop(client);
    database.remove().await;
}
