//! A fresh store seen as what directives need of it, and the short words in which cases speak to it.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, KeyName, Metadata, Recorder, SharedString, Unit};
use serde_json::{Value as JsonValue, json};
use stargate_base::Epoch;
use stargate_directive::doc::Doc;
use stargate_directive::item::{Column, ColumnType, Item, Reject, Rows, Table, Value};
use stargate_directive::kv::{Entry, Expected, Key, Keys, Purpose, Put, PutAnswer};
use stargate_directive::metrics::KV_CONFLICTS;
use stargate_directive::run::{Begin, Lease, NewRun, Run, RunId};
use stargate_directive::{Advance, Batch, Counts, Cursor, Persisted, SharedDirectives, canonical};
use stargate_queue::{Json, Result, SharedStore};
use tokio_postgres::SimpleQueryMessage;

use crate::fixture::Remove;
use crate::postgres::Database;
use crate::{ManualClock, start_of_time};

/// Whose data the cases write.
pub const TENANT: &str = "acme";
/// Of which project.
pub const PROJECT: &str = "core";
/// The directive of most cases.
pub const ISSUES: &str = "issues";
/// The topic of most cases.
pub const TOPIC: &str = "issues.changed";
/// How long a lease of a run lasts without a beat.
pub const RUN_LEASE: Duration = Duration::from_secs(90);

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Rows as text; what is null is `NULL`.
pub type Texts = Vec<Vec<String>>;

/// One adapter as what directives need.
#[derive(Clone)]
pub struct Opened {
    /// The queue, for terms of leaders.
    pub store: SharedStore,
    /// What the cases are about.
    pub directives: SharedDirectives,
    /// The same under a leader's epoch.
    pub led: Arc<dyn Fn(Epoch) -> SharedDirectives + Send + Sync>,
}

/// A fresh store with a hand-driven clock.
pub struct Ingest {
    /// What the cases are about.
    pub directives: SharedDirectives,
    /// All of it.
    pub opened: Opened,
    /// Its clock, also of every other handle on it.
    pub clock: ManualClock,
    another: Box<dyn Fn() -> Answer<Opened> + Send + Sync>,
    look: Box<dyn Fn(String) -> Answer<Texts> + Send + Sync>,
    /// Before the names of the store's own tables.
    schema: &'static str,
    remove: Remove,
}

impl std::fmt::Debug for Ingest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ingest").field("directives", &self.directives).finish_non_exhaustive()
    }
}

impl Ingest {
    /// A fresh store in a file of a folder of its own; `open` and `look`, which runs SQL behind the store's back, are the
    /// adapter's.
    pub async fn in_folder<F, Fut>(open: F, look: fn(PathBuf, String) -> Texts) -> Self
    where
        F: Fn(PathBuf, ManualClock) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Opened> + Send + 'static,
    {
        let folder = tempfile::tempdir().expect("a folder for the store");
        let path = folder.path().join("stargate.db");
        let clock = ManualClock::at(start_of_time());
        let opened = open(path.clone(), clock.clone()).await;
        let (also, file) = (clock.clone(), path.clone());
        Self {
            directives: opened.directives.clone(),
            opened,
            clock,
            another: Box::new(move || Box::pin(open(path.clone(), also.clone()))),
            look: Box::new(move |text| {
                let file = file.clone();
                Box::pin(async move { tokio::task::spawn_blocking(move || look(file, text)).await.unwrap() })
            }),
            schema: "",
            remove: Box::pin(async move { folder.close().expect("the folder of the store is removed") }),
        }
    }

    /// A fresh store in a Postgres database of its own; `open` is the adapter's and migrates what is empty.
    pub async fn in_postgres<F, Fut>(open: F) -> Self
    where
        F: Fn(String, ManualClock) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Opened> + Send + 'static,
    {
        let clock = ManualClock::at(start_of_time());
        let template_clock = clock.clone();
        let database = Database::create(async |url| drop(open(url, template_clock).await)).await;
        let url = database.url().to_owned();
        let opened = open(url.clone(), clock.clone()).await;
        let client = Arc::new(database.client().await);
        let also = clock.clone();
        Self {
            directives: opened.directives.clone(),
            opened,
            clock,
            another: Box::new(move || Box::pin(open(url.clone(), also.clone()))),
            look: Box::new(move |text| {
                let client = Arc::clone(&client);
                Box::pin(async move { texts(client.simple_query(&text).await.unwrap()) })
            }),
            schema: "stargate.",
            remove: Box::pin(database.remove()),
        }
    }

