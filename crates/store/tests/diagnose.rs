//! What a look at a store's health finds.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use stargate_base::Clock;
use stargate_base::clock::ManualClock;
use stargate_queue::store::{Finding, Level};
use stargate_queue::{Store, WorkerId};
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::postgres::Database;
use stargate_testkit::start_of_time;

async fn connect(url: &str, clock: Clock) -> Postgres {
    let options = postgres::Options { clock, migrate: true, ..postgres::Options::default() };
    Postgres::connect(url, options).await.unwrap()
}

async fn database() -> Database {
    Database::create(async |url| connect(&url, Clock::default()).await.close().await).await
}

fn named<'a>(findings: &'a [Finding], name: &str) -> &'a Finding {
    findings
        .iter()
        .find(|finding| finding.name == name)
        .unwrap_or_else(|| panic!("no {name} in {findings:#?}"))
}

fn each_bad_one_has_a_remedy(findings: &[Finding]) {
    for finding in findings {
        assert_eq!(finding.remedy.is_some(), finding.level != Level::Ok, "{finding:?}");
    }
}

/// Beats alone are committed without waiting for the disk; whatever comes after them is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_sqlite_store_syncs_what_comes_after_a_beat() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("s.db"), sqlite::Options::default()).await.unwrap();
    for _ in 0..3 {
        store.beat(WorkerId(1)).await.unwrap();
        let findings = store.diagnose().await.unwrap();
        let durability = named(&findings, "durability");
        assert!(durability.detail.contains("synchronous full"), "{durability:?}");
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sqlite_store_tells_how_it_is_written_and_where_it_went() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("s.db"), sqlite::Options::default()).await.unwrap();
    let findings = store.diagnose().await.unwrap();
    each_bad_one_has_a_remedy(&findings);
    for (name, part) in [
        ("durability", "journal_mode wal, synchronous full"),
        ("integrity", "no damage"),
        ("file size", "free"),
        ("log", "write-ahead log"),
        ("room", "free beside the file"),
    ] {
        let finding = named(&findings, name);
        assert!(finding.detail.contains(part), "{finding:?}");
    }
    assert_eq!(named(&findings, "durability").level, Level::Ok);
    assert!(findings.iter().all(|finding| finding.name != "moved"));

    store.freeze("postgres://elsewhere/jobs").await.unwrap();
    let findings = store.diagnose().await.unwrap();
    let moved = named(&findings, "moved");
    assert!(moved.level == Level::Fail && moved.detail.contains("postgres://elsewhere/jobs"), "{moved:?}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_postgres_store_tells_what_makes_it_slow_or_forgetful() {
    let database = database().await;
    let store = connect(database.url(), Clock::default()).await;
    let findings = store.diagnose().await.unwrap();
    each_bad_one_has_a_remedy(&findings);
    for (name, part) in [
        ("server", "Postgres"),
        ("clock", "between this machine"),
        ("wake-up", "LISTEN/NOTIFY gets through"),
        ("durability", "fsync"),
        ("vacuum", "rows in stargate.job"),
        ("oldest transaction", ""),
        ("vacuum horizon", ""),
        ("connections", "in use"),
        ("table sizes", "job_history"),
    ] {
        let finding = named(&findings, name);
        assert!(finding.detail.contains(part), "{finding:?}");
    }
    drop(store);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_a_postgres_store_lose_or_drag_is_warned_of() {
    let database = database().await;
    let client = database.client().await;
    let row = client.query_one("select current_database()", &[]).await.unwrap();
    let name: &str = row.get(0);
    let settings = format!(
        "alter database \"{name}\" set synchronous_commit = off; alter table stargate.job set (autovacuum_enabled = false)"
    );
    client.batch_execute(&settings).await.unwrap();
    let store = connect(database.url(), Clock::default()).await;
    let findings = store.diagnose().await.unwrap();
    let durability = named(&findings, "durability");
    assert!(
        durability.level == Level::Warn && durability.detail.contains("synchronous_commit"),
        "{durability:?}"
    );
    let vacuum = named(&findings, "vacuum");
    assert!(vacuum.level == Level::Warn && vacuum.detail.contains("autovacuum is off"), "{vacuum:?}");
    drop((store, client));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_stays_open_is_named() {
    let database = database().await;
    // The store's clock stands years ahead of the server's, so whatever is open has been open for long.
    let clock = Clock::Manual(ManualClock::at(start_of_time()));
    let store = connect(database.url(), clock).await;
    let client = database.client().await;
    client
        .batch_execute("set application_name = 'nightly report'; begin; select count(*) from stargate.job")
        .await
        .unwrap();
    let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let findings = store.diagnose().await.unwrap();
    let oldest = named(&findings, "oldest transaction");
    assert_eq!(oldest.level, Level::Warn, "{oldest:?}");
    for part in [format!("process {pid}"), "nightly report".into(), "idle in transaction".into()] {
        assert!(oldest.detail.contains(&part), "{part} in {oldest:?}");
    }
    assert!(oldest.remedy.as_deref().is_some_and(|remedy| remedy.contains(&pid.to_string())), "{oldest:?}");
    client.batch_execute("rollback").await.unwrap();
    let findings = store.diagnose().await.unwrap();
    assert!(!named(&findings, "oldest transaction").detail.contains(&format!("process {pid} ")));
    drop((store, client));
    database.remove().await;
}
