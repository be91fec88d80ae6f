//! Retrying and cancelling, one job or many: each call is one transaction.

use std::collections::{HashMap, HashSet};

use stargate_base::Epoch;
use stargate_queue::event::edited_data;
use stargate_queue::store::Cancelled;
use stargate_queue::{Error, JobId, Json, Result, State};
use tokio_postgres::types::Type;

use super::connect::Session;
use super::enqueue::finish;
use super::error::{COLLISIONS_MAX, again, is_unique_key_taken, transient};
use super::operate::{MOVING_ROUNDS, find_there, parent_states};
use super::{Inner, leadership, rows, settle, sql};

/// Has a failed job run again, with another payload where one is given.
pub(super) async fn retry(
    inner: &Inner,
    guard: Option<Epoch>,
    id: JobId,
    payload: Option<&Json>,
) -> Result<()> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.readers.session().await?;
        leadership::begin(&mut s, guard).await?;
        let result = retry_within(inner, &mut s, id, payload).await;
        let result = finish(&mut s, result).await;
        if again(&result, tries) {
            continue;
        }
        inner.wake();
        return match result {
            Err(error) if is_unique_key_taken(&error) => {
                let problem = format!("another unfinished job has the unique key of job {id}");
                Err(Error::Conflict { problem })
            }
            other => other,
        };
    }
}

async fn retry_within(inner: &Inner, s: &mut Session<'_>, id: JobId, payload: Option<&Json>) -> Result<()> {
    const OPERATION: &str = "retry the job";
    let (job, _) = find_there(s, id).await?;
    let wrong = |state, problem: String| Error::WrongState { job: id, state, problem };
    if job.state != State::Failed {
        return Err(wrong(job.state, "only failed jobs can be retried".to_owned()));
    }
    if let Some(key) = &job.unique_key {
        let keys = vec![key.as_str()];
        let rows = s.rows(OPERATION, sql!("job_by_unique_key"), &[(&keys, Type::TEXT_ARRAY)]).await?;
        if let Some(row) = rows.first() {
            let other: i64 = row.get(1);
            let problem = format!("job {other} has the unique key {key:?} of job {id} and is not finished");
            return Err(Error::Conflict { problem });
        }
    }
    // Parents that were purged are forgotten.
    let parents: Vec<i64> = parent_states(s, id).await?.into_iter().map(|(parent, _)| parent.0).collect();
    let mut blockers = 0_i16;
    if !parents.is_empty() {
        let rows = s.rows(OPERATION, sql!("job_parent_lock"), &[(&parents, Type::INT8_ARRAY)]).await?;
        let row = rows.first().ok_or_else(|| transient(OPERATION, "no answer about the parents"))?;
        if let (Some(parent), Some(number)) = (row.get::<_, Option<i64>>(1), row.get::<_, Option<i16>>(2)) {
            let found = rows::state(number);
            let problem = format!("it waits for job {parent}, which is {found}; retry that one first");
            return Err(wrong(State::Failed, problem));
        }
        blockers = i16::try_from(row.get::<_, i32>(0)).unwrap_or(i16::MAX);
    }
    let edited = payload.map(|payload| (payload.get(), edited_data(job.payload.get())));
    if requeue(inner, s, &[id.0], blockers, edited).await?.is_empty() {
        return Err(wrong(State::Queued, "somebody else has retried it just now".to_owned()));
    }
    Ok(())
}

/// Moves failed jobs back; those that were.
async fn requeue(
    inner: &Inner,
    s: &mut Session<'_>,
    ids: &[i64],
    blockers: i16,
    edited: Option<(&str, Json)>,
) -> Result<Vec<i64>> {
    let now = inner.clock.for_statement();
    let (payload, data) = edited.as_ref().map(|(payload, data)| (*payload, data.get())).unzip();
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&ids as _, Type::INT8_ARRAY),
        (&inner.own as _, Type::TEXT),
        (&blockers as _, Type::INT2),
        (&payload as _, Type::TEXT),
        (&data as _, Type::TEXT),
    ];
    let rows = s.rows("retry the job", sql!("job_retry"), &params).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Has failed jobs run again; those that wait now.
pub(super) async fn retry_many(inner: &Inner, guard: Option<Epoch>, ids: &[JobId]) -> Result<Vec<JobId>> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.readers.session().await?;
        leadership::begin(&mut s, guard).await?;
        let result = retry_many_within(inner, &mut s, ids).await;
        let result = finish(&mut s, result).await;
        // A key that was taken meanwhile is seen by the next look, which leaves that job out.
        let taken = result.as_ref().is_err_and(is_unique_key_taken) && tries < COLLISIONS_MAX;
        if again(&result, tries) || taken {
            continue;
        }
        inner.wake();
        let mut retried: HashSet<JobId> = result?;
        return Ok(ids.iter().filter(|id| retried.remove(id)).copied().collect());
    }
}

