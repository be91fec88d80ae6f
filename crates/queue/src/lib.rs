//! The contract and the engine of jobs.
//!
//! ```text
//!              enqueue                claim                   settle
//!  producers ─────────▶  queued  ───────────▶  processing  ───────────▶  done | failed | cancelled
//!                          ▲                        │
//!                          └────────────────────────┘
//!                     retry · stale lease · shutdown
//! ```

pub mod error;
pub mod event;
pub mod job;
pub mod kind;
pub mod limits;
pub mod schedule;
pub mod store;

pub use error::{Error, Result};
pub use job::{Due, Fence, Job, JobError, JobId, Json, LeaseToken, NewJob, Stage, State, WorkerId};
pub use kind::{KindSpec, Profile};
pub use store::{SharedStore, Store};
