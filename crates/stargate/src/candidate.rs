//! This process as a candidate for leadership: the lock of the configuration, the epochs of the store, and a thread
//! of its own for both.
//!
//! The thread has a single-threaded runtime: handlers that hog the main one cannot delay a renewal. The store is asked
//! on the main one, where its connections live; they must not end with this thread, which is done long before the
//! last jobs are.

use std::path::PathBuf;
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

use crate::config::Settings;
use crate::config::leader::{Backend, Redis};
use crate::config::store_url::StoreUrl;
use crate::failure::{Failure, Result};

/// How long the lock may take to be given back once no work is left.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// This process as a candidate.
pub(crate) struct Candidate {
    leadership: Leadership,
    /// Where the lock is, for people.
    place: String,
    thread: JoinHandle<()>,
    ended: CancellationToken,
}

impl Candidate {
    /// Begins to compete for leadership, until `stop`.
    pub(crate) fn start(
        settings: &Settings,
        store: &SharedStore,
        address: Option<String>,
        stop: CancellationToken,
    ) -> Result<Self> {
        let config = settings.leader.config(address)?;
        let lease = lease(settings)?;
        let place = lease.place();
        let epochs = StoreEpochs { terms: Terms(Arc::clone(store)), runtime: Handle::current() };
        let (service, leadership) = Service::new(config, lease, Arc::new(epochs));
        let cannot = |error: std::io::Error| Failure::io("cannot start the thread of leadership", &error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let ended = CancellationToken::new();
        let over = ended.clone().drop_guard();
        let thread = std::thread::Builder::new()
            .name("stargate-leader".to_owned())
            .spawn(move || {
                let _over = over;
                runtime.block_on(service.run(stop));
                // A look-up or a file that hangs must not hold up the end.
                runtime.shutdown_background();
            })
            .map_err(cannot)?;
        Ok(Self { leadership, place, thread, ended })
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
        if self.thread.join().is_err() {
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

/// The file of the lock: in the home, but beside a SQLite store that lies elsewhere, because whoever uses that store
/// must find the same lock.
pub(crate) fn lock_file(settings: &Settings) -> PathBuf {
    match &settings.store {
        StoreUrl::Sqlite(path) if path.parent() != Some(settings.home.as_path()) => {
            let mut name = path.clone().into_os_string();
            name.push(".leader-lock");
            name.into()
        }
        _ => settings.home.join("leader.lock"),
    }
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
