//! The handlers in a real engine over a real store.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, but not what they call")]

mod clip;
mod courier;
mod exec;
mod fixture;
mod http;
mod purge;
mod relay;
mod retry_matching;
