//! A worker that is killed while a tap is silent: nothing of the tap stays behind.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};
use stargate_testkit::eventually;
use stargate_testkit::source_server::SourceServer;

use crate::stage::{Kind, PATIENCE, Stage, Wishes};

/// Starts a child and never writes: that its pipe is closed, it would not notice. Both have its path as an argument.
const SILENT_TAP: &str = "tail -f \"$0\" >/dev/null &\nwait\n";

/// The processes that have a path as an argument. A dead one has no arguments.
struct Processes(PathBuf);

impl Processes {
    fn running(&self) -> Vec<Pid> {
        let processes = std::fs::read_dir("/proc").expect("a listing of processes").flatten();
        let pid = |name: &str| name.parse().ok().and_then(Pid::from_raw);
        let pids = processes.filter_map(|process| pid(process.file_name().to_str()?));
        pids.filter(|pid| self.is_argument_of(*pid)).collect()
    }

    fn is_argument_of(&self, pid: Pid) -> bool {
        let arguments = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == self.0.as_os_str().as_encoded_bytes())
    }

    async fn number(&self, expected: usize) {
        eventually(PATIENCE, &format!("{expected} processes of the tap"), async || {
            let running = self.running();
            if running.len() == expected { Ok(()) } else { Err(format!("{running:?}")) }
        })
        .await;
    }
}

/// A test that fails leaves none behind either.
impl Drop for Processes {
    fn drop(&mut self) {
        for pid in self.running() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn source(tap: &Path) -> String {
    format!("type = \"singer\"\ncommand = [\"/bin/sh\", \"{}\"]", tap.display())
}

#[tokio::test]
async fn a_killed_worker_leaves_nothing_of_a_silent_tap_behind() {
    let stage = Stage::new(Kind::Sqlite, SourceServer::start(0)).await;
    let tap = stage.file("silent-tap");
    std::fs::write(&tap, SILENT_TAP).unwrap();
    stage.write(&Wishes { source: Some(source(&tap)), ..Wishes::default() });
    let processes = Processes(tap);
    stage.enqueue();
    let mut worker = stage.worker();
    worker.ready().await;
    processes.number(2).await;
    // A worker killed between the start of a tap and the warden's notice is what `warden.rs` leaves open.
    eventually(PATIENCE, "the worker to have started the tap", async || {
        let log = worker.log();
        if log.contains("started the tap") { Ok(()) } else { Err(log) }
    })
    .await;
    worker.kill();
    processes.number(0).await;
    stage.remove().await;
}
