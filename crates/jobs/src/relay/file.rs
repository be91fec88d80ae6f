//! A file of lines that is only appended to.
//!
//! An append is one write under a lock of the file, then a sync. When the last byte is no newline, somebody died in
//! mid-line, and the next append ends that line first. The file is opened for each append: whoever wants to put it away
//! renames it, and the next line goes into a new one.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use stargate_base::durable;
use stargate_base::holder::Holder;

/// What is announced may be nobody else's business.
const MODE: u32 = 0o640;

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub(super) enum AppendError {
    #[error("cannot {what} {path}: {source}", path = path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{path} is locked by {holder}", path = path.display())]
    Locked { path: PathBuf, holder: Holder },
}

/// A file of lines.
#[derive(Debug, Clone)]
pub(super) struct LineFile {
    path: PathBuf,
}

impl LineFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Appends whole lines and syncs them. Blocks.
    pub(super) fn append(&self, lines: &[u8]) -> Result<(), AppendError> {
        let io = |what: &'static str| {
            let path = self.path.clone();
            move |source: io::Error| AppendError::Io { what, path, source }
        };
        let mut file = File::options()
            .create(true)
            .append(true)
            .read(true)
            .mode(MODE)
            .open(&self.path)
            .map_err(io("open"))?;
        if let Err(error) = file.try_lock() {
            return Err(match error {
                std::fs::TryLockError::WouldBlock => {
                    AppendError::Locked { path: self.path.clone(), holder: Holder::of(&file) }
                }
                std::fs::TryLockError::Error(error) => io("lock")(error),
            });
        }
        let bytes = file.metadata().map_err(io("look at"))?.len();
        if bytes == 0 {
            // A new name is to be as durable as what will stand in the file.
            let parent = self.path.parent().unwrap_or_else(|| Path::new("."));
            durable::sync_dir(parent).map_err(io("sync the folder of"))?;
        }
        let healed;
        let content = if is_torn(&file, bytes).map_err(io("read"))? {
            healed = [b"\n", lines].concat();
            &healed
        } else {
            lines
        };
        if let Err(error) = file.write_all(content) {
            take_back(&file, &self.path, bytes);
            return Err(io("append to")(error));
        }
        file.sync_data().map_err(io("sync"))
    }
}

fn is_torn(file: &File, bytes: u64) -> io::Result<bool> {
    let Some(last) = bytes.checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

/// Best effort: if it fails, a torn line stays, and the next append ends it.
fn take_back(file: &File, path: &Path, bytes: u64) {
    if let Err(error) = file.set_len(bytes) {
        tracing::warn!(path = %path.display(), %error, "cannot take back half a line");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture() -> (tempfile::TempDir, LineFile) {
        let dir = tempfile::tempdir().unwrap();
        let file = LineFile::new(dir.path().join("changes.ndjson"));
        (dir, file)
    }

    #[test]
    fn a_line_that_somebody_died_in_is_ended_before_the_next_begins() {
        let (_dir, file) = fixture();
        file.append(b"1\n").unwrap();
        std::fs::write(&file.path, "1\n{\"id\": 2, \"pay").unwrap();
        file.append(b"2\n3\n").unwrap();
        file.append(b"4\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file.path).unwrap(), "1\n{\"id\": 2, \"pay\n2\n3\n4\n");
    }

    #[test]
    fn a_file_that_is_put_away_is_followed_by_a_new_one() {
        let (dir, file) = fixture();
        file.append(b"1\n").unwrap();
        durable::replace(&file.path, &dir.path().join("old")).unwrap();
        file.append(b"2\n").unwrap();
        assert_eq!(std::fs::read_to_string(&file.path).unwrap(), "2\n");
        assert_eq!(std::fs::read_to_string(dir.path().join("old")).unwrap(), "1\n");
    }

    #[test]
    fn what_cannot_be_written_names_the_file() {
        let (dir, file) = fixture();
        let other = File::create(&file.path).unwrap();
        other.lock().unwrap();
        let locked = file.append(b"1\n").unwrap_err().to_string();
        assert!(locked.contains("changes.ndjson is locked by process"), "{locked}");
        let lost = LineFile::new(dir.path().join("absent/changes.ndjson"));
        let lost = lost.append(b"1\n").unwrap_err().to_string();
        assert!(lost.starts_with("cannot open ") && lost.contains("No such file"), "{lost}");
    }
}
