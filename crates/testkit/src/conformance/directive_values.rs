//! Small values with a version. The rules are in `stargate_directive::store`.

use stargate_directive::kv::{Expected, Purpose, Put, PutAnswer};

use super::prelude::*;
use crate::ingest::{Ingest, batch, conflicts_counted, items, key, keys, page, put};

const ABSENT: Expected = Expected::Absent;

fn at(version: u64) -> Expected {
    Expected::Version(version)
}

async fn conflict(t: &Ingest, put: Put) -> Option<(u64, Value)> {
    match t.directives.kv_put(put).await.unwrap() {
        PutAnswer::Stored { version } => panic!("stored as {version}"),
        PutAnswer::Conflict { current } => current.map(|entry| (entry.version, value(&entry.value))),
    }
}

pub async fn a_value_reads_back_as_it_was_put(t: &Ingest) {
    let key = key("directive/issues/cursor");
    assert!(t.entry(&key).await.is_none());
    let given = Put {
        spec_ref: Some("specs/é.md".to_owned()),
        ..put(&key, Some(json!({"a": [1, "ü"]})), ABSENT, "r1")
    };
    assert_eq!(t.put(given).await, 1);
    let entry = t.another().await.kv_get(&key).await.unwrap().expect("seen by another process");
    assert_eq!(
        (entry.key.as_str(), entry.version, value(&entry.value)),
        (key.as_str(), 1, json!({"a": [1, "ü"]}))
    );
    assert_eq!((entry.request_id.as_str(), entry.last_writer.as_str()), ("r1", "meta-worker:issues"));
    assert_eq!((entry.purpose, entry.spec_ref.as_deref()), (Purpose::Cursor, Some("specs/é.md")));
    assert_eq!(entry.updated_at, t.clock.now());
}

pub async fn a_write_that_expects_something_else_is_told_what_is_there(t: &Ingest) {
    let key = key("x");
    assert_eq!(conflict(t, put(&key, Some(json!(1)), at(1), "r0")).await, None);
    t.put(put(&key, Some(json!(1)), ABSENT, "r1")).await;
    assert_eq!(conflict(t, put(&key, Some(json!(2)), ABSENT, "r2")).await, Some((1, json!(1))));
    assert_eq!(conflict(t, put(&key, Some(json!(2)), at(2), "r3")).await, Some((1, json!(1))));
    assert_eq!(t.put(put(&key, Some(json!(2)), at(1), "r4")).await, 2);
    assert_eq!(conflict(t, put(&key, Some(json!(3)), at(1), "r5")).await, Some((2, json!(2))));
}

pub async fn of_racing_writers_with_the_same_expectation_one_is_stored(t: &Ingest) {
    let (key, others) = (key("race"), [t.another().await, t.another().await]);
    let mut expected = ABSENT;
    for round in 0..20 {
        let answers = race(6, |writer| {
            let directives = [&t.directives, &others[0], &others[1]][writer % 3].clone();
            let put = put(&key, Some(json!(writer)), expected, &format!("{round}-{writer}"));
            async move { directives.kv_put(put).await.unwrap() }
        })
        .await;
        let stored = answers.iter().filter(|answer| matches!(answer, PutAnswer::Stored { .. })).count();
        assert_eq!(stored, 1, "in round {round}");
        let version = t.entry(&key).await.expect("a value").version;
        assert_eq!(version, round + 1);
        expected = at(version);
    }
}

pub async fn a_version_goes_on_after_a_removal(t: &Ingest) {
    let key = key("x");
    t.put(put(&key, Some(json!(1)), ABSENT, "r1")).await;
    assert_eq!(t.put(put(&key, None, at(1), "r2")).await, 2);
    assert!(t.entry(&key).await.is_none());
    assert_eq!(conflict(t, put(&key, Some(json!(2)), at(2), "r3")).await, None);
    assert_eq!(t.put(put(&key, Some(json!(2)), ABSENT, "r4")).await, 3);
}

pub async fn a_write_sent_again_is_stored_once(t: &Ingest) {
    let key = key("x");
    let first = put(&key, Some(json!({"a": 1, "b": 2})), ABSENT, "r1");
    assert_eq!((t.put(first.clone()).await, t.put(first).await), (1, 1));
    let spelt_otherwise = Put {
        value: Some(RawValue::from_string("{ \"b\":2, \"a\":1 }".to_owned()).unwrap()),
        ..put(&key, None, ABSENT, "r1")
    };
    assert_eq!(t.put(spelt_otherwise).await, 1);
    let another_content = put(&key, Some(json!({"a": 2})), at(1), "r1");
    assert_eq!(conflict(t, another_content).await, Some((1, json!({"a": 1, "b": 2}))));
    let removal = put(&key, None, at(1), "r2");
    assert_eq!((t.put(removal.clone()).await, t.put(removal).await), (2, 2));
    assert_eq!(t.put(put(&key, Some(json!(3)), ABSENT, "r3")).await, 3);
}

