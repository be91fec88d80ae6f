//! Reading, and what operators do: pause, limits, purge.

use std::sync::PoisonError;
use std::time::Duration;

use jiff::Timestamp;
use stargate_base::Epoch;
use stargate_queue::event::{Event, Spine, timeline};
use stargate_queue::limits::{Limit, LimitState, Rate};
use stargate_queue::store::{PauseTarget, PurgeReport, PurgeRequest};
use stargate_queue::{Error, Job, JobId, KindSpec, Result, Stage, State};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::{Param, Session};
use super::enqueue::finish;
use super::error::again;
use super::rows::{self, count, json, small, state_number};
use super::{Inner, counts, leadership, recover, sql};

/// How often a job is looked for that others move from one state to another meanwhile.
pub(super) const MOVING_ROUNDS: u32 = 5;

/// The known kinds.
pub(super) async fn kinds(s: &mut Session<'_>) -> Result<Vec<KindSpec>> {
    let rows = s.rows("list kinds", sql!("kind_list"), &[]).await?;
    let kind =
        |row: &Row| KindSpec { name: row.get(0), max_attempts: small(row, 1), max_crashes: small(row, 2) };
    Ok(rows.iter().map(kind).collect())
}

/// Makes kinds known.
pub(super) async fn kinds_register(inner: &Inner, kinds: &[KindSpec]) -> Result<()> {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
    let attempts: Vec<i16> = kinds.iter().map(|kind| kind.max_attempts.cast_signed()).collect();
    let crashes: Vec<i16> = kinds.iter().map(|kind| kind.max_crashes.cast_signed()).collect();
    let params = [
        (&names as _, Type::TEXT_ARRAY),
        (&attempts as _, Type::INT2_ARRAY),
        (&crashes as _, Type::INT2_ARRAY),
    ];
    inner.readers.session().await?.rows("register kinds", sql!("kind_put"), &params).await.map(drop)
}

async fn find(s: &mut Session<'_>, id: JobId) -> Result<Option<(Job, Spine)>> {
    let ids = [id.0];
    let rows = s.rows("read the job", sql!("job_get"), &[(&&ids[..], Type::INT8_ARRAY)]).await?;
    Ok(rows.first().map(rows::job))
}

/// One job that must be there.
pub(super) async fn find_there(s: &mut Session<'_>, id: JobId) -> Result<(Job, Spine)> {
    find(s, id).await?.ok_or_else(|| Error::NotFound { what: "job", name: id.to_string() })
}

/// One job.
pub(super) async fn job(inner: &Inner, id: JobId) -> Result<Option<Job>> {
    let mut s = inner.readers.session().await?;
    Ok(find(&mut s, id).await?.map(|(job, _)| job))
}

/// The timeline of a job after a sequence number.
pub(super) async fn events(inner: &Inner, id: JobId, after_seq: u32, limit: u32) -> Result<Vec<Event>> {
    let mut s = inner.readers.session().await?;
    let (job, spine) = find_there(&mut s, id).await?;
    let (after, most) = (i32::try_from(after_seq).unwrap_or(i32::MAX), i64::from(limit));
    let params = [(&id.0 as _, Type::INT8), (&after as _, Type::INT4), (&most as _, Type::INT8)];
    let rows = s.rows("read the timeline", sql!("job_event_list"), &params).await?;
    let event = |row: &Row| Event {
        seq: u32::try_from(row.get::<_, i32>(0)).unwrap_or(0),
        at: row.get(1),
        event: row.get(2),
        data: json(row.get(3)),
    };
    let mut events = timeline(&job, spine, rows.iter().map(event).collect());
    // Rows written since the job was read would come without what belongs between them.
    events.retain(|event| event.seq > after_seq && event.seq <= spine.last_seq);
    events.dedup_by_key(|event| event.seq);
    events.truncate(limit as usize);
    Ok(events)
}

/// The parents of a job with their states.
pub(super) async fn parents(inner: &Inner, id: JobId) -> Result<Vec<(JobId, State)>> {
    let mut s = inner.readers.session().await?;
    find_there(&mut s, id).await?;
    parent_states(&mut s, id).await
}

/// The parents of a job that still exist, with their states.
pub(super) async fn parent_states(s: &mut Session<'_>, id: JobId) -> Result<Vec<(JobId, State)>> {
    let rows = s.rows("list parents", sql!("job_parent_list"), &[(&id.0, Type::INT8)]).await?;
    let parent = |row: &Row| {
        let stage = row.get::<_, Option<i16>>(1).and_then(Stage::from_number);
        let state = stage.map(Stage::state).or_else(|| row.get::<_, Option<i16>>(2).map(rows::state));
        state.map(|state| (JobId(row.get(0)), state))
    };
    Ok(rows.iter().filter_map(parent).collect())
}

fn columns(target: &PauseTarget) -> (&'static str, &str) {
    match target {
        PauseTarget::Queue(name) => ("queue", name),
        PauseTarget::Kind(name) => ("kind", name),
    }
}

