//! What the routes share, and the gate that pushes producers back when too much waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stargate_access::{Authority, SharedAudit};
use stargate_leader::Leadership;
use stargate_queue::pressure::PressureConfig;
use stargate_queue::{Error, SharedStore};
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::api::directives::Directing;
use crate::api::mirror::Mirrors;
use crate::forward::Forward;
use crate::health::Health;
use crate::lead::Reader;
use crate::live::Live;
use crate::metrics::{MetricsHandle, REFUSED};
use crate::rate::{Limiter, RateLimit};
use crate::redact::{NAMES, Redactor};

/// How long a count of waiting jobs is believed.
const DEPTH_AGE_MAX: Duration = Duration::from_secs(1);
/// How long a count is believed that would turn somebody away.
const DEPTH_AGE_FULL: Duration = Duration::from_millis(50);
/// Live event streams at once; each looks at the store twice a second.
const STREAMS_MAX: usize = 256;

/// What the HTTP side needs to know.
#[derive(Clone)]
pub struct App {
    /// The jobs.
    pub store: SharedStore,
    /// What `/healthz` and `/readyz` ask.
    pub health: Arc<dyn Health>,
    /// What `/metrics` shows.
    pub metrics: MetricsHandle,
    /// Over so many waiting jobs an enqueue is answered with 429; no limit when absent.
    pub max_depth: Option<u64>,
    /// This node's name.
    pub instance: String,
    /// This program's version.
    pub version: String,
    /// Whether this node leads. Absent in a process that takes no part: its writes are not guarded.
    pub leadership: Option<Leadership>,
    /// Where the leader lock is kept, in the word of `leader.backend`.
    pub lock: &'static str,
    /// Passes writes on to the leader; absent: a standby refuses them.
    pub forward: Option<Forward>,
    /// Decides who may use the API; absent: everybody who can reach it.
    pub authority: Option<Arc<Authority>>,
    /// What this node mirrors; absent in a process that never does.
    pub mirrors: Option<Arc<dyn Mirrors>>,
    /// Where actions are written down; absent: nowhere.
    pub audit: Option<SharedAudit>,
    /// What knows directives and has them run; absent in a process that does not.
    pub directing: Option<Arc<dyn Directing>>,
    /// When the workers of this machine take no more jobs, for explaining why one waits.
    pub pressure: Option<PressureConfig>,
    /// How it behaves.
    pub options: Options,
}

/// How the HTTP side behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where the page and the API are below the root of a site, such as `/stargate`; empty: at the root. They answer at the
    /// root in any case, for proxies that cut it off.
    pub base_path: String,
    /// Every change is refused.
    pub read_only: bool,
    /// Values whose names contain one of these words are shown only to who may operate.
    pub redact: Vec<String>,
    /// How often somebody may change something; absent: as often as they like.
    pub rate_limit: Option<RateLimit>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            base_path: String::new(),
            read_only: false,
            redact: NAMES.map(str::to_owned).to_vec(),
            rate_limit: None,
        }
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App")
            .field("instance", &self.instance)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// The state of all routes.
#[derive(Debug, Clone)]
pub(crate) struct Shared(Arc<Inner>);

/// The store is here in two parts, so that no route can write beside the leader: see `lead.rs`.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) reader: Reader,
    pub(crate) about: About,
    pub(crate) leadership: Option<Leadership>,
    pub(crate) forward: Option<Forward>,
    pub(crate) authority: Option<Arc<Authority>>,
    pub(crate) mirrors: Option<Arc<dyn Mirrors>>,
    pub(crate) audit: Option<SharedAudit>,
    pub(crate) directing: Option<Arc<dyn Directing>>,
    pub(crate) pressure: Option<PressureConfig>,
    pub(crate) options: Options,
    pub(crate) redactor: Redactor,
    pub(crate) rate: Limiter,
    pub(crate) live: Live,
    pub(crate) depth: DepthGate,
    pub(crate) streams: Arc<Semaphore>,
    /// Cancelled at shutdown: streams have no end of their own.
    pub(crate) closing: CancellationToken,
}

/// What is told about this process.
pub(crate) struct About {
    pub(crate) instance: String,
    pub(crate) version: String,
    pub(crate) lock: &'static str,
    pub(crate) health: Arc<dyn Health>,
    pub(crate) metrics: MetricsHandle,
}

impl std::fmt::Debug for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("About").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(app: App, closing: CancellationToken) -> Self {
        let App {
            store,
            health,
            metrics,
            max_depth,
            instance,
            version,
            leadership,
            lock,
            forward,
            authority,
            mirrors,
            audit,
            directing,
            pressure,
            options,
        } = app;
        Self(Arc::new(Inner {
            reader: Reader::new(store),
            about: About { instance, version, lock, health, metrics },
            leadership,
            forward,
            authority,
            mirrors,
            audit,
            directing,
            pressure,
            redactor: Redactor::new(&options.redact),
            rate: Limiter::new(options.rate_limit),
            live: Live::new(),
            options,
            depth: DepthGate { depth_max: max_depth, last: Mutex::new(None) },
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            closing,
        }))
    }

    pub(crate) fn store(&self) -> &Reader {
        &self.0.reader
    }
}

impl std::ops::Deref for Shared {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// Refuses enqueues while too many jobs wait.
#[derive(Debug)]
pub(crate) struct DepthGate {
    depth_max: Option<u64>,
    last: Mutex<Option<(Instant, u64)>>,
}

impl DepthGate {
    /// Asks for room for some more jobs. The count is shared for a second; what is let in meanwhile is added, so
    /// that a burst within that second is stopped as well.
    pub(crate) async fn enter(&self, store: &Reader, jobs: u64) -> stargate_queue::Result<()> {
        let Some(depth_max) = self.depth_max else { return Ok(()) };
        if jobs > depth_max {
            let problem =
                format!("are {jobs}, but at most {depth_max} may wait at all; send smaller batches");
            return Err(Error::invalid("jobs", problem));
        }
        // Held during the look-up: of many requests at once one asks, the others wait for its answer.
        let mut last = self.last.lock().await;
        let mut waiting = count(store, depth_max, &mut last, DEPTH_AGE_MAX).await?;
        if waiting + jobs > depth_max {
            // What was let in may have been run in the meantime.
            waiting = count(store, depth_max, &mut last, DEPTH_AGE_FULL).await?;
        }
        if waiting + jobs > depth_max {
            metrics::counter!(REFUSED, "reason" => "depth").increment(1);
            return Err(Error::QueueFull { waiting, depth_max });
        }
        if let Some((_, waiting)) = last.as_mut() {
            *waiting += jobs;
        }
        Ok(())
    }
}

impl DepthGate {
    /// The most that may wait.
    pub(crate) fn depth_max(&self) -> Option<u64> {
        self.depth_max
    }

    /// How many jobs wait, counted to just above what may. For health checks: shares the count of producers.
    pub(crate) async fn waiting(&self, store: &Reader) -> stargate_queue::Result<u64> {
        let Some(depth_max) = self.depth_max else { return Ok(0) };
        count(store, depth_max, &mut *self.last.lock().await, DEPTH_AGE_FULL).await
    }
}

/// The jobs that wait, counted anew when the last count is older than `age_max`.
async fn count(
    store: &Reader,
    depth_max: u64,
    last: &mut Option<(Instant, u64)>,
    age_max: Duration,
) -> stargate_queue::Result<u64> {
    if let Some((at, waiting)) = *last
        && at.elapsed() < age_max
    {
        return Ok(waiting);
    }
    let waiting = store.depth(depth_max + 1).await?;
    *last = Some((Instant::now(), waiting));
    Ok(waiting)
}