pub async fn a_value_whose_time_is_over_is_absent_for_everybody(t: &Ingest) {
    let (key, ttl) = (key("short"), Duration::from_secs(60));
    t.put(Put { ttl: Some(ttl), ..put(&key, Some(json!(1)), ABSENT, "r1") }).await;
    t.clock.advance(ttl - Duration::from_micros(1));
    assert!(t.entry(&key).await.is_some());
    assert_eq!(conflict(t, put(&key, Some(json!(2)), ABSENT, "r2")).await, Some((1, json!(1))));
    t.clock.advance(Duration::from_micros(1));
    assert!(t.entry(&key).await.is_none());
    assert!(t.directives.kv_list("", None, 10).await.unwrap().is_empty());
    assert_eq!(conflict(t, put(&key, Some(json!(2)), at(1), "r3")).await, None);
    assert_eq!(t.put(put(&key, Some(json!(2)), ABSENT, "r4")).await, 2);
    t.clock.advance(ttl * 1000);
    assert!(t.entry(&key).await.is_some(), "without a time to live it stays");
}

pub async fn a_write_by_hand_leaves_a_row_in_the_audit(t: &Ingest) {
    let key = key("directive/issues/cursor");
    let by_hand = |value, expected, request| Put {
        writer: "ann:issues".to_owned(),
        spec_ref: Some(format!("why-{request}")),
        ..put(&key, value, expected, request)
    };
    t.put(put(&key, Some(json!(1)), ABSENT, "r1")).await;
    t.clock.advance(Duration::from_secs(5));
    let second = by_hand(Some(json!(2)), at(1), "r2");
    t.put(second.clone()).await;
    t.put(second).await;
    conflict(t, by_hand(Some(json!(9)), at(1), "r3")).await;
    t.put(by_hand(None, at(2), "r4")).await;
    t.put(Put { spec_ref: Some("other".to_owned()), ..put(&key_of_another(), Some(json!(0)), ABSENT, "r5") })
        .await;
    let audit = t.directives.kv_overrides(key.as_str(), 10).await.unwrap();
    let told: Vec<_> = audit
        .iter()
        .map(|row| {
            (
                row.spec_ref.as_str(),
                row.before.as_ref().map(value),
                row.after.as_ref().map(value),
                row.version,
            )
        })
        .collect();
    assert_eq!(told, [("why-r4", Some(json!(2)), None, 3), ("why-r2", Some(json!(1)), Some(json!(2)), 2)]);
    assert_eq!((audit[1].writer.as_str(), audit[1].at, &audit[1].key), ("ann:issues", t.clock.now(), &key));
    assert_eq!(t.directives.kv_overrides("", 1).await.unwrap()[0].spec_ref, "other");
}

fn key_of_another() -> stargate_directive::Key {
    key("directive/other/cursor")
}

pub async fn values_are_listed_by_key_page_by_page(t: &Ingest) {
    let names = ["a", "a.b", "a/b", "a0", "b"];
    for name in names {
        t.put(put(&key(name), Some(json!(name)), ABSENT, "r1")).await;
    }
    t.put(put(&key("a0"), None, at(1), "r2")).await;
    let prefix = "tenant/acme/project/core/a";
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = t.directives.kv_list(prefix, after.as_deref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.key.as_str().to_owned());
        seen.extend(page.iter().map(|entry| value(&entry.value)));
    }
    assert_eq!(seen, [json!("a"), json!("a.b"), json!("a/b")]);
    assert_eq!(t.directives.kv_list("", None, PAGE_MAX + 1).await.unwrap().len(), 4);
}

pub async fn a_write_without_names_is_refused(t: &Ingest) {
    let (key, long) = (key("x"), "x".repeat(5000));
    let good = || put(&key, Some(json!(1)), ABSENT, "r1");
    let bad = [
        Put { request_id: String::new(), ..good() },
        Put { request_id: "a\0b".to_owned(), ..good() },
        Put { request_id: long.clone(), ..good() },
        Put { writer: String::new(), ..good() },
        Put { writer: "a\0b".to_owned(), ..good() },
        Put { spec_ref: Some("a\0b".to_owned()), ..good() },
        Put { spec_ref: Some(long), ..good() },
    ];
    for put in bad {
        let told = format!("{put:?}");
        let refused = t.directives.kv_put(put).await.expect_err(&told);
        assert_eq!(refused.code(), "INVALID", "{told}");
    }
    assert!(t.entry(&key).await.is_none());
}

pub async fn conflicts_are_counted(t: &Ingest) {
    let key = key("x");
    let first = put(&key, Some(json!(1)), ABSENT, "r1");
    let again = conflicts_counted(async {
        t.put(first.clone()).await;
        t.put(first).await;
    });
    assert_eq!(again.await, 0);
    assert_eq!(conflicts_counted(conflict(t, put(&key, Some(json!(2)), at(7), "r2"))).await, 1);
    let lease = t.begin("r1").await;
    let written = conflicts_counted(t.persist(batch(&lease, "b1", items(0..1, "a"), page(ABSENT, 1))));
    assert_eq!(written.await, 0);
    let stale = conflicts_counted(t.refused(batch(&lease, "b2", items(0..1, "a"), page(ABSENT, 1))));
    assert_eq!(stale.await, 1);
    t.put(put(&keys().run, None, at(lease.version), "r3")).await;
    let lost = conflicts_counted(t.refused(batch(&lease, "b3", items(0..1, "a"), page(at(1), 1))));
    assert_eq!(lost.await, 1);
}
