//! Records that could not become items.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_queue::job::Json;

use crate::run::RunId;

/// Names a quarantined record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuarantineId(pub i64);

/// A record that was kept aside.
#[derive(Debug, Clone)]
pub struct Quarantined {
    /// Its name.
    pub id: QuarantineId,
    /// The directive.
    pub directive: String,
    /// Whose data it is.
    pub tenant: String,
    /// Of which project.
    pub project: String,
    /// The run that kept it aside first.
    pub run: RunId,
    /// The record.
    pub record: Json,
    /// A stable word.
    pub cause: String,
    /// What is wrong with it.
    pub reason: String,
    /// The entity, if that much could be read.
    pub entity_id: Option<String>,
    /// How often it came; the same record is kept once.
    pub seen: u64,
    /// When it came first.
    pub created_at: Timestamp,
    /// When it became an item after all.
    pub resolved_at: Option<Timestamp>,
}

/// Which records to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantineFilter {
    /// Only of this directive.
    pub directive: Option<String>,
    /// Also those that became items.
    pub resolved: bool,
    /// Only with a smaller number: the keyset for the next page.
    pub before: Option<QuarantineId>,
    /// Page size.
    pub limit: u32,
}
