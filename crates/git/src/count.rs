//! How large a repository is.

use crate::error::{Error, Result};
use crate::git::Git;
use crate::repo::RepoDir;

/// What `git count-objects` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectCount {
    /// Objects in files of their own.
    pub loose: u64,
    /// Objects in packs.
    pub packed: u64,
    /// Packs.
    pub packs: u64,
    /// What all of it takes up on disk, garbage included, in steps of 1024.
    pub bytes: u64,
}

impl Git {
    /// Counts the objects of a repository and what they take up.
    pub async fn count_objects(&self, repo: &RepoDir) -> Result<ObjectCount> {
        let answer = self.local("count-objects", Some(repo), ["count-objects", "-v"]).await?;
        parse(&String::from_utf8_lossy(&answer.stdout))
    }
}

fn parse(text: &str) -> Result<ObjectCount> {
    let mut count = ObjectCount::default();
    for line in text.lines() {
        let unreadable = || Error::Unreadable { operation: "count-objects", line: line.to_owned() };
        let (name, value) = line.split_once(": ").ok_or_else(unreadable)?;
        let number = || value.parse::<u64>().map_err(|_| unreadable());
        match name {
            "count" => count.loose = number()?,
            "in-pack" => count.packed = number()?,
            "packs" => count.packs = number()?,
            "size" | "size-pack" | "size-garbage" => {
                count.bytes = count.bytes.saturating_add(number()?.saturating_mul(1024));
            }
            _ => {}
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_counts_is_read() {
        let text = "count: 2\nsize: 8\nin-pack: 10\npacks: 1\nsize-pack: 3\nprune-packable: 0\ngarbage: 0\nsize-garbage: 1\n";
        let count = parse(text).unwrap();
        assert_eq!(count, ObjectCount { loose: 2, packed: 10, packs: 1, bytes: 12 << 10 });
        assert!(parse("count: many\n").is_err());
    }
}
