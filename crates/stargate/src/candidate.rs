//! This process as a candidate for leadership: the lock of the configuration, the epochs of the store, and a thread
//! of its own for both.
//!
//! The thread has a single-threaded runtime: handlers that hog the main one cannot delay a renewal. The store is asked
//! on the main one, where its connections live; they must not end with this thread, which is done long before the
//! last jobs are.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use stargate_leader::{
    Epoch, Epochs, Error, FileLease, Holder, Leadership, Lease, Reason, RedisLease, Service, Unlocked,
};
use stargate_queue::SharedStore;
use stargate_store::terms::Terms;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::config::leader::{Backend, Redis};
use crate::config::store_url::StoreUrl;
use crate::config::{DEFAULT_STORE, Settings};
use crate::failure::{Failure, Result};

/// How long the lock may take to be given back once no work is left.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// This process as a candidate.
pub(crate) struct Candidate {
    leadership: Leadership,
    /// Where the lock is, for people.
    place: String,
    /// What will run in the thread.
    service: Option<Service>,
    thread: Option<JoinHandle<()>>,
    ended: CancellationToken,
}

impl Candidate {
    /// Sets up everything that may be set wrongly, and takes no part yet.
    pub(crate) fn new(settings: &Settings, store: &SharedStore, address: Option<String>) -> Result<Self> {
        let config = settings.leader.config(address)?;
        let lease = lease(settings)?;
        let place = lease.place();
        let epochs = StoreEpochs { terms: Terms(Arc::clone(store)), runtime: Handle::current() };
        let (service, leadership) = Service::new(config, lease, Arc::new(epochs));
        Ok(Self { leadership, place, service: Some(service), thread: None, ended: CancellationToken::new() })
    }

