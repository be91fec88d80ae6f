//! Files that survive a crash: written under a temporary name, synced, renamed, and the directory synced.
//!
//! A rename is atomic for readers, but without a sync of the directory it may be undone by a crash, and without a
//! sync of the file the new name may hold nothing. So only the functions here rename. All of them block.

use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

/// Makes a directory and those above it, so that they are still there after a crash.
pub fn create_dirs(path: &Path) -> io::Result<()> {
    match create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && parent(path) != path => {
            create_dirs(parent(path))?;
            create_dir(path)
        }
        made => made,
    }
}

/// Writes a file that must not exist yet and syncs it. Its name is durable only after [`replace`] or [`publish`].
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Gives a synced file its final name, in place of whatever file has it.
///
/// Both names must be in the same file system.
pub fn replace(from: &Path, to: &Path) -> io::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that renames: the directory is synced next"
    )]
    std::fs::rename(from, to)?;
    sync_both(from, to)
}

/// Gives a synced file or directory its final name if nothing has that name: otherwise `AlreadyExists`, and nothing
/// changes. Where the file system cannot do that, a directory also takes the place of an empty one.
///
/// Both names must be in the same file system.
pub fn publish(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        // Some file systems (NFS among them) cannot. For a file, a hard link refuses an existing name just as well. Between the
        // two calls the file has both names, which harms nobody: it is complete.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => rename_or_link(from, to)?,
        Err(error) => return Err(error.into()),
    }
    sync_both(from, to)
}

/// The same with what every file system can do.
fn rename_or_link(from: &Path, to: &Path) -> io::Result<()> {
    if !from.symlink_metadata()?.is_dir() {
        std::fs::hard_link(from, to)?;
        return std::fs::remove_file(from);
    }
    // A directory has no second name, but it takes the place of an empty directory only.
    #[expect(clippy::disallowed_methods, reason = "the caller syncs the directories")]
    std::fs::rename(from, to).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => {
            io::ErrorKind::AlreadyExists.into()
        }
        _ => error,
    })
}

/// Makes the names in a directory durable.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path)?.sync_all()
}

fn create_dir(path: &Path) -> io::Result<()> {
    match DirBuilder::new().create(path) {
        Ok(()) => sync_dir(parent(path)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync_both(from: &Path, to: &Path) -> io::Result<()> {
    sync_dir(parent(to))?;
    if parent(from) != parent(to) {
        sync_dir(parent(from))?;
    }
    Ok(())
}

/// The directory a path is in; empty for the working directory.
fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_is_not_given_again_unless_it_is_to_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("new"), dir.path().join("final"));
        write_new(&from, b"1").unwrap();
        publish(&from, &to).unwrap();
        assert!(!from.exists());

        write_new(&from, b"2").unwrap();
        assert_eq!(publish(&from, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&to).unwrap(), b"1");
        assert_eq!(write_new(&from, b"3").unwrap_err().kind(), io::ErrorKind::AlreadyExists);

        replace(&from, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"2");
        assert!(!from.exists());
    }

    #[test]
    fn a_directory_gets_a_free_name_with_and_without_help_of_the_file_system() {
        type Publish = fn(&Path, &Path) -> io::Result<()>;
        for publish in [publish as Publish, rename_or_link] {
            let dir = tempfile::tempdir().unwrap();
            let (from, to) = (dir.path().join("new"), dir.path().join("final"));
            let full = |path: &Path| {
                std::fs::create_dir(path).unwrap();
                std::fs::write(path.join("file"), "x").unwrap();
            };
            full(&from);
            publish(&from, &to).unwrap();
            assert!(to.join("file").is_file() && !from.exists());
            full(&from);
            assert_eq!(publish(&from, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            let file = dir.path().join("file");
            write_new(&file, b"1").unwrap();
            assert_eq!(publish(&from, &file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(publish(&file, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert!(from.join("file").is_file() && file.is_file(), "nothing has changed");
        }
    }

    #[test]
    fn directories_are_made_with_those_above_them() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        create_dirs(&deep).unwrap();
        create_dirs(&deep).unwrap();
        assert!(deep.is_dir());
        std::fs::write(dir.path().join("file"), "x").unwrap();
        assert!(create_dirs(&dir.path().join("file")).is_err());
        assert!(create_dirs(&dir.path().join("file/below")).is_err());
        // Says that the directory above is missing, although it is not.
        assert!(create_dirs(Path::new("/proc/self/nothing/can/be/made/here")).is_err());
    }
}
