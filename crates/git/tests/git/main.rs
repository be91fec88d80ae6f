//! Real repositories and real remotes, with every git that is there: the one on `PATH`, and those that
//! `STARGATE_TEST_GITS` names (programs separated by colons).

#![expect(clippy::unwrap_used, reason = "a test may end that way, and the functions it calls with it")]

mod fixture;
mod network;
mod push;
mod query;
mod serve;
