//! What the cases need: a store of each kind, a database with pg-boss, and worker processes that can be dropped.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use stargate_base::{Backoff, Tasks};
use stargate_queue::handler::{Failure, Registry};
use stargate_queue::intake::{Config, Intake, Source};
use stargate_queue::pressure::PressureConfig;
use stargate_queue::{Context, Pool, PoolConfig, Profile, SharedStore};
use stargate_store::pgboss::{Options, PgBoss};
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::boss::Boss;
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::proxy::Proxy;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::faulty::Faulty;

/// Long enough for a loaded machine; nothing waits so long when it works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The queue in pg-boss and the kind here.
pub(crate) const QUEUE: &str = "clips";

/// A store, pg-boss, and what the handler did.
pub(crate) struct Stage {
    pub(crate) store: SharedStore,
    pub(crate) boss: Boss,
    pub(crate) database: Database,
    pub(crate) script: Arc<Script>,
    ours: Option<Database>,
    folder: tempfile::TempDir,
}

/// What the handler does, and what it did.
#[derive(Default)]
pub(crate) struct Script {
    /// The payloads of all executions, in order.
    runs: Mutex<Vec<Value>>,
    /// Rung by the test to let a handler that waits go on.
    pub(crate) go: Notify,
}

impl Script {
    pub(crate) fn runs(&self) -> Vec<Value> {
        self.runs.lock().unwrap().clone()
    }

    pub(crate) fn runs_of(&self, name: &str) -> usize {
        self.runs().iter().filter(|data| data["name"] == name).count()
    }

    pub(crate) async fn has_begun(&self, name: &str, times: usize) {
        eventually(PATIENCE, &format!("{name} to begin for the {times}. time"), || async {
            let runs = self.runs_of(name);
            if runs >= times { Ok(()) } else { Err(format!("{runs} runs")) }
        })
        .await;
    }

    /// `fail`: fails so many times; `invalid`: fails for good; `wait`: until the test says go; `millis`: so long.
    async fn run(&self, context: Context, data: Value) -> Result<Value, Failure> {
        self.runs.lock().unwrap().push(data.clone());
        if u64::from(context.attempt()) <= data["fail"].as_u64().unwrap_or(0) {
            return Err(Failure::transient(format!("attempt {} fails", context.attempt())));
        }
        if data["invalid"] == true {
            return Err(Failure::invalid("it will never work"));
        }
        if data["wait"] == true {
            tokio::select! {
                () = self.go.notified() => {}
                () = context.stopping().cancelled() => return Err(Failure::transient("told to stop")),
            }
        }
        if let Some(millis) = data["millis"].as_u64() {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        Ok(json!({ "did": data["name"] }))
    }
}

impl Stage {
    pub(crate) async fn sqlite() -> Self {
        Self::new(None).await
    }

    pub(crate) async fn postgres() -> Self {
        let migrate = async |url: String| connect(&url).await.close().await;
        Self::new(Some(Database::create(migrate).await)).await
    }

