//! A source, a store and the binary between them.

use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::process::{Program, Running, free_port};
use stargate_testkit::source_server::SourceServer;
use stargate_testkit::temporal::Namespace;
use tokio_postgres::SimpleQueryMessage;

use crate::{code, stderr, stdout};

/// For everything that has to happen sooner or later.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// What executes runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Embedded,
    Temporal,
}

/// Where a test takes place. A store alone means the embedded engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) engine: Engine,
}

impl From<Kind> for Place {
    fn from(kind: Kind) -> Self {
        Self { kind, engine: Engine::Embedded }
    }
}

/// One test's surroundings.
pub(crate) struct Stage {
    pub(crate) program: Program,
    pub(crate) server: SourceServer,
    database: Option<Database>,
    /// Where its workflows are, on Temporal.
    pub(crate) namespace: Option<Namespace>,
}

/// How the directive of a test differs from the usual one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    /// Lines at the top.
    pub(crate) top: &'static str,
    /// Lines in `[source]`, in place of the pagination.
    pub(crate) source: Option<String>,
    /// Lines in `[item]`.
    pub(crate) item: &'static str,
    /// Lines in `[sink]`.
    pub(crate) sink: &'static str,
}

impl Stage {
    /// Items of a server and a directive `issues` that ingests them.
    pub(crate) async fn new(place: impl Into<Place>, server: SourceServer) -> Self {
        Self::wishing(place, server, &Wishes::default()).await
    }

    pub(crate) async fn wishing(place: impl Into<Place>, server: SourceServer, wishes: &Wishes) -> Self {
        let place = place.into();
        let namespace = (place.engine == Engine::Temporal).then(Namespace::create);
        Self::at(place.kind, namespace, server, wishes).await
    }

    /// With the workflows in a namespace that is there.
    pub(crate) async fn at(
        kind: Kind,
        namespace: Option<Namespace>,
        server: SourceServer,
        wishes: &Wishes,
    ) -> Self {
        let program = Program::new(env!("CARGO_BIN_EXE_stargate"))
            // Nobody listens there, so no node is asked whether it leads.
            .with("STARGATE_LISTEN", format!("127.0.0.1:{}", free_port()))
            .with("STARGATE_LOG", "json");
        let (program, database) = match kind {
            Kind::Sqlite => (program, None),
            Kind::Postgres => {
                let database = Database::create(async |url| {
                    Postgres::connect(&url, Options { migrate: true, ..Options::default() }).await.unwrap();
                })
                .await;
                (program.with("STARGATE_STORE", database.url().to_owned()), Some(database))
            }
        };
        let program = match &namespace {
            None => program,
            Some(Namespace { address, name }) => program
                .with("STARGATE_ENGINE", "temporal")
                .with("TEMPORAL_ADDRESS", address)
                .with("TEMPORAL_NAMESPACE", name),
        };
        let stage = Self { program, server, database, namespace };
        // Short, so that a dead worker is noticed soon. One that is only slow loses its job, and nothing may come of it.
        let toml = "[worker]\nlease = \"2s\"\nheartbeat = \"500ms\"\npoll = \"200ms\"\n";
        std::fs::write(stage.program.home().join("stargate.toml"), toml).unwrap();
        stage.write(wishes);
        stage
    }

