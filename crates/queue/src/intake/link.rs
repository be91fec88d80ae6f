//! What ties an item of a source to the job it became.

use std::time::Duration;

use rand::RngExt as _;
use serde::{Deserialize, Serialize};

use crate::job::{JobId, NewJob, Stage};

/// The largest page of links.
pub const LINKS_MAX: u32 = 1000;

/// How the retries of an item are to be spaced, as the application that sent it asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Retries that it had used before it came here.
    pub retry_count: u32,
    /// Seconds to the next try.
    pub retry_delay_s: u32,
    /// Whether the delay doubles each time.
    pub retry_backoff: bool,
    /// The longest delay, in seconds.
    pub retry_delay_max_s: Option<u32>,
}

impl Terms {
    /// How long to wait after this attempt, counted from 1, before the next.
    pub fn delay_after(&self, attempt: u16) -> Duration {
        self.delay_with(attempt, rand::rng().random())
    }

    /// As pg-boss does it: `random` in 0..1 picks a point in the upper half of the doubled delay.
    fn delay_with(&self, attempt: u16, random: f64) -> Duration {
        if !self.retry_backoff {
            return Duration::from_secs(self.retry_delay_s.into());
        }
        let doublings = (self.retry_count + u32::from(attempt)).clamp(1, 16) - 1;
        let half = f64::from(self.retry_delay_s.max(1)) * f64::from(1_u32 << doublings);
        let most = self.retry_delay_max_s.map_or(f64::MAX, f64::from);
        Duration::from_secs_f64((half + half * random).min(most))
    }
}

/// How far the taking of an item has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i16)]
pub enum LinkStage {
    /// Its job is here and does not run yet: the source may not have been told.
    Accepted = 0,
    /// The source was told; its job runs like any other.
    Held = 1,
    /// It turned out not to be ours; its job is being cancelled.
    Disowned = 2,
}

impl LinkStage {
    /// The stage with this number in the database.
    pub fn from_number(number: i16) -> Option<Self> {
        [Self::Accepted, Self::Held, Self::Disowned].into_iter().find(|stage| *stage as i16 == number)
    }
}

/// An item to be accepted.
#[derive(Debug, Clone)]
pub struct NewLink {
    /// Its name at the source.
    pub item: String,
    /// What the acknowledgement will write there.
    pub mark: String,
    /// How its retries are to be spaced.
    pub terms: Terms,
    /// The job it becomes; without unique key and parents.
    pub job: NewJob,
}

/// The answer to an accepted item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Linked {
    /// Its job.
    pub job: JobId,
    /// How far it is: an item that was accepted before may be further.
    pub stage: LinkStage,
}

/// An item and its job.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Its name at the source.
    pub item: String,
    /// The job it became.
    pub job: JobId,
    /// What our acknowledgement wrote there.
    pub mark: String,
    /// How its retries are to be spaced.
    pub terms: Terms,
    /// How far the taking has come.
    pub stage: LinkStage,
    /// What its job waits for; `None` when it has ended.
    pub job_stage: Option<Stage>,
}

/// Which links to list.
#[derive(Debug, Clone)]
pub struct LinkFilter {
    /// Of this source.
    pub source: String,
    /// Only of this job.
    pub job: Option<JobId>,
    /// Only those whose job has ended.
    pub ended: bool,
    /// Only items after this one: the keyset for the next page.
    pub after: Option<String>,
    /// Page size, 1 to [`LINKS_MAX`].
    pub limit: u32,
}

/// What happens to links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkTurn {
    /// The source was told: the job may run. Only links that were just accepted turn so.
    Hold,
    /// The item is not ours: the job must not begin again.
    Disown,
    /// Nothing is left to be done: the link is removed.
    Close,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(delay: u32, backoff: bool, most: Option<u32>) -> Terms {
        Terms { retry_count: 0, retry_delay_s: delay, retry_backoff: backoff, retry_delay_max_s: most }
    }

    #[test]
    fn a_fixed_delay_stays_the_same() {
        for attempt in [1, 2, 30] {
            assert_eq!(terms(7, false, Some(1)).delay_after(attempt), Duration::from_secs(7));
        }
        assert_eq!(terms(0, false, None).delay_after(1), Duration::ZERO);
    }

    #[test]
    fn a_backoff_doubles_within_its_bounds() {
        let seconds = |attempt, random| terms(3, true, None).delay_with(attempt, random).as_secs_f64();
        assert_eq!(
            [seconds(1, 0.0), seconds(1, 0.5), seconds(2, 0.0), seconds(3, 0.0)],
            [3.0, 4.5, 6.0, 12.0]
        );
        assert_eq!(seconds(16, 0.0), seconds(1000, 0.0), "no further than pg-boss goes");
        assert_eq!(terms(0, true, None).delay_with(1, 0.0), Duration::from_secs(1), "at least a second");
        assert_eq!(terms(100, true, Some(150)).delay_with(9, 0.9), Duration::from_secs(150));
        let later = Terms { retry_count: 2, ..terms(3, true, None) };
        assert_eq!(later.delay_with(1, 0.0), Duration::from_secs(12), "earlier retries count");
    }
}
