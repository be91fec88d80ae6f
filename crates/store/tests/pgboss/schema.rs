//! The statements fit a real schema of pg-boss, and one that is unknown is refused.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use stargate_queue::handler::{Failure, Registry};
use stargate_queue::intake::{Config, Intake, Source as _};
use stargate_queue::{Context, Profile};
use stargate_store::pgboss::{Options, PgBoss, VERSIONS};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::boss::Boss;
use stargate_testkit::postgres::Database;

fn options(schema: &str) -> Options {
    Options {
        schema: schema.to_owned(),
        queues: vec!["there".into(), "missing".into()],
        statement_timeout: Some(Duration::from_secs(5)),
        ..Options::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pg_boss_accepts_every_statement() {
    let database = Database::create_empty().await;
    let boss = Boss::start(database.url()).await;
    let client = database.client().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/pgboss");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        client.prepare(&text).await.unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
        count += 1;
    }
    assert!(count >= 10, "only {count} statements found");
    drop((client, boss));
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_of_any_name_is_checked_and_an_unknown_version_refused() {
    let database = Database::create_empty().await;
    let nowhere = PgBoss::new(database.url(), options("pgboss")).unwrap();
    let error = nowhere.check().await.unwrap_err();
    assert!(error.class().is_poison() && error.to_string().contains("not in this schema"), "{error}");

    let boss = Boss::start_in(database.url(), "\"MyBoss\"").await;
    boss.create_queue("there", json!({})).await;
    let source = PgBoss::new(database.url(), options("\"MyBoss\"")).unwrap();
    let report = source.check().await.unwrap();
    assert_eq!((report.version, report.queues_missing), (*VERSIONS.end(), vec!["missing".to_owned()]));
    assert_eq!(source.look(&[]).await.unwrap(), []);

    let client = database.client().await;
    for version in [VERSIONS.start() - 1, VERSIONS.end() + 1] {
        client.batch_execute(&format!("update \"MyBoss\".version set version = {version}")).await.unwrap();
        let error = source.check().await.unwrap_err();
        let text = error.to_string();
        assert!(error.class().is_poison(), "{text}");
        assert!(text.contains(&format!("version {version}")) && text.contains("44 to 46"), "{text}");
    }
    drop((client, boss, source, nowhere));
    database.remove().await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_without_a_connection() {
    let none = Options { queues: vec![], ..options("pgboss") };
    let refused =
        |options| PgBoss::new("postgres://nobody@127.0.0.1:1/none", options).unwrap_err().to_string();
    assert!(refused(none).contains("queues"));
    assert!(refused(options("drop table")).contains("schema"));
    assert!(refused(Options { queues: vec!["no spaces".into()], ..options("pgboss") }).contains("queues"));
}

#[tokio::test]
async fn a_queue_whose_kind_nothing_runs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("jobs.db"), sqlite::Options::default()).await.unwrap();
    let source = Arc::new(PgBoss::new("postgres://nobody@127.0.0.1:1/none", options("pgboss")).unwrap());
    let kinds = BTreeMap::from([("missing".to_owned(), "there".to_owned())]);
    let config = Config { kinds, ..Config::default() };
    let intake = Intake::new(Arc::new(store), source, config).unwrap();
    let error = intake.guard(&mut Registry::new()).unwrap_err().to_string();
    assert!(error.contains("\"there\"") && error.contains("[kinds]"), "{error}");
    let mut registry = Registry::new();
    let handler = async |_: Context, _: serde_json::Value| Ok::<(), Failure>(());
    registry.handle("there", Profile::default(), handler).unwrap();
    intake.guard(&mut registry).unwrap();
}
