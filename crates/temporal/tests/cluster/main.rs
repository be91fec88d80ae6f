//! Runs on a real Temporal server, with a real store and a source that does exactly what the test wants.
//!
//! With `STARGATE_TEST_RECORD` set, the histories of some of these runs are written to `tests/histories/`, from where
//! `replay.rs` replays them. They are recorded anew only when the workflow changes in a way that running workflows of an
//! older version are not to survive.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[expect(
    dead_code,
    reason = "the macro writes a constant for workflows that call by type; ours calls by name"
)]
mod foreign;
mod runs;
mod schedules;
mod stops;
mod tls;
mod world;
