//! Directives where Postgres differs: poolers, connections that break, tables that others change, notifications.

use serde_json::{Value, json};
use stargate_base::{ErrorClass, Tasks};
use stargate_directive::item::{Advance, Batch, Rows};
use stargate_directive::outbox::OutboxId;
use stargate_directive::run::{Begin, Lease, RunId};
use stargate_directive::{Directives, Expected, Persisted};
use stargate_queue::Error;
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::eventually;
use stargate_testkit::ingest::{
    TOPIC, batch, counts, everything, item, items, keys, new_run, page, raw, reject,
};
use stargate_testkit::postgres::Database;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::pooler::pooled;
use crate::{PATIENCE, connect, database};

const ABSENT: Expected = Expected::Absent;

pub(crate) async fn begin(store: &Postgres, id: &str) -> Lease {
    match store.run_begin(new_run(id)).await.unwrap() {
        Begin::Begun { lease, .. } => lease,
        held @ Begin::Held { .. } => panic!("{held:?}"),
    }
}

pub(crate) async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// Pages of ten rows.
fn page_of(lease: &Lease, number: u32, expected: Expected) -> Batch {
    let rows = items(number * 10..number * 10 + 10, "a");
    batch(lease, &format!("b{number}"), rows, page(expected, u64::from(number + 1) * 10))
}

