//! Ends the children of a process that can no longer do it itself.
//!
//! A worker that is killed or exits at once runs no destructors; its programs would run on beside the next attempt
//! of their jobs. The warden is one small shell in a process group of its own. It is told each group that starts
//! and ends over a pipe, and when that pipe closes, which the system does however the worker ended, it kills the
//! groups that are left.
//!
//! Left open: a worker that is killed in the microseconds between the start of a program and the warden's notice.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Pid;

/// Ignores what a terminal or a supervisor sends to everybody: it ends with its pipe. Only builtins, so that it
/// needs no PATH and no further process.
const SCRIPT: &str = r#"
trap '' INT HUP QUIT TERM
groups=' '
while read -r what group; do
    case $what in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;; esac ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
exit 0
"#;

/// The warden of this process.
static WARDEN: Mutex<Warden> = Mutex::new(Warden::new());

/// Has the warden end this group if this process ends before it. Whoever calls it has [`forget`] called at the group's
/// end: `Process::start_with(command, warden::forget)`.
pub fn watch(group: Pid) {
    WARDEN.lock().unwrap_or_else(PoisonError::into_inner).watch(group);
}

/// The group has ended. Its number may soon be somebody else's.
pub fn forget(group: Pid) {
    WARDEN.lock().unwrap_or_else(PoisonError::into_inner).forget(group);
}

struct Warden {
    shell: Option<Child>,
    groups: BTreeSet<i32>,
}

impl Warden {
    const fn new() -> Self {
        Self { shell: None, groups: BTreeSet::new() }
    }

    fn watch(&mut self, group: Pid) {
        let group = group.as_raw_nonzero().get();
        self.groups.insert(group);
        if self.shell.is_some() && self.tell(&format!("+ {group}\n")) {
            return;
        }
        // Started with the first program, and again if somebody ended it.
        self.start();
        let all: String = self.groups.iter().map(|group| format!("+ {group}\n")).collect();
        if !self.tell(&all) {
            tracing::warn!("no shell watches over programs; they outlive this process if it is killed");
        }
    }

    fn forget(&mut self, group: Pid) {
        let group = group.as_raw_nonzero().get();
        if self.groups.remove(&group) {
            self.tell(&format!("- {group}\n"));
        }
    }

    /// Writes without waiting: a shell that does not read must not hold up the worker.
    fn tell(&mut self, text: &str) -> bool {
        let pipe = self.shell.as_mut().and_then(|shell| shell.stdin.as_mut());
        pipe.is_some_and(|pipe| pipe.write_all(text.as_bytes()).is_ok())
    }

    fn start(&mut self) {
        if let Some(mut old) = self.shell.take() {
            drop(old.stdin.take());
            // It is dead, or it ends because its pipe is closed; either way it must not stay a zombie.
            let _ = old.kill();
            let _ = old.wait();
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "belongs to the places that start groups: it ends what they cannot"
        )]
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT]).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(shell) = command.spawn() else { return };
        if let Some(pipe) = &shell.stdin
            && let Ok(flags) = fcntl_getfl(pipe)
        {
            let _ = fcntl_setfl(pipe, flags | OFlags::NONBLOCK);
        }
        self.shell = Some(shell);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn sleeper() -> (Child, Pid) {
        #[expect(clippy::disallowed_methods, reason = "stands for a program that the test must not own")]
        let child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        (child, pid)
    }

    /// Waits for the end of a child, which is also what keeps it from being a zombie.
    fn ended(child: &mut Child) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// What the system does when the worker dies.
    fn die(mut warden: Warden) {
        let mut shell = warden.shell.take().unwrap();
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }

    #[test]
    fn a_worker_that_dies_takes_its_programs_with_it_and_only_those() {
        let mut warden = Warden::new();
        let ((mut a, a_group), (mut b, b_group), (mut c, c_group)) = (sleeper(), sleeper(), sleeper());
        for group in [a_group, b_group, c_group] {
            warden.watch(group);
        }
        warden.forget(b_group);
        die(warden);
        assert!(ended(&mut a) && ended(&mut c), "a program outlived its worker");
        assert!(b.try_wait().unwrap().is_none(), "a group that was over was killed");
        b.kill().unwrap();
        b.wait().unwrap();
    }

    #[test]
    fn a_warden_that_was_killed_is_replaced_and_knows_all_programs() {
        let mut warden = Warden::new();
        let ((mut a, a_group), (mut b, b_group)) = (sleeper(), sleeper());
        warden.watch(a_group);
        let shell = warden.shell.as_mut().unwrap();
        shell.kill().unwrap();
        shell.wait().unwrap();
        warden.watch(b_group);
        die(warden);
        assert!(ended(&mut a) && ended(&mut b), "a program outlived its worker");
    }
}
