//! Roles, and the repositories they are given for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How many components a repository's name may have.
pub const NAME_DEPTH_MAX: usize = 3;
/// How long a repository's name may be: three parts of 100 bytes.
pub const NAME_BYTES_MAX: usize = 302;

/// What somebody may do. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look and fetch.
    Read,
    /// Push, enqueue, retry or cancel a job.
    Write,
    /// Pause and resume, retry and cancel in bulk, schedules, limits, dead letters, directives, quarantine.
    Operate,
    /// Create and remove repositories, tokens and hooks; have the leader step down, purge.
    Admin,
}

impl Role {
    /// Every role, the least first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Operate, Self::Admin];

    /// The name in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|role| role.as_str() == name);
        known
            .ok_or_else(|| Error::invalid("role", format!("{name:?} is none of read, write, operate, admin")))
    }
}

/// Which repositories a grant is for: `*`, one name, or all below a prefix (`team/*`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RepoPattern {
    /// All of them, and what belongs to none.
    All,
    /// The one with this name.
    Exact(String),
    /// Those below this prefix, which does not include its slash.
    Below(String),
}

impl RepoPattern {
    /// Whether it covers a repository, named without `.git`.
    pub fn matches(&self, repo: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exact(name) => name == repo,
            Self::Below(prefix) => repo
                .strip_prefix(prefix.as_str())
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|rest| !rest.is_empty()),
        }
    }
}

impl fmt::Display for RepoPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Exact(name) => f.write_str(name),
            Self::Below(prefix) => write!(f, "{prefix}/*"),
        }
    }
}

impl FromStr for RepoPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "*" {
            return Ok(Self::All);
        }
        let (name, below) = match text.strip_suffix("/*") {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        check_name(name, text)?;
        Ok(if below { Self::Below(name.to_owned()) } else { Self::Exact(name.to_owned()) })
    }
}

fn check_name(name: &str, given: &str) -> Result<()> {
    let part = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        !part.is_empty() && !part.starts_with(['.', '-']) && part.chars().all(fits)
    };
    let whole = name.len() <= NAME_BYTES_MAX && name.split('/').count() <= NAME_DEPTH_MAX;
    if !whole || !name.split('/').all(part) {
        let problem =
            format!("{given:?} is not '*', the name of a repository, or a prefix that ends in '/*'");
        return Err(Error::invalid("repo", problem));
    }
    if name.ends_with(".git") {
        return Err(Error::invalid(
            "repo",
            format!("{given:?}: leave '.git' out, it is not part of the name"),
        ));
    }
    Ok(())
}

/// A role on some repositories, written `write:team/*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Grant {
    /// What may be done.
    pub role: Role,
    /// Where.
    pub repo: RepoPattern,
}

impl Grant {
    /// Everything everywhere.
    pub const EVERYTHING: Self = Self { role: Role::Admin, repo: RepoPattern::All };

    /// Whether it allows this. What belongs to no repository is allowed by grants on all of them only.
    pub fn allows(&self, need: Role, repo: Option<&str>) -> bool {
        let here = match repo {
            Some(repo) => self.repo.matches(repo),
            None => self.repo == RepoPattern::All,
        };
        here && self.role >= need
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.role, self.repo)
    }
}

impl FromStr for Grant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((role, repo)) = text.split_once(':') else {
            let problem = format!("{text:?} is not ROLE:REPO, such as 'write:team/*' or 'read:*'");
            return Err(Error::invalid("grant", problem));
        };
        Ok(Self { role: role.parse()?, repo: repo.parse()? })
    }
}

impl From<Grant> for String {
    fn from(grant: Grant) -> Self {
        grant.to_string()
    }
}

impl TryFrom<String> for Grant {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(text: &str) -> Grant {
        text.parse().unwrap()
    }

    #[test]
    fn a_role_includes_those_before_it_and_none_after() {
        for (n, have) in Role::ALL.into_iter().enumerate() {
            let grant = Grant { role: have, repo: RepoPattern::All };
            for (m, need) in Role::ALL.into_iter().enumerate() {
                assert_eq!(grant.allows(need, Some("a")), n >= m, "{have} for {need}");
            }
        }
    }

    #[test]
    fn a_pattern_covers_exactly_what_it_says() {
        let cases = [
            ("*", "a", true),
            ("*", "a/b/c", true),
            ("a", "a", true),
            ("a", "A", false),
            ("a", "ab", false),
            ("a", "a/b", false),
            ("team/*", "team/x", true),
            ("team/*", "team/x/y", true),
            ("team/*", "team", false),
            ("team/*", "team/", false),
            ("team/*", "teams/x", false),
            ("team/*", "other/team/x", false),
            ("a/b/*", "a/b/c", true),
            ("a/b/*", "a/c", false),
        ];
        for (pattern, repo, expected) in cases {
            let pattern: RepoPattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(repo), expected, "{pattern} and {repo}");
        }
    }

    #[test]
    fn what_belongs_to_no_repository_needs_a_grant_on_all() {
        assert!(grant("read:*").allows(Role::Read, None));
        assert!(!grant("read:*").allows(Role::Write, None));
        assert!(!grant("admin:a").allows(Role::Read, None));
        assert!(!grant("admin:a/*").allows(Role::Read, None));
    }

    #[test]
    fn grants_read_back_as_they_were_written() {
        for text in ["read:*", "write:team/*", "operate:*", "admin:a/b/c", "write:my.repo_1-x"] {
            assert_eq!(grant(text).to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let long = format!("read:{}", "a".repeat(NAME_BYTES_MAX + 1));
        let bad = [
            "",
            "read",
            "read:",
            "owner:*",
            "Read:*",
            "read:**",
            "read:*/a",
            "read:a/*/b",
            "read:../a",
            "read:/a",
            "read:a//b",
            "read:a/",
            "read:.a",
            "read:-a",
            "read:a b",
            "read:a\0",
            "read:a/b/c/d",
            "read:a.git",
            "read:/*",
            "read:é",
            &long,
        ];
        for text in bad {
            assert!(text.parse::<Grant>().is_err(), "{text:?} was accepted");
        }
    }
}
