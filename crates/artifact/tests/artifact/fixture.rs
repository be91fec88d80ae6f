//! Stores of artifacts, and what lies in them seen without their help.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::TryStreamExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use stargate_artifact::s3::Settings;
use stargate_artifact::{Artifacts, Key, Local, Permit, Published, Publisher, Result, S3, Unobserved};
use stargate_base::{Secret, Tasks};
use stargate_testkit::s3::Corner;
use tempfile::TempDir;

/// More than one part of an upload, and not a multiple of it.
pub(crate) const LARGE: usize = (9 << 20) + 13;
pub(crate) const SMALL: usize = 100_003;

/// Where artifacts are kept; can be told to another process.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Local(PathBuf),
    S3(Corner),
}

/// A place with nothing in it, and a directory for the files that are to be published.
pub(crate) struct Fixture {
    pub(crate) place: Place,
    pub(crate) home: TempDir,
    pub(crate) store: Arc<dyn Artifacts>,
    pub(crate) key: Key,
}

impl Fixture {
    pub(crate) fn local() -> Self {
        let home = tempfile::tempdir().unwrap();
        let place = Place::Local(home.path().join("artifacts"));
        Self::new(place, home)
    }

    pub(crate) fn s3() -> Self {
        Self::new(Place::S3(Corner::create()), tempfile::tempdir().unwrap())
    }

    fn new(place: Place, home: TempDir) -> Self {
        let key = Key::result(17, "clip.mp4").unwrap();
        Self { store: place.open(), place, home, key }
    }

    /// A file with bytes that only this seed gives.
    pub(crate) fn file(&self, seed: u8, size: usize) -> PathBuf {
        let path = self.home.path().join(format!("file-{seed}-{size}"));
        std::fs::write(&path, content(seed, size)).unwrap();
        path
    }

    pub(crate) async fn publish(&self, attempt: &str, file: &Path) -> Result<Published> {
        self.publish_if(attempt, file, &Always(true)).await
    }

    pub(crate) async fn publish_if(
        &self,
        attempt: &str,
        file: &Path,
        permit: &dyn Permit,
    ) -> Result<Published> {
        self.store.publish(&self.key, file, Publisher { permit, ..by(attempt) }).await
    }
}

/// An attempt that may publish.
pub(crate) fn by(attempt: &str) -> Publisher<'_> {
    Publisher { attempt, permit: &Always(true), about: None, steps: &Unobserved }
}

impl Place {
    pub(crate) fn open(&self) -> Arc<dyn Artifacts> {
        match self {
            Self::Local(root) => Arc::new(Local::new(root)),
            Self::S3(corner) => Arc::new(S3::new(&settings(corner), Tasks::new()).unwrap()),
        }
    }

    /// What a reader gets.
    pub(crate) async fn read(&self, key: &str) -> Option<Vec<u8>> {
        match self {
            Self::Local(root) => match std::fs::read(root.join(key)) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                read => Some(read.unwrap()),
            },
            Self::S3(corner) => match raw(corner).get(&object(corner, key)).await {
                Err(object_store::Error::NotFound { .. }) => None,
                got => Some(got.unwrap().bytes().await.unwrap().to_vec()),
            },
        }
    }

    /// Writes past the store.
    pub(crate) async fn write(&self, key: &str, bytes: &[u8]) {
        match self {
            Self::Local(root) => {
                let path = root.join(key);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, bytes).unwrap();
            }
            Self::S3(corner) => {
                raw(corner).put(&object(corner, key), bytes.to_vec().into()).await.unwrap();
            }
        }
    }

    pub(crate) async fn remove(&self, key: &str) {
        match self {
            Self::Local(root) => std::fs::remove_file(root.join(key)).unwrap(),
            Self::S3(corner) => raw(corner).delete(&object(corner, key)).await.unwrap(),
        }
    }

    /// The names of everything that is kept.
    pub(crate) async fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        match self {
            Self::Local(root) => walk(root, root, &mut names),
            Self::S3(corner) => {
                let prefix = object_store::path::Path::from(corner.prefix.as_str());
                let found: Vec<_> = raw(corner).list(Some(&prefix)).try_collect().await.unwrap();
                let cut = corner.prefix.len() + 1;
                names.extend(found.into_iter().map(|object| object.location.to_string()[cut..].to_owned()));
            }
        }
        names.sort();
        names
    }
}

pub(crate) fn settings(corner: &Corner) -> Settings {
    Settings {
        bucket: corner.bucket.clone(),
        prefix: corner.prefix.clone(),
        endpoint: Some(corner.endpoint.clone()),
        region: "us-east-1".to_owned(),
        access_key_id: Some(corner.access_key.clone()),
        secret_access_key: Some(Secret::new(&corner.secret_key)),
        session_token: None,
    }
}

fn raw(corner: &Corner) -> object_store::aws::AmazonS3 {
    AmazonS3Builder::new()
        .with_bucket_name(&corner.bucket)
        .with_endpoint(&corner.endpoint)
        .with_allow_http(true)
        .with_access_key_id(&corner.access_key)
        .with_secret_access_key(&corner.secret_key)
        .build()
        .unwrap()
}

fn object(corner: &Corner, key: &str) -> object_store::path::Path {
    object_store::path::Path::parse(format!("{}/{key}", corner.prefix)).unwrap()
}

fn walk(root: &Path, dir: &Path, names: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(root, &path, names);
        } else {
            names.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}

/// Bytes that only this seed gives.
pub(crate) fn content(seed: u8, size: usize) -> Vec<u8> {
    let period: Vec<u8> = (0..251).map(|i| seed.wrapping_add(i)).collect();
    let mut bytes = period.repeat(size / period.len() + 1);
    bytes.truncate(size);
    bytes
}

/// Answers always the same.
pub(crate) struct Always(pub(crate) bool);

#[async_trait]
impl Permit for Always {
    async fn holds(&self) -> bool {
        self.0
    }
}

/// Says when it is asked first, and answers yes when it may.
#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) asked: tokio::sync::Notify,
    pub(crate) go: tokio::sync::Notify,
    is_open: AtomicBool,
}

#[async_trait]
impl Permit for Gate {
    async fn holds(&self) -> bool {
        if !self.is_open.swap(true, Ordering::SeqCst) {
            self.asked.notify_one();
            self.go.notified().await;
        }
        true
    }
}
