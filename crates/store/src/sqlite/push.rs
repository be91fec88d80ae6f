//! Repositories, pushes and hooks.

use async_trait::async_trait;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row};
use stargate_queue::{JobId, NewJob, Result};
use stargate_repo::handlers::{SIZE_JOBS_MAX, deliver_job, kinds, process_job, size_job};
use stargate_repo::store::{EVENTS_KEPT, EVENTS_PURGED_MAX};
use stargate_repo::webhook::HOOKS_MAX;
use stargate_repo::{
    Delivery, DeliveryId, EventFilter, Head, Link, NewPush, NewWebhook, Processed, PushEvent, PushEventId,
    Pushes, RefUpdate, Repo, RepoId, RepoSize, RepoSpec, Webhook, WebhookId, repository,
};

use super::error::Step;
use super::rows::{instant, micros, span_micros, wrong};
use super::session::{Session, sql};
use super::writer::Rank;
use super::{Sqlite, enqueue, leadership, push_head};
use crate::repo_rows::{
    DefaultBranch, check_room, checked, default_move, epoch, epoch_column, no_event, no_repo, occasions,
    occasions_json, page, signed,
};

#[async_trait]
impl Pushes for Sqlite {
    async fn record(&self, push: NewPush) -> Result<Vec<PushEventId>> {
        self.check_new(&[checked(&push)?])?;
        let guard = push.epoch.or(self.guard);
        self.writer
            .write(Rank::Normal, "record the push", move |s| {
                leadership::judge(s.conn, guard)?;
                record(s, &push)
            })
            .await
    }

    async fn process(&self, event: PushEventId) -> Result<Processed> {
        self.writer.write(Rank::Normal, "process the push", move |s| process(s, event)).await
    }

    async fn events(&self, filter: EventFilter) -> Result<Vec<PushEvent>> {
        self.readers.read("list pushes", move |r| events(r.conn, &filter)).await
    }

    async fn event(&self, id: PushEventId) -> Result<Option<PushEvent>> {
        self.readers.read("read the push", move |r| event(r.conn, id)).await
    }

    async fn heads(&self, repo: &str, after: Option<&str>, limit: u32) -> Result<Vec<Head>> {
        let (repo, after) = (repo.to_owned(), after.unwrap_or_default().to_owned());
        self.readers.read("list heads", move |r| push_head::list(r.conn, &repo, &after, limit)).await
    }

    async fn links(&self, repo: &str, after: Option<PushEventId>, limit: u32) -> Result<Vec<Link>> {
        let (repo, after) = (repo.to_owned(), after.map_or(0, |id| id.0));
        self.readers.read("list links", move |r| push_head::links(r.conn, &repo, after, limit)).await
    }

    async fn links_whole(&self, events: &[PushEventId]) -> Result<()> {
        let events = events.to_vec();
        self.writer
            .write(Rank::Normal, "note whole links", move |s| {
                let mut set = s.conn.prepare_cached(sql!("push_link_whole"))?;
                for PushEventId(id) in events {
                    set.execute([id])?;
                }
                Ok(())
            })
            .await
    }

    async fn repo_put(&self, repo: RepoSpec) -> Result<()> {
        repo.check()?;
        self.writer
            .write(Rank::Normal, "enter the repository", move |s| {
                s.conn.prepare_cached(sql!("repo_put"))?.execute((s.now, repo.name, repo.default_branch))?;
                Ok(())
            })
            .await
    }

    async fn repo_remove(&self, name: &str) -> Result<bool> {
        let name = name.to_owned();
        self.writer.write(Rank::Normal, "remove the repository", move |s| repo_remove(s, &name)).await
    }

    async fn repo(&self, name: &str) -> Result<Option<Repo>> {
        let name = name.to_owned();
        self.readers
            .read("read the repository", move |r| {
                Ok(r.conn.prepare_cached(sql!("repo_get"))?.query_row([name], read_repo).optional()?)
            })
            .await
    }

