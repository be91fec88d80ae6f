//! What tells our claim of a job from anybody else's, as it is kept in the link.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stargate_queue::intake::Claim;
use stargate_queue::{Error, Result};
use tokio_postgres::types::Type;

use crate::postgres::connect::Param;

/// The least time until pg-boss may give a job up. An application may ask for seconds, meaning that a run takes no
/// longer; here the kind's timeout sees to that, and a hiccup of the network must not cost a job.
const GRANT_MIN_S: i32 = 30;

/// Length of an id's text.
const ID_BYTES: usize = 36;

/// A claim: the job and what we wrote when we took it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) queue: String,
    pub(super) id: String,
    pub(super) retry_count: i32,
    pub(super) retry_limit: i32,
    pub(super) started_on: Timestamp,
    /// Seconds it might take by the application's word; not part of the comparison.
    pub(super) expire_s: i32,
}

/// As the link keeps it.
#[derive(Serialize, Deserialize)]
struct Kept {
    retry_count: i32,
    retry_limit: i32,
    started_on_us: i64,
    expire_s: i32,
}

impl Mark {
    /// Reads the mark of a link.
    pub(super) fn of(claim: &Claim) -> Result<Self> {
        let damaged = || Error::invalid("mark", format!("of {:?} is damaged: {:?}", claim.item, claim.mark));
        let (queue, id) = split(&claim.item).ok_or_else(damaged)?;
        let kept: Kept = serde_json::from_str(&claim.mark).map_err(|_| damaged())?;
        Ok(Self {
            queue: queue.to_owned(),
            id: id.to_owned(),
            retry_count: kept.retry_count,
            retry_limit: kept.retry_limit,
            started_on: Timestamp::from_microsecond(kept.started_on_us).map_err(|_| damaged())?,
            expire_s: kept.expire_s,
        })
    }

    /// The name of the job for the link: ids are unique within a queue only.
    pub(super) fn item(&self) -> String {
        format!("{}/{}", self.queue, self.id)
    }

    /// The mark for the link.
    pub(super) fn text(&self) -> String {
        let kept = Kept {
            retry_count: self.retry_count,
            retry_limit: self.retry_limit,
            started_on_us: self.started_on.as_microsecond(),
            expire_s: self.expire_s,
        };
        serde_json::to_string(&kept).expect("numbers always serialise")
    }

    /// Seconds that pg-boss is told to wait for a sign of life.
    pub(super) fn grant_s(&self) -> i32 {
        self.expire_s.max(GRANT_MIN_S)
    }

    /// Seconds after which pg-boss gives it up, counted from the last time it was kept.
    pub(super) fn whole(&self, heartbeat_s: Option<i32>) -> f64 {
        f64::from(heartbeat_s.map_or(self.grant_s(), |s| s.min(self.grant_s())).max(0))
    }

    /// Retries used after so many executions here, as pg-boss would have counted.
    pub(super) fn retries_after(&self, attempts: u16) -> i32 {
        let used = self.retry_count.saturating_add(i32::from(attempts).saturating_sub(1).max(0));
        used.min(self.retry_limit.max(self.retry_count))
    }

    /// The parameters that every fenced statement begins with.
    pub(super) fn params(&self) -> [Param<'_>; 5] {
        [
            (&self.queue, Type::TEXT),
            (&self.id, Type::TEXT),
            (&self.retry_count, Type::INT4),
            (&self.retry_limit, Type::INT4),
            (&self.started_on, Type::TIMESTAMPTZ),
        ]
    }
}

/// The queue and the id of an item.
pub(super) fn split(item: &str) -> Option<(&str, &str)> {
    let (queue, id) = item.split_at_checked(item.len().checked_sub(ID_BYTES)?)?;
    Some((queue.strip_suffix('/')?, id))
}

/// Many marks, column by column.
#[derive(Debug, Default)]
pub(super) struct Marks {
    queues: Vec<String>,
    ids: Vec<String>,
    retry_counts: Vec<i32>,
    retry_limits: Vec<i32>,
    started_on: Vec<Timestamp>,
    pub(super) grants_s: Vec<i32>,
}

impl Marks {
    pub(super) fn of<'a>(marks: impl Iterator<Item = &'a Mark>) -> Self {
        let mut all = Self::default();
        for mark in marks {
            all.queues.push(mark.queue.clone());
            all.ids.push(mark.id.clone());
            all.retry_counts.push(mark.retry_count);
            all.retry_limits.push(mark.retry_limit);
            all.started_on.push(mark.started_on);
            all.grants_s.push(mark.grant_s());
        }
        all
    }

    /// As [`Mark::params`], for many.
    pub(super) fn params(&self) -> [Param<'_>; 5] {
        [
            (&self.queues, Type::TEXT_ARRAY),
            (&self.ids, Type::TEXT_ARRAY),
            (&self.retry_counts, Type::INT4_ARRAY),
            (&self.retry_limits, Type::INT4_ARRAY),
            (&self.started_on, Type::TIMESTAMPTZ_ARRAY),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark {
            queue: "mail/urgent".into(),
            id: "8c1f5b52-7a37-4b0c-9d3e-0d6a4d1f7a11".into(),
            retry_count: 1,
            retry_limit: 3,
            started_on: Timestamp::from_microsecond(1_700_000_000_123_456).unwrap(),
            expire_s: 900,
        }
    }

    #[test]
    fn a_mark_comes_back_from_its_link_to_the_microsecond() {
        let claim = Claim { item: mark().item(), mark: mark().text() };
        assert_eq!(Mark::of(&claim).unwrap(), mark());
        assert!(Mark::of(&Claim { item: "short".into(), ..claim.clone() }).is_err());
        assert!(Mark::of(&Claim { mark: "{}".into(), ..claim }).is_err());
    }

    #[test]
    fn retries_are_counted_as_pg_boss_would() {
        assert_eq!([0, 1, 2, 3, 9].map(|attempts| mark().retries_after(attempts)), [1, 1, 2, 3, 3]);
    }
}
