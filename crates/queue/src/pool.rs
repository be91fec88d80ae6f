//! The worker pool: one claimer feeds a bounded buffer, a fixed number of slots run handlers, one task records
//! what they report, and a thread of its own keeps the leases alive.
//!
//! ```text
//!            claim                    pop                 note · settle
//!  store ───────────▶ claimer ─▶ buffer ─▶ slot × N ───────────────▶ recorder ─▶ store
//!    ▲
//!    └── beat ── heartbeat thread
//! ```
//!
//! Shutdown has bounded phases: stop claiming and hand the buffer back; wait for running handlers while beating
//! on; stop what still runs and give it back; write everything down; leave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use stargate_base::Tasks;
use stargate_base::clock::Moment;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::claimer::CLAIMER_AT_STOP_MAX;
use crate::error::{Error, Result};
use crate::handler::{Entry, Registry};
use crate::heartbeat;
use crate::job::WorkerId;
use crate::local::{Buffer, Held, LastBeat, Pace, StopReason, Waiting};
use crate::metrics::Metrics;
use crate::pressure::{self, Pressure, PressureConfig};
use crate::reporter::{self, Recorder, Reporter};
use crate::store::{Outcome, Settlement, SharedStore, WorkerSpec};

/// How the pool works.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolConfig {
    /// Name of this worker; must differ between incarnations. Default: host, process id and a random part.
    pub name: String,
    /// Handlers run at once. Default 4.
    pub concurrency: usize,
    /// Queues served; empty means all.
    pub queues: Vec<String>,
    /// Time between two beats. Default 10 s.
    pub heartbeat: Duration,
    /// Silence after which a running job counts as abandoned. Default three beats, so that one lost update costs
    /// nothing; less than two is refused.
    pub lease: Duration,
    /// How often to look although nobody called. Default 5 s, jittered.
    pub poll: Duration,
    /// How long running handlers get at shutdown. Default 15 s.
    pub shutdown_timeout: Duration,
    /// How long a handler gets to clean up after it was told to stop, before it is dropped. Default 5 s.
    pub stop_grace: Duration,
    /// The most jobs held ready beyond the running ones. Default 1000; 0 turns the buffer off.
    pub buffer_max: usize,
    /// When claiming pauses.
    pub pressure: PressureConfig,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            name: worker_name(),
            concurrency: 4,
            queues: Vec::new(),
            heartbeat: Duration::from_secs(10),
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(5),
            shutdown_timeout: Duration::from_secs(15),
            stop_grace: Duration::from_secs(5),
            buffer_max: 1000,
            pressure: PressureConfig::default(),
        }
    }
}

impl PoolConfig {
    /// Refuses impossible values and combinations, naming the field.
    pub fn check(&self) -> Result<()> {
        if !(1..=10_000).contains(&self.concurrency) {
            return Err(Error::invalid(
                "concurrency",
                format!("is {}; allowed are 1 to 10000", self.concurrency),
            ));
        }
        if !(Duration::from_millis(50)..=Duration::from_secs(3600)).contains(&self.heartbeat) {
            return Err(Error::invalid("heartbeat", "is out of range; allowed are 50 ms to 1 h"));
        }
        check_lease(self.lease, self.heartbeat)?;
        if !(Duration::from_millis(10)..=Duration::from_secs(3600)).contains(&self.poll) {
            return Err(Error::invalid("poll", "is out of range; allowed are 10 ms to 1 h"));
        }
        if self.buffer_max > 100_000 {
            return Err(Error::invalid(
                "buffer_max",
                format!("is {}; allowed are 0 to 100000", self.buffer_max),
            ));
        }
        self.pressure.check()
    }
}

fn check_lease(lease: Duration, heartbeat: Duration) -> Result<()> {
    if lease < heartbeat * 2 || lease > Duration::from_secs(86_400) {
        let problem = format!(
            "is {lease:?}; it must be at least two heartbeats ({:?}) and at most a day",
            heartbeat * 2
        );
        return Err(Error::invalid("lease", problem));
    }
    Ok(())
}

/// Host, process and a random part: a restarted process is another worker, even with the same process id.
fn worker_name() -> String {
    format!("{}{}:{:08x}", host_prefix(), std::process::id(), rand::random::<u32>())
}

/// How the names of this machine's workers begin, unless they were given others.
pub(crate) fn host_prefix() -> String {
    format!("{}:", rustix::system::uname().nodename().to_string_lossy())
}

