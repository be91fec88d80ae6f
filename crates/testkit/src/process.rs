//! The real binary, for end-to-end tests: started in a home of its own, watched, signalled, and never left behind.
//!
//! A test of the `stargate` crate passes `env!("CARGO_BIN_EXE_stargate")`.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::eventually;

/// How long a process may take until it answers.
pub const READY_DEADLINE: Duration = Duration::from_secs(30);

/// Processes started so far.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// The binary and the home it runs in. Several processes may share it.
#[derive(Debug)]
pub struct Program {
    binary: PathBuf,
    home: TempDir,
    settings: Vec<(String, String)>,
}

impl Program {
    /// The binary with an empty home of its own.
    pub fn new(binary: impl AsRef<Path>) -> Self {
        let home =
            tempfile::Builder::new().prefix("stargate-home-").tempdir().expect("a home for the binary");
        Self { binary: binary.as_ref().to_owned(), home, settings: Vec::new() }
    }

    /// Adds an environment variable for everything started from here.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.settings.push((name.to_owned(), value.into()));
        self
    }

    /// Where it keeps its files.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        match command.stdin(Stdio::null()).output() {
            Ok(output) => output,
            Err(error) => panic!("cannot run {}: {error}", self.binary.display()),
        }
    }

    /// Runs a command that has to succeed, and gives its standard output without the last line feed.
    pub fn answer(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "stargate {} ended with {}\n--- stdout\n{}\n--- stderr\n{}",
            arguments.join(" "),
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout).trim_end().to_owned()
    }

    /// Starts a command that stays, listening at a free port of its own.
    pub fn start(&self, arguments: &[&str]) -> Running {
        self.start_with(arguments, &[])
    }

    /// The same, with environment variables for this process only.
    pub fn start_with(&self, arguments: &[&str], settings: &[(&str, &str)]) -> Running {
        let address = format!("127.0.0.1:{}", free_port());
        // A port may be used again, and what an earlier process has said is read in the end.
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let log = self.home().join(format!("log-{number}-{}.txt", address.replace(':', "-")));
        let file = std::fs::File::create(&log).expect("a log file in the home");
        let mut command = self.command(arguments);
        command.envs(settings.iter().copied());
        command.stdout(file.try_clone().expect("a second handle on the log")).stderr(file);
        self.spawn(command, arguments, address, log)
    }

    /// Starts a command that stays, and whose words go into a pipe that nobody reads any more.
    pub fn start_unheard(&self, arguments: &[&str]) -> Running {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = self.command(arguments);
        command.stdout(writer.try_clone().expect("a second handle on the pipe")).stderr(writer);
        let address = format!("127.0.0.1:{}", free_port());
        self.spawn(command, arguments, address, PathBuf::new())
    }

    fn spawn(&self, mut command: Command, arguments: &[&str], address: String, log: PathBuf) -> Running {
        match command.env("STARGATE_LISTEN", &address).stdin(Stdio::null()).spawn() {
            Ok(child) => Running { child, address, log, name: arguments.join(" ") },
            Err(error) => panic!("cannot start {}: {error}", self.binary.display()),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where tests start the binary under test")]
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).current_dir(self.home()).env_clear();
        // Only what a program needs to find others: settings of the developer's shell must not decide a test.
        for name in ["PATH", "LANG", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("STARGATE_HOME", self.home()).env("HOME", self.home()).env("NO_COLOR", "1");
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A started process. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    address: String,
    log: PathBuf,
    name: String,
}

impl Running {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("the state of the child").is_none()
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where it prints to.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Waits until `/readyz` answers 200.
    pub async fn ready(&mut self) {
        let address = self.address.clone();
        eventually(READY_DEADLINE, "an answer at /readyz", || {
            let ended = self.child.try_wait().expect("the state of the child");
            let log = self.log();
            let address = address.clone();
            async move {
                if let Some(status) = ended {
                    panic!("the process ended with {status} before it was ready; its log:\n{log}");
                }
                match get(&address, "/readyz").await {
                    Ok((200, _)) => Ok(()),
                    Ok((status, body)) => Err(format!("/readyz answers {status}: {body}; log:\n{log}")),
                    Err(error) => Err(format!("{error}; log:\n{log}")),
                }
            }
        })
        .await;
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        if let Err(error) = kill_process(pid, signal) {
            panic!("cannot send {signal:?} to `stargate {}`: {error}", self.name);
        }
    }

    /// SIGTERM: please end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGSTOP: alive, but not moving, as under a long garbage collection or a suspended machine.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Whether all its threads stand still, as some time after [`Running::freeze`].
    pub fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id())).into_iter().flatten().flatten();
        let states: Vec<String> = threads
            .map(|thread| std::fs::read_to_string(thread.path().join("status")).unwrap_or_default())
            .collect();
        let stopped = |status: &String| status.lines().any(|line| line.starts_with("State:\tT"));
        !states.is_empty() && states.iter().all(stopped)
    }

    /// Stops it in mid-write to the SQLite store in its home: until it goes on, nobody else can write there.
    pub async fn freeze_in_mid_write(&self, home: &Path) {
        self.freeze_while(home, true).await;
    }

    /// Stops it, but not in mid-write to an SQLite store in its home.
    pub async fn freeze_between_writes(&self, home: &Path) {
        self.freeze_while(home, false).await;
    }

    async fn freeze_while(&self, home: &Path, writes: bool) {
        let turn = home.join("stargate.db.writer-lock");
        let what = if writes { "a moment in which it writes" } else { "a moment in which it does not write" };
        eventually(READY_DEADLINE, what, || async {
            self.freeze();
            while !self.is_stopped() {
                std::thread::yield_now();
            }
            if self.has_locked(&turn) == writes {
                return Ok(());
            }
            self.thaw();
            Err(format!("none so far; its log:\n{}", self.log()))
        })
        .await;
    }

    /// Whether it holds the lock (`flock`) on a file.
    fn has_locked(&self, path: &Path) -> bool {
        let Ok(file) = std::fs::metadata(path) else { return false };
        let holder = format!(" {} ", self.id());
        let inode = format!(":{} ", file.ino());
        let locks = std::fs::read_to_string("/proc/locks").expect("the locks of the system");
        // Those who only wait have an arrow.
        let holds = |line: &str| line.contains(": FLOCK") && line.contains(&holder) && line.contains(&inode);
        locks.lines().any(holds)
    }

    /// SIGCONT: goes on after [`Running::freeze`].
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL: gone without a word. Waits until it is.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("the end of a killed child");
    }

    /// Waits for its end.
    pub async fn ended(&mut self, deadline: Duration) -> ExitStatus {
        let what = format!("the end of `stargate {}`", self.name);
        eventually(deadline, &what, || {
            let ended = self.child.try_wait().expect("the state of the child");
            let log = self.log();
            async move { ended.ok_or(format!("still runs; its log:\n{log}")) }
        })
        .await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is fine.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// How long an answer may take. A process that stands still takes connections too, and never answers.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// Asks with a plain GET; the status and the body.
pub async fn get(address: &str, path: &str) -> std::io::Result<(u16, String)> {
    let late = |_| std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no answer at {path}"));
    tokio::time::timeout(ANSWER_DEADLINE, ask(address, path)).await.map_err(late)?
}

async fn ask(address: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((status, body.to_owned()))
}

/// A port that nobody uses at this moment.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("the address of a bound socket").port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_in_its_home_without_the_shells_settings() {
        let shell = Program::new("/bin/sh").with("MINE", "yes");
        assert_eq!(
            shell.answer(&["-c", "echo $MINE $USER $STARGATE_HOME"]),
            format!("yes {}", shell.home().display())
        );
        assert_eq!(shell.run(&["-c", "exit 3"]).status.code(), Some(3));
    }

    #[tokio::test]
    async fn a_started_process_logs_stops_goes_on_and_ends_when_told() {
        let shell = Program::new("/bin/sh");
        let mut running =
            shell.start(&["-c", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done"]);
        let deadline = Duration::from_secs(20);
        eventually(deadline, "the first line", || {
            let log = running.log();
            async move { if log.contains("up") { Ok(()) } else { Err(format!("the log is {log:?}")) } }
        })
        .await;
        running.freeze();
        running.terminate();
        running.thaw();
        assert_eq!(running.ended(deadline).await.code(), Some(7), "it hears SIGTERM once it goes on");
        assert!(running.log().contains("bye"), "{}", running.log());
    }

    #[test]
    fn a_dropped_process_is_killed() {
        let shell = Program::new("/bin/sh");
        let running = shell.start(&["-c", "exec sleep 1000"]);
        let pid = Pid::from_child(&running.child);
        drop(running);
        assert!(rustix::process::test_kill_process(pid).is_err(), "process {pid:?} is still there");
    }
}
