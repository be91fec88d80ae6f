//! Leadership: of several nodes one at a time acts, for as long as it can prove that it may (INV-3).
//!
//! ```text
//!             granted             epoch issued
//!  Standby ───────────▶ Entering ─────────────▶ Leader ⟲ renew
//!     ▲                    │                      │ shutdown · step-down · lost
//!     │                    │ no epoch             │ renewal failed · expired · suspended
//!     │    released        ▼         joined       ▼
//!     └──────────────── Leaving ◀───────────── Leaving (guarded work is ending)
//! ```
//!
//! What it stands on:
//!
//! - **A lock that expires** ([`Lease`]): in Redis, in a file, or none. Whoever holds it may lead.
//! - **A deadline** ([`Term`]): trust in the lock counts from *before* the request that got it and ends a margin
//!   *before* the lock does, on a clock that counts suspend. [`Leadership::is_leader`] asks the clock at each use.
//! - **An epoch** ([`Epochs`]): issued by the protected store after the lock was got and compared by it inside every
//!   guarded write. A process can be stopped between any check and the write it was for; only the store can refuse
//!   that write.
//! - **Joined work** ([`Guard`]): a node that steps down ends its work first and gives the lock back after.
//!
//! What happens when …
//!
//! | | |
//! | --- | --- |
//! | the leader dies | the lock expires; a standby that watches takes it within 50 ms after |
//! | it ends or is asked to step down | work is joined under the lock, dropped after half a second; the lock is released, the standby told |
//! | it was asked to step down | it does not bid for a while, but looks who leads, and follows that one like any standby |
//! | a renewal fails | tried again after 500 ms, 1 s, 2 s; then it steps down, well before the deadline |
//! | it is paused beyond its lease | `is_leader` is false when it wakes; late answers count for nothing; writes are refused |
//! | the store has issued a higher epoch | writes are refused; whoever is told calls [`Leadership::deposed`], and the node steps down |
//! | two nodes share a store but no lock | they depose each other, wait longer each time, and say what to do |
//! | the lock cannot be reached | tried after 5 s, 10 s, … 60 s, and at once when Redis answers again |
//! | Redis loses the lock | the leader steps down at the next renewal; nobody is granted it for a time to live |
//! | Redis fails over to a replica | the lock was on all replicas, or was not granted |
//!
//! [`Elector`] decides all of this and knows neither clock nor network; [`Service`] drives it.

pub mod boot;
pub mod config;
pub mod elector;
pub mod epoch;
pub mod error;
pub mod file;
pub mod lease;
pub mod metrics;
pub mod redis;
pub mod service;
pub mod term;
pub mod unlocked;

pub use config::{Config, Settings};
pub use elector::{Elector, Phase, Reason};
pub use epoch::{Epoch, Epochs, MemoryEpochs};
pub use error::{Error, Result};
pub use file::FileLease;
pub use lease::{Holder, Lease};
pub use redis::RedisLease;
pub use service::Service;
pub use term::{Guard, Leadership, Standing, Term};
pub use unlocked::Unlocked;
