//! Ancestry as git knows it, inside a hook.

use async_trait::async_trait;
use stargate_git::{Git, Objects, Oid, RepoDir};

use super::pre_receive::Ancestry;
use super::{Context, QUARANTINE};

/// Asks git, which sees the objects of the push as well.
#[derive(Debug, Clone)]
pub struct RepoAncestry {
    git: Git,
    repo: RepoDir,
}

impl RepoAncestry {
    /// For the hook of a push to `repo`.
    pub fn new(git: Git, repo: RepoDir, context: &Context) -> Self {
        let variable = |name: &str| {
            context.quarantine.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
        };
        let git = match variable(QUARANTINE[0]) {
            Some(directory) => {
                let alternates = variable(QUARANTINE[1]).unwrap_or_default();
                git.with_objects(Objects { directory, alternates })
            }
            None => git,
        };
        Self { git, repo }
    }
}

#[async_trait]
impl Ancestry for RepoAncestry {
    async fn is_ancestor(&self, old: &Oid, new: &Oid) -> Result<bool, String> {
        self.git.is_ancestor(&self.repo, old, new).await.map_err(|error| error.to_string())
    }
}
