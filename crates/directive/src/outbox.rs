//! Announcements of changes, written with them and delivered afterwards.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_queue::job::Json;

/// Names an announcement; rises with the order of changes of one entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutboxId(pub i64);

/// An announcement.
#[derive(Debug, Clone)]
pub struct Announcement {
    /// Its name, the same at each delivery.
    pub id: OutboxId,
    /// The directive's topic.
    pub topic: String,
    /// What it is about: announcements of one key are delivered in order.
    pub key: String,
    /// `{directive, tenant_id, project_id, entity_id, change: created|updated, version, body}`.
    pub payload: Json,
    /// When the change was made.
    pub created_at: Timestamp,
    /// Deliveries tried.
    pub attempts: u32,
}

/// What waits to be delivered under one topic.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// The topic.
    pub topic: String,
    /// How many.
    pub count: u64,
    /// When the oldest was written.
    pub since: Timestamp,
    /// Why its last delivery failed, if one was tried.
    pub problem: Option<String>,
}
