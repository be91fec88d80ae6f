//! Cron schedules: durable, with a time zone, fired once across the fleet.
//!
//! Every worker process looks at the due schedules; firing is a compare-and-set on the due instant, in the same
//! transaction as the enqueue, so exactly one process succeeds. Instants missed while nobody ran are made up for
//! by one firing, not by one for each.

use std::str::FromStr as _;

use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::error::{Error, Result};
use crate::job::{Json, check_json_size, check_name};
use crate::store::Store;

/// A durable cron schedule.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// Five fields (or six with seconds), or `@hourly`, `@daily`, …
    pub cron: String,
    /// IANA name of the zone the fields are read in; `UTC` by default.
    pub time_zone: String,
    /// Kind of the job it enqueues.
    pub kind: String,
    /// Queue of the job it enqueues.
    pub queue: String,
    /// Payload of the job it enqueues.
    pub payload: Json,
    /// Priority of the job it enqueues.
    pub priority: i16,
    /// The next instant; absent when the expression never matches again.
    pub next_at: Option<Timestamp>,
    /// The last instant that was fired.
    pub last_at: Option<Timestamp>,
}

impl Schedule {
    /// Refuses what cannot be a schedule.
    pub fn check(&self) -> Result<()> {
        check_name("schedule", &self.name)?;
        check_name("kind", &self.kind)?;
        check_name("queue", &self.queue)?;
        check_json_size("payload", self.payload.get())?;
        self.parse().map(drop)
    }

    /// The first instant strictly after `instant`.
    pub fn next_after(&self, instant: Timestamp) -> Result<Option<Timestamp>> {
        let (cron, zone) = self.parse()?;
        // The search is bounded by croner itself; an expression such as "30 February" simply has no next instant.
        Ok(cron.find_next_occurrence(&instant.to_zoned(zone), false).ok().map(|zoned| zoned.timestamp()))
    }

    /// The expression in words.
    pub fn in_words(&self) -> String {
        self.parse().map(|(cron, _)| cron.describe()).unwrap_or_else(|error| error.to_string())
    }

    fn parse(&self) -> Result<(Cron, TimeZone)> {
        if self.cron.len() > 200 {
            return Err(Error::invalid("cron", "is longer than 200 characters"));
        }
        let cron = Cron::from_str(&self.cron).map_err(|error| {
            Error::invalid(
                "cron",
                format!(
                    "{:?} is not a cron expression: {}; e.g. \"*/15 * * * *\"",
                    self.cron,
                    error.to_string().trim_end_matches('.')
                ),
            )
        })?;
        let zone = TimeZone::get(&self.time_zone).map_err(|_| {
            Error::invalid(
                "time_zone",
                format!("{:?} is not an IANA zone; e.g. Europe/Berlin, UTC", self.time_zone),
            )
        })?;
        Ok((cron, zone))
    }
}

/// Puts a schedule that waits for its next instant from now on. One whose times have not changed goes on waiting for the instant that
/// it had: a restart neither skips nor repeats a firing.
pub async fn put(store: &dyn Store, mut schedule: Schedule) -> Result<()> {
    if schedule.next_at.is_none() {
        schedule.next_at = schedule.next_after(store.now().await?)?;
    }
    store.schedule_put(schedule).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(cron: &str, zone: &str) -> Schedule {
        Schedule {
            name: "s".into(),
            cron: cron.into(),
            time_zone: zone.into(),
            kind: "k".into(),
            queue: "default".into(),
            payload: serde_json::value::to_raw_value(&()).unwrap(),
            priority: 0,
            next_at: None,
            last_at: None,
        }
    }

    fn next(cron: &str, zone: &str, after: &str) -> String {
        schedule(cron, zone).next_after(after.parse().unwrap()).unwrap().unwrap().to_string()
    }

    #[test]
    fn the_next_instant_is_strictly_later_and_in_the_zone() {
        assert_eq!(next("*/15 * * * *", "UTC", "2026-01-01T10:15:00Z"), "2026-01-01T10:30:00Z");
        assert_eq!(next("0 9 * * *", "Europe/Berlin", "2026-01-01T10:00:00Z"), "2026-01-02T08:00:00Z");
        assert_eq!(next("0 9 * * *", "Europe/Berlin", "2026-07-01T10:00:00Z"), "2026-07-02T07:00:00Z");
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for bad in ["", "hello", "61 * * * *", "* * * *", "*/0 * * * *"] {
            let error = schedule(bad, "UTC").check().unwrap_err().to_string();
            assert!(error.contains("cron"), "{bad:?}: {error}");
        }
        assert!(schedule("* * * * *", "Mars/Olympus").check().unwrap_err().to_string().contains("IANA"));
    }

    #[test]
    fn an_instant_that_never_comes_is_none_and_does_not_hang() {
        assert!(schedule("0 0 30 2 *", "UTC").next_after(Timestamp::UNIX_EPOCH).unwrap().is_none());
    }
}
