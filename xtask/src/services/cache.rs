//! What is downloaded once and kept in the target folder: programs that Debian does not have.
//!
//! A folder counts as installed when it holds a stamp, written last, that says what was wanted: a download that was
//! interrupted, or a new version, starts over.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::process;

const STAMP: &str = ".installed";

/// The folder of a part, installed now if what is there is not what the stamp names.
pub(super) fn installed(
    part: &str,
    stamp: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    installed_in(&root(), part, stamp, install)
}

/// The folder of a part, whether it is installed or not.
pub(super) fn folder(part: &str) -> PathBuf {
    root().join(part)
}

fn root() -> PathBuf {
    process::root().join("target/services")
}

fn installed_in(
    root: &Path,
    part: &str,
    stamp: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
    let folder = root.join(part);
    // Two commands at once would install over each other. The lock ends with this process, however it ends.
    let lock = root.join(format!("{part}.lock"));
    let held = File::create(&lock).with_context(|| format!("cannot create {}", lock.display()))?;
    held.lock().with_context(|| format!("cannot lock {}", lock.display()))?;
    if fs::read_to_string(folder.join(STAMP)).is_ok_and(|there| there == stamp) {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    install(&folder)?;
    let file = folder.join(STAMP);
    fs::write(&file, stamp).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_installed_once_for_each_stamp_and_again_after_a_failure() {
        let root = std::env::temp_dir().join(format!("xtask-cache-{}", std::process::id()));
        let mut installs = 0;
        let mut ask = |stamp: &str, works: bool| {
            installed_in(&root, "part", stamp, |folder| {
                installs += 1;
                assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "what was there before is gone");
                fs::write(folder.join("half"), "").unwrap();
                anyhow::ensure!(works, "no network");
                Ok(())
            })
        };
        assert!(ask("1", false).is_err());
        assert!(ask("1", true).is_ok());
        assert!(ask("1", true).is_ok());
        assert!(ask("2", true).is_ok());
        assert_eq!(installs, 3);
        fs::remove_dir_all(&root).unwrap();
    }
}
