//! A stock git with a home of its own, and nothing of the developer's settings. The one place that starts programs here.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tokio::process::Command;

/// What a program needs to find others and to put its files.
const INHERITED: [&str; 3] = ["PATH", "LANG", "TMPDIR"];

/// git, as a user has it.
pub(crate) struct Client {
    home: TempDir,
}

impl Client {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { home: tempfile::tempdir()? })
    }

    /// A place for working copies.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// git with these arguments, not yet started.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, dir: &Path, arguments: &[S]) -> Command {
        let mut command = program("git");
        command.args(arguments).current_dir(dir).env("HOME", self.home());
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
        command
    }

    /// Runs git to its end; what it wrote.
    pub(crate) async fn git<S: AsRef<OsStr>>(&self, dir: &Path, arguments: &[S]) -> Result<String> {
        answer(self.command(dir, arguments)).await
    }

    /// Runs git to its end; how long that took, in seconds.
    pub(crate) async fn time<S: AsRef<OsStr>>(&self, dir: &Path, arguments: &[S]) -> Result<f64> {
        let began = Instant::now();
        self.git(dir, arguments).await?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// A bare repository that does not tidy itself up in between.
    pub(crate) async fn init_bare(&self, dir: &Path) -> Result<()> {
        self.git(self.home(), &["init".as_ref(), "--quiet".as_ref(), "--bare".as_ref(), dir.as_os_str()])
            .await?;
        self.git(dir, &["config", "receive.autogc", "false"]).await?;
        self.git(dir, &["config", "gc.auto", "0"]).await.map(drop)
    }

    /// A chain of empty commits, oldest first, which no ref points to.
    pub(crate) async fn chain(&self, repo: &Path, count: usize) -> Result<Vec<String>> {
        let stream: String = (0..count)
            .map(|n| format!("commit refs/chain\ncommitter a <a@b> {} +0000\ndata 1\nx\n", 1_700_000_000 + n))
            .collect();
        let path = repo.join("fast-import");
        std::fs::write(&path, stream)?;
        let mut import = self.command(repo, &["fast-import", "--quiet", "--force"]);
        import.stdin(std::fs::File::open(&path)?);
        answer(import).await?;
        let list = self.git(repo, &["rev-list", "--reverse", "refs/chain"]).await?;
        self.git(repo, &["update-ref", "-d", "refs/chain"]).await?;
        let chain: Vec<String> = list.lines().map(str::to_owned).collect();
        ensure!(chain.len() == count, "{} commits were made, not {count}", chain.len());
        Ok(chain)
    }

    /// A ref of a repository; empty if there is none.
    pub(crate) async fn ref_of(&self, repo: &Path, name: &str) -> Result<String> {
        self.git(repo, &["for-each-ref", "--format=%(objectname)", name]).await
    }
}

/// A program that ends with us, with little of our environment.
#[expect(clippy::disallowed_methods, reason = "real programs are what is measured, from outside")]
pub(crate) fn program(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    command.env_clear().stdin(Stdio::null()).kill_on_drop(true);
    command.envs(INHERITED.iter().filter_map(|name| std::env::var_os(name).map(|value| (name, value))));
    command
}

/// Runs a program to its end; what it wrote.
pub(crate) async fn answer(mut command: Command) -> Result<String> {
    let output = command.output().await.with_context(|| format!("cannot run {:?}", command.as_std()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?}: {}\n{said}", command.as_std(), output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
