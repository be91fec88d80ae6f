//! Sources against what really happens: a server and files that do as told.
#![expect(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod failures;
mod file;
mod fixture;
mod growing;
mod http;
mod large;
mod links;
