//! A fresh store of each kind, on the real clock.

use std::sync::Arc;

use stargate_queue::SharedStore;
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::postgres::Database;

/// A store and what must live as long as it.
pub(crate) struct Fresh {
    pub(crate) store: SharedStore,
    keep: Keep,
}

enum Keep {
    Folder(tempfile::TempDir),
    Database(Database),
}

impl Fresh {
    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&folder.path().join("jobs.db"), sqlite::Options::default()).await.unwrap();
        Self { store: Arc::new(store), keep: Keep::Folder(folder) }
    }

    pub(crate) async fn postgres() -> Self {
        let options = || postgres::Options { migrate: true, ..postgres::Options::default() };
        let database = Database::create(async |url: String| {
            Postgres::connect(&url, options()).await.unwrap();
        })
        .await;
        let store = Postgres::connect(database.url(), options()).await.unwrap();
        Self { store: Arc::new(store), keep: Keep::Database(database) }
    }

    pub(crate) async fn close(self) {
        drop(self.store);
        match self.keep {
            Keep::Folder(folder) => drop(folder),
            Keep::Database(database) => database.remove().await,
        }
    }
}

/// Makes one test of each case and store.
macro_rules! on_both_stores {
    ($($case:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let fresh = crate::stores::Fresh::sqlite().await;
                super::$case(fresh.store.clone()).await;
                fresh.close().await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let fresh = crate::stores::Fresh::postgres().await;
                super::$case(fresh.store.clone()).await;
                fresh.close().await;
            })*
        }
    };
}
pub(crate) use on_both_stores;