/// What the parts of the pool share.
pub(crate) struct Engine {
    pub(crate) store: SharedStore,
    pub(crate) config: PoolConfig,
    pub(crate) kinds: BTreeMap<Arc<str>, Entry>,
    pub(crate) held: Arc<Held>,
    pub(crate) buffer: Buffer,
    pub(crate) pace: Pace,
    pub(crate) running: AtomicUsize,
    /// Rung when a slot or buffer place becomes free, or a job is no longer held.
    pub(crate) room: Arc<Notify>,
    pub(crate) reporter: Reporter,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pressure: Pressure,
    pub(crate) last_beat: LastBeat,
    /// When a beat was last tried: tells whether the thread lives, also while the store is away.
    pub(crate) last_try: LastBeat,
    pub(crate) degraded: AtomicBool,
    /// Set when what the store believes we hold must be compared with what we hold.
    pub(crate) compare: AtomicBool,
    worker: AtomicI64,
}

impl Engine {
    pub(crate) fn worker(&self) -> WorkerId {
        WorkerId(self.worker.load(Ordering::Acquire))
    }

    /// The lease jobs of a kind get.
    pub(crate) fn lease_of(&self, entry: &Entry) -> Duration {
        entry.profile.lease.unwrap_or(self.config.lease)
    }

    fn leases(&self) -> impl Iterator<Item = Duration> {
        self.kinds.values().map(|entry| self.lease_of(entry))
    }

    /// The shortest lease any of its jobs can have.
    pub(crate) fn lease_min(&self) -> Duration {
        self.leases().min().unwrap_or(self.config.lease)
    }

    /// Enters this process into the store, also again after the store has given it up.
    pub(crate) async fn register(&self) -> Result<()> {
        let spec = WorkerSpec {
            name: self.config.name.clone(),
            kinds: self.kinds.keys().map(|kind| kind.to_string()).collect(),
            queues: self.config.queues.clone(),
            concurrency: self.config.concurrency,
            lease_min: self.lease_min(),
            lease_max: self.leases().max().unwrap_or(self.config.lease),
        };
        // The lease counts from before the request, so that this host never trusts it longer than the store does.
        let before = Moment::now();
        let worker = self.store.worker_register(spec).await?;
        self.last_beat.set(before);
        self.worker.store(worker.0, Ordering::Release);
        Ok(())
    }
}

/// A worker pool that has entered the store and is ready to run.
pub struct Pool {
    engine: Arc<Engine>,
    recorder: Recorder,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("name", &self.engine.config.name).finish_non_exhaustive()
    }
}

impl Pool {
    /// Checks the configuration, makes the kinds known and enters this process into the store.
    pub async fn start(store: SharedStore, registry: Registry, config: PoolConfig) -> Result<Self> {
        config.check()?;
        for (kind, profile) in registry.profiles() {
            profile.check()?;
            if let Some(lease) = profile.lease {
                check_lease(lease, config.heartbeat)
                    .map_err(|e| Error::invalid("kinds", format!("{kind:?}: {e}")))?;
            }
        }
        store.kinds_register(registry.specs()).await?;
        let kinds = registry.entries().clone();
        let held = Arc::new(Held::default());
        let metrics = Arc::new(Metrics::new(kinds.keys()));
        metrics.slots.set(u32::try_from(config.concurrency).map_or(f64::INFINITY, f64::from));
        let capacity = (config.buffer_max + config.concurrency) * 2;
        let room = Arc::new(Notify::new());
        let (reporter, recorder) =
            reporter::channel(capacity, store.clone(), held.clone(), room.clone(), metrics.clone());
        let engine = Engine {
            pressure: Pressure::new(config.pressure.clone()),
            store,
            config,
            kinds,
            held,
            buffer: Buffer::new(),
            pace: Pace::default(),
            running: AtomicUsize::new(0),
            room,
            reporter,
            metrics,
            last_try: LastBeat::at(Moment::now()),
            last_beat: LastBeat::at(Moment::now()),
            degraded: AtomicBool::new(false),
            compare: AtomicBool::new(false),
            worker: AtomicI64::new(0),
        };
        engine.register().await?;
        Ok(Self { engine: Arc::new(engine), recorder })
    }

    /// A cheap view of the pool for health checks.
    pub fn handle(&self) -> PoolHandle {
        PoolHandle(self.engine.clone())
    }

