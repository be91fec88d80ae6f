//! Where a real pg-boss is, and a Node.js that can run it.
//!
//! `cargo xtask test` installs both and names them in the environment.

use std::path::PathBuf;

use crate::environment;

const MISSING: &str = "no pg-boss for tests";

/// The `node` program.
pub fn node() -> PathBuf {
    environment::required("STARGATE_TEST_NODE", MISSING).into()
}

/// The folder whose `node_modules` has `pg-boss` and `pg`.
pub fn folder() -> PathBuf {
    environment::required("STARGATE_TEST_PGBOSS", MISSING).into()
}
