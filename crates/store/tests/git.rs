//! Pushes through real workers, and through processes that are killed while they record and process them.

#![expect(clippy::unwrap_used, reason = "the helpers of these tests, which clippy does not take for tests")]

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use stargate_base::{ErrorClass, Tasks};
use stargate_queue::handler::{Failure, Registry};
use stargate_queue::pressure::PressureConfig;
use stargate_queue::store::{JobFilter, PAGE_MAX};
use stargate_queue::{Job, NewJob, Pool, PoolConfig, SharedStore, State};
use stargate_repo::repository::DEFAULT_BRANCH;
use stargate_repo::{
    Courier, Delivery, EventFilter, Folders, NewPush, NewWebhook, Occasion, PUSH_PROCESS, PushEvent,
    RefUpdate, RepoSpec, SIZE_RECALC, SharedPushes, WEBHOOK_DELIVER, register,
};
use stargate_store::postgres::{self, Postgres};
use stargate_store::sqlite::{self, Sqlite};
use stargate_testkit::eventually;
use stargate_testkit::postgres::Database;
use stargate_testkit::tables::Opened;

const PATIENCE: Duration = Duration::from_secs(60);
const REPO: &str = "team/app";
/// Tells the other process where the store is.
const TOLD: &str = "STARGATE_TEST_PUSH_TO";
/// Pushes that the other process makes at most, each of so many refs.
const PUSHES: u32 = 12;
const REFS: u32 = 3;

/// A fresh store on the real clock.
enum Place {
    Folder(tempfile::TempDir),
    Server(Database),
}

impl Place {
    async fn folder() -> Self {
        Self::Folder(tempfile::tempdir().unwrap())
    }

    async fn server() -> Self {
        Self::Server(Database::create(async |url| drop(open(&url).await)).await)
    }

    fn url(&self) -> String {
        match self {
            Self::Folder(folder) => folder.path().join("s.db").to_str().unwrap().to_owned(),
            Self::Server(database) => database.url().to_owned(),
        }
    }

    async fn remove(self) {
        if let Self::Server(database) = self {
            database.remove().await;
        }
    }
}

async fn open(url: &str) -> Opened {
    if url.starts_with("postgres") {
        let options = postgres::Options { migrate: true, ..postgres::Options::default() };
        return Opened::of(Postgres::connect(url, options).await.unwrap());
    }
    Opened::of(Sqlite::open(Path::new(url), sqlite::Options::default()).await.unwrap())
}

fn push(request: &str, old: u32, new: u32) -> NewPush {
    let update = |n: u32| RefUpdate {
        ref_name: if n == 0 { DEFAULT_BRANCH.to_owned() } else { format!("refs/heads/b{n}") },
        old_oid: format!("{old:040x}"),
        new_oid: format!("{new:040x}"),
    };
    NewPush {
        repo: REPO.to_owned(),
        pusher: None,
        request_id: request.to_owned(),
        epoch: None,
        default_branch: None,
        updates: (0..REFS).map(update).collect(),
        at: stargate_base::clock::wall(),
        trace_id: None,
    }
}

fn hook() -> NewWebhook {
    NewWebhook {
        repo: None,
        url: "https://example.com/hook".to_owned(),
        secret_ref: None,
        events: vec![Occasion::Push],
    }
}

async fn jobs(store: &SharedStore, kind: &str) -> Vec<Job> {
    let filter = JobFilter { kind: Some(kind.to_owned()), limit: PAGE_MAX, ..JobFilter::default() };
    store.jobs(filter).await.unwrap()
}

async fn events(pushes: &SharedPushes) -> Vec<PushEvent> {
    pushes.events(EventFilter { limit: PAGE_MAX, ..EventFilter::default() }).await.unwrap()
}

/// How many jobs of a kind there are for each number in their payloads.
async fn jobs_by(store: &SharedStore, kind: &str, field: &str) -> BTreeMap<i64, usize> {
    let mut counts = BTreeMap::new();
    for job in jobs(store, kind).await {
        let payload: Value = serde_json::from_str(job.payload.get()).unwrap();
        *counts.entry(payload[field].as_i64().unwrap()).or_default() += 1;
    }
    counts
}

/// Remembers what it was given; the first try of each fails.
#[derive(Default)]
struct Remembering {
    tried: Mutex<HashSet<i64>>,
    given: Mutex<Vec<Value>>,
}

