//! The programs that tests and servers need, installed: all at once, since each waits for its download.

use std::path::PathBuf;
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Result, bail};

use super::{Variables, browser, packages, pgboss, prometheus, schemathesis, seaweedfs, taps, temporal};

/// What is installed.
pub(super) struct Programs {
    /// Those that are started as servers.
    pub(super) servers: Servers,
    /// What tests read about programs that they run themselves.
    pub(super) variables: Variables,
}

/// Programs of servers that Debian does not have.
pub(super) struct Servers {
    pub(super) weed: PathBuf,
    pub(super) temporal: PathBuf,
}

impl Programs {
    /// Installs what is missing.
    pub(super) fn install() -> Result<Self> {
        packages::install_missing()?;
        thread::scope(|scope| {
            let weed = scope.spawn(seaweedfs::install);
            let temporal = scope.spawn(temporal::install);
            let used_by_tests = [
                pgboss::install,
                taps::install,
                temporal::install_workers,
                browser::install,
                prometheus::install,
                schemathesis::install,
            ];
            let mut variables = at_once(&used_by_tests, |install| install())?;
            let servers = Servers { weed: joined(weed)?, temporal: joined(temporal)? };
            variables.extend(temporal::program_variable(&servers.temporal));
            variables.extend(seaweedfs::program_variable(&servers.weed));
            Ok(Self { servers, variables })
        })
    }
}

/// Installs all of them, each on a thread of its own.
pub(super) fn at_once<T: Sync>(
    parts: &[T],
    install: impl Fn(&T) -> Result<Variables> + Sync,
) -> Result<Variables> {
    let install = &install;
    thread::scope(|scope| {
        let installs = parts.iter().map(|part| scope.spawn(move || install(part))).collect::<Vec<_>>();
        let mut variables = Variables::new();
        for installing in installs {
            variables.extend(joined(installing)?);
        }
        Ok(variables)
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    match thread.join() {
        Ok(installed) => installed,
        Err(_) => bail!("an installation panicked"),
    }
}
