//! Leaders whose epochs a store issues: the store's history and the leader's own view agree.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use std::sync::Arc;
use std::time::Duration;

use stargate_base::{Epoch, Tasks};
use stargate_leader::{Config, Epochs as _, Error, Holder, Leadership, Service, Settings, Unlocked};
use stargate_queue::leadership::{SUPERSEDED, overlaps};
use stargate_queue::{KindSpec, NewJob, SharedStore};
use stargate_store::sqlite::{Options, Sqlite};
use stargate_store::terms::Terms;
use stargate_testkit::eventually;

/// For everything that has to happen sooner or later.
const PATIENCE: Duration = Duration::from_secs(30);

async fn open(folder: &tempfile::TempDir) -> SharedStore {
    let store = Sqlite::open(&folder.path().join("s.db"), Options::default()).await.unwrap();
    let store: SharedStore = Arc::new(store);
    let kind = KindSpec { name: "a".into(), max_attempts: 5, max_crashes: 3 };
    store.kinds_register(vec![kind]).await.unwrap();
    store
}

fn holder(instance: &str) -> Holder {
    Holder { instance: instance.to_owned(), address: Some(format!("http://{instance}:8080")) }
}

/// A node that needs no lock: it leads from the start, whoever else does.
fn node(instance: &str, store: &SharedStore, tasks: &Tasks) -> Leadership {
    let config = Config::new(Settings::of(holder(instance))).unwrap();
    let epochs = Arc::new(Terms(store.clone()));
    let (service, leadership) = Service::new(config, Arc::new(Unlocked), epochs);
    tasks.spawn(service.run(tasks.stopping()));
    leadership
}

fn job() -> NewJob {
    NewJob::of("a", &serde_json::json!({})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_deposes_a_leader_whose_lock_did_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let (first_tasks, second_tasks) = (Tasks::new(), Tasks::new());
    let first = node("one", &store, &first_tasks);
    let old = tokio::time::timeout(PATIENCE, first.acquired()).await.unwrap();
    assert_eq!(old.epoch(), Epoch::new(1));
    store.under(old.epoch()).enqueue(vec![job()]).await.unwrap();

    let second = node("two", &store, &second_tasks);
    let new = tokio::time::timeout(PATIENCE, second.acquired()).await.unwrap();
    assert_eq!(new.epoch(), Epoch::new(2));
    let refused = store.under(old.epoch()).enqueue(vec![job()]).await.unwrap_err();
    assert_eq!(refused.code(), "NOT_LEADER");
    store.under(new.epoch()).enqueue(vec![job()]).await.unwrap();
    drop(new);
    second_tasks.join().await;
    let ended = eventually(PATIENCE, "the end of the second term", || async {
        let terms = store.terms(10).await.unwrap();
        let second = terms.into_iter().find(|term| term.epoch == Epoch::new(2)).unwrap();
        if second.reason.is_some() { Ok(second) } else { Err(format!("{second:?}")) }
    })
    .await;
    assert_eq!(ended.reason.as_deref(), Some("shutdown"));
    assert_eq!((ended.instance.as_str(), ended.address.as_deref()), ("two", Some("http://two:8080")));

    old.deposed();
    drop(old);
    first_tasks.join().await;
    let terms = store.terms(10).await.unwrap();
    let oldest = terms.last().unwrap();
    assert_eq!(oldest.reason.as_deref(), Some(SUPERSEDED), "what the store wrote stays");
    assert_eq!(overlaps(&terms), [], "{terms:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_issue_an_epoch_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = Sqlite::open(&folder.path().join("s.db"), Options::default()).await.unwrap();
    file.freeze("elsewhere").await.unwrap();
    let error = Terms(Arc::new(file)).issue(&holder("one")).await.unwrap_err();
    assert!(matches!(&error, Error::Epoch { problem } if problem.contains("elsewhere")), "{error:?}");
}
