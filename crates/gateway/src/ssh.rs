//! What an SSH client may run: git's two services on a repository by name, nothing else.
//!
//! OpenSSH starts `stargate ssh-dispatch` as the forced command of a key and passes what the client asked for in
//! `SSH_ORIGINAL_COMMAND`. That text is never given to a shell.
//!
//! The bounds are those of HTTP. How many run at once is counted with locks (`turn.rs`), because each connection is a
//! process of its own.

mod turn;

use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stargate_git::process::GRACE;
use stargate_git::{End, Process, RepoDir, Serve, Service, Session};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::claim::Claim;
use crate::error::{Error, Result};
use crate::gate::{Access, Admission};
use crate::hook;
use crate::name::RepoName;
use crate::pkt::{Opening, REFS_BYTES_MAX};
use crate::repositories::Repositories;
use crate::settings::Settings;

/// Bytes of a command at most.
const COMMAND_BYTES_MAX: usize = 1024;
/// Bytes that are passed on at a time.
const CHUNK_BYTES: usize = 64 << 10;
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
/// nobody minds that `output` takes nothing. One that stays but falls silent is sent away after
/// [`Settings::idle_max`]; git itself says something every few seconds while it works. Reading a process' standard
/// input cannot be given up: the caller ends its process without waiting for that.
pub async fn serve(
    repositories: &Repositories,
    settings: &Settings,
    connection: Connection<'_>,
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    mut complaints: impl AsyncWrite + Unpin,
) -> Result<u8> {
    hook::check_environment(connection.hook_environment)?;
    let repo = repositories.find(&connection.command.repo)?;
    let access = Access::from(connection.command.service);
    let _turn = turn::take(&repositories.turns(), access, settings).await?;
    let claim = match access {
        Access::Read => None,
        Access::Write => Some(Claim::create(&repositories.pushes())?),
    };
    let session = start(repositories, settings, &connection, &repo, claim.as_ref())?;
    let Session { mut process, mut stdin, mut stdout, mut stderr } = session;
    let activity = Activity::begin();
    let mut opening = Opening::new(if access == Access::Write { REFS_BYTES_MAX } else { u64::MAX });
    let send = async {
        if !pass_on(&mut input, &mut stdin, &activity, |bytes| opening.admits(bytes)).await {
            return format!(
                "the list of refs is longer than {REFS_BYTES_MAX} bytes; push fewer of them at once"
            );
        }
        drop(stdin);
        std::future::pending().await
    };
    let answer = async {
        let said = pass_on(&mut stdout, &mut output, &activity, |_| true);
        let complained = pass_on(&mut stderr, &mut complaints, &activity, |_| true);
        tokio::join!(said, complained, process.wait()).2
    };
    let problem = tokio::select! {
        ended = answer => return Ok(exit_code(ended.ok().map(End::from))),
        problem = send => problem,
        () = activity.silence(settings.idle_max) => {
            format!("nothing was sent or taken for {:?}", settings.idle_max)
        }
        () = tokio::time::sleep(settings.time_max) => {
            format!("it took longer than {:?} (git.timeout)", settings.time_max)
        }
    };
    tracing::info!(request = connection.request_id, problem, "an SSH connection is ended");
    let told = format!("stargate: {problem}; the connection ends\n");
    let _ = tokio::time::timeout(GRACE, complaints.write_all(told.as_bytes())).await;
    // A push whose hooks have begun is not killed: its refs may have moved, and it is to be recorded.
    let may_be_killed = claim.as_ref().is_none_or(Claim::revoke);
    let time_max = if may_be_killed { GRACE } else { settings.finish_max };
    finish(&mut process, &mut stdout, &mut stderr, time_max).await;
    Ok(TIMED_OUT)
}

fn start(
    repositories: &Repositories,
    settings: &Settings,
    connection: &Connection<'_>,
    repo: &RepoDir,
    claim: Option<&Claim>,
) -> Result<Session> {
    let Connection { command, admission, request_id, protocol, hook_environment } = *connection;
    let env =
        hook::environment(hook_environment, &command.repo, admission, request_id, claim.map(Claim::path));
    let limits = repositories.push_settings(settings.push_bytes_max)?;
    let (service, stateless, advertise) = (command.service, false, false);
    let serve = Serve { service, repo, advertise, stateless, protocol, settings: &limits, env: &env };
    let session = repositories.git().serve(&serve);
    session.map_err(|source| Error::Git { what: "serve the client", source })
}

fn exit_code(end: Option<End>) -> u8 {
    match end {
        Some(End::Exited(code)) => u8::try_from(code).unwrap_or(u8::MAX),
        _ => u8::MAX,
    }
}

/// Waits for the end of git, whose input has ended and whose words nobody hears, and ends it when it takes too long.
async fn finish(
    process: &mut Process,
    stdout: &mut (impl AsyncRead + Unpin),
    stderr: &mut (impl AsyncRead + Unpin),
    time_max: Duration,
) {
    let (mut nowhere, mut nowhere_else) = (tokio::io::sink(), tokio::io::sink());
    let ended = async {
        let (said, complained) =
            (tokio::io::copy(stdout, &mut nowhere), tokio::io::copy(stderr, &mut nowhere_else));
        let _ = tokio::join!(said, complained, process.wait());
    };
    if tokio::time::timeout(time_max, ended).await.is_err() {
        let _ = process.terminate(GRACE).await;
    }
}

/// When something last went through, in either direction.
#[derive(Debug)]
struct Activity(Mutex<Instant>);

impl Activity {
    fn begin() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Ends when nothing has gone through for so long.
    async fn silence(&self, idle_max: Duration) {
        loop {
            let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner) + idle_max;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// Copies to the end, even when nobody listens any more: git must not stop for that. False if something came that may
/// not be passed on; nothing of that is.
async fn pass_on(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
    mut admits: impl FnMut(&[u8]) -> bool,
) -> bool {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut is_heard = true;
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        if !admits(&buffer[..bytes]) {
            return false;
        }
        if is_heard {
            is_heard = to.write_all(&buffer[..bytes]).await.is_ok() && to.flush().await.is_ok();
        }
        activity.note();
    }
    true
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
