//! The lock of the worker: one per repository. The kernel gives it free when the process dies.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use stargate_base::clock;

use crate::error::{Error, Result};
use crate::files::{Files, is_at};

const NAME: &str = "worker.lock";
/// The most that is read of what the holder says about itself.
const HOLDER_BYTES_MAX: u64 = 512;

/// Held by the worker of a repository for as long as this lives.
#[derive(Debug)]
pub struct WorkerLock {
    _file: File,
}

impl WorkerLock {
    /// Takes the lock, or says who has it. `instance` names this node to others.
    pub fn acquire(repo: &Path, instance: &str) -> Result<Self> {
        let files = Files::open(repo)?;
        let path = files.path(NAME);
        let mut file = files.open_write(NAME)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Locked { path, holder: holder(&mut file) }),
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", &path)(error)),
        }
        // Somebody who removes the file makes room for a second lock.
        if !is_at(&file, &path)? {
            return Err(Error::Locked { path, holder: "the file was replaced meanwhile".to_owned() });
        }
        let about = serde_json::json!({
            "pid": std::process::id(), "instance": instance, "since": clock::wall().to_string(),
        });
        let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{about}"));
        // On a full disk the lock is as good, only nameless.
        if let Err(error) = written {
            tracing::warn!(path = %path.display(), %error, "cannot write who has the lock");
        }
        files.sweep()?;
        Ok(Self { _file: file })
    }
}

fn holder(file: &mut File) -> String {
    let mut about = String::new();
    let read = file.rewind().and_then(|()| file.take(HOLDER_BYTES_MAX).read_to_string(&mut about));
    match read {
        Ok(_) if !about.trim().is_empty() => about.trim().to_owned(),
        _ => "it does not say who it is".to_owned(),
    }
}
