//! Many jobs at once: counted first, then done in pieces.

use std::time::{Duration, Instant};

use axum::Json;
use serde_json::json;
use stargate_access::Role;
use stargate_queue::bulk::BULK_MAX;
use stargate_queue::store::{JobFilter, PAGE_MAX};
use stargate_queue::{Job, JobId, State as JobState};

use crate::api::types::bulk::{Bulk, BulkAction, BulkDone};
use crate::api::{JOB_BYTES_MAX, jobs, types};
use crate::caller::{Actor, Change};
use crate::error::{Problem, Result};
use crate::input::JsonBody;

/// Jobs of one request at most, and unless a number is named.
const LIMIT_MAX: u32 = 10_000;
const LIMIT_DEFAULT: u32 = 1000;
/// Jobs that are shown.
const SAMPLE: usize = 10;
/// How long one request may look and work; less than a route may take, so that the answer says how far it came.
const TIME_MAX: Duration = Duration::from_secs(40);

#[utoipa::path(post, path = "/jobs/bulk", tag = "jobs", summary = "Retry or cancel all jobs that match, or see which would be",
    request_body = Bulk, responses((status = 200, body = BulkDone)))]
pub(crate) async fn bulk(actor: Actor, body: JsonBody<Bulk, JOB_BYTES_MAX>) -> Result<Json<BulkDone>> {
    run(&actor, body.value).await.map(Json)
}

/// Retries or cancels many jobs, or tells which it would.
pub(crate) async fn run(actor: &Actor, wanted: Bulk) -> Result<BulkDone> {
    actor.caller.need(Role::Operate)?;
    let limit = wanted.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Problem::invalid("limit", format!("is {limit}; allowed are 1 to {LIMIT_MAX}")));
    }
    let limit = limit as usize;
    let (chosen, detail) = match (wanted.filter, wanted.ids) {
        (Some(filter), None) => {
            let detail = json!({ "filter": &filter, "limit": limit });
            let filter = applicable(wanted.action, jobs::filter(filter, actor.shared(), &actor.caller)?);
            (chosen(actor, filter, limit, wanted.dry_run, wanted.glance).await?, detail)
        }
        (None, Some(ids)) => (named(actor, wanted.action, &ids, limit).await?, json!({ "ids": ids.len() })),
        _ => return Err(Problem::invalid("filter", "and ids exclude each other; send one of them")),
    };
    let sight = actor.sight();
    let mut done = BulkDone {
        action: wanted.action,
        matched: chosen.matched,
        changed: 0,
        more: chosen.more,
        scanned_all: chosen.scanned_all,
        dry_run: wanted.dry_run,
        sample: chosen.sample.into_iter().map(|job| types::Job::of(job, sight)).collect(),
    };
    if wanted.dry_run || chosen.ids.is_empty() {
        return Ok(done);
    }
    let action = match wanted.action {
        BulkAction::Retry => "jobs.retry",
        BulkAction::Cancel => "jobs.cancel",
    };
    let target = format!("{} jobs", chosen.ids.len());
    let change = Change::new(action, Role::Operate, target).with(detail);
    let ids = chosen.ids;
    done.changed = actor
        .change(change, async |store: stargate_queue::SharedStore| {
            let mut changed = 0;
            for chunk in ids.chunks(BULK_MAX) {
                changed += match wanted.action {
                    BulkAction::Retry => store.retry_many(chunk.to_vec()).await?.len(),
                    BulkAction::Cancel => store.cancel_many(chunk.to_vec()).await?.len(),
                };
            }
            Ok(changed as u64)
        })
        .await?;
    Ok(done)
}

/// The jobs that something is to be done to.
#[derive(Debug)]
struct Chosen {
    /// Not filled where nothing is done.
    ids: Vec<JobId>,
    matched: u64,
    sample: Vec<Job>,
    more: bool,
    scanned_all: bool,
}

impl Chosen {
    fn nothing() -> Self {
        Self { ids: Vec::new(), matched: 0, sample: Vec::new(), more: false, scanned_all: true }
    }

    fn add(&mut self, job: Job) {
        self.ids.push(job.id);
        self.matched += 1;
        if self.sample.len() < SAMPLE {
            self.sample.push(job);
        }
    }
}

