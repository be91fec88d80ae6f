//! The clock of our processes, stepped: a library between them and the system (libfaketime) tells them the time, with an offset
//! from a file. The database, the lock and the checker keep the machine's own; so do waits, which go by a clock that never steps.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use stargate_testkit::process::Program;

/// Where Debian has it, under the name of the architecture.
const LIBRARIES: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The offset of all processes that were started with it.
#[derive(Debug)]
pub(crate) struct Clock {
    file: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// One that shows the right time; nothing where the library is missing.
    pub(crate) fn find(folder: &Path) -> Result<Option<Self>> {
        let architectures = std::fs::read_dir(LIBRARIES).context(LIBRARIES)?.flatten();
        let Some(library) =
            architectures.map(|folder| folder.path().join(LIBRARY)).find(|path| path.exists())
        else {
            return Ok(None);
        };
        let clock = Self { file: folder.join("clock"), library };
        clock.step("+0")?;
        Ok(Some(clock))
    }

    /// Has a program go by it.
    pub(crate) fn given_to(&self, program: Program) -> Program {
        program
            .with("LD_PRELOAD", self.library.display().to_string())
            .with("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string())
            .with("FAKETIME_CACHE_DURATION", "1")
            .with("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }

    /// Steps by an offset from the right time, in seconds: `+3600`.
    pub(crate) fn step(&self, offset: &str) -> Result<()> {
        std::fs::write(&self.file, format!("{offset}\n")).context("the file with the clock's offset")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_goes_by_the_clock_it_is_given() {
        let shell = Program::new("/bin/sh");
        let Some(clock) = Clock::find(shell.home()).unwrap() else {
            panic!("libfaketime is missing: apt-get install libfaketime")
        };
        let file = shell.home().join("clock").display().to_string();
        let shell = clock.given_to(shell);
        let year = || shell.answer(&["-c", "date +%Y"]).parse::<u32>().unwrap();
        let now = year();
        clock.step("+2y").unwrap();
        assert_eq!(year(), now + 2, "{file}");
        clock.step("+0").unwrap();
        assert_eq!(year(), now);
    }
}
