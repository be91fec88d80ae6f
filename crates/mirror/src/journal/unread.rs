//! Bounds a journal that nobody reads: that of a repository without a mirror, whose hooks write all the same.
//!
//! A mirror that is added later misses nothing: before it reads its first line it compares all refs with the remote, and
//! what the remote does not have gets an entry (see [`reconcile`](crate::reconcile)).

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stargate_base::clock;

use super::{Journal, Segment};
use crate::checkpoint::{Checkpoint, Loaded};
use crate::error::{Error, Result};
use crate::lock::WorkerLock;

/// The size from which a segment counts as full where nobody reads.
pub const UNREAD_SEGMENT_BYTES: u64 = 1 << 20;
/// What is kept of such a journal, beside the segment that is written and the last full one.
pub const UNREAD_BYTES_MAX: u64 = 16 << 20;

/// Removes old segments of a journal that nobody has read for `age`: those last written before that, and the oldest of
/// more than [`UNREAD_BYTES_MAX`]. Answers their numbers.
///
/// Nothing happens while somebody works on the repository.
pub fn trim_unread(repo: &Path, instance: &str, age: Duration) -> Result<Vec<u64>> {
    // A worker that starts now waits for its lock until this is done.
    let _lock = match WorkerLock::acquire(repo, instance) {
        Ok(lock) => lock,
        Err(Error::Locked { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let age = SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX);
    let before = clock::wall().saturating_sub(age).unwrap_or(Timestamp::MIN);
    if was_read_since(repo, before)? {
        return Ok(Vec::new());
    }
    let journal = Journal::open_with(repo, UNREAD_SEGMENT_BYTES)?;
    if journal.segments()?.last().is_some_and(|segment| !segment.full) {
        // Puts a full one away.
        drop(journal.lines.turn()?);
    }
    let mut written = Vec::new();
    for segment in journal.segments()?.into_iter().filter(|segment| segment.full) {
        let found = std::fs::symlink_metadata(&segment.path).map_err(Error::io("look at", &segment.path))?;
        written.push((segment, Timestamp::from_second(found.mtime()).unwrap_or(Timestamp::MAX)));
    }
    let numbers = expendable(&written, before);
    for number in &numbers {
        journal.files.remove(&journal.lines.rotated(*number))?;
    }
    Ok(numbers)
}

/// Whether a worker has got further in the journal since then.
fn was_read_since(repo: &Path, before: Timestamp) -> Result<bool> {
    Ok(match Checkpoint::load(repo)? {
        Loaded::Found(checkpoint) => checkpoint.at >= before,
        Loaded::Absent | Loaded::Unreadable => false,
    })
}

/// Which full segments may go, of all of them, oldest first, each with the time it was written last. Never the last one:
/// the number of the next is taken from it.
fn expendable(full: &[(Segment, Timestamp)], before: Timestamp) -> Vec<u64> {
    let mut kept = 0_u64;
    let mut numbers = Vec::new();
    for (segment, written) in full.iter().rev().skip(1) {
        kept = kept.saturating_add(segment.bytes);
        // From there on all older ones go too: what is left has no holes.
        if *written < before || kept > UNREAD_BYTES_MAX || !numbers.is_empty() {
            numbers.push(segment.number);
        }
    }
    numbers.reverse();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u64, bytes: u64, written: i64) -> (Segment, Timestamp) {
        let segment = Segment { number, path: "x".into(), bytes, full: true };
        (segment, Timestamp::from_second(written).unwrap())
    }

    #[test]
    fn old_segments_and_the_oldest_of_too_many_bytes_may_go_but_never_the_last() {
        let before = Timestamp::from_second(100).unwrap();
        let small = |number, written| segment(number, 10, written);
        assert!(expendable(&[], before).is_empty());
        assert!(expendable(&[small(1, 1)], before).is_empty());
        assert_eq!(expendable(&[small(1, 1), small(2, 200)], before), [1]);
        assert!(expendable(&[small(1, 150), small(2, 200), small(3, 300)], before).is_empty());
        // A clock that was set back makes no hole.
        assert_eq!(expendable(&[small(1, 150), small(2, 1), small(3, 300)], before), [1, 2]);
        let large = |number| segment(number, UNREAD_BYTES_MAX / 2, 200);
        assert_eq!(expendable(&[large(4), large(5), large(6), large(7)], before), [4]);
    }
}
