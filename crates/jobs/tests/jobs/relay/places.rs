//! Announcements to a file.

use std::collections::BTreeMap;

use serde_json::Value;
use stargate_directive::outbox::OutboxId;
use stargate_jobs::relay::Destination;
use stargate_testkit::eventually;

use super::outbox::{Directive, PATIENCE, TOPIC, emptied, waiting};
use super::{Fixture, LOCK_OVER};

#[tokio::test]
async fn a_file_gets_a_line_for_each_after_a_torn_one_is_ended() {
    let f = Fixture::start().await;
    let path = f.dir.path().join("changes.ndjson");
    std::fs::write(&path, "{\"id\": 0, \"payl").unwrap();
    let directive = Directive::begin(&f.store).await;
    // More than a page.
    for _ in 0..120 {
        directive.change(&["a", "b\nc"], 0).await;
    }
    let (stop, relay) = f.relay(Destination::File { path: path.clone() });
    emptied(&f.store).await;
    stop.cancel();
    relay.await.unwrap();

    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("{\"id\": 0, \"payl"));
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 240);
    for entity in ["a", "b\nc"] {
        let of_entity: Vec<&Value> =
            lines.iter().filter(|line| line["payload"]["entity_id"] == entity).collect();
        let versions: Vec<u64> =
            of_entity.iter().map(|line| line["payload"]["version"].as_u64().unwrap()).collect();
        assert_eq!(versions, (1..=120).collect::<Vec<u64>>());
        assert!(of_entity.iter().all(|line| line["topic"] == TOPIC && line["created_at"].is_string()));
        assert_eq!(of_entity[0]["key"], format!("acme/core/issues/{entity}"));
    }
}

#[tokio::test]
async fn a_relay_that_dies_after_a_write_writes_it_again_and_skips_nothing() {
    let f = Fixture::start().await;
    let path = f.dir.path().join("changes.ndjson");
    let written = || std::fs::read_to_string(&path).unwrap_or_default();
    let directive = Directive::begin(&f.store).await;
    for _ in 0..60 {
        directive.change(&["a", "b", "c", "d", "e"], 0).await;
    }
    // It dies when the lines are there and nothing is noted, and when some of it is.
    for kill in 0..8 {
        let (before, open) = (written().len(), waiting(&f.store).await.0);
        let (_, relay) = f.relay(Destination::File { path: path.clone() });
        eventually(PATIENCE, "a line, or a note", || async {
            let left = waiting(&f.store).await.0;
            let is_time = if kill % 2 == 0 { written().len() > before } else { left < open };
            if is_time || left == 0 { Ok(()) } else { Err(format!("{left} of {open} left")) }
        })
        .await;
        relay.abort();
        let _ = relay.await;
        // What it asked of the store is done before this is: a lock that it takes now must be over as well.
        f.store.outbox_failed(OutboxId(0), "no such announcement").await.unwrap();
        f.clock.advance(LOCK_OVER);
    }
    let (stop, relay) = f.relay(Destination::File { path: path.clone() });
    emptied(&f.store).await;
    stop.cancel();
    relay.await.unwrap();
    let lines: Vec<Value> = written().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    println!("300 announcements make {} lines with 8 kills", lines.len());
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    for line in &lines {
        let last = newest.entry(line["key"].as_str().unwrap()).or_default();
        let version = line["payload"]["version"].as_u64().unwrap();
        assert!(version <= *last + 1, "{} is skipped: {line}", *last + 1);
        *last = version.max(*last);
    }
    assert_eq!(newest.into_values().collect::<Vec<u64>>(), [60; 5]);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_named_and_tried_again() {
    let f = Fixture::start().await;
    let folder = f.dir.path().join("later");
    let path = folder.join("changes.ndjson");
    Directive::begin(&f.store).await.change(&["a"], 0).await;
    let (stop, relay) = f.relay(Destination::File { path: path.clone() });
    let problem = eventually(PATIENCE, "the problem", || async {
        waiting(&f.store).await.1.ok_or_else(|| "not tried".to_owned())
    })
    .await;
    assert!(problem.contains("cannot open") && problem.contains("changes.ndjson"), "{problem}");
    std::fs::create_dir(&folder).unwrap();
    emptied(&f.store).await;
    stop.cancel();
    relay.await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
}

#[tokio::test]
async fn a_channel_that_the_store_does_not_have_is_a_problem_that_is_told() {
    let f = Fixture::start().await;
    Directive::begin(&f.store).await.change(&["a"], 0).await;
    let (stop, relay) = f.relay(Destination::Notify { channel: "changes".into() });
    let problem = eventually(PATIENCE, "the problem", || async {
        waiting(&f.store).await.1.ok_or_else(|| "not tried".to_owned())
    })
    .await;
    assert!(problem.contains("channel") || problem.contains("notif"), "{problem}");
    stop.cancel();
    relay.await.unwrap();
    assert_eq!(waiting(&f.store).await.0, 1);
}