    /// Begins to compete for leadership, until `stop`.
    pub(crate) fn begin(&mut self, stop: CancellationToken) -> Result<()> {
        let Some(service) = self.service.take() else { return Ok(()) };
        let cannot = |error: std::io::Error| Failure::io("cannot start the thread of leadership", &error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let over = self.ended.clone().drop_guard();
        let thread = std::thread::Builder::new()
            .name("stargate-leader".to_owned())
            .spawn(move || {
                let _over = over;
                runtime.block_on(service.run(stop));
                // A look-up or a file that hangs must not hold up the end.
                runtime.shutdown_background();
            })
            .map_err(cannot)?;
        self.thread = Some(thread);
        Ok(())
    }

    /// The handle for those who act as leader.
    pub(crate) fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Where the lock is, without any password.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Cancelled when this node takes no part any more: after the stop, or because the thread died.
    pub(crate) fn over(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// Waits until it is known who leads, or why not.
    pub(crate) async fn first_standing(&self) {
        let mut changes = self.leadership.watch();
        loop {
            let standing = self.leadership.standing();
            let other = |leader: &Holder| leader.instance != self.leadership.instance().instance;
            let known = standing.term.is_some() || standing.leader.as_ref().is_some_and(other);
            if known || standing.trouble.is_some() || !changes.changed().await {
                return;
            }
        }
    }

    /// Waits until everything is given back, after the stop.
    pub(crate) async fn ended(self) {
        if tokio::time::timeout(END_TIMEOUT, self.ended.cancelled()).await.is_err() {
            tracing::warn!(place = self.place, "the leader lock was not given back in time; it will expire");
            return;
        }
        if self.thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(place = self.place, "the thread of leadership died");
        }
    }
}

/// The lock of the configuration.
pub(crate) fn lease(settings: &Settings) -> Result<Arc<dyn Lease>> {
    Ok(match &settings.leader.backend {
        Backend::File => {
            let path = lock_file(settings);
            if let Some(dir) = path.parent() {
                std::fs::create_dir_all(dir).map_err(|error| {
                    Failure::io(format!("cannot make the directory {}", dir.display()), &error)
                        .help("choose a place you may write to with --home DIR or STARGATE_HOME")
                })?;
            }
            Arc::new(FileLease::new(path))
        }
        Backend::Redis(redis) => Arc::new(redis_lease(redis)?),
        Backend::None => Arc::new(Unlocked),
    })
}

/// The file of the lock: beside a SQLite store, and named after it alone, because whoever uses that store must find the
/// same lock, whatever their home and however they name the store; in the home for a store that is a server.
pub(crate) fn lock_file(settings: &Settings) -> PathBuf {
    const IN_HOME: &str = "leader.lock";
    let StoreUrl::Sqlite(path) = &settings.store else { return settings.home.join(IN_HOME) };
    let path = resolved(path);
    if path.file_name() == Some(DEFAULT_STORE.as_ref()) {
        return path.with_file_name(IN_HOME);
    }
    let mut name = path.into_os_string();
    name.push(".leader-lock");
    name.into()
}

/// The one name of a file among those that lead to it. Before it is there, that of the place where it will be.
fn resolved(path: &Path) -> PathBuf {
    let in_parent = || {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(parent.canonicalize().ok()?.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(in_parent).unwrap_or_else(|| path.to_owned())
}

fn redis_lease(redis: &Redis) -> Result<RedisLease> {
    RedisLease::new(redis_settings(redis)?).map_err(|error| Failure::config(error.to_string()))
}

/// How to reach Redis; reads the certificate of its authority.
pub(crate) fn redis_settings(redis: &Redis) -> Result<stargate_leader::redis::Settings> {
    let authority = redis.authority.as_ref().map(|path| {
        std::fs::read(path).map_err(|error| {
            Failure::config(format!("leader.authority: cannot read {}: {error}", path.display()))
                .help("name the PEM file with the certificate of the authority that signed that of Redis")
        })
    });
    Ok(stargate_leader::redis::Settings {
        url: redis.url.clone(),
        key: redis.key.clone(),
        replicas: redis.replicas,
        authority: authority.transpose()?,
    })
}

/// The epochs of the store, asked on the main runtime.
#[derive(Debug)]
struct StoreEpochs {
    terms: Terms,
    runtime: Handle,
}

impl StoreEpochs {
    async fn on_main<T: Send + 'static>(
        &self,
        call: impl Future<Output = stargate_leader::Result<T>> + Send + 'static,
    ) -> stargate_leader::Result<T> {
        // A caller that gives up takes the call with it.
        let call = AbortOnDropHandle::new(self.runtime.spawn(call));
        call.await.unwrap_or_else(|error| Err(Error::Epoch { problem: error.to_string() }))
    }
}

#[async_trait]
impl Epochs for StoreEpochs {
    async fn issue(&self, holder: &Holder) -> stargate_leader::Result<Epoch> {
        let (terms, holder) = (self.terms.clone(), holder.clone());
        self.on_main(async move { terms.issue(&holder).await }).await
    }

    async fn ended(&self, epoch: Epoch, reason: Reason) -> stargate_leader::Result<()> {
        let terms = self.terms.clone();
        self.on_main(async move { terms.ended(epoch, reason).await }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::layer::Environment;
    use crate::config::{Flags, load};

    fn lock_of(home: &Path, store: &str) -> PathBuf {
        let (home, store) = (Some(home.to_owned()), Some(store.to_owned()));
        lock_file(&load(Flags { home, store, ..Flags::default() }, &Environment::default()).unwrap())
    }

    /// The same place, as seen from the working directory.
    fn relative(path: &Path) -> PathBuf {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        up.join(path.canonicalize().unwrap().strip_prefix("/").unwrap())
    }

    #[test]
    fn a_sqlite_store_has_one_lock_whoever_uses_it_and_however_it_is_named() {
        let (owner, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let link = other.path().join("link");
        std::os::unix::fs::symlink(owner.path(), &link).unwrap();
        for (file, lock) in [("stargate.db", "leader.lock"), ("jobs.db", "jobs.db.leader-lock")] {
            let expected = owner.path().canonicalize().unwrap().join(lock);
            for there in [false, true] {
                if there {
                    std::fs::write(owner.path().join(file), "").unwrap();
                }
                for home in [owner.path(), other.path()] {
                    for folder in [owner.path(), &relative(owner.path()), &link, &owner.path().join(".")] {
                        let store = format!("sqlite:{}", folder.join(file).display());
                        assert_eq!(lock_of(home, &store), expected, "{store} from {}", home.display());
                    }
                }
            }
            let linked = other.path().join(file);
            std::os::unix::fs::symlink(owner.path().join(file), &linked).unwrap();
            assert_eq!(lock_of(other.path(), &format!("sqlite:{}", linked.display())), expected);
        }
    }

    #[test]
    fn without_a_file_of_its_own_the_lock_of_a_store_is_in_the_home() {
        let home = tempfile::tempdir().unwrap();
        let lock = lock_of(home.path(), "postgres://db.example/app");
        assert_eq!(lock, home.path().join("leader.lock"));
    }
}
