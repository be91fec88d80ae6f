//! Singer taps from PyPI, as tests run them: each in a virtual environment of its own, because they want different
//! versions of the same libraries.

use anyhow::Result;

use super::pip::{self, Environment};
use super::{Variables, programs};

/// A tap, and what tells tests where its program is.
struct Tap {
    variable: &'static str,
    environment: Environment,
}

const TAPS: [Tap; 3] = [
    Tap {
        variable: "STARGATE_TEST_TAP_JSONL",
        environment: Environment {
            part: "tap-jsonl",
            package: "tap-jsonl",
            path: "bin/tap-jsonl",
            versions: include_str!("../../taps/tap-jsonl.txt"),
            versions_file: "xtask/taps/tap-jsonl.txt",
        },
    },
    Tap {
        variable: "STARGATE_TEST_TAP_REST",
        environment: Environment {
            part: "tap-rest-api-msdk",
            package: "tap-rest-api-msdk",
            path: "bin/tap-rest-api-msdk",
            versions: include_str!("../../taps/tap-rest-api-msdk.txt"),
            versions_file: "xtask/taps/tap-rest-api-msdk.txt",
        },
    },
    Tap {
        variable: "STARGATE_TEST_TAP_POSTGRES",
        environment: Environment {
            part: "meltanolabs-tap-postgres",
            package: "meltanolabs-tap-postgres",
            path: "bin/tap-postgres",
            versions: include_str!("../../taps/meltanolabs-tap-postgres.txt"),
            versions_file: "xtask/taps/meltanolabs-tap-postgres.txt",
        },
    },
];

/// Installs those that are not there yet, all at once.
pub(super) fn install() -> Result<Variables> {
    let place = pip::place()?;
    programs::at_once(&TAPS, |tap| {
        let program = tap.environment.install(&place)?;
        Ok(Variables::from([(tap.variable.to_owned(), program.to_string_lossy().into_owned())]))
    })
}

/// Whether all are there, so that no pip is needed.
pub(super) fn are_there() -> bool {
    TAPS.iter().all(|tap| tap.environment.is_there())
}

#[cfg(test)]
mod tests {
    use super::TAPS;

    #[test]
    fn every_tap_and_all_that_it_needs_has_one_version_and_no_address() {
        for tap in &TAPS {
            tap.environment.assert_pinned();
        }
    }
}
