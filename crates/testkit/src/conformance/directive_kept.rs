//! What is kept aside and what is announced. The rules are in `stargate_directive::store`.

use stargate_directive::item::{Advance, Batch, Reject, Rows};
use stargate_directive::outbox::OutboxId;
use stargate_directive::quarantine::{QuarantineFilter, QuarantineId, Quarantined};
use stargate_directive::run::{End, Outcome as RunOutcome};
use stargate_directive::store::{OUTBOX_KEPT, RUNS_KEPT, RUNS_PURGED_MAX};
use stargate_directive::{Expected, Lease, Put};

use super::prelude::*;
use crate::ingest::{
    ISSUES, Ingest, TOPIC, batch, counts, everything, item, items, key, page, put, raw, reject, run_of,
};

fn still(lease: &Lease, request: &str, rejects: Vec<Reject>) -> Batch {
    Batch { rejects, ..batch(lease, request, Vec::new(), Advance::Still) }
}

async fn open(t: &Ingest) -> Vec<Quarantined> {
    let filter = QuarantineFilter { directive: Some(ISSUES.to_owned()), resolved: false, ..everything() };
    t.directives.quarantine(filter).await.unwrap()
}

pub async fn a_reject_is_kept_with_its_reason(t: &Ingest) {
    let lease = t.begin("r1").await;
    let bad = reject(json!({ "id": 7, "é": null }), Some("7"));
    let text = Reject {
        record: raw(&json!("no JSON \u{0} <html>")),
        cause: "ty\0pe".to_owned(),
        reason: "an odd \0".to_owned(),
        entity_id: None,
    };
    assert_eq!(t.persist(still(&lease, "b1", vec![bad, text])).await.counts, counts(0, 0, 0, 2));
    let kept = open(t).await;
    assert_eq!(kept.len(), 2);
    let first = &kept[1];
    assert_eq!(
        (first.directive.as_str(), first.tenant.as_str(), first.project.as_str()),
        (ISSUES, "acme", "core")
    );
    assert_eq!((first.run.0.as_str(), value(&first.record)), ("r1", json!({ "id": 7, "é": null })));
    assert_eq!((first.cause.as_str(), first.reason.as_str()), ("schema", "/title is missing"));
    assert_eq!((first.entity_id.as_deref(), first.seen), (Some("7"), 1));
    assert_eq!((first.created_at, first.resolved_at), (t.clock.now(), None));
    assert_eq!((value(&kept[0].record), &kept[0].entity_id), (json!("no JSON \u{0} <html>"), &None));
    assert_eq!((kept[0].cause.as_str(), kept[0].reason.as_str()), ("ty\u{FFFD}pe", "an odd \u{FFFD}"));
}

pub async fn the_same_reject_is_kept_once_and_counted(t: &Ingest) {
    let lease = t.begin("r1").await;
    let bad = || reject(json!({ "a": 1, "b": 2 }), None);
    t.persist(still(&lease, "b1", vec![bad(), bad()])).await;
    t.clock.advance(Duration::from_secs(1));
    let spelt = Reject {
        record: RawValue::from_string("{\"b\": 2,  \"a\": 1}".to_owned()).unwrap(),
        cause: "type".to_owned(),
        ..bad()
    };
    assert_eq!(t.persist(still(&lease, "b2", vec![spelt])).await.counts, counts(0, 0, 0, 1));
    let kept = open(t).await;
    assert_eq!((kept.len(), kept[0].seen, kept[0].cause.as_str()), (1, 3, "type"));
    assert_eq!(kept[0].created_at, t.clock.now() - Duration::from_secs(1));
    let (other, _) = t.begin_as(run_of("r2", "other", ISSUES)).await;
    t.persist(still(&other, "b1", vec![bad()])).await;
    assert_eq!(open(t).await.len(), 2, "another tenant's is another record");
}

