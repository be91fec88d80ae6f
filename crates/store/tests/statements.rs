//! Every statement file is accepted by a freshly migrated database: no table or column in it is misspelt.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use std::path::Path;

use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::postgres::Database;

/// Files of several statements, which cannot be prepared: what the migrator needs before there is anything, and the beginning of a
/// leader's transaction.
const SEVERAL: [&str; 3] = ["migration_table.sql", "begin.sql", "begin_guarded.sql"];

/// The statements of one store: names and texts.
fn statements(store: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql").join(store);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        found.push((name, std::fs::read_to_string(&path).unwrap()));
    }
    assert!(found.len() > 50, "only {} statements found for {store}", found.len());
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_accepts_every_statement() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.db");
    Sqlite::open(&file, sqlite::Options::default()).await.unwrap().close().await;
    let connection = rusqlite::Connection::open(file).unwrap();
    for (name, text) in statements("sqlite") {
        connection.prepare(&text).unwrap_or_else(|error| panic!("sql/sqlite/{name}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_accepts_every_statement() {
    let options = || postgres::Options { migrate: true, ..postgres::Options::default() };
    let database =
        Database::create(async |url| Postgres::connect(&url, options()).await.unwrap().close().await).await;
    let client = database.client().await;
    for (name, text) in statements("postgres") {
        let accepted = match SEVERAL.contains(&name.as_str()) {
            true => client.batch_execute(&format!("{text}; rollback")).await,
            false => client.prepare(&text).await.map(drop),
        };
        accepted.unwrap_or_else(|error| panic!("sql/postgres/{name}: {error:?}"));
    }
    drop(client);
    database.remove().await;
}
