//! Where jobs are kept: SQLite and Postgres side by side, with the same meaning (INV-9).
//!
//! Beside them `pgboss`: a queue of others, from which work is taken.
//!
//! Each adapter keeps the contracts of `stargate_queue::store`, `stargate_repo::store` and `stargate_access::tokens`; its
//! statements lie in `sql/<store>/`, its schema in `migrations/<store>/`.

mod bytes;
pub mod databases;
mod directive_rows;
pub mod pgboss;
pub mod postgres;
mod repo_rows;
pub mod sqlite;
pub mod terms;
pub mod transfer;