    /// With a variable of the environment for everything started from here.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.program = self.program.with(name, value);
        self
    }

    /// Writes the directive.
    pub(crate) fn write(&self, wishes: &Wishes) {
        let paging = "page_size_param = \"limit\"\npagination = { type = \"cursor\", param = \"after\", next = \"/next\" }";
        let source = wishes.source.clone().unwrap_or_else(|| {
            format!("type = \"http\"\nurl = \"{}\"\nrecords = \"/items\"\n{paging}", self.server.url())
        });
        let Wishes { top, item, sink, .. } = wishes;
        let text = format!(
            "name = \"issues\"\nqueue = \"meta-py\"\ntenant = \"acme\"\nproject = \"core\"\n{top}\n\
             [source]\n{source}\n[item]\nkey = [\"/id\"]\n\
             map = {{ title = \"/title\", number = {{ from = \"/id\", type = \"integer\" }} }}\n{item}\n\
             [sink]\ntable = \"items\"\noutbox = \"items.changed\"\n{sink}\n"
        );
        std::fs::create_dir_all(self.file("directives")).unwrap();
        std::fs::write(self.file("directives/issues.toml"), text).unwrap();
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.program.home().join(name)
    }

    /// Runs `directive …`.
    pub(crate) fn directive(&self, words: &[&str]) -> Output {
        let mut arguments = vec!["directive"];
        arguments.extend_from_slice(words);
        self.program.run(&arguments)
    }

    /// Runs `directive …` with a JSON answer, which has to succeed.
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let mut arguments = vec!["--json"];
        arguments.extend_from_slice(words);
        let output = self.directive_json(&arguments);
        assert_eq!(code(&output), 0, "{words:?}\n{}\n{}", stdout(&output), stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON on standard output")
    }

    fn directive_json(&self, words: &[&str]) -> Output {
        let (json, words) = words.split_first().expect("--json");
        let mut arguments = vec!["directive"];
        arguments.extend_from_slice(words);
        arguments.push(json);
        self.program.run(&arguments)
    }

    /// `directive run` to a good end.
    pub(crate) fn run(&self) -> Value {
        self.json(&["run", "issues"])
    }

    /// The newest run.
    pub(crate) fn last_run(&self) -> Option<Value> {
        self.json(&["show", "issues"])["runs"].get(0).cloned()
    }

    /// A worker of its own.
    pub(crate) fn worker(&self) -> Running {
        self.program.start(&["worker"])
    }

    /// Asks for a run and does not wait for it.
    pub(crate) fn begin(&self) -> String {
        let run = self.json(&["run", "issues", "--no-wait"]);
        run["run_id"].as_str().expect("a run id").to_owned()
    }

    /// Puts a run on the queue and does not wait for it; the answer is its job.
    pub(crate) fn enqueue(&self) -> String {
        self.program.answer(&[
            "job",
            "enqueue",
            "directive:run",
            r#"{"directive":"issues"}"#,
            "--queue",
            "meta-py",
        ])
    }

    /// Waits until the newest run is as it should be.
    pub(crate) async fn run_is(&self, is: impl Fn(&Value) -> bool) -> Value {
        eventually(PATIENCE, "the run to be as expected", async || {
            let run = self.last_run().unwrap_or_default();
            if is(&run) { Ok(run) } else { Err(run.to_string()) }
        })
        .await
    }

    /// Rows of a query, as text.
    pub(crate) async fn query(&self, sql: &str) -> Vec<Vec<String>> {
        match &self.database {
            None => self.query_sqlite(sql),
            Some(database) => {
                let client = database.client().await;
                let messages =
                    client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
                let row = |message: SimpleQueryMessage| match message {
                    SimpleQueryMessage::Row(row) => {
                        Some((0..row.len()).map(|at| row.get(at).unwrap_or("NULL").to_owned()).collect())
                    }
                    _ => None,
                };
                messages.into_iter().filter_map(row).collect()
            }
        }
    }

    fn query_sqlite(&self, sql: &str) -> Vec<Vec<String>> {
        let path = self.file("stargate.db");
        let connection = rusqlite::Connection::open(path).unwrap();
        connection.busy_timeout(Duration::from_secs(20)).unwrap();
        let mut statement = connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            let text = |at| {
                use rusqlite::types::ValueRef;
                Ok::<_, rusqlite::Error>(match row.get_ref(at)? {
                    ValueRef::Null => "NULL".to_owned(),
                    ValueRef::Integer(number) => number.to_string(),
                    ValueRef::Real(number) => number.to_string(),
                    ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text).into_owned(),
                })
            };
            (0..columns).map(text).collect()
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Changes something behind the program's back.
    pub(crate) async fn execute(&self, sql: &str) {
        match &self.database {
            Some(database) => database.client().await.batch_execute(sql).await.unwrap(),
            None => {
                let connection = rusqlite::Connection::open(self.file("stargate.db")).unwrap();
                connection.busy_timeout(Duration::from_secs(20)).unwrap();
                connection.execute_batch(sql).unwrap();
            }
        }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.database.is_none()
    }

    /// A table of the store's own.
    pub(crate) fn own(&self, table: &str) -> String {
        match self.database {
            None => table.to_owned(),
            Some(_) => format!("stargate.{table}"),
        }
    }

    /// One number.
    pub(crate) async fn number(&self, sql: &str) -> u64 {
        self.query(sql).await[0][0].parse().expect("a number")
    }

    /// Ids and titles of all rows are those of the source, and each has been written once per change.
    pub(crate) async fn assert_equal_to_the_source(&self) {
        let rows = self.query("select number, title from items order by number").await;
        let mut expected: Vec<(u64, String)> = self
            .server
            .edit(|data| data.items().collect::<Vec<_>>())
            .iter()
            .map(|item| serde_json::from_str::<Value>(item).unwrap())
            .map(|item| (item["id"].as_u64().unwrap(), item["title"].as_str().unwrap().to_owned()))
            .collect();
        expected.sort();
        expected.dedup();
        assert_eq!(rows.len(), expected.len(), "rows");
        for (row, (id, title)) in rows.iter().zip(&expected) {
            assert_eq!((row[0].as_str(), row[1].as_str()), (id.to_string().as_str(), title.as_str()));
        }
    }

    pub(crate) async fn remove(self) {
        if let Some(database) = self.database {
            database.remove().await;
        }
    }
}

/// The sum of what became of items.
pub(crate) fn total(run: &Value) -> u64 {
    ["created", "updated", "unchanged", "failed"].iter().map(|word| run[word].as_u64().unwrap()).sum()
}
