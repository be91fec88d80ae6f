//! Repositories as the store knows them.

use jiff::Timestamp;
use stargate_queue::{Error, Result};

use crate::measure::RepoSize;
use crate::push::check_ref;

/// How many components a name may have.
pub const NAME_DEPTH_MAX: usize = 3;
/// How long a name may be: three parts of 100 bytes.
pub const NAME_BYTES_MAX: usize = 302;
/// What HEAD points to where nobody said otherwise.
pub const DEFAULT_BRANCH: &str = "refs/heads/main";

stargate_queue::id! {
    /// Names a repository in the store's rows.
    RepoId
}

/// A repository to be entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoSpec {
    /// Its name, without `.git`.
    pub name: String,
    /// What HEAD points to.
    pub default_branch: String,
}

impl RepoSpec {
    /// A repository whose HEAD points to [`DEFAULT_BRANCH`].
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), default_branch: DEFAULT_BRANCH.to_owned() }
    }

    /// Refuses impossible values, naming the field.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        check_ref("default_branch", &self.default_branch)
    }
}

/// A repository as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repo {
    /// Its number.
    pub id: RepoId,
    /// Its name, without `.git`.
    pub name: String,
    /// What HEAD points to.
    pub default_branch: String,
    /// The commit of the default branch, as far as pushes have been processed.
    pub default_oid: Option<String>,
    /// How much there is of it, if it was measured.
    pub size: Option<RepoSize>,
    /// When it was measured.
    pub sized_at: Option<Timestamp>,
    /// When the last push was recorded.
    pub pushed_at: Option<Timestamp>,
    /// When it was entered.
    pub created_at: Timestamp,
}

/// Names of repositories: up to three components of letters, digits and `. _ -`, none beginning with a dot or a dash.
pub fn check_name(name: &str) -> Result<()> {
    let part = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !part.is_empty() && !part.starts_with(['.', '-']) && part.chars().all(fits)
    };
    let whole = name.len() <= NAME_BYTES_MAX && name.split('/').count() <= NAME_DEPTH_MAX;
    if whole && name.split('/').all(part) && !name.ends_with(".git") {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    let problem = format!(
        "{shown:?} is not the name of a repository: up to {NAME_DEPTH_MAX} parts of letters, digits and . _ - are allowed, without '.git'"
    );
    Err(Error::invalid("repo", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for good in ["a", "team/app", "a/b/c", "my.repo_1-x", "x..y"] {
            check_name(good).unwrap();
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for bad in [
            "", ".", "..", "a/..", "/a", "a/", "a//b", "a/b/c/d", ".a", "-a", "a b", "a\0", "é", "a.git",
            &long,
        ] {
            let error = check_name(bad).unwrap_err().to_string();
            assert!(error.starts_with("repo "), "{error}");
        }
    }
}
