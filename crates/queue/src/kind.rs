//! Profiles: how jobs of one kind are to be treated.

use std::time::Duration;

use stargate_base::Backoff;

use crate::error::{Error, Result};
use crate::job::{ATTEMPTS_MAX, check_name};

/// How jobs of one kind are to be treated.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Executions allowed before the job is failed with `RETRIES_EXHAUSTED`. Default 5.
    pub max_attempts: u16,
    /// Workers a job may take down before it is failed with `WORKER_LOST`. Default 3.
    pub max_crashes: u16,
    /// How long to wait between attempts. Default 30 s × 2^(n−1), at most 1 h, ± 20 %.
    pub backoff: Backoff,
    /// How long one execution may take before it is stopped and counted as failed. Default 5 min.
    pub timeout: Duration,
    /// Silence of the worker after which the job counts as abandoned; the worker's own lease when absent.
    ///
    /// A value below two heartbeats is refused at start.
    pub lease: Option<Duration>,
    /// How many jobs of this kind one process runs at once; only the pool's size limits it when absent.
    pub concurrency: Option<usize>,
    /// Which events handlers of this kind may add to the timeline.
    pub timeline: Detail,
}

/// How much of a handler's reports is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// State changes, progress and the handler's own events.
    #[default]
    Full,
    /// State changes only; progress is kept on the job but leaves no event.
    States,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            max_crashes: 3,
            backoff: Backoff::JOBS,
            timeout: Duration::from_secs(300),
            lease: None,
            concurrency: None,
            timeline: Detail::Full,
        }
    }
}

impl Profile {
    /// Refuses impossible values, naming the field.
    pub fn check(&self) -> Result<()> {
        if !(1..=ATTEMPTS_MAX).contains(&self.max_attempts) {
            return Err(Error::invalid(
                "max_attempts",
                format!("is {}; allowed are 1 to {ATTEMPTS_MAX}", self.max_attempts),
            ));
        }
        if !(1..=ATTEMPTS_MAX).contains(&self.max_crashes) {
            return Err(Error::invalid(
                "max_crashes",
                format!("is {}; allowed are 1 to {ATTEMPTS_MAX}", self.max_crashes),
            ));
        }
        if self.timeout.is_zero() || self.timeout > Duration::from_secs(7 * 86_400) {
            return Err(Error::invalid("timeout", "is out of range; allowed are 1 ms to 7 days"));
        }
        if self.concurrency == Some(0) {
            return Err(Error::invalid("concurrency", "is 0; leave it out for no limit, or pause the kind"));
        }
        Ok(())
    }
}

/// What the store keeps of a kind, so that producers in any language get the right defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct KindSpec {
    /// Its name.
    pub name: String,
    /// Executions allowed for jobs that do not say.
    pub max_attempts: u16,
    /// Workers a job may take down.
    pub max_crashes: u16,
}

impl KindSpec {
    /// What the store keeps of a profile.
    pub fn new(name: &str, profile: &Profile) -> Result<Self> {
        check_name("kind", name)?;
        profile.check()?;
        Ok(Self {
            name: name.to_owned(),
            max_attempts: profile.max_attempts,
            max_crashes: profile.max_crashes,
        })
    }
}
