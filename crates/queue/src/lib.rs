//! The contract and the engine of jobs.
//!
//! ```text
//!              enqueue                claim                   settle
//!  producers ─────────▶  queued  ───────────▶  processing  ───────────▶  done | failed | cancelled
//!                          ▲                        │
//!                          └────────────────────────┘
//!                     retry · stale lease · shutdown
//! ```

pub mod bulk;
mod claimer;
pub mod context;
pub mod error;
pub mod event;
pub mod exemplar;
pub mod explain;
pub mod handler;
mod heartbeat;
pub mod intake;
pub mod job;
pub mod kind;
pub mod leadership;
pub mod limits;
pub mod listing;
mod local;
pub mod metrics;
pub mod pool;
pub mod pressure;
mod progress;
mod reporter;
pub mod retry;
mod runner;
pub mod schedule;
pub mod scheduler;
pub mod store;
pub mod trace;

pub use context::Context;
pub use error::{Error, Result};
pub use handler::{Failure, Registry};
pub use job::{Due, Fence, Job, JobError, JobId, Json, LeaseToken, NewJob, Stage, State, WorkerId};
pub use kind::{KindSpec, Profile};
pub use pool::{Pool, PoolConfig, PoolHandle};
pub use store::{SharedStore, Store};
