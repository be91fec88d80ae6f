//! The relay over real stores, to real servers, files and listeners.

mod http;
mod notify;
mod outbox;
mod places;
mod receiver;

use std::sync::Arc;
use std::time::Duration;

use stargate_base::{Clock, Secret, Tasks};
use stargate_directive::store::SharedDirectives;
use stargate_jobs::relay::{Destination, Relay, Settings, Topic};
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{Options, Sqlite};
use stargate_testkit::postgres::Database;
use stargate_testkit::{ManualClock, start_of_time};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use outbox::TOPIC;

const KEY: &str = "hmac-canary";
/// Longer than a lock lasts.
const LOCK_OVER: Duration = Duration::from_secs(31);

/// A store whose clock is set by hand: what is locked stays so until the test says otherwise.
struct Fixture {
    store: SharedDirectives,
    clock: ManualClock,
    dir: tempfile::TempDir,
    database: Option<Database>,
    tasks: Tasks,
}

impl Fixture {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(start_of_time());
        let options = Options { clock: Clock::Manual(clock.clone()) };
        let store = Arc::new(Sqlite::open(&dir.path().join("stargate.db"), options).await.unwrap());
        Self { store, clock, dir, database: None, tasks: Tasks::new() }
    }

    async fn over_postgres() -> Self {
        let clock = ManualClock::at(start_of_time());
        let open = async |url: &str, clock: &ManualClock| {
            let clock = Clock::Manual(clock.clone());
            let options = postgres::Options { clock, migrate: true, ..postgres::Options::default() };
            Arc::new(Postgres::connect(url, options).await.unwrap())
        };
        let database = Database::create(async |url| drop(open(&url, &clock).await)).await;
        let store = open(database.url(), &clock).await;
        let dir = tempfile::tempdir().unwrap();
        Self { store, clock, dir, database: Some(database), tasks: Tasks::new() }
    }

    async fn remove(self) {
        drop(self.store);
        if let Some(database) = self.database {
            database.remove().await;
        }
    }

    /// A relay of this process, with what stops it and what kills it.
    fn relay(&self, to: Destination) -> (CancellationToken, JoinHandle<()>) {
        self.relay_with(to, &Settings { allow_private: true, ..Settings::default() })
    }

    fn relay_with(&self, to: Destination, settings: &Settings) -> (CancellationToken, JoinHandle<()>) {
        let topic = Topic { name: TOPIC.into(), to };
        let relay = Relay::new(topic, settings, self.store.clone(), "test").unwrap();
        let stop = CancellationToken::new();
        (stop.clone(), self.tasks.spawn(relay.run(stop)))
    }
}

fn http(url: &str) -> Destination {
    Destination::Http { url: url.to_owned(), secret: Some(Secret::new(KEY)) }
}