    async fn repos(&self, after: Option<&str>, limit: u32) -> Result<Vec<Repo>> {
        let after = after.unwrap_or_default().to_owned();
        self.readers
            .read("list repositories", move |r| {
                let mut list = r.conn.prepare_cached(sql!("repo_list"))?;
                let rows = list.query_map((after, page(limit)), read_repo)?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    async fn size_set(&self, repo: &str, size: RepoSize) -> Result<bool> {
        let repo = repo.to_owned();
        self.writer
            .write(Rank::Normal, "note the size of the repository", move |s| {
                let mut set = s.conn.prepare_cached(sql!("repo_size_set"))?;
                Ok(set.exists((s.now, repo, signed(size.bytes), signed(size.objects)))?)
            })
            .await
    }

    async fn webhook_put(&self, hook: NewWebhook) -> Result<WebhookId> {
        hook.check()?;
        self.writer.write(Rank::Normal, "keep the hook", move |s| webhook_put(s, &hook)).await
    }

    async fn webhook_remove(&self, WebhookId(id): WebhookId) -> Result<bool> {
        self.writer
            .write(Rank::Normal, "remove the hook", move |s| {
                s.conn.prepare_cached(sql!("webhook_remove_outbox"))?.execute([id])?;
                Ok(s.conn.prepare_cached(sql!("webhook_remove"))?.exists([id])?)
            })
            .await
    }

    async fn webhooks(&self, after: Option<WebhookId>, limit: u32) -> Result<Vec<Webhook>> {
        let after = after.map_or(0, |id| id.0);
        self.readers
            .read("list hooks", move |r| {
                let mut list = r.conn.prepare_cached(sql!("webhook_list"))?;
                let rows = list.query_map((after, page(limit)), |row| read_hook(row, 0))?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    async fn delivery(&self, DeliveryId(id): DeliveryId) -> Result<Option<Delivery>> {
        self.readers
            .read("read the delivery", move |r| {
                Ok(r.conn.prepare_cached(sql!("delivery_get"))?.query_row([id], read_delivery).optional()?)
            })
            .await
    }

    async fn deliveries(&self, PushEventId(event): PushEventId) -> Result<Vec<Delivery>> {
        self.readers
            .read("list deliveries", move |r| {
                let mut list = r.conn.prepare_cached(sql!("delivery_list"))?;
                let rows = list.query_map((event, 2 * HOOKS_MAX), read_delivery)?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    async fn delivered(&self, DeliveryId(id): DeliveryId) -> Result<bool> {
        self.writer
            .write(Rank::Normal, "note the delivery", move |s| {
                Ok(s.conn.prepare_cached(sql!("delivery_done"))?.exists((s.now, id))?)
            })
            .await
    }
}

/// Writes the repository, its events and their jobs.
fn record(s: &mut Session<'_>, push: &NewPush) -> Step<Vec<PushEventId>> {
    let repo: i64 = s
        .conn
        .prepare_cached(sql!("repo_touch"))?
        .query_row((s.now, &push.repo, &push.default_branch, repository::DEFAULT_BRANCH), |row| row.get(0))?;
    let (mut events, mut jobs) = (Vec::with_capacity(push.updates.len()), Vec::new());
    {
        let mut insert = s.conn.prepare_cached(sql!("push_event_insert"))?;
        let mut find = s.conn.prepare_cached(sql!("push_event_find"))?;
        for update in &push.updates {
            let head = push_head::find(s.conn, repo, &update.ref_name)?;
            if let Some(head) = head.as_ref().filter(|head| head.stands_for(&push.request_id, update)) {
                events.push(head.event);
                continue;
            }
            if let Some(id) = push_head::find_fill(s.conn, repo, &push.request_id, head.as_ref(), update)? {
                events.push(id);
                continue;
            }
            let new = insert_event(&mut insert, s.now, repo, push, update)?;
            let id = match new {
                Some(id) => id,
                None => find.query_row(
                    (repo, &push.request_id, &update.ref_name, &update.old_oid, &update.new_oid),
                    |row| row.get(0).map(PushEventId),
                )?,
            };
            if new.is_some() {
                push_head::follow(s.conn, head.as_ref(), id, &push.request_id, update)?;
                jobs.push(process_job(id, push.trace_id.as_deref())?);
            }
            events.push(id);
        }
    }
    enqueue_known(s, &jobs)?;
    Ok(events)
}

fn insert_event(
    insert: &mut CachedStatement<'_>,
    now: i64,
    repo: i64,
    push: &NewPush,
    update: &RefUpdate,
) -> rusqlite::Result<Option<PushEventId>> {
    let values = (
        now,
        repo,
        &push.request_id,
        &push.pusher,
        epoch_column(push.epoch),
        micros(push.at),
        &update.ref_name,
        &update.old_oid,
        &update.new_oid,
    );
    insert.query_row(values, |row| row.get(0).map(PushEventId)).optional()
}

/// Enqueues, making our kinds known first if no worker has.
fn enqueue_known(s: &mut Session<'_>, jobs: &[NewJob]) -> Step<Vec<JobId>> {
    if jobs.iter().any(|job| s.kind(&job.kind).is_err()) {
        let mut ensure = s.conn.prepare_cached(sql!("kind_ensure"))?;
        for kind in kinds()? {
            ensure.execute((kind.name, kind.max_attempts, kind.max_crashes))?;
        }
    }
    Ok(enqueue::enqueue(s, jobs)?.into_iter().map(|one| one.id).collect())
}

/// Writes what follows from an event, once.
fn process(s: &mut Session<'_>, id: PushEventId) -> Step<Processed> {
    let branch = s.conn.prepare_cached(sql!("repo_of_event"))?.query_row([id.0], read_branch).optional()?;
    let (Some(branch), Some(event)) = (branch, event(s.conn, id)?) else { return Err(no_event(id).into()) };
    if !s.conn.prepare_cached(sql!("push_event_done"))?.exists((s.now, id.0))? {
        return Ok(Processed::BEFORE);
    }
    let default_moved = match default_move(&branch, &event) {
        Some(oid) => {
            let began = stargate_repo::branch::end(&event.update.old_oid);
            s.conn.prepare_cached(sql!("repo_default_set"))?.execute((branch.repo, oid, id.0, began))?;
            branch.oid.as_deref() != oid
        }
        None => false,
    };
    let jobs = fill_outbox(s, branch.repo, &event)?;
    enqueue_known(s, &jobs)?;
    enqueue_size(s, branch.repo, &event.repo)?;
    let until = s.now - span_micros(EVENTS_KEPT);
    s.conn.prepare_cached(sql!("webhook_outbox_purge"))?.execute((until, EVENTS_PURGED_MAX))?;
    s.conn.prepare_cached(sql!("push_event_purge"))?.execute((until, EVENTS_PURGED_MAX))?;
    let deliveries = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
    Ok(Processed { first: true, default_moved, deliveries })
}

/// A row for every hook that wants to hear of the event; the jobs that send them.
fn fill_outbox(s: &Session<'_>, repo: i64, event: &PushEvent) -> Step<Vec<NewJob>> {
    let mut list = s.conn.prepare_cached(sql!("webhook_of_repo"))?;
    let hooks = list.query_map([repo], |row| read_hook(row, 0))?.collect::<Result<Vec<_>, _>>()?;
    let mut insert = s.conn.prepare_cached(sql!("webhook_outbox_insert"))?;
    let mut jobs = Vec::new();
    for hook in hooks.iter().filter(|hook| hook.wants(&event.update)) {
        let values = (s.now, event.id.0, hook.id.0);
        let new: Option<i64> = insert.query_row(values, |row| row.get(0)).optional()?;
        if let Some(id) = new {
            jobs.push(deliver_job(DeliveryId(id))?);
        }
    }
    Ok(jobs)
}

/// Has a job wait that measures the repository.
fn enqueue_size(s: &mut Session<'_>, repo: i64, name: &str) -> Step<()> {
    for place in 0..SIZE_JOBS_MAX {
        let waiting = enqueue_known(s, &[size_job(RepoId(repo), name, place)?])?;
        let mut look = s.conn.prepare_cached(sql!("job_running"))?;
        let running = waiting.first().map_or(Ok(false), |job| look.query_row([job.0], |row| row.get(0)))?;
        if !running {
            break;
        }
    }
    Ok(())
}

fn event(conn: &Connection, id: PushEventId) -> Step<Option<PushEvent>> {
    Ok(conn.prepare_cached(sql!("push_event_get"))?.query_row([id.0], read_event).optional()?)
}

fn events(conn: &Connection, filter: &EventFilter) -> Step<Vec<PushEvent>> {
    let (before, limit) = (filter.before.map_or(i64::MAX, |id| id.0), page(filter.limit));
    let mut list = conn.prepare_cached(match (filter.unprocessed, &filter.repo) {
        (true, _) => sql!("push_event_page_open"),
        (false, Some(_)) => sql!("push_event_page_repo"),
        (false, None) => sql!("push_event_page"),
    })?;
    let rows = match (filter.unprocessed, &filter.repo) {
        (false, None) => list.query_map((before, limit), read_event)?,
        (_, repo) => list.query_map((before, limit, repo), read_event)?,
    };
    Ok(rows.collect::<Result<_, _>>()?)
}

fn repo_remove(s: &Session<'_>, name: &str) -> Step<bool> {
    let mut remove = s.conn.prepare_cached(sql!("repo_remove"))?;
    let Some(id) = remove.query_row([name], |row| row.get::<_, i64>(0)).optional()? else { return Ok(false) };
    s.conn.prepare_cached(sql!("repo_remove_outbox"))?.execute([id])?;
    s.conn.prepare_cached(sql!("repo_remove_event"))?.execute([id])?;
    s.conn.prepare_cached(sql!("repo_remove_webhook"))?.execute([id])?;
    Ok(true)
}

fn webhook_put(s: &Session<'_>, hook: &NewWebhook) -> Step<WebhookId> {
    let mut room = s.conn.prepare_cached(sql!("webhook_room"))?;
    let (repo, others): (Option<i64>, i64) =
        room.query_row((&hook.repo, &hook.url), |row| Ok((row.get(0)?, row.get(1)?)))?;
    if let (Some(name), None) = (&hook.repo, repo) {
        return Err(no_repo(name).into());
    }
    check_room(others)?;
    let values = (s.now, repo, &hook.url, &hook.secret_ref, occasions_json(&hook.events));
    let mut put = s.conn.prepare_cached(sql!("webhook_put"))?;
    Ok(put.query_row(values, |row| row.get(0).map(WebhookId))?)
}

fn read_branch(row: &Row<'_>) -> rusqlite::Result<DefaultBranch> {
    Ok(DefaultBranch {
        repo: row.get(0)?,
        name: row.get(1)?,
        oid: row.get(2)?,
        event: row.get(3)?,
        old_oid: row.get(4)?,
    })
}

fn read_event(row: &Row<'_>) -> rusqlite::Result<PushEvent> {
    Ok(PushEvent {
        id: PushEventId(row.get(0)?),
        repo: row.get(1)?,
        update: RefUpdate { ref_name: row.get(2)?, old_oid: row.get(3)?, new_oid: row.get(4)? },
        pusher: row.get(5)?,
        request_id: row.get(6)?,
        epoch: epoch(row.get(7)?),
        received_at: instant(row.get(8)?),
        created_at: instant(row.get(9)?),
        processed_at: row.get::<_, Option<i64>>(10)?.map(instant),
    })
}

fn read_repo(row: &Row<'_>) -> rusqlite::Result<Repo> {
    let number = |column| row.get::<_, Option<i64>>(column).map(|n| n.map(i64::unsigned_abs));
    let time = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(instant));
    let size = number(4)?.zip(number(5)?).map(|(bytes, objects)| RepoSize { bytes, objects });
    Ok(Repo {
        id: RepoId(row.get(0)?),
        name: row.get(1)?,
        default_branch: row.get(2)?,
        default_oid: row.get(3)?,
        size,
        sized_at: time(6)?,
        pushed_at: time(7)?,
        created_at: instant(row.get(8)?),
    })
}

/// A hook whose columns begin at `from`.
fn read_hook(row: &Row<'_>, from: usize) -> rusqlite::Result<Webhook> {
    let events: String = row.get(from + 4)?;
    let hook = NewWebhook {
        repo: row.get(from + 1)?,
        url: row.get(from + 2)?,
        secret_ref: row.get(from + 3)?,
        events: occasions(&events).map_err(|error| wrong(from + 4, error))?,
    };
    Ok(Webhook { id: WebhookId(row.get(from)?), hook, created_at: instant(row.get(from + 5)?) })
}

fn read_delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    Ok(Delivery {
        id: DeliveryId(row.get(11)?),
        event: read_event(row)?,
        hook: read_hook(row, 13)?,
        delivered_at: row.get::<_, Option<i64>>(12)?.map(instant),
    })
}
