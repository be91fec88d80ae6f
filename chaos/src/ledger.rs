//! What was asked of the product and what it acknowledged, in a file that the product knows nothing of.
//!
//! A line is on disk before the caller counts the thing as acknowledged. So the file never has less than what a user
//! was told, and the checker reads nothing else about it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Line {
    /// A job will be asked for. What becomes of the request is not known yet.
    Asked {
        /// In the payload of the job, and of no other.
        mark: String,
        /// What it is to do, which decides how it has to end.
        kind: String,
    },
    /// A job was acknowledged.
    Job {
        /// Its mark.
        mark: String,
        /// Its number.
        id: i64,
        /// How it was asked for: `http`, `cli` or `sql`.
        via: String,
        /// Who answered, if it was a node.
        answer: Option<Answer>,
    },
    /// A push was acknowledged.
    Push {
        /// The branch.
        branch: String,
        /// The commit.
        oid: String,
        /// Who took it.
        answer: Answer,
    },
}

impl Line {
    /// The mark of a job that was acknowledged.
    pub(crate) fn job(&self) -> Option<&str> {
        match self {
            Self::Job { mark, .. } => Some(mark),
            Self::Asked { .. } | Self::Push { .. } => None,
        }
    }
}

/// The answer of a node; instants in microseconds, by the machine's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// Its instance name.
    pub(crate) node: String,
    /// Before the request was sent.
    pub(crate) sent: i64,
    /// After the answer was there.
    pub(crate) answered: i64,
    /// The same was asked before, without an answer: that may still be under way.
    pub(crate) again: bool,
}

/// Now, in microseconds by the machine's clock, which nobody steps.
pub(crate) fn now_micros() -> Result<i64> {
    #[expect(clippy::disallowed_methods, reason = "a witness with a clock of its own")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(i64::try_from(now.as_micros())?)
}

/// The file.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: Mutex<File>,
}

impl Ledger {
    /// A new one.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Writes a line; when this is done, it is on disk.
    pub(crate) fn write(&self, line: &Line) -> Result<()> {
        let text = serde_json::to_string(line).context("a line is JSON")?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(format!("{text}\n").as_bytes()).context("cannot write the ledger")?;
        file.sync_data().context("cannot sync the ledger")
    }
}

/// All lines of a ledger.
pub(crate) fn read(path: &Path) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let line = |line| serde_json::from_str(line).with_context(|| format!("not a line of a ledger: {line}"));
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let ledger = Ledger::create(&path).unwrap();
        let lines = [
            Line::Asked { mark: "m".to_owned(), kind: "step".to_owned() },
            Line::Push {
                branch: "b".to_owned(),
                oid: "0".repeat(40),
                answer: Answer { node: "a1".to_owned(), sent: 1, answered: 2, again: false },
            },
        ];
        for line in &lines {
            ledger.write(line).unwrap();
        }
        assert_eq!(read(&path).unwrap(), lines);
        assert!(Ledger::create(&path).is_err(), "another run would write over it");
    }
}
