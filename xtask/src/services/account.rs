//! Who runs the servers: Postgres and PgBouncer refuse to run as root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::process;

/// The user that runs the servers.
pub(super) struct Account {
    /// User and group id of `postgres` when we are root; otherwise the servers run as we do.
    lowered: Option<(u32, u32)>,
}

impl Account {
    /// The user `postgres` when we are root, ourselves otherwise.
    pub(super) fn for_servers() -> Result<Self> {
        if !is_root()? {
            return Ok(Self { lowered: None });
        }
        let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        let ids =
            ids_of(&users, "postgres").context("there is no user postgres: apt-get install postgresql")?;
        Ok(Self { lowered: Some(ids) })
    }

    /// Gives a folder to the user, closed to others.
    pub(super) fn own(&self, folder: &Path) -> Result<()> {
        fs::set_permissions(folder, Permissions::from_mode(0o700))
            .with_context(|| format!("cannot protect {}", folder.display()))?;
        if let Some((user, group)) = self.lowered {
            chown(folder, Some(user), Some(group))
                .with_context(|| format!("cannot give away {}", folder.display()))?;
        }
        Ok(())
    }

    /// A program that runs as the user, in the folder: the root of the project may be closed to that user.
    pub(super) fn command(&self, program: &Path, folder: &Path) -> Command {
        let mut command = process::command(program);
        command.current_dir(folder).env("HOME", folder);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        if let Some((user, group)) = self.lowered {
            command.uid(user).gid(group);
        }
        command
    }
}

/// Whether we run as root.
pub(super) fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self").context("cannot read /proc/self: Linux is needed")?.uid() == 0)
}

/// User and group id from the text of `/etc/passwd`.
fn ids_of(users: &str, name: &str) -> Option<(u32, u32)> {
    let fields =
        users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name)?;
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_by_the_whole_name() {
        let users = "root:x:0:0::/:/bin/sh\nmypostgres:x:7:7::/:/bin/sh\npostgres:x:101:104::/:/bin/sh\n";
        assert_eq!(ids_of(users, "postgres"), Some((101, 104)));
        assert_eq!(ids_of(users, "nobody"), None);
    }
}
