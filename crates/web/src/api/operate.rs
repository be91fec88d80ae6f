//! Queues, kinds, workers, and how it goes.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Path, State};
use stargate_access::Role;
use stargate_queue::job::check_name;
use stargate_queue::store::{PauseTarget, WakeMethod};

use crate::api::types;
use crate::app::Shared;
use crate::caller::{Actor, Change};
use crate::error::Result;

#[utoipa::path(get, path = "/queues", tag = "queues", summary = "All queues with what waits in them",
    responses((status = 200, body = types::Queues)))]
pub(crate) async fn queues(State(shared): State<Shared>) -> Result<Json<types::Queues>> {
    all_queues(&shared).await.map(Json)
}

/// All queues.
pub(crate) async fn all_queues(shared: &Shared) -> Result<types::Queues> {
    let counts = shared.store().queues().await?;
    Ok(types::Queues { queues: counts.into_iter().map(types::Queue::from).collect() })
}

#[utoipa::path(get, path = "/kinds", tag = "queues", summary = "All kinds of jobs",
    responses((status = 200, body = types::Kinds)))]
pub(crate) async fn kinds(State(shared): State<Shared>) -> Result<Json<types::Kinds>> {
    all_kinds(&shared).await.map(Json)
}

/// All kinds.
pub(crate) async fn all_kinds(shared: &Shared) -> Result<types::Kinds> {
    let pauses: BTreeSet<PauseTarget> = shared.store().pauses().await?.into_iter().collect();
    let kinds = shared.store().kinds().await?.into_iter().map(|kind| types::Kind {
        paused: pauses.contains(&PauseTarget::Kind(kind.name.clone())),
        max_attempts: kind.max_attempts,
        max_crashes: kind.max_crashes,
        kind: kind.name,
    });
    Ok(types::Kinds { kinds: kinds.collect() })
}

#[utoipa::path(post, path = "/queues/{name}/pause", tag = "queues", summary = "Give out no more jobs of a queue",
    params(("name" = String, Path, description = "The queue")), responses((status = 200, body = types::QueuePaused)))]
pub(crate) async fn queue_pause(actor: Actor, Path(queue): Path<String>) -> Result<Json<types::QueuePaused>> {
    let paused = set_paused(&actor, PauseTarget::Queue(queue.clone()), true).await?;
    Ok(Json(types::QueuePaused { queue, paused }))
}

#[utoipa::path(post, path = "/queues/{name}/resume", tag = "queues", summary = "Give out jobs of a queue again",
    params(("name" = String, Path, description = "The queue")), responses((status = 200, body = types::QueuePaused)))]
pub(crate) async fn queue_resume(
    actor: Actor,
    Path(queue): Path<String>,
) -> Result<Json<types::QueuePaused>> {
    let paused = set_paused(&actor, PauseTarget::Queue(queue.clone()), false).await?;
    Ok(Json(types::QueuePaused { queue, paused }))
}

#[utoipa::path(post, path = "/kinds/{name}/pause", tag = "queues", summary = "Give out no more jobs of a kind",
    params(("name" = String, Path, description = "The kind")), responses((status = 200, body = types::KindPaused)))]
pub(crate) async fn kind_pause(actor: Actor, Path(kind): Path<String>) -> Result<Json<types::KindPaused>> {
    let paused = set_paused(&actor, PauseTarget::Kind(kind.clone()), true).await?;
    Ok(Json(types::KindPaused { kind, paused }))
}

#[utoipa::path(post, path = "/kinds/{name}/resume", tag = "queues", summary = "Give out jobs of a kind again",
    params(("name" = String, Path, description = "The kind")), responses((status = 200, body = types::KindPaused)))]
pub(crate) async fn kind_resume(actor: Actor, Path(kind): Path<String>) -> Result<Json<types::KindPaused>> {
    let paused = set_paused(&actor, PauseTarget::Kind(kind.clone()), false).await?;
    Ok(Json(types::KindPaused { kind, paused }))
}

/// Pauses or resumes a queue or a kind; answers whether it is paused now.
pub(crate) async fn set_paused(actor: &Actor, target: PauseTarget, paused: bool) -> Result<bool> {
    let (action, name) = match (&target, paused) {
        (PauseTarget::Queue(name), true) => ("queue.pause", name),
        (PauseTarget::Queue(name), false) => ("queue.resume", name),
        (PauseTarget::Kind(name), true) => ("kind.pause", name),
        (PauseTarget::Kind(name), false) => ("kind.resume", name),
    };
    check_name(if action.starts_with("queue") { "queue" } else { "kind" }, name)?;
    let change = Change::new(action, Role::Operate, name);
    let work = async |store: stargate_queue::SharedStore| match paused {
        true => store.pause(target).await,
        false => store.resume(target).await.map(drop),
    };
    actor.change(change, work).await?;
    Ok(paused)
}

#[utoipa::path(get, path = "/workers", tag = "workers", summary = "Who works",
    responses((status = 200, body = types::Workers)))]
pub(crate) async fn workers(State(shared): State<Shared>) -> Result<Json<types::Workers>> {
    all_workers(&shared).await.map(Json)
}

/// All workers.
pub(crate) async fn all_workers(shared: &Shared) -> Result<types::Workers> {
    let workers = shared.store().workers().await?;
    Ok(types::Workers { workers: workers.into_iter().map(types::Worker::from).collect() })
}

#[utoipa::path(get, path = "/stats", tag = "workers", summary = "How it goes: jobs, workers, the oldest that waits",
    responses((status = 200, body = types::Stats)))]
pub(crate) async fn show_stats(State(shared): State<Shared>) -> Result<Json<types::Stats>> {
    stats(&shared).await.map(Json)
}

/// How it goes.
pub(crate) async fn stats(shared: &Shared) -> Result<types::Stats> {
    let store = shared.store();
    let facts = store.facts();
    let mut jobs = types::JobCounts::default();
    for counts in store.queues().await? {
        jobs.ready += counts.ready;
        jobs.delayed += counts.delayed;
        jobs.blocked += counts.blocked;
        jobs.processing += counts.processing;
        jobs.failed += counts.failed;
    }
    let workers = store.workers().await?;
    let alive: Vec<_> = workers.iter().filter(|worker| worker.alive).collect();
    let wake = match facts.wake {
        WakeMethod::Notify => "notify",
        WakeMethod::DataVersion => "data_version",
        WakeMethod::Poll => "poll",
    };
    Ok(types::Stats {
        instance: shared.about.instance.clone(),
        version: shared.about.version.clone(),
        store: facts.name.to_owned(),
        wake: wake.to_owned(),
        now: store.now().await?,
        jobs,
        oldest_ready_sec: store.oldest_ready().await?.map(|age| age.as_secs_f64()),
        workers_alive: alive.len(),
        capacity: alive.iter().map(|worker| worker.concurrency).sum(),
    })
}
