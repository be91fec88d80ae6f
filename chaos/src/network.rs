//! The network of a run: one of its own where that can be had, in which packets can be lost.
//!
//! A proxy that fails still answers for the machine behind it: the kernel acknowledges what is sent to it. Here nothing does, a
//! connection hangs until somebody gives up, and what is lost in part arrives late. It hits the ways to all servers at
//! once, as it does a machine that is cut off; those who watch and judge go past them.

use std::process::Command;

use anyhow::Result;

use crate::site::{NAMESPACE, output, run};

/// Of every hundred packets, where some are lost.
const LOST: &str = "30";

/// What of the system a run can have for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespaces {
    /// Disks and a network.
    DisksAndNetwork,
    /// Disks.
    Disks,
}

impl Namespaces {
    /// What can be had here, and has not been had yet.
    pub fn find() -> Option<Self> {
        let may = |arguments: &[&str]| unshare().args(arguments).output().is_ok_and(|it| it.status.success());
        if std::env::var_os(NAMESPACE).is_some() || !may(&["-m", "true"]) {
            return None;
        }
        let network = may(&["-n", "ip", "link", "set", "lo", "up"]) && may(&["-n", "nft", "list", "tables"]);
        Some(if network { Self::DisksAndNetwork } else { Self::Disks })
    }

    /// A command that starts the program whose name and arguments follow where nobody else sees what it mounts and sends;
    /// all of it goes with the last process.
    pub fn command(self) -> Command {
        let mut command = unshare();
        command.args(["-m", "--propagation", "private"]);
        match self {
            Self::DisksAndNetwork => command.arg("-n").env(NAMESPACE, NETWORK),
            Self::Disks => command.env(NAMESPACE, "disks"),
        };
        command.arg("--");
        command
    }
}

/// What the variable says in a network of our own.
const NETWORK: &str = "network";

fn unshare() -> Command {
    #[expect(clippy::disallowed_methods, reason = "programs of the system, to bring faults about")]
    let command = Command::new("unshare");
    command
}

/// The ways to the servers of one installation.
#[derive(Debug)]
pub(crate) struct Network {
    /// Their ports, as a set of nft.
    ports: String,
}

impl Network {
    /// Brings the network up; nothing if the run has none of its own. Before anything is listened to.
    pub(crate) fn up() -> Result<bool> {
        if std::env::var_os(NAMESPACE).is_none_or(|name| name != NETWORK) {
            return Ok(false);
        }
        run("ip", &["link", "set", "lo", "up"])?;
        run(
            "nft",
            &["add table inet chaos; add chain inet chaos input { type filter hook input priority 0 ; }"],
        )?;
        Ok(true)
    }

    /// Those to these addresses.
    pub(crate) fn to(addresses: &[String]) -> Self {
        let ports: Vec<&str> = addresses.iter().filter_map(|address| address.rsplit(':').next()).collect();
        Self { ports: format!("{{ {} }}", ports.join(", ")) }
    }

    /// Loses packets on them, both ways: all, or some.
    pub(crate) fn lose(&self, all: bool) -> Result<()> {
        let some = if all { String::new() } else { format!("numgen random mod 100 < {LOST} ") };
        let rule =
            |side: &str| format!("add rule inet chaos input tcp {side} {} {some}counter drop", self.ports);
        run("nft", &[&format!("{}; {}", rule("dport"), rule("sport"))])
    }

    /// Loses nothing any more; how many packets were lost.
    pub(crate) fn heal(&self) -> Result<u64> {
        let rules = output("nft", &["list", "chain", "inet", "chaos", "input"])?;
        run("nft", &["flush chain inet chaos input"])?;
        Ok(lost(&rules))
    }
}

/// The packets that these rules have dropped.
fn lost(rules: &str) -> u64 {
    let counted = rules.split("counter packets ").skip(1);
    counted.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_packets_are_added_up() {
        let rules = "chain input {\n\ttcp dport { 1, 2 } counter packets 12 bytes 720 drop\n\t\
                     tcp sport { 1, 2 } numgen random mod 100 < 30 counter packets 3 bytes 99 drop\n}";
        assert_eq!(lost(rules), 15);
        assert_eq!(lost("chain input {\n}"), 0);
    }
}
