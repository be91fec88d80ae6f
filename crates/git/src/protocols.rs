//! Which transports git may use.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// What may be listed. `ext` and other helpers, which run programs, are not among them.
const KNOWN: [&str; 5] = ["https", "ssh", "http", "git", "file"];

/// The transports that git may use: `https` and `ssh` unless told otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocols(BTreeSet<&'static str>);

impl Protocols {
    /// Reads names separated by commas, as in `mirror.protocols`.
    pub fn parse(list: &str) -> Result<Self> {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        let known = |name: &str| KNOWN.into_iter().find(|known| *known == name);
        let names: BTreeSet<&'static str> = names
            .map(|name| {
                known(name).ok_or_else(|| {
                    let problem = format!("{name:?} is not one of {}", KNOWN.join(", "));
                    Error::invalid("mirror.protocols", problem)
                })
            })
            .collect::<Result<_>>()?;
        if names.is_empty() {
            return Err(Error::invalid("mirror.protocols", "lists no transport"));
        }
        Ok(Self(names))
    }

    /// For `GIT_ALLOW_PROTOCOL`.
    pub(crate) fn allowed(&self) -> String {
        self.0.iter().copied().collect::<Vec<_>>().join(":")
    }
}

impl Default for Protocols {
    fn default() -> Self {
        Self(BTreeSet::from(["https", "ssh"]))
    }
}

impl fmt::Display for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.allowed().replace(':', ","))
    }
}

impl FromStr for Protocols {
    type Err = Error;

    fn from_str(list: &str) -> Result<Self> {
        Self::parse(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_paths_and_programs_are_not_allowed_unless_listed() {
        assert_eq!(Protocols::default().allowed(), "https:ssh");
        assert_eq!(Protocols::parse("ssh, file").unwrap().allowed(), "file:ssh");
        for bad in ["", ",", "ext", "https:ssh", "fd", "https;file"] {
            assert!(Protocols::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
