//! Child processes of handlers: the only place that starts them.
//!
//! Each child leads a process group of its own, so that what it starts in turn ends with it ([`Process`]). Promises:
//!
//! 1. The child sees a small environment: [`INHERITED`] names, what the configuration adds, what the job adds.
//! 2. If this process is killed or exits at once, a small shell kills the groups that are left ([`warden`]).

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

pub use stargate_base::Process;
use stargate_base::warden;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

/// What a child keeps of the environment of this process.
pub const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// The part of an environment that children keep; the caller passes its own, libraries do not read it.
pub fn inherited(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    environment.into_iter().filter(|(name, _)| INHERITED.iter().any(|kept| name == kept)).collect()
}

/// What to start.
#[derive(Clone)]
pub struct Spec<'a> {
    /// The program: a path, or a name that is looked up in the `PATH` of `env`.
    pub program: &'a str,
    /// Its arguments.
    pub args: &'a [String],
    /// Where it runs; the directory of this process when absent.
    pub working_dir: Option<&'a Path>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
}

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The working directory is missing.
    #[error("the working directory {path} does not exist")]
    WorkingDir {
        /// Where it should be.
        path: PathBuf,
    },
    /// Nothing of that name.
    #[error("program {program:?} was not found")]
    NotFound {
        /// As configured.
        program: String,
    },
    /// There, but not a program this user may run.
    #[error("program {program:?} cannot be executed")]
    NotExecutable {
        /// As configured.
        program: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// No processes, memory or file handles left.
    #[error("program {program:?} could not be started")]
    System {
        /// As configured.
        program: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The three pipes of a child.
#[derive(Debug)]
pub struct Pipes {
    /// Its input.
    pub stdin: ChildStdin,
    /// Its output.
    pub stdout: ChildStdout,
    /// Its complaints.
    pub stderr: ChildStderr,
}

/// Starts a program with all three pipes.
pub fn start(spec: &Spec<'_>) -> Result<(Process, Pipes), StartError> {
    #[expect(clippy::disallowed_methods, reason = "the one place that starts children of handlers")]
    let mut command = Command::new(resolve(spec.program, spec.working_dir));
    command.args(spec.args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(dir) = spec.working_dir {
        command.current_dir(dir);
    }
    let started = Process::start_with(command, warden::forget);
    let mut process = started.map_err(|source| start_error(spec, source))?;
    warden::watch(process.group());
    let child = &mut process.child;
    let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
    let Some(((stdin, stdout), stderr)) = pipes else {
        // Cannot happen: the child was just started with three pipes.
        let source = io::Error::other("the child has no pipes");
        return Err(StartError::System { program: spec.program.to_owned(), source });
    };
    Ok((process, Pipes { stdin, stdout, stderr }))
}

/// A relative path means a file below the working directory, on every platform; a bare name is looked up.
fn resolve(program: &str, working_dir: Option<&Path>) -> OsString {
    match working_dir {
        Some(dir) if program.contains('/') => {
            let path = dir.join(program);
            std::path::absolute(&path).unwrap_or(path).into_os_string()
        }
        _ => OsStr::new(program).to_owned(),
    }
}

fn start_error(spec: &Spec<'_>, source: io::Error) -> StartError {
    let program = spec.program.to_owned();
    // The system answers "not found" for both, and only one of them is the program.
    if let Some(dir) = spec.working_dir
        && !dir.is_dir()
    {
        return StartError::WorkingDir { path: dir.to_owned() };
    }
    let errno = rustix::io::Errno::from_io_error(&source);
    match source.kind() {
        io::ErrorKind::NotFound => StartError::NotFound { program },
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ArgumentListTooLong
        | io::ErrorKind::InvalidInput => StartError::NotExecutable { program, source },
        _ if errno == Some(rustix::io::Errno::NOEXEC) => StartError::NotExecutable { program, source },
        _ => StartError::System { program, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn starting_what_is_not_there_or_not_executable_says_which() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("data.txt"), "no program").unwrap();
        let start = |program, working_dir| {
            super::start(&Spec { program, args: &[], working_dir, env: Vec::new() }).map(drop).unwrap_err()
        };
        assert!(matches!(start("no-such-program-here", None), StartError::NotFound { .. }));
        assert!(matches!(start("./data.txt", Some(dir.path())), StartError::NotExecutable { .. }));
        let missing = dir.path().join("missing");
        assert!(matches!(start("sh", Some(&missing)), StartError::WorkingDir { .. }));
    }

    #[test]
    fn only_the_listed_names_are_inherited() {
        let all = [("PATH", "/bin"), ("AWS_SECRET_ACCESS_KEY", "x"), ("TZ", "UTC")];
        let kept = inherited(all.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(kept.len(), 2);
    }
}
