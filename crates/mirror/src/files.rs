//! The directory `.stargate` of a repository: opens its files without being led elsewhere, and makes them durable.
//!
//! Whoever may push can not write here, but a link or a file that everybody may write would let somebody make entries
//! or turn our writes to another place. Both are refused. A sync that fails is [`Error::FailStop`].

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use rustix::fs::OFlags;
use rustix::io::Errno;
use stargate_base::{clock, durable};
use ulid::Ulid;

use crate::error::{Error, Result};

/// The directory in the repository.
pub(crate) const DIR: &str = ".stargate";
const DIR_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
/// What temporary files begin with.
const TEMPORARY: &str = ".tmp-";
const TEMPORARY_AGE_MAX: SignedDuration = SignedDuration::from_hours(1);

/// The directory of a repository.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    dir: PathBuf,
}

impl Files {
    /// Makes the directory if need be.
    pub(crate) fn open(repo: &Path) -> Result<Self> {
        Self::at(repo.join(DIR))
    }

    /// A directory below this one.
    pub(crate) fn below(&self, name: &str) -> Result<Self> {
        Self::at(self.dir.join(name))
    }

    fn at(dir: PathBuf) -> Result<Self> {
        let found = match std::fs::symlink_metadata(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_dir(&dir)?;
                std::fs::symlink_metadata(&dir)
            }
            found => found,
        };
        let found = found.map_err(Error::io("look at", &dir))?;
        check_kind(&dir, &found, found.is_dir())?;
        Ok(Self { dir })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Opens a file for reading, if there is one.
    pub(crate) fn open_read(&self, name: &str) -> Result<Option<File>> {
        let path = self.path(name);
        match open(OpenOptions::new().read(true), &path, "open") {
            Ok(file) => Ok(Some(file)),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a file for reading and for appending, and makes it if need be.
    pub(crate) fn open_append(&self, name: &str) -> Result<File> {
        open(OpenOptions::new().read(true).append(true).create(true), &self.path(name), "open")
    }

    /// Opens a file for reading and writing, and makes it if need be.
    pub(crate) fn open_write(&self, name: &str) -> Result<File> {
        open(OpenOptions::new().read(true).write(true).create(true), &self.path(name), "open")
    }

    /// The content of a small file, if there is one. More than `bytes_max` is refused.
    pub(crate) fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.open_read(name)? else { return Ok(None) };
        let path = self.path(name);
        let mut content = Vec::new();
        file.take(bytes_max + 1).read_to_end(&mut content).map_err(Error::io("read", &path))?;
        if content.len() as u64 > bytes_max {
            return Err(Error::Unsafe { path, problem: "is much larger than it can be" });
        }
        Ok(Some(content))
    }

    /// Puts a file in the place of whatever has its name: under another name first, synced, renamed, directory synced.
    pub(crate) fn replace(&self, name: &str, content: &[u8]) -> Result<()> {
        self.replace_with(name, |draft| draft.write(content))
    }

    /// The same, for content that is too large to be held in memory.
    pub(crate) fn replace_with(&self, name: &str, fill: impl FnOnce(&mut Draft) -> Result<()>) -> Result<()> {
        let (from, to) = (self.temporary_with(fill)?, self.path(name));
        let from_inode = inode(&from);
        durable::replace(&from, &to).map_err(|source| renaming_failed(&from, from_inode, &to, source))
    }

    /// The same, with a lock on the new file that is ours from its first moment.
    pub(crate) fn replace_locked(&self, name: &str, content: &[u8]) -> Result<File> {
        let (from, to) = (self.temporary(content)?, self.path(name));
        let file = open(OpenOptions::new().read(true).write(true), &from, "open")?;
        file.try_lock().map_err(|error| Error::io("lock", &from)(error.into()))?;
        let from_inode = inode(&from);
        durable::replace(&from, &to).map_err(|source| renaming_failed(&from, from_inode, &to, source))?;
        Ok(file)
    }

    /// Makes a file whose name nobody has yet. False, and nothing changed, if somebody has it.
    pub(crate) fn publish(&self, name: &str, content: &[u8]) -> Result<bool> {
        let (from, to) = (self.temporary(content)?, self.path(name));
        let from_inode = inode(&from);
        match durable::publish(&from, &to) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(&from).map_err(Error::io("remove", &from))?;
                Ok(false)
            }
            Err(source) => Err(renaming_failed(&from, from_inode, &to, source)),
        }
    }

    /// Gives a synced file another name, which nobody may have yet.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.path(from), self.path(to));
        let from_inode = inode(&from);
        durable::publish(&from, &to).map_err(|source| renaming_failed(&from, from_inode, &to, source))
    }

    /// Makes the names in this directory durable, and its own.
    pub(crate) fn sync(&self) -> Result<()> {
        for dir in [Some(self.dir.as_path()), self.dir.parent()].into_iter().flatten() {
            durable::sync_dir(dir).map_err(Error::fail_stop(dir))?;
        }
        Ok(())
    }

    /// All names, in order.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let listing = Error::io("list", &self.dir);
        let names = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(&self.dir)? {
                // A name that is no text is none of ours.
                names.extend(entry?.file_name().into_string());
            }
            names.sort_unstable();
            Ok(names)
        };
        names().map_err(listing)
    }

    /// Removes temporary files that dead processes left. They live for milliseconds; old ones are nobody's.
    pub(crate) fn sweep(&self) -> Result<()> {
        let before = clock::wall().saturating_sub(TEMPORARY_AGE_MAX).unwrap_or(Timestamp::MIN);
        for name in self.names()?.iter().filter(|name| name.starts_with(TEMPORARY)) {
            let found = std::fs::symlink_metadata(self.path(name));
            if found.is_ok_and(|found| found.mtime() < before.as_second()) {
                self.remove(name)?;
            }
        }
        Ok(())
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Writes and syncs a file under a name of its own.
    fn temporary(&self, content: &[u8]) -> Result<PathBuf> {
        self.temporary_with(|draft| draft.write(content))
    }

    fn temporary_with(&self, fill: impl FnOnce(&mut Draft) -> Result<()>) -> Result<PathBuf> {
        let path = self.path(&format!("{TEMPORARY}{}", Ulid::generate()));
        let file = open(OpenOptions::new().write(true).create_new(true), &path, "make")?;
        let mut draft = Draft { out: BufWriter::new(file), path };
        let done = fill(&mut draft).and_then(|()| draft.sync());
        if done.is_err() {
            // It is of no use to anybody; what went wrong is what is told.
            let _ = std::fs::remove_file(&draft.path);
        }
        done.map(|()| draft.path)
    }
}

