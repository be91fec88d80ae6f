//! Singer taps from PyPI, as tests run them: each in a virtual environment of its own, because they want different
//! versions of the same libraries.
//!
//! The environments are made without pip of their own, which Debian would want a further package for; the one that is
//! there installs into them.

use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, bail};

use super::{Variables, cache};
use crate::process;

/// A tap, and all that it needs with the versions it was tried with.
struct Tap {
    /// Tells tests where its program is.
    variable: &'static str,
    package: &'static str,
    program: &'static str,
    versions: &'static str,
}

const TAPS: [Tap; 3] = [
    Tap {
        variable: "STARGATE_TEST_TAP_JSONL",
        package: "tap-jsonl",
        program: "tap-jsonl",
        versions: include_str!("../../taps/tap-jsonl.txt"),
    },
    Tap {
        variable: "STARGATE_TEST_TAP_REST",
        package: "tap-rest-api-msdk",
        program: "tap-rest-api-msdk",
        versions: include_str!("../../taps/tap-rest-api-msdk.txt"),
    },
    Tap {
        variable: "STARGATE_TEST_TAP_POSTGRES",
        package: "meltanolabs-tap-postgres",
        program: "tap-postgres",
        versions: include_str!("../../taps/meltanolabs-tap-postgres.txt"),
    },
];

/// Installs those that are not there yet, all at once.
pub(super) fn install() -> Result<Variables> {
    // An environment names the Python it was made with, and its programs name the folder they are in.
    let python = "import sys; print(sys.version, sys.executable)";
    let python = process::output(process::command("python3").args(["-c", python]))
        .context("taps need Python 3: apt-get install python3")?;
    let place = format!("{}{}", python, process::root().display());
    thread::scope(|scope| {
        let installs = TAPS.iter().map(|tap| scope.spawn(|| tap.install(&place))).collect::<Vec<_>>();
        let joined = installs.into_iter().map(|install| match install.join() {
            Ok(installed) => installed,
            Err(_) => bail!("the installation of a tap panicked"),
        });
        joined.collect()
    })
}

/// Whether `install` has something to do, and so needs pip.
pub(super) fn pip_is_missing() -> bool {
    let there = TAPS
        .iter()
        .all(|tap| process::root().join("target/services").join(tap.package).join(tap.path()).is_file());
    let pip = || process::output(process::command("python3").args(["-m", "pip", "--version"]));
    !there && pip().is_err()
}

impl Tap {
    fn install(&self, place: &str) -> Result<(String, String)> {
        let stamp = format!("{place}\n{}", self.versions);
        let folder = cache::installed(self.package, &stamp, |folder| self.install_in(folder))?;
        let program = folder.join(self.path());
        if !program.is_file() {
            bail!("pip installed no {}: remove {} and try again", program.display(), folder.display());
        }
        Ok((self.variable.to_owned(), program.to_string_lossy().into_owned()))
    }

    fn install_in(&self, folder: &Path) -> Result<()> {
        let pinned = self.pinned()?;
        eprintln!("installing {pinned} with pip");
        let mut venv = process::command("python3");
        venv.args(["-m", "venv", "--without-pip"]).arg(folder);
        process::logged(&mut venv, &folder.join("venv.log"))
            .context("cannot make an environment for a tap")?;
        let constraints = process::root().join("xtask/taps").join(format!("{}.txt", self.package));
        let mut pip = process::command("python3");
        pip.args(["-m", "pip", "--python"]).arg(folder.join("bin/python"));
        pip.args(["install", "--no-compile", "--only-binary=:all:", "--constraint"]).arg(constraints);
        pip.arg(pinned).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        process::logged(&mut pip, &folder.join("pip.log")).with_context(|| {
            format!("cannot install a Singer tap; try by hand: python3 -m pip download {pinned}")
        })
    }

    /// The package with its version, as its list has it.
    fn pinned(&self) -> Result<&'static str> {
        let line = self
            .versions
            .lines()
            .find(|line| line.strip_prefix(self.package).is_some_and(|version| version.starts_with("==")));
        line.with_context(|| format!("xtask/taps/{}.txt does not name its own package", self.package))
    }

    fn path(&self) -> String {
        format!("bin/{}", self.program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tap_and_all_that_it_needs_has_one_version_and_no_address() {
        for tap in &TAPS {
            assert!(tap.pinned().unwrap().len() > tap.package.len() + 2);
            for line in tap.versions.lines() {
                let (name, version) =
                    line.split_once("==").unwrap_or_else(|| panic!("{line} has no version"));
                assert!(!name.is_empty() && version.starts_with(|c: char| c.is_ascii_digit()), "{line}");
                assert!(!line.contains([' ', '/', '@']), "{line}");
            }
        }
    }
}
