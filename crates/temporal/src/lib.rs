//! Directives on a Temporal cluster: the same seven steps, carried by a workflow and its activities.
//!
//! ```text
//!   Cluster::start ──▶ workflow directive:<name>            on the directive's queue, polled by us and by others
//!                         │  begin   plan, cursor, orphans  on <queue>:steps, polled only by us
//!                         │  fetch   a page elsewhere       on the queue of the activity source, another language
//!                         │  pages   a stretch of pages     on <queue>:steps; heartbeats carry the cursor
//!                         │  end     only if the workflow was cancelled or failed
//!                         └─ continues as new when its history is long
//! ```
//!
//! The truth about a run is in the store: the cursor is moved by the transaction that wrote the batch, and every write is
//! fenced by the lease. Temporal decides who executes the next stretch and when, nothing else; so an activity that is
//! executed twice, or goes on after its worker was given up, writes nothing wrong.

mod activities;
mod cluster;
mod connect;
mod describe;
mod error;
mod failure;
mod given;
mod metrics;
pub mod plan;
mod schedules;
mod search;
mod serve;
mod view;
#[expect(missing_docs, reason = "the macros of the SDK write constants without a text")]
pub mod workflow;

pub use activities::Host;
pub use cluster::{Cluster, Started};
pub use connect::{Settings, Tls};
pub use describe::{Description, LENT, Polled};
pub use error::{Error, Result};
pub use schedules::Scheduled;
pub use serve::{ServeOptions, serve};
pub use stargate_directive::steps::Progress;
pub use view::{Closed, Pending, Status, Workflow};

/// What runs on a cluster are called in the store.
pub const ENGINE: &str = "temporal";

/// The workflow of a directive.
pub fn workflow_id(directive: &str) -> String {
    format!("{WORKFLOW_ID_PREFIX}{directive}")
}

/// What the names of our workflows and schedules begin with.
pub(crate) const WORKFLOW_ID_PREFIX: &str = "directive:";

/// The task queue of our own activities beside a directive's queue. Everybody who polls activities of a queue must know
/// the same ones, and workers in other languages do not know ours.
pub fn steps_queue(queue: &str) -> String {
    format!("{queue}:steps")
}