pub async fn an_item_resolves_the_records_of_its_entity(t: &Ingest) {
    let lease = t.begin("r1").await;
    let (other, _) = t.begin_as(run_of("r2", "other", ISSUES)).await;
    t.persist(batch(&lease, "b0", vec![item("3", "a")], Advance::Still)).await;
    let bad = |entity: &str| reject(json!({ "id": entity }), Some(entity));
    t.persist(still(&lease, "b1", vec![bad("1"), bad("2"), bad("3"), reject(json!("x"), None)])).await;
    t.persist(still(&other, "b1", vec![bad("1")])).await;
    t.clock.advance(Duration::from_secs(1));
    t.persist(batch(&lease, "b2", vec![item("1", "a"), item("3", "a")], Advance::Still)).await;
    let left: Vec<_> = open(t).await.into_iter().map(|one| (one.tenant, one.entity_id)).collect();
    let some = |entity: &str| Some(entity.to_owned());
    assert_eq!(
        left,
        [("other".to_owned(), some("1")), ("acme".to_owned(), None), ("acme".to_owned(), some("2"))]
    );
    let all = t.directives.quarantine(everything()).await.unwrap();
    let resolved: Vec<_> = all.iter().filter_map(|one| one.resolved_at).collect();
    assert_eq!(resolved, [t.clock.now(); 2], "an unchanged item resolves too");
}

pub async fn a_batch_resolves_the_records_it_names(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.persist(still(&lease, "b1", vec![reject(json!("x"), None), reject(json!("y"), None)])).await;
    let ids: Vec<QuarantineId> = open(t).await.iter().map(|one| one.id).collect();
    let refused = Batch {
        resolves: ids.clone(),
        ..batch(&lease, "b2", items(0..1, "a"), page(Expected::Version(9), 1))
    };
    assert_eq!(t.refused(refused).await, "CONFLICT");
    assert_eq!(open(t).await.len(), 2, "with its batch or not at all");
    let one = Batch { resolves: vec![ids[0]], ..batch(&lease, "b2", items(0..1, "a"), Advance::Still) };
    t.persist(one).await;
    assert_eq!(open(t).await.iter().map(|one| one.id).collect::<Vec<_>>(), [ids[1]]);
}

pub async fn a_record_that_is_rejected_again_is_open_again(t: &Ingest) {
    let lease = t.begin("r1").await;
    let bad = || reject(json!({ "id": "1" }), Some("1"));
    t.persist(still(&lease, "b1", vec![bad()])).await;
    let id = open(t).await[0].id;
    t.persist(batch(&lease, "b2", vec![item("1", "a")], Advance::Still)).await;
    assert!(open(t).await.is_empty());
    t.persist(Batch { resolves: vec![id], ..still(&lease, "b3", vec![bad()]) }).await;
    let kept = open(t).await;
    assert_eq!((kept.len(), kept[0].id, kept[0].seen, kept[0].resolved_at), (1, id, 2, None));
    let both = Batch { rejects: vec![bad()], ..batch(&lease, "b4", vec![item("1", "b")], Advance::Still) };
    t.persist(both).await;
    assert_eq!(open(t).await.len(), 1, "what is rejected with its entity's item is not hidden by it");
}

pub async fn quarantined_records_are_listed_newest_first_page_by_page(t: &Ingest) {
    let lease = t.begin("r1").await;
    let (pulls, _) = t.begin_as(run_of("r2", "acme", "pulls")).await;
    t.persist(still(&lease, "b1", (0..5).map(|number| reject(json!(number), None)).collect())).await;
    t.persist(still(&pulls, "b1", vec![reject(json!("pulls"), None)])).await;
    let second = open(t).await[3].id;
    t.directives.quarantine_resolve(second).await.unwrap();
    let list = async |directive: Option<&str>, resolved| {
        let (mut seen, mut before) = (Vec::new(), None);
        loop {
            let filter =
                QuarantineFilter { directive: directive.map(str::to_owned), resolved, before, limit: 2 };
            let page = t.directives.quarantine(filter).await.unwrap();
            let Some(last) = page.last() else { break seen };
            before = Some(last.id);
            seen.extend(page.iter().map(|one| value(&one.record)));
        }
    };
    assert_eq!(list(Some(ISSUES), false).await, [json!(4), json!(3), json!(2), json!(0)]);
    assert_eq!(list(Some(ISSUES), true).await, [json!(4), json!(3), json!(2), json!(1), json!(0)]);
    assert_eq!(list(None, false).await[..2], [json!("pulls"), json!(4)]);
    assert_eq!(list(None, true).await.len(), 6);
    assert!(list(Some("nobody"), true).await.is_empty());
}

pub async fn a_record_is_resolved_once(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.persist(still(&lease, "b1", vec![reject(json!(1), None)])).await;
    let id = open(t).await[0].id;
    assert!(t.directives.quarantine_resolve(id).await.unwrap());
    assert!(!t.directives.quarantine_resolve(id).await.unwrap());
    assert!(!t.directives.quarantine_resolve(QuarantineId(99_999)).await.unwrap());
}

