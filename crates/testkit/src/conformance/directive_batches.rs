//! Batches: rows, announcements, counts and the cursor in one transaction. The rules are in `stargate_directive::store`.

use stargate_directive::item::{Advance, Batch, Rows, Value as Cell};
use stargate_directive::{Cursor, Expected, Lease, Partial};

use super::git::cut;
use super::prelude::*;
use crate::ingest::{
    ISSUES, Ingest, TOPIC, batch, counts, cursor, item, items, keys, page, raw, reject, run_of,
};

const ABSENT: Expected = Expected::Absent;

fn at(version: u64) -> Expected {
    Expected::Version(version)
}

fn row(entity: &str, version: &str, title: &str) -> (String, String, String) {
    (entity.to_owned(), version.to_owned(), title.to_owned())
}

async fn stored_cursor(t: &Ingest) -> (u64, Cursor) {
    let entry = t.entry(&keys().cursor).await.expect("a cursor");
    (entry.version, serde_json::from_str(entry.value.get()).expect("a cursor"))
}

fn noted(accounted: u64) -> Partial {
    Partial { accounted, run: "r1".to_owned(), cursor_version: 0 }
}

async fn partial(t: &Ingest) -> Option<Partial> {
    t.entry(&keys().partial).await.map(|entry| serde_json::from_str(entry.value.get()).expect("a partial"))
}

fn rejecting(lease: &Lease, request: &str, count: u32, advance: Advance) -> Batch {
    let rejects = (0..count).map(|number| reject(json!({ "bad": number }), None)).collect();
    Batch { rejects, ..batch(lease, request, Vec::new(), advance) }
}

pub async fn a_batch_writes_rows_cursor_and_counts(t: &Ingest) {
    let lease = t.begin("r1").await;
    let mut given = batch(&lease, "b1", vec![item("1", "a é"), item("2", "b")], page(ABSENT, 3));
    given.rejects = vec![reject(json!({ "bad": 1 }), None)];
    let written = t.persist(given).await;
    assert_eq!((written.counts, written.cursor_version, written.first), (counts(2, 0, 0, 1), Some(1), true));
    assert_eq!(t.rows("items").await, [row("1", "1", "a é"), row("2", "1", "b")]);
    assert_eq!(stored_cursor(t).await, (1, cursor(3)));
    let entry = t.entry(&keys().cursor).await.unwrap();
    assert_eq!((entry.request_id.as_str(), entry.last_writer.as_str()), ("b1", "meta-worker:issues"));
    let run = t.run("r1").await;
    assert_eq!((run.pages, run.counts, run.cursor), (1, counts(2, 0, 0, 1), Some(cursor(3))));
    let whole = t
        .sql("select tenant_id, project_id, directive, length(hash), size from items order by entity_id")
        .await;
    assert_eq!(whole[0], ["acme", "core", ISSUES, "64", "4"]);
    let bodies = t.sql("select body from items order by entity_id").await;
    assert_eq!(serde_json::from_str::<Value>(&bodies[0][0]).unwrap(), json!({ "id": "1", "title": "a é" }));
}

pub async fn what_is_unchanged_is_not_written(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.persist(batch(&lease, "b1", items(0..5, "a"), page(ABSENT, 5))).await;
    let before = t.sql("select * from items order by entity_id").await;
    let waiting = t.directives.outbox_next(TOPIC, None, 100).await.unwrap().len();
    t.clock.advance(Duration::from_secs(5));
    let again = t.persist(batch(&lease, "b2", items(0..5, "a"), page(at(1), 10))).await;
    assert_eq!((again.counts, again.cursor_version), (counts(0, 0, 5, 0), Some(2)));
    assert_eq!(t.sql("select * from items order by entity_id").await, before);
    assert_eq!(t.directives.outbox_next(TOPIC, None, 100).await.unwrap().len(), waiting);
}

