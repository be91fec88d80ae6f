//! Pausing under pressure: a deep queue on a loaded machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
}

impl Default for PressureConfig {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            high_watermark: 500,
            load_threshold: f64::from(u32::try_from(cpus).unwrap_or(u32::MAX)),
            pause_interval: Duration::from_secs(3),
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

#[derive(Debug)]
pub(crate) struct Pressure {
    config: PressureConfig,
    paused: AtomicBool,
}

impl Pressure {
    pub(crate) fn new(config: PressureConfig) -> Self {
        Self { config, paused: AtomicBool::new(false) }
    }

    /// Whether to pause before the next claim. Asks the store only when the machine is loaded.
    pub(crate) async fn reading_if_high(&self, store: &dyn Store) -> Option<Reading> {
        let load = load_average();
        if load <= self.config.load_threshold {
            return None;
        }
        let depth = store.depth(self.config.high_watermark + 1).await.ok()?;
        (depth > self.config.high_watermark).then_some(Reading { load, depth })
    }

    pub(crate) fn interval(&self) -> Duration {
        self.config.pause_interval
    }

    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }
}

/// The 1-minute load average.
pub fn load_average() -> f64 {
    // The kernel gives fixed-point numbers with 16 fractional bits.
    #[expect(clippy::cast_precision_loss, reason = "a load average has no 52 significant bits")]
    let load = rustix::system::sysinfo().loads[0] as f64 / 65_536.0;
    load
}
