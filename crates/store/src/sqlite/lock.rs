//! The queue of processes in front of the writer's lock.
//!
//! SQLite itself lets writers poll for its lock, which starves some of them under load. Here they wait at an
//! advisory lock on a file of its own, where the kernel wakes them. Never on the database file: closing any
//! descriptor of that file would drop SQLite's own locks.
//!
//! Every wait ends (INV-7): the kernel knows no deadline for such a lock, so a thread of its own waits for it, and the
//! writer waits for that thread, but not for ever. A process that was stopped in mid-write would otherwise hold up all
//! others until it goes on.
//!
//! Fairness: who has to wait holds a second file, the intent, shared meanwhile. Who has just written looks whether
//! anybody holds it and then stands back for a moment, so that a process in a tight loop lets others in.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stargate_base::{ErrorClass, Holder};
use stargate_queue::{Error, Result};

use super::error::file;

/// How long a turn is waited for. Writes take milliseconds; heartbeats can try again before leases run out.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it is waited for without a word.
const SILENCE: Duration = Duration::from_secs(2);
/// The longest time for which a writer stands back for others.
const STAND_BACK_MAX: Duration = Duration::from_millis(2);
/// How often it looks meanwhile.
const STAND_BACK_LOOK: Duration = Duration::from_micros(50);

const OPERATION: &str = "get its turn to write";
const HELD: &str = "another process is in the middle of a write and does not end it; let it go on or end it, \
                    nothing that was accepted is lost";

/// The two lock files beside a database.
#[derive(Debug)]
pub(super) struct WriterLock {
    gate: Arc<Gate>,
    intent: File,
    stood_back: bool,
    /// The thread runs that waits; most processes never have to.
    has_waiter: bool,
    /// It was said that somebody does not let go.
    has_warned: bool,
}

/// The turn to write; ends on drop.
#[derive(Debug)]
pub(super) struct Turn<'l>(&'l File);

/// Why there was no turn. Several commands may have to be told.
#[derive(Debug, Clone)]
pub(super) enum NoTurn {
    /// Somebody does not let go of it.
    Held(Holder),
    /// The lock file does not work.
    File(Arc<io::Error>),
}

/// What the writer shares with the thread that waits in the kernel for it.
#[derive(Debug)]
struct Gate {
    file: File,
    state: Mutex<State>,
    changed: Condvar,
}

/// Where the two stand. The lock belongs to the open file, hence to both: only in `Idle` may the writer touch it.
#[derive(Debug)]
enum State {
    /// The thread sleeps.
    Idle,
    /// The thread waits in the kernel, and the writer for it.
    Asked,
    /// The thread still waits in the kernel, but the writer does no longer: the turn is given back at once.
    GivenUp,
    /// The thread has got it, or an error.
    Granted(io::Result<()>),
    /// The thread is to end.
    Closed,
}

impl WriterLock {
    /// Opens or creates the lock files of a database.
    pub(super) fn open(database: &Path) -> Result<Self> {
        let turn = open(&beside(database, ".writer-lock"))?;
        Ok(Self {
            gate: Arc::new(Gate { file: turn, state: Mutex::new(State::Idle), changed: Condvar::new() }),
            intent: open(&beside(database, ".writer-intent"))?,
            stood_back: true,
            has_waiter: false,
            has_warned: false,
        })
    }

