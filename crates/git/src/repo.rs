//! A bare repository on disk.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The directory of a bare repository: absolute, and looked at when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepoDir(PathBuf);

impl RepoDir {
    /// Opens a directory that holds a bare repository (or is a `.git` directory).
    pub fn open(path: &Path) -> Result<Self> {
        let bad = |problem| Error::NotARepository { path: path.to_owned(), problem };
        let path = path.canonicalize().map_err(|_| bad("it does not exist or cannot be read"))?;
        if !path.join("HEAD").is_file() {
            return Err(bad("it has no HEAD; a bare repository is wanted (git init --bare)"));
        }
        if !path.join("objects").is_dir() || !path.join("refs").is_dir() {
            return Err(bad("it has no objects or refs"));
        }
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}