pub async fn announcements_tell_what_changed_in_order(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.persist(batch(&lease, "b1", vec![item("1", "a"), item("2", "a")], page(Expected::Absent, 2))).await;
    t.clock.advance(Duration::from_secs(1));
    t.persist(batch(&lease, "b2", vec![item("1", "b"), item("2", "a")], page(Expected::Version(1), 4))).await;
    let next = t.directives.outbox_next(TOPIC, None, 10).await.unwrap();
    assert_eq!(next.len(), 3);
    assert!(next[0].id < next[1].id && next[1].id < next[2].id);
    assert_eq!(value(&next[0].payload)["change"], json!("created"));
    let expected = json!({
        "directive": ISSUES, "tenant_id": "acme", "project_id": "core", "entity_id": "1", "change": "updated",
        "version": 2, "body": { "id": "1", "title": "b" },
    });
    assert_eq!(value(&next[2].payload), expected);
    assert_eq!((next[2].topic.as_str(), next[2].attempts, next[2].created_at), (TOPIC, 0, t.clock.now()));
    assert_eq!(next[0].key, next[2].key);
    assert_ne!(next[0].key, next[1].key);
    assert!(t.directives.outbox_next("another", None, 10).await.unwrap().is_empty());
}

pub async fn announcements_are_given_page_by_page_past_those_that_fail(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.persist(batch(&lease, "b1", items(0..5, "a"), Advance::Still)).await;
    let first = t.directives.outbox_next(TOPIC, None, 2).await.unwrap();
    for one in &first {
        t.directives.outbox_failed(one.id, "503").await.unwrap();
    }
    let second = t.directives.outbox_next(TOPIC, Some(first[1].id), 2).await.unwrap();
    assert!(second[0].id > first[1].id);
    assert!(t.directives.outbox_done(second[0].id).await.unwrap());
    let rest: Vec<OutboxId> =
        t.directives.outbox_next(TOPIC, None, 10).await.unwrap().iter().map(|one| one.id).collect();
    assert_eq!(rest.len(), 4);
    assert_eq!(rest[..3], [first[0].id, first[1].id, second[1].id]);
}

pub async fn an_announcement_arrives_once(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.persist(batch(&lease, "b1", items(0..1, "a"), Advance::Still)).await;
    let id = t.directives.outbox_next(TOPIC, None, 10).await.unwrap()[0].id;
    let others = [t.directives.clone(), t.another().await];
    let answers = race(6, |number| {
        let directives = others[number % 2].clone();
        async move { directives.outbox_done(id).await.unwrap() }
    })
    .await;
    assert_eq!(answers.into_iter().filter(|first| *first).count(), 1);
    assert!(t.directives.outbox_next(TOPIC, None, 10).await.unwrap().is_empty());
    assert!(!t.directives.outbox_done(OutboxId(99_999)).await.unwrap());
}

pub async fn what_waits_is_told_by_topic_with_the_problem_of_the_oldest(t: &Ingest) {
    assert!(t.directives.outbox_waiting().await.unwrap().is_empty());
    let lease = t.begin("r1").await;
    let began = t.clock.now();
    t.persist(batch(&lease, "b1", items(0..2, "a"), Advance::Still)).await;
    t.clock.advance(Duration::from_secs(9));
    t.persist(batch(&lease, "b2", items(2..4, "a"), Advance::Still)).await;
    let waiting = t.directives.outbox_waiting().await.unwrap();
    assert_eq!((waiting.len(), waiting[0].topic.as_str(), waiting[0].count), (1, TOPIC, 4));
    assert_eq!((waiting[0].since, &waiting[0].problem), (began, &None));
    let next = t.directives.outbox_next(TOPIC, None, 10).await.unwrap();
    t.directives.outbox_failed(next[0].id, "refused").await.unwrap();
    t.directives.outbox_failed(next[0].id, "timed out é").await.unwrap();
    assert_eq!(t.directives.outbox_waiting().await.unwrap()[0].problem.as_deref(), Some("timed out é"));
    assert_eq!(t.directives.outbox_next(TOPIC, None, 1).await.unwrap()[0].attempts, 2);
    for one in &next[..2] {
        t.directives.outbox_done(one.id).await.unwrap();
    }
    t.directives.outbox_failed(next[0].id, "too late").await.unwrap();
    let waiting = t.directives.outbox_waiting().await.unwrap();
    assert_eq!((waiting[0].count, waiting[0].since, &waiting[0].problem), (2, t.clock.now(), &None));
}

