//! What failed, and what was done: overviews that cost the same however many jobs there are.

use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;
use stargate_base::ErrorClass;
use stargate_queue::listing::{Activity, FAILURES_SCAN_MAX, FailureGroup};
use stargate_queue::{JobId, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::Session;
use super::rows::{self, count};
use super::{Inner, sql};
use crate::activity::Ended;

/// What the newest failed jobs failed with.
pub(super) async fn failures(inner: &Inner, limit: u32) -> Result<Vec<FailureGroup>> {
    let (most, scan) = (i32::try_from(limit).unwrap_or(i32::MAX), FAILURES_SCAN_MAX.cast_signed());
    let params = [(&most as _, Type::INT4), (&scan as _, Type::INT4)];
    let mut s = inner.readers.session().await?;
    let rows = s.rows("group failed jobs", sql!("failure_list"), &params).await?;
    let group = |row: &Row| FailureGroup {
        kind: row.get(0),
        code: row.get(1),
        class: row.get::<_, Option<&str>>(2).and_then(|name| name.parse().ok()).unwrap_or(ErrorClass::Fatal),
        count: count(row, 3),
        newest: JobId(row.get(4)),
        last_at: row.get(5),
        oldest_at: row.get(6),
        message: row.get::<_, Option<String>>(7).unwrap_or_default(),
        queues: row.get(8),
    };
    Ok(rows.iter().map(group).collect())
}

/// What ended in the time up to now.
pub(super) async fn activity(inner: &Inner, window: Duration, buckets: u32) -> Result<Vec<Activity>> {
    let now = inner.clock.for_statement();
    let mut s = inner.overview.session().await?;
    let now: Timestamp = s.value("tell the time", sql!("clock_now"), &[(&now, Type::TIMESTAMPTZ)]).await?;
    let mut look = inner.ledger.look(now, window, buckets);
    while let Some(stretch) = look.next() {
        look.enter(&stretch, &ended(&mut s, &stretch).await?);
    }
    let tail = ended(&mut s, &look.tail()).await?;
    Ok(look.buckets(&tail))
}

async fn ended(s: &mut Session<'_>, stretch: &Range<i64>) -> Result<Vec<Ended>> {
    let at = |micros| Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX);
    let (from, to) = (at(stretch.start), at(stretch.end));
    let params = [(&from as _, Type::TIMESTAMPTZ), (&to as _, Type::TIMESTAMPTZ)];
    let rows = s.rows("tell what ended", sql!("activity"), &params).await?;
    let ended = |row: &Row| Ended {
        second: row.get(0),
        state: rows::state(row.get(1)),
        wait_ms: row.get::<_, Option<i64>>(2).map(i64::unsigned_abs),
        count: count(row, 3),
    };
    Ok(rows.iter().map(ended).collect())
}
