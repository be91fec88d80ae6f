//! A private Redis server for a test: killed, stopped, emptied, replicated and promoted at will.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::free_port;

/// Names the program; without it the one on the path is taken.
const PROGRAM_VARIABLE: &str = "STARGATE_TEST_REDIS_SERVER";

/// How long the server may take to start and to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server that ends with the test.
#[derive(Debug)]
pub struct Redis {
    child: Child,
    port: u16,
    home: TempDir,
    options: Vec<String>,
}

impl Redis {
    /// An empty server that keeps nothing on disk.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server that has every write on disk before it answers.
    pub fn durable() -> Self {
        Self::with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A server that copies what the one at `host:port` has.
    pub fn replica_of(address: &str) -> Self {
        let (host, port) = address.rsplit_once(':').expect("host:port");
        Self::with(&["--replicaof", host, port])
    }

    /// A server with more options, in which `PORT` stands for its port.
    pub fn with(options: &[&str]) -> Self {
        let home = tempfile::tempdir().expect("a folder for Redis");
        let options = options.iter().map(ToString::to_string).collect::<Vec<_>>();
        // Another process may take the port between our looking and Redis' binding it.
        for _ in 0..10 {
            let port = free_port();
            if let Some(child) = spawn(port, &home, &options) {
                return Self { child, port, home, options };
            }
        }
        panic!("redis-server does not start; see {}", home.path().display());
    }

    /// Kills it and starts it again on the same port, with what it kept.
    pub fn restart(&mut self) {
        self.kill();
        self.up();
    }

    /// Kills it and starts it again on the same port, with nothing.
    pub fn restart_empty(&mut self) {
        self.kill();
        self.home = tempfile::tempdir().expect("a folder for Redis");
        self.up();
    }

    /// Starts it again after [`Redis::kill`].
    pub fn up(&mut self) {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(child) = spawn(self.port, &self.home, &self.options) {
                self.child = child;
                return;
            }
        }
        panic!("redis-server does not start again on port {}", self.port);
    }

    /// SIGKILL: gone without a word.
    pub fn kill(&mut self) {
        self.child.kill().expect("a server that can be killed");
        self.child.wait().expect("a server that has ended");
    }

    /// Stops it where it stands, connections open.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Goes on after [`Redis::freeze`].
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a server that runs");
    }

    /// Where it listens, as `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// How to connect to it.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Makes a replica a primary, with what it has.
    pub fn promote(&self) {
        assert_eq!(self.ask("REPLICAOF NO ONE"), "+OK\r\n");
    }

    /// Whether a replica is connected and up to date.
    pub fn has_replica(&self) -> bool {
        self.ask("INFO replication").contains("state=online")
    }

    /// How long it has been running, by its own account.
    pub fn uptime(&self) -> Duration {
        let info = self.ask("INFO server");
        let seconds = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        Duration::from_secs(seconds.and_then(|text| text.trim().parse().ok()).expect("INFO names the uptime"))
    }

    /// Sends a command of plain words and gives the answer as it is on the wire. Answers of one piece only.
    pub fn ask(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).expect("a server that listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // QUIT makes the server end the connection after its answers.
        write!(stream, "{command}\r\nQUIT\r\n").expect("a server that reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.strip_suffix("+OK\r\n").expect("the answer to QUIT").to_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have been killed by the test already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        return program.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("redis-server")).find(|p| p.is_file());
    found.unwrap_or_else(|| {
        panic!("no redis-server for tests: run `cargo xtask test`, which installs it (or name it in {PROGRAM_VARIABLE})")
    })
}

/// Starts a server; `None` if it ended at once, as it does when the port is taken.
fn spawn(port: u16, home: &TempDir, options: &[String]) -> Option<Child> {
    #[expect(clippy::disallowed_methods, reason = "a server of the test's own, ended with it")]
    let mut command = Command::new(program());
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--daemonize", "no"]);
    command.args(["--dir", &home.path().display().to_string(), "--logfile", "redis.log"]);
    command.args(options.iter().map(|option| option.replace("PORT", &port.to_string())));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("redis-server starts");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let begin = Instant::now();
    loop {
        if child.try_wait().expect("a child to look at").is_some() {
            return None;
        }
        if is_up(&address) {
            return Some(child);
        }
        assert!(begin.elapsed() < PATIENCE, "redis-server does not listen on port {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether it listens and has read what it kept. Any answer will do: it may want a password, or TLS.
fn is_up(address: &SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(address, Duration::from_millis(200)) else {
        return false;
    };
    let mut answer = [0; 8];
    let asked = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.write_all(b"PING\r\n"));
    let _ = asked.and_then(|()| stream.read(&mut answer));
    answer != *b"-LOADING"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durable_server_keeps_and_an_emptied_one_forgets() {
        let mut redis = Redis::durable();
        assert_eq!(redis.ask("SET k v"), "+OK\r\n");
        redis.restart();
        assert_eq!(redis.ask("GET k"), "$1\r\nv\r\n");
        redis.restart_empty();
        assert_eq!(redis.ask("GET k"), "$-1\r\n");
        assert!(redis.uptime() < PATIENCE);
    }
}
