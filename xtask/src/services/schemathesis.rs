//! Schemathesis from PyPI: it sends a real node what its API's description allows and forbids, and compares the answers.

use anyhow::Result;

use super::Variables;
use super::pip::{self, Environment};

/// The program.
const PROGRAM: &str = "STARGATE_TEST_SCHEMATHESIS";

const ENVIRONMENT: Environment = Environment {
    part: "schemathesis",
    package: "schemathesis",
    path: "bin/schemathesis",
    versions: include_str!("../../schemathesis/versions.txt"),
    versions_file: "xtask/schemathesis/versions.txt",
};

/// Installs it, if it is not there yet.
pub(super) fn install() -> Result<Variables> {
    let program = ENVIRONMENT.install(&pip::place()?)?;
    Ok(Variables::from([(PROGRAM.to_owned(), program.to_string_lossy().into_owned())]))
}

/// Whether it is there, so that no pip is needed.
pub(super) fn is_there() -> bool {
    ENVIRONMENT.is_there()
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_and_all_that_it_needs_has_one_version_and_no_address() {
        super::ENVIRONMENT.assert_pinned();
    }
}
