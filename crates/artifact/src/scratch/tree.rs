//! Directory trees that a program has filled: measured and removed without trusting anything in them.
//!
//! A symbolic link is never followed, not even one that takes a directory's place while we look: each directory is
//! opened relative to the one above it. A directory the program locked itself out of (`chmod 000`) is opened up.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Each level keeps a directory open, so a tree that is deeper than this is not entered further. Removal brings
/// deeper directories up instead.
const DEPTH_MAX: u32 = 64;
/// What it takes to list a directory.
const LOOK: u32 = 0o500;
/// What it takes to empty a directory.
const CHANGE: u32 = 0o700;

/// Opens a directory below `parent`, never through a symbolic link.
pub(super) fn open(parent: impl AsFd, name: &CStr) -> io::Result<File> {
    open_for(parent, name, LOOK)
}

/// The bytes that a directory and everything below it take up on the disk. Holes in files cost nothing.
pub(super) fn measure(dir: &File) -> io::Result<u64> {
    allow(dir, LOOK)?;
    measure_to(dir, 0)
}

/// Removes a directory below `parent` with everything in it.
pub(super) fn remove(parent: impl AsFd, name: &CStr) -> io::Result<()> {
    let parent = parent.as_fd();
    let top = open_for(parent, name, CHANGE)?;
    let mut brought_up = 0;
    // A second round is needed only for what the first one brought up.
    loop {
        let before = brought_up;
        empty(&top, &top, 0, &mut brought_up)?;
        if brought_up == before {
            break;
        }
    }
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

fn measure_to(dir: &File, depth: u32) -> io::Result<u64> {
    let mut bytes = on_disk(&rustix::fs::fstat(dir)?);
    for (name, stat) in entries(dir)? {
        bytes = bytes.saturating_add(on_disk(&stat));
        if is_dir(&stat) && depth < DEPTH_MAX {
            match open_for(dir, &name, LOOK) {
                Ok(below) => bytes = bytes.saturating_add(measure_to(&below, depth + 1)?),
                // Something that escaped its program may still be at work in here.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(bytes)
}

fn empty(dir: &File, top: &File, depth: u32, brought_up: &mut u64) -> io::Result<()> {
    for (name, stat) in entries(dir)? {
        let removed = if !is_dir(&stat) {
            rustix::fs::unlinkat(dir, &name, AtFlags::empty())
        } else if depth < DEPTH_MAX {
            empty(&open_for(dir, &name, CHANGE)?, top, depth + 1, brought_up)?;
            rustix::fs::unlinkat(dir, &name, AtFlags::REMOVEDIR)
        } else {
            *brought_up += 1;
            rustix::fs::renameat(dir, &name, top, format!(".deep-{:016x}", rand::random::<u64>()))
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// All entries at once: what is removed while a directory is read may hide other entries.
fn entries(dir: &File) -> io::Result<Vec<(std::ffi::CString, Stat)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_owned();
        if name.as_bytes() == b"." || name.as_bytes() == b".." {
            continue;
        }
        match rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => found.push((name, stat)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

fn open_for(parent: impl AsFd, name: &CStr, rights: u32) -> io::Result<File> {
    let parent = parent.as_fd();
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let readable = || rustix::fs::openat(parent, name, flags | OFlags::RDONLY, Mode::empty());
    let dir = match readable() {
        Err(Errno::ACCESS) => {
            // A handle that gives no access is enough to change the mode, and cannot be swapped for another file.
            let handle = rustix::fs::openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
            rustix::fs::chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::from_raw_mode(CHANGE))?;
            readable()?
        }
        opened => opened?,
    };
    let dir = File::from(dir);
    allow(&dir, rights)?;
    Ok(dir)
}

fn allow(dir: &File, rights: u32) -> io::Result<()> {
    let mode = rustix::fs::fstat(dir)?.st_mode;
    if mode & rights != rights {
        rustix::fs::fchmod(dir, Mode::from_raw_mode(mode | rights))?;
    }
    Ok(())
}

fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

fn on_disk(stat: &Stat) -> u64 {
    // The unit of `st_blocks` is 512 bytes whatever the file system's own blocks are.
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}
