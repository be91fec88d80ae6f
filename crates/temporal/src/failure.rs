//! How an end of an execution is told to the cluster.

use std::time::Duration;

use stargate_base::ErrorClass;
use stargate_directive::steps::Trouble;
use temporalio_sdk::ApplicationFailure;
use temporalio_sdk::activities::ActivityError;

use crate::plan::Details;

/// The type of a failure that only means: somebody else is to go on.
pub(crate) const STOPPED: &str = "Stopped";
/// When an execution that was told to stop is tried again, by another worker if there is one.
const STOPPED_RETRY: Duration = Duration::from_millis(10);
/// Characters of a message that go into the history.
const MESSAGE_MAX: usize = 4000;

/// A failure that is tried again after a while.
pub(crate) fn wait(after: Duration, trouble: &Trouble) -> ActivityError {
    let failure = ApplicationFailure::builder(message(trouble))
        .type_name(trouble.class.as_str().to_owned())
        .next_retry_delay(after)
        .details(details(trouble))
        .build();
    ActivityError::application(failure)
}

/// A failure that is not tried again.
pub(crate) fn fatal(trouble: &Trouble) -> ActivityError {
    // The word says how it is treated; what may pass has been given up by the steps.
    let class = if trouble.class.is_poison() { trouble.class } else { ErrorClass::Fatal };
    let failure = ApplicationFailure::builder(message(trouble))
        .type_name(class.as_str().to_owned())
        .non_retryable(true)
        .details(details(trouble))
        .build();
    ActivityError::application(failure)
}

/// The worker stops; whoever comes next goes on.
pub(crate) fn stopped() -> ActivityError {
    let failure = ApplicationFailure::builder("the worker stops; the run is taken up where its cursor is")
        .type_name(STOPPED.to_owned())
        .next_retry_delay(STOPPED_RETRY)
        .build();
    ActivityError::application(failure)
}

fn message(trouble: &Trouble) -> String {
    cut(format!("{}: {}", trouble.code, trouble.message))
}

fn details(trouble: &Trouble) -> Details {
    Details { code: trouble.code.clone(), class: trouble.class.as_str().to_owned() }
}

/// A bearable length of it.
pub(crate) fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MESSAGE_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(error: ActivityError) -> ApplicationFailure {
        let ActivityError::Application(failure) = error else { panic!("{error:?}") };
        *failure
    }

    #[test]
    fn what_may_pass_is_tried_again_after_the_delay_of_the_steps() {
        let trouble = Trouble::new(ErrorClass::Conflict, "RUN_HELD", "another one");
        let failure = of(wait(Duration::from_secs(7), &trouble));
        assert_eq!(failure.type_name(), Some("Conflict"));
        assert_eq!(failure.next_retry_delay(), Some(Duration::from_secs(7)));
        assert!(!failure.is_non_retryable());
        assert_eq!(failure.to_string(), "RUN_HELD: another one");
    }

    #[test]
    fn what_failed_is_never_tried_again() {
        for class in ErrorClass::ALL {
            let failure = of(fatal(&Trouble::new(class, "X", "y")));
            assert!(failure.is_non_retryable());
            assert!(["Fatal", "ValidationFailure"].contains(&failure.type_name().unwrap_or_default()));
        }
    }

    #[test]
    fn a_long_message_is_cut_where_a_character_ends() {
        let text = cut("ä".repeat(MESSAGE_MAX + 5));
        assert_eq!(text.chars().count(), MESSAGE_MAX + 1);
    }
}
