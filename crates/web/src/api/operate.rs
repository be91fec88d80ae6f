//! Queues, kinds, workers, and how it goes.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Path, State};
use serde::Serialize;
use stargate_queue::job::check_name;
use stargate_queue::store::{PauseTarget, WakeMethod};

use crate::api::types;
use crate::app::Shared;
use crate::error::Result;
use crate::lead::Writer;

pub(crate) async fn queues(State(shared): State<Shared>) -> Result<Json<types::Queues>> {
    let counts = shared.store().queues().await?;
    Ok(Json(types::Queues { queues: counts.into_iter().map(types::Queue::from).collect() }))
}

pub(crate) async fn kinds(State(shared): State<Shared>) -> Result<Json<types::Kinds>> {
    let pauses: BTreeSet<PauseTarget> = shared.store().pauses().await?.into_iter().collect();
    let kinds = shared.store().kinds().await?.into_iter().map(|kind| types::Kind {
        paused: pauses.contains(&PauseTarget::Kind(kind.name.clone())),
        max_attempts: kind.max_attempts,
        max_crashes: kind.max_crashes,
        kind: kind.name,
    });
    Ok(Json(types::Kinds { kinds: kinds.collect() }))
}

#[derive(Serialize)]
pub(crate) struct QueuePaused {
    queue: String,
    paused: bool,
}

#[derive(Serialize)]
pub(crate) struct KindPaused {
    kind: String,
    paused: bool,
}

pub(crate) async fn queue_pause(writer: Writer, Path(queue): Path<String>) -> Result<Json<QueuePaused>> {
    check_name("queue", &queue)?;
    let target = PauseTarget::Queue(queue.clone());
    writer.write(|store| async move { store.pause(target).await }).await?;
    Ok(Json(QueuePaused { queue, paused: true }))
}

pub(crate) async fn queue_resume(writer: Writer, Path(queue): Path<String>) -> Result<Json<QueuePaused>> {
    check_name("queue", &queue)?;
    let target = PauseTarget::Queue(queue.clone());
    writer.write(|store| async move { store.resume(target).await }).await?;
    Ok(Json(QueuePaused { queue, paused: false }))
}

pub(crate) async fn kind_pause(writer: Writer, Path(kind): Path<String>) -> Result<Json<KindPaused>> {
    check_name("kind", &kind)?;
    let target = PauseTarget::Kind(kind.clone());
    writer.write(|store| async move { store.pause(target).await }).await?;
    Ok(Json(KindPaused { kind, paused: true }))
}

pub(crate) async fn kind_resume(writer: Writer, Path(kind): Path<String>) -> Result<Json<KindPaused>> {
    check_name("kind", &kind)?;
    let target = PauseTarget::Kind(kind.clone());
    writer.write(|store| async move { store.resume(target).await }).await?;
    Ok(Json(KindPaused { kind, paused: false }))
}

pub(crate) async fn workers(State(shared): State<Shared>) -> Result<Json<types::Workers>> {
    let workers = shared.store().workers().await?;
    Ok(Json(types::Workers { workers: workers.into_iter().map(types::Worker::from).collect() }))
}

pub(crate) async fn stats(State(shared): State<Shared>) -> Result<Json<types::Stats>> {
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
    let alive: Vec<_> = store.workers().await?.into_iter().filter(|worker| worker.alive).collect();
    Ok(Json(types::Stats {
        instance: shared.about.instance.clone(),
        version: shared.about.version.clone(),
        store: facts.name,
        wake: match facts.wake {
            WakeMethod::Notify => "notify",
            WakeMethod::DataVersion => "data_version",
            WakeMethod::Poll => "poll",
        },
        now: store.now().await?,
        jobs,
        oldest_ready_sec: store.oldest_ready().await?.map(|age| age.as_secs_f64()),
        workers_alive: alive.len(),
        capacity: alive.iter().map(|worker| worker.concurrency).sum(),
    }))
}
