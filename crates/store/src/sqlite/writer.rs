//! The one writer of this process: a thread that owns the writing connection.
//!
//! Commands queue up while a commit is under way and then share the next one (group commit). Each can be undone by
//! itself: an error rolls back that command only. Nobody is answered before the commit has returned. If the
//! commit fails, every command of the group gets its error and nothing was done.
//!
//! Heartbeats have a queue of their own that is looked at before every other command.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OptionalExtension as _};
use stargate_base::Clock;
use stargate_queue::{Error, Result};
use tokio::sync::{Semaphore, oneshot, watch};

use super::error::{Failure, Step, file, translate, writer_lost};
use super::lock::WriterLock;
use super::session::{Session, sql};
use super::{connection, migrate};

/// Commands that may wait for the writer before callers are held back.
const WAITING_MAX: usize = 4096;
/// Commands that share a commit at most.
const GROUP_MAX: usize = 1024;
/// How long a group takes further commands in; a heartbeat waits for no longer than this and one command.
const GROUP_TIME_MAX: Duration = Duration::from_millis(15);

/// With less room on the disk the log is emptied after every commit: twice the size at which SQLite empties it itself.
const ROOM_MIN: u64 = 64 << 20;

/// The key in `meta` that says where the store was moved to.
pub(super) const MOVED_TO: &str = "moved_to";

/// How a command is to be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// Served before everything else, and a commit of nothing else need not wait for the disk: heartbeats. One that
    /// is lost with the machine only makes leases shorter that were lost with it anyway.
    Beat,
    /// Served before everything else.
    First,
    /// In the order of arrival.
    Normal,
    /// As `Normal`, but also when the store was moved away.
    Moved,
}

/// Tells a caller how its command ended: with an error if the commit failed.
type Finish = Box<dyn FnOnce(Option<Error>) + Send>;
/// Does the work of a command; whether it succeeded, and how to tell.
type Work = Box<dyn FnOnce(&mut Session<'_>, Option<Error>) -> (bool, Finish) + Send>;

struct Command {
    rank: Rank,
    work: Work,
}

#[derive(Default)]
struct Queue {
    first: VecDeque<Command>,
    normal: VecDeque<Command>,
    closed: bool,
}

/// What callers and the writer's thread share.
pub(super) struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    room: Semaphore,
    wakes: watch::Sender<u64>,
    /// How often this process has raised the wake counter in the database.
    own_wakes: AtomicI64,
}

impl Shared {
    /// Wakes everybody in this process who waits for something to do.
    pub(super) fn wake(&self) {
        self.wakes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// How often this process has raised the wake counter in the database.
    pub(super) fn own_wakes(&self) -> i64 {
        self.own_wakes.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Callers' side of the writer. Dropping it ends the thread when all commands are done.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Opens the database, brings its schema up to date and starts the thread.
    pub(super) fn start(path: PathBuf, clock: Clock) -> Result<Self> {
        let mut lock = WriterLock::open(&path)?;
        let conn = open(&path, &clock, &mut lock)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            filled: Condvar::new(),
            room: Semaphore::new(WAITING_MAX),
            wakes: watch::Sender::new(0),
            own_wakes: AtomicI64::new(0),
        });
        let inside = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || run(&inside, &conn, &mut lock, clock))
            .map_err(|error| file("start its writer", error))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What the writer shares with the watch on other processes.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Changes whenever there may be something to claim or to cancel.
    pub(super) fn wakes(&self) -> watch::Receiver<u64> {
        self.shared.wakes.subscribe()
    }

