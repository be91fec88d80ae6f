//! One scratch directory on the disk: its name, its lock, its end.

use std::ffi::CString;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

use super::tree;

/// Hexadecimal digits of the random part of a name.
pub(super) const RANDOM_DIGITS: usize = 12;

/// A directory that nobody uses.
pub(super) struct Idle {
    pub(super) name: String,
    pub(super) touched: SystemTime,
    pub(super) bytes: u64,
}

pub(super) enum Look {
    Idle(Idle),
    InUse,
    Gone,
}

impl Idle {
    /// With a size that is already known the directory is known to be idle too: a name is used once.
    pub(super) fn look(root: &File, name: &str, known_bytes: Option<u64>) -> io::Result<Look> {
        let dir = match open_below(root, name) {
            Err(error) if is_gone(&error) => return Ok(Look::Gone),
            opened => opened?,
        };
        let bytes = match known_bytes {
            Some(bytes) => bytes,
            None => {
                match dir.try_lock() {
                    Err(TryLockError::WouldBlock) => return Ok(Look::InUse),
                    Err(TryLockError::Error(error)) => return Err(error),
                    Ok(()) => {}
                }
                let measured = tree::measure(&dir);
                unlock(&dir);
                measured?
            }
        };
        Ok(Look::Idle(Self { name: name.to_owned(), touched: dir.metadata()?.modified()?, bytes }))
    }

    /// Whether it is gone.
    pub(super) fn remove(&self, root: &File, root_path: &Path) -> bool {
        let remove = || -> io::Result<bool> {
            let dir = open_below(root, &self.name)?;
            // Somebody who made it a moment ago may be about to use it.
            if dir.try_lock().is_err() {
                return Ok(false);
            }
            tree::remove(root, &c_name(&self.name)?)?;
            Ok(true)
        };
        match remove() {
            Ok(removed) => removed,
            Err(error) if is_gone(&error) => true,
            Err(error) => {
                warn("removed", &root_path.join(&self.name), &error);
                false
            }
        }
    }
}

/// Locks a directory that was just made. None if a collector took it away before the lock was there.
pub(super) fn lock_new(path: &Path) -> io::Result<Option<File>> {
    let dir = match File::open(path) {
        Err(error) if is_gone(&error) => return Ok(None),
        opened => opened?,
    };
    // Only a collector can hold it, for as long as it takes to look at an empty directory.
    dir.lock()?;
    let (locked, there) = (dir.metadata()?, std::fs::symlink_metadata(path));
    match there {
        Ok(there) if (there.dev(), there.ino()) == (locked.dev(), locked.ino()) => Ok(Some(dir)),
        Ok(_) => Ok(None),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A lock is given back by its name, not by closing the file: a child between fork and exec holds a copy of it.
pub(super) fn unlock(dir: &File) {
    if let Err(error) = dir.unlock() {
        tracing::warn!(%error, "a scratch directory could not be unlocked");
    }
}

/// Age counts from the end of the execution. A directory that cannot be touched only goes earlier.
pub(super) fn touch(dir: &File) {
    let _ = dir.set_modified(SystemTime::from(stargate_base::clock::wall()));
}

pub(super) fn remove_below(path: &Path, name: &str) -> io::Result<()> {
    let root = path.parent().ok_or_else(|| io::Error::other("a scratch directory lies in no directory"))?;
    match tree::remove(File::open(root)?, &c_name(name)?) {
        Err(error) if is_gone(&error) => Ok(()),
        removed => removed,
    }
}

fn open_below(root: &File, name: &str) -> io::Result<File> {
    tree::open(root, &c_name(name)?)
}

fn c_name(name: &str) -> io::Result<CString> {
    Ok(CString::new(name)?)
}

/// Whether a name is `{job}-{attempt}-{random}`.
pub(super) fn is_ours(name: &str) -> bool {
    let mut parts = name.rsplitn(3, '-');
    let (Some(random), Some(attempt), Some(job)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    random.len() == RANDOM_DIGITS
        && random.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
        && !attempt.is_empty()
        && attempt.bytes().all(|c| c.is_ascii_digit())
        && attempt.parse::<u16>().is_ok()
        && (1..=100).contains(&job.len())
        && job.chars().all(plain)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

pub(super) fn warn(what: &str, path: &Path, error: &io::Error) {
    tracing::warn!(path = %path.display(), %error, "a scratch directory could not be {what}");
}