    async fn new(ours: Option<Database>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), ours.as_ref().map(Database::url)).await;
        let database = Database::create_empty().await;
        let boss = Boss::start(database.url()).await;
        Self { store, boss, database, script: Arc::default(), ours, folder }
    }

    /// The same store, opened as another process does.
    pub(crate) async fn another_store(&self) -> SharedStore {
        open(self.folder.path(), self.ours.as_ref().map(Database::url)).await
    }

    pub(crate) async fn close(self) {
        drop((self.store, self.boss));
        self.database.remove().await;
        if let Some(ours) = self.ours {
            ours.remove().await;
        }
    }

    pub(crate) fn source(&self) -> PgBoss {
        self.source_at(self.database.url())
    }

    pub(crate) fn source_at(&self, url: &str) -> PgBoss {
        let options = Options {
            queues: vec![QUEUE.to_owned()],
            statement_timeout: Some(Duration::from_secs(2)),
            ..Options::default()
        };
        PgBoss::new(url, options).unwrap()
    }

    /// The source behind a proxy that can forget its connections.
    pub(crate) async fn proxied(&self) -> (Proxy, PgBoss) {
        let url: url::Url = self.database.url().parse().unwrap();
        let address = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(5432));
        let proxy = Proxy::start(&address).await;
        let source = self.source_at(&self.database.url().replace(&address, &proxy.address()));
        (proxy, source)
    }

    /// A worker process with everything.
    pub(crate) async fn worker(&self) -> Worker {
        self.worker_with(Arc::new(self.source()), 4).await
    }

    pub(crate) async fn worker_with(&self, source: Arc<dyn Source>, concurrency: usize) -> Worker {
        worker(self.store.clone(), self.script.clone(), source, concurrency).await
    }

    /// As [`Stage::worker_with`], with a store of its own, and so that nothing of it is left when it is killed.
    pub(crate) async fn mortal(&self, source: Arc<dyn Source>) -> Mortal {
        let store = Arc::new(Faulty::new(self.another_store().await));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let working = worker(store.clone(), self.script.clone(), source, 4);
        let worker = runtime.spawn(working).await.unwrap();
        Mortal { store, runtime, _worker: worker }
    }

    /// An intake without a pool, for steps one by one.
    pub(crate) async fn intake(&self, source: Arc<dyn Source>) -> Intake {
        self.store.kinds_register(registry(self.script.clone()).specs()).await.unwrap();
        intake(self.store.clone(), source)
    }

    /// Waits until pg-boss tells this state of a job.
    pub(crate) async fn until(&self, id: &str, state: &str) -> Value {
        self.until_in(QUEUE, id, state).await
    }

    pub(crate) async fn until_in(&self, queue: &str, id: &str, state: &str) -> Value {
        eventually(PATIENCE, &format!("job {id} to be {state} in pg-boss"), || async {
            let job = self.boss.job(queue, id).await;
            if job["state"] == state { Ok(job) } else { Err(format!("{job} after {:?}", self.script.runs())) }
        })
        .await
    }

    /// Has pg-boss's next maintenance give up what is active, as it would after some time.
    pub(crate) async fn given_up(&self) {
        let client = self.database.client().await;
        client
            .batch_execute("update pgboss.job set expire_seconds = 0 where state = 'active'")
            .await
            .unwrap();
    }

    /// Nothing is left to be told to pg-boss.
    pub(crate) async fn all_settled(&self) {
        let filter = || stargate_queue::intake::LinkFilter {
            source: "pgboss".into(),
            job: None,
            ended: false,
            after: None,
            limit: 100,
        };
        eventually(PATIENCE, "every link to be closed", || async {
            let links = self.store.links(filter()).await.unwrap();
            if links.is_empty() { Ok(()) } else { Err(format!("{links:?}")) }
        })
        .await;
    }
}

async fn connect(url: &str) -> Postgres {
    let options = postgres::Options { migrate: true, ..postgres::Options::default() };
    Postgres::connect(url, options).await.unwrap()
}

async fn open(folder: &Path, url: Option<&str>) -> SharedStore {
    match url {
        Some(url) => Arc::new(connect(url).await),
        None => {
            let file = folder.join("jobs.db");
            Arc::new(Sqlite::open(&file, sqlite::Options::default()).await.unwrap())
        }
    }
}

fn intake(store: SharedStore, source: Arc<dyn Source>) -> Intake {
    let config = Config { kinds: BTreeMap::new(), poll: Duration::from_millis(200), ahead_max: 20 };
    Intake::new(store, source, config).unwrap()
}

fn registry(script: Arc<Script>) -> Registry {
    let mut registry = Registry::new();
    // Its own backoff would be noticed: what the application asked for counts.
    let hour = Duration::from_secs(3600);
    let profile =
        Profile { backoff: Backoff { first: hour, cap: hour, ..Backoff::RECONNECT }, ..Profile::default() };
    let run = move |context: Context, data: Value| {
        let script = script.clone();
        async move { script.run(context, data).await }
    };
    registry.handle(QUEUE, profile, run).unwrap();
    registry
}

async fn worker(
    store: SharedStore,
    script: Arc<Script>,
    source: Arc<dyn Source>,
    concurrency: usize,
) -> Worker {
    let intake = intake(store.clone(), source);
    let mut registry = registry(script);
    intake.guard(&mut registry).unwrap();
    let pool = Pool::start(store, registry, PoolConfig { concurrency, ..quick() }).await.unwrap();
    let (stop, tasks) = (CancellationToken::new(), Tasks::new());
    tasks.spawn(pool.run(stop.clone()));
    tasks.spawn(intake.run(stop.clone(), stop.clone()));
    Worker { stop, tasks }
}

