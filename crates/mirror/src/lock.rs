//! The lock of whoever pushes: one per repository. The kernel gives it free when the process dies.
//!
//! It does not when the process is merely stopped. The lock therefore says in which term its owner led, and the leader of
//! a later term may take it over: a new file takes the place of the old one, with its own lock. Who was overtaken sees
//! that before its next push or write ([`WorkerLock::is_ours`]); what it had under way then cannot harm, because the
//! remote compares ([`permit`](crate::permit)) and every step may be repeated.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stargate_base::Holder;
use stargate_base::clock::{self, Moment};

use crate::error::{Error, Result};
use crate::files::{Files, is_at};
use crate::lines::lock_within;

const NAME: &str = "worker.lock";
/// Held by whoever takes the lock over, for a moment.
const TURN: &str = "worker.lock.turn";
/// The most that is read of what the holder says about itself.
const ABOUT_BYTES_MAX: u64 = 512;

/// Who wants the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The name of this node, for others.
    pub instance: &'a str,
    /// The term in which it leads, if it does.
    pub epoch: Option<u64>,
    /// Whether to take the lock from somebody of an earlier term.
    pub take_over: bool,
}

/// What the file says about its owner.
#[derive(Debug, Serialize, Deserialize)]
struct About {
    pid: u32,
    #[serde(default)]
    instance: String,
    #[serde(default)]
    since: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
}

/// Held for as long as this lives, or until the leader of a later term takes it over.
#[derive(Debug)]
pub struct WorkerLock {
    file: File,
    path: PathBuf,
}

impl WorkerLock {
    /// Takes the lock, or says who has it. `instance` names this node to others.
    pub fn acquire(repo: &Path, instance: &str) -> Result<Self> {
        Self::claim(repo, Claim { instance, epoch: None, take_over: false })
    }

    /// The same for the leader of a term.
    pub fn claim(repo: &Path, claim: Claim<'_>) -> Result<Self> {
        let files = Files::open(repo)?;
        let path = files.path(NAME);
        // Of two that would take it over, the second sees what the first did.
        let turn = claim.take_over.then(|| files.open_write(TURN)).transpose()?;
        if let Some(turn) = &turn {
            lock_within(turn, Moment::now()).map_err(Error::io("lock", &files.path(TURN)))?;
        }
        let mut file = files.open_write(NAME)?;
        match file.try_lock() {
            Ok(()) => introduce(&mut file, &path, claim),
            Err(TryLockError::WouldBlock) => {
                let said = read(&mut file);
                let earlier = is_earlier(epoch_of(&said), claim.epoch);
                let holder = format!("{}, {}", Holder::of(&file), words(&said));
                if !(earlier && claim.take_over) {
                    return Err(Error::Locked { path, holder, earlier });
                }
                tracing::warn!(path = %path.display(), holder, "the lock of an earlier leader is taken over");
                file = files.replace_locked(NAME, &about(claim))?;
            }
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path)(error)),
        }
        let lock = Self { file, path };
        // Somebody who replaces or removes the file makes room for a second lock.
        if !lock.is_ours() {
            let holder = "the file was replaced meanwhile".to_owned();
            return Err(Error::Locked { path: lock.path.clone(), holder, earlier: false });
        }
        files.sweep()?;
        Ok(lock)
    }

    /// Whether nobody has taken it over. What cannot be found out is a no.
    pub fn is_ours(&self) -> bool {
        is_at(&self.file, &self.path).unwrap_or(false)
    }

    /// Fails if somebody has taken it over.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(Error::NotLeader) }
    }
}

impl Drop for WorkerLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that was just forked has it open too, until it becomes another program.
        let _ = self.file.unlock();
    }
}

/// Whether somebody of the one term has to give way to somebody of the other.
fn is_earlier(theirs: Option<u64>, ours: Option<u64>) -> bool {
    matches!((theirs, ours), (Some(theirs), Some(ours)) if theirs < ours)
}

fn about(claim: Claim<'_>) -> Vec<u8> {
    let about = About {
        pid: std::process::id(),
        instance: claim.instance.to_owned(),
        since: clock::wall().to_string(),
        epoch: claim.epoch,
    };
    let mut line = serde_json::to_vec(&about).unwrap_or_default();
    line.push(b'\n');
    line
}

fn introduce(file: &mut File, path: &Path, claim: Claim<'_>) {
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(&about(claim)));
    // On a full disk the lock is as good, only nameless.
    if let Err(error) = written {
        tracing::warn!(path = %path.display(), %error, "cannot write who has the lock");
    }
}

fn read(file: &mut File) -> String {
    let mut text = String::new();
    match file.rewind().and_then(|()| file.take(ABOUT_BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => text.trim().to_owned(),
        Err(_) => String::new(),
    }
}

fn epoch_of(said: &str) -> Option<u64> {
    serde_json::from_str::<About>(said).ok()?.epoch
}

/// What the holder says, in words.
fn words(said: &str) -> String {
    let Ok(About { instance, since, epoch, .. }) = serde_json::from_str::<About>(said) else {
        return "which does not say who it is".to_owned();
    };
    let term = epoch.map(|epoch| format!(", leader of epoch {epoch}")).unwrap_or_default();
    format!("of {instance}{term}, since {since}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(epoch: Option<u64>, take_over: bool) -> Claim<'static> {
        Claim { instance: "node", epoch, take_over }
    }

    #[test]
    fn only_the_leader_of_a_later_term_takes_a_lock_over_and_the_other_notices() {
        let repo = tempfile::tempdir().unwrap();
        let first = WorkerLock::claim(repo.path(), claim(Some(4), false)).unwrap();
        for (epoch, take_over, expected) in
            [(None, true, false), (Some(3), true, false), (Some(4), true, false), (Some(5), false, true)]
        {
            match WorkerLock::claim(repo.path(), claim(epoch, take_over)) {
                Err(Error::Locked { earlier, holder, .. }) => {
                    assert_eq!(earlier, expected, "{epoch:?}");
                    assert!(holder.contains("of node, leader of epoch 4, since "), "{holder}");
                }
                other => panic!("{epoch:?}: {other:?}"),
            }
        }
        assert!(first.is_ours());
        let second = WorkerLock::claim(repo.path(), claim(Some(5), true)).unwrap();
        assert!(second.is_ours() && !first.is_ours());
        assert!(matches!(first.check(), Err(Error::NotLeader)));
        // The end of the one that was overtaken frees nothing.
        drop(first);
        assert!(WorkerLock::claim(repo.path(), claim(Some(5), true)).is_err());
        drop(second);
        WorkerLock::acquire(repo.path(), "node").unwrap();
    }

    #[test]
    fn a_lock_without_a_term_is_never_taken_over() {
        let repo = tempfile::tempdir().unwrap();
        let _held = WorkerLock::acquire(repo.path(), "a").unwrap();
        let error = WorkerLock::claim(repo.path(), claim(Some(9), true)).unwrap_err();
        assert!(matches!(&error, Error::Locked { earlier: false, .. }), "{error}");
        assert!(error.to_string().contains(&format!("process {} (", std::process::id())), "{error}");
    }
}
