//! What the store promises about directives, run on both adapters. The cases are listed in
//! `stargate_testkit::conformance`.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::types::ValueRef;
use stargate_base::Clock;
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::ingest::{Ingest, Opened, Texts};

mod on_sqlite {
    stargate_testkit::directive_conformance!(crate::open_sqlite);
}

mod on_postgres {
    stargate_testkit::directive_conformance!(crate::open_postgres);
}

async fn open_postgres() -> Ingest {
    Ingest::in_postgres(|url, clock| async move {
        let options =
            postgres::Options { clock: Clock::Manual(clock), migrate: true, ..postgres::Options::default() };
        let store = Arc::new(Postgres::connect(&url, options).await.expect("Postgres connects"));
        let leader = Arc::clone(&store);
        Opened {
            store: store.clone(),
            directives: store,
            led: Arc::new(move |epoch| Arc::new(leader.led(epoch))),
        }
    })
    .await
}

async fn open_sqlite() -> Ingest {
    let open = |path: PathBuf, clock| async move {
        let options = sqlite::Options { clock: Clock::Manual(clock) };
        let store = Arc::new(Sqlite::open(&path, options).await.expect("SQLite opens"));
        let leader = Arc::clone(&store);
        Opened {
            store: store.clone(),
            directives: store,
            led: Arc::new(move |epoch| Arc::new(leader.led(epoch))),
        }
    };
    Ingest::in_folder(open, look).await
}

/// Runs SQL behind the store's back.
fn look(path: PathBuf, text: String) -> Texts {
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut statement = connection.prepare(&text).unwrap();
    let width = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut found = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        found.push((0..width).map(|column| as_text(row.get_ref(column).unwrap())).collect());
    }
    found
}

fn as_text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text).into_owned(),
    }
}
