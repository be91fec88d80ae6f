//! A Postgres cluster of a test's own, for tests that stop and restart the server under a running worker.
//!
//! Everything else shares the cluster that `cargo xtask test` starts; see [`crate::postgres`].

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use crate::process::free_port;

/// How long a server may take to recover.
const REVIVAL: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// A private cluster; stopped and removed when dropped.
#[derive(Debug)]
pub struct Cluster {
    programs: PathBuf,
    folder: TempDir,
    port: u16,
    /// Whether it has to get by with little room.
    is_small: bool,
}

impl Cluster {
    /// Makes and starts a cluster with the settings of a production server: fsync and synchronous commit on.
    pub fn start() -> Self {
        Self::make(&std::env::temp_dir(), false)
    }

    /// The same on a small disk, which the user of the server can reach.
    pub fn start_in(disk: &Path) -> Self {
        Self::make(disk, true)
    }

    fn make(parent: &Path, is_small: bool) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("stargate-pg-")
            .tempdir_in(parent)
            .expect("a folder for the cluster");
        let cluster = Self { programs: programs(), folder, port: free_port(), is_small };
        if is_root() {
            cluster.run_as_is("chown", &["postgres", cluster.path()]);
        }
        cluster.run(
            "initdb",
            &["-D", &cluster.data(), "-U", "postgres", "-A", "trust", "--locale=C.UTF-8", "-E", "UTF8"],
        );
        cluster.up();
        cluster
    }

    /// A superuser's URL of the database `postgres`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Stops the server at once: no checkpoint, connections cut. What it had written and not synced is still there, as it would not be
    /// after a loss of power.
    pub fn crash(&self) {
        self.run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]);
    }

    /// Ends the server as its operators do: sessions are ended, and a checkpoint is written.
    pub fn shut_down(&self) {
        self.run("pg_ctl", &["-D", &self.data(), "-m", "fast", "-w", "stop"]);
    }

    /// Starts the server again.
    pub fn up(&self) {
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={} -c unix_socket_directories={} -c max_connections=100{}",
            self.port,
            self.path(),
            if self.is_small { " -c max_wal_size=96MB" } else { "" }
        );
        let log = format!("{}/server.log", self.path());
        self.run("pg_ctl", &["-D", &self.data(), "-w", "-t", "60", "-l", &log, "-o", &options, "start"]);
    }

    /// Waits until the server takes connections; starts it if it has ended by itself, as it does when its disk is full.
    pub fn revive(&self) {
        let deadline = Instant::now() + REVIVAL;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() || !self.answers() {
            assert!(Instant::now() < deadline, "the server does not come back");
            if self.server().is_none_or(|server| test_kill_process(server).is_err()) {
                self.up();
            }
            std::thread::sleep(LOOK);
        }
    }

    fn answers(&self) -> bool {
        let program = self.programs.join("pg_isready");
        #[expect(clippy::disallowed_methods, reason = "asks the server of a test")]
        let asked =
            Command::new(program).args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]).status();
        asked.is_ok_and(|status| status.success())
    }

    /// Stops the server and all its sessions where they stand; gives what [`Cluster::thaw`] needs.
    pub fn freeze(&self) -> Vec<Pid> {
        let Some(server) = self.server() else { return Vec::new() };
        let children = format!("/proc/{0}/task/{0}/children", server.as_raw_nonzero());
        // The server first, so that it starts no others.
        let _ = kill_process(server, Signal::STOP);
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let children = children.split_ascii_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?));
        let all: Vec<Pid> = std::iter::once(server).chain(children).collect();
        send(&all, Signal::STOP);
        all
    }

    /// Goes on after [`Cluster::freeze`].
    pub fn thaw(&self, stopped: &[Pid]) {
        send(stopped, Signal::CONT);
    }

    /// The number of the server's process, if it runs.
    pub fn id(&self) -> Option<u32> {
        self.server()?.as_raw_nonzero().get().try_into().ok()
    }

    /// The process of the server, if it runs.
    fn server(&self) -> Option<Pid> {
        let note = std::fs::read_to_string(Path::new(&self.data()).join("postmaster.pid")).ok()?;
        Pid::from_raw(note.lines().next()?.parse().ok()?)
    }

    fn path(&self) -> &str {
        self.folder.path().to_str().expect("temporary folders have plain names")
    }

    fn data(&self) -> String {
        format!("{}/data", self.path())
    }

    /// Postgres refuses to run as root, so root becomes the user that Debian's package made for it.
    fn run(&self, program: &str, arguments: &[&str]) {
        let program = self.programs.join(program);
        let program = program.to_str().expect("Debian's paths are plain");
        if is_root() {
            let become_postgres = ["--reuid=postgres", "--regid=postgres", "--init-groups", program];
            self.run_as_is("setpriv", &[&become_postgres, arguments].concat());
        } else {
            self.run_as_is(program, arguments);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where tests start a server of their own")]
    fn run_as_is(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        // pg_ctl leaves the server behind with these handles; a pipe here would never end.
        let log = self.folder.path().join("commands.log");
        let file =
            std::fs::OpenOptions::new().create(true).append(true).open(&log).expect("a log for the cluster");
        let errors = file.try_clone().expect("a second handle on the log");
        command.args(arguments).current_dir("/").stdin(Stdio::null()).stdout(file).stderr(errors);
        let status = command.status().unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        assert!(status.success(), "{program} {arguments:?} ended with {status}:\n{}", said());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(server) = self.server() {
            // SIGQUIT is the immediate shutdown. It fails when the server is down already, which is fine.
            let _ = kill_process(server, Signal::QUIT);
        }
    }
}

fn send(processes: &[Pid], signal: Signal) {
    for process in processes {
        // Sessions come and go.
        let _ = kill_process(*process, signal);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where Debian keeps the server's programs: the newest version installed.
fn programs() -> PathBuf {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|folders| {
            folders
                .flatten()
                .filter_map(|folder| {
                    Some((folder.file_name().to_str()?.parse().ok()?, folder.path().join("bin")))
                })
                .filter(|(_, programs): &(u32, PathBuf)| programs.join("initdb").exists())
                .collect()
        })
        .unwrap_or_default();
    versions.sort();
    let newest = versions.pop();
    newest
        .map(|(_, programs)| programs)
        .unwrap_or_else(|| panic!("no Postgres server: apt-get install postgresql"))
}
