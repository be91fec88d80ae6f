//! Repositories for tests: a bare one, and a bare remote beside it.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use stargate_git::{Git, Init, Oid, Protocols, Push, PushAnswer, RefName, RemoteName, RepoDir, Update};
use stargate_testkit::git::{self, executable};
use tempfile::TempDir;

/// Long enough for a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Every git that is there.
pub(crate) fn gits() -> Vec<Git> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    git::programs().iter().map(|program| Git::new(program, &path)).collect()
}

pub(crate) fn name(text: &str) -> RefName {
    RefName::parse(text).unwrap()
}

pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) git: Git,
    pub(crate) repo: RepoDir,
    pub(crate) remote_dir: RepoDir,
    pub(crate) remote: RemoteName,
}

impl World {
    /// A repository with a remote that is a path, which is allowed.
    pub(crate) async fn new(git: &Git) -> Self {
        Self::with(git, false).await
    }

    pub(crate) async fn with(git: &Git, sha256: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let git = git.clone().with_protocols(Protocols::parse("file").unwrap());
        let init = Init { default_branch: name("refs/heads/main"), sha256 };
        let repo = git.init_bare(&dir.path().join("repo.git"), &init).await.unwrap();
        let remote_dir = git.init_bare(&dir.path().join("remote.git"), &init).await.unwrap();
        let world = Self { dir, git, repo, remote_dir, remote: RemoteName::parse("github-origin").unwrap() };
        world.set_url(world.remote_dir.path().to_str().unwrap());
        world
    }

    pub(crate) fn set_url(&self, url: &str) {
        self.run(self.repo.path(), &["config", "remote.github-origin.url", url]);
    }

    /// Runs git as a user would, and returns what it wrote.
    pub(crate) fn run(&self, dir: &Path, args: &[&str]) -> String {
        let output = self.command(dir, args).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn command(&self, dir: &Path, args: &[&str]) -> Command {
        #[expect(clippy::disallowed_methods, reason = "stands for a user and for the other side")]
        let mut command = Command::new(self.git.program());
        command.args(args).current_dir(dir).stdin(Stdio::null());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@b");
            command.env(format!("GIT_{who}_DATE"), "2025-01-01T00:00:00Z");
        }
        command
    }

    /// A commit in a repository, on no branch.
    pub(crate) fn commit_in(&self, repo: &RepoDir, parent: Option<&Oid>, text: &str) -> Oid {
        let tree = self.run(repo.path(), &["hash-object", "-w", "-t", "tree", "/dev/null"]);
        let mut args = vec!["commit-tree", &tree, "-m", text];
        if let Some(parent) = parent {
            args.extend(["-p", parent.as_str()]);
        }
        Oid::parse(&self.run(repo.path(), &args)).unwrap()
    }

    pub(crate) fn commit(&self, parent: Option<&Oid>, text: &str) -> Oid {
        self.commit_in(&self.repo, parent, text)
    }

    pub(crate) async fn push(&self, updates: &[(&Oid, &str)]) -> PushAnswer {
        let updates: Vec<Update> =
            updates.iter().map(|(oid, to)| Update { oid: (*oid).clone(), to: name(to) }).collect();
        self.git
            .push(&Push {
                repo: &self.repo,
                remote: &self.remote,
                updates: &updates,
                leases: &[],
                timeout: PATIENCE,
            })
            .await
            .unwrap()
    }

    pub(crate) fn remote_ref(&self, name: &str) -> Option<String> {
        let output: Output = self
            .command(self.remote_dir.path(), &["rev-parse", "--verify", "--quiet", name])
            .output()
            .unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    /// A hook of the other side.
    pub(crate) fn remote_hook(&self, hook: &str, script: &str) {
        executable(&self.remote_dir.path().join("hooks").join(hook), script);
    }
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
