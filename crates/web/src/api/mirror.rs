//! How the mirrors of this node stand, and what they gave up. Only the leader mirrors; elsewhere none runs.

pub(crate) mod letters;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Json;
use axum::extract::{Path, State};
use stargate_access::Role;
use stargate_mirror::Report;
use stargate_mirror::report::WorkerState;
use stargate_mirror::verify::Verification;

use crate::api::types::mirror as types;
use crate::app::Shared;
use crate::caller::{Actor, Change};
use crate::error::{Answer, Problem, Result};

/// Mirrors that are told about at most.
const MIRRORS_MAX: usize = 1000;
/// How long comparing both sides may take.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(45);

/// A repository that is mirrored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorPlace {
    /// Its name.
    pub repo: String,
    /// Where it is.
    pub path: PathBuf,
    /// The remote, by its name in the repository.
    pub remote: String,
    /// Where that is, without any password; none if there is no such remote.
    pub url: Option<String>,
}

/// Knows the repositories of this node and what mirrors them.
#[async_trait]
pub trait Mirrors: std::fmt::Debug + Send + Sync + 'static {
    /// Those that are mirrored here now.
    fn running(&self) -> Vec<MirrorPlace>;

    /// What the workers of those say about themselves, from memory.
    fn states(&self) -> Vec<(String, WorkerState)>;

    /// A repository by its name, whether it is mirrored now or not.
    async fn find(&self, repo: &str) -> Answer<MirrorPlace>;

    /// Compares every ref of both sides.
    async fn verify(&self, repo: &str) -> Answer<Verification>;

    /// The repositories of this node.
    async fn repos(&self) -> Answer<Vec<types::Repo>>;

    /// How long dead letters are kept.
    fn retention(&self) -> Duration;

    /// Told of an error with the files of a repository: after a failed sync nobody knows what is on disk, and the process
    /// must not go on.
    fn distrust(&self, repo: &str, error: &stargate_mirror::Error);
}

#[utoipa::path(get, path = "/mirror", tag = "mirror", summary = "The mirrors that run on this node, and how far they are behind",
    responses((status = 200, body = types::Mirrors)))]
pub(crate) async fn show(State(shared): State<Shared>) -> Result<Json<types::Mirrors>> {
    all(&shared).await.map(Json)
}

/// The mirrors that run on this node.
pub(crate) async fn all(shared: &Shared) -> Result<types::Mirrors> {
    let running = running(shared);
    let mirrors = on_thread(move || {
        let of = |place: MirrorPlace| Ok(types::Mirror::of(&place, Report::of(&place.path)?));
        running.into_iter().take(MIRRORS_MAX).map(of).collect::<stargate_mirror::Result<Vec<_>>>()
    });
    Ok(types::Mirrors { mirrors: mirrors.await? })
}

#[utoipa::path(get, path = "/mirror/{repo}", tag = "mirror", summary = "One mirror with the refs that are not as they should be",
    params(("repo" = String, Path, description = "The repository")), responses((status = 200, body = types::MirrorDetail)))]
pub(crate) async fn show_one(
    State(shared): State<Shared>,
    Path(repo): Path<String>,
) -> Result<Json<types::MirrorDetail>> {
    one(&shared, &repo).await.map(Json)
}

/// One mirror with its refs.
pub(crate) async fn one(shared: &Shared, repo: &str) -> Result<types::MirrorDetail> {
    let place = place(shared, repo).await?;
    let detail = on_thread(move || Ok(types::MirrorDetail::of(&place, Report::of(&place.path)?)));
    detail.await
}

#[utoipa::path(post, path = "/mirror/{repo}/verify", tag = "mirror", summary = "Compare every ref of both sides; changes nothing",
    params(("repo" = String, Path, description = "The repository")), responses((status = 200, body = types::Verification)))]
pub(crate) async fn verify(actor: Actor, Path(repo): Path<String>) -> Result<Json<types::Verification>> {
    compare(&actor, &repo).await.map(Json)
}

/// Compares every ref of both sides.
pub(crate) async fn compare(actor: &Actor, repo: &str) -> Result<types::Verification> {
    let mirrors = mirrors(actor.shared(), repo)?;
    let place = mirrors.find(repo).await?;
    if place.url.is_none() {
        let message = format!("{repo} has no remote {}; nothing is mirrored", place.remote);
        return Err(Problem::new(axum::http::StatusCode::CONFLICT, "CONFLICT", message));
    }
    let change = Change::new("mirror.verify", Role::Operate, repo);
    let found = actor.audited(change, async {
        let verified = tokio::time::timeout(VERIFY_TIMEOUT, mirrors.verify(repo)).await;
        Ok(verified.map_err(|_| Problem::unavailable("TIMEOUT", "the remote takes too long to answer"))??)
    });
    Ok(found.await?.into())
}

#[utoipa::path(get, path = "/repos", tag = "mirror", summary = "The repositories of this node",
    responses((status = 200, body = types::Repos)))]
pub(crate) async fn repos(State(shared): State<Shared>) -> Result<Json<types::Repos>> {
    all_repos(&shared).await.map(Json)
}

/// The repositories of this node.
pub(crate) async fn all_repos(shared: &Shared) -> Result<types::Repos> {
    let repos = match &shared.mirrors {
        Some(mirrors) => mirrors.repos().await?,
        None => Vec::new(),
    };
    Ok(types::Repos { repos })
}

fn mirrors<'a>(shared: &'a Shared, repo: &str) -> Result<&'a Arc<dyn Mirrors>> {
    shared.mirrors.as_ref().ok_or_else(|| Problem::not_found("repository", cut(repo)))
}

/// A repository by its name. Those that are mirrored are known without asking git.
async fn place(shared: &Shared, repo: &str) -> Result<MirrorPlace> {
    if let Some(place) = running(shared).into_iter().find(|place| place.repo == repo) {
        return Ok(place);
    }
    Ok(mirrors(shared, repo)?.find(repo).await?)
}

fn running(shared: &Shared) -> Vec<MirrorPlace> {
    shared.mirrors.as_ref().map(|mirrors| mirrors.running()).unwrap_or_default()
}

/// A name that somebody sent, as far as it is worth repeating.
fn cut(name: &str) -> String {
    name.chars().take(100).collect()
}

/// Files are read on a thread for that. What is wrong with them is for the log; it names paths.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> stargate_mirror::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(stargate_mirror::Error::NoDeadLetter { id })) => {
            Err(Problem::not_found("dead letter", cut(&id)))
        }
        Ok(Err(stargate_mirror::Error::Invalid { what, problem })) => Err(Problem::invalid(what, problem)),
        Ok(Err(error)) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the files of a mirror cannot be used");
            Err(Problem::unavailable("IO", "the files of a mirror cannot be read; the log says why"))
        }
        Err(_) => Err(Problem::internal()),
    }
}
