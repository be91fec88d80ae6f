//! Repositories, pushes and hooks.

use std::collections::HashSet;

use async_trait::async_trait;
use stargate_base::Epoch;
use stargate_queue::{Error, NewJob, Result};
use stargate_repo::handlers::{SIZE_JOBS_MAX, deliver_job, kinds, process_job, size_job};
use stargate_repo::store::{EVENTS_KEPT, EVENTS_PURGED_MAX};
use stargate_repo::webhook::HOOKS_MAX;
use stargate_repo::{
    Delivery, DeliveryId, EventFilter, Head, Link, NewPush, NewWebhook, Processed, PushEvent, PushEventId,
    Pushes, RefUpdate, Repo, RepoId, RepoSize, RepoSpec, Webhook, WebhookId, repository,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::Session;
use super::enqueue::{check, finish, insert_within};
use super::error::{again, fatal, transient};
use super::{Inner, Postgres, leadership, push_head, sql};
use crate::repo_rows::{
    DefaultBranch, check_room, checked, default_move, epoch, epoch_column, no_event, no_repo, occasions,
    occasions_json, page, signed,
};

#[async_trait]
impl Pushes for Postgres {
    async fn record(&self, push: NewPush) -> Result<Vec<PushEventId>> {
        let like = checked(&push)?;
        check(&self.inner, std::slice::from_ref(&like))?;
        let guard = push.epoch.or(self.guard);
        let mut tries = 0;
        loop {
            tries += 1;
            let result = record(&self.inner, guard, &push, &like).await;
            if !again(&result, tries) {
                return result;
            }
        }
    }

    async fn process(&self, event: PushEventId) -> Result<Processed> {
        let mut tries = 0;
        loop {
            tries += 1;
            let result = process(&self.inner, event).await;
            if !again(&result, tries) {
                return result;
            }
        }
    }

    async fn events(&self, filter: EventFilter) -> Result<Vec<PushEvent>> {
        let (before, limit) = (filter.before.map_or(i64::MAX, |id| id.0), page(filter.limit));
        let (before, limit) = ((&before as _, Type::INT8), (&limit as _, Type::INT8));
        let mut s = self.inner.readers.session().await?;
        let rows = match (filter.unprocessed, &filter.repo) {
            (false, None) => s.rows("list pushes", sql!("push_event_page"), &[before, limit]).await?,
            (unprocessed, repo) => {
                let text =
                    if unprocessed { sql!("push_event_page_open") } else { sql!("push_event_page_repo") };
                s.rows("list pushes", text, &[before, limit, (repo, Type::TEXT)]).await?
            }
        };
        Ok(rows.iter().map(read_event).collect())
    }

    async fn event(&self, id: PushEventId) -> Result<Option<PushEvent>> {
        event(&mut self.inner.readers.session().await?, id).await
    }

    async fn heads(&self, repo: &str, after: Option<&str>, limit: u32) -> Result<Vec<Head>> {
        let mut s = self.inner.readers.session().await?;
        push_head::list(&mut s, repo, after.unwrap_or_default(), limit).await
    }

    async fn links(&self, repo: &str, after: Option<PushEventId>, limit: u32) -> Result<Vec<Link>> {
        let mut s = self.inner.readers.session().await?;
        push_head::links(&mut s, repo, after.map_or(0, |id| id.0), limit).await
    }

    async fn links_whole(&self, events: &[PushEventId]) -> Result<()> {
        let ids: Vec<i64> = events.iter().map(|id| id.0).collect();
        let mut s = self.inner.readers.session().await?;
        s.rows("note whole links", sql!("push_link_whole"), &[(&ids, Type::INT8_ARRAY)]).await.map(drop)
    }

    async fn repo_put(&self, repo: RepoSpec) -> Result<()> {
        repo.check()?;
        let now = self.inner.clock.for_statement();
        let params = [
            (&now as _, Type::TIMESTAMPTZ),
            (&repo.name as _, Type::TEXT),
            (&repo.default_branch as _, Type::TEXT),
        ];
        let mut s = self.inner.readers.session().await?;
        s.rows("enter the repository", sql!("repo_put"), &params).await.map(drop)
    }

    async fn repo_remove(&self, name: &str) -> Result<bool> {
        let mut s = self.inner.readers.session().await?;
        let rows = s.rows("remove the repository", sql!("repo_remove"), &[(&name, Type::TEXT)]).await?;
        Ok(!rows.is_empty())
    }

    async fn repo(&self, name: &str) -> Result<Option<Repo>> {
        let mut s = self.inner.readers.session().await?;
        let rows = s.rows("read the repository", sql!("repo_get"), &[(&name, Type::TEXT)]).await?;
        Ok(rows.first().map(read_repo))
    }

    async fn repos(&self, after: Option<&str>, limit: u32) -> Result<Vec<Repo>> {
        let (after, limit) = (after.unwrap_or_default(), page(limit));
        let params = [(&after as _, Type::TEXT), (&limit as _, Type::INT8)];
        let mut s = self.inner.readers.session().await?;
        Ok(s.rows("list repositories", sql!("repo_list"), &params).await?.iter().map(read_repo).collect())
    }

    async fn size_set(&self, repo: &str, size: RepoSize) -> Result<bool> {
        let (now, bytes, objects) =
            (self.inner.clock.for_statement(), signed(size.bytes), signed(size.objects));
        let params = [
            (&now as _, Type::TIMESTAMPTZ),
            (&repo as _, Type::TEXT),
            (&bytes as _, Type::INT8),
            (&objects as _, Type::INT8),
        ];
        let mut s = self.inner.readers.session().await?;
        let rows = s.rows("note the size of the repository", sql!("repo_size_set"), &params).await?;
        Ok(!rows.is_empty())
    }

    async fn webhook_put(&self, hook: NewWebhook) -> Result<WebhookId> {
        hook.check()?;
        let mut s = self.inner.readers.session().await?;
        s.begin().await?;
        let result = webhook_put(&self.inner, &mut s, &hook).await;
        finish(&mut s, result).await
    }

    async fn webhook_remove(&self, id: WebhookId) -> Result<bool> {
        let mut s = self.inner.readers.session().await?;
        let rows = s.rows("remove the hook", sql!("webhook_remove"), &[(&id.0, Type::INT8)]).await?;
        Ok(!rows.is_empty())
    }

    async fn webhooks(&self, after: Option<WebhookId>, limit: u32) -> Result<Vec<Webhook>> {
        let (after, limit) = (after.map_or(0, |id| id.0), page(limit));
        let params = [(&after as _, Type::INT8), (&limit as _, Type::INT8)];
        let mut s = self.inner.readers.session().await?;
        let rows = s.rows("list hooks", sql!("webhook_list"), &params).await?;
        rows.iter().map(|row| read_hook(row, 0)).collect()
    }

    async fn delivery(&self, id: DeliveryId) -> Result<Option<Delivery>> {
        let mut s = self.inner.readers.session().await?;
        let rows = s.rows("read the delivery", sql!("delivery_get"), &[(&id.0, Type::INT8)]).await?;
        rows.first().map(read_delivery).transpose()
    }

    async fn deliveries(&self, event: PushEventId) -> Result<Vec<Delivery>> {
        let most = i64::from(2 * HOOKS_MAX);
        let params = [(&event.0 as _, Type::INT8), (&most as _, Type::INT8)];
        let mut s = self.inner.readers.session().await?;
        s.rows("list deliveries", sql!("delivery_list"), &params).await?.iter().map(read_delivery).collect()
    }

    async fn delivered(&self, id: DeliveryId) -> Result<bool> {
        let now = self.inner.clock.for_statement();
        let params = [(&now as _, Type::TIMESTAMPTZ), (&id.0 as _, Type::INT8)];
        let mut s = self.inner.readers.session().await?;
        Ok(!s.rows("note the delivery", sql!("delivery_done"), &params).await?.is_empty())
    }
}

const RECORD: &str = "record the push";
const PROCESS: &str = "process the push";

/// Records a push in one transaction; `like` is like the jobs it makes.
async fn record(
    inner: &Inner,
    guard: Option<Epoch>,
    push: &NewPush,
    like: &NewJob,
) -> Result<Vec<PushEventId>> {
    let mut s = inner.readers.session().await?;
    // Lanes stay even if the transaction does not.
    lanes_known(inner, &mut s, &[like]).await?;
    leadership::begin(&mut s, guard).await?;
    let result = record_within(inner, &mut s, push).await;
    let result = finish(&mut s, result).await;
    match &result {
        Ok(_) => inner.wake(),
        Err(_) => inner.lanes.forget(&[like]),
    }
    result
}

async fn record_within(inner: &Inner, s: &mut Session<'_>, push: &NewPush) -> Result<Vec<PushEventId>> {
    let now = inner.clock.for_statement();
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&push.repo as _, Type::TEXT),
        (&push.default_branch as _, Type::TEXT),
        (&repository::DEFAULT_BRANCH as _, Type::TEXT),
    ];
    let repo: i64 = s.value(RECORD, sql!("repo_touch"), &params).await?;
    let heads = push_head::find(s, repo, push).await?;
    let fills = push_head::find_fills(s, repo, &heads, push).await?;
    let standing = |update: &RefUpdate| {
        let head = heads.get(&update.ref_name).filter(|head| head.stands_for(&push.request_id, update));
        head.map(|head| head.event).or_else(|| fills.get(update).copied())
    };
    let untold: Vec<&RefUpdate> = push.updates.iter().filter(|update| standing(update).is_none()).collect();
    let (new, told) = insert_events(inner, s, repo, push, &untold).await?;
    let trace = push.trace_id.as_deref();
    // A ref named twice is one event and one job.
    let mut seen = HashSet::new();
    let fresh = told.iter().copied().zip(untold.iter().copied());
    let fresh: Vec<(PushEventId, &RefUpdate)> =
        fresh.filter(|(id, _)| new.contains(&id.0) && seen.insert(id.0)).collect();
    push_head::follow(s, &heads, &push.request_id, &fresh).await?;
    let jobs: Vec<NewJob> = fresh.iter().map(|(id, _)| process_job(*id, trace)).collect::<Result<_>>()?;
    let jobs: Vec<&NewJob> = jobs.iter().collect();
    if !jobs.is_empty() {
        insert_within(inner, s, &jobs).await?;
    }
    let mut told = told.into_iter();
    Ok(push.updates.iter().filter_map(|update| standing(update).or_else(|| told.next())).collect())
}

