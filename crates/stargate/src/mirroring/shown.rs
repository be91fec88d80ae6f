//! Repositories and mirrors for the API: what the commands tell, told by a node that runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stargate_gateway::{RepoName, Repositories};
use stargate_mirror::report::WorkerState;
use stargate_mirror::verify::{Verification, verify};
use stargate_repo::store::PAGE_MAX;
use stargate_repo::{Repo, SharedPushes};
use stargate_web::api::types::mirror as types;
use stargate_web::{Answer, MirrorPlace};

use super::supervise::{Mirrors, end_if_unsafe};
use super::{Places, Target};
use crate::config::Settings;
use crate::failure::{Exit, Failure, Result};
use crate::gateway;

/// The repositories of this node and what mirrors them.
#[derive(Debug)]
pub(crate) struct Shown {
    mirrors: Mirrors,
    places: Places,
    pushes: SharedPushes,
    repositories: Option<Repositories>,
    retention: Duration,
}

impl Shown {
    pub(crate) fn new(
        settings: &Settings,
        mirrors: &Mirrors,
        pushes: &SharedPushes,
        repositories: Option<Repositories>,
    ) -> Self {
        Self {
            mirrors: mirrors.clone(),
            places: Places::of(settings),
            pushes: Arc::clone(pushes),
            repositories,
            retention: settings.mirror.retention,
        }
    }
}

/// The repositories of a node, by name, with what the store knows of them. What it does not know has not been pushed to yet.
pub(crate) async fn known(
    repositories: &Repositories,
    pushes: &SharedPushes,
) -> Result<Vec<(RepoName, Option<Repo>)>> {
    let names = repositories.list().map_err(|error| gateway::failure(&error))?;
    let mut rows: BTreeMap<String, Repo> = BTreeMap::new();
    loop {
        let page = pushes.repos(rows.keys().next_back().map(String::as_str), PAGE_MAX).await?;
        let is_last = page.len() < PAGE_MAX as usize;
        rows.extend(page.into_iter().map(|repo| (repo.name.clone(), repo)));
        if is_last {
            break;
        }
    }
    Ok(names.into_iter().map(|name| (name.clone(), rows.remove(name.as_str()))).collect())
}

impl Target {
    /// As the API knows it.
    pub(super) fn place(&self) -> MirrorPlace {
        MirrorPlace {
            repo: self.name.clone(),
            path: self.repo.path().to_owned(),
            remote: self.config.remote.to_string(),
            url: self.url.clone(),
        }
    }
}

#[async_trait]
impl stargate_web::Mirrors for Shown {
    fn running(&self) -> Vec<MirrorPlace> {
        self.mirrors.running()
    }

    fn states(&self) -> Vec<(String, WorkerState)> {
        self.mirrors.states()
    }

    async fn find(&self, repo: &str) -> Answer<MirrorPlace> {
        Ok(self.places.named(repo).await?.place())
    }

    async fn verify(&self, repo: &str) -> Answer<Verification> {
        let target = self.places.named(repo).await?.with_remote()?;
        let verified = verify(&target.git, &target.repo, &target.config).await;
        Ok(verified.map_err(Failure::from)?)
    }

    async fn repos(&self) -> Answer<Vec<types::Repo>> {
        let Some(repositories) = &self.repositories else { return Ok(Vec::new()) };
        let known = known(repositories, &self.pushes).await?;
        Ok(known.into_iter().map(|(name, repo)| shown(&name, repo)).collect())
    }

    fn retention(&self) -> Duration {
        self.retention
    }

    fn distrust(&self, repo: &str, error: &stargate_mirror::Error) {
        end_if_unsafe(repo, error);
    }
}

fn shown(name: &RepoName, repo: Option<Repo>) -> types::Repo {
    let size = repo.as_ref().and_then(|repo| repo.size);
    let pushed_at = repo.as_ref().and_then(|repo| repo.pushed_at);
    let (default_branch, default_oid) = repo.map(|repo| (repo.default_branch, repo.default_oid)).unzip();
    types::Repo {
        name: name.to_string(),
        default_branch,
        default_oid: default_oid.flatten(),
        bytes: size.map(|size| size.bytes),
        objects: size.map(|size| size.objects),
        pushed_at,
    }
}

impl Places {
    /// A repository by its name below the root; never by a path, which somebody else has sent.
    pub(crate) async fn named(&self, name: &str) -> Result<Target> {
        let missing = || {
            let name: String = name.chars().take(100).collect();
            Failure::new(Exit::NotFound, "NOT_FOUND", format!("no repository {name}"))
        };
        let name = RepoName::parse(name).map_err(|_| missing())?;
        if !self.root.is_dir() {
            return Err(missing());
        }
        let repo = self.repositories()?.find(&name).map_err(|_| missing())?;
        self.target(name.to_string(), repo).await
    }
}
