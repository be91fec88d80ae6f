//! Names that reach git's command line: refs, patterns of refs, remotes. What is wrong never gets there.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name of a ref. git's own limit is that of the file system, less what it adds.
pub const REF_BYTES_MAX: usize = 1024;
/// The longest part of a ref between slashes: a file name, less `.lock`.
pub const REF_PART_BYTES_MAX: usize = 250;
/// The longest name of a remote.
pub const REMOTE_BYTES_MAX: usize = 128;

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {name:?}: {problem}")]
pub struct BadName {
    what: &'static str,
    /// Shortened, so that an error stays readable.
    name: String,
    problem: &'static str,
}

impl BadName {
    fn new(what: &'static str, name: &str, problem: &'static str) -> Self {
        Self { what, name: name.chars().take(80).collect(), problem }
    }
}

/// The full name of a ref (`refs/…`), well formed as `git check-ref-format` has it, and printable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RefName(Box<str>);

impl RefName {
    /// Checks a name.
    pub fn parse(name: &str) -> Result<Self, BadName> {
        match ref_problem(name) {
            Some(problem) => Err(BadName::new("ref", name, problem)),
            None => Ok(Self(name.into())),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What comes after the last slash.
    pub fn last_part(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

fn ref_problem(name: &str) -> Option<&'static str> {
    let rest = match name.strip_prefix("refs/") {
        Some(rest) if !rest.is_empty() => rest,
        _ => return Some("must begin with refs/ and go on after it"),
    };
    if name.len() > REF_BYTES_MAX {
        return Some("is longer than 1024 bytes");
    }
    if name.chars().any(char::is_control) {
        return Some("contains a control character");
    }
    if name.contains([' ', '~', '^', ':', '?', '*', '[', '\\', '\u{FFFD}']) {
        return Some("contains a space or one of ~ ^ : ? * [ \\");
    }
    if name.contains("..") || name.contains("@{") {
        return Some("contains .. or @{");
    }
    rest.split('/').find_map(part_problem)
}

fn part_problem(part: &str) -> Option<&'static str> {
    if part.is_empty() {
        Some("has an empty part: a slash too many")
    } else if part.starts_with('.') {
        Some("has a part that begins with a dot")
    } else if part.ends_with('.') || part.ends_with(".lock") {
        Some("has a part that ends with a dot or .lock")
    } else if part.len() > REF_PART_BYTES_MAX {
        Some("has a part of more than 250 bytes")
    } else {
        None
    }
}

/// A set of refs: one name, or all that begin with `refs/…/` (written `refs/…/*`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RefPattern {
    text: Box<str>,
    /// Whether the text ended with a star, which is not kept in `text`.
    prefix: bool,
}

impl RefPattern {
    /// Checks a pattern. A star may only stand at the end, after a slash.
    pub fn parse(pattern: &str) -> Result<Self, BadName> {
        let bad = |problem| Err(BadName::new("ref pattern", pattern, problem));
        let (text, prefix) = match pattern.strip_suffix("/*") {
            Some(folder) => (format!("{folder}/"), true),
            None => (pattern.to_owned(), false),
        };
        let probe = if prefix { format!("{text}x") } else { text.clone() };
        match ref_problem(&probe) {
            Some(_) if pattern == "refs/*" => Ok(Self { text: text.into(), prefix }),
            Some(problem) => bad(problem),
            None => Ok(Self { text: text.into(), prefix }),
        }
    }

    /// Whether a ref belongs to it.
    pub fn matches(&self, name: &RefName) -> bool {
        self.rest_of(name).is_some()
    }

    /// What the star stands for in a name that matches; empty for a pattern without one.
    pub fn rest_of<'a>(&self, name: &'a RefName) -> Option<&'a str> {
        if self.prefix {
            name.as_str().strip_prefix(&*self.text).filter(|rest| !rest.is_empty())
        } else {
            (name.as_str() == &*self.text).then_some("")
        }
    }

    /// The name with `rest` in the place of the star.
    pub fn fill(&self, rest: &str) -> Result<RefName, BadName> {
        if self.prefix { RefName::parse(&format!("{}{rest}", self.text)) } else { RefName::parse(&self.text) }
    }

    /// Whether it ends with a star.
    pub fn has_star(&self) -> bool {
        self.prefix
    }

    /// What every matching name begins with; `for-each-ref` takes it as a pattern of its own.
    pub fn folder(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for RefPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.prefix { "*" } else { "" })
    }
}

