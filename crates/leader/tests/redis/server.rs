//! A private Redis server for a test.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stargate_base::Secret;
use stargate_leader::RedisLease;
use stargate_leader::redis::{Replicas, Settings};
use tempfile::TempDir;

/// Names the program; without it the one on the path is taken.
const PROGRAM_VARIABLE: &str = "STARGATE_TEST_REDIS_SERVER";

/// A server that ends with the test.
pub(super) struct Server {
    child: Child,
    port: u16,
    home: TempDir,
    options: Vec<String>,
}

impl Server {
    /// An empty server that keeps nothing on disk.
    pub(super) fn start() -> Self {
        Self::with(&[])
    }

    /// A server with more options, in which `PORT` stands for its port.
    pub(super) fn with(options: &[&str]) -> Self {
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
    pub(super) fn restart(&mut self) {
        self.kill();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(10) {
            if let Some(child) = spawn(self.port, &self.home, &self.options) {
                self.child = child;
                return;
            }
        }
        panic!("redis-server does not start again on port {}", self.port);
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().expect("a server that can be killed");
        self.child.wait().expect("a server that has ended");
    }

    /// Stops it where it stands, connections open.
    pub(super) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a server that runs");
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) fn port(&self) -> String {
        self.port.to_string()
    }

    pub(super) fn lease(&self) -> Arc<RedisLease> {
        lease_at(&self.address(), Replicas::Connected)
    }

    /// A connection of the test's own.
    pub(super) async fn client(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(format!("redis://{}", self.address())).expect("a URL");
        client.get_multiplexed_async_connection().await.expect("a connection to Redis")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been killed by the test already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn lease_at(address: &str, replicas: Replicas) -> Arc<RedisLease> {
    let settings = Settings { replicas, ..Settings::of(Secret::new(format!("redis://{address}"))) };
    Arc::new(RedisLease::new(settings).expect("a lease"))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("the address of a bound socket").port()
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
        if TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok() {
            return Some(child);
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "redis-server does not listen on port {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
