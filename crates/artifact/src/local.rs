//! Artifacts in a folder.
//!
//! The file is written under a temporary name in `.partial/`, read back, synced, and renamed. So a reader at the final
//! key sees nothing, or a complete artifact, whenever a process dies. All of the root is one file system.
//!
//! Publishing goes in rounds. What lies at the key is looked at, however long that takes; the [`Permit`] is asked; then,
//! under a lock that ends with the process that holds it, the rename is made if nothing has changed since the look and
//! the answer is fresh. If not, the next round begins. So looking and renaming is one step among live processes, the
//! lock is never held while somebody else has to answer, and a pause anywhere before the rename makes it ask again.
//! Where nothing lies the rename refuses to replace, so not even a process without the lock is overwritten; only what
//! is damaged is replaced.
//!
//! [`Permit`]: crate::Permit

mod draft;
mod partial;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use stargate_base::durable;
use tokio::time::Instant;

use self::draft::{Draft, sum};
use self::partial::{Held, Lock, Partial};
use crate::blocking;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::manifest::{self, Manifest};
use crate::permit::Permission;
use crate::{Artifacts, Found, Published, Publisher, Step};

/// How long another publication of the same job may hold the lock. It only renames files.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// How often a lock that is held is tried again.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// How often a publication looks and asks again because something changed, or took too long, in between.
const ROUNDS_MAX: u32 = 5;

/// Artifacts in a folder.
#[derive(Debug, Clone)]
pub struct Local {
    root: PathBuf,
    lock_patience: Duration,
}

impl Local {
    /// Artifacts below `root`, which is made when it is first needed.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), lock_patience: LOCK_PATIENCE }
    }

    /// Waits for another publication of the same job at most so long.
    pub fn with_lock_patience(mut self, lock_patience: Duration) -> Self {
        self.lock_patience = lock_patience;
        self
    }

    /// Where an artifact is.
    pub fn path(&self, key: &Key) -> PathBuf {
        self.root.join(key.as_str())
    }

    fn places(&self, key: &Key) -> Places {
        let artifact = self.path(key);
        let dir = artifact.parent().unwrap_or(&self.root).to_owned();
        let (manifest, partial) = (self.root.join(key.manifest()), Partial::below(&self.root));
        Places { key: key.clone(), dir, manifest, artifact, partial }
    }

    async fn lock(&self, places: &Places, attempt: &str) -> Result<Lock> {
        let begin = Instant::now();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let holder = format!("attempt {attempt} in process {} on {host}", std::process::id());
        loop {
            let (places, holder) = (places.clone(), holder.clone());
            match blocking(move || places.partial.lock(&places.key, &holder)).await? {
                Ok(lock) => return Ok(lock),
                Err(Held { path, holder }) if begin.elapsed() >= self.lock_patience => {
                    return Err(Error::Busy { path, holder });
                }
                Err(_) => tokio::time::sleep(LOCK_INTERVAL).await,
            }
        }
    }

    /// Makes the draft the artifact and gives the lock that it is under, or the valid artifact that is there.
    async fn place(
        &self,
        places: &Places,
        mut draft: Draft,
        by: &Publisher<'_>,
    ) -> Result<std::result::Result<Lock, Manifest>> {
        let mut why = Not::Changed;
        for round in 0..ROUNDS_MAX {
            let looking = places.clone();
            let looked = match blocking(move || looking.look()).await? {
                Ok(looked) => looked,
                Err(valid) => return Ok(Err(valid)),
            };
            let permission = Permission::ask(by, round).await?;
            let lock = self.lock(places, by.attempt).await?;
            // The lock goes where the work is: work goes on when this future is dropped.
            let moving = places.clone();
            match blocking(move || moving.put(draft, &looked, permission, lock)).await? {
                Put::Moved(lock) => return Ok(Ok(lock)),
                Put::Not(kept, not) => (draft, why) = (kept, not),
            }
        }
        let place = self.location(&places.key);
        Err(match why {
            Not::Fresh => Error::Unsure { place },
            Not::Changed => {
                Error::Store { what: "write", place, source: "others write to it all the time".into() }
            }
        })
    }
}

