//! Starting other programs: the one place in `xtask` that does.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// How much of a program's log an error shows.
const LOG_LINES_SHOWN: usize = 20;

/// A program to be started in the root of the project.
#[expect(clippy::disallowed_methods, reason = "the one place in xtask that starts programs")]
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// Builds the program, and those that measure and break it; the folder they are in. Always all of them: for each alone cargo would
/// choose other features of what they depend on, and build that anew.
pub(crate) fn build_programs(release: bool) -> Result<PathBuf> {
    let mut build = cargo();
    build.args([
        "build",
        "--package",
        "stargate",
        "--package",
        "stargate-chaos",
        "--package",
        "stargate-bench",
    ]);
    if release {
        build.arg("--release");
    }
    ensure!(succeeds(&mut build)?, "the programs could not be built");
    Ok(root().join("target").join(if release { "release" } else { "debug" }))
}

/// Runs a program that talks to the terminal itself; true if it succeeded.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("cannot start {}", name(command)))?;
    Ok(status.success())
}

/// Runs a program and hands its exit code on; one that was killed by a signal counts as 1.
pub(crate) fn exit_code(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().with_context(|| format!("cannot start {}", name(command)))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}

/// Runs a program and answers what it wrote to stdout.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", name(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", name(command), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} wrote no UTF-8", name(command)))
}

/// Runs a program whose output goes to a file; an error shows the end of that file.
///
/// A file and not a pipe: a server that the program leaves behind would keep a pipe open for ever.
pub(crate) fn logged(command: &mut Command, log: &Path) -> Result<()> {
    let file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    let copy = file.try_clone().with_context(|| format!("cannot share {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file).stderr(copy);
    if !succeeds(command)? {
        bail!("{} failed:\n{}", name(command), tail(log));
    }
    Ok(())
}

/// Starts a program that stays, with its output in a file; its process id.
pub(crate) fn background(command: &mut Command, log: &Path) -> Result<u32> {
    let file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    let copy = file.try_clone().with_context(|| format!("cannot share {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file).stderr(copy);
    let child = command.spawn().with_context(|| format!("cannot start {}", name(command)))?;
    Ok(child.id())
}

/// Whether a process runs. One that has ended and that its parent has not asked about does not.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which is in parentheses and may contain anything.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Whether a process was started in this folder and still works there.
pub(crate) fn runs_in(pid: u32, folder: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|there| there == folder)
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
}

/// Whether a program of this name lies in `PATH` or where Debian keeps what only root runs.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn name(command: &Command) -> String {
    Path::new(command.get_program()).file_name().unwrap_or(command.get_program()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_shows_the_end_of_its_log() {
        let log = std::env::temp_dir().join(format!("xtask-log-{}", std::process::id()));
        let script = "seq 1 100; echo the reason >&2; exit 3";
        let error = logged(command("sh").args(["-c", script]), &log).unwrap_err().to_string();
        fs::remove_file(&log).unwrap();
        assert!(error.ends_with("100\nthe reason"), "{error}");
        assert!(!error.contains("\n50\n"), "the whole log was shown: {error}");
    }

    #[test]
    fn a_process_runs_until_it_is_killed_even_if_nobody_waits_for_it() {
        let log = std::env::temp_dir().join(format!("xtask-sleep-{}", std::process::id()));
        let pid = background(command("sleep").arg("100").current_dir("/"), &log).unwrap();
        fs::remove_file(&log).unwrap();
        assert!(is_running(pid) && runs_in(pid, Path::new("/")) && !runs_in(pid, Path::new("/tmp")));
        assert!(succeeds(command("kill").arg(pid.to_string())).unwrap());
        while is_running(pid) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = succeeds(&mut command("no-such-program")).unwrap_err().to_string();
        assert_eq!(error, "cannot start no-such-program");
    }
}
