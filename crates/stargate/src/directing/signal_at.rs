//! For tests: a process that ends or stands still at a step of a run, as the environment says. Not in a release.

use std::sync::Arc;

use stargate_directive::steps::Watch;

/// Who is told of steps, if the environment names one: `Persist:3` is the third time it is reached.
#[cfg(not(debug_assertions))]
pub(super) fn of_environment() -> Option<Arc<dyn Watch>> {
    None
}

#[cfg(debug_assertions)]
pub(super) use debug::of_environment;

#[cfg(debug_assertions)]
mod debug {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};
    use stargate_directive::Step;

    use super::{Arc, Watch};

    /// The second one needs somebody to send SIGCONT.
    const VARIABLES: [(&str, Signal); 2] =
        [("STARGATE_TEST_DIE_AT_STEP", Signal::KILL), ("STARGATE_TEST_PAUSE_AT_STEP", Signal::STOP)];
    /// SIGSTOP is taken by any of the threads, and only then stops this one.
    const STOPPED_WITHIN: Duration = Duration::from_secs(1);

    #[derive(Debug)]
    struct SignalAt {
        step: String,
        times: AtomicU64,
        signal: Signal,
    }

    pub(in super::super) fn of_environment() -> Option<Arc<dyn Watch>> {
        VARIABLES.into_iter().find_map(|(variable, signal)| {
            let value = std::env::var(variable).ok()?;
            let (step, times) = value.split_once(':').unwrap_or((&value, "1"));
            let times = AtomicU64::new(times.parse().ok()?);
            Some(Arc::new(SignalAt { step: step.to_owned(), times, signal }) as Arc<dyn Watch>)
        })
    }

    impl Watch for SignalAt {
        fn reached(&self, step: Step) {
            if step.as_str() == self.step && self.times.fetch_sub(1, Ordering::AcqRel) == 1 {
                // After SIGKILL nothing may run, no handler and no destructor: that is what a crash is.
                let _ = kill_process(getpid(), self.signal);
                std::thread::sleep(STOPPED_WITHIN);
            }
        }
    }
}
