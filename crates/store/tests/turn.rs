//! The turn to write to a SQLite file: who waits for it in vain is told so, and by whom.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use stargate_base::ErrorClass;
use stargate_queue::store::JobFilter;
use stargate_queue::{Error, JobId, KindSpec, NewJob, Profile, Store};
use stargate_store::sqlite::{Options, Sqlite};
use stargate_testkit::eventually;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

async fn store() -> (Sqlite, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&path(&dir), Options::default()).await.unwrap();
    store.kinds_register(vec![KindSpec::new("a", &Profile::default()).unwrap()]).await.unwrap();
    (store, dir)
}

fn path(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join("s.db")
}

/// Another holder of one of the two files, as another process is: with an open file of its own.
fn other(dir: &TempDir, name: &str) -> File {
    File::options().read(true).write(true).open(dir.path().join(format!("s.db.{name}"))).unwrap()
}

/// Waits until somebody stands in the queue.
async fn somebody_waits(dir: &TempDir) {
    let intent = other(dir, "writer-intent");
    eventually(PATIENCE, "somebody to wait for the turn", || async {
        match intent.try_lock() {
            Err(_) => Ok(()),
            Ok(()) => intent.unlock().map_or_else(|e| Err(e.to_string()), |()| Err("nobody".to_owned())),
        }
    })
    .await;
}

async fn add(store: &Sqlite) -> Result<JobId, Error> {
    let job = NewJob::of("a", &serde_json::json!({})).unwrap();
    Ok(store.enqueue(vec![job]).await?[0].id)
}

async fn ids(store: &Sqlite) -> Vec<JobId> {
    let jobs = store.jobs(JobFilter { limit: 100, ..JobFilter::default() }).await.unwrap();
    let mut ids: Vec<JobId> = jobs.into_iter().map(|job| job.id).collect();
    ids.sort_unstable();
    ids
}

fn check_refusal(error: Error) {
    assert_eq!((error.class(), error.code()), (ErrorClass::RetryableTransient, "STORE_UNAVAILABLE"));
    assert!(error.to_string().contains("let it go on or end it"), "{error}");
    let Error::Store { source, .. } = error else { unreachable!() };
    let holder = format!("process {} (", std::process::id());
    assert!(source.to_string().contains(&holder), "{source}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_its_turn_in_vain_is_told_who_keeps_it_and_nothing_is_lost() {
    let (store, dir) = store().await;
    let first = add(&store).await.unwrap();
    let lock = other(&dir, "writer-lock");
    lock.lock().unwrap();
    let late = Sqlite::open(&path(&dir), Options::default()).await.unwrap();
    let (one, two, three) = tokio::join!(add(&store), add(&store), add(&late));
    check_refusal(one.unwrap_err());
    check_refusal(two.unwrap_err());
    check_refusal(three.unwrap_err());
    for reader in [&store, &late] {
        assert_eq!(ids(reader).await, [first], "reading goes on");
    }
    // Once more: it stands in the same queue again.
    check_refusal(add(&store).await.unwrap_err());
    lock.unlock().unwrap();
    let second = add(&store).await.unwrap();
    assert_eq!(ids(&store).await, [first, second], "what was refused is not done after all");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_comes_after_a_wait_is_taken_and_given_back() {
    let (store, dir) = store().await;
    let lock = other(&dir, "writer-lock");
    for _ in 0..3 {
        lock.lock().unwrap();
        let let_go = async {
            somebody_waits(&dir).await;
            lock.unlock().unwrap();
        };
        let (added, ()) = tokio::join!(add(&store), let_go);
        added.unwrap();
    }
    assert_eq!(ids(&store).await.len(), 3);
    is_free(&lock).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_nobody_wants_any_more_is_given_back() {
    let (store, dir) = store().await;
    let lock = other(&dir, "writer-lock");
    lock.lock().unwrap();
    // One that is gone altogether afterwards stands in the queue too.
    let gone = Sqlite::open(&path(&dir), Options::default()).await.unwrap();
    let (one, two) = tokio::join!(add(&store), add(&gone));
    check_refusal(one.unwrap_err());
    check_refusal(two.unwrap_err());
    drop(gone);
    lock.unlock().unwrap();
    is_free(&lock).await;
    add(&store).await.unwrap();
    is_free(&lock).await;
    drop(store);
}

/// Waits until the turn can be had, and that it can be had again and again.
async fn is_free(lock: &File) {
    for _ in 0..10 {
        eventually(PATIENCE, "the turn", || async { lock.try_lock().map_err(|error| error.to_string()) })
            .await;
        lock.unlock().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_made_in_time_is_refused_and_made_later() {
    let dir = tempfile::tempdir().unwrap();
    let lock = File::create(dir.path().join("s.db.writer-lock")).unwrap();
    lock.lock().unwrap();
    check_refusal(Sqlite::open(&path(&dir), Options::default()).await.unwrap_err());
    lock.unlock().unwrap();
    Sqlite::open(&path(&dir), Options::default()).await.unwrap().check().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_stopped_while_it_looked_who_waits_holds_up_nobody() {
    let (store, dir) = store().await;
    let intent = other(&dir, "writer-intent");
    intent.lock().unwrap();
    let lock = other(&dir, "writer-lock");
    lock.lock().unwrap();
    let let_go = async {
        waits_in_kernel(&dir.path().join("s.db.writer-lock")).await;
        lock.unlock().unwrap();
    };
    let (added, ()) = tokio::join!(add(&store), let_go);
    added.unwrap();
}

/// Waits until a thread waits for the lock on a file.
async fn waits_in_kernel(path: &Path) {
    use std::os::unix::fs::MetadataExt as _;
    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    eventually(PATIENCE, "a thread that waits", || async {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let waits = locks.lines().any(|line| line.contains("-> FLOCK") && line.contains(&inode));
        if waits { Ok(()) } else { Err(locks) }
    })
    .await;
}