/// Only jobs with which it can be done; a filter that names other states matches none of them.
fn applicable(action: BulkAction, mut filter: JobFilter) -> Option<JobFilter> {
    let states = match action {
        BulkAction::Retry => vec![JobState::Failed],
        BulkAction::Cancel => vec![JobState::Queued, JobState::Processing],
    };
    let asked = std::mem::take(&mut filter.states);
    filter.states = states.into_iter().filter(|state| asked.is_empty() || asked.contains(state)).collect();
    (!filter.states.is_empty()).then_some(filter)
}

/// What is only looked at is counted, unless every row has to be looked at and somebody wants to know it exactly.
async fn chosen(
    actor: &Actor,
    filter: Option<JobFilter>,
    limit: usize,
    dry_run: bool,
    glance: bool,
) -> Result<Chosen> {
    match filter {
        None => Ok(Chosen::nothing()),
        Some(filter) if dry_run && (glance || !filter.scans()) => counted(actor, filter, limit).await,
        Some(filter) => matching(actor, filter, limit).await,
    }
}

/// The first jobs that match, and how many there are.
async fn counted(actor: &Actor, mut filter: JobFilter, limit: usize) -> Result<Chosen> {
    filter.limit = u32::try_from(SAMPLE.min(limit)).unwrap_or(1);
    let found = actor.store().jobs_found(filter.clone()).await?;
    let mut chosen = Chosen::nothing();
    found.jobs.into_iter().for_each(|job| chosen.add(job));
    chosen.scanned_all = found.scanned_all;
    if found.scanned_all && found.next_before.is_some() {
        filter.before = found.next_before;
        // One more than wanted tells whether there are more.
        let rest = actor.store().jobs_count(filter, limit as u64 + 1 - chosen.matched).await?;
        chosen.matched += rest.count;
        chosen.scanned_all = rest.scanned_all;
    }
    chosen.more = !chosen.scanned_all || chosen.matched > limit as u64;
    chosen.matched = chosen.matched.min(limit as u64);
    Ok(chosen)
}

async fn matching(actor: &Actor, mut filter: JobFilter, limit: usize) -> Result<Chosen> {
    let (mut chosen, began) = (Chosen::nothing(), Instant::now());
    loop {
        // One more than wanted tells whether there are more.
        let missing = limit + 1 - chosen.ids.len();
        filter.limit = PAGE_MAX.min(u32::try_from(missing).unwrap_or(PAGE_MAX));
        let found = actor.store().jobs_found(filter.clone()).await?;
        found.jobs.into_iter().for_each(|job| chosen.add(job));
        filter.before = found.next_before;
        if chosen.ids.len() > limit {
            chosen.ids.truncate(limit);
            chosen.matched = limit as u64;
            chosen.more = true;
            return Ok(chosen);
        }
        if filter.before.is_none() {
            return Ok(chosen);
        }
        if began.elapsed() > TIME_MAX {
            (chosen.more, chosen.scanned_all) = (true, false);
            return Ok(chosen);
        }
    }
}

async fn named(actor: &Actor, action: BulkAction, ids: &[i64], limit: usize) -> Result<Chosen> {
    if ids.len() > LIMIT_MAX as usize {
        return Err(Problem::invalid("ids", format!("has {} entries; allowed are {LIMIT_MAX}", ids.len())));
    }
    let mut chosen = Chosen { more: ids.len() > limit, ..Chosen::nothing() };
    for &id in ids.iter().take(limit) {
        if chosen.sample.len() >= SAMPLE {
            // The store decides about each; reading them all before would tell nothing more.
            chosen.ids.push(JobId(id));
            chosen.matched += 1;
            continue;
        }
        let Some(job) = actor.store().job(JobId(id)).await? else { continue };
        let fits = match action {
            BulkAction::Retry => job.state == JobState::Failed,
            BulkAction::Cancel => !job.state.is_finished(),
        };
        if fits {
            chosen.add(job);
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_states_that_fit_the_action_are_looked_for() {
        let states = |action, asked: &[JobState]| {
            let filter = JobFilter { states: asked.to_vec(), ..JobFilter::default() };
            applicable(action, filter).map(|filter| filter.states)
        };
        use BulkAction::{Cancel, Retry};
        use JobState::{Done, Failed, Processing, Queued};
        assert_eq!(states(Retry, &[]), Some(vec![Failed]));
        assert_eq!(states(Retry, &[Done, Failed]), Some(vec![Failed]));
        assert_eq!(states(Retry, &[Done]), None);
        assert_eq!(states(Cancel, &[]), Some(vec![Queued, Processing]));
        assert_eq!(states(Cancel, &[Processing, Failed]), Some(vec![Processing]));
    }
}