#[async_trait]
impl Courier for Remembering {
    async fn deliver(&self, delivery: &Delivery) -> Result<(), Failure> {
        if self.tried.lock().unwrap().insert(delivery.id.0) {
            let failure = Failure::new("HTTP_UNAVAILABLE", ErrorClass::RetryableTransient, "busy");
            return Err(failure.with_retry_after(Duration::from_millis(10)));
        }
        self.given.lock().unwrap().push(delivery.body());
        Ok(())
    }
}

fn quick() -> PoolConfig {
    PoolConfig {
        lease: Duration::from_secs(30),
        heartbeat: Duration::from_secs(5),
        poll: Duration::from_secs(1),
        pressure: PressureConfig { load_threshold: 1e9, ..PressureConfig::default() },
        ..PoolConfig::default()
    }
}

/// Waits until no job waits or runs.
async fn all_ended(store: &SharedStore) {
    eventually(PATIENCE, "the end of all jobs", || async {
        let open = JobFilter { states: vec![State::Queued, State::Processing], ..JobFilter::default() };
        let open = store.jobs(open).await.map_err(|error| error.to_string())?;
        if open.is_empty() { Ok(()) } else { Err(format!("{open:#?}")) }
    })
    .await;
}

async fn a_push_goes_its_way(place: Place) {
    let Opened { store, pushes, .. } = open(&place.url()).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(REPO)).unwrap();
    std::fs::write(folder.path().join(REPO).join("HEAD"), "ref: refs/heads/main\n").unwrap();
    let root: PathBuf = folder.path().to_owned();
    let folders = Folders::new(move |name| Some(root.join(name)));
    let courier = Arc::new(Remembering::default());
    let mut registry = Registry::new();
    register(&mut registry, &pushes, Some(Arc::new(folders)), Some(courier.clone())).unwrap();
    pushes.webhook_put(hook()).await.unwrap();
    let first = pushes.record(push("r1", 0, 1)).await.unwrap();
    let lost = NewPush { repo: "removed".to_owned(), ..push("r1", 0, 1) };
    pushes.record(lost).await.unwrap();
    let tasks = Tasks::new();
    let pool = Pool::start(store.clone(), registry, quick()).await.unwrap();
    tasks.spawn(pool.run(tasks.stopping()));
    pushes.record(push("r2", 1, 2)).await.unwrap();
    let poison = [json!({ "push_event_id": 4711 }), json!({ "push_event_id": "x" }), json!(null)];
    let poison = poison.map(|payload| NewJob::of(PUSH_PROCESS, &payload).unwrap());
    let poison = store.enqueue(poison.into()).await.unwrap();
    all_ended(&store).await;
    tasks.join().await;

    let repo = pushes.repo(REPO).await.unwrap().unwrap();
    assert_eq!(repo.default_oid, Some(format!("{:040x}", 2)));
    assert_eq!(repo.size.map(|size| size.bytes), Some(21));
    assert!(events(&pushes).await.iter().all(|event| event.processed_at.is_some()));
    for job in poison {
        let job = store.job(job.id).await.unwrap().unwrap();
        assert_eq!((job.state, job.attempt_count), (State::Failed, 1), "poison is not tried again: {job:?}");
    }
    let sizes = jobs(&store, SIZE_RECALC).await;
    let (known, gone): (Vec<&Job>, Vec<&Job>) =
        sizes.iter().partition(|job| job.payload.get().contains(REPO));
    assert!(known.iter().all(|job| job.state == State::Done), "{known:?}");
    assert!(!gone.is_empty() && gone.iter().all(|job| job.state == State::Failed), "poison: {gone:?}");
    assert_eq!(gone[0].error.as_ref().unwrap().code, "NOT_FOUND");
    let given = courier.given.lock().unwrap().clone();
    let numbers: HashSet<i64> = given.iter().map(|body| body["delivery"].as_i64().unwrap()).collect();
    assert_eq!((given.len(), numbers.len()), (9, 9), "each event was delivered once: {given:?}");
    let delivery = &pushes.deliveries(first[0]).await.unwrap()[0];
    assert!(delivery.delivered_at.is_some());
    let body = given.iter().find(|body| body["delivery"] == json!(delivery.id)).unwrap();
    assert_eq!(body["ref"], DEFAULT_BRANCH);
    assert_eq!(
        (&body["repo"], &body["created"], &body["deleted"]),
        (&json!(REPO), &json!(true), &json!(false))
    );
    drop((store, pushes));
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_goes_its_way_on_sqlite() {
    a_push_goes_its_way(Place::folder().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_goes_its_way_on_postgres() {
    a_push_goes_its_way(Place::server().await).await;
}

/// The other process: records pushes and processes them, and says so each time. Without an order it does so in a place
/// of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_that_is_told_to_push_does_so() {
    let own = tempfile::tempdir().unwrap();
    let here = || own.path().join("s.db").to_str().unwrap().to_owned();
    let (url, name) = match std::env::var(TOLD) {
        Ok(told) => told.split_once(' ').map(|(name, url)| (url.to_owned(), name.to_owned())).unwrap(),
        Err(_) => (here(), "alone".to_owned()),
    };
    let Opened { pushes, .. } = open(&url).await;
    pushes.repo_put(RepoSpec::new(REPO)).await.unwrap();
    for n in 0..PUSHES {
        let request = format!("{name}:{n}");
        let ids = pushes.record(push(&request, n, n + 1)).await.unwrap();
        say(&format!("recorded {request}"));
        for id in ids {
            pushes.process(id).await.unwrap();
            say(&format!("processed {id}"));
        }
    }
}

/// Past what captures the output of tests.
fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

fn start(url: &str, name: &str) -> Child {
    #[expect(clippy::disallowed_methods, reason = "a process that can be killed")]
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_process_that_is_told_to_push_does_so"]).env(TOLD, format!("{name} {url}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Has the other process work until it has said so much, and kills it; what it said.
fn killed_after(url: &str, name: &str, lines: usize) -> Vec<String> {
    let mut child = start(url, name);
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_said = |line: &String| line.starts_with("recorded ") || line.starts_with("processed ");
    let mut said: Vec<String> = out.by_ref().filter(is_said).take(lines).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    // What was written before the end counts as well.
    said.extend(out.filter(is_said));
    said
}

async fn what_a_killed_process_said_is_true_and_the_rest_is_whole_or_missing(place: Place) {
    let url = place.url();
    let Opened { store, pushes, .. } = open(&url).await;
    pushes.webhook_put(hook()).await.unwrap();
    let (mut recorded, mut processed) = (HashSet::new(), HashSet::new());
    for round in 0..8_usize {
        let (address, name) = (url.clone(), format!("round{round}"));
        let said = tokio::task::spawn_blocking(move || killed_after(&address, &name, 1 + 3 * round)).await;
        for line in said.unwrap() {
            match line.split_once(' ').unwrap() {
                ("recorded", request) => recorded.insert(request.to_owned()),
                (_, event) => processed.insert(event.parse::<i64>().unwrap()),
            };
        }
        check(&store, &pushes, &recorded, &processed).await;
    }
    let (pushes_said, events_said) = (recorded.len(), processed.len());
    say(&format!(
        "{pushes_said} pushes and {events_said} events were acknowledged by processes that were killed"
    ));
    for event in events(&pushes).await {
        pushes.process(event.id).await.unwrap();
    }
    let all = events(&pushes).await;
    let sent = jobs_by(&store, WEBHOOK_DELIVER, "delivery_id").await;
    assert_eq!(sent.len(), all.len(), "each event has one delivery");
    assert!(sent.values().all(|count| *count == 1), "{sent:?}");
    assert_eq!(jobs(&store, SIZE_RECALC).await.len(), 1);
    drop((store, pushes));
    place.remove().await;
}

/// What must be true at any time. Events are looked at first: what is seen later includes what is seen earlier.
async fn check(
    store: &SharedStore,
    pushes: &SharedPushes,
    recorded: &HashSet<String>,
    processed: &HashSet<i64>,
) {
    let all = events(pushes).await;
    let made = jobs_by(store, PUSH_PROCESS, "push_event_id").await;
    let mut refs: BTreeMap<&str, u32> = BTreeMap::new();
    for event in &all {
        *refs.entry(&event.request_id).or_default() += 1;
        assert_eq!(made.get(&event.id.0), Some(&1), "one job for {event:?}");
        let heard = pushes.deliveries(event.id).await.unwrap().len();
        assert!(
            heard == usize::from(event.processed_at.is_some()) || event.processed_at.is_none(),
            "{event:?}"
        );
        assert!(event.processed_at.is_some() || !processed.contains(&event.id.0), "forgotten: {event:?}");
    }
    assert!(refs.values().all(|count| *count == REFS), "half a push: {refs:?}");
    for request in recorded {
        assert!(refs.contains_key(request.as_str()), "{request} was acknowledged and is gone");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_said_is_true_on_sqlite() {
    what_a_killed_process_said_is_true_and_the_rest_is_whole_or_missing(Place::folder().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_said_is_true_on_postgres() {
    what_a_killed_process_said_is_true_and_the_rest_is_whole_or_missing(Place::server().await).await;
}
