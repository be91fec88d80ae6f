//! What is particular to Postgres: producers that speak SQL, poolers in between, a server that does not answer.
//! What both stores promise is in the conformance suite.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

#[path = "postgres/beat.rs"]
mod beat;
#[path = "postgres/blackhole.rs"]
mod blackhole;
#[path = "postgres/bloat.rs"]
mod bloat;
#[path = "postgres/copies.rs"]
mod copies;
#[path = "postgres/directives.rs"]
mod directives;
#[path = "postgres/history.rs"]
mod history;
#[path = "postgres/leadership.rs"]
mod leadership;
#[path = "postgres/pinned.rs"]
mod pinned;
#[path = "postgres/pooler.rs"]
mod pooler;
#[path = "postgres/sql.rs"]
mod sql;

use std::time::Duration;

use stargate_queue::store::{ClaimRequest, ClaimedJob, KindSlots, Outcome, Settlement, WorkerSpec};
use stargate_queue::{KindSpec, NewJob, Store, WorkerId};
use stargate_store::postgres::{Options, Postgres};
use stargate_testkit::postgres::Database;

const LEASE: Duration = Duration::from_secs(30);
/// For everything that has to happen sooner or later.
const PATIENCE: Duration = Duration::from_secs(30);

async fn connect(url: &str) -> Postgres {
    Postgres::connect(url, Options { migrate: true, ..Options::default() }).await.unwrap()
}

/// A database of the test's own, with the kinds `a` and `b`.
async fn database() -> Database {
    Database::create(async |url| {
        let store = connect(&url).await;
        let kinds = ["a", "b"].map(|name| KindSpec { name: name.into(), max_attempts: 5, max_crashes: 3 });
        store.kinds_register(kinds.into()).await.unwrap();
        store.close().await;
    })
    .await
}

async fn worker(store: &Postgres) -> WorkerId {
    let spec = WorkerSpec {
        name: "w".into(),
        kinds: vec!["a".into(), "b".into()],
        queues: vec![],
        concurrency: 10,
        lease_min: LEASE,
        lease_max: LEASE,
    };
    store.worker_register(spec).await.unwrap()
}

fn request(worker: WorkerId) -> ClaimRequest {
    let slots = |kind: &str| KindSlots { kind: kind.into(), slots: 100, lease: LEASE };
    ClaimRequest { worker, limit: 100, queues: vec![], kinds: vec![slots("a"), slots("b")] }
}

async fn claim(store: &Postgres, worker: WorkerId) -> Vec<ClaimedJob> {
    store.claim(request(worker)).await.unwrap().jobs
}

fn new(kind: &str) -> NewJob {
    NewJob::of(kind, &serde_json::json!({ "x": 1 })).unwrap()
}

fn done(job: &ClaimedJob) -> Settlement {
    Settlement { fence: job.fence, outcome: Outcome::Done { result: None } }
}

/// `host:port` of a URL.
fn host_port(url: &str) -> String {
    let url: url::Url = url.parse().unwrap();
    format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(5432))
}

/// The same URL at another `host:port`.
fn at(url: &str, address: &str) -> String {
    url.replace(&host_port(url), address)
}
