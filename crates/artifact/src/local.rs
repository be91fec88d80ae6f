//! Artifacts in a folder.
//!
//! The file is written under a temporary name in the artifact's own directory, read back, synced, and renamed. So a
//! reader at the final key sees nothing, or a complete artifact, whenever a process dies.
//!
//! Looking and renaming is one step among live processes: both happen under a lock (`flock` on `.lock` in the same
//! directory), which ends with the process that holds it. Where nothing lies the rename refuses to replace, so not
//! even a process without the lock is overwritten; only what is damaged is replaced. The [`Permit`](crate::Permit) is
//! asked before the lock, not under it: an attempt that stands still while it asks does not hold up the next one.
//!
//! A writer holds a lock on its temporary file too. Those without a lock belong to the dead, and go when the next
//! attempt has published.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use stargate_base::durable;
use tokio::time::Instant;

use crate::blocking;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::manifest::{self, Manifest, Sum, Summing};
use crate::{Artifacts, Found, Published, Publisher, Step};

/// How long another publication of the same job may hold the lock. It only renames files, and reads what is there.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// How often a lock that is held is tried again.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// How much is read or written at once.
const CHUNK: usize = 256 << 10;

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
        let name = key.as_str().rsplit('/').next().unwrap_or_default().to_owned();
        Places { key: key.clone(), dir, name, manifest: self.root.join(key.manifest()), artifact }
    }

    async fn lock(&self, places: &Places) -> Result<File> {
        let path = places.dir.join(".lock");
        let begin = Instant::now();
        loop {
            let (dir, place) = (places.dir.clone(), path.clone());
            let locked = blocking(move || lock(&dir, &place)).await?;
            match locked {
                Some(lock) => return Ok(lock),
                None if begin.elapsed() >= self.lock_patience => return Err(Error::Busy { path }),
                None => tokio::time::sleep(LOCK_INTERVAL).await,
            }
        }
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
        let draft = blocking(move || Draft::begin(&source, &begun, &attempt)).await?;
        by.steps.reached(Step::HalfWritten);
        let draft = blocking(move || draft.finish()).await?;
        by.steps.reached(Step::Written);
        let draft = blocking(move || draft.sync()).await?;
        by.steps.reached(Step::Synced);

        if !by.permit.holds().await {
            return Err(Error::Fenced);
        }
        let lock = self.lock(&places).await?;
        let manifest = Manifest::new(key, draft.sum.clone(), by.attempt);
        // The lock goes where the work is: work goes on when this future is dropped.
        let moving = places.clone();
        let (there, lock) = blocking(move || moving.put(draft).map(|there| (there, lock))).await?;
        if let Some(there) = there {
            return Ok(Published::Adopted(there));
        }
        by.steps.reached(Step::Moved);
        let json = manifest.to_json();
        let lock = blocking(move || places.describe(&json).map(|()| lock)).await?;
        by.steps.reached(Step::Described);
        drop(lock);
        Ok(Published::Stored(manifest))
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
    /// The artifact's file name.
    name: String,
    artifact: PathBuf,
    manifest: PathBuf,
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

    /// Moves a draft to the artifact's name. Gives the manifest of a valid artifact that was there first. Needs the
    /// lock.
    fn put(&self, draft: Draft) -> Result<Option<Manifest>> {
        let moved = match self.find()? {
            Found::Valid(manifest) => {
                self.tidy();
                return Ok(Some(manifest));
            }
            Found::Absent => durable::publish(&draft.path, &self.artifact),
            Found::Damaged(wrong) => {
                tracing::warn!(artifact = %self.artifact.display(), wrong, "a damaged artifact is replaced");
                durable::replace(&draft.path, &self.artifact)
            }
        };
        match moved {
            Ok(()) => {
                draft.moved();
                Ok(None)
            }
            Err(error) => Err(Error::file("move an artifact to", &self.artifact, error)),
        }
    }

    /// Writes the manifest, and removes what others have left behind. Needs the lock.
    fn describe(&self, json: &[u8]) -> Result<()> {
        let path = self.dir.join(format!(".{}.manifest.{:08x}.tmp", self.name, rand::random::<u32>()));
        let written = durable::write_new(&path, json).and_then(|()| durable::replace(&path, &self.manifest));
        written.map_err(|error| {
            let _ = std::fs::remove_file(&path);
            Error::file("write", &self.manifest, error)
        })?;
        self.tidy();
        Ok(())
    }

    /// Removes what dead attempts have left behind. The artifact is there, so nothing of it can be needed; a leftover
    /// that cannot be removed only takes up space. Needs the lock.
    fn tidy(&self) {
        let Ok(entries) = std::fs::read_dir(&self.dir) else { return };
        let prefix = format!(".{}.", self.name);
        for entry in entries.flatten() {
            let name = entry.file_name();
            let ours = name.to_str().is_some_and(|name| name.starts_with(&prefix) && name.ends_with(".tmp"));
            if ours
                && let Ok(file) = File::open(entry.path())
                && file.try_lock().is_ok()
            {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// The artifact-to-be under its temporary name. Removed when dropped before it was moved.
struct Draft {
    path: PathBuf,
    file: File,
    source: File,
    source_path: PathBuf,
    summing: Option<Summing>,
    sum: Sum,
    moved: bool,
}

impl Draft {
    /// Writes the first half.
    fn begin(source_path: &Path, places: &Places, attempt: &str) -> Result<Self> {
        let input = |source| Error::Input { path: source_path.to_owned(), source };
        let source = File::open(source_path).map_err(input)?;
        let size = source.metadata().map_err(input)?.len();
        durable::create_dirs(&places.dir).map_err(|error| Error::file("make", &places.dir, error))?;
        let path = places.dir.join(format!(".{}.{attempt}.{:08x}.tmp", places.name, rand::random::<u32>()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|error| Error::file("write", &path, error))?;
        let mut draft = Self {
            path,
            file,
            source,
            source_path: source_path.to_owned(),
            summing: Some(Summing::default()),
            sum: Summing::default().finish(),
            moved: false,
        };
        // Nobody else knows the name. A file system without locks loses only the tidying up after others.
        let _ = draft.file.try_lock();
        draft.copy(size / 2)?;
        Ok(draft)
    }

    /// Writes the rest, and reads everything back.
    fn finish(mut self) -> Result<Self> {
        self.copy(u64::MAX)?;
        self.sum = self.summing.take().unwrap_or_default().finish();
        let read_back = self.file.rewind().and_then(|()| sum(&mut self.file));
        let there = read_back.map_err(|error| Error::file("read", &self.path, error))?;
        if there != self.sum {
            let detail = format!(
                "{} bytes with SHA-256 {}, instead of {} with {}",
                there.size, there.sha256, self.sum.size, self.sum.sha256
            );
            return Err(Error::Mismatch { place: self.path.display().to_string(), detail });
        }
        Ok(self)
    }

    fn sync(self) -> Result<Self> {
        self.file.sync_all().map_err(|error| Error::file("sync", &self.path, error))?;
        Ok(self)
    }

    fn copy(&mut self, bytes_max: u64) -> Result<()> {
        let mut chunk = vec![0; CHUNK];
        let mut left = bytes_max;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let got = match self.source.read(&mut chunk[..want]) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(Error::Input { path: self.source_path.clone(), source }),
            };
            self.file.write_all(&chunk[..got]).map_err(|error| Error::file("write", &self.path, error))?;
            self.summing.get_or_insert_default().add(&chunk[..got]);
            left -= got as u64;
        }
        Ok(())
    }

    fn moved(mut self) {
        self.moved = true;
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.moved
            && let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "a temporary file could not be removed");
        }
    }
}

fn lock(dir: &Path, path: &Path) -> Result<Option<File>> {
    durable::create_dirs(dir).map_err(|error| Error::file("make", dir, error))?;
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.map_err(|error| Error::file("lock", path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(Error::file("lock", path, error)),
    }
}

fn sum(file: &mut File) -> io::Result<Sum> {
    let mut chunk = vec![0; CHUNK];
    let mut summing = Summing::default();
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(summing.finish()),
            Ok(got) => summing.add(&chunk[..got]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Does once what a publication does.
fn check(root: &Path) -> Result<()> {
    const BYTES: &[u8] = b"stargate checks that it can write here\n";
    durable::create_dirs(root).map_err(|error| Error::file("make", root, error))?;
    let name = format!(".check-{:016x}", rand::random::<u64>());
    let (draft, path) = (root.join(format!("{name}.tmp")), root.join(name));
    let there = durable::write_new(&draft, BYTES)
        .and_then(|()| durable::publish(&draft, &path))
        .and_then(|()| std::fs::read(&path));
    let removed = [&draft, &path].map(std::fs::remove_file);
    let there = there.map_err(|error| Error::file("write in", root, error))?;
    if there != BYTES {
        let detail = "a small file came back different".to_owned();
        return Err(Error::Mismatch { place: path.display().to_string(), detail });
    }
    removed.into_iter().last().transpose().map_err(|error| Error::file("remove", &path, error))?;
    Ok(())
}
