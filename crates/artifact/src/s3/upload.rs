//! One file on its way to a bucket.

use std::path::{Path as FilePath, PathBuf};

use bytes::Bytes;
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::path::Path;
use object_store::{
    Attributes, MultipartId, ObjectStore as _, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    UpdateVersion,
};
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;

use super::{Condition, META_ABOUT, META_ATTEMPT, META_SHA256, PART, S3};
use crate::error::{Error, Result};
use crate::manifest::{Sum, Summing, ascii};
use crate::permit::Permission;
use crate::{Publisher, Step, Steps};

/// A server takes no more parts than this.
const PARTS_MAX: u64 = 10_000;
/// How much of the file is read at once to add it up.
const CHUNK: usize = 256 << 10;

/// A file whose bytes go to a server, and become an object when it is completed. Aborted when dropped before that.
pub(super) struct Upload<'a> {
    to: &'a S3,
    path: Path,
    file: File,
    file_path: PathBuf,
    attributes: Attributes,
    /// What the file adds up to.
    pub(super) sum: Sum,
    sent: Sent,
}

enum Sent {
    Nothing,
    /// A small file waits here to be put at once.
    Whole(Bytes),
    Parts(MultipartId, Vec<PartId>),
    Ended,
}

impl<'a> Upload<'a> {
    /// Reads the file once: the object is to carry its checksum from the beginning.
    pub(super) async fn begin(
        to: &'a S3,
        path: Path,
        file_path: &FilePath,
        by: &Publisher<'_>,
    ) -> Result<Self> {
        let input = |source| Error::Input { path: file_path.to_owned(), source };
        let mut file = File::open(file_path).await.map_err(input)?;
        let mut summing = Summing::default();
        let mut chunk = vec![0; CHUNK];
        loop {
            match file.read(&mut chunk).await.map_err(input)? {
                0 => break,
                got => summing.add(&chunk[..got]),
            }
        }
        let sum = summing.finish();
        let file = File::open(file_path).await.map_err(input)?;
        let mut attributes =
            Attributes::from_iter([(META_SHA256, sum.sha256.clone()), (META_ATTEMPT, by.attempt.to_owned())]);
        if let Some(about) = by.about {
            attributes.insert(META_ABOUT, ascii(about).into());
        }
        Ok(Self { to, path, file, file_path: file_path.to_owned(), attributes, sum, sent: Sent::Nothing })
    }

    /// Sends everything; nothing appears yet.
    pub(super) async fn send(&mut self, steps: &dyn Steps) -> Result<()> {
        if self.sum.size <= PART {
            let mut bytes = Vec::new();
            self.fill(&mut bytes, self.sum.size + 1).await?;
            self.sent = Sent::Whole(bytes.into());
            steps.reached(Step::HalfWritten);
            return self.is_same(self.whole_sum());
        }
        let part_bytes = PART.max(self.sum.size.div_ceil(PARTS_MAX));
        let parts = self.sum.size.div_ceil(part_bytes);
        let options = PutMultipartOptions { attributes: self.attributes.clone(), ..Default::default() };
        let id = self.to.store.create_multipart_opts(&self.path, options).await;
        self.sent = Sent::Parts(id.map_err(|error| self.failed(error))?, Vec::new());
        let mut summing = Summing::default();
        for part in 0..parts {
            let mut bytes = Vec::new();
            self.fill(&mut bytes, part_bytes).await?;
            summing.add(&bytes);
            self.send_part(bytes.into()).await?;
            if part == parts / 2 - 1 {
                steps.reached(Step::HalfWritten);
            }
        }
        self.is_same(summing.finish())
    }

    /// Makes the object appear if the condition holds; otherwise `AlreadyExists` or `Precondition`. Asks for nothing
    /// once the permission is old; see [`is_expired`](super::condition::is_expired).
    pub(super) async fn complete(
        &mut self,
        condition: Condition,
        permission: Permission,
    ) -> object_store::Result<()> {
        let store = &self.to.store;
        match &self.sent {
            Sent::Whole(bytes) => {
                let mode = match &condition {
                    Condition::Absent => PutMode::Create,
                    Condition::Unchanged(tag) => {
                        PutMode::Update(UpdateVersion { e_tag: Some(tag.clone()), version: None })
                    }
                };
                let options = PutOptions { mode, attributes: self.attributes.clone(), ..Default::default() };
                let put = store.put_opts(&self.path, PutPayload::from_bytes(bytes.clone()), options);
                condition.around(permission, put).await?;
            }
            Sent::Parts(id, parts) => {
                let completed = store.complete_multipart(&self.path, id, parts.clone());
                condition.around(permission, completed).await?;
            }
            Sent::Nothing | Sent::Ended => {}
        }
        self.sent = Sent::Ended;
        Ok(())
    }

    /// Takes the parts back. Whatever a server keeps of them is invisible to readers.
    pub(super) async fn abort(&mut self) {
        if let Sent::Parts(id, _) = std::mem::replace(&mut self.sent, Sent::Ended)
            && let Err(error) = self.to.store.abort_multipart(&self.path, &id).await
        {
            log_not_aborted(&self.path, &error);
        }
    }

    /// The server's name for an upload of several parts.
    #[cfg(test)]
    pub(super) fn id(&self) -> Option<MultipartId> {
        match &self.sent {
            Sent::Parts(id, _) => Some(id.clone()),
            Sent::Nothing | Sent::Whole(_) | Sent::Ended => None,
        }
    }

    async fn send_part(&mut self, bytes: Bytes) -> Result<()> {
        let Sent::Parts(id, parts) = &mut self.sent else { return Ok(()) };
        let sent = self.to.store.put_part(&self.path, id, parts.len(), bytes.into()).await;
        match sent {
            Ok(part) => parts.push(part),
            Err(error) => return Err(self.failed(error)),
        }
        Ok(())
    }

    async fn fill(&mut self, bytes: &mut Vec<u8>, bytes_max: u64) -> Result<()> {
        let read = (&mut self.file).take(bytes_max).read_to_end(bytes).await;
        read.map(drop).map_err(|source| Error::Input { path: self.file_path.clone(), source })
    }

    fn whole_sum(&self) -> Sum {
        let mut summing = Summing::default();
        if let Sent::Whole(bytes) = &self.sent {
            summing.add(bytes);
        }
        summing.finish()
    }

    /// Between the two readings the file must not have changed.
    fn is_same(&self, sent: Sum) -> Result<()> {
        if sent == self.sum {
            return Ok(());
        }
        let detail = "the file changed while it was published".to_owned();
        Err(Error::Mismatch { place: self.file_path.display().to_string(), detail })
    }

    fn failed(&self, error: object_store::Error) -> Error {
        Error::object("write", self.to.address(&self.path), error)
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        // Without a runtime the process is ending; then it is like a crash.
        if let Sent::Parts(id, _) = std::mem::replace(&mut self.sent, Sent::Ended)
            && tokio::runtime::Handle::try_current().is_ok()
        {
            let (store, path) = (self.to.store.clone(), self.path.clone());
            self.to.tasks.spawn(async move {
                if let Err(error) = store.abort_multipart(&path, &id).await {
                    log_not_aborted(&path, &error);
                }
            });
        }
    }
}

fn log_not_aborted(path: &Path, error: &object_store::Error) {
    tracing::warn!(%path, %error, "an upload could not be aborted; a lifecycle rule of the bucket removes it");
}
