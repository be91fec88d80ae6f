//! Making a bare repository and setting it up.

use std::ffi::OsString;
use std::path::Path;

use crate::error::{Error, Result};
use crate::git::Git;
use crate::name::RefName;
use crate::repo::RepoDir;

/// How a repository is made.
#[derive(Debug, Clone)]
pub struct Init {
    /// The branch that HEAD names, as `refs/heads/…`.
    pub default_branch: RefName,
    /// SHA-256 instead of SHA-1 object ids.
    pub sha256: bool,
}

impl Git {
    /// Makes a bare repository without hooks or samples. The directory may exist if it is empty; an existing
    /// repository stays as it is.
    pub async fn init_bare(&self, path: &Path, init: &Init) -> Result<RepoDir> {
        let branch = init.default_branch.as_str().strip_prefix("refs/heads/");
        let branch = branch.ok_or_else(|| Error::invalid("default_branch", "must begin with refs/heads/"))?;
        let absolute =
            std::path::absolute(path).map_err(|source| Error::Prepare { path: path.to_owned(), source })?;
        let mut args: Vec<OsString> =
            ["init", "--bare", "--quiet", "--template="].map(OsString::from).to_vec();
        args.push(format!("--initial-branch={branch}").into());
        args.push(format!("--object-format={}", if init.sha256 { "sha256" } else { "sha1" }).into());
        args.push("--".into());
        args.push(absolute.clone().into());
        self.local("init", None, args).await?;
        RepoDir::open(&absolute)
    }

    /// Sets a value in the configuration of a repository, in place of all it had.
    pub async fn set_config(&self, repo: &RepoDir, key: &str, value: &str) -> Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if key.starts_with('-') || !key.contains('.') || !key.chars().all(plain) {
            return Err(Error::invalid("git configuration", format!("{key:?} is no key")));
        }
        self.local("config", Some(repo), ["config", "--replace-all", "--", key, value]).await?;
        Ok(())
    }
}
