//! A running program and all that it starts: one process group, which ends as a whole.
//!
//! Programs start others: a shell its commands, git `ssh` and `pack-objects`. Killing the first alone leaves them behind,
//! holding a connection or a file. Promises:
//!
//! 1. When the first process has exited, the rest of its group is killed.
//! 2. [`Process::terminate`] sends SIGTERM to the group and SIGKILL to what is left of it after the grace.
//! 3. A [`Process`] that is dropped takes its whole group with it.
//! 4. Started by [`Process::start_gently`], a group is asked to end by SIGTERM before 1 and 3 kill it: a program that
//!    is killed leaves its locks behind.
//!
//! A descendant that makes itself the leader of another session leaves the group and with it these promises. What is
//! started, and with which environment, is left to the callers.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// How often to look whether a group that was asked to end is empty.
const LOOK: Duration = Duration::from_millis(10);

/// A running program and its group.
#[derive(Debug)]
pub struct Process {
    /// The first process, for its pipes. To wait for it there would leave the rest of the group alive.
    pub child: Child,
    group: Pid,
    /// What the group is given between SIGTERM and SIGKILL.
    grace: Duration,
    /// Called once, when the group has been killed.
    ended: fn(Pid),
    /// The group has been killed; its number may be somebody else's by now.
    over: bool,
}

impl Process {
    /// Starts a command as the first of a group of its own.
    pub fn start(command: Command) -> io::Result<Self> {
        Self::start_with(command, |_| ())
    }

    /// The same; `ended` is called with its number as soon as the group has been killed, however that came about.
    pub fn start_with(command: Command, ended: fn(Pid)) -> io::Result<Self> {
        Self::spawn(command, Duration::ZERO, ended)
    }

    /// The same; what its first process leaves behind, and all of it when it is dropped, has so long to tidy up.
    pub fn start_gently(command: Command, grace: Duration) -> io::Result<Self> {
        Self::spawn(command, grace, |_| ())
    }

    fn spawn(mut command: Command, grace: Duration, ended: fn(Pid)) -> io::Result<Self> {
        command.process_group(0).kill_on_drop(grace.is_zero());
        let child = command.spawn()?;
        // Cannot fail: the child was just started and nobody has waited for it.
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let group = group.ok_or_else(|| io::Error::other("the child has no id"))?;
        Ok(Self { child, group, grace, ended, over: false })
    }

    /// The number of the group, which is that of its first process.
    pub fn group(&self) -> Pid {
        self.group
    }

    /// Waits until the first process has exited by itself; the rest of the group is then killed. Safe to cancel.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        // Nobody can be given the number of a group that has members.
        if !self.grace.is_zero() && has_live_members(self.group) {
            self.signal(Signal::TERM);
            until_empty(self.group, Instant::now() + self.grace).await;
        }
        // No await lies between the last look at the group and this, so nobody can have been given its number yet.
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
        // A shell often dies before the program it waits for; that program has the same time to tidy up. The group's
        // number cannot be given to others while it has members.
        until_empty(self.group, deadline).await;
        self.end();
        status
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            self.signal(Signal::KILL);
            (self.ended)(self.group);
        }
    }

    fn signal(&self, signal: Signal) {
        send(self.group, signal);
    }

    /// Asks the group to end, and leaves the rest to a task; nothing if there is nobody to run one.
    fn leave(&mut self) -> Option<()> {
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        self.over = true;
        self.signal(Signal::TERM);
        let (rest, deadline) = (Rest { group: self.group, ended: self.ended }, Instant::now() + self.grace);
        runtime.spawn(async move {
            until_empty(rest.group, deadline).await;
            drop(rest);
        });
        Some(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.over || (!self.grace.is_zero() && self.leave().is_some()) {
            return;
        }
        self.end();
    }
}

/// What is left of a group. Killed when dropped, which the end of the runtime does, too.
struct Rest {
    group: Pid,
    ended: fn(Pid),
}