#[async_trait]
impl Artifacts for Local {
    async fn find(&self, key: &Key) -> Result<Found> {
        let places = self.places(key);
        blocking(move || places.find()).await
    }

    async fn publish(&self, key: &Key, file: &Path, by: Publisher<'_>) -> Result<Published> {
        by.check()?;
        by.steps.reached(Step::Begun);
        if let Found::Valid(manifest) = self.find(key).await? {
            return Ok(Published::Adopted(manifest));
        }
        let places = self.places(key);

        let (source, begun) = (file.to_owned(), places.clone());
        let attempt = by.attempt.to_owned();
        let draft = blocking(move || begun.begin(&source, &attempt)).await?;
        by.steps.reached(Step::HalfWritten);
        let draft = blocking(move || draft.finish()).await?;
        by.steps.reached(Step::Written);
        let draft = blocking(move || draft.sync()).await?;
        by.steps.reached(Step::Synced);

        let manifest = Manifest::by(&by, key, draft.sum.clone());
        let lock = match self.place(&places, draft, &by).await? {
            Ok(lock) => lock,
            Err(there) => return Ok(Published::Adopted(there)),
        };
        by.steps.reached(Step::Moved);
        let json = manifest.to_json();
        blocking(move || places.describe(&json, lock)).await?;
        by.steps.reached(Step::Described);
        Ok(Published::Stored(manifest))
    }

    async fn sweep(&self, age: Duration) -> Result<u64> {
        let partial = Partial::below(&self.root);
        blocking(move || partial.sweep(age)).await
    }

    async fn check(&self) -> Result<()> {
        let root = self.root.clone();
        blocking(move || check(&root)).await
    }

    fn location(&self, key: &Key) -> String {
        self.path(key).display().to_string()
    }
}

/// Where the parts of an artifact lie.
#[derive(Debug, Clone)]
struct Places {
    key: Key,
    dir: PathBuf,
    artifact: PathBuf,
    manifest: PathBuf,
    partial: Partial,
}

/// What lay at a key that holds no valid artifact.
struct Looked {
    /// What is wrong with it; absent if nothing is there.
    wrong: Option<String>,
    stamps: Stamps,
}

/// Tells whether the artifact and its manifest are the files they were.
type Stamps = [Option<Stamp>; 2];

#[derive(PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

enum Put {
    Moved(Lock),
    Not(Draft, Not),
}

/// Why a draft was not moved.
enum Not {
    /// Something else is there than before.
    Changed,
    /// The permission is too old.
    Fresh,
}