    /// Closes the store and removes its storage.
    pub async fn close(self) {
        drop((self.directives, self.opened, self.another, self.look));
        self.remove.await;
    }

    /// Opens the same storage once more, as another process would.
    pub async fn another(&self) -> SharedDirectives {
        (self.another)().await.directives
    }

    /// Runs SQL behind the store's back.
    pub async fn sql(&self, text: &str) -> Texts {
        (self.look)(text.to_owned()).await
    }

    /// Rows of one of the store's own tables.
    pub async fn rows_of_own(&self, table: &str) -> i64 {
        self.number(&format!("select count(*) from {}{table}", self.schema)).await
    }

    /// One number behind the store's back.
    pub async fn number(&self, text: &str) -> i64 {
        self.sql(text).await[0][0].parse().expect("a number")
    }

    /// Puts a value that must be stored; its version.
    pub async fn put(&self, put: Put) -> u64 {
        match self.directives.kv_put(put).await.expect("the store answers") {
            PutAnswer::Stored { version } => version,
            PutAnswer::Conflict { current } => panic!("a conflict with {current:?}"),
        }
    }

    /// A value, if it is there.
    pub async fn entry(&self, key: &Key) -> Option<Entry> {
        self.directives.kv_get(key).await.expect("the store answers")
    }

    /// Begins a run of [`ISSUES`] that must get the lease.
    pub async fn begin(&self, id: &str) -> Lease {
        self.begin_as(new_run(id)).await.0
    }

    /// Begins a run that must get the lease.
    pub async fn begin_as(&self, run: NewRun) -> (Lease, Run) {
        match self.directives.run_begin(run).await.expect("the store answers") {
            Begin::Begun { lease, run } => (lease, *run),
            held @ Begin::Held { .. } => panic!("{held:?}"),
        }
    }

    /// A run that must be there.
    pub async fn run(&self, id: &str) -> Run {
        self.directives.run(&RunId(id.to_owned())).await.unwrap().expect("the run is there")
    }

    /// Writes a batch that must be taken.
    pub async fn persist(&self, batch: Batch) -> Persisted {
        self.directives.persist(batch).await.expect("a good batch is written")
    }

    /// Writes a batch that must be refused; the code of the refusal.
    pub async fn refused(&self, batch: Batch) -> &'static str {
        let refused: Result<Persisted> = self.directives.persist(batch).await;
        refused.expect_err("a bad batch is refused").code()
    }

    /// Everything a batch may leave behind, to see that nothing is.
    pub async fn traces(&self) -> String {
        let mut all = String::new();
        for run in self.directives.runs(None, None, 100).await.unwrap() {
            all += &format!("{run:?}\n");
        }
        for entry in self.directives.kv_list("", None, 100).await.unwrap() {
            all += &format!("{entry:?}\n");
        }
        let filter = crate::ingest::everything();
        all += &format!("{:?}\n", self.directives.quarantine(filter).await.unwrap());
        all += &format!("{:?}\n", self.directives.outbox_next(TOPIC, None, 100).await.unwrap());
        all
    }

    /// Entity, version and title of every row of a table.
    pub async fn rows(&self, table: &str) -> Vec<(String, String, String)> {
        let text =
            format!("select entity_id, version, title from {table} order by tenant_id, directive, entity_id");
        self.sql(&text)
            .await
            .into_iter()
            .map(|row| (row[0].clone(), row[1].clone(), row[2].clone()))
            .collect()
    }
}

fn texts(messages: Vec<SimpleQueryMessage>) -> Texts {
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|column| row.get(column).unwrap_or("NULL").to_owned()).collect())
        }
        _ => None,
    };
    messages.into_iter().filter_map(row).collect()
}

/// How many conflicts are counted while this goes on, in the task that awaits it.
pub async fn conflicts_counted<T>(work: impl Future<Output = T>) -> u64 {
    let counted = Conflicts::default();
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|context| metrics::with_local_recorder(&counted, || work.as_mut().poll(context)))
        .await;
    counted.0.load(Ordering::Relaxed)
}

/// Counts conflicts and nothing else.
#[derive(Debug, Default)]
struct Conflicts(Arc<AtomicU64>);

