//! The short way to a new job: one small statement for the lane it is in. See `calls.rs` for when that is enough.

use std::cmp::Reverse;

use jiff::Timestamp;
use rand::RngExt as _;
use stargate_queue::store::{CLAIM_MAX, ClaimRequest, ClaimedJob};
use stargate_queue::{Fence, JobId, LeaseToken, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::floors::Taken;
use super::rows::{json, millis, small, span};
use super::{Inner, recover, sql};

/// Gives out jobs of one lane, if they are for this worker and no limit key has a say.
pub(super) async fn claim(inner: &Inner, request: &ClaimRequest, id: i32) -> Result<Vec<ClaimedJob>> {
    let mut s = inner.claim.session().await?;
    let lanes = inner.lanes.named(&mut s, &[id]).await?;
    let served = |queue: &str| request.queues.is_empty() || request.queues.iter().any(|name| name == queue);
    let Some(lane) = lanes.get(&id).filter(|lane| lane.limit_key.is_empty() && served(&lane.queue)) else {
        return Ok(Vec::new());
    };
    let Some(kind) = request.kinds.iter().find(|kind| *kind.kind == *lane.kind) else {
        return Ok(Vec::new());
    };
    let now = inner.clock.for_statement();
    let token: i64 = rand::rng().random();
    let look = inner.floors.look_in(id);
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&recover::number(request.worker) as _, Type::INT4),
        (&request.limit.min(kind.slots).min(CLAIM_MAX).cast_signed() as _, Type::INT4),
        (&id as _, Type::INT4),
        (&millis(kind.lease) as _, Type::INT4),
        (&token as _, Type::INT8),
        (&look.most as _, Type::INT2_ARRAY),
        (&look.least as _, Type::INT2_ARRAY),
        (&look.since as _, Type::TIMESTAMPTZ_ARRAY),
        (&look.delayed as _, Type::TIMESTAMPTZ),
    ];
    let (statement, params) = if look.is_everything() {
        (sql!("job_claim_lane"), &params[..6])
    } else {
        (sql!("job_claim_lane_parts"), &params[..])
    };
    let mut rows = s.rows("give out jobs", statement, params).await?;
    rows.sort_by_key(|row| (Reverse(row.get::<_, i16>(5)), row.get::<_, Timestamp>(6), row.get::<_, i64>(1)));
    if let Some(row) = rows.first() {
        let taken = |row: &Row| Taken {
            lane: id,
            queue: lane.queue.clone(),
            kind: lane.kind.clone(),
            priority: row.get(5),
            run_at: row.get(6),
        };
        // It looks below no floor, so it matters not whether there was more.
        inner.floors.taken(&look, row.get(0), rows.iter().map(taken), true);
    }
    let claimed = |row: &Row| ClaimedJob {
        fence: Fence { job: JobId(row.get(1)), attempt: small(row, 2), token: LeaseToken(token) },
        kind: lane.kind.clone(),
        queue: lane.queue.clone(),
        payload: json(row.get(7)),
        max_attempts: small(row, 3),
        progress: u8::try_from(row.get::<_, i16>(4)).unwrap_or(0),
        waited: span(row.get(6), row.get(0)),
        trace_id: row.get(8),
    };
    Ok(rows.iter().map(claimed).collect())
}