/// Enters the events that are not there yet; the new ones, and all in the order of the refs.
async fn insert_events(
    inner: &Inner,
    s: &mut Session<'_>,
    repo: i64,
    push: &NewPush,
    updates: &[&RefUpdate],
) -> Result<(HashSet<i64>, Vec<PushEventId>)> {
    let now = inner.clock.for_statement();
    let epoch = epoch_column(push.epoch);
    let refs: Vec<&str> = updates.iter().map(|update| update.ref_name.as_str()).collect();
    let old: Vec<&str> = updates.iter().map(|update| update.old_oid.as_str()).collect();
    let new: Vec<&str> = updates.iter().map(|update| update.new_oid.as_str()).collect();
    let repo = (&repo as _, Type::INT8);
    let request = (&push.request_id as _, Type::TEXT);
    let ends = [(&refs as _, Type::TEXT_ARRAY), (&old as _, Type::TEXT_ARRAY), (&new as _, Type::TEXT_ARRAY)];
    let [refs, old, new] = ends;
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        repo.clone(),
        request.clone(),
        (&push.pusher as _, Type::TEXT),
        (&epoch as _, Type::INT8),
        (&push.at as _, Type::TIMESTAMPTZ),
        refs.clone(),
        old.clone(),
        new.clone(),
    ];
    let inserted = s.rows(RECORD, sql!("push_event_insert"), &params).await?;
    // Nearly always: all are new, and answered in the order in which they were entered.
    let is_new = inserted.len() == updates.len();
    let found = match is_new {
        true => Vec::new(),
        false => s.rows(RECORD, sql!("push_event_find"), &[repo, request, refs, old, new]).await?,
    };
    let found = if is_new { &inserted } else { &found };
    if found.len() != updates.len() {
        return Err(transient(RECORD, "an event was removed meanwhile"));
    }
    let events = found.iter().map(|row| PushEventId(row.get(0))).collect();
    Ok((inserted.iter().map(|row| row.get(0)).collect(), events))
}