/// Times that fit a test.
fn quick() -> PoolConfig {
    PoolConfig {
        heartbeat: Duration::from_millis(200),
        lease: Duration::from_millis(1500),
        poll: Duration::from_millis(500),
        shutdown_timeout: Duration::from_secs(5),
        stop_grace: Duration::from_millis(200),
        pressure: PressureConfig { load_threshold: 1e9, ..PressureConfig::default() },
        ..PoolConfig::default()
    }
}

/// A pool and an intake.
pub(crate) struct Worker {
    stop: CancellationToken,
    tasks: Tasks,
}

impl Worker {
    /// In good order.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.tasks.join().await;
    }
}

/// A worker that can die as a killed process does: in the middle of everything and without a word.
pub(crate) struct Mortal {
    store: Arc<Faulty>,
    runtime: tokio::runtime::Runtime,
    _worker: Worker,
}

impl Mortal {
    pub(crate) fn kill(self) {
        // The heartbeat has a thread of its own.
        self.store.refuse_beats.store(true, Ordering::SeqCst);
        self.runtime.shutdown_background();
    }
}

/// Makes one test of each case and store.
macro_rules! on_both_stores {
    ($($case:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let stage = crate::stage::Stage::sqlite().await;
                super::$case(&stage).await;
                stage.close().await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let stage = crate::stage::Stage::postgres().await;
                super::$case(&stage).await;
                stage.close().await;
            })*
        }
    };
}
pub(crate) use on_both_stores;

/// A source whose every step can be made to fail, before or after it took effect.
#[derive(Debug)]
pub(crate) struct Broken<S> {
    pub(crate) inner: S,
    pub(crate) at: Break,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
    /// After the jobs are accepted here and before they are acknowledged there.
    Acknowledging,
    /// After they are acknowledged there and before that is known here.
    Acknowledged,
    /// Before an end is written there.
    Settling,
    /// After an end is written there and before that is known here.
    Settled,
}

fn away<T>() -> stargate_queue::Result<T> {
    Err(stargate_queue::Error::Store {
        operation: "go on",
        class: stargate_base::ErrorClass::RetryableTransient,
        hint: None,
        source: "this process is meant to die here".into(),
    })
}

struct Dying<'a>(&'a dyn stargate_queue::intake::Accept);

#[async_trait]
impl stargate_queue::intake::Accept for Dying<'_> {
    async fn accept(
        &self,
        offers: Vec<stargate_queue::intake::Offer>,
    ) -> stargate_queue::Result<Vec<stargate_queue::intake::Answer>> {
        self.0.accept(offers).await?;
        away()
    }
}

#[async_trait]
impl<S: Source> Source for Broken<S> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn queues(&self) -> &[String] {
        self.inner.queues()
    }

    async fn take(
        &self,
        limit: usize,
        except: &[String],
        accept: &dyn stargate_queue::intake::Accept,
    ) -> stargate_queue::Result<stargate_queue::intake::Taken> {
        match self.at {
            Break::Acknowledging => self.inner.take(limit, except, &Dying(accept)).await,
            Break::Acknowledged => {
                self.inner.take(limit, except, accept).await?;
                away()
            }
            _ => self.inner.take(limit, except, accept).await,
        }
    }

    async fn look(
        &self,
        items: &[stargate_queue::intake::Claim],
    ) -> stargate_queue::Result<Vec<stargate_queue::intake::Standing>> {
        if self.at == Break::Acknowledged { away() } else { self.inner.look(items).await }
    }

    async fn settle(
        &self,
        item: &stargate_queue::intake::Claim,
        ending: &stargate_queue::intake::Ending,
    ) -> stargate_queue::Result<stargate_queue::intake::Settled> {
        match self.at {
            Break::Settling => away(),
            Break::Settled => {
                self.inner.settle(item, ending).await?;
                away()
            }
            _ => self.inner.settle(item, ending).await,
        }
    }
}
