//! The stock git client, without any settings of whoever runs the tests.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::Command;

/// How a command of git ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    pub(crate) fn succeeded(&self) -> bool {
        self.code == Some(0)
    }
}

/// A directory with a working copy in it, and a home without settings.
#[derive(Debug)]
pub(crate) struct Client {
    dir: TempDir,
}

impl Client {
    /// A client without anything.
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::Builder::new().prefix("gateway-client-").tempdir().unwrap() }
    }

    /// A client with a working copy in `work` that has one commit on `main`.
    pub(crate) async fn with_commit() -> Self {
        let client = Self::new();
        client.ok(&["init", "--quiet", "--initial-branch=main", "work"]).await;
        client.commit("first").await;
        client
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn command(&self, dir: &Path, arguments: &[&str]) -> Command {
        #[expect(clippy::disallowed_methods, reason = "the client under which the gateway is tested")]
        let mut command = Command::new("git");
        command.args(arguments).current_dir(dir).env_clear();
        command
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.dir.path())
            .env("LC_ALL", "C");
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
        for role in ["AUTHOR", "COMMITTER"] {
            command
                .env(format!("GIT_{role}_NAME"), "Test")
                .env(format!("GIT_{role}_EMAIL"), "test@example.org");
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs git in the client's directory.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Done {
        done(self.command(self.path(), arguments)).await
    }

    /// Runs git in the client's directory, successfully, and gives its output without the last line feed.
    pub(crate) async fn ok(&self, arguments: &[&str]) -> String {
        succeeded(self.run(arguments).await, arguments)
    }

    /// Runs git in the working copy.
    pub(crate) async fn run_in_work(&self, arguments: &[&str]) -> Done {
        done(self.command(&self.work(), arguments)).await
    }

    /// Runs git in the working copy, successfully.
    pub(crate) async fn work_ok(&self, arguments: &[&str]) -> String {
        succeeded(self.run_in_work(arguments).await, arguments)
    }

    /// Adds a commit with a file of that name, and gives its id.
    pub(crate) async fn commit(&self, name: &str) -> String {
        std::fs::write(self.work().join(name), format!("content of {name}\n")).unwrap();
        self.work_ok(&["add", "."]).await;
        self.work_ok(&["commit", "--quiet", "-m", name]).await;
        self.work_ok(&["rev-parse", "HEAD"]).await
    }
}

pub(crate) async fn done(mut command: Command) -> Done {
    let output = command.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

fn succeeded(done: Done, arguments: &[&str]) -> String {
    assert!(done.succeeded(), "git {} ended with {:?}\n{}", arguments.join(" "), done.code, done.stderr);
    done.stdout.trim_end().to_owned()
}
