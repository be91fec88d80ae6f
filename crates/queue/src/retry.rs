//! What becomes of a failed execution. Looks at the class and the counts, and at nothing else.

use stargate_base::ErrorClass;

use crate::handler::Failure;
use crate::job::JobError;
use crate::kind::Profile;
use crate::store::Outcome;

/// Every retry was used up.
pub const RETRIES_EXHAUSTED: &str = "RETRIES_EXHAUSTED";
/// The job took down too many workers.
pub const WORKER_LOST: &str = "WORKER_LOST";
/// A job it waited for failed.
pub const DEPENDENCY_FAILED: &str = "DEPENDENCY_FAILED";
/// The execution took longer than its kind allows.
pub const TIMEOUT: &str = "TIMEOUT";
/// The worker could not keep its lease and stopped the execution itself.
pub const LEASE_LOST: &str = "LEASE_LOST";
/// The handler panicked.
pub const PANIC: &str = "PANIC";

/// The `outcome` label of `worker_jobs_processed_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// Done.
    Ok,
    /// Will run again.
    Retry,
    /// Retries used up.
    Failed,
    /// Not worth a retry.
    Poison,
}

impl Label {
    /// The label's text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Retry => "retry",
            Self::Failed => "failed",
            Self::Poison => "poison",
        }
    }
}

/// Decides what becomes of a failed execution.
pub fn decide(profile: &Profile, attempt: u16, max_attempts: u16, failure: Failure) -> (Outcome, Label) {
    let Failure { error, retry_after } = failure;
    if error.class.is_poison() {
        return (Outcome::Failed { error }, Label::Poison);
    }
    if attempt >= max_attempts {
        return (Outcome::Failed { error: exhausted(attempt, error) }, Label::Failed);
    }
    let delay = retry_after.unwrap_or_else(|| profile.backoff.delay(u32::from(attempt)));
    (Outcome::Retry { error, delay }, Label::Retry)
}

fn exhausted(attempts: u16, last: JobError) -> JobError {
    JobError {
        code: RETRIES_EXHAUSTED.to_owned(),
        class: ErrorClass::RetryableTransient,
        message: format!("failed {attempts} times; the last error was {}: {}", last.code, last.message),
        detail: last.detail,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn transient_errors_are_retried_until_the_last_attempt_then_exhausted() {
        let profile = Profile::default();
        let at = |attempt| decide(&profile, attempt, 3, Failure::transient("no route"));
        assert!(matches!(at(1), (Outcome::Retry { .. }, Label::Retry)));
        assert!(matches!(at(2), (Outcome::Retry { .. }, Label::Retry)));
        let (Outcome::Failed { error }, Label::Failed) = at(3) else { panic!("{:?}", at(3)) };
        assert_eq!(error.code, RETRIES_EXHAUSTED);
        assert!(error.message.contains("no route"), "{}", error.message);
    }

    #[test]
    fn poison_fails_at_once_with_its_own_code() {
        for failure in [Failure::invalid("bad"), Failure::fatal("worse")] {
            let code = failure.error.code.clone();
            let (Outcome::Failed { error }, Label::Poison) = decide(&Profile::default(), 1, 5, failure)
            else {
                panic!("not poison")
            };
            assert_eq!(error.code, code);
        }
    }

    #[test]
    fn a_servers_retry_after_takes_the_place_of_the_backoff() {
        let failure = Failure::transient("busy").with_retry_after(Duration::from_secs(7));
        let (Outcome::Retry { delay, .. }, _) = decide(&Profile::default(), 1, 5, failure) else { panic!() };
        assert_eq!(delay, Duration::from_secs(7));
    }
}
