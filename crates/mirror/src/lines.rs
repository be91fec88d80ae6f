//! A file of lines that several processes append to, and that is continued in another file when it is full.
//!
//! An append is one write under an exclusive lock of the file itself, so that writers of others who lock it too (the
//! hook's specification says so) and ours keep out of each other's way. The newline comes last: a line without one is
//! not written yet. When the last byte is no newline, somebody died in mid-line, and the next writer ends that line
//! first. The lock is given up before the sync, so that many writers sync at the same time.
//!
//! Full files are renamed by whoever holds the lock: `name.ndjson` becomes `name.0000000001.ndjson`. The number of the
//! file that is written is one more than the highest of these. A writer who waited for the lock meanwhile sees that
//! the file has another name, and opens the new one.

use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use stargate_base::clock::Moment;

use crate::entry::LINE_BYTES_MAX;
use crate::error::{Error, Result};
use crate::files::{Draft, Files, is_at};

/// How long an append waits for its turn. Turns take microseconds; a holder that is stopped must not hold up pushes.
/// Less than the five seconds that a hook has, so that the hook can still say what happened.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(4);
const LOCK_PAUSE_MIN: Duration = Duration::from_micros(50);
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(5);
/// How often a file may be replaced while we wait for it.
const REOPEN_MAX: u32 = 100;
/// What is read at once when lines are looked for from the end.
const BLOCK: u64 = 4096;

/// A file of lines and those it was continued from.
#[derive(Debug, Clone)]
pub(crate) struct LineFile {
    files: Files,
    stem: &'static str,
    /// Above this a file counts as full.
    bytes_max: u64,
}

/// The file that is written, locked.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    lines: &'a LineFile,
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl LineFile {
    pub(crate) fn new(files: Files, stem: &'static str, bytes_max: u64) -> Self {
        Self { files, stem, bytes_max }
    }

    /// The name of the file that is written.
    pub(crate) fn active(&self) -> String {
        format!("{}.ndjson", self.stem)
    }

    /// The name of a full one.
    pub(crate) fn rotated(&self, number: u64) -> String {
        format!("{}.{number:010}.ndjson", self.stem)
    }

    /// The numbers of the full ones, rising.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>> {
        let number = |name: &String| {
            let digits = name.strip_prefix(self.stem)?.strip_prefix('.')?.strip_suffix(".ndjson")?;
            let number = digits.parse().ok()?;
            (*name == self.rotated(number)).then_some(number)
        };
        let mut numbers: Vec<u64> = self.files.names()?.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Waits for the lock on the file that is written. A full file is put away first.
    pub(crate) fn turn(&self) -> Result<Turn<'_>> {
        let turn = self.lock()?;
        if turn.bytes < self.bytes_max {
            return Ok(turn);
        }
        turn.rotate()?;
        self.lock()
    }

    fn lock(&self) -> Result<Turn<'_>> {
        let (name, began) = (self.active(), Moment::now());
        let path = self.files.path(&name);
        for _ in 0..REOPEN_MAX {
            let file = self.files.open_append(&name)?;
            lock_within(&file, began).map_err(Error::io("lock", &path))?;
            if !is_at(&file, &path)? {
                continue;
            }
            let bytes = file.metadata().map_err(Error::io("look at", &path))?.len();
            if bytes == 0 {
                // Before the first byte: whoever finds bytes here may count on the name.
                self.files.sync()?;
            }
            return Ok(Turn { lines: self, file, path, bytes });
        }
        Err(Error::io("lock", &path)(io::Error::other("the file is replaced again and again")))
    }
}

