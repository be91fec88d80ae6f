//! Child processes of handlers: the only place that starts them.
//!
//! Each child leads a process group of its own, so that what it starts in turn ends with it. Promises:
//!
//! 1. The child sees a small environment: [`INHERITED`] names, what the configuration adds, what the job adds.
//! 2. When the child has exited, the rest of its group is killed.
//! 3. [`Process::terminate`] sends SIGTERM to the group and SIGKILL to what is left of it after the grace.
//! 4. A [`Process`] that is dropped takes its whole group with it.
//! 5. If this process is killed or exits at once, a small shell kills the groups that are left (`warden.rs`).
//!
//! A descendant that makes itself the leader of another session leaves the group and with it these promises.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::Instant;

use crate::warden;

/// What a child keeps of the environment of this process.
pub const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];

/// How often to look whether a group that was asked to end is empty.
const LOOK: Duration = Duration::from_millis(10);

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

/// A running child and its group.
#[derive(Debug)]
pub struct Process {
    child: Child,
    group: Pid,
    /// The group has been killed; its number may be somebody else's by now.
    over: bool,
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

impl Process {
    /// Starts a program with all three pipes.
    pub fn start(spec: &Spec<'_>) -> Result<(Self, Pipes), StartError> {
        #[expect(clippy::disallowed_methods, reason = "the one place that starts children of handlers")]
        let mut command = Command::new(resolve(spec.program, spec.working_dir));
        command.args(spec.args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        if let Some(dir) = spec.working_dir {
            command.current_dir(dir);
        }
        let mut child = command.spawn().map_err(|source| start_error(spec, source))?;
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let (Some(group), Some(((stdin, stdout), stderr))) = (group, pipes) else {
            // Cannot happen: the child was just started with three pipes and nobody waited for it.
            let source = io::Error::other("the child has no id or no pipes");
            return Err(StartError::System { program: spec.program.to_owned(), source });
        };
        warden::watch(group);
        Ok((Self { child, group, over: false }, Pipes { stdin, stdout, stderr }))
    }

    /// Waits until the child has exited by itself; the rest of its group is then killed. Safe to cancel.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        // No await lies between the end of the child and this, so nobody can have been given its number yet.
        self.end();
        Ok(status)
    }

    /// Asks the group to end, and kills what is left of it after `grace`.
    pub async fn terminate(&mut self, grace: Duration) -> io::Result<ExitStatus> {
        let deadline = Instant::now() + grace;
        self.signal(Signal::TERM);
        let Ok(status) = tokio::time::timeout_at(deadline, self.child.wait()).await else {
            self.signal(Signal::KILL);
            return self.wait().await;
        };
        // A shell often dies before the program it waits for; that program has the same time to tidy up. The
        // group's number cannot be given to others while it has members.
        while Instant::now() < deadline && test_kill_process_group(self.group).is_ok() {
            tokio::time::sleep(LOOK.min(deadline - Instant::now())).await;
        }
        self.end();
        status
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.signal(Signal::KILL);
            warden::forget(self.group);
        }
    }

    fn signal(&self, signal: Signal) {
        // An empty group is what is wanted, so a failure to find it is none.
        if let Err(error) = kill_process_group(self.group, signal)
            && error != rustix::io::Errno::SRCH
        {
            tracing::warn!(group = self.group.as_raw_nonzero(), %error, "a process group could not be signalled");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
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

    fn shell(script: &str) -> (Process, Pipes) {
        let args = ["-c".to_owned(), script.to_owned()];
        let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
        Process::start(&Spec { program: "sh", args: &args, working_dir: None, env }).unwrap()
    }

    /// Reads the number a script prints on its first line.
    async fn number(stdout: &mut ChildStdout) -> Pid {
        use tokio::io::AsyncBufReadExt as _;
        let mut line = String::new();
        tokio::io::BufReader::new(stdout).read_line(&mut line).await.unwrap();
        Pid::from_raw(line.trim().parse().unwrap()).unwrap()
    }

    /// Waits until a process is gone; a zombie that nobody reaps counts as gone.
    async fn gone(pid: Pid) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
            if stat.is_ok_and(|s| !s.contains(") Z")) {
                assert!(Instant::now() < deadline, "process {pid:?} is still there");
                tokio::time::sleep(LOOK).await;
            } else {
                return;
            }
        }
    }

    #[tokio::test]
    async fn a_dropped_process_takes_its_children_with_it() {
        let (process, mut pipes) = shell("trap '' TERM; sleep 600 & echo $!; wait");
        let grandchild = number(&mut pipes.stdout).await;
        let child = process.group;
        drop(process);
        gone(grandchild).await;
        gone(child).await;
    }

    #[tokio::test]
    async fn a_drop_within_the_grace_kills_what_the_dead_shell_has_left() {
        let (mut process, mut pipes) =
            shell("sh -c 'trap \"\" TERM; echo $$; while :; do sleep 600; done' & wait");
        let grandchild = number(&mut pipes.stdout).await;
        let child = process.group;
        tokio::select! {
            status = process.terminate(Duration::from_secs(600)) => panic!("ended: {status:?}"),
            () = gone(child) => {}
        }
        drop(process);
        gone(grandchild).await;
    }

    #[tokio::test]
    async fn what_a_child_leaves_in_the_background_ends_with_it() {
        let (mut process, mut pipes) = shell("sleep 600 & echo $!");
        let grandchild = number(&mut pipes.stdout).await;
        assert!(process.wait().await.unwrap().success());
        gone(grandchild).await;
    }

    #[tokio::test]
    async fn a_group_that_ignores_the_request_is_killed_after_the_grace() {
        let (mut process, mut pipes) = shell("trap '' TERM; echo $$; while :; do sleep 600; done");
        let child = number(&mut pipes.stdout).await;
        let started = Instant::now();
        let status = process.terminate(Duration::from_millis(100)).await.unwrap();
        assert!(!status.success());
        assert!(started.elapsed() >= Duration::from_millis(100));
        gone(child).await;
    }

    #[tokio::test]
    async fn a_grandchild_has_the_same_grace_although_its_shell_is_dead() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("tidy");
        let script = format!(
            "sh -c 'trap \"sleep 0.2; touch {}; exit\" TERM; echo $$; while :; do sleep 0.01; done' & wait",
            mark.display()
        );
        let (mut process, mut pipes) = shell(&script);
        let grandchild = number(&mut pipes.stdout).await;
        process.terminate(Duration::from_secs(10)).await.unwrap();
        assert!(mark.exists(), "the grandchild was killed before it had tidied up");
        gone(grandchild).await;
    }

    #[tokio::test]
    async fn starting_what_is_not_there_or_not_executable_says_which() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("data.txt"), "no program").unwrap();
        let start = |program, working_dir| {
            Process::start(&Spec { program, args: &[], working_dir, env: Vec::new() }).map(drop).unwrap_err()
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
