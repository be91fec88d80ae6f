//! Compares every mirrored ref of both sides.

use std::collections::BTreeSet;

use serde::Serialize;
use stargate_git::{Git, Oid, RefName, RepoDir};

use crate::config::Config;
use crate::error::Result;

/// How a ref here stands to the same ref there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Both are the same.
    Equal,
    /// We have more: a fast-forward would bring it there.
    Ahead,
    /// They have more.
    Behind,
    /// Each has something that the other has not, or we do not know what they have.
    Diverged,
    /// Only we have it.
    OnlyHere,
    /// Only they have it.
    OnlyThere,
}

/// One ref of both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// Its name here.
    #[serde(rename = "ref")]
    pub name: RefName,
    /// Its name there.
    pub remote_ref: RefName,
    /// What it is here.
    pub local: Option<Oid>,
    /// What it is there.
    pub remote: Option<Oid>,
    /// Its watermark, if it is a ledger.
    pub watermark_ref: Option<RefName>,
    /// What that is there.
    pub watermark: Option<Oid>,
    /// How they stand.
    pub standing: Standing,
}

/// For how many refs the remote's objects are fetched to compare histories; the rest count as diverged.
const FETCHES_MAX: usize = 20;

/// Compares all refs that are mirrored, in order of their names.
pub async fn compare(git: &Git, repo: &RepoDir, config: &Config) -> Result<Vec<Pair>> {
    let routes = &config.routes;
    let here = git.local_refs(repo, routes.watched()).await?;
    let there = git.ls_remote(repo, &config.remote, &routes.there(), config.push_timeout).await?;
    let only_there =
        there.keys().filter(|name| !routes.is_watermark(name)).filter_map(|name| routes.name_here(name));
    let names: BTreeSet<RefName> = here.keys().cloned().chain(only_there).collect();
    let mut pairs = Vec::with_capacity(names.len());
    let mut fetches = 0;
    for name in names {
        let Ok(route) = routes.route(&name, None) else { continue };
        let (local, remote) = (here.get(&name).cloned(), there.get(&route.to).cloned());
        let mut standing = standing(git, repo, local.as_ref(), remote.as_ref()).await;
        if let (Standing::Diverged, Some(ours), Some(theirs)) = (standing, &local, &remote)
            && fetches < FETCHES_MAX
            && !git.has_object(repo, theirs).await?
        {
            fetches += 1;
            let aside = git.fetch_aside(repo, &config.remote, &route.to, config.push_timeout).await?;
            if aside.git().is_ancestor(repo, ours, theirs).await.unwrap_or(false) {
                standing = Standing::Behind;
            }
        }
        let watermark_ref = route.watermark;
        let watermark = watermark_ref.as_ref().and_then(|name| there.get(name).cloned());
        pairs.push(Pair { name, remote_ref: route.to, local, remote, watermark_ref, watermark, standing });
    }
    Ok(pairs)
}

async fn standing(git: &Git, repo: &RepoDir, local: Option<&Oid>, remote: Option<&Oid>) -> Standing {
    match (local, remote) {
        (Some(local), Some(remote)) if local == remote => Standing::Equal,
        (Some(local), Some(remote)) => {
            if git.is_ancestor(repo, remote, local).await.unwrap_or(false) {
                Standing::Ahead
            } else if git.is_ancestor(repo, local, remote).await.unwrap_or(false) {
                Standing::Behind
            } else {
                Standing::Diverged
            }
        }
        (Some(_), None) => Standing::OnlyHere,
        (None, _) => Standing::OnlyThere,
    }
}