/// The name of a configured remote, never a URL or an option.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RemoteName(Box<str>);

impl RemoteName {
    /// Checks a name: letters, digits, `.`, `_` and `-`, beginning with a letter or a digit.
    pub fn parse(name: &str) -> Result<Self, BadName> {
        let bad = |problem| Err(BadName::new("remote", name, problem));
        if name.is_empty() || name.len() > REMOTE_BYTES_MAX {
            return bad("has no characters, or more than 128");
        }
        if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return bad("must begin with a letter or a digit");
        }
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')) {
            return bad("may contain letters, digits, . _ and - only; it is a name, not a URL");
        }
        if name.contains("..") || name.ends_with('.') || name.ends_with(".lock") {
            return bad("contains .. or ends with a dot or .lock");
        }
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text_like {
    ($($name:ident),*) => {$(
        impl FromStr for $name {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, BadName> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;

            fn try_from(text: String) -> Result<Self, BadName> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.to_string()
            }
        }
    )*};
}

text_like!(RefName, RefPattern, RemoteName);

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for RemoteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_or_a_terminal_would_stumble_over_are_refused() {
        for name in ["refs/kv/main", "refs/kv-chunks/main@2025Q1", "refs/heads/ä/b.c", "refs/x"] {
            assert_eq!(RefName::parse(name).unwrap().as_str(), name);
        }
        for name in [
            "",
            "refs/",
            "main",
            "HEAD",
            "+refs/kv/x",
            "refs/kv/",
            "refs//kv",
            "refs/kv/.x",
            "refs/kv/x.lock",
            "refs/kv/x.lock/y",
            "refs/kv/x.",
            "refs/kv/a..b",
            "refs/kv/a@{1}",
            "refs/kv/a b",
            "refs/kv/a:b",
            "refs/kv/*",
            "refs/kv/a\nb",
            "refs/kv/a\u{85}b",
            "--receive-pack=touch F; git-receive-pack",
            "refs/kv/../heads/main",
        ] {
            assert!(RefName::parse(name).is_err(), "{name:?} was accepted");
        }
        assert!(RefName::parse(&format!("refs/{}", "a/".repeat(600))).is_err());
        assert!(RefName::parse(&format!("refs/{}", "a".repeat(251))).is_err());
    }

    #[test]
    fn an_error_names_what_is_wrong_and_stays_short() {
        let error = RefName::parse(&format!("refs/kv/a b{}", "x".repeat(900))).unwrap_err().to_string();
        assert!(error.contains("contains a space") && error.len() < 200, "{error}");
    }

    #[test]
    fn a_pattern_matches_below_its_folder_and_maps_what_the_star_stands_for() {
        let from = RefPattern::parse("refs/_blog/*").unwrap();
        let to = RefPattern::parse("refs/heads/_mirror/*").unwrap();
        let name = RefName::parse("refs/_blog/2025/x").unwrap();
        assert_eq!(to.fill(from.rest_of(&name).unwrap()).unwrap().as_str(), "refs/heads/_mirror/2025/x");
        assert!(!from.matches(&RefName::parse("refs/_blogs/x").unwrap()));
        assert!(RefPattern::parse("refs/*").unwrap().matches(&name));
        let one = RefPattern::parse("refs/heads/main").unwrap();
        assert!(one.matches(&RefName::parse("refs/heads/main").unwrap()) && !one.matches(&name));
        for bad in ["*", "refs/kv*", "refs/*/x", "refs/kv/**", "heads/*", "+refs/kv/*", ""] {
            assert!(RefPattern::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn a_remote_is_a_name_and_nothing_else() {
        assert!(RemoteName::parse("github-origin").is_ok());
        for bad in ["", "-x", "ext::sh -c x", "https://h/x", "a b", "a/b", "..", "a..b", "x.lock", "--all"] {
            assert!(RemoteName::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