/// Has the lanes of jobs of our kinds made, and the kinds made known if no worker has.
async fn lanes_known(inner: &Inner, s: &mut Session<'_>, jobs: &[&NewJob]) -> Result<()> {
    match inner.lanes.of_jobs(s, jobs).await {
        Err(Error::UnknownKind { .. }) => {}
        other => return other.map(drop),
    }
    let specs = kinds()?;
    let names: Vec<&str> = specs.iter().map(|kind| kind.name.as_str()).collect();
    let attempts: Vec<i16> = specs.iter().map(|kind| kind.max_attempts.cast_signed()).collect();
    let crashes: Vec<i16> = specs.iter().map(|kind| kind.max_crashes.cast_signed()).collect();
    let params = [
        (&names as _, Type::TEXT_ARRAY),
        (&attempts as _, Type::INT2_ARRAY),
        (&crashes as _, Type::INT2_ARRAY),
    ];
    s.rows("make kinds known", sql!("kind_ensure"), &params).await?;
    inner.lanes.of_jobs(s, jobs).await.map(drop)
}

/// Writes what follows from an event in one transaction.
async fn process(inner: &Inner, id: PushEventId) -> Result<Processed> {
    let (size, deliver) = (size_job(RepoId(0), "any", 0)?, deliver_job(DeliveryId(0))?);
    let like = [&size, &deliver];
    let mut s = inner.readers.session().await?;
    lanes_known(inner, &mut s, &like).await?;
    s.begin().await?;
    let result = process_within(inner, &mut s, id).await;
    let result = finish(&mut s, result).await;
    match &result {
        Ok(done) if done.first => inner.wake(),
        Ok(_) => {}
        Err(_) => inner.lanes.forget(&like),
    }
    result
}

