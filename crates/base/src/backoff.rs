//! How long to wait before the next try.

use std::time::Duration;

use rand::RngExt as _;

/// Exponential backoff: `first × factor^(n−1)`, capped, then spread by ± `jitter`.
///
/// The jitter comes after the cap, so that a thousand jobs that all reached the cap do not return in the same
/// second; a delay can therefore exceed the cap by the jitter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The delay after the first failure, before jitter.
    pub first: Duration,
    /// What each further failure multiplies the delay by.
    pub factor: f64,
    /// The longest delay, before jitter.
    pub cap: Duration,
    /// The share of the delay by which it is spread to either side, 0.0 to 1.0.
    pub jitter: f64,
}

impl Backoff {
    /// The job queue's: 30 s doubling up to 1 h, ± 20 %.
    pub const JOBS: Self =
        Self { first: Duration::from_secs(30), factor: 2.0, cap: Duration::from_secs(3600), jitter: 0.2 };

    /// For reconnecting to a server: 100 ms doubling up to 5 s, ± 50 %.
    pub const RECONNECT: Self =
        Self { first: Duration::from_millis(100), factor: 2.0, cap: Duration::from_secs(5), jitter: 0.5 };

    /// The delay after failure number `failures` (the first is 1), before jitter.
    pub fn base_delay(&self, failures: u32) -> Duration {
        let exponent = failures.saturating_sub(1).min(64);
        let seconds = self.first.as_secs_f64() * self.factor.powi(exponent.cast_signed());
        Duration::from_secs_f64(seconds.min(self.cap.as_secs_f64()))
    }

    /// The delay after failure number `failures`, spread by the jitter.
    pub fn delay(&self, failures: u32) -> Duration {
        let spread = rand::rng().random_range(-1.0..=1.0) * self.jitter;
        self.base_delay(failures).mul_f64(1.0 + spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_delays_double_from_30_seconds_to_an_hour() {
        let delays: Vec<u64> = (1..=9).map(|n| Backoff::JOBS.base_delay(n).as_secs()).collect();
        assert_eq!(delays, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
    }

    #[test]
    fn jitter_stays_within_a_fifth_and_comes_after_the_cap() {
        let delays: Vec<f64> = (0..2000).map(|_| Backoff::JOBS.delay(20).as_secs_f64()).collect();
        assert!(delays.iter().all(|d| (2880.0..=4320.0).contains(d)), "out of 3600 ± 20 %");
        assert!(delays.iter().any(|d| *d > 3600.0), "the jitter was cut off at the cap");
    }

    #[test]
    fn a_huge_failure_count_does_not_overflow() {
        assert_eq!(Backoff::JOBS.base_delay(u32::MAX).as_secs(), 3600);
    }
}
