//! Runs a git command to its end: time and output are bounded, what it says is redacted.

use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::process::{GRACE, Spec, start};
use crate::redact::Redactor;

/// How much of what git writes to stderr is kept: its end.
pub const STDERR_BYTES_MAX: usize = 64 << 10;

/// Output that arrives later than this after git's end belongs to something that escaped its group.
const DRAIN_QUIET: Duration = Duration::from_millis(250);

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// It was killed by this signal, not by us.
    Killed(i32),
    /// It did not end in time, and was ended with all that it had started.
    TimedOut,
}

impl End {
    /// The exit code, if there is one.
    pub fn code(self) -> Option<i32> {
        match self {
            Self::Exited(code) => Some(code),
            Self::Killed(_) | Self::TimedOut => None,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => write!(f, "killed by signal {signal}"),
            Self::TimedOut => f.write_str("timed out"),
        }
    }
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        match status.code() {
            Some(code) => Self::Exited(code),
            None => Self::Killed(status.signal().unwrap_or_default()),
        }
    }
}

/// What a command said and how it ended.
#[derive(Debug, Clone)]
pub struct Answer {
    /// How it ended.
    pub end: End,
    /// What it wrote to stdout, as it is: not redacted, because ids and names are read from it.
    pub stdout: Vec<u8>,
    /// The end of what it wrote to stderr, redacted.
    pub stderr: String,
}

impl Answer {
    /// Whether it exited with code 0.
    pub fn succeeded(&self) -> bool {
        self.end == End::Exited(0)
    }
}

/// What a command may use up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) time: Duration,
    pub(crate) stdout_bytes_max: usize,
}

/// Runs a command to its end, or to the end of its time. Dropping the future ends the group.
pub(crate) async fn run(
    operation: &'static str,
    spec: &Spec,
    input: &[u8],
    bounds: Bounds,
    redactor: &Redactor,
) -> Result<Answer> {
    let mut process = start(spec)?;
    let (stdin, stdout, stderr) =
        (process.child.stdin.take(), process.child.stdout.take(), process.child.stderr.take());
    let exited = CancellationToken::new();
    let written = async {
        if let Some(mut stdin) = stdin {
            // A git that does not want its input says why on stderr and by its exit code.
            let _ = stdin.write_all(input).await;
        }
    };
    let ended = async {
        let ended = match tokio::time::timeout(bounds.time, process.wait()).await {
            Ok(ended) => ended.map(End::from),
            Err(_) => process.terminate(GRACE).await.map(|_| End::TimedOut),
        };
        exited.cancel();
        ended
    };
    let heard = collect(stdout, bounds.stdout_bytes_max, &exited);
    let complaints = overhear(stderr, &exited, redactor);
    // What is written too much ends the command at once, by dropping the process.
    let all = async { tokio::join!(written, ended, complaints) };
    tokio::pin!(all, heard);
    let (((), end, stderr), stdout) = tokio::select! {
        all = &mut all => (all, heard.await),
        heard = &mut heard => match heard {
            Some(stdout) => (all.await, Some(stdout)),
            None => return Err(Error::TooMuch { operation, bytes_max: bounds.stdout_bytes_max }),
        },
    };
    let stdout = stdout.ok_or(Error::TooMuch { operation, bytes_max: bounds.stdout_bytes_max })?;
    let end = end.map_err(|source| Error::Pipe { operation, source })?;
    Ok(Answer { end, stdout, stderr })
}

/// All of a stream, or nothing if it is longer than allowed.
async fn collect(
    stream: Option<impl AsyncRead + Unpin>,
    bytes_max: usize,
    exited: &CancellationToken,
) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(mut stream) = stream else { return Some(bytes) };
    let mut buffer = vec![0; 8192];
    while let Some(read) = next(&mut stream, &mut buffer, exited).await {
        if bytes.len() + read > bytes_max {
            return None;
        }
        bytes.extend_from_slice(&buffer[..read]);
    }
    Some(bytes)
}

/// The end of a stream, as a redacted text.
pub(crate) async fn overhear(
    stream: Option<impl AsyncRead + Unpin>,
    exited: &CancellationToken,
    redactor: &Redactor,
) -> String {
    let mut tail = Tail::default();
    if let Some(mut stream) = stream {
        let mut buffer = vec![0; 4096];
        while let Some(read) = next(&mut stream, &mut buffer, exited).await {
            tail.push(&buffer[..read]);
        }
    }
    tail.text(redactor)
}

/// Reads until the stream ends, or until git has exited and it is quiet: something that escaped may hold it open.
async fn next(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut [u8],
    exited: &CancellationToken,
) -> Option<usize> {
    let quiet = async {
        exited.cancelled().await;
        tokio::time::sleep(DRAIN_QUIET).await;
    };
    let read = tokio::select! {
        biased;
        read = stream.read(buffer) => read.unwrap_or(0),
        () = quiet => 0,
    };
    (read > 0).then_some(read)
}