    /// Has the writer do something and answers after the commit; `operation` follows "the store could not".
    pub(super) async fn write<T, F>(&self, rank: Rank, operation: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session<'_>) -> Step<T> + Send + 'static,
    {
        // Heartbeats neither wait for room nor take any.
        let _room = match rank {
            Rank::Beat | Rank::First => None,
            Rank::Normal | Rank::Moved => {
                Some(self.shared.room.acquire().await.map_err(|_| writer_lost(operation))?)
            }
        };
        let (answer, answered) = oneshot::channel();
        let work: Work = Box::new(move |session, refused| {
            let result = match refused {
                Some(error) => Err(error),
                None => work(session).map_err(|failure| {
                    session.fault = failure.fault();
                    failure.into_error(operation)
                }),
            };
            let good = result.is_ok();
            let finish: Finish = Box::new(move |failed| {
                let _ = answer.send(failed.map_or(result, Err));
            });
            (good, finish)
        });
        self.push(Command { rank, work });
        // The sender is dropped without an answer when the writer panicked or was closed.
        answered.await.unwrap_or_else(|_| Err(writer_lost(operation)))
    }

    fn push(&self, command: Command) {
        let mut queue = self.shared.lock();
        if queue.closed {
            return;
        }
        match command.rank {
            Rank::Beat | Rank::First => queue.first.push_back(command),
            Rank::Normal | Rank::Moved => queue.normal.push_back(command),
        }
        drop(queue);
        self.shared.filled.notify_one();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Closes the queue when the thread ends for whatever reason, so that nobody waits for it in vain.
struct Closing<'s>(&'s Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.closed = true;
        queue.first.clear();
        queue.normal.clear();
    }
}

/// Opens the writing connection. Only a database that is not up to date is worth a turn: who just wants to read is not
/// to wait for somebody who writes.
fn open(path: &Path, clock: &Clock, lock: &mut WriterLock) -> Result<Connection> {
    const OPERATION: &str = "open the database";
    let writing = || connection::writing(path).map_err(|failure| failure.into_error(OPERATION));
    // Kept open meanwhile: closing the only connection would empty the log.
    let reading = connection::reading(path);
    let found = reading.as_ref().ok().and_then(|reading| migrate::version(reading).ok());
    if found == Some(migrate::KNOWN) {
        return writing();
    }
    let _turn = lock.take()?;
    let mut conn = writing()?;
    let now = super::session::now(&conn, clock).map_err(|failure| failure.into_error(OPERATION))?;
    migrate::run(&mut conn, now).map_err(|failure| failure.into_error("migrate the database"))?;
    Ok(conn)
}

fn run(shared: &Shared, conn: &Connection, lock: &mut WriterLock, clock: Clock) {
    let _closing = Closing(shared);
    let mut session = Session::new(conn, clock);
    let mut version = 0;
    while wait(shared, lock) {
        let group = catch_unwind(AssertUnwindSafe(|| run_once(shared, &mut session, lock, &mut version)));
        if group.is_err() {
            tracing::error!("a command panicked in the store's writer; its group was rolled back");
            roll_back(&mut session);
        }
    }
}

/// Waits for commands; false when there will be none any more.
fn wait(shared: &Shared, lock: &mut WriterLock) -> bool {
    let mut queue = shared.lock();
    loop {
        if !queue.first.is_empty() || !queue.normal.is_empty() {
            return true;
        }
        if queue.closed {
            return false;
        }
        lock.idle();
        queue = shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

/// One group: takes the turn, runs what is queued, commits, answers.
fn run_once(shared: &Shared, session: &mut Session<'_>, lock: &mut WriterLock, version: &mut i64) {
    let turn = match lock.take() {
        Ok(turn) => turn,
        Err(reason) => {
            let commands = refuse(shared, session, || reason.clone().into());
            tracing::warn!(error = %Error::from(reason), commands, "writes were given up");
            return;
        }
    };
    let mut finishes = Vec::new();
    let committed = group(shared, session, version, &mut finishes);
    make_room(session, &committed);
    drop(turn);
    match committed {
        Ok(woken) => {
            if woken {
                shared.wake();
            }
            finishes.into_iter().for_each(|finish: Finish| finish(None));
        }
        Err(failure) => {
            roll_back(session);
            let error = match failure {
                Failure::Sql(error) => error,
                Failure::Answer(error) => Arc::new(rusqlite::Error::ToSqlConversionFailure(Box::new(error))),
            };
            tracing::warn!(%error, commands = finishes.len(), "a group of writes was rolled back");
            for finish in finishes {
                finish(Some(lost(&error)));
            }
            // Those that were not begun yet fare no better; leaving them queued would make a full disk spin.
            refuse(shared, session, || lost(&error));
        }
    }
}

/// Answers everything that is queued with an error; how much that was.
fn refuse(shared: &Shared, session: &mut Session<'_>, error: impl Fn() -> Error) -> usize {
    let commands = drain(shared);
    let count = commands.len();
    for command in commands {
        let (_, finish) = (command.work)(session, Some(error()));
        finish(None);
    }
    count
}

fn lost(error: &Arc<rusqlite::Error>) -> Error {
    translate("commit", Arc::clone(error))
}

fn drain(shared: &Shared) -> Vec<Command> {
    let mut queue = shared.lock();
    let first = std::mem::take(&mut queue.first);
    let normal = std::mem::take(&mut queue.normal);
    first.into_iter().chain(normal).collect()
}

fn roll_back(session: &mut Session<'_>) {
    session.forget();
    session.wake = false;
    if !session.conn.is_autocommit()
        && let Err(error) = session.conn.execute_batch("rollback")
    {
        tracing::error!(%error, "cannot roll back");
    }
}

/// Empties the log when the disk is nearly or entirely full. A log left to grow would take the room that the database
/// needs to take it in, and neither could move any more.
fn make_room(session: &mut Session<'_>, committed: &Step<bool>) {
    match committed {
        Ok(_) if has_room(session.conn) => return,
        Ok(_) => {}
        Err(Failure::Sql(error)) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
            roll_back(session);
        }
        Err(_) => return,
    }
    if let Err(failure) = connection::checkpoint(session.conn) {
        tracing::debug!(?failure, "the disk is nearly full and the log could not be emptied");
    }
}

/// Whether the log can grow as long as it likes.
fn has_room(conn: &Connection) -> bool {
    let free = conn.path().and_then(|path| rustix::fs::statvfs(path).ok()).map(|s| s.f_bavail * s.f_frsize);
    free.is_none_or(|bytes| bytes >= ROOM_MIN)
}

/// Runs what is queued in one transaction; whether somebody may find something to do now.
fn group(
    shared: &Shared,
    session: &mut Session<'_>,
    version: &mut i64,
    finishes: &mut Vec<Finish>,
) -> Step<bool> {
    let conn = session.conn;
    let only_beats = has_only_beats(shared);
    if session.waits_for_disk == only_beats {
        connection::wait_for_disk(conn, !only_beats)?;
        session.waits_for_disk = !only_beats;
    }
    conn.prepare_cached("begin immediate")?.execute([])?;
    let seen: i64 = conn.prepare_cached("pragma data_version")?.query_row([], |row| row.get(0))?;
    if std::mem::replace(version, seen) != seen {
        session.forget_foreign();
    }
    let moved_to: Option<String> =
        conn.prepare_cached(sql!("meta_get"))?.query_row([MOVED_TO], |row| row.get(0)).optional()?;
    session.wake = false;
    let mut woken = false;
    let mut clean = true;
    let until = Instant::now() + GROUP_TIME_MAX;
    while let Some(command) = next(shared, only_beats) {
        if let Some(target) = moved_to.as_deref().filter(|_| command.rank != Rank::Moved) {
            finishes.push((command.work)(session, Some(moved(target))).1);
        } else if clean {
            let good = first(session, command, finishes)?;
            clean = !good;
            woken |= good && session.wake;
        } else {
            woken |= further(session, command, finishes)? && session.wake;
        }
        if finishes.len() >= GROUP_MAX || Instant::now() >= until {
            break;
        }
    }
    if woken {
        session.counter_add("wake", 1)?;
        // Before the commit: seen too early it delays a wake by one look, seen too late it would be taken for
        // the commit of another process.
        shared.own_wakes.fetch_add(1, Ordering::SeqCst);
    }
    let committed = conn.prepare_cached("commit")?.execute([]);
    if woken && committed.is_err() {
        shared.own_wakes.fetch_sub(1, Ordering::SeqCst);
    }
    committed?;
    Ok(woken)
}

fn has_only_beats(shared: &Shared) -> bool {
    let queue = shared.lock();
    let beats = queue.first.iter().all(|command| command.rank == Rank::Beat);
    beats && !queue.first.is_empty() && queue.normal.is_empty()
}

fn next(shared: &Shared, only_beats: bool) -> Option<Command> {
    let mut queue = shared.lock();
    if only_beats {
        return queue.first.pop_front_if(|command| command.rank == Rank::Beat);
    }
    queue.first.pop_front().or_else(|| queue.normal.pop_front())
}

/// A command before which the transaction has changed nothing. It needs no savepoint, which would make SQLite keep
/// a copy of every page it changes: if it fails, the transaction is begun anew.
fn first(session: &mut Session<'_>, command: Command, finishes: &mut Vec<Finish>) -> Step<bool> {
    let conn = session.conn;
    let good = work(session, command, finishes)?;
    if !good {
        conn.prepare_cached("rollback")?.execute([])?;
        conn.prepare_cached("begin immediate")?.execute([])?;
    }
    Ok(good)
}

/// A command after others in the same transaction, in a savepoint of its own.
fn further(session: &mut Session<'_>, command: Command, finishes: &mut Vec<Finish>) -> Step<bool> {
    let conn = session.conn;
    conn.prepare_cached("savepoint command")?.execute([])?;
    let good = work(session, command, finishes)?;
    if !good {
        conn.prepare_cached("rollback to command")?.execute([])?;
    }
    conn.prepare_cached("release command")?.execute([])?;
    Ok(good)
}

/// Whether the command succeeded; an error when the whole transaction cannot go on.
fn work(session: &mut Session<'_>, command: Command, finishes: &mut Vec<Finish>) -> Step<bool> {
    session.begin()?;
    session.wake = false;
    let (good, finish) = (command.work)(session, None);
    finishes.push(finish);
    if good {
        // Counts that cannot be written are no fault of the command; nothing of the group may stay.
        session.end()?;
        return Ok(true);
    }
    session.forget();
    // A full disk or a failing one makes SQLite end the whole transaction by itself.
    if session.conn.is_autocommit() {
        let fault = session.fault.take().unwrap_or_else(|| Arc::new(rusqlite::Error::InvalidQuery));
        return Err(Failure::Sql(fault));
    }
    Ok(false)
}

/// The answer of a store that was moved away.
fn moved(target: &str) -> Error {
    Error::Conflict { problem: format!("this store was moved to {target}; set STARGATE_STORE to it") }
}
