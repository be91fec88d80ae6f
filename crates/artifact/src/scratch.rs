//! Scratch directories: where an execution makes its files.
//!
//! Each execution gets a fresh directory, because an attempt that a shutdown gave back runs under the same number
//! again. It is deleted when the execution succeeds. After a failure it stays, so that somebody can look, and its
//! size is logged. What stays is bounded by age and by total size, oldest first.
//!
//! A directory in use is locked (`flock` on the directory itself, so there is no file that the program could remove)
//! and left alone. The lock ends with the process, however that ends; children do not inherit it. So directories of
//! dead processes are collected like failures, and several processes may share a root. Only directories named like
//! ours are touched at all.
//!
//! Bound: when [`Scratch::failed`] returns, what this process knows to be kept is within the limit. Another process
//! with the same root is seen at the next [`Root::collect`].

mod idle;
mod tree;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::idle::{Idle, Look, RANDOM_DIGITS, is_ours, lock_new, remove_below, touch, unlock, warn};
use crate::blocking;
use crate::error::{Error, Result};

/// How often a name is drawn anew when its directory exists or is taken away at once.
const NAMES_MAX: u32 = 16;

/// How much may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Directories that have not been touched for longer than this are removed; 7 days by default.
    pub age_max: Duration,
    /// The oldest directories are removed until those that stay take up no more than this; 10 GiB by default.
    pub bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { age_max: Duration::from_secs(7 * 24 * 60 * 60), bytes_max: 10 << 30 }
    }
}

/// The directory that scratch directories are made in. One per process; clones share what is known of it.
#[derive(Debug, Clone)]
pub struct Root(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    limits: Limits,
    keep_on_success: bool,
    known: Mutex<Known>,
    /// Held while directories are removed to get below the limit: one does it for all who wait.
    collecting: tokio::sync::Mutex<()>,
    /// Wakes [`Root::run`].
    over: Notify,
}

/// What is known to be kept, so that a failure need not measure all the others.
#[derive(Debug, Default)]
struct Known {
    sizes: HashMap<String, u64>,
    /// Whether directories may be there that `sizes` does not tell of.
    incomplete: bool,
}

impl Known {
    fn bytes(&self) -> u64 {
        self.sizes.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// What [`Root::collect`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Collected {
    /// How many directories were removed.
    pub removed: u64,
    /// What they took up.
    pub removed_bytes: u64,
    /// How many directories stay.
    pub kept: u64,
    /// What they take up.
    pub kept_bytes: u64,
    /// How many directories belong to an execution that is going on; neither measured nor counted as kept.
    pub in_use: u64,
}

/// The scratch directory of one execution. Dropped without an outcome it is kept like a failure.
#[derive(Debug)]
pub struct Scratch {
    root: Root,
    path: PathBuf,
    name: String,
    /// The open directory whose lock says that it is in use; absent once the outcome is known.
    lock: Option<File>,
}

/// Which sizes to trust.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sizes {
    /// Every directory is measured.
    Measured,
    /// Those measured before are taken as they were: the programs that wrote to them have ended.
    Known,
}

