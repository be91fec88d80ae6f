//! Seeded random histories against a model of the rules, run on both adapters.

use std::sync::Arc;

use stargate_base::Clock;
use stargate_queue::SharedStore;
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::{Fixture, simulation};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_histories_on_sqlite_agree_with_the_model() {
    simulation::run("random_histories_on_sqlite", 30, open_sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_histories_on_postgres_agree_with_the_model() {
    simulation::run("random_histories_on_postgres", 8, || open_postgres(false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_histories_on_postgres_agree_with_the_model_where_the_dead_stay() {
    simulation::run("random_histories_on_postgres_where_the_dead_stay", 8, || open_postgres(true)).await;
}

async fn open_sqlite() -> Fixture {
    Fixture::in_folder(|path, clock| async move {
        let options = sqlite::Options { clock: Clock::Manual(clock) };
        let store = Sqlite::open(&path, options).await.expect("SQLite opens");
        Arc::new(store) as SharedStore
    })
    .await
}

async fn open_postgres(floors: bool) -> Fixture {
    Fixture::in_postgres(move |url, clock| async move {
        let options = postgres::Options {
            clock: Clock::Manual(clock),
            migrate: true,
            floors,
            ..postgres::Options::default()
        };
        let store = Postgres::connect(&url, options).await.expect("Postgres connects");
        Arc::new(store) as SharedStore
    })
    .await
}
