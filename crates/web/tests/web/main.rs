//! The HTTP side with a real store behind it.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, but not what they call")]

mod access;
mod enqueue;
mod errors;
mod events;
mod fixture;
mod forward;
mod health;
mod jobs;
mod leader;
mod nodes;
mod operate;
