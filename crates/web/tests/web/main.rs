//! The HTTP side with a real store behind it.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, but not what they call")]

mod access;
mod audit;
mod bulk;
mod enqueue;
mod errors;
mod events;
mod fixture;
mod forward;
mod health;
mod jobs;
mod leader;
mod live;
mod nodes;
mod openapi;
mod operate;
mod plans;
mod redact;
mod session;
