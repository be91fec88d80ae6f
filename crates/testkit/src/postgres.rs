//! A private Postgres database for every test.
//!
//! `cargo xtask test` starts one cluster and names it in [`URL_VARIABLE`]. From there each test gets a database
//! of its own, copied from a migrated template, so that tests run in parallel and migrate only once.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::{Client, NoTls};

use crate::environment;

/// Names the cluster for tests: a superuser's URL.
pub const URL_VARIABLE: &str = "STARGATE_TEST_POSTGRES_URL";

/// One migration at a time over all test processes: an arbitrary number, used for nothing else.
const TEMPLATE_LOCK: i64 = 0x5741_5247_4154_4531;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A database that belongs to one test.
#[derive(Debug)]
pub struct Database {
    admin: String,
    name: String,
    url: String,
}

impl Database {
    /// A copy of the migrated template. `migrate` is given the URL of the template when it does not exist yet.
    pub async fn create(migrate: impl AsyncFnOnce(String)) -> Self {
        let admin = admin_url();
        let client = connect(&admin).await;
        let template = template(&client, &admin, migrate).await;
        let name = format!("case_{}_{}_{template}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run(&client, &format!("create database \"{name}\" template \"{template}\"")).await;
        Self { url: with_database(&admin, &name), admin, name }
    }

    /// An empty database, for tests of migrations.
    pub async fn create_empty() -> Self {
        let admin = admin_url();
        let client = connect(&admin).await;
        let name = format!("empty_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run(&client, &format!("create database \"{name}\"")).await;
        Self { url: with_database(&admin, &name), admin, name }
    }

    /// How to connect to it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A connection of the test's own, to look behind the store's back.
    pub async fn client(&self) -> Client {
        connect(&self.url).await
    }

    /// Removes it, whoever is still connected. A failed test does not come here: its database stays for a look.
    pub async fn remove(self) {
        let client = connect(&self.admin).await;
        run(&client, &format!("drop database if exists \"{}\" with (force)", self.name)).await;
    }
}

fn admin_url() -> String {
    environment::required(URL_VARIABLE, "no Postgres for tests")
}

/// The name of the template, made now if need be. It carries the build of the test binary, because another build
/// may bring other migrations.
async fn template(client: &Client, admin: &str, migrate: impl AsyncFnOnce(String)) -> String {
    let name = template_name();
    client
        .query_one("select pg_advisory_lock($1)", &[&TEMPLATE_LOCK])
        .await
        .expect("the lock for the template");
    let there = client.query_opt("select 1 from pg_database where datname = $1", &[&name]).await.unwrap();
    if there.is_none() {
        let raw = format!("{name}_raw");
        run(client, &format!("drop database if exists \"{raw}\" with (force)")).await;
        run(client, &format!("create database \"{raw}\"")).await;
        migrate(with_database(admin, &raw)).await;
        // Copying needs a template without connections, and the store may still be closing its own.
        run(client, &format!("alter database \"{raw}\" with allow_connections false")).await;
        client
            .query("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = $1", &[&raw])
            .await
            .expect("end of the template's connections");
        // Renamed last: a run that is killed half way leaves no half-migrated template.
        run(client, &format!("alter database \"{raw}\" rename to \"{name}\"")).await;
    }
    client.query_one("select pg_advisory_unlock($1)", &[&TEMPLATE_LOCK]).await.unwrap();
    name
}

fn template_name() -> String {
    let mut hash = DefaultHasher::new();
    let program = std::env::current_exe().expect("the path of the running test");
    program.hash(&mut hash);
    let built =
        std::fs::metadata(&program).and_then(|data| data.modified()).expect("the age of the running test");
    built.hash(&mut hash);
    format!("template_{:016x}", hash.finish())
}

/// The same URL with another database.
fn with_database(url: &str, database: &str) -> String {
    let (base, query) =
        url.split_once('?').map_or((url, String::new()), |(base, rest)| (base, format!("?{rest}")));
    let authority = base.find("://").map_or(0, |at| at + 3);
    let end = base[authority..].find('/').map_or(base.len(), |at| authority + at);
    format!("{}/{database}{query}", &base[..end])
}

async fn connect(url: &str) -> Client {
    let (client, connection) = match tokio_postgres::connect(url, NoTls).await {
        Ok(pair) => pair,
        Err(error) => panic!("the Postgres for tests named in {URL_VARIABLE} does not answer: {error}"),
    };
    #[expect(clippy::disallowed_methods, reason = "ends with its client, which lives as long as one test")]
    tokio::spawn(async move {
        // An error here reaches the test through its client.
        drop(connection.await);
    });
    client
}

async fn run(client: &Client, statement: &str) {
    if let Err(error) = client.batch_execute(statement).await {
        let detail = error.as_db_error().map(ToString::to_string).unwrap_or_default();
        panic!("the Postgres for tests refused {statement:?}: {error} {detail}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_in_a_url_is_replaced_and_its_options_are_kept() {
        let url = with_database("postgres://me:pw@127.0.0.1:5433/postgres?sslmode=disable", "case_1");
        assert_eq!(url, "postgres://me:pw@127.0.0.1:5433/case_1?sslmode=disable");
        assert_eq!(with_database("postgres://me@host", "x"), "postgres://me@host/x");
        let socket = with_database("postgres:///postgres?host=/tmp/pg", "x");
        assert_eq!(socket, "postgres:///x?host=/tmp/pg");
    }
}
