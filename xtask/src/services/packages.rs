//! Installs the Debian packages of the servers and programs that tests need, when they are missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::account::is_root;
use super::{pip, prometheus, schemathesis, seaweedfs, taps, temporal};
use crate::process;

/// Where Debian keeps the server's programs, one folder for each version.
const POSTGRES_ROOT: &str = "/usr/lib/postgresql";
/// Where Debian puts the server of OpenSSH, which wants to be started by its whole path.
const SSHD: &str = "/usr/sbin/sshd";

/// Installs what is missing, or says how.
pub(super) fn install_missing() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let advice = format!("apt-get install {}", missing.join(" "));
    if process::find("apt-get").is_none() {
        bail!(
            "{} missing and there is no apt-get here; install what corresponds to: {advice}",
            missing.join(" and ")
        );
    }
    if !is_root()? {
        bail!("{} missing; run as root: {advice}", missing.join(" and "));
    }
    eprintln!("installing {}", missing.join(" and "));
    // A fresh image has no package lists, and old lists name versions that are gone.
    if !process::succeeds(apt_get().arg("install").args(&missing))? {
        process::succeeds(apt_get().arg("update"))?;
        if !process::succeeds(apt_get().arg("install").args(&missing))? {
            bail!("cannot install {}; try by hand: {advice}", missing.join(" and "));
        }
    }
    match self::missing().as_slice() {
        [] => Ok(()),
        still => bail!("{} installed, but its programs are not where they should be", still.join(" and ")),
    }
}

/// The folder with `initdb` and `pg_ctl` of the newest installed version.
pub(super) fn postgres_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(POSTGRES_ROOT).into_iter().flatten().flatten();
    let newest = newest(versions.map(|entry| entry.path()).filter(|path| path.join("bin/initdb").is_file()));
    let elsewhere = || process::find("initdb").and_then(|file| file.parent().map(Path::to_owned));
    newest.map(|version| version.join("bin")).or_else(elsewhere)
}

/// The `pgbouncer` program.
pub(super) fn pgbouncer_program() -> Result<PathBuf> {
    process::find("pgbouncer").context("pgbouncer is missing: apt-get install pgbouncer")
}

fn missing() -> Vec<&'static str> {
    let mut missing = Vec::new();
    if postgres_programs().is_none() {
        missing.push("postgresql");
    }
    if process::find("pgbouncer").is_none() {
        missing.push("pgbouncer");
    }
    if process::find("ffmpeg").is_none() || process::find("ffprobe").is_none() {
        missing.push("ffmpeg");
    }
    if process::find("redis-server").is_none() {
        missing.push("redis-server");
    }
    // Tests that need an address of their own make a network namespace.
    if process::find("ip").is_none() {
        missing.push("iproute2");
    }
    // The run of faults loses packets in a network of its own.
    if process::find("nft").is_none() {
        missing.push("nftables");
    }
    // Tests of the mirror's files let system calls fail, and kill a process at each of them.
    if process::find("strace").is_none() {
        missing.push("strace");
    }
    // The run of faults steps the clock of processes.
    if !faketime_is_there() {
        missing.push("libfaketime");
    }
    // Tests of git over ssh start a server of their own.
    if !Path::new(SSHD).is_file() {
        missing.push("openssh-server");
    }
    if process::find("ssh").is_none() || process::find("ssh-keygen").is_none() {
        missing.push("openssh-client");
    }
    // Tests of git over TLS make a certificate of their own.
    if process::find("openssl").is_none() {
        missing.push("openssl");
    }
    // Tests of the dashboard and of the alert rules.
    if !prometheus::is_there() {
        missing.push("prometheus");
    }
    // Tests of the units in deploy.
    if process::find("systemd-analyze").is_none() {
        missing.push("systemd");
    }
    // Tests of the page.
    if process::find("chromium").is_none() {
        missing.push("chromium");
    }
    let all_there =
        seaweedfs::is_there() && taps::are_there() && temporal::is_there() && schemathesis::is_there();
    if !all_there && pip::is_missing() {
        missing.push("python3-pip");
    }
    if process::find("npm").is_none() {
        missing.push("npm");
    }
    missing
}

/// Whether the library that `chaos` looks for is there, under the name of whatever architecture.
fn faketime_is_there() -> bool {
    let architectures = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    architectures.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1")).any(|path| path.exists())
}

fn newest(versions: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    versions.max_by_key(number)
}

fn apt_get() -> Command {
    let mut command = process::command("apt-get");
    // stdout belongs to whoever evaluates our output.
    command.args(["-y", "-q", "--no-install-recommends"]).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdout(std::io::stderr());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let versions = ["9", "17", "15"].map(|v| Path::new(POSTGRES_ROOT).join(v));
        assert_eq!(newest(versions.into_iter()), Some(Path::new(POSTGRES_ROOT).join("17")));
    }
}
