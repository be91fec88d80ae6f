//! Work that another queue has accepted: taken from there, run here with all our guarantees, and ended there.
//!
//! ```text
//!            ┌─ 1 lock ── 2 accept here (job and link, one transaction) ── 3 acknowledge there ── 4 hold: it may run
//!   source ──┤
//!            ├─ look: is it still ours there? keep its expiry from firing; what is lost there is cancelled here
//!            └─ settle: our job has ended for good → the item ends there → the link is closed here
//! ```
//!
//! The two sides share no transaction. What holds instead, wherever a process dies:
//!
//! * An item is in one of the two places at every moment: it is acknowledged there only after its job is on disk here,
//!   and it ends there only after its job has ended here.
//! * The link remembers the mark that our acknowledgement writes there *before* it is written. Whether an item is ours
//!   is therefore always a question that the source can answer, never a guess.
//! * The job does not run before the acknowledgement is known to have succeeded (it is blocked until then), and each
//!   attempt asks again before it begins: an item that meanwhile belongs to somebody else is not run here.
//! * All steps can be repeated, by this process or another one with the same store.

mod foreign;
pub mod link;
mod round;
mod source;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stargate_base::{Backoff, chain};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::handler::Registry;
use crate::store::SharedStore;

pub use link::{Link, LinkFilter, LinkStage, LinkTurn, Linked, NewLink, Terms};
pub use round::Round;
pub use source::{Accept, Answer, Claim, Ending, EndingOutcome, Offer, Settled, Source, Standing, Taken};

/// How often ended jobs are looked for although nobody told of one.
const SETTLE_EVERY: Duration = Duration::from_secs(1);
/// How soon a job's end is looked for after its handler has ended: the outcome is being written meanwhile.
const SETTLE_SOON: Duration = Duration::from_millis(10);
/// How often it is looked for before it is left to the regular look.
const SETTLE_TRIES: u32 = 8;
/// The shortest time between two looks at the source.
const LOOK_MIN: Duration = Duration::from_millis(100);
/// How long the loop goes on settling after it was told to stop.
const LAST_SETTLE: Duration = Duration::from_secs(5);

/// How the intake works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Which kind the items of a source's queue become; a queue that is not named becomes the kind of its own name.
    pub kinds: BTreeMap<String, String>,
    /// How often the source is looked at. Default 2 s.
    pub poll: Duration,
    /// The most jobs taken and not finished; those that wait for a retry do not count. Default 100: what is held here
    /// cannot be taken by idle workers of the other queue.
    pub ahead_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { kinds: BTreeMap::new(), poll: Duration::from_secs(2), ahead_max: 100 }
    }
}

impl Config {
    /// Refuses impossible values, naming the field.
    pub fn check(&self) -> Result<()> {
        if !(Duration::from_millis(50)..=Duration::from_secs(3600)).contains(&self.poll) {
            return Err(Error::invalid("poll", "is out of range; allowed are 50 ms to 1 h"));
        }
        if !(1..=10_000).contains(&self.ahead_max) {
            return Err(Error::invalid(
                "ahead_max",
                format!("is {}; allowed are 1 to 10000", self.ahead_max),
            ));
        }
        Ok(())
    }

    fn kind_of<'a>(&'a self, queue: &'a str) -> &'a str {
        self.kinds.get(queue).map_or(queue, String::as_str)
    }
}

/// Takes work from a source and brings the outcome back. Cheap to clone.
#[derive(Clone)]
pub struct Intake {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intake").field("source", &self.inner.source).finish_non_exhaustive()
    }
}

/// What the loop and the guarded handlers share.
struct Inner {
    store: SharedStore,
    source: Arc<dyn Source>,
    config: Config,
    /// Until when items do not expire there, as far as this process knows.
    safe: Mutex<HashMap<String, Instant>>,
    /// Rung when a guarded handler has ended.
    ended: Notify,
    /// Handlers that have ended since the last look for ended jobs.
    ended_count: AtomicU32,
}

impl Inner {
    fn safe(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.safe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, outcome: &'static str, count: usize) {
        if count > 0 {
            let source = self.source.name().to_owned();
            metrics::counter!(crate::metrics::INTAKE, "source" => source, "outcome" => outcome)
                .increment(count as u64);
        }
    }
}

