//! What tests share: private servers, a hand-driven clock, the conformance suite of the store, the seeded
//! simulation, and a handle on the real binary.
//!
//! Everything here runs inside tests only: other crates name it as a dev-dependency. It knows the contract
//! (`stargate-queue`) and no adapter, so that it compiles while an adapter does not; the test that runs a suite
//! hands in how to open a store.
#![expect(clippy::unwrap_used, reason = "everything here runs inside tests, where a panic is the report")]

pub mod boss;
pub mod clock;
pub mod cluster;
pub mod conformance;
mod environment;
pub mod eventually;
pub mod fixture;
pub mod git;
pub mod ingest;
pub mod pgboss;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod s3;
pub mod simulation;
pub mod source_server;
pub mod tables;
pub mod temporal;

pub use clock::{ManualClock, start_of_time};
pub use eventually::eventually;
pub use fixture::Fixture;
