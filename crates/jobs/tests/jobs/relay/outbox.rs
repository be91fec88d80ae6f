//! Announcements as a directive leaves them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::value::to_raw_value;
use sha2::{Digest as _, Sha256};
use stargate_directive::item::{Advance, Batch, Item, Rows, Table};
use stargate_directive::kv::Keys;
use stargate_directive::run::{Begin, Lease, NewRun, RunId};
use stargate_directive::store::SharedDirectives;
use stargate_testkit::eventually;

pub(super) const TOPIC: &str = "items.changed";
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A run that changes entities.
pub(super) struct Directive {
    store: SharedDirectives,
    lease: Lease,
    changes: AtomicU64,
}

impl Directive {
    pub(super) async fn begin(store: &SharedDirectives) -> Self {
        let run = NewRun {
            id: RunId("run-1".into()),
            directive: "issues".into(),
            tenant: "acme".into(),
            project: "core".into(),
            engine: "embedded".into(),
            workflow_id: "1".into(),
            worker: "test".into(),
            lease: Keys::of("acme", "core", "issues").unwrap().run,
            lease_for: Duration::from_secs(3600),
        };
        let Begin::Begun { lease, .. } = store.run_begin(run).await.unwrap() else { panic!("held") };
        Self { store: store.clone(), lease, changes: AtomicU64::new(0) }
    }

    /// Changes each of these once: one announcement each. The body has `bytes` more than it needs.
    pub(super) async fn change(&self, entities: &[&str], bytes: usize) {
        let change = self.changes.fetch_add(1, Ordering::Relaxed);
        let item = |entity: &&str| {
            let body = to_raw_value(&serde_json::json!({"change": change, "filler": "x".repeat(bytes)}));
            Item {
                entity_id: (*entity).to_owned(),
                hash: Sha256::digest(format!("{entity} {change}")).into(),
                body: body.unwrap(),
                columns: Vec::new(),
            }
        };
        let rows = Rows::Here {
            table: Arc::new(Table { name: "items".into(), columns: Vec::new() }),
            items: Arc::new(entities.iter().map(item).collect()),
            topic: Some(TOPIC.into()),
        };
        let batch = Batch {
            lease: self.lease.clone(),
            request_id: format!("batch-{change}"),
            rows,
            rejects: Vec::new(),
            resolves: Vec::new(),
            replayed: false,
            advance: Advance::Still,
        };
        let persisted = self.store.persist(batch).await.unwrap();
        assert_eq!(persisted.counts.total(), entities.len() as u64);
    }
}

/// How many wait, and why the oldest failed if it did.
pub(super) async fn waiting(store: &SharedDirectives) -> (u64, Option<String>) {
    let found = store.outbox_waiting().await.unwrap();
    found.into_iter().find(|one| one.topic == TOPIC).map_or((0, None), |one| (one.count, one.problem))
}

/// Until everything is noted as delivered.
pub(super) async fn emptied(store: &SharedDirectives) {
    eventually(PATIENCE, "an empty outbox", || async {
        match waiting(store).await {
            (0, _) => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })
    .await;
}
