//! Which progress reports are worth an event.

use std::time::{Duration, Instant};

/// After so long a report is passed on even if the percentage did not rise.
const QUIET_MAX: Duration = Duration::from_millis(500);
/// 100 belongs to the job that is done and recorded.
const BEFORE_DONE_MAX: u8 = 99;

/// What to do with a report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// Pass this percentage on.
    Send(u8),
    /// Nothing new enough.
    Drop,
}

/// Thins out the reports of one execution.
#[derive(Debug)]
pub(crate) struct Throttle {
    percent: u8,
    sent_at: Option<Instant>,
}

impl Throttle {
    /// Starts where an earlier attempt ended, so that the percentage never falls.
    pub(crate) fn starting_at(percent: u8) -> Self {
        Self { percent: percent.min(BEFORE_DONE_MAX), sent_at: None }
    }

    pub(crate) fn offer(&mut self, percent: u8, now: Instant) -> Report {
        let percent = percent.min(BEFORE_DONE_MAX).max(self.percent);
        let quiet = self.sent_at.is_none_or(|sent_at| now.duration_since(sent_at) >= QUIET_MAX);
        if percent == self.percent && !quiet {
            return Report::Drop;
        }
        self.percent = percent;
        self.sent_at = Some(now);
        Report::Send(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rise_is_sent_a_repeat_is_not_until_half_a_second_passed() {
        let start = Instant::now();
        let mut throttle = Throttle::starting_at(0);
        assert_eq!(throttle.offer(1, start), Report::Send(1));
        assert_eq!(throttle.offer(1, start), Report::Drop);
        assert_eq!(throttle.offer(2, start), Report::Send(2));
        assert_eq!(throttle.offer(2, start + Duration::from_millis(499)), Report::Drop);
        assert_eq!(throttle.offer(2, start + Duration::from_millis(500)), Report::Send(2));
    }

    #[test]
    fn it_never_falls_and_stays_below_100_until_done() {
        let start = Instant::now();
        let mut throttle = Throttle::starting_at(40);
        assert_eq!(throttle.offer(10, start), Report::Send(40));
        assert_eq!(throttle.offer(10, start), Report::Drop);
        assert_eq!(throttle.offer(100, start), Report::Send(99));
        assert_eq!(throttle.offer(200, start), Report::Drop);
    }
}
