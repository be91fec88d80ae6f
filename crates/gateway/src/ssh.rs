//! What an SSH client may run: git's two services on a repository by name, nothing else.
//!
//! OpenSSH starts `stargate ssh-dispatch` as the forced command of a key and passes what the client asked for in
//! `SSH_ORIGINAL_COMMAND`. That text is never given to a shell.

use std::ffi::OsString;

use stargate_git::process::GRACE;
use stargate_git::{End, Serve, Service, Session};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::error::{Error, Result};
use crate::gate::Admission;
use crate::hook;
use crate::name::RepoName;
use crate::repositories::Repositories;
use crate::settings::Settings;

/// Bytes of a command at most.
const COMMAND_BYTES_MAX: usize = 1024;
/// The exit code when the time is up.
const TIMED_OUT: u8 = 10;

/// A command that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshCommand {
    /// What to run.
    pub service: Service,
    /// On which repository, which need not exist.
    pub repo: RepoName,
}

impl SshCommand {
    /// Reads `SSH_ORIGINAL_COMMAND`; `None` is a client that asks for a shell.
    ///
    /// ```
    /// use stargate_gateway::ssh::SshCommand;
    ///
    /// let command = SshCommand::parse(Some("git-upload-pack 'team/tools.git'"))?;
    /// assert_eq!(command.repo.as_str(), "team/tools");
    /// assert!(SshCommand::parse(Some("sh -c id")).is_err());
    /// # Ok::<(), stargate_gateway::Error>(())
    /// ```
    pub fn parse(command: Option<&str>) -> Result<Self> {
        let refused = |problem| Err(Error::Command { problem });
        let Some(command) = command else { return refused("there is no shell here") };
        if command.len() > COMMAND_BYTES_MAX {
            return refused("the command is too long");
        }
        let found = [Service::UploadPack, Service::ReceivePack].into_iter().find_map(|service| {
            let dashed = service.as_str();
            let spaced = dashed.replacen('-', " ", 1);
            [dashed, spaced.as_str()].iter().find_map(|name| {
                let argument = command.strip_prefix(name)?.strip_prefix(' ')?;
                Some((service, argument))
            })
        });
        let Some((service, argument)) = found else { return refused("this command is not known here") };
        let Some(path) = unquoted(argument) else { return refused("the path is not quoted as git does it") };
        // `ssh://host/team/tools.git` sends the path with its slash, `host:team/tools.git` without.
        let repo = RepoName::parse(path.strip_prefix('/').unwrap_or(path))?;
        Ok(Self { service, repo })
    }
}

/// An admitted connection.
#[derive(Debug)]
pub struct Connection<'a> {
    /// What the client asked for.
    pub command: &'a SshCommand,
    /// What the gate said.
    pub admission: &'a Admission,
    /// What the log calls it.
    pub request_id: &'a str,
    /// `GIT_PROTOCOL`, if sshd lets clients set it (`AcceptEnv GIT_PROTOCOL`).
    pub protocol: Option<&'a str>,
    /// What the hooks need to reach the rest of the system; its names begin with `STARGATE_`.
    pub hook_environment: &'a [(OsString, OsString)],
}

/// Serves a connection to its end and gives the exit code.
///
/// A client that goes closes `input`: in mid-pack git then fails and no ref has moved; later it ends by itself, and
/// nobody minds that `output` takes nothing. So there is nothing to kill before the time is up. Reading a process'
/// standard input cannot be given up: the caller ends its process without waiting for that.
pub async fn serve(
    repositories: &Repositories,
    settings: &Settings,
    connection: Connection<'_>,
    mut input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    complaints: impl AsyncWrite + Unpin,
) -> Result<u8> {
    hook::check_environment(connection.hook_environment)?;
    let Connection { command, admission, request_id, protocol, hook_environment } = connection;
    let repo = repositories.find(&command.repo)?;
    let env = hook::environment(hook_environment, &command.repo, admission, request_id, None);
    let limit = [format!("receive.maxInputSize={}", settings.push_bytes_max)];
    let (service, stateless, advertise) = (command.service, false, false);
    let serve = Serve { service, repo: &repo, advertise, stateless, protocol, settings: &limit, env: &env };
    let session = repositories.git().serve(&serve);
    let Session { mut process, mut stdin, stdout, stderr } =
        session.map_err(|source| Error::Git { what: "serve the client", source })?;
    let send = async {
        let _ = tokio::io::copy(&mut input, &mut stdin).await;
        drop(stdin);
        std::future::pending().await
    };
    let answer =
        async { tokio::join!(pass_on(stdout, output), pass_on(stderr, complaints), process.wait()).2 };
    let ended = tokio::select! {
        ended = tokio::time::timeout(settings.time_max, answer) => ended,
        never = send => never,
    };
    match ended.map(|status| status.map(End::from)) {
        Ok(Ok(End::Exited(code))) => Ok(u8::try_from(code).unwrap_or(u8::MAX)),
        Ok(_) => Ok(u8::MAX),
        Err(_) => {
            let _ = process.terminate(GRACE).await;
            Ok(TIMED_OUT)
        }
    }
}

/// Copies to the end, even when nobody listens any more: git must not stop for that.
async fn pass_on(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    if tokio::io::copy(&mut from, &mut to).await.is_err() {
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    let _ = to.flush().await;
}

/// The inside of a single pair of quotes, or a word without any. The name is checked by others; a quote within it
/// would be refused there anyway.
fn unquoted(argument: &str) -> Option<&str> {
    match argument.strip_prefix('\'') {
        Some(rest) => rest.strip_suffix('\'').filter(|inside| !inside.contains('\'')),
        None => (!argument.contains(['\'', '"', '\\', ' '])).then_some(argument),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_git_are_read() {
        use Service::{ReceivePack, UploadPack};
        for (command, service, name) in [
            ("git-upload-pack 'a.git'", UploadPack, "a"),
            ("git upload-pack 'a/b.git'", UploadPack, "a/b"),
            ("git-receive-pack '/a/b.git'", ReceivePack, "a/b"),
            ("git receive-pack a", ReceivePack, "a"),
        ] {
            let found = SshCommand::parse(Some(command)).unwrap();
            assert_eq!((found.service, found.repo.as_str()), (service, name), "{command}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        assert!(SshCommand::parse(None).unwrap_err().to_string().contains("no shell"));
        for command in [
            "",
            "sh",
            "git-upload-pack",
            "git-upload-pack ",
            "git-upload-archive 'a.git'",
            "git-upload-pack 'a.git' --strict",
            "git-upload-pack --strict 'a.git'",
            "git-upload-pack 'a.git'; id",
            "git-upload-pack 'a.git' 'b.git'",
            "git-upload-pack 'a'\\''b'",
            "git-upload-pack '../a.git'",
            "git-upload-pack '//a.git'",
            "git-upload-pack '/~root/a.git'",
            "git-upload-pack '$(id).git'",
            "git-upload-pack \"a.git\"",
            "git-upload-pack\ta",
            "GIT-UPLOAD-PACK 'a'",
            " git-upload-pack 'a'",
            "git-upload-packa 'b'",
            "git-receive-pack '-a'",
        ] {
            assert!(SshCommand::parse(Some(command)).is_err(), "{command:?} was taken");
        }
        let long = format!("git-upload-pack '{}'", "a/".repeat(COMMAND_BYTES_MAX));
        assert!(SshCommand::parse(Some(&long)).is_err());
    }
}