impl Turn<'_> {
    /// Appends whole lines and ends the turn; the file is returned to be synced.
    ///
    /// When it fails, nothing of it stays, unless somebody appended without the lock meanwhile.
    pub(crate) fn append(mut self, lines: &[u8]) -> Result<Unsynced> {
        let healed;
        let bytes = if self.is_torn()? {
            healed = [b"\n", lines].concat();
            &healed
        } else {
            lines
        };
        self.write(bytes)?;
        self.file.unlock().map_err(Error::io("unlock", &self.path))?;
        Ok(Unsynced { file: self.file, path: self.path })
    }

    /// The last line, newest first, for which `choose` answers something.
    pub(crate) fn find_last<T>(&self, choose: impl FnMut(&[u8]) -> Option<T>) -> Result<Option<T>> {
        find_last(&self.file, self.bytes, choose).map_err(Error::io("read", &self.path))
    }

    /// Replaces the file by one with what `fill` writes, while nobody else can write to it.
    pub(crate) fn replace(self, fill: impl FnOnce(&mut Draft) -> Result<()>) -> Result<()> {
        self.lines.files.replace_with(&self.lines.active(), fill)
    }

    fn is_torn(&self) -> Result<bool> {
        let Some(last) = self.bytes.checked_sub(1) else { return Ok(false) };
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, last).map_err(Error::io("read", &self.path))?;
        Ok(byte != *b"\n")
    }

    /// Writes all of it in one call, or takes back what was written of it.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let failed = loop {
            match self.file.write(bytes) {
                Ok(written) if written == bytes.len() => return Ok(()),
                Ok(written) => {
                    self.take_back(written as u64);
                    // The rest would be a second write, and a writer without the lock could come between.
                    break io::Error::from(io::ErrorKind::StorageFull);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break error,
            }
        };
        Err(Error::io("append to", &self.path)(failed))
    }

    /// Best effort: if it fails, a torn line stays, and the next writer ends it.
    fn take_back(&self, written: u64) {
        let ends_with_ours = self.file.metadata().is_ok_and(|found| found.len() == self.bytes + written);
        if ends_with_ours && let Err(error) = self.file.set_len(self.bytes) {
            tracing::warn!(path = %self.path.display(), %error, "cannot take back half a line");
        }
    }

    /// Gives the full file its number.
    fn rotate(mut self) -> Result<()> {
        if self.is_torn()? {
            self.write(b"\n")?;
        }
        self.file.sync_data().map_err(Error::fail_stop(&self.path))?;
        let number = self.lines.numbers()?.last().map_or(1, |last| last + 1);
        self.lines.files.rename(&self.lines.active(), &self.lines.rotated(number))
    }
}

/// What was appended but is not durable yet.
#[derive(Debug)]
#[must_use = "what is not synced is not there after a crash"]
pub(crate) struct Unsynced {
    file: File,
    path: PathBuf,
}

impl Unsynced {
    pub(crate) fn sync(self) -> Result<()> {
        self.file.sync_data().map_err(Error::fail_stop(&self.path))
    }
}

/// The newest line for which `choose` answers something. One that only lacks its newline counts: it will get one.
pub(crate) fn find_last<T>(
    file: &File,
    bytes: u64,
    mut choose: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    let mut found = None;
    visit_last(file, bytes, Unended::Shown, |line| {
        found = choose(line);
        found.is_none()
    })?;
    Ok(found)
}

/// What becomes of a last line without its newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unended {
    Shown,
    PassedOver,
}

/// Visits the lines of a file from the end, for as long as `each` says so. Of a line that is longer than any of ours
/// only a part is shown.
pub(crate) fn visit_last(
    file: &File,
    bytes: u64,
    unended: Unended,
    mut each: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    // What lies before the line end that was found last, as far as it has been read.
    let mut pending: Vec<u8> = Vec::new();
    let mut from = bytes;
    // Whether there is a newline after it.
    let mut whole = unended == Unended::Shown;
    while from > 0 {
        let start = from.saturating_sub(BLOCK);
        let mut block = vec![0; usize::try_from(from - start).unwrap_or_default()];
        file.read_exact_at(&mut block, start)?;
        from = start;
        while let Some(newline) = block.iter().rposition(|b| *b == b'\n') {
            let line = [&block[newline + 1..], &pending].concat();
            if whole && !each(&line) {
                return Ok(());
            }
            whole = true;
            pending.clear();
            block.truncate(newline);
        }
        block.extend_from_slice(&pending);
        pending = block;
        pending.truncate(LINE_BYTES_MAX);
    }
    if whole {
        each(&pending);
    }
    Ok(())
}

/// Waits for an exclusive lock, not for ever.
pub(crate) fn lock_within(file: &File, began: Moment) -> io::Result<()> {
    let mut pause = LOCK_PAUSE_MIN;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if began.age() > LOCK_WAIT_MAX => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "somebody has held the lock for too long",
                ));
            }
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LOCK_PAUSE_MAX);
            }
        }
    }
}
