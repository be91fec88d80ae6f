//! PgBouncer in transaction mode in front of the private cluster: where LISTEN and session state do not work.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::account::Account;
use super::daemon;
use super::packages::pgbouncer_program;
use crate::process;

const PATIENCE: Duration = Duration::from_secs(15);

/// Starts PgBouncer and waits until it answers.
pub(super) fn start(folder: &Path, account: &Account, port: u16, postgres_port: u16) -> Result<()> {
    let settings = folder.join("pgbouncer.ini");
    fs::write(&settings, settings_text(folder, port, postgres_port))
        .with_context(|| format!("cannot write {}", settings.display()))?;
    let mut pgbouncer = account.command(&pgbouncer_program()?, folder);
    pgbouncer.args(["--quiet", "--daemon"]).arg(&settings);
    process::logged(&mut pgbouncer, &folder.join("pgbouncer.out"))?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    if !daemon::wait_until(PATIENCE, || TcpStream::connect_timeout(&address, PATIENCE).is_ok()) {
        bail!("PgBouncer does not answer on port {port}:\n{}", process::tail(&folder.join("pgbouncer.log")));
    }
    Ok(())
}

/// Stops PgBouncer, if it runs.
pub(super) fn stop(folder: &Path) -> Result<()> {
    daemon::kill("PgBouncer", &pid_file(folder), folder)
}

/// Whether PgBouncer runs.
pub(super) fn runs(folder: &Path) -> bool {
    daemon::alive(&pid_file(folder), folder).is_some()
}

fn pid_file(folder: &Path) -> PathBuf {
    folder.join("pgbouncer.pid")
}

/// `auth_type = any` because tests connect as whom they like; it needs the fixed user for the server's side.
fn settings_text(folder: &Path, port: u16, postgres_port: u16) -> String {
    let folder = folder.display();
    format!(
        "[databases]\n* = host=127.0.0.1 port={postgres_port} user=postgres\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
         pool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = 20\n\
         ignore_startup_parameters = extra_float_digits\nlogfile = {folder}/pgbouncer.log\n\
         pidfile = {folder}/pgbouncer.pid\n"
    )
}
