//! A stock git client with a home of its own, and nothing of the developer's settings.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A clone, and git to use in it.
pub(crate) struct Client {
    place: TempDir,
    /// What git is given when it asks for a password; it hangs nowhere without one.
    token: Option<String>,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self { place: tempfile::tempdir().unwrap(), token: None }
    }

    pub(crate) fn with_token(token: &str) -> Self {
        let client = Self { token: Some(token.to_owned()), ..Self::new() };
        let script = "#!/bin/sh\ncase \"$1\" in Username*) echo git ;; *) echo \"$CLIENT_TOKEN\" ;; esac\n";
        let path = client.askpass();
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        client
    }

    fn askpass(&self) -> PathBuf {
        self.place.path().join("askpass")
    }

    /// The working copy.
    pub(crate) fn dir(&self) -> PathBuf {
        self.place.path().join("work")
    }

    /// Runs git in the working copy.
    pub(crate) fn git(&self, arguments: &[&str]) -> Output {
        self.git_with(arguments, &[])
    }

    #[expect(clippy::disallowed_methods, reason = "a test starts a stock git client")]
    pub(crate) fn git_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let dir = if self.dir().is_dir() { self.dir() } else { self.place.path().to_owned() };
        let mut command = Command::new("git");
        command.args(arguments).current_dir(dir).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.place.path());
        command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_CONFIG_NOSYSTEM", "1").env("LC_ALL", "C");
        for (name, value) in [("NAME", "A"), ("EMAIL", "a@example.com")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        if let Some(token) = &self.token {
            command.env("GIT_ASKPASS", self.askpass()).env("CLIENT_TOKEN", token);
        }
        command.envs(environment.iter().copied()).output().unwrap()
    }

    /// Runs git, which has to succeed.
    pub(crate) fn must(&self, arguments: &[&str]) -> String {
        let output = self.git(arguments);
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Runs git, which has to fail; what it complained.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.git(arguments);
        assert!(!output.status.success(), "git {arguments:?} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// A working copy of what is at the URL.
    pub(crate) fn clone_from(&self, url: &str) {
        let place = self.dir();
        self.must(&["clone", "-q", url, place.to_str().unwrap()]);
    }

    /// A working copy that knows the URL and has fetched nothing.
    pub(crate) fn start_at(&self, url: &str) {
        self.must(&["init", "-q", "-b", "main", self.dir().to_str().unwrap()]);
        self.must(&["remote", "add", "origin", url]);
    }

    /// Another commit; its id.
    pub(crate) fn commit(&self, text: &str) -> String {
        std::fs::write(self.dir().join("file"), text).unwrap();
        self.must(&["add", "file"]);
        self.must(&["commit", "-q", "-m", text]);
        self.head()
    }

    pub(crate) fn head(&self) -> String {
        self.must(&["rev-parse", "HEAD"])
    }
}

/// The id of a ref in a bare repository; nothing if there is none.
pub(crate) fn ref_of(repo: &Path, name: &str) -> Option<String> {
    let output =
        Client::new().git(&["--git-dir", repo.to_str().unwrap(), "rev-parse", "--verify", "-q", name]);
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}
