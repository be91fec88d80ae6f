//! What every other crate stands on: error classes and causes, backoff, the clock, durable files, epochs, who holds a lock, process
//! groups and what ends them after a kill, the owner of tasks, traces.
//!
//! No network, no store, no environment: those belong to the crates above.

pub mod backoff;
pub mod chain;
pub mod class;
pub mod clock;
pub mod durable;
pub mod epoch;
pub mod holder;
pub mod process;
pub mod secret;
pub mod tasks;
pub mod trace;
pub mod warden;

pub use backoff::Backoff;
pub use chain::chain;
pub use class::ErrorClass;
pub use clock::Clock;
pub use epoch::Epoch;
pub use holder::Holder;
pub use process::Process;
pub use secret::Secret;
pub use tasks::Tasks;