pub async fn delivered_announcements_go_after_two_days(t: &Ingest) {
    let lease = t.begin("r1").await;
    t.persist(batch(&lease, "b1", items(0..4, "a"), Advance::Still)).await;
    let ids: Vec<OutboxId> =
        t.directives.outbox_next(TOPIC, None, 10).await.unwrap().iter().map(|one| one.id).collect();
    t.directives.outbox_done(ids[0]).await.unwrap();
    t.clock.advance(OUTBOX_KEPT);
    t.directives.outbox_done(ids[1]).await.unwrap();
    assert!(!t.directives.outbox_done(ids[0]).await.unwrap());
    assert_eq!(t.rows_of_own("directive_outbox").await, 4, "just two days are not more");
    t.clock.advance(Duration::from_secs(1));
    t.directives.outbox_done(ids[2]).await.unwrap();
    assert_eq!(t.rows_of_own("directive_outbox").await, 3, "and what waits stays however long");
}

async fn end(t: &Ingest, lease: &Lease) {
    let end = End { outcome: RunOutcome::Succeeded, error: None };
    assert!(t.directives.run_end(lease, end).await.unwrap());
}

pub async fn rows_elsewhere_resolve_the_records_of_their_entities(t: &Ingest) {
    let lease = t.begin("r1").await;
    let bad = |entity: &str| reject(json!({ "id": entity }), Some(entity));
    t.persist(still(&lease, "b1", vec![bad("1"), bad("2")])).await;
    let mut given = still(&lease, "b2", Vec::new());
    given.rows = Rows::Elsewhere { counts: counts(1, 0, 0, 0), entities: vec!["1".to_owned()] };
    t.persist(given).await;
    let left: Vec<_> = open(t).await.into_iter().filter_map(|one| one.entity_id).collect();
    assert_eq!(left, ["2"]);
}

pub async fn what_ended_long_ago_goes_and_what_is_open_stays(t: &Ingest) {
    let lease = t.begin("old").await;
    let (open_one, _) = t.begin_as(run_of("open", "acme", "pulls")).await;
    t.persist(still(&lease, "b1", vec![reject(json!(1), None), reject(json!(2), None)])).await;
    t.directives.quarantine_resolve(open(t).await[0].id).await.unwrap();
    let by_hand = |name: &str| Put {
        spec_ref: Some(name.to_owned()),
        ..put(&key(name), Some(json!(1)), Expected::Absent, "r1")
    };
    t.put(by_hand("a")).await;
    end(t, &lease).await;
    t.clock.advance(RUNS_KEPT);
    let tables = ["directive_run", "directive_quarantine", "kv_override"];
    let left = async || {
        let mut all = Vec::new();
        for table in tables {
            all.push(t.rows_of_own(table).await);
        }
        all
    };
    let lease = t.begin("later").await;
    end(t, &lease).await;
    assert_eq!(left().await, [3, 2, 1], "just ninety days are not more");
    t.put(by_hand("b")).await;
    t.clock.advance(Duration::from_secs(1));
    let lease = t.begin("last").await;
    end(t, &lease).await;
    assert_eq!(left().await, [3, 1, 1]);
    let names = t.directives.runs(None, None, 10).await.unwrap().into_iter().map(|run| run.id.0);
    assert_eq!(names.collect::<Vec<_>>(), ["last", "later", "open"]);
    assert_eq!(value(&open(t).await[0].record), json!(1));
    assert_eq!(t.directives.kv_overrides("", 10).await.unwrap()[0].spec_ref, "b");
    t.begin_as(run_of("open", "acme", "pulls")).await;
    drop(open_one);
}

pub async fn what_ended_long_ago_goes_a_few_at_a_time(t: &Ingest) {
    const MORE: u32 = 7;
    let lease = t.begin("r1").await;
    let all = RUNS_PURGED_MAX + MORE;
    t.persist(still(&lease, "b1", (0..all).map(|number| reject(json!(number), None)).collect())).await;
    let ids: Vec<QuarantineId> = t
        .directives
        .quarantine(QuarantineFilter { limit: all, ..everything() })
        .await
        .unwrap()
        .iter()
        .map(|one| one.id)
        .collect();
    t.persist(Batch { resolves: ids, ..still(&lease, "b2", Vec::new()) }).await;
    t.clock.advance(RUNS_KEPT + Duration::from_secs(1));
    for (run, left) in [("r2", i64::from(MORE)), ("r3", 0)] {
        let lease = t.begin(run).await;
        end(t, &lease).await;
        assert_eq!(t.rows_of_own("directive_quarantine").await, left);
    }
}
