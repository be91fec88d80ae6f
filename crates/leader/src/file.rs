//! The lock of the embedded default: a file that the kernel locks for us.
//!
//! The kernel gives it free when the process dies, so a successor need not wait for any time to live. It does not
//! when the process is merely stopped: then nobody leads on this machine until it goes on or dies, and what it
//! writes is stopped by the epoch all the same. For nodes on one machine; a network file system may lie about locks.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::lease::{
    Acquired, Bid, Hint, Incumbent, Inspection, Lease, NAME_BYTES_MAX, Released, Renewed, Token, Value,
};

/// How often a standby looks whether the lock is free. There is no signal for it.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The most that is read from the file: two names and a token.
const VALUE_BYTES_MAX: u64 = 2 * NAME_BYTES_MAX as u64 + 64;

/// A lock on a file.
///
/// ```
/// # use stargate_leader::{FileLease, Lease as _};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let home = tempfile::tempdir().unwrap();
/// let lease = FileLease::new(home.path().join("leader.lock"));
/// assert_eq!(lease.inspect().await.unwrap().incumbent, None);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct FileLease {
    path: PathBuf,
    held: Arc<Mutex<Option<Held>>>,
}

#[derive(Debug)]
struct Held {
    token: Token,
    file: File,
}

impl FileLease {
    /// A lock on the file at `path`, which is made if need be and never removed.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), held: Arc::default() }
    }

    /// Runs `work` where blocking is allowed.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Path, &mut Option<Held>) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let Self { path, held } = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            work(&path, &mut held.lock().unwrap_or_else(PoisonError::into_inner))
        });
        done.await.unwrap_or_else(|panic| Err(io::Error::other(panic))).map_err(|error| Error::Unreachable {
            operation,
            place: self.place(),
            problem: error.to_string(),
        })
    }
}

#[async_trait]
impl Lease for FileLease {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn acquire(&self, bid: &Bid) -> Result<Acquired> {
        let (token, value) = (bid.token, bid.value());
        self.blocking("acquire", move |path, held| {
            if let Some(held) = held {
                // By an earlier bid of this process; two services in one process share the lock's fate.
                return Ok(Acquired::Held(read(&mut held.file)?));
            }
            let mut file = open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(Acquired::Held(read(&mut file)?)),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Between opening and locking the file may have been removed: a lock on nothing.
            if !is_at(&file, path)? {
                return Err(io::Error::other("the file was replaced meanwhile"));
            }
            write(&mut file, &value)?;
            *held = Some(Held { token, file });
            Ok(Acquired::Granted)
        })
        .await
    }

    async fn renew(&self, bid: &Bid) -> Result<Renewed> {
        let token = bid.token;
        self.blocking("renew", move |path, held| {
            // Somebody who removes the file makes room for a second lock.
            let ours = match held {
                Some(held) if held.token == token => is_at(&held.file, path)?,
                _ => false,
            };
            Ok(if ours { Renewed::Extended } else { Renewed::Lost })
        })
        .await
    }

    async fn release(&self, bid: &Bid) -> Result<Released> {
        let token = bid.token;
        self.blocking("release", move |_, held| match held.take_if(|held| held.token == token) {
            Some(mut held) => {
                // First the name, then the lock: the successor writes its own.
                write(&mut held.file, "")?;
                held.file.unlock()?;
                Ok(Released::Freed)
            }
            None => Ok(Released::NotOurs),
        })
        .await
    }

    async fn inspect(&self) -> Result<Inspection> {
        let incumbent = self
            .blocking("inspect", |path, held| match held {
                Some(held) => read(&mut held.file).map(Some),
                None => incumbent(path),
            })
            .await?;
        Ok(Inspection { server: None, incumbent })
    }

    async fn hint(&self) -> Hint {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Ok(Inspection { incumbent: None, .. }) = self.inspect().await {
                return Hint::Released(None);
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Who has the lock. A shared lock is enough to know that nobody has, and onlookers do not see each other.
fn incumbent(path: &Path) -> io::Result<Option<Incumbent>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => read(&mut file).map(Some),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn read(file: &mut File) -> io::Result<Incumbent> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(VALUE_BYTES_MAX).read_to_end(&mut text)?;
    // The kernel, not the clock, ends this lock.
    Ok(Incumbent { value: Value::parse(String::from_utf8_lossy(&text).trim_end()), left: None })
}

fn write(file: &mut File, value: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    if value.is_empty() { Ok(()) } else { writeln!(file, "{value}") }
}

/// Whether the open file is still the one at the path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((open.dev(), open.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
