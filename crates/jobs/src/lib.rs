//! The kinds that ship with Stargate, and the two ways to handle a kind without writing Rust.
//!
//! - [`clip`]: cuts a part out of a recording with ffmpeg and publishes it.
//! - [`courier`]: brings what happened in repositories to the servers of webhooks.
//! - [`exec`]: a program is started for each execution; the payload is its stdin, its stdout reports back.
//! - [`http`]: a server is called for each execution, with a signed body if it wants one.
//! - [`relay`]: delivers the announcements that directives leave in the outbox; no kind, a service beside the pool.
//! - [`purge`]: `jobs:purge_completed`, which keeps the history from growing without end.
//! - [`retry_matching`]: `jobs:retry_matching`, which retries all failed jobs that match a filter.
//!
//! [`process`] is the only place that starts child processes for handlers. It promises that none of them
//! outlives its execution, whether that ends by itself, by the timeout, by being dropped, or by the death of the
//! whole worker.

mod address;
pub mod clip;
pub mod courier;
pub mod exec;
mod execution;
mod fetch;
pub mod http;
mod lines;
mod pipes;
mod post;
pub mod process;
pub mod purge;
pub mod relay;
pub mod retry_matching;
mod tail;