/// Most go together. Those with parents, or with a key that another of them has too, follow one by one in the order of
/// their ids: a parent is retried before its child, and of two with the same key the older one.
async fn retry_many_within(inner: &Inner, s: &mut Session<'_>, ids: &[JobId]) -> Result<HashSet<JobId>> {
    let numbers: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let found = s.rows("retry the jobs", sql!("job_retry_look"), &[(&numbers, Type::INT8_ARRAY)]).await?;
    let mut keys: HashMap<&str, u32> = HashMap::new();
    for key in found.iter().filter_map(|row| row.get::<_, Option<&str>>(1)) {
        *keys.entry(key).or_default() += 1;
    }
    let (mut together, mut one_by_one) = (Vec::new(), Vec::new());
    for row in &found {
        let (id, key, has_parents): (i64, Option<&str>, bool) = (row.get(0), row.get(1), row.get(2));
        let has_rival = key.and_then(|key| keys.get(key)).is_some_and(|count| *count > 1);
        if has_parents || has_rival { one_by_one.push(id) } else { together.push(id) }
    }
    let mut retried: HashSet<JobId> =
        requeue(inner, s, &together, 0, None).await?.into_iter().map(JobId).collect();
    for id in one_by_one.into_iter().map(JobId) {
        match retry_within(inner, s, id, None).await {
            Ok(()) => drop(retried.insert(id)),
            Err(Error::WrongState { .. } | Error::NotFound { .. } | Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(retried)
}

/// Ends a waiting job, or asks the worker of a running one to stop.
pub(super) async fn cancel(inner: &Inner, guard: Option<Epoch>, id: JobId) -> Result<Cancelled> {
    if let Some((_, done)) = cancel_many(inner, guard, &[id]).await?.first() {
        return Ok(*done);
    }
    let (job, _) = find_there(&mut inner.readers.session().await?, id).await?;
    if job.state.is_finished() {
        let problem = "it has ended and cannot be cancelled".to_owned();
        return Err(Error::WrongState { job: id, state: job.state, problem });
    }
    Err(transient("cancel the job", "the job changes its state faster than it can be cancelled"))
}

/// Cancels jobs; what was done to those with which it could be done.
pub(super) async fn cancel_many(
    inner: &Inner,
    guard: Option<Epoch>,
    ids: &[JobId],
) -> Result<Vec<(JobId, Cancelled)>> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut s = inner.readers.session().await?;
        leadership::begin(&mut s, guard).await?;
        let result = cancel_many_within(inner, &mut s, ids).await;
        let result = finish(&mut s, result).await;
        if again(&result, tries) {
            continue;
        }
        let mut cancelled = result?;
        if !cancelled.is_empty() {
            inner.wake();
        }
        return Ok(ids.iter().filter_map(|id| Some((*id, cancelled.remove(&id.0)?))).collect());
    }
}

async fn cancel_many_within(
    inner: &Inner,
    s: &mut Session<'_>,
    ids: &[JobId],
) -> Result<HashMap<i64, Cancelled>> {
    const OPERATION: &str = "cancel the job";
    let now = inner.clock.for_statement();
    let mut left: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let mut cancelled = HashMap::new();
    let mut parents = Vec::new();
    // A job may begin or be given back between two statements.
    for _ in 0..MOVING_ROUNDS {
        let params = [(&now as _, Type::TIMESTAMPTZ), (&left as _, Type::INT8_ARRAY)];
        for row in s.rows(OPERATION, sql!("job_cancel_waiting"), &params).await? {
            let (id, has_children): (i64, bool) = (row.get(0), row.get(1));
            cancelled.insert(id, Cancelled::Ended);
            if has_children {
                parents.push((id, State::Cancelled));
            }
        }
        let params =
            [(&now as _, Type::TIMESTAMPTZ), (&left as _, Type::INT8_ARRAY), (&inner.own as _, Type::TEXT)];
        for row in s.rows(OPERATION, sql!("job_cancel_request"), &params).await? {
            cancelled.insert(row.get(0), Cancelled::Requested);
        }
        left.retain(|id| !cancelled.contains_key(id));
        let unfinished = s.rows(OPERATION, sql!("job_cancel_look"), &[(&left, Type::INT8_ARRAY)]).await?;
        left.clear();
        for row in &unfinished {
            match row.get::<_, bool>(1) {
                true => drop(cancelled.insert(row.get(0), Cancelled::Requested)),
                false => left.push(row.get(0)),
            }
        }
        if left.is_empty() {
            break;
        }
    }
    if !parents.is_empty() {
        settle::tell_children(inner, s, &parents).await?;
    }
    Ok(cancelled)
}
