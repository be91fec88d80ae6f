//! Schedules and limits as they go over the wire.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stargate_queue::job::Json;
use stargate_queue::{limits, schedule};
use utoipa::ToSchema;

use crate::redact::Sight;

/// How many of the next instants are told.
const NEXT_SHOWN: usize = 5;

/// A schedule.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// Five fields, six with seconds, or @hourly, @daily, …
    pub cron: String,
    /// The zone the fields are read in.
    pub time_zone: String,
    /// Kind of the job it enqueues.
    pub kind: String,
    /// Queue of that job.
    pub queue: String,
    /// Payload of that job.
    #[schema(value_type = Value)]
    pub payload: Json,
    /// Priority of that job.
    pub priority: i16,
    /// The next instant; null when it never comes again.
    pub next_at: Option<Timestamp>,
    /// The last instant that was fired.
    pub last_at: Option<Timestamp>,
    /// The expression in words.
    pub description: String,
    /// The next instants, that one first.
    pub next: Vec<Timestamp>,
}

impl Schedule {
    pub(crate) fn of(schedule: schedule::Schedule, sight: Sight<'_>) -> Self {
        let mut next: Vec<Timestamp> = schedule.next_at.into_iter().collect();
        while let Some(last) = next.last().copied().filter(|_| next.len() < NEXT_SHOWN) {
            match schedule.next_after(last) {
                Ok(Some(instant)) => next.push(instant),
                _ => break,
            }
        }
        Self {
            description: schedule.in_words(),
            next,
            name: schedule.name,
            cron: schedule.cron,
            time_zone: schedule.time_zone,
            kind: schedule.kind,
            queue: schedule.queue,
            payload: sight.json(schedule.payload),
            priority: schedule.priority,
            next_at: schedule.next_at,
            last_at: schedule.last_at,
        }
    }
}

/// All schedules.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Schedules {
    /// By name.
    pub schedules: Vec<Schedule>,
}

/// A schedule to be added or to replace the one of that name.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSchedule {
    /// Five fields, six with seconds, or @hourly, @daily, …
    #[schema(max_length = 200)]
    pub cron: String,
    /// The zone the fields are read in; UTC by default.
    pub time_zone: Option<String>,
    /// Kind of the job it enqueues.
    pub kind: String,
    /// Queue of that job; `default` by default.
    pub queue: Option<String>,
    /// Payload of that job; `{}` by default.
    #[schema(value_type = Option<Value>)]
    pub payload: Option<Box<RawValue>>,
    /// Priority of that job, 0 to 9999; 0 by default.
    #[schema(minimum = 0, maximum = 9999)]
    pub priority: Option<i16>,
}

/// A limit of keys that match a pattern.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// A key, or a prefix that ends in `*`; the most specific one holds.
    pub pattern: String,
    /// Jobs of one key at once, over all workers.
    pub concurrency: Option<u32>,
    /// Starts of one key per time, such as `10/s`.
    pub rate: Option<String>,
    /// Share relative to other keys.
    pub weight: u32,
}

impl From<limits::Limit> for Limit {
    fn from(limit: limits::Limit) -> Self {
        let rate = limit.rate.map(|rate| rate.to_string());
        Self { pattern: limit.pattern, concurrency: limit.concurrency, rate, weight: limit.weight }
    }
}

/// All limits.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    /// Most specific first.
    pub limits: Vec<Limit>,
}

/// A limit to be set.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLimit {
    /// Jobs of one key at once, over all workers.
    #[schema(minimum = 1)]
    pub concurrency: Option<u32>,
    /// Starts of one key per time: `10/s`, `100/m`, `1000/h`.
    pub rate: Option<String>,
    /// Share relative to other keys, 1 to 1000; 1 by default.
    #[schema(minimum = 1, maximum = 1000)]
    pub weight: Option<u32>,
}

/// That something was removed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Removed {
    /// Its name.
    pub name: String,
    /// True.
    pub removed: bool,
}
