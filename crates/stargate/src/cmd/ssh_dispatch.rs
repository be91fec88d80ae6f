//! `stargate ssh-dispatch`: the forced command of a key in OpenSSH's `authorized_keys`.

use std::process::ExitCode;

use clap::Args;
use stargate_access::{RepoPattern, Role};
use stargate_gateway::gate::{Access, Admission};
use stargate_gateway::hook::Standing;
use stargate_gateway::ssh::{self, Connection, SshCommand};

use super::token::RoleName;
use crate::config::layer::Environment;
use crate::config::{self, Flags};
use crate::failure::{Exit, Failure, Result};
use crate::gateway;
use crate::hooks::Told;

/// `ssh-dispatch`
#[derive(Debug, Args)]
#[command(after_help = "\
A line of authorized_keys, where OpenSSH has checked the key and this checks the rest:
  restrict,command=\"stargate --config /etc/stargate/stargate.toml ssh-dispatch --name ann --role write --repo 'team/*'\" ssh-ed25519 AAAA…

Only git fetch and git push are served. 'AcceptEnv GIT_PROTOCOL' in sshd_config lets clients
use version 2 of git's protocol. Pushes need a running node that leads.")]
pub(crate) struct SshDispatch {
    /// Whose key it is, as pushes are recorded
    #[arg(long)]
    name: Option<String>,
    /// What the key allows; admin is as write here
    #[arg(long, default_value = "write")]
    role: RoleName,
    /// Only these repositories: a name, or all below a prefix (team/*); repeatable [default: all]
    #[arg(long = "repo", value_name = "PATTERN")]
    repos: Vec<RepoPattern>,
}

impl SshDispatch {
    /// Serves one connection; its exit code is git's.
    pub(crate) async fn run(&self, flags: Flags) -> Result<ExitCode> {
        // What the client asked for, as sshd tells it.
        let asked = std::env::var("SSH_ORIGINAL_COMMAND").ok();
        let command = SshCommand::parse(asked.as_deref()).map_err(|error| gateway::failure(&error))?;
        self.check(&command)?;
        let settings = config::load(flags, &Environment::of_process())?;
        let repositories = gateway::repositories(&settings)?;
        repositories.find(&command.repo).map_err(|error| unknown(&error))?;
        let told = Told::of(&settings)?;
        let epoch = match Access::from(command.service) {
            Access::Read => None,
            Access::Write => Some(epoch(&told).await?),
        };
        let admission = Admission { pusher: self.name.clone(), epoch, hold: None };
        // The version that the client speaks, where sshd lets it say so.
        let protocol = std::env::var("GIT_PROTOCOL").ok();
        let connection = Connection {
            command: &command,
            admission: &admission,
            request_id: &format!("{:032x}", rand::random::<u128>()),
            protocol: protocol.as_deref(),
            hook_environment: &told.environment()?,
        };
        let (input, output, complaints) = (tokio::io::stdin(), tokio::io::stdout(), tokio::io::stderr());
        let served =
            ssh::serve(&repositories, &settings.git.bounds, connection, input, output, complaints).await;
        served.map(ExitCode::from).map_err(|error| gateway::failure(&error))
    }

    /// Refuses what the key does not allow. What it may not read it is not told of.
    fn check(&self, command: &SshCommand) -> Result<()> {
        let grants = self.role.grants(&self.repos);
        let may = |need| grants.iter().any(|grant| grant.allows(need, Some(command.repo.as_str())));
        match Access::from(command.service) {
            _ if !may(Role::Read) => {
                let missing = stargate_gateway::Error::NotFound { name: command.repo.clone() };
                Err(unknown(&missing))
            }
            Access::Write if !may(Role::Write) => {
                Err(Failure::new(Exit::Failed, "FORBIDDEN", "this key may fetch here, but not push"))
            }
            _ => Ok(()),
        }
    }
}

/// Without the advice for operators: the client is somebody else.
fn unknown(error: &stargate_gateway::Error) -> Failure {
    Failure::new(Exit::NotFound, error.code(), error.to_string())
}

/// The term in which a push is admitted.
async fn epoch(told: &Told) -> Result<u64> {
    let asked = told.node()?.ask().await;
    let (standing, epoch) = asked.map_err(|problem| Failure::new(Exit::Input, "IO", problem))?;
    match (standing, epoch) {
        (Standing::Leads, Some(epoch)) => Ok(epoch),
        (Standing::NotLeader { leader: Some(leader) }, _) => Err(not_leader(&format!("push to {leader}"))),
        (Standing::Unknown { problem }, _) => Err(Failure::new(Exit::Input, "IO", problem)),
        _ => Err(not_leader("no leader is known; try again in a moment")),
    }
}

fn not_leader(what: &str) -> Failure {
    Failure::new(Exit::NotLeader, "NOT_LEADER", format!("this node does not take pushes: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(role: RoleName, repos: &[&str], command: &str) -> Result<(), String> {
        let repos = repos.iter().map(|repo| repo.parse().unwrap()).collect();
        let dispatch = SshDispatch { name: None, role, repos };
        let command = SshCommand::parse(Some(command)).unwrap();
        dispatch.check(&command).map_err(|failure| failure.code)
    }

    #[test]
    fn a_key_opens_what_it_is_for() {
        let (fetch, push) = ("git-upload-pack 'team/a.git'", "git-receive-pack 'team/a.git'");
        for (role, repos, fetched, pushed) in [
            (RoleName::Write, &[][..], Ok(()), Ok(())),
            (RoleName::Admin, &["team/*"], Ok(()), Ok(())),
            (RoleName::Read, &[], Ok(()), Err("FORBIDDEN".to_owned())),
            (RoleName::Write, &["other"], Err("NOT_FOUND".to_owned()), Err("NOT_FOUND".to_owned())),
        ] {
            assert_eq!(checked(role, repos, fetch), fetched, "{role:?} {repos:?}");
            assert_eq!(checked(role, repos, push), pushed, "{role:?} {repos:?}");
        }
    }
}
