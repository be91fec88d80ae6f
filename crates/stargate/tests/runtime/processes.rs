//! Which programs a worker has running, seen from outside.

use std::path::Path;

use stargate_testkit::eventually;

use crate::PATIENCE;

/// A program whose arguments or working directory name the home of a test: an ffmpeg, a shell, a child of theirs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) pid: u32,
    pub(crate) command: String,
}

impl Child {
    /// Whether the same process still runs; a zombie does not.
    pub(crate) fn is_there(&self) -> bool {
        command(self.pid).as_ref() == Some(&self.command)
    }
}

/// All programs at work in a home, without the workers themselves.
pub(crate) fn children(home: &Path) -> Vec<Child> {
    let home = home.display().to_string();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let child = |pid| {
        let command = command(pid)?;
        let place = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        let here = command.contains(&home) || place.starts_with(&home);
        (here && !command.contains(env!("CARGO_BIN_EXE_stargate"))).then_some(Child { pid, command })
    };
    pids.filter_map(child).collect()
}

/// The one ffmpeg at work in a home.
pub(crate) fn ffmpeg(home: &Path) -> Child {
    let mut found = children(home);
    found.retain(|child| child.command.starts_with("ffmpeg "));
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Waits until nothing runs in a home but workers.
pub(crate) async fn all_gone(home: &Path) {
    eventually(PATIENCE, "the end of all programs", || async {
        let left = children(home);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// The arguments of a process; none when it is gone or a zombie.
fn command(pid: u32) -> Option<String> {
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&arguments).replace('\0', " ");
    (!text.is_empty()).then_some(text)
}
