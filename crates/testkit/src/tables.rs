//! A fresh store seen through all of its contracts: the queue, repositories and pushes, tokens, audited actions.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use stargate_access::{Audit, SharedAudit, Tokens};
use stargate_queue::{SharedStore, Store};
use stargate_repo::{Pushes, SharedPushes};

use crate::fixture::Fixture;
use crate::postgres::Database;
use crate::{ManualClock, start_of_time};

/// One adapter as each of its contracts.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The queue.
    pub store: SharedStore,
    /// Repositories and pushes.
    pub pushes: SharedPushes,
    /// Tokens.
    pub tokens: Arc<dyn Tokens>,
    /// Audited actions.
    pub audit: SharedAudit,
}

impl Opened {
    /// Wraps an adapter.
    pub fn of<A: Store + Pushes + Tokens + Audit>(adapter: A) -> Self {
        let adapter = Arc::new(adapter);
        Self { store: adapter.clone(), pushes: adapter.clone(), tokens: adapter.clone(), audit: adapter }
    }
}

/// Opens the same storage once more, as another process would.
type Another = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Opened> + Send>> + Send + Sync>;

/// A fresh store with a hand-driven clock.
pub struct Tables {
    /// Its queue, with the short words of its cases.
    pub queue: Fixture,
    /// Repositories and pushes.
    pub pushes: SharedPushes,
    /// Tokens.
    pub tokens: Arc<dyn Tokens>,
    /// Audited actions.
    pub audit: SharedAudit,
    another: Another,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Tables {
    /// A fresh store in a file of a folder of its own; `open` is the adapter's.
    pub async fn in_folder<F, Fut>(open: F) -> Self
    where
        F: Fn(PathBuf, ManualClock) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Opened> + Send + 'static,
    {
        let folder = tempfile::tempdir().expect("a folder for the store");
        let path = folder.path().join("stargate.db");
        let clock = ManualClock::at(start_of_time());
        let remove = Box::pin(async move { folder.close().expect("the folder of the store is removed") });
        let also = clock.clone();
        Self::new(clock, remove, move || open(path.clone(), also.clone())).await
    }

    /// A fresh store in a Postgres database of its own; `open` is the adapter's and migrates what is empty.
    pub async fn in_postgres<F, Fut>(open: F) -> Self
    where
        F: Fn(String, ManualClock) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Opened> + Send + 'static,
    {
        let clock = ManualClock::at(start_of_time());
        let template_clock = clock.clone();
        let database = Database::create(async |url| drop(open(url, template_clock).await)).await;
        let url = database.url().to_owned();
        let also = clock.clone();
        Self::new(clock, Box::pin(database.remove()), move || open(url.clone(), also.clone())).await
    }

    async fn new<F, Fut>(clock: ManualClock, remove: crate::fixture::Remove, open: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Opened> + Send + 'static,
    {
        let opened = open().await;
        let no_other = Box::new(|| unreachable!("Tables::another opens the store again"));
        let queue = Fixture::new(opened.store, clock, no_other, remove).await;
        let another: Another = Box::new(move || Box::pin(open()));
        Self { queue, pushes: opened.pushes, tokens: opened.tokens, audit: opened.audit, another }
    }

    /// Opens the same storage once more, as another process would.
    pub async fn another(&self) -> Opened {
        (self.another)().await
    }

    /// Closes the store and removes its storage.
    pub async fn close(self) {
        drop((self.pushes, self.tokens, self.audit));
        self.queue.close().await;
    }
}
