//! Which repositories are mirrored, and how: for the commands and for the node that leads.

pub(crate) mod letters;
pub(crate) mod shown;
pub(crate) mod supervise;

use std::path::{Path, PathBuf};

use stargate_base::chain;
use stargate_gateway::{HookCommand, RepoName, Repositories};
use stargate_git::{Git, RemoteName, RepoDir};
use stargate_mirror::Config;

use crate::config::Settings;
use crate::config::mirror::Mirror;
use crate::failure::{Exit, Failure, Result};

/// Where repositories are and how they are mirrored.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    root: PathBuf,
    git: Git,
    mirror: Mirror,
}

/// A repository and how it is mirrored.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// As people call it: its name below the root, or its path.
    pub(crate) name: String,
    pub(crate) repo: RepoDir,
    pub(crate) git: Git,
    pub(crate) config: Config,
    /// Where pushes go, without any password; none if the repository has no such remote.
    pub(crate) url: Option<String>,
}

impl Places {
    /// Those of the configuration.
    pub(crate) fn of(settings: &Settings) -> Self {
        // With the transports of the mirror, and no credentials.
        let git = settings.git.git().with_protocols(settings.mirror.protocols.clone());
        Self { root: settings.git.root.clone(), git, mirror: settings.mirror.clone() }
    }

    /// The same with another remote.
    pub(crate) fn with_remote(mut self, remote: Option<RemoteName>) -> Self {
        if let Some(remote) = remote {
            self.mirror.config.remote = remote;
        }
        self
    }

    /// The repositories below the root, sorted. Blocks, shortly.
    pub(crate) fn list(&self) -> Result<Vec<(RepoName, RepoDir)>> {
        if !self.root.is_dir() {
            return Ok(Vec::new());
        }
        let failed = |error: stargate_gateway::Error| Failure::new(Exit::Input, error.code(), chain(&error));
        let repositories = self.repositories()?;
        let names = repositories.list().map_err(failed)?;
        // One that was removed meanwhile is left out.
        Ok(names
            .into_iter()
            .filter_map(|name| repositories.find(&name).ok().map(|dir| (name, dir)))
            .collect())
    }

    fn repositories(&self) -> Result<Repositories> {
        let failed = |error: stargate_gateway::Error| Failure::new(Exit::Input, error.code(), chain(&error));
        let program =
            std::env::current_exe().map_err(|error| Failure::io("cannot find this program", &error))?;
        let hooks = HookCommand::new(program, &["hook"]).map_err(failed)?;
        Repositories::open(&self.root, self.git.clone(), hooks).map_err(failed)
    }

    /// A repository by its directory or by its name below the root.
    pub(crate) async fn find(&self, given: &Path) -> Result<Target> {
        let opened = RepoDir::open(given);
        if let Ok(repo) = opened {
            return self.target(self.name_of(&repo), repo).await;
        }
        let name = given.to_str().and_then(|text| RepoName::parse(text).ok());
        if let Some(name) = name
            && self.root.is_dir()
            && let Ok(repo) = self.repositories()?.find(&name)
        {
            return self.target(name.to_string(), repo).await;
        }
        if given.is_dir() {
            opened?;
        }
        let root = self.root.display();
        let message = format!("there is no repository {}, neither here nor in {root}", given.display());
        Err(Failure::new(Exit::NotFound, "NOT_FOUND", message)
            .help("name the directory of a bare repository, or a repository of git.root"))
    }

    /// All repositories that have the remote.
    pub(crate) async fn mirrored(&self) -> Result<Vec<Target>> {
        let mut targets = Vec::new();
        for (name, repo) in self.list()? {
            let target = self.target(name.to_string(), repo).await?;
            if target.url.is_some() {
                targets.push(target);
            }
        }
        Ok(targets)
    }

    /// Looks at a repository: its remote, and what it takes to get in there.
    async fn target(&self, name: String, repo: RepoDir) -> Result<Target> {
        let git = self.git.clone();
        let config = self.mirror.config.clone();
        let configured = RepoName::parse(&name).ok().and_then(|name| self.mirror.urls.get(&name));
        if let Some(configured) = configured {
            git.set_remote_url(&repo, &config.remote, configured).await?;
        }
        let url = git.remote_url(&repo, &config.remote).await?;
        let git = match &url {
            Some(url) => git.with_credentials(self.mirror.credentials(url)?),
            None => git,
        };
        Ok(Target { name, repo, git, config, url })
    }

    /// The name below the root, or the path of a repository that lies elsewhere.
    fn name_of(&self, repo: &RepoDir) -> String {
        let root = self.root.canonicalize().ok();
        let inside = root.and_then(|root| repo.path().strip_prefix(root).ok().map(Path::to_owned));
        let name = inside.as_deref().and_then(Path::to_str).and_then(|text| RepoName::parse(text).ok());
        name.map_or_else(|| repo.path().display().to_string(), |name| name.to_string())
    }
}

impl Target {
    /// Refuses a repository that has nowhere to be mirrored to.
    pub(crate) fn with_remote(self) -> Result<Self> {
        if self.url.is_some() {
            return Ok(self);
        }
        let (remote, path) = (&self.config.remote, self.repo.path().display());
        let message = format!("{} has no remote {remote}", self.name);
        Err(Failure::input(message).help(format!("git -C {path} remote add {remote} URL")))
    }
}
