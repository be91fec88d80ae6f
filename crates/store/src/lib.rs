//! Where jobs are kept: SQLite and Postgres side by side, with the same meaning (INV-9).
//!
//! Beside them `pgboss`: a queue of others, from which work is taken.
//!
//! Each adapter keeps the contracts of `stargate_queue::store`, `stargate_repo::store`, `stargate_access::tokens` and
//! `stargate_access::audit`; its statements lie in `sql/<store>/`, its schema in `migrations/<store>/`.

mod activity;
mod bytes;
pub mod databases;
mod directive_rows;
pub mod pgboss;
pub mod postgres;
mod repo_rows;
mod scan;
pub mod sqlite;
pub mod terms;
pub mod transfer;
