//! The messages of the live stream `GET events`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Jobs that changed since the last message of this type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobsChanged {
    /// Those that are known, newest first.
    pub ids: Vec<i64>,
    /// Whether there may be more than these.
    pub more: bool,
}

/// How the mirrors of this node stand, from what its workers say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MirrorsNow {
    /// By repository.
    pub mirrors: Vec<MirrorNow>,
}

/// How one mirror stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MirrorNow {
    /// The repository.
    pub repo: String,
    /// `closed`: the remote answers; `open` or `probing`: it is away.
    pub breaker: String,
    /// Entries that wait.
    pub backlog: u64,
    /// How long the oldest of them has waited.
    pub lag_seconds: f64,
}

/// Who leads, seen from this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaderNow {
    /// This node's role, `leader` or `standby`; null if it takes no part.
    pub role: Option<String>,
    /// What it is doing.
    pub phase: Option<String>,
    /// Who leads, as far as it knows.
    pub leader: Option<String>,
    /// The number of its own term.
    pub epoch: Option<u64>,
}

/// The client has missed messages: what it shows is to be read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reset {
    /// Why.
    pub reason: String,
}
