//! A running git and all that it starts: one process group, which ends as a whole.
//!
//! git starts others: `ssh`, `git-remote-https`, `pack-objects`, hooks. Killing git alone leaves them behind, holding
//! a connection. Promises:
//!
//! 1. When git has exited, the rest of its group is killed.
//! 2. [`Process::terminate`] sends SIGTERM to the group and SIGKILL to what is left of it after the grace.
//! 3. A [`Process`] that is dropped takes its whole group with it.
//!
//! A descendant that makes itself the leader of another session leaves the group and with it these promises.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::error::{Error, Result};

/// What a group that was asked to end is given before it is killed.
pub const GRACE: Duration = Duration::from_secs(2);

/// How often to look whether a group that was asked to end is empty.
const LOOK: Duration = Duration::from_millis(10);

/// What to start: everything the child sees is listed here, nothing is inherited.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) dir: PathBuf,
    /// Whether the caller writes to it; otherwise its input is empty.
    pub(crate) has_input: bool,
}

/// A running child and its group.
#[derive(Debug)]
pub struct Process {
    pub(crate) child: Child,
    group: Pid,
    /// The group has been killed; its number may be somebody else's by now.
    over: bool,
}

impl Process {
    pub(crate) fn start(spec: &Spec) -> Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "the one place that starts git")]
        let mut command = Command::new(&spec.program);
        command.args(&spec.args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
        command.stdin(if spec.has_input { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.current_dir(&spec.dir).process_group(0).kill_on_drop(true);
        let failed = |source| Error::Start { program: spec.program.clone(), source };
        let child = command.spawn().map_err(failed)?;
        // Cannot fail: the child was just started and nobody has waited for it.
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let group = group.ok_or_else(|| failed(io::Error::other("the child has no id")))?;
        Ok(Self { child, group, over: false })
    }

    /// The number of the group, which is that of its first process.
    pub fn group(&self) -> Pid {
        self.group
    }

    /// Waits until git has exited by itself; the rest of its group is then killed. Safe to cancel.
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
        // git often dies before the helper it waits for; that one has the same time to end. The group's number
        // cannot be given to others while it has members.
        while Instant::now() < deadline && has_live_members(self.group) {
            tokio::time::sleep(LOOK.min(deadline - Instant::now())).await;
        }
        self.end();
        status
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.signal(Signal::KILL);
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

/// Whether a group has members that run. A dead one counts for the system until somebody has asked for its end, and
/// those whose parent was killed are left to the first process of the machine, which may take its time.
fn has_live_members(group: Pid) -> bool {
    if test_kill_process_group(group).is_err() {
        return false;
    }
    // Where there is no such listing, every member counts.
    let Ok(processes) = std::fs::read_dir("/proc") else { return true };
    let mut listed = false;
    for process in processes.flatten() {
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else { continue };
        // The name, in brackets, may contain anything: the fields after it are state, parent, group.
        let Some((_, fields)) = stat.rsplit_once(") ") else { continue };
        listed = true;
        let mut fields = fields.split(' ');
        let (state, member_of) = (fields.next(), fields.nth(1));
        let is_member =
            member_of.and_then(|number| number.parse().ok()) == Some(group.as_raw_nonzero().get());
        if is_member && !matches!(state, Some("Z" | "X")) {
            return true;
        }
    }
    !listed
}
