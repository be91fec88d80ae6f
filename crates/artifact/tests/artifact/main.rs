//! Artifacts in a real folder and on a real S3 server: published whole, once, whatever dies.

#![expect(clippy::unwrap_used, reason = "a test may end that way, and the functions it calls with it")]

mod contract;
mod fixture;
mod kill;
mod local;
mod s3;
