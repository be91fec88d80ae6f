//! Delivers the announcements of one topic: at least once, in order per key.
//!
//! ```text
//!   waiting ── the relay that holds the topic's lock ──► destination ──► outbox_done
//!                 one delivery of a key at a time,          POST, NOTIFY, line of a file
//!                 several keys at a time
//! ```
//!
//! - **At least once.** An announcement is noted as delivered after it has arrived. A relay that dies in between
//!   delivers it again, with the same id. NOTIFY is the exception: there both happen in one transaction.
//! - **In order per key.** The next announcement of a key begins when the one before is noted. One that fails is tried
//!   for ever, at growing distances, and holds up its key only (`relay/plan.rs`). What a file cannot take holds up the topic:
//!   there is nowhere else to put it.
//! - **One relay.** Each process may run a relay of each topic; the one that holds the topic's lock delivers. It
//!   stops some seconds before the lock could be another's. What it has sent by then may still arrive late: receivers
//!   that compare versions do not mind.
//! - **A store that is away** ends nothing: the relay asks again, at growing distances.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stargate_base::{Backoff, Secret};
use stargate_directive::outbox::{Announcement, OutboxId};
use stargate_directive::store::SharedDirectives;
use stargate_queue::Result;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use self::carrier::Carrier;
use self::file::LineFile;
use self::lock::{Held, Lock};
use crate::http::ConfigError;

mod carrier;
mod file;
mod group;
mod lanes;
mod lock;
pub mod metrics;
mod plan;

/// How long a server may take by default, from the name service to the end of its answer.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Deliveries of a topic at once by default, each of another key.
pub const AT_ONCE: usize = 8;
/// How often a relay with nothing to do looks for something.
const POLL: Duration = Duration::from_secs(1);
/// Announcements that are read at once. Each may have a megabyte.
const PAGE: u32 = 100;
/// The distance of deliveries that fail.
const AGAIN: Backoff =
    Backoff { first: Duration::from_secs(1), factor: 2.0, cap: Duration::from_secs(300), jitter: 0.1 };
/// The distance of questions to a store that does not answer.
const STORE_AGAIN: Backoff =
    Backoff { first: Duration::from_millis(500), factor: 2.0, cap: Duration::from_secs(15), jitter: 0.2 };
/// How often what waits is counted.
const COUNT_EVERY: Duration = Duration::from_secs(15);
/// How long a relay that is to stop may take to end what it has begun.
const STOP_MAX: Duration = Duration::from_secs(5);

/// A topic and where its announcements go.
#[derive(Debug, Clone)]
pub struct Topic {
    /// Its name, as directives have it under `sink.outbox`.
    pub name: String,
    /// Where to.
    pub to: Destination,
}

/// Where announcements go.
#[derive(Clone)]
pub enum Destination {
    /// POSTed to a server.
    Http {
        /// Its address. Its path is often a password and is never shown.
        url: String,
        /// What the body is signed with.
        secret: Option<Secret>,
    },
    /// Sent over a channel of the store's own; only Postgres has them.
    Notify {
        /// The channel.
        channel: String,
    },
    /// Appended to a file, a JSON object in each line.
    File {
        /// The file; it is made if it is not there.
        path: PathBuf,
    },
}

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Http { .. } => f.write_str("Http"),
            Self::Notify { channel } => write!(f, "Notify({channel})"),
            Self::File { path } => write!(f, "File({})", path.display()),
        }
    }
}

/// How a relay works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether a server may have a private address.
    pub allow_private: bool,
    /// How long a server may take.
    pub timeout: Duration,
    /// Deliveries at once, each of another key.
    pub at_once: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { allow_private: false, timeout: TIMEOUT, at_once: AT_ONCE }
    }
}

/// Delivers the announcements of one topic while it is the one to do so.
#[derive(Debug)]
pub struct Relay {
    office: Arc<Office>,
    lock: Lock,
    way: Way,
    at_once: usize,
}

/// How announcements travel.
#[derive(Debug)]
enum Way {
    /// One by one, each key on its own.
    Each(Arc<Carrier>),
    /// Many at once.
    Group(LineFile),
}

/// What all deliveries of a topic need.
#[derive(Debug)]
struct Office {
    topic: String,
    store: SharedDirectives,
    counts: metrics::Counts,
}

/// What deliveries of one holding need.
#[derive(Debug, Clone)]
struct Shift {
    office: Arc<Office>,
    held: Arc<Held>,
    stop: CancellationToken,
}