/// The last bytes of a stream of any length.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    cut: bool,
}

impl Tail {
    fn push(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
        // Room for twice as much, so that each byte is moved at most once.
        if self.bytes.len() > 2 * STDERR_BYTES_MAX {
            self.bytes.drain(..self.bytes.len() - STDERR_BYTES_MAX);
            self.cut = true;
        }
    }

    fn text(&self, redactor: &Redactor) -> String {
        let mut text = redactor.redact_bytes(&self.bytes);
        if self.cut {
            // Where it was cut, the rest of a secret is not known for one: leave out as much as it could be.
            let from = text.ceil_char_boundary(redactor.longest().min(text.len()));
            text.drain(..from);
        }
        if text.len() > STDERR_BYTES_MAX {
            let cut = text.ceil_char_boundary(text.len() - STDERR_BYTES_MAX);
            text.drain(..cut);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use stargate_base::Secret;

    use super::*;

    fn shell(script: &str) -> Spec {
        Spec {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            dir: "/".into(),
            has_input: true,
        }
    }

    const BOUNDS: Bounds = Bounds { time: Duration::from_secs(60), stdout_bytes_max: 1000 };

    /// Whether a process runs; a zombie that nobody reaps does not.
    fn runs(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z"))
    }

    async fn ends(pid: &str) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while runs(pid) {
            assert!(tokio::time::Instant::now() < deadline, "process {pid} is still there");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn input_goes_in_and_both_outputs_and_the_code_come_out() {
        let redactor = Redactor::new([Secret::new("canary")]);
        let spec = shell("read line; echo \"out $line\"; echo \"err $line\" >&2; exit 3");
        let answer = run("x", &spec, b"canary\n", BOUNDS, &redactor).await.unwrap();
        assert_eq!(answer.end, End::Exited(3));
        assert_eq!((answer.stdout.as_slice(), answer.stderr.as_str()), (&b"out canary\n"[..], "err ***\n"));
    }

    #[tokio::test]
    async fn too_much_output_ends_the_command() {
        let answer = run("x", &shell("while :; do echo yes; done"), b"", BOUNDS, &Redactor::default()).await;
        assert!(matches!(answer, Err(Error::TooMuch { .. })), "{answer:?}");
    }

    #[tokio::test]
    async fn a_flood_on_stderr_is_cut_at_its_beginning_and_a_cut_secret_is_not_shown() {
        let redactor = Redactor::new([Secret::new("canary-".repeat(40))]);
        let script = format!("yes '{}' | head -c 400000 >&2; echo end >&2", "canary-".repeat(40));
        let answer = run("x", &shell(&script), b"", BOUNDS, &redactor).await.unwrap();
        assert!(answer.stderr.len() <= STDERR_BYTES_MAX && answer.stderr.ends_with("end\n"));
        // The last line was cut by head, so a part of it is there; what was cut at the beginning is not.
        assert!(!answer.stderr[..answer.stderr.len() - 300].contains("canary"), "{}", answer.stderr);
    }

    #[tokio::test]
    async fn at_the_end_of_its_time_the_whole_group_ends_even_if_it_does_not_want_to() {
        let dir = tempfile::tempdir().unwrap();
        let note = dir.path().join("pids");
        let script = format!(
            "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >> {0}; while :; do sleep 600; done' & echo $$ >> {0}; \
             while :; do sleep 600; done",
            note.display()
        );
        let bounds = Bounds { time: Duration::from_secs(4), ..BOUNDS };
        let answer = run("x", &shell(&script), b"", bounds, &Redactor::default()).await.unwrap();
        assert_eq!(answer.end, End::TimedOut);
        let pids = std::fs::read_to_string(&note).unwrap();
        assert_eq!(pids.lines().count(), 2, "{pids}");
        for pid in pids.lines() {
            ends(pid).await;
        }
    }

    #[tokio::test]
    async fn a_dropped_run_and_what_a_command_leaves_behind_end_too() {
        let dir = tempfile::tempdir().unwrap();
        let note = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; wait", note.display());
        let spec = shell(&script);
        let redactor = Redactor::default();
        tokio::select! {
            answer = run("x", &spec, b"", BOUNDS, &redactor) => panic!("{answer:?}"),
            () = async { while !note.exists() { tokio::time::sleep(Duration::from_millis(5)).await } } => {}
        }
        ends(&std::fs::read_to_string(&note).unwrap()).await;

        let answer = run("x", &shell("sleep 600 & echo $!"), b"", BOUNDS, &redactor).await.unwrap();
        ends(&String::from_utf8(answer.stdout).unwrap()).await;
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let spec = Spec { program: "/no/such/git".into(), ..shell("") };
        let error = run("x", &spec, b"", BOUNDS, &Redactor::default()).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot start /no/such/git");
    }
}
