//! What comes from npm: a folder with `node_modules`, as a lock file has it.
//!
//! The lock files name no server to download from: npm asks the one it is set up for, and the checksums decide.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::cache;
use crate::process;

/// Packages that are used together.
pub(super) struct Modules {
    /// Their folder in `target/services`.
    pub(super) part: &'static str,
    /// What they are, for people.
    pub(super) what: &'static str,
    /// The text of `package.json`.
    pub(super) package: &'static str,
    /// The text of `package-lock.json`.
    pub(super) lock: &'static str,
}

impl Modules {
    /// Installs them, if they are not there yet: the folder that has `node_modules`.
    pub(super) fn install(&self) -> Result<PathBuf> {
        cache::installed(self.part, &format!("{}{}", self.package, self.lock), |folder| {
            let npm = process::find("npm").context("npm is missing: apt-get install npm")?;
            eprintln!("installing {} with npm", self.what);
            fs::write(folder.join("package.json"), self.package).context("cannot write package.json")?;
            fs::write(folder.join("package-lock.json"), self.lock)
                .context("cannot write package-lock.json")?;
            let mut command = process::command(npm);
            command.current_dir(folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
            // It is not npm's own Node that will run them.
            command.arg("--engine-strict=false");
            process::logged(&mut command, &folder.join("npm.log")).with_context(|| {
                format!("cannot install {}; see whether npm reaches its registry: npm ping", self.what)
            })
        })
    }

    /// Panics unless the lock file has checksums and no addresses.
    #[cfg(test)]
    pub(super) fn assert_pinned(&self) {
        assert!(self.lock.contains("\"integrity\": \"sha512-"));
        assert!(
            !self.lock.contains("\"resolved\""),
            "an address says where from: npm's settings decide that"
        );
    }
}
