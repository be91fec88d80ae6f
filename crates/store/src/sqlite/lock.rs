//! The queue of processes in front of the writer's lock.
//!
//! SQLite itself lets writers poll for its lock, which starves some of them under load. Here they wait at an
//! advisory lock on a file of its own, where the kernel wakes them. Never on the database file: closing any
//! descriptor of that file would drop SQLite's own locks.
//!
//! Fairness: who has to wait holds a second file, the intent, shared meanwhile. Who has just written looks whether
//! anybody holds it and then stands back for a moment, so that a process in a tight loop lets others in.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stargate_queue::{Error, Result};

use super::error::file;

/// The longest time for which a writer stands back for others.
const STAND_BACK_MAX: Duration = Duration::from_millis(2);
/// How often it looks meanwhile.
const STAND_BACK_LOOK: Duration = Duration::from_micros(50);

/// The two lock files beside a database.
#[derive(Debug)]
pub(super) struct WriterLock {
    turn: File,
    intent: File,
    stood_back: bool,
}

/// The turn to write; ends on drop.
#[derive(Debug)]
pub(super) struct Turn<'l>(&'l File);

impl WriterLock {
    /// Opens or creates the lock files of a database.
    pub(super) fn open(database: &Path) -> Result<Self> {
        Ok(Self {
            turn: open(&beside(database, ".writer-lock"))?,
            intent: open(&beside(database, ".writer-intent"))?,
            stood_back: true,
        })
    }

    /// Waits for the turn to write.
    pub(super) fn take(&mut self) -> Result<Turn<'_>> {
        if !self.stood_back {
            self.stand_back();
        }
        self.stood_back = false;
        if self.turn.try_lock().is_err() {
            let wait = || {
                self.intent.lock_shared()?;
                let taken = self.turn.lock();
                self.intent.unlock()?;
                taken
            };
            wait().map_err(|error| file("queue for its turn to write", error))?;
        }
        Ok(Turn(&self.turn))
    }

    /// Nobody can be kept waiting by somebody who was idle.
    pub(super) fn idle(&mut self) {
        self.stood_back = true;
    }

    fn stand_back(&self) {
        let until = Instant::now() + STAND_BACK_MAX;
        loop {
            if self.intent.try_lock().is_ok() {
                let _ = self.intent.unlock();
                return;
            }
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(STAND_BACK_LOOK);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Cannot fail on an open file; were it to, the kernel unlocks at the end of the process.
        let _ = self.0.unlock();
    }
}

fn open(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| file("open its lock file", error))
}

fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}