    /// Works until `stop` is cancelled, then shuts down in bounded phases.
    pub async fn run(self, stop: CancellationToken) {
        let Self { engine, recorder } = self;
        let beating = CancellationToken::new();
        let heart = heartbeat::start(engine.clone(), beating.clone());
        let recording = CancellationToken::new();
        let tasks = Tasks::new();
        let recorder = tasks.spawn(recorder.run(recording.clone()));
        let slots = Tasks::new();
        for _ in 0..engine.config.concurrency {
            slots.spawn(engine.clone().run_slot(stop.clone()));
        }
        tracing::info!(worker = %engine.config.name, kinds = engine.kinds.len(), "worker started");

        tokio::select! {
            () = engine.run_claimer(&stop) => {}
            () = async {
                stop.cancelled().await;
                tokio::time::sleep(CLAIMER_AT_STOP_MAX).await;
            } => tracing::warn!("the claimer was still waiting for the store; what it took back is left to its lease"),
        }
        // The recorder may be waiting for a store that is away; shutdown must not.
        let _ = tokio::time::timeout(engine.config.shutdown_timeout, engine.close_buffer()).await;
        engine.wind_up(&slots).await;

        recording.cancel();
        if tokio::time::timeout(engine.config.shutdown_timeout, recorder).await.is_err() {
            tracing::error!("the store did not take the last outcomes in time; their leases will expire");
        }
        beating.cancel();
        // The thread ends at its next await; it holds nothing that matters any more.
        drop(heart);
        let _ =
            tokio::time::timeout(Duration::from_secs(5), engine.store.worker_remove(engine.worker())).await;
        tracing::info!(worker = %engine.config.name, "worker stopped");
    }
}

impl Engine {
    /// Gives back what was claimed and not begun.
    pub(crate) async fn hand_back(&self) {
        self.release(self.buffer.take_all()).await;
    }

    /// Lets no slot begin another job and gives back what was claimed for them.
    async fn close_buffer(&self) {
        self.release(self.buffer.close()).await;
    }

    async fn release(&self, jobs: Vec<Waiting>) {
        for waiting in jobs {
            let fence = waiting.job.fence;
            self.reporter.settle(Settlement { fence, outcome: Outcome::Released }).await;
        }
    }

    /// Waits for running handlers, then stops them.
    async fn wind_up(&self, slots: &Tasks) {
        if tokio::time::timeout(self.config.shutdown_timeout, slots.join()).await.is_ok() {
            return;
        }
        let stopped = self.held.stop_where(StopReason::Shutdown, |_| true);
        tracing::warn!(stopped, "handlers still ran at the end of the shutdown timeout; their jobs go back");
        // Slots drop their handlers after the grace; the second is for the drop itself.
        let _ = tokio::time::timeout(self.config.stop_grace + Duration::from_secs(1), slots.join()).await;
    }
}

/// A cheap view of a pool.
#[derive(Clone)]
pub struct PoolHandle(Arc<Engine>);

impl std::fmt::Debug for PoolHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.status().fmt(f)
    }
}

/// What a pool is doing.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolStatus {
    /// Its name in the store.
    pub name: String,
    /// Handlers running.
    pub running: usize,
    /// Jobs claimed and waiting for a slot.
    pub buffered: usize,
    /// Whether claiming pauses because of depth and load.
    pub paused_by_pressure: bool,
    /// Time since the last good beat.
    pub beat_age: Duration,
    /// Time since a beat was last tried; longer than a few beats only when the process itself is unwell.
    pub try_age: Duration,
    /// Whether beats have been failing (`HEARTBEAT_DEGRADED`).
    pub degraded: bool,
}

impl PoolHandle {
    /// How close the pool is to pausing, or that it does.
    pub fn pressure(&self) -> pressure::State {
        self.0.pressure.state()
    }

    /// What the pool is doing now.
    pub fn status(&self) -> PoolStatus {
        let engine = &self.0;
        PoolStatus {
            name: engine.config.name.clone(),
            running: engine.running.load(Ordering::Relaxed),
            buffered: engine.buffer.len(),
            paused_by_pressure: engine.pressure.is_paused(),
            beat_age: engine.last_beat.age(),
            try_age: engine.last_try.age(),
            degraded: engine.degraded.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_shorter_than_two_beats_is_refused() {
        let config = PoolConfig { lease: Duration::from_secs(19), ..PoolConfig::default() };
        assert!(config.check().unwrap_err().to_string().contains("two heartbeats"));
        assert!(PoolConfig { lease: Duration::from_secs(20), ..PoolConfig::default() }.check().is_ok());
    }

    #[test]
    fn two_incarnations_have_different_names() {
        assert_ne!(worker_name(), worker_name());
    }
}
