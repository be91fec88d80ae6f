//! The other side of git: `upload-pack` and `receive-pack` for clients of ours, as streams.

use std::ffi::OsString;
use std::fmt;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use crate::error::{Error, Result};
use crate::git::Git;
use crate::process::{Process, start};
use crate::repo::RepoDir;
use crate::run::End;

/// The longest `Git-Protocol` header that is passed on.
const PROTOCOL_BYTES_MAX: usize = 256;

/// What a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// To fetch or clone.
    UploadPack,
    /// To push.
    ReceivePack,
}

impl Service {
    /// The name in URLs and content types.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }

    /// The service of that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::UploadPack, Self::ReceivePack].into_iter().find(|service| service.as_str() == name)
    }

    fn subcommand(self) -> &'static str {
        match self {
            Self::UploadPack => "upload-pack",
            Self::ReceivePack => "receive-pack",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What to start for a client.
#[derive(Debug, Clone)]
pub struct Serve<'a> {
    /// Fetch or push.
    pub service: Service,
    /// Of which repository.
    pub repo: &'a RepoDir,
    /// Only the list of refs: the answer to `info/refs`.
    pub advertise: bool,
    /// One request and one answer (HTTP), rather than a conversation (ssh).
    pub stateless: bool,
    /// The client's `Git-Protocol` header (`version=2`).
    pub protocol: Option<&'a str>,
    /// Settings for this command, as `name=value`.
    pub settings: &'a [String],
    /// What hooks find in their environment, besides what git tells them.
    pub env: &'a [(OsString, OsString)],
}

/// A running service. Dropped, it is ended with all that it started.
#[derive(Debug)]
pub struct Session {
    /// The process and its group.
    pub process: Process,
    /// Where the request goes.
    pub stdin: ChildStdin,
    /// Where the answer comes from.
    pub stdout: ChildStdout,
    /// What it complains about; not redacted yet, and to be read, or a full pipe stops it.
    pub stderr: ChildStderr,
}

impl Session {
    /// Waits until it has exited by itself. The streams are the caller's to read before.
    pub async fn wait(&mut self) -> std::io::Result<End> {
        self.process.wait().await.map(End::from)
    }
}

impl Git {
    /// Starts a service. Hooks of the repository run; they see the cleared environment and what `env` adds.
    pub fn serve(&self, serve: &Serve<'_>) -> Result<Session> {
        let mut settings = serve.settings.to_vec();
        // Whose the files are was decided when the repository was made; git asks again and knows no configuration.
        settings.push(format!("safe.directory={}", serve.repo.path().display()));
        let mut args: Vec<OsString> = vec![serve.service.subcommand().into()];
        if serve.stateless {
            args.push("--stateless-rpc".into());
        }
        if serve.advertise {
            args.push("--http-backend-info-refs".into());
        }
        if serve.service == Service::UploadPack {
            args.push("--strict".into());
        }
        args.push(serve.repo.path().into());
        let mut spec = self.spec(None, &settings, args);
        spec.dir = serve.repo.path().to_owned();
        spec.has_input = true;
        spec.env.extend(serve.env.iter().cloned());
        if let Some(protocol) = serve.protocol.filter(|text| is_protocol(text)) {
            spec.env.push(("GIT_PROTOCOL".into(), protocol.into()));
        }
        let mut process = start(&spec)?;
        let child = &mut process.child;
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let Some(((stdin, stdout), stderr)) = pipes else {
            // Cannot happen: it was just started with three pipes.
            let source = std::io::Error::other("the child has no pipes");
            return Err(Error::Start { program: self.program().to_owned(), source });
        };
        Ok(Session { process, stdin, stdout, stderr })
    }
}

/// A header of a client goes into an environment: only what such headers are made of.
fn is_protocol(text: &str) -> bool {
    text.len() <= PROTOCOL_BYTES_MAX
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '=' | ':' | '.' | '-' | '_' | ','))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_known_by_name() {
        assert_eq!(Service::parse("git-upload-pack"), Some(Service::UploadPack));
        assert_eq!(Service::parse("git-receive-pack"), Some(Service::ReceivePack));
        assert_eq!(Service::parse("git-upload-archive"), None);
    }

    #[test]
    fn a_header_is_passed_on_only_if_it_is_plain() {
        assert!(is_protocol("version=2") && is_protocol("version=2:sid=x.y-z"));
        assert!(!is_protocol("version=2\nX=1") && !is_protocol("a b") && !is_protocol(&"a".repeat(300)));
    }
}
