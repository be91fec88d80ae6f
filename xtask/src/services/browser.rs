//! What tests of the page drive: Debian's Chromium, and from npm what steers it and what judges a page for people who do
//! not see it.
//!
//! playwright-core brings no browser of its own, and is run by the Node.js that comes with pg-boss.

use anyhow::{Context as _, Result};

use super::{Variables, npm};
use crate::process;

/// The browser.
const CHROMIUM: &str = "STARGATE_TEST_CHROMIUM";
/// The folder whose `node_modules` has `playwright-core` and `axe-core`.
const FOLDER: &str = "STARGATE_TEST_BROWSER";

const MODULES: npm::Modules = npm::Modules {
    part: "browser",
    what: "playwright-core and axe-core",
    package: include_str!("../../browser/package.json"),
    lock: include_str!("../../browser/package-lock.json"),
};

/// Installs what is not there yet.
pub(super) fn install() -> Result<Variables> {
    let chromium = process::find("chromium").context("chromium is missing: apt-get install chromium")?;
    let folder = MODULES.install()?;
    Ok(Variables::from([
        (CHROMIUM.to_owned(), chromium.to_string_lossy().into_owned()),
        (FOLDER.to_owned(), folder.to_string_lossy().into_owned()),
    ]))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_lock_file_has_checksums_and_no_addresses() {
        super::MODULES.assert_pinned();
    }
}