impl Places {
    fn find(&self) -> Result<Found> {
        let mut artifact = match File::open(&self.artifact) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Absent),
            opened => opened.map_err(|error| Error::file("read", &self.artifact, error))?,
        };
        if !artifact.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Ok(Found::Damaged("it is not a file".to_owned()));
        }
        let manifest = match self.read_manifest()? {
            Ok(manifest) => manifest,
            Err(wrong) => return Ok(Found::Damaged(wrong)),
        };
        let sum = sum(&mut artifact).map_err(|error| Error::file("read", &self.artifact, error))?;
        Ok(match manifest.judge(&sum) {
            Ok(()) => Found::Valid(manifest),
            Err(wrong) => Found::Damaged(wrong),
        })
    }

    fn read_manifest(&self) -> Result<std::result::Result<Manifest, String>> {
        let mut json = Vec::new();
        let read = File::open(&self.manifest)
            .and_then(|file| file.take(manifest::BYTES_MAX + 1).read_to_end(&mut json));
        match read {
            Ok(_) => Ok(Manifest::read(&self.key, &json)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Err("it has no manifest".to_owned())),
            Err(error) => Err(Error::file("read", &self.manifest, error)),
        }
    }

    fn begin(&self, source: &Path, attempt: &str) -> Result<Draft> {
        Draft::begin(source, || {
            durable::create_dirs(&self.dir).map_err(|error| Error::file("make", &self.dir, error))?;
            self.partial.create(&self.key, attempt)
        })
    }

    /// Gives the manifest of a valid artifact as an error: then there is nothing to do.
    fn look(&self) -> Result<std::result::Result<Looked, Manifest>> {
        // Taken first: what is written meanwhile has other ones afterwards.
        let stamps = self.stamps()?;
        let wrong = match self.find()? {
            Found::Valid(manifest) => {
                self.partial.tidy(&self.key);
                return Ok(Err(manifest));
            }
            Found::Absent => None,
            Found::Damaged(wrong) => Some(wrong),
        };
        Ok(Ok(Looked { wrong, stamps }))
    }

    /// Moves a draft to the artifact's name, if there is what was looked at.
    fn put(&self, draft: Draft, looked: &Looked, permission: Permission, lock: Lock) -> Result<Put> {
        if self.stamps()? != looked.stamps {
            return Ok(Put::Not(draft, Not::Changed));
        }
        if let Some(wrong) = &looked.wrong {
            tracing::warn!(artifact = %self.artifact.display(), wrong, "a damaged artifact is replaced");
        }
        // Nothing may stand between this question and the rename.
        if !permission.is_fresh() {
            return Ok(Put::Not(draft, Not::Fresh));
        }
        let moved = match looked.wrong {
            None => durable::publish(draft.path(), &self.artifact),
            Some(_) => durable::replace(draft.path(), &self.artifact),
        };
        match moved {
            Ok(()) => {
                draft.moved();
                Ok(Put::Moved(lock))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Put::Not(draft, Not::Changed)),
            Err(error) => Err(Error::file("move an artifact to", &self.artifact, error)),
        }
    }

    /// Writes the manifest, and removes what others have left behind.
    fn describe(&self, json: &[u8], lock: Lock) -> Result<()> {
        let mut draft = self.partial.create(&self.key, "manifest")?;
        let written = draft.file.write_all(json).and_then(|()| draft.file.sync_all());
        let written = written.and_then(|()| durable::replace(&draft.path, &self.manifest));
        written.map_err(|error| Error::file("write", &self.manifest, error))?;
        draft.moved();
        drop(lock);
        self.partial.tidy(&self.key);
        Ok(())
    }

    fn stamps(&self) -> Result<Stamps> {
        let stamp = |path: &Path| match std::fs::symlink_metadata(path) {
            Ok(found) => Ok(Some(Stamp {
                file: (found.dev(), found.ino()),
                size: found.size(),
                written: (found.mtime(), found.mtime_nsec()),
                changed: (found.ctime(), found.ctime_nsec()),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file("read", path, error)),
        };
        Ok([stamp(&self.artifact)?, stamp(&self.manifest)?])
    }
}

/// Does once what a publication does.
fn check(root: &Path) -> Result<()> {
    const BYTES: &[u8] = b"stargate checks that it can write here\n";
    durable::create_dirs(root).map_err(|error| Error::file("make", root, error))?;
    let name = format!("check-{:016x}", rand::random::<u64>());
    let path = root.join(format!(".{name}"));
    let mut draft = Partial::below(root).create(&Key::new(name)?, "check")?;
    let written = draft.file.write_all(BYTES).and_then(|()| draft.file.sync_all());
    let moved = written.and_then(|()| durable::publish(&draft.path, &path));
    let there = moved.and_then(|()| std::fs::read(&path));
    let removed = std::fs::remove_file(&path);
    let there = there.map_err(|error| Error::file("write in", root, error))?;
    draft.moved();
    if there != BYTES {
        let detail = "a small file came back different".to_owned();
        return Err(Error::Mismatch { place: path.display().to_string(), detail });
    }
    removed.map_err(|error| Error::file("remove", &path, error))
}
