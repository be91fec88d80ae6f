//! The time that decides, and the time that is only shown.
//!
//! Leases and due times compare with the database's own clock (INV-6). A store is opened with
//! [`Clock::Store`] in production; tests open it with a hand-driven clock, and the adapter passes that time
//! into every statement instead.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;

/// Where a store's statements take "now" from.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The database's own clock.
    #[default]
    Store,
    /// A clock that tests set and advance.
    Manual(ManualClock),
}

impl Clock {
    /// The time to pass into a statement; `None` lets the database decide.
    pub fn for_statement(&self) -> Option<Timestamp> {
        match self {
            Self::Store => None,
            Self::Manual(clock) => Some(clock.now()),
        }
    }
}

/// A clock that moves only when told to.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<Timestamp>>);

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn at(start: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(start)))
    }

    /// Where the clock stands.
    pub fn now(&self) -> Timestamp {
        *self.lock()
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.lock();
        *now = now
            .saturating_add(jiff::SignedDuration::try_from(by).unwrap_or(jiff::SignedDuration::MAX))
            .unwrap_or(Timestamp::MAX);
    }

    /// Sets the clock, backwards too: clocks do jump.
    pub fn set(&self, to: Timestamp) {
        *self.lock() = to;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Timestamp> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// An instant on a clock that goes on while the machine is suspended, because leases do. Means nothing elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Moment(Duration);

impl Moment {
    // Elsewhere the monotonic clock counts the time of a suspension itself.
    #[cfg(target_os = "linux")]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

    /// The present one.
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(Self::CLOCK);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Self(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0)))
    }

    /// How long ago it was.
    pub fn age(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

/// The host's wall clock, for display, logs and default time stamps in producers; never to compare leases with.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall() -> Timestamp {
    Timestamp::now()
}
