//! A pool over a fresh SQLite store.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use stargate_artifact::scratch;
use stargate_base::{Backoff, Tasks};
use stargate_jobs::exec::Exec;
use stargate_queue::{Job, JobId, NewJob, Pool, PoolConfig, Profile, Registry, SharedStore, State};
use stargate_repo::SharedPushes;
use stargate_store::sqlite::{Options, Sqlite};

pub(crate) struct Fixture {
    pub(crate) store: SharedStore,
    pub(crate) dir: tempfile::TempDir,
    tasks: Tasks,
}

/// Retries at once, so that tests need not wait.
pub(crate) fn profile() -> Profile {
    let backoff = Backoff { first: Duration::ZERO, factor: 1.0, cap: Duration::ZERO, jitter: 0.0 };
    Profile { backoff, max_attempts: 3, timeout: Duration::from_secs(30), ..Profile::default() }
}

pub(crate) fn scratch(dir: &Path) -> scratch::Root {
    scratch::Root::new(dir.join("scratch"), scratch::Limits::default(), false)
}

pub(crate) fn exec(dir: &Path, script: &str) -> Arc<Exec> {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let mut exec = Exec::new(command, scratch(dir));
    exec.inherited = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
    exec.grace = Duration::from_millis(200);
    Arc::new(exec)
}

async fn opened() -> (tempfile::TempDir, Arc<Sqlite>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&dir.path().join("stargate.db"), Options::default()).await.unwrap();
    (dir, Arc::new(store))
}

impl Fixture {
    pub(crate) async fn start(register: impl FnOnce(&Path, &mut Registry)) -> Self {
        let (dir, store) = opened().await;
        let mut registry = Registry::new();
        register(dir.path(), &mut registry);
        Self::of(dir, store, registry).await
    }

    /// With what the same store keeps about repositories.
    pub(crate) async fn start_with_pushes(
        register: impl FnOnce(&SharedPushes, &mut Registry),
    ) -> (Self, SharedPushes) {
        let (dir, store) = opened().await;
        let pushes: SharedPushes = store.clone();
        let mut registry = Registry::new();
        register(&pushes, &mut registry);
        (Self::of(dir, store, registry).await, pushes)
    }

    async fn of(dir: tempfile::TempDir, store: SharedStore, registry: Registry) -> Self {
        let config = PoolConfig {
            heartbeat: Duration::from_millis(100),
            lease: Duration::from_secs(10),
            poll: Duration::from_millis(100),
            shutdown_timeout: Duration::from_millis(200),
            stop_grace: Duration::from_secs(2),
            ..PoolConfig::default()
        };
        let pool = Pool::start(store.clone(), registry, config).await.unwrap();
        let tasks = Tasks::new();
        tasks.spawn(pool.run(tasks.stopping()));
        Self { store, dir, tasks }
    }

    pub(crate) async fn enqueue(&self, kind: &str, payload: Value) -> JobId {
        self.store.enqueue(vec![NewJob::of(kind, &payload).unwrap()]).await.unwrap()[0].id
    }

    /// Waits until the job satisfies something.
    pub(crate) async fn until(&self, id: JobId, what: impl Fn(&Job) -> bool) -> Job {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let job = self.store.job(id).await.unwrap().expect("the job is gone");
            if what(&job) {
                return job;
            }
            assert!(Instant::now() < deadline, "still {job:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn finished(&self, id: JobId) -> Job {
        self.until(id, |job| job.state.is_finished()).await
    }

    pub(crate) async fn run(&self, kind: &str, payload: Value) -> Job {
        let id = self.enqueue(kind, payload).await;
        self.finished(id).await
    }

    pub(crate) async fn event_names(&self, id: JobId) -> Vec<String> {
        self.store.events(id, 0, 100).await.unwrap().into_iter().map(|event| event.event).collect()
    }

    pub(crate) async fn stop(&self) {
        tokio::time::timeout(Duration::from_secs(20), self.tasks.join())
            .await
            .expect("the pool does not stop");
    }
}

#[track_caller]
pub(crate) fn result(job: &Job) -> Value {
    assert_eq!(job.state, State::Done, "{job:?}");
    serde_json::from_str(job.result.as_ref().unwrap().get()).unwrap()
}
