//! A worker process of a drill: started, hit, and never left behind.
//!
//! It is a process group of its own, so that what a terminal sends to the drill does not reach it: the drill decides how
//! its workers end. If the drill itself is killed, the warden kills them (SIGKILL, which a stopped process obeys as well),
//! and each worker's own warden ends the programs of its jobs.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use stargate_base::{Process, warden};
use tokio::process::Command;

use crate::config::store_url::StoreUrl;
use crate::failure::{Failure, Result};

/// How long a process may take to end when asked to.
pub(super) const ENDING: Duration = Duration::from_secs(20);

/// A worker of the drill's own.
pub(super) struct Worker {
    /// Absent when it has ended: its number may be somebody else's by now.
    process: Option<Process>,
    /// Its number, by which the store's rows name it even when it has ended.
    id: Pid,
}

/// Starts a program that ends with this one, however this one ends.
pub(super) fn start_watched(command: Command) -> io::Result<Process> {
    let process = Process::start_with(command, warden::forget)?;
    warden::watch(process.group());
    Ok(process)
}

impl Worker {
    /// Starts a worker that runs in `folder` and writes its log there. The store's URL goes by the environment: it may
    /// hold a password.
    #[expect(clippy::disallowed_methods, reason = "this very program, as a worker that the drill may kill")]
    pub(super) fn start(
        folder: &Path,
        log: &str,
        home: &Path,
        store: &StoreUrl,
        queue: &str,
    ) -> Result<Self> {
        let program =
            std::env::current_exe().map_err(|error| Failure::io("cannot find this program", &error))?;
        let no_log = |error| Failure::io("cannot write a log", &error);
        let log = File::create(folder.join(log)).map_err(no_log)?;
        let mut command = Command::new(program);
        command.args(["worker", "--queue", queue, "--listen", "127.0.0.1:0"]).current_dir(folder).env_clear();
        for name in ["PATH", "HOME", "LANG", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("STARGATE_STORE", absolute(store)).env("STARGATE_HOME", home).stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(no_log)?).stderr(log);
        let process = start_watched(command).map_err(|error| Failure::io("cannot start a worker", &error))?;
        Ok(Self { id: process.group(), process: Some(process) })
    }

    /// Whether the store means this one by a name.
    pub(super) fn is_called(&self, name: &str) -> bool {
        name.contains(&format!(":{}:", self.id.as_raw_nonzero()))
    }

    /// SIGKILL; waits until it is gone.
    pub(super) async fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        if let Some(mut process) = self.process.take() {
            process.wait().await.map_err(|error| Failure::io("cannot kill the worker", &error))?;
        }
        Ok(())
    }

    /// SIGSTOP. For a moment some of its threads go on: see [`Worker::stands_still`].
    pub(super) fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Whether all its threads have stopped.
    pub(super) fn stands_still(&self) -> Result<bool> {
        let only_look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let looked = self.pid().and_then(|pid| waitid(WaitId::Pid(pid), only_look));
        let status = looked.map_err(|error| Failure::io("cannot look at the worker", &error.into()))?;
        Ok(status.is_some_and(|status| status.stopped()))
    }

    /// SIGCONT.
    pub(super) fn wake(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end, which takes its row out of the store, and kills it if it does not. It may have ended already.
    pub(super) async fn end(&mut self) {
        // One that is still stopped would not hear the request.
        let _ = self.wake();
        if let Some(mut process) = self.process.take() {
            let _ = process.terminate(ENDING).await;
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let sent = self.pid().and_then(|pid| kill_process(pid, signal));
        sent.map_err(|error| Failure::io("cannot signal the worker", &error.into()))
    }

    fn pid(&self) -> Result<Pid, Errno> {
        self.process.as_ref().map(Process::group).ok_or(Errno::SRCH)
    }
}

/// The store's URL as it can be used from another folder.
fn absolute(store: &StoreUrl) -> String {
    match store {
        StoreUrl::Sqlite(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            format!("sqlite:{}", path.display())
        }
        StoreUrl::Postgres(url) => url.reveal().to_owned(),
    }
}
