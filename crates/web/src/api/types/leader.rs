//! Leadership as it goes over the wire.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_leader::Standing;
use stargate_queue::leadership::TermRow;
use utoipa::ToSchema;

/// The role of the node that leads.
pub(crate) const LEADER: &str = "leader";
/// The role of every other node that takes part.
pub(crate) const STANDBY: &str = "standby";

/// The role of a node: leader only while its term is valid.
pub(crate) fn role(standing: &Standing) -> &'static str {
    if standing.term.is_some() { LEADER } else { STANDBY }
}

/// Whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Who leads, seen from one node.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Leader {
    /// The node that answers.
    pub instance: String,
    /// Its role, `leader` or `standby`; null if it takes no part.
    pub role: Option<String>,
    /// Who leads, as far as it knows.
    pub leader: Option<Node>,
    /// The number of the newest term.
    pub epoch: Option<u64>,
    /// How long the leader's lock lives without renewal.
    pub lease_expires_in_ms: Option<u64>,
    /// What the node is doing: `standby`, `entering`, `leader`, `leaving` or `ended`; null if it takes no part.
    pub phase: Option<String>,
    /// What went wrong last, while nothing has gone right since.
    pub trouble: Option<String>,
    /// Where the lock is kept: `file`, `redis` or `none`.
    pub backend: String,
    /// The newest terms, newest first.
    pub terms: Vec<Term>,
    /// Pairs of epochs among them whose terms overlap. There should be none.
    pub overlaps: Vec<(u64, u64)>,
}

/// A node.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its name.
    pub instance: String,
    /// Where clients reach it.
    pub address: Option<String>,
}

/// A term of leadership.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Term {
    /// Its number.
    pub epoch: u64,
    /// The node that led.
    pub instance: String,
    /// Where it was reached.
    pub address: Option<String>,
    /// When it began, by the store's clock.
    pub began_at: Timestamp,
    /// When it ended; null while it goes on.
    pub ended_at: Option<Timestamp>,
    /// Why.
    pub reason: Option<String>,
}

impl From<TermRow> for Term {
    fn from(term: TermRow) -> Self {
        Self {
            epoch: term.epoch.get(),
            instance: term.instance,
            address: term.address,
            began_at: term.began_at,
            ended_at: term.ended_at,
            reason: term.reason,
        }
    }
}