/// Stops giving out jobs of a queue or kind.
pub(super) async fn pause(inner: &Inner, guard: Option<Epoch>, target: &PauseTarget) -> Result<()> {
    let (scope, name) = columns(target);
    let params = [(&scope as _, Type::TEXT), (&name as _, Type::TEXT)];
    let mut s = inner.readers.session().await?;
    leadership::write(&mut s, guard, "pause", sql!("pause_put"), &params).await?;
    counts::forget_oldest(inner);
    Ok(())
}

/// Gives out jobs of a queue or kind again.
pub(super) async fn resume(inner: &Inner, guard: Option<Epoch>, target: &PauseTarget) -> Result<bool> {
    let (scope, name) = columns(target);
    let mut s = inner.readers.session().await?;
    let params = [(&scope as _, Type::TEXT), (&name as _, Type::TEXT)];
    let resumed =
        !leadership::write(&mut s, guard, "resume", sql!("pause_remove"), &params).await?.is_empty();
    if resumed {
        counts::forget_oldest(inner);
        inner.notify(&mut s).await?;
        inner.wake();
    }
    Ok(resumed)
}

/// What is paused.
pub(super) async fn pauses(inner: &Inner) -> Result<Vec<PauseTarget>> {
    let rows = inner.readers.session().await?.rows("list what is paused", sql!("pause_list"), &[]).await?;
    let target = |row: &Row| match row.get::<_, &str>(0) {
        "queue" => PauseTarget::Queue(row.get(1)),
        _ => PauseTarget::Kind(row.get(1)),
    };
    Ok(rows.iter().map(target).collect())
}