    /// Waits for the turn to write, but not for ever.
    pub(super) fn take(&mut self) -> Result<Turn<'_>, NoTurn> {
        if !self.stood_back {
            self.stand_back();
        }
        self.stood_back = false;
        if !self.gate.try_take()? {
            self.wait()?;
        }
        if std::mem::take(&mut self.has_warned) {
            tracing::info!("the store can be written again");
        }
        Ok(Turn(&self.gate.file))
    }

    /// Nobody can be kept waiting by somebody who was idle.
    pub(super) fn idle(&mut self) {
        self.stood_back = true;
    }

    fn wait(&mut self) -> Result<(), NoTurn> {
        if !self.has_waiter {
            let gate = Arc::clone(&self.gate);
            std::thread::Builder::new().name("sqlite-turn".to_owned()).spawn(move || gate.run())?;
            self.has_waiter = true;
        }
        let is_shown = self.show_intent();
        let granted = self.gate.ask(&mut self.has_warned);
        if is_shown {
            self.intent.unlock()?;
        }
        granted
    }

    /// Tells others that somebody waits; false when it cannot be told, which costs fairness only.
    fn show_intent(&self) -> bool {
        // Held for more than an instant only by a process that was stopped while it looked.
        within_moment(|| self.intent.try_lock_shared().is_ok())
    }

    fn stand_back(&self) {
        within_moment(|| {
            let nobody_waits = self.intent.try_lock().is_ok();
            if nobody_waits {
                let _ = self.intent.unlock();
            }
            nobody_waits
        });
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // The thread is not waited for: it may stay in the kernel until another process lets go.
        *self.gate.lock() = State::Closed;
        self.gate.changed.notify_all();
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the turn if it is free. After a wait that was given up only the thread may touch the lock.
    fn try_take(&self) -> Result<bool, NoTurn> {
        if !matches!(*self.lock(), State::Idle) {
            return Ok(false);
        }
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// Has the thread wait, and waits for it.
    fn ask(&self, has_warned: &mut bool) -> Result<(), NoTurn> {
        let begun = Instant::now();
        let mut state = self.lock();
        *state = State::Asked;
        self.changed.notify_all();
        loop {
            if let State::Granted(result) = &mut *state {
                let result = std::mem::replace(result, Ok(()));
                *state = State::Idle;
                return Ok(result?);
            }
            let waited = begun.elapsed();
            if waited >= PATIENCE {
                *state = State::GivenUp;
                return Err(NoTurn::Held(Holder::of(&self.file)));
            }
            if waited >= SILENCE && !*has_warned {
                *has_warned = true;
                let holder = Holder::of(&self.file);
                tracing::warn!(%holder, "the store cannot be written: another process does not end its write");
            }
            let until = if *has_warned { PATIENCE } else { SILENCE };
            let rest = until.saturating_sub(waited);
            state = self.changed.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The thread that waits in the kernel.
    fn run(&self) {
        let mut state = self.lock();
        loop {
            match *state {
                State::Closed => return,
                State::Idle | State::Granted(_) => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                State::Asked | State::GivenUp => {
                    drop(state);
                    let got = self.file.lock();
                    state = self.lock();
                    self.grant(&mut state, got);
                }
            }
        }
    }

    /// Hands the turn over, or back if nobody wants it any more.
    fn grant(&self, state: &mut State, got: io::Result<()>) {
        if matches!(state, State::Asked) {
            *state = State::Granted(got);
            self.changed.notify_all();
            return;
        }
        if got.is_ok() {
            // Cannot fail on an open file.
            let _ = self.file.unlock();
        }
        if matches!(state, State::GivenUp) {
            *state = State::Idle;
        }
    }
}

impl From<io::Error> for NoTurn {
    fn from(error: io::Error) -> Self {
        Self::File(Arc::new(error))
    }
}

impl From<NoTurn> for Error {
    fn from(reason: NoTurn) -> Self {
        match reason {
            NoTurn::Held(holder) => Self::Store {
                operation: OPERATION,
                class: ErrorClass::RetryableTransient,
                hint: Some(HELD),
                source: format!("waited {} s for {holder}", PATIENCE.as_secs()).into(),
            },
            NoTurn::File(error) => file(OPERATION, io::Error::new(error.kind(), error)),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Cannot fail on an open file; were it to, the kernel unlocks at the end of the process.
        let _ = self.0.unlock();
    }
}

/// Tries until it succeeds, for a moment at most.
fn within_moment(mut succeeds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + STAND_BACK_MAX;
    loop {
        if succeeds() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(STAND_BACK_LOOK);
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