pub async fn what_changed_is_written_with_a_higher_version(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.persist(batch(&lease, "b1", items(0..4, "a"), page(ABSENT, 4))).await;
    let made = t.sql("select created_at, updated_at from items order by entity_id").await;
    t.clock.advance(Duration::from_secs(5));
    let mut mixed = items(0..2, "a");
    mixed.extend(items(2..6, "b"));
    let second = t.persist(batch(&lease, "b2", mixed, page(at(1), 10))).await;
    assert_eq!(second.counts, counts(2, 2, 2, 0));
    let rows = t.rows("items").await;
    assert_eq!((&rows[0], &rows[3]), (&row("e00000", "1", "a"), &row("e00003", "2", "b")));
    assert_eq!((rows.len(), &rows[5]), (6, &row("e00005", "1", "b")));
    let now = t.sql("select created_at, updated_at from items order by entity_id").await;
    assert_eq!(now[0], made[0]);
    assert_eq!((&now[3][0], now[3][1] > made[3][1]), (&made[3][0], true));
    assert_eq!(t.run("r1").await.counts, counts(6, 2, 2, 0));
}

pub async fn the_same_entity_of_another_tenant_or_directive_is_another_row(t: &Ingest) {
    for (name, tenant, directive) in
        [("r1", "acme", ISSUES), ("r2", "other", ISSUES), ("r3", "acme", "pulls")]
    {
        let (lease, _) = t.begin_as(run_of(name, tenant, directive)).await;
        let written = t.persist(batch(&lease, "b1", vec![item("1", name)], page(ABSENT, 1))).await;
        assert_eq!(written.counts, counts(1, 0, 0, 0));
    }
    assert_eq!(t.rows("items").await, [row("1", "1", "r1"), row("1", "1", "r3"), row("1", "1", "r2")]);
    let announced = t.directives.outbox_next(TOPIC, None, 10).await.unwrap();
    let names: HashSet<&str> = announced.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

pub async fn a_batch_with_a_stale_cursor_leaves_nothing(t: &Ingest) {
    let lease = t.begin("r1").await;
    let full = |request: &str, expected| {
        let mut batch = batch(&lease, request, items(0..5, request), page(expected, 5));
        batch.rejects = vec![reject(json!({ "bad": request }), Some("e1"))];
        batch
    };
    assert_eq!(t.refused(full("b0", at(1))).await, "CONFLICT");
    t.persist(full("b1", ABSENT)).await;
    let (before, rows) = (t.traces().await, t.rows("items").await);
    for expected in [ABSENT, at(2), at(7)] {
        assert_eq!(t.refused(full("b2", expected)).await, "CONFLICT");
    }
    assert_eq!((t.traces().await, t.rows("items").await), (before, rows));
    t.persist(full("b2", at(1))).await;
}

pub async fn a_cursor_moved_by_hand_stops_the_run(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.persist(batch(&lease, "b1", items(0..2, "a"), page(ABSENT, 2))).await;
    let by_hand =
        crate::ingest::put(&keys().cursor, Some(serde_json::to_value(cursor(0)).unwrap()), at(1), "x");
    t.put(by_hand).await;
    assert_eq!(t.refused(batch(&lease, "b2", items(2..4, "a"), page(at(1), 4))).await, "CONFLICT");
    assert_eq!(stored_cursor(t).await, (2, cursor(0)));
    assert_eq!(t.rows("items").await.len(), 2);
}

pub async fn a_batch_sent_again_is_answered_as_it_was(t: &Ingest) {
    let lease = t.begin("r1").await;
    let mut given = batch(&lease, "b1", items(0..3, "a"), page(ABSENT, 4));
    given.rejects = vec![reject(json!({ "bad": 1 }), None)];
    let first = t.persist(given.clone()).await;
    let before = t.traces().await;
    t.clock.advance(Duration::from_secs(1));
    let again = t.another().await.persist(given.clone()).await.unwrap();
    assert_eq!(
        (again.first, again.counts, again.cursor_version),
        (false, first.counts, first.cursor_version)
    );
    assert_eq!(t.traces().await, before);
    t.directives.run_cancel(&lease.run).await.unwrap();
    assert!(t.persist(given.clone()).await.cancel_asked, "what is asked now is told");
    let next = t.begin("r1").await;
    let refused = t.refused(Batch { lease: next, ..given }).await;
    assert_eq!(refused, "CONFLICT", "another holder's batch of that name is another batch");
}

pub async fn a_batch_of_a_run_that_is_not_there_is_refused(t: &Ingest) {
    let lease = t.begin("r1").await;
    let stranger = Lease { run: stargate_directive::RunId("r9".to_owned()), ..lease.clone() };
    assert_eq!(t.refused(batch(&stranger, "b1", items(0..1, "a"), page(ABSENT, 1))).await, "CONFLICT");
    let higher = Lease { version: lease.version + 1, ..lease };
    assert_eq!(t.refused(batch(&higher, "b1", items(0..1, "a"), page(ABSENT, 1))).await, "CONFLICT");
    assert!(t.entry(&keys().cursor).await.is_none());
}

pub async fn a_batch_that_cannot_add_up_leaves_nothing(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.persist(batch(&lease, "b1", items(0..2, "a"), page(ABSENT, 2))).await;
    let (before, rows) = (t.traces().await, t.rows("items").await);
    let twice = vec![item("1", "x"), item("2", "x"), item("1", "y")];
    let mut short = item("1", "x");
    short.columns.pop();
    let mut mistyped = item("1", "x");
    mistyped.columns[1] = Cell::Text("7".to_owned());
    for bad in [twice, vec![item("0", "x"), short], vec![item("0", "x"), mistyped], vec![item("", "x")]] {
        assert_eq!(t.refused(batch(&lease, "b2", bad, page(at(1), 9))).await, "INVALID");
    }
    assert_eq!((t.traces().await, t.rows("items").await), (before, rows));
}

pub async fn a_batch_that_is_cut_off_leaves_all_or_nothing(t: &Ingest) {
    const POLLS_MAX: u32 = 400;
    let lease = t.begin("r1").await;
    let warm = t.persist(batch(&lease, "first", items(0..10, "a"), page(ABSENT, 10))).await;
    let (mut expected, mut processed) = (at(warm.cursor_version.expect("a cursor")), 10);
    for polls in 0..POLLS_MAX {
        let new = items(10 + polls * 10..20 + polls * 10, "a");
        let given = batch(&lease, &format!("cut after {polls}"), new, page(expected, processed + 10));
        let done = cut(polls as usize, t.directives.persist(given.clone())).await;
        let found = everywhere(t).await;
        assert!(
            [[processed; 4], [processed + 10; 4]].contains(&found),
            "half a batch after {polls} polls: {found:?}"
        );
        let written = t.persist(given).await;
        processed += 10;
        assert_eq!(written.counts, counts(10, 0, 0, 0), "once, whoever did it");
        assert_eq!(everywhere(t).await, [processed; 4]);
        expected = at(written.cursor_version.expect("a cursor"));
        if let Some(done) = done {
            assert_eq!((done.unwrap().counts, written.first), (written.counts, false));
            return;
        }
    }
    panic!("no batch was written within {POLLS_MAX} polls");
}

/// Rows, what the run counts, announcements, and how far the cursor is.
async fn everywhere(t: &Ingest) -> [u64; 4] {
    let rows = t.number("select count(*) from items").await.unsigned_abs();
    let announced = t.rows_of_own("directive_outbox").await.unsigned_abs();
    [rows, t.run("r1").await.counts.total(), announced, stored_cursor(t).await.1.processed_count]
}

pub async fn a_part_is_noted_and_forgotten_with_its_page(t: &Ingest) {
    let lease = t.begin("r1").await;
    let part = |accounted| Advance::Part(noted(accounted));
    let first = t.persist(batch(&lease, "b1", items(0..2, "a"), part(2))).await;
    assert_eq!((first.cursor_version, partial(t).await), (None, Some(noted(2))));
    t.persist(batch(&lease, "b2", items(2..4, "a"), part(4))).await;
    assert_eq!(partial(t).await, Some(noted(4)));
    assert_eq!((t.run("r1").await.pages, t.run("r1").await.cursor), (0, None));
    let whole = t.persist(batch(&lease, "b3", items(4..5, "a"), page(ABSENT, 5))).await;
    assert_eq!((whole.cursor_version, partial(t).await), (Some(1), None));
    let second = t.persist(batch(&lease, "b4", items(5..6, "a"), part(1))).await;
    assert_eq!((second.cursor_version, partial(t).await), (Some(1), Some(noted(1))));
    assert_eq!(t.run("r1").await.counts, counts(6, 0, 0, 0));
}

pub async fn the_last_page_is_noted_with_the_run(t: &Ingest) {
    let lease = t.begin("r1").await;
    let pages = |expected, is_last| Advance::Page { expected, cursor: cursor(1), pages: 3, is_last };
    t.persist(batch(&lease, "b1", items(0..1, "a"), pages(ABSENT, false))).await;
    assert!(!t.run("r1").await.source_ended);
    t.persist(batch(&lease, "b2", Vec::new(), pages(at(1), true))).await;
    t.persist(batch(&lease, "b3", Vec::new(), Advance::Still)).await;
    let run = t.run("r1").await;
    assert_eq!((run.source_ended, run.pages), (true, 6));
}

pub async fn a_batch_that_stands_still_moves_no_cursor(t: &Ingest) {
    let lease = t.begin("r1").await;
    let first = t.persist(batch(&lease, "b1", items(0..1, "a"), Advance::Still)).await;
    assert_eq!((first.counts, first.cursor_version), (counts(1, 0, 0, 0), None));
    t.persist(batch(&lease, "b2", items(1..2, "a"), page(ABSENT, 1))).await;
    let third = t.persist(batch(&lease, "b3", items(2..3, "a"), Advance::Still)).await;
    assert_eq!(third.cursor_version, Some(1));
    assert_eq!((t.run("r1").await.pages, t.run("r1").await.counts), (1, counts(3, 0, 0, 0)));
}

pub async fn a_replayed_batch_counts_only_what_it_changed(t: &Ingest) {
    let lease = t.begin("r1").await;
    let part = |accounted| Advance::Part(noted(accounted));
    let first = |request: &str, advance| {
        let mut batch = rejecting(&lease, request, 2, advance);
        batch.rows = crate::ingest::batch(&lease, request, items(0..3, "a"), Advance::Still).rows;
        batch
    };
    assert_eq!(t.persist(first("b1", part(5))).await.counts, counts(3, 0, 0, 2));
    let mut again = first("b2", part(7));
    let Rows::Here { items: given, .. } = &mut again.rows else { panic!("rows") };
    let given = std::sync::Arc::make_mut(given);
    given.extend(vec![item("e00002", "b"), item("new", "b")]);
    given.remove(2);
    again.rejects.push(reject(json!({ "bad": "new" }), None));
    again.replayed = true;
    let written = t.persist(again.clone()).await;
    assert_eq!(written.counts, counts(1, 1, 0, 1), "two unchanged and two rejects are known");
    assert_eq!(t.run("r1").await.counts, counts(4, 1, 0, 3));
    assert_eq!(t.persist(again).await.counts, counts(1, 1, 0, 1));
    let kept = t.directives.quarantine(crate::ingest::everything()).await.unwrap();
    assert_eq!(kept.iter().map(|one| one.seen).collect::<Vec<_>>(), [1, 1, 1]);
}

pub async fn rows_elsewhere_are_counted_as_they_are(t: &Ingest) {
    let lease = t.begin("r1").await;
    let mut given = rejecting(&lease, "b1", 2, page(ABSENT, 12));
    given.rows = Rows::Elsewhere { counts: counts(3, 4, 5, 0), entities: Vec::new() };
    let written = t.persist(given).await;
    assert_eq!((written.counts, written.cursor_version), (counts(3, 4, 5, 2), Some(1)));
    assert_eq!(t.run("r1").await.counts, counts(3, 4, 5, 2));
    assert!(t.directives.outbox_next(TOPIC, None, 10).await.unwrap().is_empty());
}

pub async fn without_a_topic_nothing_is_announced(t: &Ingest) {
    let lease = t.begin("r1").await;
    let mut given = batch(&lease, "b1", items(0..3, "a"), page(ABSENT, 3));
    let Rows::Here { topic, .. } = &mut given.rows else { panic!("rows") };
    *topic = None;
    t.persist(given).await;
    assert!(t.directives.outbox_waiting().await.unwrap().is_empty());
}

pub async fn a_batch_of_many_large_items_is_written(t: &Ingest) {
    let lease = t.begin("r1").await;
    let large = |number: u32| {
        let mut item = item(&format!("e{number:05}"), "a");
        item.body = raw(&json!({ "text": "x".repeat(10_000) }));
        item
    };
    let all: Vec<_> = (0..1000).map(large).collect();
    assert_eq!(t.persist(batch(&lease, "b1", all, page(ABSENT, 1000))).await.counts, counts(1000, 0, 0, 0));
    assert_eq!(t.number("select count(*) from items where version = 1").await, 1000);
}
