//! An object, read piece by piece: each request is small enough for its time limit, and memory stays bounded.

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore as _};

use super::PART;
use crate::manifest::{Sum, Summing};

/// Reads the version of an object that `head` tells of. If another takes its place the next piece is an error.
pub(super) struct Chunks<'a> {
    store: &'a AmazonS3,
    path: &'a Path,
    head: &'a ObjectMeta,
    at: u64,
}

impl<'a> Chunks<'a> {
    pub(super) fn new(store: &'a AmazonS3, path: &'a Path, head: &'a ObjectMeta) -> Self {
        Self { store, path, head, at: 0 }
    }

    pub(super) async fn next(&mut self) -> object_store::Result<Option<Bytes>> {
        if self.at >= self.head.size {
            return Ok(None);
        }
        let end = self.head.size.min(self.at + PART);
        let options = GetOptions {
            range: Some(GetRange::Bounded(self.at..end)),
            if_match: self.head.e_tag.clone(),
            ..GetOptions::default()
        };
        let bytes = self.store.get_opts(self.path, options).await?.bytes().await?;
        self.at = end;
        Ok(Some(bytes))
    }
}

/// What the bytes of an object add up to.
pub(super) async fn sum(store: &AmazonS3, path: &Path, head: &ObjectMeta) -> object_store::Result<Sum> {
    let mut summing = Summing::default();
    let mut chunks = Chunks::new(store, path, head);
    while let Some(chunk) = chunks.next().await? {
        summing.add(&chunk);
    }
    Ok(summing.finish())
}
