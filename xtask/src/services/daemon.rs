//! Servers in the background, known by the file that has their process id.
//!
//! After a crash or a restart of the machine such a file names nobody, or somebody else: a process counts only if it
//! works in the folder that the server was started in.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process;

/// How long a killed process may take to end.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The process that a file names first, if it still runs and works in the folder.
pub(super) fn alive(pid_file: &Path, folder: &Path) -> Option<u32> {
    let text = fs::read_to_string(pid_file).ok()?;
    let pid = text.split_ascii_whitespace().next()?.parse().ok()?;
    (process::is_running(pid) && process::runs_in(pid, folder)).then_some(pid)
}

/// Kills that process, if there is one, and waits for its end. The data is thrown away: no need to ask politely.
pub(super) fn kill(name: &str, pid_file: &Path, folder: &Path) -> Result<()> {
    let Some(pid) = alive(pid_file, folder) else { return Ok(()) };
    let mut kill = process::command("kill");
    process::logged(kill.args(["-KILL", &pid.to_string()]), &folder.join("kill.log"))?;
    if !wait_until(PATIENCE, || !process::is_running(pid)) {
        bail!("{name} (process {pid}) does not stop");
    }
    Ok(())
}

/// Whether something came true in time.
pub(super) fn wait_until(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if started.elapsed() > patience {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-daemon-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        folder.canonicalize().unwrap()
    }

    fn sleeper(folder: &Path) -> u32 {
        let mut sleep = process::command("sleep");
        process::background(sleep.arg("1000").current_dir(folder), &folder.join("sleep.log")).unwrap()
    }

    #[test]
    fn a_server_is_alive_until_it_is_killed() {
        let folder = folder("killed");
        let pid_file = folder.join("server.pid");
        let pid = sleeper(&folder);
        fs::write(&pid_file, format!("{pid} 5432 5433")).unwrap();
        assert_eq!(alive(&pid_file, &folder), Some(pid));
        kill("the server", &pid_file, &folder).unwrap();
        assert_eq!(alive(&pid_file, &folder), None);
        kill("the server", &pid_file, &folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_process_that_got_the_number_of_a_dead_server_is_left_alone() {
        let [ours, theirs] = ["ours", "theirs"].map(folder);
        let pid_file = ours.join("server.pid");
        let pid = sleeper(&theirs);
        fs::write(&pid_file, pid.to_string()).unwrap();
        assert_eq!(alive(&pid_file, &ours), None);
        kill("the server", &pid_file, &ours).unwrap();
        assert!(process::is_running(pid));
        fs::write(theirs.join("server.pid"), pid.to_string()).unwrap();
        kill("the sleeper", &theirs.join("server.pid"), &theirs).unwrap();
        for folder in [ours, theirs] {
            fs::remove_dir_all(&folder).unwrap();
        }
    }
}