impl Drop for Rest {
    fn drop(&mut self) {
        send(self.group, Signal::KILL);
        (self.ended)(self.group);
    }
}

fn send(group: Pid, signal: Signal) {
    // An empty group is what is wanted, so a failure to find it is none.
    if let Err(error) = kill_process_group(group, signal)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(group = group.as_raw_nonzero(), %error, "a process group could not be signalled");
    }
}

/// Waits until nobody of a group runs, or until the deadline.
async fn until_empty(group: Pid, deadline: Instant) {
    while Instant::now() < deadline && has_live_members(group) {
        tokio::time::sleep(LOOK.min(deadline - Instant::now())).await;
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

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use tokio::process::ChildStdout;

    use super::*;

    fn shell(script: &str) -> (Process, ChildStdout) {
        #[expect(clippy::disallowed_methods, reason = "what is tested is how programs end")]
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::start(command).unwrap();
        let stdout = process.child.stdout.take().unwrap();
        (process, stdout)
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
        let (process, mut stdout) = shell("trap '' TERM; sleep 600 & echo $!; wait");
        let grandchild = number(&mut stdout).await;
        let child = process.group;
        drop(process);
        gone(grandchild).await;
        gone(child).await;
    }

    #[tokio::test]
    async fn a_drop_within_the_grace_kills_what_the_dead_shell_has_left() {
        let (mut process, mut stdout) =
            shell("sh -c 'trap \"\" TERM; echo $$; while :; do sleep 600; done' & wait");
        let grandchild = number(&mut stdout).await;
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
        let (mut process, mut stdout) = shell("sleep 600 & echo $!");
        let grandchild = number(&mut stdout).await;
        assert!(process.wait().await.unwrap().success());
        gone(grandchild).await;
    }

    /// Starts a script whose background process notes that it was asked to end; gives that process and the note.
    async fn gentle(script: &str, grace: Duration) -> (Process, Pid, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let tidy = "sh -c 'trap \"touch tidy; exit\" TERM; echo $$; while :; do sleep 0.01; done' & ";
        #[expect(clippy::disallowed_methods, reason = "what is tested is how programs end")]
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{tidy}{script}")]).current_dir(dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::start_gently(command, grace).unwrap();
        let mut stdout = process.child.stdout.take().unwrap();
        let grandchild = number(&mut stdout).await;
        (process, grandchild, dir)
    }

    #[tokio::test]
    async fn what_a_killed_child_leaves_may_tidy_up() {
        let (mut process, grandchild, dir) = gentle("wait", Duration::from_secs(30)).await;
        rustix::process::kill_process(process.group, Signal::KILL).unwrap();
        assert!(!process.wait().await.unwrap().success());
        assert!(dir.path().join("tidy").exists(), "it was killed before it had tidied up");
        gone(grandchild).await;
    }

    #[tokio::test]
    async fn a_dropped_group_may_tidy_up_and_is_killed_if_it_does_not_end() {
        let (process, grandchild, dir) = gentle("wait", Duration::from_secs(30)).await;
        drop(process);
        gone(grandchild).await;
        assert!(dir.path().join("tidy").exists(), "it was killed before it had tidied up");
        let (process, grandchild, _dir) =
            gentle("trap '' TERM; wait; sleep 600", Duration::from_millis(100)).await;
        let child = process.group;
        drop(process);
        gone(grandchild).await;
        gone(child).await;
    }

    #[tokio::test]
    async fn a_group_that_ignores_the_request_is_killed_after_the_grace() {
        let (mut process, mut stdout) = shell("trap '' TERM; echo $$; while :; do sleep 600; done");
        let child = number(&mut stdout).await;
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
        let (mut process, mut stdout) = shell(&script);
        let grandchild = number(&mut stdout).await;
        process.terminate(Duration::from_secs(10)).await.unwrap();
        assert!(mark.exists(), "the grandchild was killed before it had tidied up");
        gone(grandchild).await;
    }
}