/// Jobs that could run, counted no further than `up_to`.
pub(super) async fn depth(inner: &Inner, up_to: u64) -> Result<u64> {
    let (now, most) = (inner.clock.for_statement(), i64::try_from(up_to).unwrap_or(i64::MAX));
    let look = inner.floors.above();
    let asked: [Param<'_>; 2] = [(&now, Type::TIMESTAMPTZ), (&most, Type::INT8)];
    let params: Vec<Param<'_>> = asked.into_iter().chain(look.params()).collect();
    let mut s = inner.readers.session().await?;
    let depth: i64 = s.value("count ready jobs", sql!("depth"), &params).await?;
    Ok(u64::try_from(depth).unwrap_or(0).min(up_to))
}

/// Sets the limits of all keys that match a pattern.
pub(super) async fn limit_set(inner: &Inner, guard: Option<Epoch>, limit: &Limit) -> Result<()> {
    const OPERATION: &str = "set the limit";
    let concurrency = limit.concurrency.map(|n| i32::try_from(n).unwrap_or(i32::MAX));
    let rate_count = limit.rate.map(|rate| i32::try_from(rate.count).unwrap_or(i32::MAX));
    let rate_per = limit.rate.map(|rate| i64::try_from(rate.per.as_millis()).unwrap_or(i64::MAX).max(1));
    let weight = limit.weight.cast_signed();
    let params = [
        (&limit.pattern as _, Type::TEXT),
        (&concurrency as _, Type::INT4),
        (&rate_count as _, Type::INT4),
        (&rate_per as _, Type::INT8),
        (&weight as _, Type::INT4),
    ];
    limit_write(inner, guard, OPERATION, sql!("limit_rule_put"), &params).await.map(drop)
}

/// Removes a limit.
pub(super) async fn limit_remove(inner: &Inner, guard: Option<Epoch>, pattern: &str) -> Result<bool> {
    let params = [(&pattern as _, Type::TEXT)];
    let removed = limit_write(inner, guard, "remove the limit", sql!("limit_rule_remove"), &params).await?;
    Ok(!removed.is_empty())
}

/// Changes a rule and gives every key the one that now applies to it. What a leader does is one guarded transaction.
async fn limit_write(
    inner: &Inner,
    guard: Option<Epoch>,
    operation: &'static str,
    sql: &'static str,
    params: &[Param<'_>],
) -> Result<Vec<Row>> {
    let mut s = inner.readers.session().await?;
    let mut tries = 0;
    let changed = loop {
        tries += 1;
        let result = match guard {
            None => s.rows(operation, sql, params).await,
            Some(_) => limit_write_guarded(inner, &mut s, guard, operation, sql, params).await,
        };
        if !again(&result, tries) {
            break result?;
        }
    };
    limits_apply(inner, &mut s).await?;
    Ok(changed)
}

async fn limit_write_guarded(
    inner: &Inner,
    s: &mut Session<'_>,
    guard: Option<Epoch>,
    operation: &'static str,
    sql: &'static str,
    params: &[Param<'_>],
) -> Result<Vec<Row>> {
    leadership::begin(s, guard).await?;
    let work = async {
        let changed = s.rows(operation, sql, params).await?;
        refresh(inner, s).await?;
        Ok(changed)
    };
    let result = work.await;
    finish(s, result).await
}

/// Gives every key the rule that now applies to it. Doing it twice does no harm: without a term it is not one
/// transaction with the change of the rule, and whoever sets a limit and hears nothing sets it again; after a guarded
/// one it finds the keys that others made meanwhile. It is not guarded: it only follows from the rules.
async fn limits_apply(inner: &Inner, s: &mut Session<'_>) -> Result<()> {
    let mut tries = 0;
    loop {
        tries += 1;
        let result = refresh(inner, s).await;
        if !again(&result, tries) {
            inner.wake();
            return result;
        }
    }
}

async fn refresh(inner: &Inner, s: &mut Session<'_>) -> Result<()> {
    s.rows("apply the limits", sql!("limit_key_refresh"), &[(&inner.own, Type::TEXT)]).await.map(drop)
}

fn rate(count: Option<i32>, per_ms: Option<i64>) -> Option<Rate> {
    let count = u32::try_from(count?).ok()?;
    Some(Rate { count, per: Duration::from_millis(u64::try_from(per_ms?).ok()?) })
}

fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// The limits, most specific first.
pub(super) async fn limits(inner: &Inner) -> Result<Vec<Limit>> {
    let rows = inner.readers.session().await?.rows("list limits", sql!("limit_rule_list"), &[]).await?;
    let limit = |row: &Row| Limit {
        pattern: row.get(0),
        concurrency: row.get::<_, Option<i32>>(1).map(unsigned),
        rate: rate(row.get(2), row.get(3)),
        weight: unsigned(row.get(4)),
    };
    Ok(rows.iter().map(limit).collect())
}

/// The present use of one key.
pub(super) async fn limit_state(inner: &Inner, key: &str) -> Result<Option<LimitState>> {
    let now = inner.clock.for_statement();
    let params = [(&now as _, Type::TIMESTAMPTZ), (&key as _, Type::TEXT)];
    let rows = inner.readers.session().await?.rows("read the limit", sql!("limit_key_get"), &params).await?;
    let state = |row: &Row| LimitState {
        key: row.get(0),
        running: unsigned(row.get(1)),
        concurrency: row.get::<_, Option<i32>>(2).map(unsigned),
        rate: rate(row.get(3), row.get(4)),
        weight: unsigned(row.get(5)),
        tokens: row.get(6),
    };
    Ok(rows.first().map(state))
}

/// Removes finished jobs and audited actions beyond their retention.
pub(super) async fn purge(
    inner: &Inner,
    guard: Option<Epoch>,
    request: &PurgeRequest,
) -> Result<PurgeReport> {
    const OPERATION: &str = "purge";
    if guard.is_some() {
        leadership::check(&mut inner.spare.session().await?, guard).await?;
    }
    // Gives up the workers that fell silent without holding a job; where nobody claims, nobody else looks for them.
    recover::recover(inner, None).await?;
    let now = inner.clock.for_statement();
    let age = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 1000);
    let mut left = i32::try_from(request.batch).unwrap_or(i32::MAX);
    let mut report = PurgeReport::default();
    // On the connection for what takes long.
    let mut s = inner.spare.session().await?;
    for (state, span) in [
        (State::Done, request.done_age),
        (State::Cancelled, request.done_age),
        (State::Failed, request.failed_age),
    ] {
        let (number, age) = (state_number(state), age(span));
        let since = inner.purged.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        let params = [
            (&now as _, Type::TIMESTAMPTZ),
            (&number as _, Type::INT2),
            (&age as _, Type::INT8),
            (&left as _, Type::INT4),
            (&since as _, Type::TIMESTAMPTZ),
        ];
        let rows = leadership::write(&mut s, guard, OPERATION, sql!("purge_history"), &params).await?;
        let removed: i64 = rows.first().map_or(0, |row| row.get(0));
        let last: Option<Timestamp> = rows.first().and_then(|row| row.get(1));
        // Only while there is more: the next purge begins at the beginning, where something may have stayed.
        if let Some(at) = last.filter(|_| removed == i64::from(left)) {
            inner.purged.lock().unwrap_or_else(PoisonError::into_inner).insert(number, at);
        }
        left -= i32::try_from(removed).unwrap_or(left);
        let removed = u64::try_from(removed).unwrap_or(0);
        if state == State::Failed { report.failed += removed } else { report.done += removed }
    }
    let (oldest, most) = (age(request.done_age.max(request.failed_age)), 10_000_i32);
    let params = [(&now as _, Type::TIMESTAMPTZ), (&oldest as _, Type::INT8), (&most as _, Type::INT4)];
    leadership::write(&mut s, guard, OPERATION, sql!("purge_rest"), &params).await?;
    let (oldest, most) = (age(request.actions_age), request.batch.cast_signed());
    let params = [(&now as _, Type::TIMESTAMPTZ), (&oldest as _, Type::INT8), (&most as _, Type::INT4)];
    let rows = leadership::write(&mut s, guard, OPERATION, sql!("audit_purge"), &params).await?;
    report.actions = rows.first().map_or(0, |row| count(row, 0));
    Ok(report)
}