/// A file that is being written and has no name of its own yet.
#[derive(Debug)]
pub(crate) struct Draft {
    out: BufWriter<File>,
    path: PathBuf,
}

impl Draft {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(Error::io("write", &self.path))
    }

    fn sync(&mut self) -> Result<()> {
        self.out.flush().map_err(Error::io("write", &self.path))?;
        self.out.get_ref().sync_all().map_err(Error::fail_stop(&self.path))
    }
}

/// Whether an open file is still the one that has this name.
pub(crate) fn is_at(file: &File, path: &Path) -> Result<bool> {
    let open = file.metadata().map_err(Error::io("look at", path))?;
    match std::fs::symlink_metadata(path) {
        Ok(there) => Ok((open.dev(), open.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("look at", path)(error)),
    }
}

fn make_dir(dir: &Path) -> Result<()> {
    match DirBuilder::new().mode(DIR_MODE).create(dir) {
        Ok(()) => {
            let parent = dir.parent().unwrap_or(dir);
            durable::sync_dir(parent).map_err(Error::fail_stop(parent))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Error::io("make", dir)(error)),
    }
}

fn open(options: &mut OpenOptions, path: &Path, operation: &'static str) -> Result<File> {
    // Without NONBLOCK a pipe in the file's place would hold us up for ever.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).unwrap_or_default();
    let file = options.mode(FILE_MODE).custom_flags(flags).open(path).map_err(|error| {
        if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
            Error::Unsafe { path: path.to_owned(), problem: "is a symbolic link; remove it" }
        } else {
            Error::io(operation, path)(error)
        }
    })?;
    let found = file.metadata().map_err(Error::io("look at", path))?;
    check_kind(path, &found, found.is_file())?;
    Ok(file)
}

fn check_kind(path: &Path, found: &Metadata, is_right: bool) -> Result<()> {
    let problem = if found.is_symlink() {
        "is a symbolic link; remove it"
    } else if !is_right {
        "is not what it must be: a directory, or a regular file in it"
    } else if found.mode() & 0o002 != 0 {
        "may be written by everybody; take that right away (chmod o-w)"
    } else {
        return Ok(());
    };
    Err(Error::Unsafe { path: path.to_owned(), problem })
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().map(|found| found.ino())
}

/// A renaming that failed before it was done is an ordinary error; one that was done and could not be synced is not.
fn renaming_failed(from: &Path, from_inode: Option<u64>, to: &Path, source: io::Error) -> Error {
    if from_inode.is_some() && inode(from) == from_inode {
        Error::io("rename", from)(source)
    } else {
        Error::fail_stop(to)(source)
    }
}
