//! A namespace, a store, a source, and workers to be started and stopped.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use serde_json::value::RawValue;
use stargate_base::{ErrorClass, Tasks};
use stargate_directive::file::{self, Directive};
use stargate_directive::kv::Keys;
use stargate_directive::source::{Feed, ForeignSink, Page, Records, SourceError, Sources};
use stargate_directive::steps::{Assignment, Trouble};
use stargate_directive::{Cursor, Pointer, Run, RunId, SharedDirectives};
use stargate_store::sqlite::{Options, Sqlite};
use stargate_temporal::{Closed, Cluster, Host, ServeOptions, Settings, Status, serve};
use stargate_testkit::eventually;
use stargate_testkit::temporal::{Namespace, Server};
use tempfile::TempDir;
use temporalio_client::{
    Client, ClientOptions, Connection, ConnectionOptions, Url, WorkflowExecutionInfo,
    WorkflowFetchHistoryOptions,
};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// The queue of the directives here.
pub(crate) const QUEUE: &str = "meta-py";

/// A source of numbered pages. Its pointer is the number of a page.
#[derive(Debug)]
pub(crate) struct Reel {
    pub(crate) pages: u64,
    pub(crate) records: u64,
    /// A page is given only for a permit.
    pub(crate) gate: Semaphore,
    /// Errors to be given once in the place of a page.
    pub(crate) troubles: Mutex<Vec<(u64, SourceError)>>,
    pub(crate) opened: Mutex<Vec<Pointer>>,
}

/// More permits than any test has pages.
const OPEN: usize = 1_000_000;

impl Reel {
    pub(crate) fn new(pages: u64, records: u64) -> Self {
        let gate = Semaphore::new(OPEN);
        Self { pages, records, gate, troubles: Mutex::default(), opened: Mutex::default() }
    }

    /// Gives only so many pages until it is opened.
    pub(crate) fn closed_after(self, pages: usize) -> Self {
        Self { gate: Semaphore::new(pages), ..self }
    }

    pub(crate) fn troubled(self, page: u64, error: SourceError) -> Self {
        self.troubles.lock().unwrap().push((page, error));
        self
    }

    pub(crate) fn open_gate(&self) {
        self.gate.add_permits(OPEN);
    }
}

#[derive(Debug)]
struct Player(Arc<Reel>);

#[async_trait]
impl Sources for Player {
    async fn open(&self, _: &Directive, from: &Pointer) -> Result<Box<dyn Feed>, SourceError> {
        self.0.opened.lock().unwrap().push(from.clone());
        Ok(Box::new(Reader { reel: self.0.clone(), at: from.as_u64().unwrap_or(0) }))
    }

    async fn sink(&self, _: &Directive) -> Result<Option<Box<dyn ForeignSink>>, SourceError> {
        Ok(None)
    }
}

#[derive(Debug)]
struct Reader {
    reel: Arc<Reel>,
    at: u64,
}

#[async_trait]
impl Feed for Reader {
    async fn page(&mut self, _: u32) -> Result<Page, SourceError> {
        {
            let mut troubles = self.reel.troubles.lock().unwrap();
            if let Some(found) = troubles.iter().position(|(page, _)| *page == self.at) {
                return Err(troubles.remove(found).1);
            }
        }
        self.reel.gate.acquire().await.unwrap().forget();
        let first = self.at * self.reel.records;
        let records = (first..first + self.reel.records).map(|id| Ok(record(id))).collect();
        self.at += 1;
        let is_last = self.at == self.reel.pages;
        Ok(Page { records: Records::memory(records), next: Some(json!(self.at)), is_last })
    }

    async fn close(self: Box<Self>) {}
}

pub(crate) fn record(id: u64) -> Box<RawValue> {
    RawValue::from_string(json!({ "id": id, "title": format!("item {id}") }).to_string()).unwrap()
}

pub(crate) fn error(class: ErrorClass, retry_after: Option<Duration>) -> SourceError {
    let mut error = SourceError::new(class, "SOURCE_STATUS", "the source says no");
    error.retry_after = retry_after;
    error
}

/// What the activities get.
struct Program {
    directive: Directive,
    store: SharedDirectives,
    reel: Arc<Reel>,
    worker: String,
    tasks: Tasks,
}

impl Host for Program {
    fn plan(&self, directive: &str) -> Result<Directive, Trouble> {
        if directive != self.directive.name {
            return Err(Trouble::new(ErrorClass::Fatal, "DIRECTIVE_MISSING", "there is no such directive"));
        }
        Ok(self.directive.clone())
    }

    fn assignment(&self, directive: Directive, run: RunId, attempt: u32) -> Result<Assignment, Trouble> {
        Ok(Assignment {
            mapping: Arc::new(directive.mapping().unwrap()),
            workflow_id: stargate_temporal::workflow_id(&directive.name),
            directive: Arc::new(directive),
            store: self.store.clone(),
            sources: Arc::new(Player(self.reel.clone())),
            run,
            engine: stargate_temporal::ENGINE,
            worker: self.worker.clone(),
            attempt,
            tasks: self.tasks.clone(),
            watch: None,
            is_last_try: false,
            pages_max: None,
            page_size: None,
            progress: None,
        })
    }

    fn store(&self) -> SharedDirectives {
        self.store.clone()
    }
}

pub(crate) struct World {
    pub(crate) namespace: Namespace,
    pub(crate) cluster: Cluster,
    pub(crate) store: SharedDirectives,
    pub(crate) directive: Directive,
    pub(crate) reel: Arc<Reel>,
    folder: TempDir,
}

/// A worker that goes on.
pub(crate) struct Serving {
    stop: CancellationToken,
    task: JoinHandle<stargate_temporal::Result<()>>,
}