impl Relay {
    /// A relay; `name` says in the lock who holds it.
    pub fn new(
        topic: Topic,
        settings: &Settings,
        store: SharedDirectives,
        name: &str,
    ) -> Result<Self, ConfigError> {
        let way = match topic.to {
            Destination::File { path } => Way::Group(LineFile::new(path)),
            Destination::Notify { channel } => {
                Way::Each(Arc::new(Carrier::Notify { channel, store: store.clone() }))
            }
            Destination::Http { url, secret } => {
                let url = Url::parse(&url).map_err(|_| ConfigError::Url)?;
                Way::Each(Arc::new(Carrier::http(url, secret, settings)?))
            }
        };
        let lock = Lock::new(&topic.name, store.clone(), name);
        let counts = metrics::Counts::new(&topic.name);
        let office = Arc::new(Office { topic: topic.name, store, counts });
        Ok(Self { office, lock, way, at_once: settings.at_once.max(1) })
    }

    /// Delivers until it is told to stop. Then what has begun is ended, for some seconds at most, and the lock is
    /// given back.
    pub async fn run(self, stop: CancellationToken) {
        let topic = self.office.topic.as_str();
        while !stop.is_cancelled() {
            let held = tokio::select! {
                held = self.lock.acquire() => Arc::new(held),
                () = stop.cancelled() => return,
            };
            tracing::info!(topic, "this process delivers the topic's announcements now");
            self.hold(&held, &stop).await;
            if held.is_good() {
                self.lock.release(&held).await;
            } else {
                tracing::warn!(topic, "the topic's lock was not kept; what was in flight may arrive twice");
            }
            self.office.counts.gone();
        }
    }

    /// Delivers while the lock is held.
    async fn hold(&self, held: &Arc<Held>, stop: &CancellationToken) {
        let shift = Shift { office: self.office.clone(), held: held.clone(), stop: stop.clone() };
        let too_long = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_MAX).await;
        };
        // Outside of the branch that may be dropped, so that what is in flight has ended before the lock is given back.
        let mut flights = JoinSet::new();
        let mut notes = JoinSet::new();
        let deliver = async {
            match &self.way {
                Way::Each(carrier) => lanes::run(&shift, carrier, self.at_once, &mut flights).await,
                Way::Group(file) => group::run(&shift, file, &mut notes).await,
            }
        };
        tokio::select! {
            // The lock is looked at first: after a long pause of the process it is what must be noticed.
            biased;
            () = self.lock.keep(held) => {}
            () = too_long => {}
            () = deliver => {}
        }
        flights.shutdown().await;
        notes.shutdown().await;
    }
}

impl Shift {
    /// Whether the next delivery may begin.
    fn goes_on(&self) -> bool {
        !self.stop.is_cancelled() && self.held.is_good()
    }

    /// A page of what is to be delivered.
    async fn next(&self, after: Option<OutboxId>) -> Result<Vec<Announcement>> {
        self.office.store.outbox_next(&self.office.topic, after, PAGE).await
    }

    /// Notes that an announcement has arrived. Given up only with the lock: until it is noted, nothing later of its
    /// key may be sent.
    async fn note_done(&self, id: OutboxId) -> bool {
        let mut failures = 0;
        while self.held.is_good() {
            match self.office.store.outbox_done(id).await {
                Ok(_) => {
                    self.office.counts.delivered.increment(1);
                    return true;
                }
                Err(error) => {
                    failures += 1;
                    let topic = self.office.topic.as_str();
                    tracing::warn!(topic, id = id.0, %error, "cannot note a delivery; trying again");
                    tokio::time::sleep(STORE_AGAIN.delay(failures)).await;
                }
            }
        }
        false
    }

    /// Notes that a delivery failed. Best effort: it will be tried again anyway.
    async fn note_failed(&self, announcement: &Announcement, problem: &str) {
        let (topic, id) = (self.office.topic.as_str(), announcement.id);
        self.office.counts.failed.increment(1);
        tracing::warn!(
            topic,
            id = id.0,
            attempts = announcement.attempts + 1,
            problem,
            "a delivery failed; it will be tried again"
        );
        if let Err(error) = self.office.store.outbox_failed(id, problem).await {
            tracing::warn!(topic, id = id.0, %error, "cannot note that a delivery failed");
        }
    }

    /// Counts how many wait, for the metric, unless that was done a moment ago.
    async fn count_waiting(&self, counted: &mut Option<Instant>) {
        if counted.is_some_and(|at| at.elapsed() < COUNT_EVERY) {
            return;
        }
        *counted = Some(Instant::now());
        match self.office.store.outbox_waiting().await {
            Ok(topics) => {
                let mine = topics.iter().find(|waiting| waiting.topic == self.office.topic);
                self.office.counts.waiting(mine.map_or(0, |waiting| waiting.count));
            }
            Err(error) => tracing::debug!(%error, "cannot count what waits"),
        }
    }
}
