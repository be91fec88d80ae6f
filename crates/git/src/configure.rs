//! Changes of a repository's own configuration.

use crate::error::{Error, Result};
use crate::git::Git;
use crate::name::RemoteName;
use crate::repo::RepoDir;
use crate::run::End;

impl Git {
    /// Gives a remote this URL, in place of those it had; makes the remote if there is none. Whether the URL may be
    /// used is decided by the transports that are allowed, each time it is.
    ///
    /// Nothing is written if that is its URL already: whoever watches the file would think that something has changed.
    pub async fn set_remote_url(&self, repo: &RepoDir, remote: &RemoteName, url: &str) -> Result<()> {
        let key = format!("remote.{remote}.url");
        let asked =
            self.local("config", Some(repo), ["config", "--local", "--null", "--get-all", "--", &key]);
        let written = match asked.await {
            // As it is, not redacted: a URL that differs by its user alone is another one.
            Ok(answer) => answer.stdout,
            Err(Error::Failed { answer, .. }) if answer.end == End::Exited(1) => Vec::new(),
            Err(error) => return Err(error),
        };
        if written == [url.as_bytes(), b"\0"].concat() {
            return Ok(());
        }
        // The value comes last and is never read as an option after `--`.
        self.local("config", Some(repo), ["config", "--local", "--replace-all", "--", &key, url])
            .await
            .map(drop)
    }
}