async fn process_within(inner: &Inner, s: &mut Session<'_>, id: PushEventId) -> Result<Processed> {
    let now = inner.clock.for_statement();
    let rows = s.rows(PROCESS, sql!("repo_of_event"), &[(&id.0, Type::INT8)]).await?;
    let branch = rows.first().map(read_branch).ok_or_else(|| no_event(id))?;
    let event = event(s, id).await?.ok_or_else(|| no_event(id))?;
    let params = [(&now as _, Type::TIMESTAMPTZ), (&id.0 as _, Type::INT8)];
    if s.rows(PROCESS, sql!("push_event_done"), &params).await?.is_empty() {
        return Ok(Processed::BEFORE);
    }
    let default_moved = match default_move(&branch, &event) {
        Some(oid) => {
            let began = stargate_repo::branch::end(&event.update.old_oid);
            let params = [
                (&branch.repo as _, Type::INT8),
                (&oid as _, Type::TEXT),
                (&id.0 as _, Type::INT8),
                (&began as _, Type::TEXT),
            ];
            s.rows(PROCESS, sql!("repo_default_set"), &params).await?;
            branch.oid.as_deref() != oid
        }
        None => false,
    };
    let jobs = fill_outbox(inner, s, branch.repo, &event).await?;
    if !jobs.is_empty() {
        insert_within(inner, s, &jobs.iter().collect::<Vec<_>>()).await?;
    }
    enqueue_size(inner, s, branch.repo, &event.repo).await?;
    let (age, most) = (signed(EVENTS_KEPT.as_secs()), i64::from(EVENTS_PURGED_MAX));
    let params = [(&now as _, Type::TIMESTAMPTZ), (&age as _, Type::INT8), (&most as _, Type::INT8)];
    s.rows(PROCESS, sql!("push_event_purge"), &params).await?;
    let deliveries = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
    Ok(Processed { first: true, default_moved, deliveries })
}

/// A row for every hook that wants to hear of the event; the jobs that send them.
async fn fill_outbox(
    inner: &Inner,
    s: &mut Session<'_>,
    repo: i64,
    event: &PushEvent,
) -> Result<Vec<NewJob>> {
    let rows = s.rows(PROCESS, sql!("webhook_of_repo"), &[(&repo, Type::INT8)]).await?;
    let hooks = rows.iter().map(|row| read_hook(row, 0)).collect::<Result<Vec<_>>>()?;
    let wanting: Vec<i64> =
        hooks.iter().filter(|hook| hook.wants(&event.update)).map(|hook| hook.id.0).collect();
    if wanting.is_empty() {
        return Ok(Vec::new());
    }
    let now = inner.clock.for_statement();
    let params =
        [(&now as _, Type::TIMESTAMPTZ), (&event.id.0 as _, Type::INT8), (&wanting as _, Type::INT8_ARRAY)];
    let rows = s.rows(PROCESS, sql!("webhook_outbox_insert"), &params).await?;
    rows.iter().map(|row| deliver_job(DeliveryId(row.get(0)))).collect()
}

