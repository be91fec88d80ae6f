//! Looks at the nodes every 100 ms and tries to write at all of them, for as long as a test runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use stargate_queue::JobId;
use stargate_testkit::eventually;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::PATIENCE;
use crate::stage::{Node, Report};

/// The payload of each job begins with it, so that a write can be told from other traffic.
pub(crate) const WRITTEN: &str = "written: ";

/// How often a node is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long an answer to a look may take: a process that stands still never answers.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer to a write may take: longer than a node is ever stopped.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two tries to write, so that the machine has time for the nodes.
const WRITE_EVERY: Duration = Duration::from_millis(25);
/// How much is to be seen after each fault.
const MORE: usize = 3;
/// Writers at one node.
const WRITERS: usize = 2;

/// One look at a node that said it led.
#[derive(Debug, Clone)]
pub(crate) struct Sighting {
    pub(crate) node: &'static str,
    pub(crate) epoch: u64,
    /// The look began then, and the answer was there then. It was true at some moment in between.
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accepted(JobId),
    /// Refused for lack of leadership: must have changed nothing.
    Refused,
    /// Nobody was there to ask.
    Unsent,
    /// No answer, or one that leaves it open.
    Unknown,
}

/// One try to write.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) node: &'static str,
    /// What it wrote.
    pub(crate) mark: String,
    pub(crate) outcome: Outcome,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) looks: usize,
    pub(crate) sightings: Vec<Sighting>,
    pub(crate) writes: Vec<Write>,
}

/// Looks and writes until it is asked for what it saw.
pub(crate) struct Observer {
    seen: Arc<Mutex<Seen>>,
    client: Client,
    stop: CancellationToken,
    watched: HashMap<String, CancellationToken>,
    tasks: JoinSet<()>,
}

impl Observer {
    pub(crate) fn start() -> Self {
        // A stopped node keeps its connections; each request has one of its own, so that none waits for another.
        let client = Client::builder().pool_max_idle_per_host(0).build().unwrap();
        Self {
            seen: Arc::default(),
            client,
            stop: CancellationToken::new(),
            watched: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Looks at a node from now on, and writes there.
    pub(crate) fn watch(&mut self, node: &Node) {
        let (name, address) = (node.name, node.address().to_owned());
        let stop = self.stop.child_token();
        let shared =
            || Shared { seen: Arc::clone(&self.seen), client: self.client.clone(), stop: stop.clone() };
        self.tasks.spawn(look(shared(), name, address.clone()));
        for writer in 0..WRITERS {
            let mark = format!("{name} {address} {writer}");
            self.tasks.spawn(write(shared(), name, address.clone(), mark));
        }
        self.watched.insert(address, stop);
    }

    /// Looks no more at a node that is gone for good.
    pub(crate) fn leave(&mut self, node: &Node) {
        if let Some(stop) = self.watched.remove(node.address()) {
            stop.cancel();
        }
    }

    /// Waits until a leader was seen a few more times, and took a few more writes: a fault whose end nobody looks at
    /// shows nothing.
    pub(crate) async fn sees_more(&self) {
        let before = self.counts();
        eventually(PATIENCE, "a leader that takes writes", || async {
            let now = self.counts();
            if now.0 >= before.0 + MORE && now.1 >= before.1 + MORE {
                return Ok(());
            }
            Err(format!("sightings and writes were {before:?} and are {now:?}"))
        })
        .await;
    }

    /// Sightings and accepted writes so far.
    fn counts(&self) -> (usize, usize) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let accepted = |write: &&Write| matches!(write.outcome, Outcome::Accepted(_));
        (seen.sightings.len(), seen.writes.iter().filter(accepted).count())
    }

    /// Ends, after the last answers, and tells what was seen.
    pub(crate) async fn finish(mut self) -> Seen {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("an observer that does not fail");
        }
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Shared {
    seen: Arc<Mutex<Seen>>,
    client: Client,
    stop: CancellationToken,
}

impl Shared {
    fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A pause; `false` when it is time to end.
    async fn pause(&self, length: Duration) -> bool {
        self.stop.run_until_cancelled(tokio::time::sleep(length)).await.is_some()
    }
}

async fn look(shared: Shared, node: &'static str, address: String) {
    let url = format!("http://{address}/readyz");
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while shared.stop.run_until_cancelled(every.tick()).await.is_some() {
        let sent = Instant::now();
        let asked = async { shared.client.get(&url).timeout(LOOK_TIMEOUT).send().await?.text().await };
        let body = asked.await.unwrap_or_default();
        let answered = Instant::now();
        let epoch = Report::read(&body).and_then(|report| report.epoch);
        shared.note(|seen| {
            seen.looks += 1;
            seen.sightings.extend(epoch.map(|epoch| Sighting { node, epoch, sent, answered }));
        });
    }
}

async fn write(shared: Shared, node: &'static str, address: String, writer: String) {
    let mut number = 0;
    loop {
        number += 1;
        let mark = format!("{writer} {number}");
        // Every other one with a key, which makes it a transaction of several steps.
        let key = (number % 2 == 0).then_some(&*mark);
        let outcome = write_once(&shared.client, &address, &mark, key).await;
        shared.note(|seen| seen.writes.push(Write { node, mark, outcome }));
        if !shared.pause(WRITE_EVERY).await {
            return;
        }
    }
}

/// Tries to write at a node.
pub(crate) async fn write_once(client: &Client, address: &str, mark: &str, key: Option<&str>) -> Outcome {
    let url = format!("http://{address}/api/v1/jobs");
    let body = json!({ "kind": "probe", "payload": format!("{WRITTEN}{mark}") }).to_string();
    let mut request = client.post(url).header("content-type", "application/json").body(body);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let answer = match request.timeout(WRITE_TIMEOUT).send().await {
        Ok(answer) => answer,
        Err(error) if error.is_connect() => return Outcome::Unsent,
        Err(_) => return Outcome::Unknown,
    };
    let status = answer.status();
    let Ok(text) = answer.text().await else { return Outcome::Unknown };
    let body: Value = serde_json::from_str(&text).unwrap_or_default();
    match (status, body["error"]["code"].as_str()) {
        (StatusCode::CREATED, _) => {
            let id = body["id"].as_i64().unwrap_or_else(|| panic!("accepted without an id: {text}"));
            Outcome::Accepted(JobId(id))
        }
        (StatusCode::SERVICE_UNAVAILABLE, Some("NOT_LEADER")) => Outcome::Refused,
        (status, _) if status.is_client_error() => panic!("a request that nobody accepts: {status} {text}"),
        _ => Outcome::Unknown,
    }
}
