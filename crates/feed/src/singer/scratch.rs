//! The folder in which a tap finds its settings and its state: for this user only, and gone with the tap.
//!
//! A process that is killed leaves its folders behind, secrets included. Each holds a lock that ends with its process, so
//! whoever opens a tap next finds and removes those that nobody holds.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

const PREFIX: &str = "tap-";
const LOCK: &str = "lock";

/// A folder that is removed with this value.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Before the lock, so that it is gone when others can take that.
    folder: TempDir,
    _held: File,
}

impl Scratch {
    /// Makes a folder, and removes those that killed processes left.
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        sweep(root);
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(root)?;
        let held = private(&folder.path().join(LOCK))?;
        held.lock()?;
        Ok(Self { folder, _held: held })
    }

    /// Writes a file and says where it is. Taps run elsewhere, so the path is absolute.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = std::path::absolute(self.folder.path().join(name))?;
        private(&path)?.write_all(text.as_bytes())?;
        Ok(path)
    }
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn sweep(root: &Path) {
    let folders = fs::read_dir(root).into_iter().flatten().flatten();
    for folder in folders.filter(|folder| folder.file_name().to_string_lossy().starts_with(PREFIX)) {
        // Without a lock it is just being made, and holds nothing yet.
        let Ok(lock) = File::open(folder.path().join(LOCK)) else { continue };
        match lock.try_lock() {
            Ok(()) => match fs::remove_dir_all(folder.path()) {
                Ok(()) => {
                    tracing::info!(folder = %folder.path().display(), "removed what a killed process left")
                }
                Err(error) => {
                    tracing::warn!(folder = %folder.path().display(), %error, "cannot remove what a killed process left");
                }
            },
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(root: &Path) -> usize {
        fs::read_dir(root).unwrap().count()
    }

    #[test]
    fn files_are_for_this_user_only_and_go_with_the_folder() {
        let root = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(&root.path().join("new")).unwrap();
        let file = scratch.write("config.json", "{}").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        drop(scratch);
        assert_eq!(folders(&root.path().join("new")), 0);
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_in_use_is_not() {
        let root = tempfile::tempdir().unwrap();
        let used = Scratch::new(root.path()).unwrap();
        // As a killed process leaves it: the lock is there and nobody holds it.
        let left = root.path().join("tap-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        fs::write(left.join("config.json"), "secret").unwrap();
        let other = root.path().join("other");
        fs::create_dir(&other).unwrap();
        let second = Scratch::new(root.path()).unwrap();
        assert!(!left.exists() && other.exists() && used.folder.path().exists());
        assert_eq!(folders(root.path()), 3);
        drop((used, second));
    }
}