pub(crate) fn next(written: &Persisted) -> Expected {
    written.cursor_version.map_or(ABSENT, Expected::Version)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_its_way_through_a_pooler() {
    let database = database().await;
    for (round, options) in
        [Options::default(), Options { pooled: true, ..Options::default() }].into_iter().enumerate()
    {
        let store = Postgres::connect(&pooled(&database), options.clone()).await.unwrap();
        let other = Postgres::connect(&pooled(&database), options).await.unwrap();
        let run = format!("r{round}");
        let lease = begin(&store, &run).await;
        let cursor = store.kv_get(&keys().cursor).await.unwrap();
        let mut expected = cursor.map_or(ABSENT, |entry| Expected::Version(entry.version));
        for number in 0..20 {
            let mut given = page_of(&lease, number, expected);
            given.rejects = vec![reject(json!({ "bad": number % 3 }), None)];
            // Two at once, so that transactions mix on the pooler's connections.
            let waiting = async { other.outbox_waiting().await.unwrap() };
            let (written, _) = tokio::join!(store.persist(given), waiting);
            let written = written.unwrap();
            let new = if round == 0 { counts(10, 0, 0, 1) } else { counts(0, 0, 10, 1) };
            assert_eq!((written.first, written.counts), (true, new));
            expected = next(&written);
        }
        let end = stargate_directive::End { outcome: stargate_directive::Outcome::Succeeded, error: None };
        assert!(other.run_end(&lease, end).await.unwrap());
        assert_eq!(store.run(&RunId(run)).await.unwrap().unwrap().pages, 20);
        drop((store, other));
    }
    let client = database.client().await;
    assert_eq!(number(&client, "select count(*) from public.items where version = 1").await, 200);
    drop(client);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_at_any_moment_lose_and_repeat_nothing() {
    const CUTS: i64 = 30;
    const PAGES_MAX: u32 = 10_000;
    let database = database().await;
    let store = connect(database.url()).await;
    let lease = begin(&store, "r1").await;
    let client = database.client().await;
    let cutting = Tasks::new().spawn(async move {
        let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
            where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'";
        let mut cuts = 0;
        while cuts < CUTS {
            cuts += number(&client, cut).await;
            tokio::task::yield_now().await;
        }
    });
    let (mut expected, mut pages, mut repeated) = (ABSENT, 0, 0);
    while !cutting.is_finished() {
        let given = page_of(&lease, pages, expected);
        let written = eventually(PATIENCE, "a batch that is written", || async {
            store.persist(given.clone()).await.map_err(|error| {
                assert_eq!(error.class(), ErrorClass::RetryableTransient, "{error:?}");
                error.to_string()
            })
        })
        .await;
        assert_eq!(written.counts, counts(10, 0, 0, 0), "page {pages}");
        repeated += u32::from(!written.first);
        expected = next(&written);
        pages += 1;
        assert!(pages < PAGES_MAX, "too few connections are cut");
    }
    println!("{pages} pages; {repeated} of their answers were lost after the commit");
    let client = database.client().await;
    let rows = i64::from(pages * 10);
    assert_eq!(number(&client, "select count(*) from public.items where version = 1").await, rows);
    assert_eq!(number(&client, "select count(distinct key) from stargate.directive_outbox").await, rows);
    assert_eq!(number(&client, "select count(*) from stargate.directive_outbox").await, rows);
    let run = store.run(&lease.run).await.unwrap().unwrap();
    assert_eq!((run.pages, run.counts), (u64::from(pages), counts(u64::from(pages) * 10, 0, 0, 0)));
    drop((client, store));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_trigger_swallows_are_missed() {
    let database = database().await;
    let store = connect(database.url()).await;
    let lease = begin(&store, "r1").await;
    let written = store.persist(page_of(&lease, 0, ABSENT)).await.unwrap();
    let client = database.client().await;
    let script = "create function swallow() returns trigger language plpgsql as $$ begin return null; end $$;
        create trigger swallow before insert on public.items for each row
        when (new.entity_id = 'e00015') execute function swallow();";
    client.batch_execute(script).await.unwrap();
    let refused = store.persist(page_of(&lease, 1, next(&written))).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict { .. }), "{refused:?}");
    assert!(refused.to_string().contains("9 items of 10"), "{refused}");
    assert_eq!(number(&client, "select count(*) from public.items").await, 10);
    assert_eq!(store.run(&lease.run).await.unwrap().unwrap().pages, 1);
    client.batch_execute("drop trigger swallow on public.items").await.unwrap();
    assert_eq!(store.persist(page_of(&lease, 1, next(&written))).await.unwrap().counts, counts(10, 0, 0, 0));
    drop((client, store));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_somebody_dropped_is_made_anew_and_one_of_another_type_is_refused() {
    let database = database().await;
    let store = connect(database.url()).await;
    let lease = begin(&store, "r1").await;
    let written = store.persist(page_of(&lease, 0, ABSENT)).await.unwrap();
    let client = database.client().await;
    client.batch_execute("alter table public.items drop column title").await.unwrap();
    let written = store.persist(page_of(&lease, 1, next(&written))).await.unwrap();
    assert_eq!(number(&client, "select count(*) from public.items where title = 'a'").await, 10);
    let script =
        "alter table public.items drop column title; alter table public.items add column title bytea";
    client.batch_execute(script).await.unwrap();
    let other = connect(database.url()).await;
    for one in [&other, &store] {
        let refused = one.persist(page_of(&lease, 2, next(&written))).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
        assert!(refused.to_string().contains("title as bytea, not as text"), "{refused}");
    }
    drop((client, store, other));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_must_be_filled_now_is_told_of_at_once() {
    let database = database().await;
    let store = connect(database.url()).await;
    let lease = begin(&store, "r1").await;
    let written = store.persist(page_of(&lease, 0, ABSENT)).await.unwrap();
    let client = database.client().await;
    let rules = [
        (
            "add column theirs text not null default 'x'; alter table public.items alter column theirs drop default",
            "drop column theirs",
            "23502",
        ),
        ("add constraint never check (title <> 'a') not valid", "drop constraint never", "23514"),
    ];
    // A sequence is not rolled back: it tells how often the rows were tried.
    let tries = "create sequence tries; create function try() returns trigger language plpgsql as
        $$ begin perform nextval('tries'); return null; end $$;
        create trigger try before insert on public.items for each statement execute function try();";
    client.batch_execute(tries).await.unwrap();
    for (rule, mend, code) in rules {
        client
            .batch_execute(&format!("alter table public.items {rule}; alter sequence tries restart"))
            .await
            .unwrap();
        let refused = store.persist(page_of(&lease, 1, next(&written))).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
        let told = refused.to_string();
        assert!(told.contains(code) && told.contains("remove the constraint"), "{told}");
        assert_eq!(
            number(&client, "select case when is_called then last_value else 0 end from tries").await,
            1,
            "{told}"
        );
        client.batch_execute(&format!("alter table public.items {mend}")).await.unwrap();
    }
    assert_eq!(store.persist(page_of(&lease, 1, next(&written))).await.unwrap().counts, counts(10, 0, 0, 0));
    drop((client, store));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reject_with_what_postgres_cannot_keep_is_kept_all_the_same() {
    let database = database().await;
    let store = connect(database.url()).await;
    let lease = begin(&store, "r1").await;
    let mut given = page_of(&lease, 0, ABSENT);
    given.rejects = vec![reject(json!({ "id": "a\0b" }), Some("a\0b"))];
    assert_eq!(store.persist(given).await.unwrap().counts, counts(10, 0, 0, 1));
    let kept = store.quarantine(everything()).await.unwrap();
    assert_eq!(kept[0].record.get(), "{\"id\":\"a\\u0000b\"}");
    assert_eq!(kept[0].entity_id.as_deref(), Some("a\u{FFFD}b"));
    drop(store);
    database.remove().await;
}

/// What is heard on a channel.
async fn listen(database: &Database, channel: &str) -> (Client, mpsc::UnboundedReceiver<String>) {
    let (client, mut driver) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
    let (said, heard) = mpsc::unbounded_channel();
    Tasks::new().spawn(async move {
        while let Some(Ok(message)) = futures::future::poll_fn(|context| driver.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = said.send(notification.payload().to_owned());
            }
        }
    });
    client.batch_execute(&format!("listen \"{channel}\"")).await.unwrap();
    (client, heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_is_an_announcement_that_has_arrived() {
    let database = database().await;
    let store = connect(database.url()).await;
    let (client, mut heard) = listen(&database, "changes").await;
    let lease = begin(&store, "r1").await;
    let mut large = item("2", "b");
    large.body = raw(&json!({ "text": "x".repeat(9000) }));
    let given = batch(&lease, "b1", vec![item("1", "a"), large], page(ABSENT, 2));
    store.persist(given).await.unwrap();
    let waiting = store.outbox_next(TOPIC, None, 10).await.unwrap();
    assert_eq!(waiting.len(), 2);
    for announcement in &waiting {
        assert!(store.outbox_notify("changes", announcement.id).await.unwrap());
        assert!(!store.outbox_notify("changes", announcement.id).await.unwrap(), "once");
        assert!(!store.outbox_done(announcement.id).await.unwrap(), "it has arrived");
        let said = tokio::time::timeout(PATIENCE, heard.recv()).await.unwrap().unwrap();
        let (said, whole): (Value, Value) =
            (serde_json::from_str(&said).unwrap(), serde_json::from_str(announcement.payload.get()).unwrap());
        let is_large = whole["entity_id"] == "2";
        assert_eq!(said["body"], if is_large { Value::Null } else { whole["body"].clone() });
        assert_eq!((&said["entity_id"], &said["version"]), (&whole["entity_id"], &json!(1)));
    }
    assert!(heard.try_recv().is_err(), "nothing is said twice");
    assert!(store.outbox_waiting().await.unwrap().is_empty());
    assert!(!store.outbox_notify("changes", OutboxId(999)).await.unwrap());
    for channel in ["", "x".repeat(64).as_str()] {
        assert!(matches!(store.outbox_notify(channel, waiting[0].id).await, Err(Error::Invalid { .. })));
    }
    drop((client, store));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_batches_of_one_lease_at_once_are_written_one_after_the_other() {
    let database = database().await;
    let (store, other) = (connect(database.url()).await, connect(database.url()).await);
    let lease = begin(&store, "r1").await;
    for round in 0..10 {
        let still = |name: &str| {
            let mut given = page_of(&lease, round, ABSENT);
            given.request_id = format!("{name}{round}");
            Batch { advance: Advance::Still, ..given }
        };
        let (one, two) = tokio::join!(store.persist(still("x")), other.persist(still("y")));
        let mut written = [one.unwrap().counts, two.unwrap().counts];
        written.sort_by_key(|counts| counts.unchanged);
        assert_eq!(written, [counts(10, 0, 0, 0), counts(0, 0, 10, 0)], "round {round}");
    }
    let client = database.client().await;
    assert_eq!(number(&client, "select count(*) from stargate.directive_outbox").await, 100);
    drop((client, store, other));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hashes_are_found_by_the_key_however_large_the_table_is() {
    let database = database().await;
    let store = connect(database.url()).await;
    let lease = begin(&store, "r1").await;
    store.persist(page_of(&lease, 0, ABSENT)).await.unwrap();
    let client = database.client().await;
    let script = "insert into public.items (tenant_id, project_id, directive, entity_id, hash, version, body, created_at, updated_at)
        select 'acme', 'core', 'd' || n % 7, n, repeat('0', 64), 1, '{}', now(), now() from generate_series(1, 20000) n;
        set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off;
        prepare look (text, text, text, text[], text[]) as
        select k.place, t.version from unnest($4, $5) with ordinality k (entity_id, hash, place)
          left join lateral (select hash, version from public.items t
                              where t.tenant_id = $1 and t.project_id = $2 and t.directive = $3
                                and t.entity_id = k.entity_id offset 0) t on true
         where t.hash is distinct from k.hash";
    client.batch_execute(script).await.unwrap();
    for analyzed in [false, true] {
        if analyzed {
            client.batch_execute("analyze public.items").await.unwrap();
        }
        let entities: Vec<String> = (0..500).map(|n| (7 * n + 1).to_string()).collect();
        let explain = format!(
            "explain (analyze, costs off, timing off, summary off) execute look('acme', 'core', 'd1', '{{{}}}', '{{{}}}')",
            entities.join(","),
            vec!["x"; entities.len()].join(",")
        );
        let plan: Vec<String> =
            client.query(&explain, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        println!("{plan}");
        assert!(plan.contains("using items_pkey") || plan.contains("on items_pkey"), "{plan}");
        assert!(plan.contains("(entity_id = k.entity_id)"), "{plan}");
        assert!(!plan.contains("Rows Removed"), "{plan}");
    }
    // The store's own statement reads no whole table either.
    close(&client, store).await;
    let read = "select seq_scan from pg_stat_user_tables where relname = 'items'";
    let before = number(&client, read).await;
    let store = connect(database.url()).await;
    let cursor = store.kv_get(&keys().cursor).await.unwrap().unwrap();
    store.persist(page_of(&lease, 1, Expected::Version(cursor.version))).await.unwrap();
    close(&client, store).await;
    assert_eq!(number(&client, read).await, before);
    drop(client);
    database.remove().await;
}

/// Waits until the store's connections have ended: then, at the latest, the server tells what they have read.
async fn close(client: &Client, store: Postgres) {
    store.close().await;
    let others = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    eventually(PATIENCE, "an end of the store's connections", || async {
        match number(client, others).await {
            0 => Ok(()),
            more => Err(more.to_string()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_without_items_makes_the_table_and_moves_the_cursor() {
    let database = database().await;
    let store = connect(database.url()).await;
    let lease = begin(&store, "r1").await;
    let empty = batch(&lease, "b1", Vec::new(), page(ABSENT, 0));
    assert!(matches!(&empty.rows, Rows::Here { items, .. } if items.is_empty()));
    let written = store.persist(empty).await.unwrap();
    assert_eq!((written.counts, written.cursor_version), (counts(0, 0, 0, 0), Some(1)));
    drop(store);
    database.remove().await;
}