impl Recorder for Conflicts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &metrics::Key, _: &Metadata<'_>) -> Counter {
        match key.name() {
            KV_CONFLICTS => Counter::from_arc(Arc::clone(&self.0)),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &metrics::Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &metrics::Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// A key of the project.
pub fn key(path: &str) -> Key {
    Key::new(TENANT, PROJECT, path).expect("a key")
}

/// The keys of [`ISSUES`].
pub fn keys() -> Keys {
    Keys::of(TENANT, PROJECT, ISSUES).expect("keys")
}

/// JSON as the store takes it.
pub fn raw(value: &JsonValue) -> Json {
    serde_json::value::to_raw_value(value).expect("a value that serialises")
}

/// A write of a value.
pub fn put(key: &Key, value: Option<JsonValue>, expected: Expected, request: &str) -> Put {
    Put {
        key: key.clone(),
        value: value.as_ref().map(raw),
        expected,
        request_id: request.to_owned(),
        writer: "meta-worker:issues".to_owned(),
        purpose: Purpose::Cursor,
        spec_ref: None,
        ttl: None,
    }
}

/// A run of [`ISSUES`].
pub fn new_run(id: &str) -> NewRun {
    run_of(id, TENANT, ISSUES)
}

/// A run of a tenant's directive.
pub fn run_of(id: &str, tenant: &str, directive: &str) -> NewRun {
    NewRun {
        id: RunId(id.to_owned()),
        directive: directive.to_owned(),
        tenant: tenant.to_owned(),
        project: PROJECT.to_owned(),
        engine: "embedded".to_owned(),
        workflow_id: format!("job-{id}"),
        worker: format!("worker-{id}"),
        lease: Keys::of(tenant, PROJECT, directive).expect("keys").run,
        lease_for: RUN_LEASE,
    }
}

/// The table of most cases: `title` and `size`.
pub fn table() -> Arc<Table> {
    table_of("items", &[("title", ColumnType::Text), ("size", ColumnType::Integer)])
}

/// A table.
pub fn table_of(name: &str, columns: &[(&str, ColumnType)]) -> Arc<Table> {
    let column = |&(name, kind): &(&str, ColumnType)| Column { name: name.to_owned(), kind };
    Arc::new(Table { name: name.to_owned(), columns: columns.iter().map(column).collect() })
}

/// An item for [`table`].
pub fn item(entity: &str, title: &str) -> Item {
    let body = json!({ "id": entity, "title": title });
    Item {
        entity_id: entity.to_owned(),
        hash: canonical::hash([Some(&Doc::from(&body))]),
        body: raw(&body),
        columns: vec![Value::Text(title.to_owned()), Value::Integer(title.len().try_into().unwrap())],
    }
}

/// Items `from..to` with one title.
pub fn items(range: std::ops::Range<u32>, title: &str) -> Vec<Item> {
    range.map(|number| item(&format!("e{number:05}"), title)).collect()
}

/// A record that cannot become an item.
pub fn reject(record: JsonValue, entity: Option<&str>) -> Reject {
    Reject {
        record: raw(&record),
        cause: "schema".to_owned(),
        reason: "/title is missing".to_owned(),
        entity_id: entity.map(str::to_owned),
    }
}

/// A cursor after so many items.
pub fn cursor(processed: u64) -> Cursor {
    Cursor {
        source_pointer: json!({ "after": processed }),
        processed_count: processed,
        checksum: format!("{processed:064x}"),
        batch_id: None,
        spec_ref: None,
    }
}

/// The cursor moves here with a page.
pub fn page(expected: Expected, processed: u64) -> Advance {
    Advance::Page { expected, cursor: cursor(processed), pages: 1, is_last: false }
}

/// A batch into [`table`], announced under [`TOPIC`].
pub fn batch(lease: &Lease, request: &str, items: Vec<Item>, advance: Advance) -> Batch {
    Batch {
        lease: lease.clone(),
        request_id: request.to_owned(),
        rows: Rows::Here { table: table(), items: Arc::new(items), topic: Some(TOPIC.into()) },
        rejects: Vec::new(),
        resolves: Vec::new(),
        replayed: false,
        advance,
    }
}

/// Counts in the order created, updated, unchanged, failed.
pub fn counts(created: u64, updated: u64, unchanged: u64, failed: u64) -> Counts {
    Counts { created, updated, unchanged, failed }
}

/// Every quarantined record.
pub fn everything() -> stargate_directive::quarantine::QuarantineFilter {
    stargate_directive::quarantine::QuarantineFilter {
        directive: None,
        resolved: true,
        before: None,
        limit: 100,
    }
}
