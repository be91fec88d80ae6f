//! An artifact-to-be under its temporary name.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::partial::Temporary;
use crate::error::{Error, Result};
use crate::manifest::{Sum, Summing};

/// How much is read or written at once.
const CHUNK: usize = 256 << 10;

/// The artifact-to-be. Removed when dropped before it was moved.
pub(super) struct Draft {
    temporary: Temporary,
    source: File,
    source_path: PathBuf,
    summing: Option<Summing>,
    pub(super) sum: Sum,
}

impl Draft {
    /// Writes the first half of a file; `temporary` says where to, once the file is known to be there.
    pub(super) fn begin(source_path: &Path, temporary: impl FnOnce() -> Result<Temporary>) -> Result<Self> {
        let input = |source| Error::Input { path: source_path.to_owned(), source };
        let source = File::open(source_path).map_err(input)?;
        let size = source.metadata().map_err(input)?.len();
        let mut draft = Self {
            temporary: temporary()?,
            source,
            source_path: source_path.to_owned(),
            summing: Some(Summing::default()),
            sum: Summing::default().finish(),
        };
        draft.copy(size / 2)?;
        Ok(draft)
    }

    /// Writes the rest, and reads everything back.
    pub(super) fn finish(mut self) -> Result<Self> {
        self.copy(u64::MAX)?;
        self.sum = self.summing.take().unwrap_or_default().finish();
        let file = &mut self.temporary.file;
        let read_back = file.rewind().and_then(|()| sum(file));
        let there = read_back.map_err(|error| Error::file("read", self.path(), error))?;
        if there != self.sum {
            let detail = format!(
                "{} bytes with SHA-256 {}, instead of {} with {}",
                there.size, there.sha256, self.sum.size, self.sum.sha256
            );
            return Err(Error::Mismatch { place: self.path().display().to_string(), detail });
        }
        Ok(self)
    }

    pub(super) fn sync(self) -> Result<Self> {
        self.temporary.file.sync_all().map_err(|error| Error::file("sync", self.path(), error))?;
        Ok(self)
    }

    pub(super) fn path(&self) -> &Path {
        &self.temporary.path
    }

    /// It has its final name.
    pub(super) fn moved(self) {
        self.temporary.moved();
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
            let written = self.temporary.file.write_all(&chunk[..got]);
            written.map_err(|error| Error::file("write", self.path(), error))?;
            self.summing.get_or_insert_default().add(&chunk[..got]);
            left -= got as u64;
        }
        Ok(())
    }
}

/// What the rest of a file adds up to.
pub(super) fn sum(file: &mut File) -> io::Result<Sum> {
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
