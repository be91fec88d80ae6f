//! Changes of a repository's own configuration.

use crate::error::Result;
use crate::git::Git;
use crate::name::RemoteName;
use crate::repo::RepoDir;

impl Git {
    /// Gives a remote this URL, in place of those it had; makes the remote if there is none. Whether the URL may be
    /// used is decided by the transports that are allowed, each time it is.
    pub async fn set_remote_url(&self, repo: &RepoDir, remote: &RemoteName, url: &str) -> Result<()> {
        let key = format!("remote.{remote}.url");
        // The value comes last and is never read as an option after `--`.
        self.local("config", Some(repo), ["config", "--local", "--replace-all", "--", &key, url])
            .await
            .map(drop)
    }
}
