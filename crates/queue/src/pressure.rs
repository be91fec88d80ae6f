//! Pausing under pressure: a deep queue on a loaded machine.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::store::Store;

/// When claiming pauses.
#[derive(Debug, Clone, PartialEq)]
pub struct PressureConfig {
    /// Jobs that could run now, above which the queue counts as deep. Default 500.
    pub high_watermark: u64,
    /// 1-minute load average above which the machine counts as loaded. Default: the number of CPUs.
    pub load_threshold: f64,
    /// How long a pause lasts; one claim is allowed between two pauses. Default 3 s.
    pub pause_interval: Duration,
    /// Where the load is read. Default: this machine.
    pub load: Load,
}

/// Where a load average comes from.
#[derive(Clone, Default)]
pub struct Load(Option<Arc<dyn Fn() -> f64 + Send + Sync>>);

impl Load {
    /// The 1-minute load average of this machine.
    pub fn of_machine() -> Self {
        Self(None)
    }

    /// Somewhere else: a container's own figure, or a test's.
    pub fn from_fn(read: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(read)))
    }

    /// What it is now.
    pub fn read(&self) -> f64 {
        self.0.as_ref().map_or_else(load_average, |read| read())
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Load(function)" } else { "Load(machine)" })
    }
}

impl PartialEq for Load {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Default for PressureConfig {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            high_watermark: 500,
            load_threshold: f64::from(u32::try_from(cpus).unwrap_or(u32::MAX)),
            pause_interval: Duration::from_secs(3),
            load: Load::of_machine(),
        }
    }
}

impl PressureConfig {
    pub(crate) fn check(&self) -> Result<()> {
        if !self.load_threshold.is_finite() || self.load_threshold <= 0.0 {
            return Err(Error::invalid(
                "load_threshold",
                format!("is {}; it must be above 0", self.load_threshold),
            ));
        }
        if self.pause_interval.is_zero() || self.pause_interval > Duration::from_secs(3600) {
            return Err(Error::invalid("pause_interval", "is out of range; allowed are 1 ms to 1 h"));
        }
        Ok(())
    }
}

/// What the pressure gauge reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// 1-minute load average.
    pub load: f64,
    /// Jobs that could run now, counted to just above the watermark.
    pub depth: u64,
}

/// How close a pool is to pausing, or that it does. As text it is one line for people.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The load now.
    pub load: f64,
    /// Above which the machine counts as loaded.
    pub load_threshold: f64,
    /// Jobs that could run, above which the queue counts as deep.
    pub high_watermark: u64,
    /// What is left of the pause, while there is one. Nothing is left while the one claim between two pauses is
    /// under way.
    pub pause_left: Option<Duration>,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { load, load_threshold, high_watermark, pause_left } = self;
        match pause_left {
            Some(left) => write!(
                f,
                "claiming pauses for {:.1} s more: over {high_watermark} jobs could run and the load is {load:.2}, \
                 over {load_threshold}",
                left.as_secs_f64()
            ),
            None => write!(
                f,
                "none: claiming pauses when the load, {load:.2}, is over {load_threshold} and over \
                 {high_watermark} jobs could run"
            ),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Pressure {
    config: PressureConfig,
    /// The end of the pause, from its beginning until the pressure has gone.
    paused_until: Mutex<Option<Instant>>,
}

impl Pressure {
    pub(crate) fn new(config: PressureConfig) -> Self {
        Self { config, paused_until: Mutex::new(None) }
    }

    /// Whether to pause before the next claim. Asks the store only when the machine is loaded.
    pub(crate) async fn reading_if_high(&self, store: &dyn Store) -> Option<Reading> {
        reading_if_high(&self.config, store).await.ok()?
    }

    pub(crate) fn interval(&self) -> Duration {
        self.config.pause_interval
    }

    /// A pause begins.
    pub(crate) fn pause(&self) {
        self.set(Some(Instant::now() + self.config.pause_interval));
    }

    /// The pressure has gone.
    pub(crate) fn ease(&self) {
        self.set(None);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused_until().is_some()
    }

    pub(crate) fn state(&self) -> State {
        State {
            load: self.config.load.read(),
            load_threshold: self.config.load_threshold,
            high_watermark: self.config.high_watermark,
            pause_left: self.paused_until().map(|end| end.saturating_duration_since(Instant::now())),
        }
    }

    fn set(&self, end: Option<Instant>) {
        *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }

    fn paused_until(&self) -> Option<Instant> {
        *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the gauge reads, if both are over their thresholds.
pub(crate) async fn reading_if_high(config: &PressureConfig, store: &dyn Store) -> Result<Option<Reading>> {
    let load = config.load.read();
    if load <= config.load_threshold {
        return Ok(None);
    }
    let depth = store.depth(config.high_watermark.saturating_add(1)).await?;
    Ok((depth > config.high_watermark).then_some(Reading { load, depth }))
}

/// The 1-minute load average.
pub fn load_average() -> f64 {
    // The kernel gives fixed-point numbers with 16 fractional bits.
    #[expect(clippy::cast_precision_loss, reason = "a load average has no 52 significant bits")]
    let load = rustix::system::sysinfo().loads[0] as f64 / 65_536.0;
    load
}