impl Intake {
    /// An intake that has not looked yet.
    pub fn new(store: SharedStore, source: Arc<dyn Source>, config: Config) -> Result<Self> {
        config.check()?;
        let inner = Inner {
            store,
            source,
            config,
            safe: Mutex::default(),
            ended: Notify::new(),
            ended_count: AtomicU32::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Has the handlers of all kinds that the source feeds ask whether a job is still ours before each attempt. Jobs of
    /// these kinds that come from elsewhere run as before.
    pub fn guard(&self, registry: &mut Registry) -> Result<()> {
        let config = &self.inner.config;
        let mut kinds: Vec<&str> = self.inner.source.queues().iter().map(|q| config.kind_of(q)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let inner = self.inner.clone();
            if !registry.wrap(kind, |handler| Arc::new(foreign::Foreign::new(inner, handler))) {
                let problem = format!(
                    "of {:?} lead to the kind {kind:?}, which nothing here runs; define it under [kinds] or map the \
                     queue to another kind",
                    self.inner.source.name()
                );
                return Err(Error::invalid("queues", problem));
            }
        }
        Ok(())
    }

    /// Takes, keeps and settles until `stop` is cancelled, then settles for a last time. From `draining` on nothing more
    /// is taken: this process would not run it.
    pub async fn run(self, draining: CancellationToken, stop: CancellationToken) {
        let inner = &*self.inner;
        let (mut look_at, mut take_at, mut settle_at) = (Instant::now(), Instant::now(), Instant::now());
        let (mut failures, mut tries) = (Failures::default(), 0);
        let mut except = Vec::new();
        while !stop.is_cancelled() {
            if inner.ended_count.load(Ordering::Acquire) > 0 && !failures.has("settle") {
                settle_at = Instant::now();
            }
            if settle_at <= Instant::now() {
                let asked_for = inner.ended_count.swap(0, Ordering::AcqRel);
                match failures.of("settle", inner.settle().await) {
                    Ok(settled) => {
                        (tries, settle_at) = next_settle(tries, asked_for, settled);
                        // There is room for more.
                        if settled > 0 && !failures.has("take") {
                            take_at = Instant::now();
                        }
                    }
                    Err(pause) => settle_at = Instant::now() + pause,
                }
            }
            if look_at <= Instant::now() {
                match failures.of("look", inner.look().await) {
                    Ok(looked) => {
                        look_at = Instant::now() + looked.next.max(LOOK_MIN);
                        except = looked.except;
                    }
                    Err(pause) => look_at = Instant::now() + pause,
                }
            }
            if take_at <= Instant::now() && !draining.is_cancelled() {
                match failures.of("take", inner.take(&except).await) {
                    Ok(taken) => {
                        // A take that was full may have left something behind.
                        take_at =
                            Instant::now() + if taken.full { Duration::ZERO } else { inner.config.poll };
                        // What was taken is looked at soon: it may expire soon.
                        if taken.count > 0 {
                            look_at = look_at.min(Instant::now() + LOOK_MIN);
                        }
                    }
                    Err(pause) => take_at = Instant::now() + pause,
                }
            }
            let keep_at = look_at.min(settle_at);
            let next = if draining.is_cancelled() { keep_at } else { keep_at.min(take_at) };
            tokio::select! {
                () = stop.cancelled() => {}
                () = inner.ended.notified() => {}
                () = tokio::time::sleep_until(next.into()) => {}
            }
        }
        let _ = tokio::time::timeout(LAST_SETTLE, inner.settle()).await;
    }

    /// Does everything once: settles, looks and takes.
    pub async fn run_once(&self) -> Result<Round> {
        let settled = self.inner.settle().await?;
        let looked = self.inner.look().await?;
        let taken = self.inner.take(&looked.except).await?;
        Ok(Round { settled, lost: looked.lost, taken: taken.count, refused: taken.refused })
    }
}

/// When to look for ended jobs next: soon after a handler has ended, because its outcome is being written.
fn next_settle(tries: u32, asked_for: u32, settled: usize) -> (u32, Instant) {
    let tries = match (asked_for, settled) {
        (1.., _) => 1,
        (0, 0) if tries > 0 => tries + 1,
        _ => 0,
    };
    if (1..=SETTLE_TRIES).contains(&tries) {
        (tries, Instant::now() + SETTLE_SOON * 2_u32.pow(tries - 1).min(50))
    } else {
        (0, Instant::now() + SETTLE_EVERY)
    }
}

/// Steps that failed: each is told of once, and tried again less and less often.
#[derive(Default)]
struct Failures {
    counts: HashMap<&'static str, u32>,
}

impl Failures {
    fn has(&self, step: &str) -> bool {
        self.counts.get(step).is_some_and(|count| *count > 0)
    }

    /// The result of a step, or how long to wait before it is tried again.
    fn of<T>(&mut self, step: &'static str, result: Result<T>) -> Result<T, Duration> {
        let count = self.counts.entry(step).or_default();
        match result {
            Ok(value) => {
                if *count > 0 {
                    tracing::info!(step, failures = *count, "the intake works again");
                }
                *count = 0;
                Ok(value)
            }
            Err(error) => {
                *count += 1;
                if *count == 1 || count.is_multiple_of(100) {
                    tracing::warn!(
                        step,
                        failures = *count,
                        error = chain(&error),
                        "the intake failed; will try again"
                    );
                }
                Err(Backoff::RECONNECT.delay(*count).max(LOOK_MIN))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_job_is_looked_for_soon_and_then_less_often() {
        let (tries, first) = next_settle(0, 1, 0);
        assert_eq!(tries, 1);
        assert!(first <= Instant::now() + SETTLE_SOON);
        let (tries, second) = next_settle(tries, 0, 0);
        assert!(tries == 2 && second > first, "{tries}");
        let (tries, last) = next_settle(SETTLE_TRIES, 0, 0);
        assert!(tries == 0 && last > Instant::now() + SETTLE_EVERY / 2, "{tries}");
        assert_eq!(next_settle(3, 0, 1).0, 0, "found");
    }

    #[test]
    fn a_queue_becomes_the_kind_of_its_own_name_unless_it_is_mapped() {
        let config = Config { kinds: [("clips".into(), "clip".into())].into(), ..Config::default() };
        assert_eq!((config.kind_of("clips"), config.kind_of("mail")), ("clip", "mail"));
        assert!(Config { poll: Duration::ZERO, ..Config::default() }.check().is_err());
        assert!(Config { ahead_max: 0, ..Config::default() }.check().is_err());
    }
}
