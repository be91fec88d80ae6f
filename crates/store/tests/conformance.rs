//! The contract of the store, run on both adapters. The cases are listed in `stargate_testkit::conformance`.

use std::sync::Arc;

use stargate_base::Clock;
use stargate_queue::SharedStore;
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::Fixture;

mod on_sqlite {
    stargate_testkit::queue_conformance!(crate::open_sqlite);
}

mod on_postgres {
    stargate_testkit::queue_conformance!(crate::open_postgres);
}

async fn open_sqlite() -> Fixture {
    Fixture::in_folder(|path, clock| async move {
        let options = sqlite::Options { clock: Clock::Manual(clock) };
        let store = Sqlite::open(&path, options).await.expect("SQLite opens");
        Arc::new(store) as SharedStore
    })
    .await
}

async fn open_postgres() -> Fixture {
    Fixture::in_postgres(|url, clock| async move {
        let options =
            postgres::Options { clock: Clock::Manual(clock), migrate: true, ..postgres::Options::default() };
        let store = Postgres::connect(&url, options).await.expect("Postgres connects");
        Arc::new(store) as SharedStore
    })
    .await
}