impl Root {
    /// A root at `path`, which is made when it is first needed. With `keep_on_success` the directories of successful
    /// executions stay as well, within the same limits.
    pub fn new(path: impl Into<PathBuf>, limits: Limits, keep_on_success: bool) -> Self {
        Self(Arc::new(Shared {
            path: path.into(),
            limits,
            keep_on_success,
            known: Mutex::new(Known { incomplete: true, ..Known::default() }),
            collecting: tokio::sync::Mutex::default(),
            over: Notify::new(),
        }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Makes a fresh directory for an execution: `{job}-{attempt}-{random}`, for this user only, its path absolute.
    pub async fn enter(&self, job: &str, attempt: u16) -> Result<Scratch> {
        let (root, prefix) = (self.clone(), format!("{job}-{attempt}"));
        if !is_ours(&format!("{prefix}-{}", "0".repeat(RANDOM_DIGITS))) {
            return Err(Error::ScratchName { job: job.to_owned() });
        }
        blocking(move || root.make(&prefix).map_err(|source| scratch_error("make", &root.0.path, source)))
            .await
    }

    /// Removes what is too old, then the oldest until the rest fits. Directories in use stay.
    pub async fn collect(&self) -> Result<Collected> {
        let _alone = self.0.collecting.lock().await;
        self.collect_alone(Sizes::Measured).await
    }

    /// Collects at once, then at every interval and whenever a directory was left behind that may not fit.
    pub async fn run(self, every: Duration, stop: CancellationToken) {
        loop {
            match self.collect().await {
                Ok(done) if done.removed > 0 => {
                    tracing::info!(
                        removed = done.removed,
                        removed_bytes = done.removed_bytes,
                        kept = done.kept,
                        kept_bytes = done.kept_bytes,
                        "old scratch directories were removed"
                    );
                }
                Ok(_) => {}
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "scratch directories could not be collected");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
                () = self.0.over.notified() => {}
            }
        }
    }

    fn make(&self, prefix: &str) -> io::Result<Scratch> {
        let root = std::path::absolute(&self.0.path)?;
        std::fs::create_dir_all(&root)?;
        for _ in 0..NAMES_MAX {
            let random = rand::random::<u64>() & ((1 << (4 * RANDOM_DIGITS)) - 1);
            let name = format!("{prefix}-{random:0RANDOM_DIGITS$x}");
            let path = root.join(&name);
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            if let Some(lock) = lock_new(&path)? {
                return Ok(Scratch { root: self.clone(), path, name, lock: Some(lock) });
            }
        }
        Err(io::Error::other("every directory made was taken away at once"))
    }

    /// Needs `collecting`.
    async fn collect_alone(&self, sizes: Sizes) -> Result<Collected> {
        let root = self.clone();
        blocking(move || {
            root.collect_now(sizes).map_err(|source| {
                root.known().incomplete = true;
                scratch_error("collect", &root.0.path, source)
            })
        })
        .await
    }

    fn collect_now(&self, sizes: Sizes) -> io::Result<Collected> {
        let root = match File::open(&self.0.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                *self.known() = Known::default();
                return Ok(Collected::default());
            }
            opened => opened?,
        };
        // What is left behind or noted from here on may be missing in the listing, and stays known.
        let before = {
            let mut known = self.known();
            known.incomplete = false;
            known.sizes.clone()
        };
        let mut done = Collected::default();
        let mut idle = Vec::new();
        for name in self.names()? {
            let trusted = before.get(&name).copied().filter(|_| sizes == Sizes::Known);
            match Idle::look(&root, &name, trusted) {
                Ok(Look::Idle(dir)) => idle.push(dir),
                Ok(Look::InUse) => done.in_use += 1,
                Ok(Look::Gone) => {}
                Err(error) => warn("looked at", &self.0.path.join(&name), &error),
            }
        }
        let kept = self.remove_excess(&root, idle, &mut done);
        let mut known = self.known();
        known.sizes.retain(|name, _| !before.contains_key(name));
        known.sizes.extend(kept);
        Ok(done)
    }

    /// Gives the sizes of those that stay.
    fn remove_excess(&self, root: &File, mut idle: Vec<Idle>, done: &mut Collected) -> Vec<(String, u64)> {
        idle.sort_by(|a, b| (a.touched, &a.name).cmp(&(b.touched, &b.name)));
        let mut bytes = idle.iter().fold(0_u64, |sum, dir| sum.saturating_add(dir.bytes));
        let now = SystemTime::from(stargate_base::clock::wall());
        let mut kept = Vec::new();
        for dir in idle {
            let age = now.duration_since(dir.touched).unwrap_or_default();
            let excess = age > self.0.limits.age_max || bytes > self.0.limits.bytes_max;
            if excess && dir.remove(root, &self.0.path) {
                bytes = bytes.saturating_sub(dir.bytes);
                done.removed += 1;
                done.removed_bytes = done.removed_bytes.saturating_add(dir.bytes);
            } else {
                done.kept += 1;
                done.kept_bytes = done.kept_bytes.saturating_add(dir.bytes);
                kept.push((dir.name, dir.bytes));
            }
        }
        kept
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.0.path)? {
            let entry = entry?;
            if let Some(name) = entry.file_name().to_str().filter(|name| is_ours(name))
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Notes a directory that stays, and makes room if that is too much. The directory must be unlocked by now.
    async fn keep(&self, name: String, bytes: u64) {
        if !self.note(name, bytes) {
            return;
        }
        let _alone = self.0.collecting.lock().await;
        // Whoever was here before may have made room for us too.
        if self.is_over()
            && let Err(error) = self.collect_alone(Sizes::Known).await
        {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "scratch directories could not be collected");
        }
    }

    /// Whether there is too much now.
    fn note(&self, name: String, bytes: u64) -> bool {
        self.known().sizes.insert(name, bytes);
        self.is_over()
    }

    fn is_over(&self) -> bool {
        let known = self.known();
        known.incomplete || known.bytes() > self.0.limits.bytes_max
    }

    /// A directory of unknown size stays.
    fn left_behind(&self) {
        self.known().incomplete = true;
        self.0.over.notify_one();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scratch {
    /// Where the execution may write.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The execution succeeded: the directory goes, unless successes are to be kept. The work is done and does not
    /// fail for a leftover: that is logged, and collected later.
    pub async fn succeeded(mut self) {
        if self.root.0.keep_on_success {
            self.leave("kept").await;
            return;
        }
        let Some(lock) = self.lock.take() else { return };
        let (root, path, name) = (self.root.clone(), self.path.clone(), self.name.clone());
        let removed = tokio::task::spawn_blocking(move || {
            let removed = remove_below(&path, &name);
            unlock(&lock);
            if let Err(error) = &removed {
                warn("removed", &path, error);
            }
            removed.is_ok()
        });
        if !removed.await.unwrap_or(false) {
            root.left_behind();
        }
    }

    /// The execution failed: the directory stays, as long as there is room. Gives the bytes it takes up.
    pub async fn failed(self) -> u64 {
        self.leave("failed").await
    }

    async fn leave(mut self, outcome: &'static str) -> u64 {
        let Some(lock) = self.lock.take() else { return 0 };
        let path = self.path.clone();
        let measured = tokio::task::spawn_blocking(move || {
            let measured = tree::measure(&lock);
            touch(&lock);
            unlock(&lock);
            measured
        });
        match measured.await.map_err(io::Error::other).flatten() {
            Ok(bytes) => {
                tracing::info!(path = %path.display(), bytes, outcome, "a scratch directory is kept");
                self.root.keep(self.name.clone(), bytes).await;
                bytes
            }
            Err(error) => {
                warn("measured", &path, &error);
                self.root.left_behind();
                0
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(lock) = self.lock.take() else { return };
        touch(&lock);
        unlock(&lock);
        tracing::info!(path = %self.path.display(), "a scratch directory is left behind by an execution that was ended");
        self.root.left_behind();
    }
}

fn scratch_error(what: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Scratch { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
