//! How long to wait after a failure, and when to give up.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stargate_base::{Backoff, ErrorClass};

/// Conflicts in a row that are waited for; the next one needs an operator.
pub const CONFLICTS_MAX: u32 = 5;

/// The shortest delay that a source is granted: one that asks for none would be asked without pause.
pub const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// How failures of a directive are retried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// After a failure that may pass.
    pub transient: Backoff,
    /// Transient failures in a row that are waited for; `None` is without end: an outage of the source ends one day, and
    /// until then the lag of the cursor tells of it.
    pub transient_max: Option<u32>,
    /// After somebody else was faster.
    pub conflict: Backoff,
}

impl Policy {
    /// 30 s doubling to 10 min; and 5, 10, 20, 40, 60 s, give or take a fifth.
    pub const STANDARD: Self = Self {
        transient: Backoff {
            first: Duration::from_secs(30),
            factor: 2.0,
            cap: Duration::from_secs(600),
            jitter: 0.0,
        },
        transient_max: None,
        conflict: Backoff {
            first: Duration::from_secs(5),
            factor: 2.0,
            cap: Duration::from_secs(60),
            jitter: 0.2,
        },
    };
}

/// Failures since the last success.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// That may pass.
    pub transient: u32,
    /// Because somebody else was faster.
    pub conflict: u32,
    /// How many records the run had come to. Only what comes after them is a success: reading the same ones again is not.
    #[serde(default)]
    pub reached: u64,
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Try again after so long.
    Retry(Duration),
    /// The run has failed and waits for an operator, for this reason.
    GiveUp(GiveUp),
}

/// Why nothing is tried any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// The failure itself says so.
    Poison,
    /// Somebody else was faster too often.
    ConflictExhausted,
    /// The directive allows no more tries.
    TriesExhausted,
}

impl Failures {
    /// Something worked, so many records from the beginning: if that is further than before, what failed counts no more.
    pub fn forget(&mut self, records: u64) {
        if records > self.reached {
            *self = Self::default();
        }
    }

    /// Notes how far the run had come when something failed.
    pub fn at(&mut self, records: u64) {
        self.reached = self.reached.max(records);
    }

    /// Counts a failure. What the source asks for takes the place of the delay.
    pub fn count(&mut self, policy: &Policy, class: ErrorClass, retry_after: Option<Duration>) -> Next {
        match class {
            ErrorClass::RetryableTransient => {
                self.transient += 1;
                if policy.transient_max.is_some_and(|most| self.transient > most) {
                    return Next::GiveUp(GiveUp::TriesExhausted);
                }
                let wish = retry_after.map(|wish| wish.max(RETRY_AFTER_MIN));
                Next::Retry(wish.unwrap_or_else(|| policy.transient.delay(self.transient)))
            }
            ErrorClass::Conflict => {
                self.conflict += 1;
                if self.conflict > CONFLICTS_MAX {
                    return Next::GiveUp(GiveUp::ConflictExhausted);
                }
                Next::Retry(policy.conflict.delay(self.conflict))
            }
            ErrorClass::ValidationFailure | ErrorClass::Fatal => Next::GiveUp(GiveUp::Poison),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(class: ErrorClass, count: usize) -> Vec<Next> {
        let mut failures = Failures::default();
        (0..count).map(|_| failures.count(&Policy::STANDARD, class, None)).collect()
    }

    #[test]
    fn transient_failures_wait_half_a_minute_doubling_to_ten() {
        let expected = [30, 60, 120, 240, 480, 600, 600].map(|s| Next::Retry(Duration::from_secs(s)));
        assert_eq!(delays(ErrorClass::RetryableTransient, 7), expected);
    }

    #[test]
    fn conflicts_wait_up_to_a_minute_and_the_sixth_gives_up() {
        let answers = delays(ErrorClass::Conflict, 6);
        for (answer, expected) in answers.iter().zip([5.0, 10.0, 20.0, 40.0, 60.0]) {
            let Next::Retry(delay) = answer else { unreachable!("{answer:?}") };
            let ratio = delay.as_secs_f64() / expected;
            assert!((0.8..=1.2).contains(&ratio), "{delay:?} for {expected}");
        }
        assert_eq!(answers[5], Next::GiveUp(GiveUp::ConflictExhausted));
    }

    #[test]
    fn poison_is_not_tried_again() {
        for class in [ErrorClass::ValidationFailure, ErrorClass::Fatal] {
            assert_eq!(delays(class, 1), [Next::GiveUp(GiveUp::Poison)]);
        }
    }

    #[test]
    fn what_the_source_asks_for_takes_the_place_of_the_delay() {
        let (mut failures, wish) = (Failures::default(), Duration::from_secs(7));
        let mut fail = |wish| failures.count(&Policy::STANDARD, ErrorClass::RetryableTransient, wish);
        assert_eq!(fail(Some(wish)), Next::Retry(wish));
        assert_eq!(fail(None), Next::Retry(Duration::from_secs(60)));
        assert_eq!(fail(Some(Duration::ZERO)), Next::Retry(RETRY_AFTER_MIN));
    }

    #[test]
    fn a_success_begins_the_count_anew_and_a_directive_may_allow_fewer_tries() {
        let policy = Policy { transient_max: Some(1), ..Policy::STANDARD };
        let mut failures = Failures::default();
        for _ in 0..3 {
            let first = failures.count(&policy, ErrorClass::RetryableTransient, None);
            assert_eq!(first, Next::Retry(Duration::from_secs(30)));
            failures.forget(1);
        }
        failures.at(100);
        failures.forget(100);
        failures.count(&policy, ErrorClass::RetryableTransient, None);
        let second = failures.count(&policy, ErrorClass::RetryableTransient, None);
        assert_eq!(second, Next::GiveUp(GiveUp::TriesExhausted));
    }
}
