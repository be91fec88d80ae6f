//! A store, a home and the nodes of one test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use stargate_queue::SharedStore;
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::process::{Program, Running, get};

use crate::PATIENCE;

/// A lock that is gone soon after its owner, for a machine that is not too busy to renew it.
pub(crate) const SHORT: &str = "ttl = \"2s\"\nrenew_every = \"500ms\"\nretry_every = \"500ms\"\n";

/// The time to live in [`SHORT`].
pub(crate) const SHORT_TTL: Duration = Duration::from_secs(2);

/// One test's surroundings.
pub(crate) struct Stage {
    pub(crate) program: Program,
    pub(crate) store: SharedStore,
    database: Option<Database>,
}

impl Stage {
    /// On SQLite, with these settings of leadership: lines as `ttl = "5s"`.
    pub(crate) async fn sqlite(leader: &str) -> Self {
        let program = program(leader);
        let path = program.home().join("stargate.db");
        let store = Arc::new(Sqlite::open(&path, sqlite::Options::default()).await.unwrap());
        Self { program, store, database: None }
    }

    /// On Postgres; see [`Stage::sqlite`].
    pub(crate) async fn postgres(leader: &str) -> Self {
        let options = || postgres::Options { migrate: true, ..postgres::Options::default() };
        let database = Database::create(async |url: String| {
            Postgres::connect(&url, options()).await.unwrap();
        })
        .await;
        let program = program(leader).with("STARGATE_STORE", database.url());
        let store = Arc::new(Postgres::connect(database.url(), options()).await.unwrap());
        Self { program, store, database: Some(database) }
    }

    /// The URL of the Postgres database of this test.
    pub(crate) fn database(&self) -> &str {
        self.database.as_ref().expect("a test on Postgres").url()
    }

    /// Removes what is kept outside the home.
    pub(crate) async fn close(self) {
        drop((self.program, self.store));
        if let Some(database) = self.database {
            database.remove().await;
        }
    }

    /// A node that answers, with its lock in the Redis at `host:port`.
    pub(crate) async fn node(&self, name: &'static str, redis: &str) -> Node {
        self.node_with(name, redis, &[]).await
    }

    /// The same with more environment variables.
    pub(crate) async fn node_with(&self, name: &'static str, redis: &str, more: &[(&str, &str)]) -> Node {
        let url = format!("redis://{redis}");
        let settings = [&[("STARGATE_INSTANCE", name), ("REDIS_URL", &url)], more].concat();
        let mut running = self.program.start_with(&["serve"], &settings);
        running.ready().await;
        Node { name, running }
    }
}

fn program(leader: &str) -> Program {
    // Commands read the same settings and want a URL; each node gets its own.
    let program = Program::new(env!("CARGO_BIN_EXE_stargate")).with("REDIS_URL", "redis://127.0.0.1:1");
    let probe = "[kinds.probe]\nexec = [\"true\"]\n";
    let toml = format!("{probe}[leader]\nbackend = \"redis\"\n{leader}");
    std::fs::write(program.home().join("stargate.toml"), toml).unwrap();
    program
}

/// One node. Killed when dropped.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) running: Running,
}

/// What a node says about itself.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// The epoch of its term, if it leads.
    pub(crate) epoch: Option<u64>,
    /// Who leads, as far as it knows.
    pub(crate) leader: Option<String>,
}

impl Report {
    pub(crate) fn read(body: &str) -> Option<Self> {
        let body: Value = serde_json::from_str(body).ok()?;
        let leads = body["role"].as_str()? == "leader";
        let epoch = body["epoch"].as_u64();
        assert!(!leads || epoch.is_some(), "a leader without epoch: {body}");
        Some(Self { epoch: epoch.filter(|_| leads), leader: body["leader"].as_str().map(str::to_owned) })
    }
}

impl Node {
    pub(crate) fn address(&self) -> &str {
        self.running.address()
    }

    /// What it has logged, without a line for each request.
    pub(crate) fn log(&self) -> String {
        let log = self.running.log();
        log.lines().filter(|line| !line.contains("request: a change")).collect::<Vec<_>>().join("\n")
    }

    /// What it says at `/readyz` or `/healthz`; `None` if it does not answer.
    pub(crate) async fn says(&self, path: &str) -> Option<Report> {
        let (_, body) = get(self.address(), path).await.ok()?;
        Report::read(&body)
    }

    /// Waits until it leads, for so long at most; since `begin` that took so long.
    pub(crate) async fn leads_within(&self, deadline: Duration, begin: Instant) -> Duration {
        let deadline = begin.elapsed() + deadline;
        loop {
            let said = self.says("/readyz").await;
            if said.as_ref().is_some_and(|report| report.epoch.is_some()) {
                return begin.elapsed();
            }
            assert!(
                begin.elapsed() < deadline,
                "{} waited in vain to lead: {said:?}; its log:\n{}",
                self.name,
                self.log()
            );
            // Often, because this is also how the time is measured.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until it leads.
    pub(crate) async fn leads(&self) {
        self.leads_within(PATIENCE, Instant::now()).await;
    }

    /// Waits until it stands by and knows who leads.
    pub(crate) async fn follows(&self, leader: &str) {
        eventually(PATIENCE, &format!("{} to follow {leader}", self.name), || async {
            let said = self.says("/readyz").await;
            let follows =
                |report: &Report| report.epoch.is_none() && report.leader.as_deref() == Some(leader);
            if said.as_ref().is_some_and(follows) {
                return Ok(());
            }
            Err(format!("{said:?}; its log:\n{}", self.log()))
        })
        .await;
    }

    /// Asks it to let another node lead. It may have lost the lead by itself meanwhile.
    pub(crate) async fn step_down(&self) {
        let url = format!("http://{}/api/v1/leader/step-down", self.address());
        let answer = reqwest::Client::new().post(url).send().await.unwrap();
        assert!([200, 503].contains(&answer.status().as_u16()), "{answer:?}");
    }
}

/// Whichever of two leads, first, and the other one.
pub(crate) async fn leader_first<'a>(one: &'a Node, two: &'a Node) -> (&'a Node, &'a Node) {
    eventually(PATIENCE, "one of two nodes to lead", || async {
        for (leader, other) in [(one, two), (two, one)] {
            if leader.says("/readyz").await.is_some_and(|report| report.epoch.is_some()) {
                return Ok((leader, other));
            }
        }
        Err(format!("nobody leads; logs:\n{}\n{}", one.log(), two.log()))
    })
    .await
}