impl Serving {
    /// Stops it, and waits until it has.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap().unwrap();
    }
}

const FILE: &str = r#"
    type = "file"
    path = "none.jsonl"
"#;

impl World {
    pub(crate) async fn new(reel: Reel) -> Self {
        Self::with_source(reel, FILE).await
    }

    pub(crate) async fn with_source(reel: Reel, source: &str) -> Self {
        Self::on(Namespace::create(), reel, source).await
    }

    /// On a server of its own.
    pub(crate) async fn on_server(server: &Server, reel: Reel) -> Self {
        Self::on(server.namespace(), reel, FILE).await
    }

    async fn on(namespace: Namespace, reel: Reel, source: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&folder.path().join("stargate.db"), Options::default()).await.unwrap();
        let text = format!(
            "name = \"issues\"\nqueue = \"{QUEUE}\"\ntenant = \"acme\"\nproject = \"core\"\nheartbeat = \"5s\"\n\
             [source]\n{source}\n[item]\nkey = [\"/id\"]\n[sink]\ntable = \"items\"\n"
        );
        let directive = file::parse(Path::new("issues.toml"), &text, &[QUEUE.to_owned()]).unwrap();
        // A new namespace is not known everywhere at once.
        let cluster = eventually(PATIENCE, "the namespace", || async {
            Cluster::connect(&settings(&namespace, "client")).await.map_err(|error| error.to_string())
        });
        let cluster = cluster.await;
        Self { namespace, cluster, store: Arc::new(store), directive, reel: Arc::new(reel), folder }
    }

    pub(crate) fn options() -> ServeOptions {
        ServeOptions { graceful: Duration::from_secs(10), ..ServeOptions::new(vec![QUEUE.to_owned()]) }
    }

    pub(crate) async fn serve(&self, worker: &str, options: ServeOptions) -> Serving {
        let cluster = Cluster::connect(&settings(&self.namespace, worker)).await.unwrap();
        let tasks = Tasks::new();
        let program = Program {
            directive: self.directive.clone(),
            store: self.store.clone(),
            reel: self.reel.clone(),
            worker: worker.to_owned(),
            tasks: tasks.clone(),
        };
        let stop = CancellationToken::new();
        let task = tasks.spawn(serve(cluster, Arc::new(program), options, stop.clone()));
        Serving { stop, task }
    }

    /// Starts a run.
    pub(crate) async fn start(&self) -> RunId {
        let started = self.cluster.start(&self.directive).await.unwrap();
        assert!(!started.existing);
        started.run
    }

    /// How the run closed, once it has.
    pub(crate) async fn closed(&self, run: &RunId) -> Closed {
        eventually(PATIENCE, "the run's end", || async {
            self.cluster.ended("issues", run).await.unwrap().ok_or_else(|| "it goes on".to_owned())
        })
        .await
    }

    pub(crate) async fn completed(&self, run: &RunId) -> Closed {
        let closed = self.closed(run).await;
        assert_eq!(closed.status, Status::Completed, "{closed:?}");
        closed
    }

    /// Waits until so many pages are accounted for.
    pub(crate) async fn pages(&self, run: &RunId, pages: u64) {
        eventually(PATIENCE, "pages", || async {
            let done = self.run(run).await.map_or(0, |run| run.pages);
            if done >= pages { Ok(()) } else { Err(format!("{done} pages")) }
        })
        .await;
    }

    pub(crate) async fn run(&self, run: &RunId) -> Option<Run> {
        self.store.run(run).await.unwrap()
    }

    pub(crate) async fn cursor(&self) -> Option<Cursor> {
        let keys = Keys::of("acme", "core", "issues").unwrap();
        let entry = self.store.kv_get(&keys.cursor).await.unwrap()?;
        Some(serde_json::from_str(entry.value.get()).unwrap())
    }

    pub(crate) fn rows(&self) -> u64 {
        let connection = rusqlite::Connection::open(self.folder.path().join("stargate.db")).unwrap();
        let rows = connection.query_row("select count(*) from items", [], |row| row.get::<_, i64>(0));
        u64::try_from(rows.unwrap()).unwrap()
    }

    /// Writes the history of the newest execution down, if that is asked for.
    pub(crate) async fn record(&self, name: &str) {
        self.record_of(name, "directive:issues", None).await;
    }

    /// The history of a certain execution.
    pub(crate) async fn record_of(&self, name: &str, workflow_id: &str, run: Option<&RunId>) {
        if std::env::var_os("STARGATE_TEST_RECORD").is_none() {
            return;
        }
        let client = client(&self.namespace, "recorder").await;
        let info = WorkflowExecutionInfo::builder()
            .namespace(self.namespace.name.clone())
            .workflow_id(workflow_id)
            .maybe_run_id(run.map(|run| run.0.clone()))
            .build();
        let history = info.bind_untyped(client).fetch_history(WorkflowFetchHistoryOptions::builder().build());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories");
        let text = history.to_json().await.unwrap();
        std::fs::write(folder.join(format!("{name}.json")), text).unwrap();
    }
}

/// A client of somebody else.
pub(crate) async fn client(namespace: &Namespace, identity: &str) -> Client {
    let url = Url::parse(&format!("http://{}", namespace.address)).unwrap();
    let options = ConnectionOptions::new(url).identity(identity).build();
    let connection = Connection::connect(options).await.unwrap();
    Client::new(connection, ClientOptions::new(namespace.name.clone()).build()).unwrap()
}

pub(crate) fn settings(namespace: &Namespace, identity: &str) -> Settings {
    Settings {
        address: namespace.address.clone(),
        namespace: namespace.name.clone(),
        identity: identity.to_owned(),
        api_key: None,
        tls: None,
    }
}
