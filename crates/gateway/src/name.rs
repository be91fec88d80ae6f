//! Names of repositories: the only text of a client that becomes part of a path.
//!
//! A name is up to three components of letters, digits, `.`, `_` and `-`. Nothing in it ever needs an escape, so a
//! name with `%` in a URL is refused as it stands: there is no decoding that could be done once too often.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Components of a name at most: group, subgroup, repository.
pub const COMPONENTS_MAX: usize = 3;
/// Bytes of one component at most; a file system takes 255, and `.git` and the name in the trash need some.
pub const COMPONENT_BYTES_MAX: usize = 100;
/// What the directory of a repository ends with.
pub const SUFFIX: &str = ".git";

/// The name of a repository, without `.git`: `tools`, `team/tools`, `org/team/tools`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoName(String);

impl RepoName {
    /// Reads a name; `.git` at its end is taken off.
    ///
    /// ```
    /// use stargate_gateway::RepoName;
    ///
    /// assert_eq!(RepoName::parse("team/tools.git")?.as_str(), "team/tools");
    /// assert!(RepoName::parse("../secrets").is_err());
    /// # Ok::<(), stargate_gateway::Error>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self> {
        let name = text.strip_suffix(SUFFIX).unwrap_or(text);
        match problem(name) {
            None => Ok(Self(name.to_owned())),
            Some(problem) => Err(Error::Name { name: shown(text), problem }),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where the repository lies below a root.
    pub(crate) fn path(&self, root: &Path) -> PathBuf {
        root.join(format!("{}{SUFFIX}", self.0))
    }
}

impl std::fmt::Display for RepoName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for RepoName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

fn problem(name: &str) -> Option<&'static str> {
    if name.split('/').count() > COMPONENTS_MAX {
        return Some("has more than three components");
    }
    name.split('/').find_map(component_problem)
}

fn component_problem(component: &str) -> Option<&'static str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if component.is_empty() {
        Some("has an empty component")
    } else if component.len() > COMPONENT_BYTES_MAX {
        Some("has a component of more than 100 bytes")
    } else if component.starts_with(['.', '-']) {
        // Dots lead out of the root or hide, our own directories begin with one, dashes become options.
        Some("has a component that begins with '.' or '-'")
    } else if !component.bytes().all(fits) {
        Some("has something else than letters, digits, '.', '_', '-' and '/'")
    } else if component.ends_with(SUFFIX) {
        // A group could otherwise lie inside a repository.
        Some("has a component that ends with '.git'")
    } else {
        None
    }
}

/// A name that was refused, short and printable enough for a message.
fn shown(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 80;
    text.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_are_taken_with_and_without_suffix() {
        for (text, name) in [
            ("a", "a"),
            ("a.git", "a"),
            ("Team/tool_2.x-y.git", "Team/tool_2.x-y"),
            ("org/team/tools", "org/team/tools"),
            ("a.b", "a.b"),
        ] {
            assert_eq!(RepoName::parse(text).unwrap().as_str(), name);
        }
        let long = "x".repeat(COMPONENT_BYTES_MAX);
        assert!(RepoName::parse(&long).is_ok());
        assert!(RepoName::parse(&format!("{long}x")).is_err());
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for text in [
            "",
            ".git",
            "/",
            "/etc",
            "a//b",
            "a/",
            "..",
            "../a",
            "a/../b",
            "a/..",
            ".",
            "./a",
            "a/.hidden",
            "-a",
            "a/-b",
            "--upload-pack=x",
            "a\0b",
            "a\nb",
            "a b",
            "a%2fb",
            "%2e%2e/a",
            "%252e%252e/a",
            "a\\b",
            "a:b",
            "~a",
            "a/b/c/d",
            "a.git/b",
            "a.git/hooks",
            "a.git.git",
            "ä",
            "a'b",
            "a;b",
            "$(a)",
            "a\u{202e}b",
        ] {
            assert!(RepoName::parse(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn a_refused_name_is_shown_short_and_without_control_characters() {
        let error = RepoName::parse(&"\n\u{1b}[31m".repeat(100)).unwrap_err().to_string();
        assert!(error.len() < 1000 && !error.contains(['\n', '\u{1b}']), "{error}");
    }
}
