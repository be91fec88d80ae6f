//! The clock that leadership is measured with: time since boot, counting the time the machine was suspended.
//!
//! The usual monotonic clock stands still in suspend. A node that slept through its whole lease would wake up and
//! still believe in it. Wall clocks jump. Boot time does neither.

use std::fmt;
use std::ops::Add;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A moment on the boot-time clock of this machine. Means nothing on another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Instant(Duration);

impl Instant {
    /// The moment that lies `duration` after boot.
    pub const fn since_boot(duration: Duration) -> Self {
        Self(duration)
    }

    /// Time from `earlier` to here; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Time from here to `later`; zero if that has passed.
    pub fn until(self, later: Self) -> Duration {
        later.since(self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s", self.0.as_secs_f64())
    }
}

/// Where the time of leadership comes from.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Now, counting suspend.
    fn now(&self) -> Instant;

    /// How long the machine has been suspended since boot. A jump means that it has just woken up.
    fn suspended(&self) -> Duration;
}

/// How long reading the clocks may take to be believed.
const READING_MAX: Duration = Duration::from_millis(10);

/// How often they are read before any reading is believed.
const READINGS_MAX: u32 = 10;

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant(read(ClockId::Boottime))
    }

    fn suspended(&self) -> Duration {
        // The two clocks are read apart. A pause in between would look like a suspend, or hide one, so a reading
        // that took too long is not used.
        let mut apart = Duration::ZERO;
        for _ in 0..READINGS_MAX {
            let before = read(ClockId::Monotonic);
            let boot = read(ClockId::Boottime);
            apart = boot.saturating_sub(before);
            if read(ClockId::Monotonic).saturating_sub(before) < READING_MAX {
                break;
            }
        }
        apart
    }
}

fn read(clock: ClockId) -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    // Both count up from boot, so neither part is negative.
    Duration::new(u64::try_from(tv_sec).unwrap_or(0), u32::try_from(tv_nsec).unwrap_or(0))
}

/// A clock that tests move.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<Mutex<(Duration, Duration)>>);

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.lock().0 += by;
    }

    /// Moves the clock forward as a suspend does.
    pub fn suspend(&self, by: Duration) {
        let mut times = self.lock();
        times.0 += by;
        times.1 += by;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Duration, Duration)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant(self.lock().0)
    }

    fn suspended(&self) -> Duration {
        self.lock().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_runs_forward_and_has_not_slept_during_a_test() {
        let (before, asleep) = (SystemClock.now(), SystemClock.suspended());
        let after = SystemClock.now();
        assert!(after >= before);
        assert!(SystemClock.suspended().abs_diff(asleep) < Duration::from_secs(1));
    }

    #[test]
    fn differences_stop_at_zero() {
        let early = Instant::since_boot(Duration::from_secs(1));
        let late = early + Duration::from_secs(2);
        assert_eq!(late.since(early), Duration::from_secs(2));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early.until(late), Duration::from_secs(2));
    }
}
