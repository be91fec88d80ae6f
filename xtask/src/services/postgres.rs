//! A private Postgres cluster: default durability, small, reachable from this machine only.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::account::Account;
use super::daemon;
use super::packages::postgres_programs;
use crate::process;

/// Creates the cluster and waits until it answers.
pub(super) fn start(folder: &Path, account: &Account, port: u16) -> Result<()> {
    let programs = postgres_programs().context("Postgres is missing: apt-get install postgresql")?;
    let data = folder.join("data");
    let mut initdb = account.command(&programs.join("initdb"), folder);
    initdb
        .args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--pgdata"])
        .arg(&data);
    process::logged(&mut initdb, &folder.join("initdb.log")).with_context(|| {
        format!(
            "cannot create a cluster in {}; the user that runs Postgres must be able to reach it",
            folder.display()
        )
    })?;
    let settings = data.join("postgresql.conf");
    let text =
        fs::read_to_string(&settings).with_context(|| format!("cannot read {}", settings.display()))?;
    fs::write(&settings, text + &own_settings(folder, port))
        .with_context(|| format!("cannot write {}", settings.display()))?;

    let log = folder.join("postgres.log");
    let mut pg_ctl = account.command(&programs.join("pg_ctl"), folder);
    pg_ctl
        .args(["start", "--wait", "--timeout=60", "--silent", "--pgdata"])
        .arg(&data)
        .arg("--log")
        .arg(&log);
    process::logged(&mut pg_ctl, &folder.join("pg_ctl.log"))
        .with_context(|| format!("Postgres does not start:\n{}", process::tail(&log)))
}

/// Stops the server, if it runs. The data is thrown away, so it need not be a tidy end.
pub(super) fn stop(folder: &Path, account: &Account) -> Result<()> {
    // After a crash its own file may still name a process; pg_ctl would fail.
    if !runs(folder) {
        return Ok(());
    }
    let programs = postgres_programs().context("pg_ctl is missing: apt-get install postgresql")?;
    let mut pg_ctl = account.command(&programs.join("pg_ctl"), folder);
    pg_ctl.args(["stop", "--wait", "--timeout=60", "--mode=immediate", "--silent", "--pgdata"]);
    process::logged(pg_ctl.arg(folder.join("data")), &folder.join("pg_ctl.log"))
}

/// Whether the server runs.
pub(super) fn runs(folder: &Path) -> bool {
    let data = folder.join("data");
    daemon::alive(&data.join("postmaster.pid"), &data).is_some()
}

/// What differs from the defaults. `fsync` and `synchronous_commit` do not: crash tests rely on them.
fn own_settings(folder: &Path, port: u16) -> String {
    format!(
        "\nlisten_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\n\
         shared_buffers = 128MB\nmax_connections = 300\nlogging_collector = off\nlog_min_messages = warning\n",
        folder.display()
    )
}
