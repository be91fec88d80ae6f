//! What is on its way into a folder: temporary files and locks, all in one directory below the root.
//!
//! So they disturb nobody who lists results, and those that dead processes leave behind are found without a walk
//! through all results. Whatever is in use is locked (`flock`), and a lock ends with the process that holds it.
//!
//! A file is only removed by one who has its lock *and* then saw that it still has its name; and a lock counts only
//! for one who saw the same. So nobody ever holds the lock of a file that has gone, next to somebody with a new one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use stargate_base::durable;

use crate::error::{Error, Result};
use crate::key::Key;

/// The directory's name; no key begins with a dot.
const DIR: &str = ".partial";
/// Ends the name of a temporary file.
const TEMPORARY: &str = ".tmp";
/// Ends the name of a lock.
const LOCK: &str = ".lock";
/// Longer keys are named by their checksum: a file name has at most 255 bytes.
const STEM_MAX: usize = 150;
/// How often a file is made anew because it was taken away before it was locked.
const TRIES_MAX: u32 = 16;
/// What is read of who holds a lock.
const HOLDER_BYTES_MAX: u64 = 200;

/// The directory.
#[derive(Debug, Clone)]
pub(super) struct Partial(PathBuf);

impl Partial {
    pub(super) fn below(root: &Path) -> Self {
        Self(root.join(DIR))
    }

    /// A new temporary file for an artifact, in use until it is dropped or moved.
    pub(super) fn create(&self, key: &Key, attempt: &str) -> Result<Temporary> {
        self.make()?;
        for _ in 0..TRIES_MAX {
            let name = format!("{}+{attempt}+{:08x}{TEMPORARY}", stem(key), rand::random::<u32>());
            let path = self.0.join(name);
            let failed = |error| Error::file("write", &path, error);
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
            let file = file.map_err(failed)?;
            // Only one who cleans up can hold it, for a moment. A file system without locks loses the cleaning up.
            if file.lock().is_err() || has_name(&file, &path).map_err(failed)? {
                return Ok(Temporary { path, file, is_moved: false });
            }
        }
        let source = io::Error::other("every temporary file was taken away at once");
        Err(Error::file("write in", &self.0, source))
    }

    /// Locks an artifact, unless somebody else has. `holder` is who does, for people.
    pub(super) fn lock(&self, key: &Key, holder: &str) -> Result<std::result::Result<Lock, Held>> {
        self.make()?;
        let path = self.0.join(format!("{}{LOCK}", stem(key)));
        let failed = |error| Error::file("lock", &path, error);
        for _ in 0..TRIES_MAX {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(failed)?;
            match file.try_lock() {
                Ok(()) if has_name(&file, &path).map_err(failed)? => {
                    // A disk that is too full for this is found out elsewhere.
                    let _ = file.set_len(0).and_then(|()| (&file).write_all(holder.as_bytes()));
                    return Ok(Ok(Lock { path, file }));
                }
                // Its holder has removed it in between.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut holder = String::new();
                    let _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut holder);
                    return Ok(Err(Held { path, holder }));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        Ok(Err(Held { path, holder: String::new() }))
    }

    /// Removes what dead attempts have left behind of an artifact that is there, so that nothing of it can be needed.
    /// What cannot be removed only takes up space.
    pub(super) fn tidy(&self, key: &Key) {
        let ours = stem(key);
        for path in self.files().unwrap_or_default() {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let mut parts = name.rsplitn(3, '+');
            if let (Some(random), Some(_), Some(stem)) = (parts.next(), parts.next(), parts.next())
                && random.ends_with(TEMPORARY)
                && stem == ours
            {
                let _ = remove_unused(&path, None);
            }
        }
    }

    /// Removes what nobody uses and nobody has touched for `age`. Gives their number.
    pub(super) fn sweep(&self, age: Duration) -> Result<u64> {
        let paths = match self.files() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            paths => paths.map_err(|error| Error::file("list", &self.0, error))?,
        };
        let mut removed = 0;
        for path in paths {
            match remove_unused(&path, Some(age)) {
                Ok(is_gone) => removed += u64::from(is_gone),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a temporary file could not be removed");
                }
            }
        }
        Ok(removed)
    }

    fn make(&self) -> Result<()> {
        durable::create_dirs(&self.0).map_err(|error| Error::file("make", &self.0, error))
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.ends_with(TEMPORARY) || name.ends_with(LOCK))
                && entry.file_type().is_ok_and(|kind| kind.is_file())
            {
                paths.push(entry.path());
            }
        }
        Ok(paths)
    }
}

/// A temporary file in use. Removed when dropped before it was moved.
#[derive(Debug)]
pub(super) struct Temporary {
    pub(super) path: PathBuf,
    pub(super) file: File,
    is_moved: bool,
}

impl Temporary {
    /// It has its final name.
    pub(super) fn moved(mut self) {
        self.is_moved = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_moved
            && let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "a temporary file could not be removed");
        }
    }
}

/// The lock of an artifact. Its file goes with it, so that there are no more of them than publications.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        // Not by closing it: a child between fork and exec holds a copy.
        let _ = self.file.unlock();
    }
}

/// A lock that somebody else holds.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) path: PathBuf,
    pub(super) holder: String,
}

/// Tells whether it did.
fn remove_unused(path: &Path, age: Option<Duration>) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    if let Some(age) = age {
        let now = SystemTime::from(stargate_base::clock::wall());
        if now.duration_since(file.metadata()?.modified()?).unwrap_or_default() < age {
            return Ok(false);
        }
    }
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
        Ok(()) if !has_name(&file, path)? => return Ok(false),
        Ok(()) => {}
    }
    std::fs::remove_file(path)?;
    Ok(true)
}

/// Whether a path still leads to the open file.
fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A key as part of a file name.
fn stem(key: &Key) -> String {
    let plain = key.as_str().replace('/', "+");
    if plain.len() <= STEM_MAX {
        return plain;
    }
    Sha256::digest(key.as_str()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn one_holds_a_lock_however_often_its_file_goes() {
        let dir = tempfile::tempdir().unwrap();
        let key = Key::result(17, "clip.mp4").unwrap();
        let partial = Partial::below(dir.path());
        let (holders, turns) = (AtomicU32::new(0), AtomicU32::new(0));
        let race = || {
            while turns.load(Ordering::SeqCst) < 200 {
                let Ok(lock) = partial.lock(&key, "a test").unwrap() else { continue };
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                turns.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
                assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
                drop(lock);
                // What cleans up takes part in the race.
                partial.sweep(Duration::ZERO).unwrap();
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(race);
            }
        });
        assert!(partial.files().unwrap().is_empty());
    }

    #[test]
    fn a_key_has_one_name_and_a_long_one_a_short_name() {
        let stem = |key: &str| stem(&Key::new(key.to_owned()).unwrap());
        assert_eq!(stem("results/17/clip.mp4"), "results+17+clip.mp4");
        assert_ne!(stem("results/17"), stem("results-17"));
        let long = ["a".repeat(100), "b".repeat(100)].join("/");
        assert_eq!(stem(&long).len(), 64);
    }
}
