//! The API of the real binary: what only the whole program knows, and what a stranger sends.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, but not what they call")]

mod client;
mod directives;
mod mirror;
mod schemathesis;
mod settings;
