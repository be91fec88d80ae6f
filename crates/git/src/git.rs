//! The git program and how it is started: environment and settings of every command.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::process::{GRACE, Spec};
use crate::protocols::Protocols;
use crate::redact::Redactor;
use crate::repo::RepoDir;
use crate::run::{Answer, Bounds, run};

/// What a command that only looks at local files is given.
pub const LOCAL_TIME_MAX: Duration = Duration::from_secs(60);
/// What a command with a short answer may write.
pub(crate) const SHORT_BYTES_MAX: usize = 64 << 10;

/// A home in which nothing can be found or made: no `.gitconfig`, no `.netrc`.
const NO_HOME: &str = "/dev/null";
/// The oldest git that all commands here work with: it is the first to know `core.fsync`, without which what a push was
/// told to be accepted can be lost with the power.
const OLDEST: Version = Version { major: 2, minor: 36 };

/// The git program, what it may reach and how it proves who it is. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Git {
    program: PathBuf,
    path: OsString,
    home: PathBuf,
    protocols: Protocols,
    credentials: Credentials,
    redactor: Redactor,
    objects: Option<Objects>,
}

/// Where git finds objects besides, or instead of, the repository: the quarantine of a push that is being received.
#[derive(Debug, Clone)]
pub struct Objects {
    /// `GIT_OBJECT_DIRECTORY`.
    pub directory: OsString,
    /// `GIT_ALTERNATE_OBJECT_DIRECTORIES`.
    pub alternates: OsString,
}

impl Git {
    /// `program` is a path, or a name that is looked up in `path`; `path` is what git itself gets as `PATH`.
    pub fn new(program: impl Into<PathBuf>, path: impl Into<OsString>) -> Self {
        let credentials = Credentials::none();
        Self {
            program: program.into(),
            path: path.into(),
            home: NO_HOME.into(),
            protocols: Protocols::default(),
            redactor: credentials.redactor(),
            credentials,
            objects: None,
        }
    }

    /// With these transports instead of https and ssh.
    #[must_use]
    pub fn with_protocols(self, protocols: Protocols) -> Self {
        Self { protocols, ..self }
    }

    /// With these credentials.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self { redactor: credentials.redactor(), credentials, ..self }
    }

    /// With a home directory, for those who keep something there that git's helpers need.
    #[must_use]
    pub fn with_home(self, home: impl Into<PathBuf>) -> Self {
        Self { home: home.into(), ..self }
    }

    /// With objects that are not in the repository (yet). Inside `pre-receive`, git names them in its environment.
    #[must_use]
    pub fn with_objects(self, objects: Objects) -> Self {
        Self { objects: Some(objects), ..self }
    }

    /// Takes the credentials out of texts.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Asks for its version and refuses one that is too old.
    pub async fn version(&self) -> Result<Version> {
        let answer = self.local("version", None, ["--version"]).await?;
        let text = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
        let version = Version::parse(&text)
            .ok_or_else(|| Error::Unreadable { operation: "version", line: self.redactor.redact(&text) })?;
        if version < OLDEST {
            let problem = format!("is version {version}; {OLDEST} or newer is needed");
            return Err(Error::invalid("git", problem));
        }
        Ok(version)
    }

    /// The environment of every command; nothing else is in it.
    pub(crate) fn environment(&self, repo: Option<&RepoDir>) -> Vec<(OsString, OsString)> {
        let mut env: Vec<(OsString, OsString)> = vec![
            ("PATH".into(), self.path.clone()),
            ("HOME".into(), self.home.clone().into()),
            ("LC_ALL".into(), "C".into()),
            ("GIT_TERMINAL_PROMPT".into(), "0".into()),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
            ("GIT_CONFIG_GLOBAL".into(), "/dev/null".into()),
            // Whoever may push could put a commit in the place of another (`refs/replace/…`), and what is no descendant
            // would look like one: here, to the hooks, and to a push to a remote.
            ("GIT_NO_REPLACE_OBJECTS".into(), "1".into()),
            ("GIT_ALLOW_PROTOCOL".into(), self.protocols.allowed().into()),
        ];
        if let Some(repo) = repo {
            // Without a search for it, and without the question whose it is.
            env.push(("GIT_DIR".into(), repo.path().into()));
        }
        if let Some(objects) = &self.objects {
            env.push(("GIT_OBJECT_DIRECTORY".into(), objects.directory.clone()));
            env.push(("GIT_ALTERNATE_OBJECT_DIRECTORIES".into(), objects.alternates.clone()));
        }
        env
    }

    pub(crate) fn spec<I>(&self, repo: Option<&RepoDir>, settings: &[String], args: I) -> Spec
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let mut all: Vec<OsString> = Vec::new();
        for setting in settings {
            all.push("-c".into());
            all.push(setting.into());
        }
        all.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        let dir = repo.map_or_else(|| "/".into(), |repo| repo.path().to_owned());
        Spec { program: self.program.clone(), args: all, env: self.environment(repo), dir, has_input: false }
    }

    /// A command that looks at local files and succeeds.
    pub(crate) async fn local<I>(
        &self,
        operation: &'static str,
        repo: Option<&RepoDir>,
        args: I,
    ) -> Result<Answer>
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let bounds = Bounds { time: LOCAL_TIME_MAX, stdout_bytes_max: SHORT_BYTES_MAX };
        let answer = run(operation, &self.spec(repo, &[], args), b"", bounds, &self.redactor).await?;
        expect_success(operation, LOCAL_TIME_MAX, answer)
    }

    /// A command that may speak to a remote: with credentials, without hooks, and with an end to silence.
    pub(crate) async fn remote(
        &self,
        operation: &'static str,
        repo: &RepoDir,
        args: Vec<OsString>,
        bounds: Bounds,
    ) -> Result<Answer> {
        let mut settings = self.credentials.configuration();
        settings.extend(
            ["core.askPass=", "core.hooksPath=/dev/null", "http.lowSpeedLimit=1000", "gc.auto=0"]
                .map(str::to_owned),
        );
        // Ends by itself what a killed worker left behind; a running worker ends it before.
        settings.push(format!("http.lowSpeedTime={}", (bounds.time + GRACE).as_secs()));
        let mut spec = self.spec(Some(repo), &settings, args);
        spec.env.extend(self.credentials.environment());
        run(operation, &spec, b"", bounds, &self.redactor).await
    }
}

/// An answer that is none turned into an error.
pub(crate) fn expect_success(operation: &'static str, after: Duration, answer: Answer) -> Result<Answer> {
    if answer.succeeded() {
        Ok(answer)
    } else if answer.end == crate::run::End::TimedOut {
        Err(Error::TimedOut { operation, after, stderr: answer.stderr })
    } else {
        Err(Error::Failed { operation, answer: Box::new(answer) })
    }
}

/// A version of git, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 2 since 2014.
    pub major: u32,
    /// Four a year.
    pub minor: u32,
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.strip_prefix("git version ")?.split('.').map(str::parse);
        Some(Self { major: numbers.next()?.ok()?, minor: numbers.next()?.ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_builds_are_read() {
        for (text, major, minor) in [
            ("git version 2.39.5", 2, 39),
            ("git version 2.47.3", 2, 47),
            ("git version 2.39.5 (Apple Git-154)", 2, 39),
            ("git version 3.0.rc1", 3, 0),
        ] {
            assert_eq!(Version::parse(text), Some(Version { major, minor }), "{text}");
        }
        assert_eq!(Version::parse("hub version 2"), None);
    }
}
