//! The gateway with the stock git client, over a real socket, with real repositories and hooks.
#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod client;
mod crowd;
mod fetch;
mod fixture;
mod hooks;
mod log;
mod memory;
mod push;
mod raw;
mod refuse;
mod repositories;
mod ssh;
mod term;
mod vanish;