/// Has a job wait that measures the repository.
async fn enqueue_size(inner: &Inner, s: &mut Session<'_>, repo: i64, name: &str) -> Result<()> {
    for place in 0..SIZE_JOBS_MAX {
        let waiting = insert_within(inner, s, &[&size_job(RepoId(repo), name, place)?]).await?;
        let Some(job) = waiting.first().filter(|job| job.existing) else { break };
        if !s.value::<bool>(PROCESS, sql!("job_running"), &[(&job.id.0, Type::INT8)]).await? {
            break;
        }
    }
    Ok(())
}

async fn event(s: &mut Session<'_>, id: PushEventId) -> Result<Option<PushEvent>> {
    let rows = s.rows("read the push", sql!("push_event_get"), &[(&id.0, Type::INT8)]).await?;
    Ok(rows.first().map(read_event))
}

async fn webhook_put(inner: &Inner, s: &mut Session<'_>, hook: &NewWebhook) -> Result<WebhookId> {
    const OPERATION: &str = "keep the hook";
    let params = [(&hook.repo as _, Type::TEXT), (&hook.url as _, Type::TEXT)];
    let rows = s.rows(OPERATION, sql!("webhook_room"), &params).await?;
    let row = rows.first().ok_or_else(|| transient(OPERATION, "no answer about its room"))?;
    let (repo, others): (Option<i64>, i64) = (row.get(0), row.get(1));
    if let (Some(name), None) = (&hook.repo, repo) {
        return Err(no_repo(name));
    }
    check_room(others)?;
    let (now, events) = (inner.clock.for_statement(), occasions_json(&hook.events));
    let params = [
        (&now as _, Type::TIMESTAMPTZ),
        (&repo as _, Type::INT8),
        (&hook.url as _, Type::TEXT),
        (&hook.secret_ref as _, Type::TEXT),
        (&events as _, Type::TEXT),
    ];
    s.value(OPERATION, sql!("webhook_put"), &params).await.map(WebhookId)
}

fn read_branch(row: &Row) -> DefaultBranch {
    DefaultBranch {
        repo: row.get(0),
        name: row.get(1),
        oid: row.get(2),
        event: row.get(3),
        old_oid: row.get(4),
    }
}

fn read_event(row: &Row) -> PushEvent {
    PushEvent {
        id: PushEventId(row.get(0)),
        repo: row.get(1),
        update: RefUpdate { ref_name: row.get(2), old_oid: row.get(3), new_oid: row.get(4) },
        pusher: row.get(5),
        request_id: row.get(6),
        epoch: epoch(row.get(7)),
        received_at: row.get(8),
        created_at: row.get(9),
        processed_at: row.get(10),
    }
}

fn read_repo(row: &Row) -> Repo {
    let number = |column: usize| row.get::<_, Option<i64>>(column).map(i64::unsigned_abs);
    Repo {
        id: RepoId(row.get(0)),
        name: row.get(1),
        default_branch: row.get(2),
        default_oid: row.get(3),
        size: number(4).zip(number(5)).map(|(bytes, objects)| RepoSize { bytes, objects }),
        sized_at: row.get(6),
        pushed_at: row.get(7),
        created_at: row.get(8),
    }
}

/// A hook whose columns begin at `from`.
fn read_hook(row: &Row, from: usize) -> Result<Webhook> {
    let events: &str = row.get(from + 4);
    let hint = "a row of stargate.webhook is damaged";
    let hook = NewWebhook {
        repo: row.get(from + 1),
        url: row.get(from + 2),
        secret_ref: row.get(from + 3),
        events: occasions(events).map_err(|error| fatal("read a hook", hint, error))?,
    };
    Ok(Webhook { id: WebhookId(row.get(from)), hook, created_at: row.get(from + 5) })
}

fn read_delivery(row: &Row) -> Result<Delivery> {
    Ok(Delivery {
        id: DeliveryId(row.get(11)),
        event: read_event(row),
        hook: read_hook(row, 13)?,
        delivered_at: row.get(12),
    })
}
