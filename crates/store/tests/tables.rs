//! What the store promises about repositories, pushes and tokens, run on both adapters. The cases are listed in
//! `stargate_testkit::conformance`.

use stargate_base::Clock;
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::tables::{Opened, Tables};

mod on_sqlite {
    stargate_testkit::tables_conformance!(crate::open_sqlite);
}

mod on_postgres {
    stargate_testkit::tables_conformance!(crate::open_postgres);
}

async fn open_sqlite() -> Tables {
    Tables::in_folder(|path, clock| async move {
        let options = sqlite::Options { clock: Clock::Manual(clock) };
        Opened::of(Sqlite::open(&path, options).await.expect("SQLite opens"))
    })
    .await
}

async fn open_postgres() -> Tables {
    Tables::in_postgres(|url, clock| async move {
        let options =
            postgres::Options { clock: Clock::Manual(clock), migrate: true, ..postgres::Options::default() };
        Opened::of(Postgres::connect(&url, options).await.expect("Postgres connects"))
    })
    .await
}
