//! The contract of the store, run on Postgres.

use std::sync::Arc;

use stargate_base::Clock;
use stargate_queue::SharedStore;
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::{Fixture, simulation};

mod cases {
    stargate_testkit::queue_conformance!(crate::open_postgres);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_histories_on_postgres_agree_with_the_model() {
    simulation::run("postgres", 10, open_postgres).await;
}

async fn open_postgres() -> Fixture {
    Fixture::in_postgres(|url, clock| async move {
        let options = Options { clock: Clock::Manual(clock), migrate: true, ..Options::default() };
        let store = Postgres::connect(&url, options).await;
        Arc::new(store.expect("Postgres opens")) as SharedStore
    })
    .await
}
