//! What failed, and what was done: overviews that cost the same however many jobs there are.

use std::ops::Range;
use std::time::Duration;

use rusqlite::Connection;
use stargate_base::ErrorClass;
use stargate_queue::JobId;
use stargate_queue::listing::{Activity, FAILURES_SCAN_MAX, FailureGroup};

use super::error::Step;
use super::read::Reader;
use super::rows::{instant, names, state};
use super::session::sql;
use crate::activity::{Ended, Ledger};

/// What the newest failed jobs failed with.
pub(super) fn failures(conn: &Connection, limit: u32) -> Step<Vec<FailureGroup>> {
    let mut list = conn.prepare_cached(sql!("failure_list"))?;
    let rows = list.query_map((limit, FAILURES_SCAN_MAX), |row| {
        let class: Option<String> = row.get(2)?;
        let mut queues = names(row, 8)?;
        queues.sort_unstable();
        Ok(FailureGroup {
            kind: row.get(0)?,
            code: row.get(1)?,
            class: class.and_then(|name| name.parse().ok()).unwrap_or(ErrorClass::Fatal),
            count: row.get::<_, i64>(3)?.unsigned_abs(),
            newest: JobId(row.get(4)?),
            last_at: instant(row.get(5)?),
            oldest_at: instant(row.get(6)?),
            message: row.get::<_, Option<String>>(7)?.unwrap_or_default(),
            queues,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What ended in the time up to now.
pub(super) fn activity(
    r: &Reader<'_>,
    ledger: &Ledger,
    window: Duration,
    buckets: u32,
) -> Step<Vec<Activity>> {
    let mut look = ledger.look(instant(r.now), window, buckets);
    while let Some(stretch) = look.next() {
        look.enter(&stretch, &ended(r.conn, &stretch)?);
    }
    Ok(look.buckets(&ended(r.conn, &look.tail())?))
}

fn ended(conn: &Connection, stretch: &Range<i64>) -> Step<Vec<Ended>> {
    let mut list = conn.prepare_cached(sql!("activity"))?;
    let rows = list.query_map([stretch.start, stretch.end], |row| {
        Ok(Ended {
            second: row.get(0)?,
            state: state(row.get(1)?),
            wait_ms: row.get::<_, Option<i64>>(2)?.map(i64::unsigned_abs),
            count: row.get::<_, i64>(3)?.unsigned_abs(),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
