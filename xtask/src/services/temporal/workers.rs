//! Temporal's SDKs for Python and TypeScript: tests run the workers in `examples/temporal` with them.
//!
//! The versions are those that the examples name for their users. A TypeScript worker is run by the Node.js that comes
//! with pg-boss.

use anyhow::Result;

use super::super::{Variables, npm, pip, programs};

/// The Python whose environment has `temporalio`.
const PYTHON: &str = "STARGATE_TEST_TEMPORAL_PYTHON";
/// The folder whose `node_modules` has `@temporalio/worker`.
const TYPESCRIPT: &str = "STARGATE_TEST_TEMPORAL_TYPESCRIPT";

const ENVIRONMENT: pip::Environment = pip::Environment {
    part: "temporal-python",
    package: "temporalio",
    path: "bin/python",
    versions: include_str!("../../../../examples/temporal/python/requirements.txt"),
    versions_file: "examples/temporal/python/requirements.txt",
};

const MODULES: npm::Modules = npm::Modules {
    part: "temporal-typescript",
    what: "Temporal's SDK for TypeScript",
    package: include_str!("../../../../examples/temporal/typescript/package.json"),
    lock: include_str!("../../../../examples/temporal/typescript/package-lock.json"),
};

/// Installs both, if they are not there yet.
pub(in super::super) fn install() -> Result<Variables> {
    programs::at_once(&[python, typescript], |install| install())
}

/// Whether what comes from PyPI is there.
pub(in super::super) fn are_there() -> bool {
    ENVIRONMENT.is_there()
}

fn python() -> Result<Variables> {
    let python = ENVIRONMENT.install(&pip::place()?)?;
    Ok(Variables::from([(PYTHON.to_owned(), python.to_string_lossy().into_owned())]))
}

fn typescript() -> Result<Variables> {
    let folder = MODULES.install()?;
    Ok(Variables::from([(TYPESCRIPT.to_owned(), folder.to_string_lossy().into_owned())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdks_and_all_that_they_need_have_one_version_and_no_address() {
        ENVIRONMENT.assert_pinned();
        MODULES.assert_pinned();
    }
}
