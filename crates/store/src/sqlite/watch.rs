//! Notices what other processes commit.
//!
//! SQLite's data version tells that somebody else has committed something; the wake counter tells whether that was
//! something to wake for, and the writer's own share of it whether it was this process itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use stargate_queue::Result;

use super::connection;
use super::error::{Step, file};
use super::session::sql;
use super::writer::Shared;

/// How often the data version is looked at: what another process enqueues starts so much later at most.
const LOOK: Duration = Duration::from_millis(2);

/// The thread that looks. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts looking.
    pub(super) fn start(path: &Path, shared: Arc<Shared>) -> Result<Self> {
        let conn = connection::reading(path).map_err(|failure| failure.into_error("open the database"))?;
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("sqlite-watch".to_owned())
            .spawn(move || run(&conn, &shared, &stopped))
            .map_err(|error| file("start its watch", error))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(conn: &Connection, shared: &Shared, stopped: &Receiver<()>) {
    let mut seen = Seen { version: -1, foreign: 0 };
    // What happened before this process looked for the first time is found by its first claim.
    let _ = run_once(conn, shared, &mut seen);
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(LOOK) {
        match run_once(conn, shared, &mut seen) {
            Ok(true) => shared.wake(),
            Ok(false) => {}
            // The store may be gone for a while; claims will say so, this thread only waits for better times.
            Err(_) => std::thread::sleep(LOOK * 50),
        }
    }
}

struct Seen {
    version: i64,
    foreign: i64,
}

/// Whether another process has done something to wake for since the last look.
fn run_once(conn: &Connection, shared: &Shared, seen: &mut Seen) -> Step<bool> {
    let version: i64 = conn.prepare_cached("pragma data_version")?.query_row([], |row| row.get(0))?;
    if version == seen.version {
        return Ok(false);
    }
    seen.version = version;
    let all: i64 = conn.prepare_cached(sql!("counter_get"))?.query_row(["wake"], |row| row.get(0))?;
    let foreign = all - shared.own_wakes();
    let woken = foreign > seen.foreign;
    seen.foreign = foreign;
    Ok(woken)
}
