//! Queues, kinds and limits: what waits where, and what holds it back.

use askama::Template;
use axum::extract::Path;
use axum::http::Method;
use serde::Serialize;

use super::call::{Answer, Failed};
use super::fields::Sent;
use super::frame::{Frame, Shown, Visit, ask};
use super::html::{self, encode};
use crate::api::types::plans::{Limit, Limits, Removed};
use crate::api::types::{Kind, KindPaused, Kinds, Queue, QueuePaused, Queues};

const HERE: &str = "/queues";

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesPage {
    frame: Frame,
    queues: Vec<Queue>,
    kinds: Vec<Kind>,
    limits: Vec<Limit>,
}

/// `GET /queues`
pub(crate) async fn show(visit: Visit) -> Shown {
    let api = &visit.api;
    let (queues, kinds, limits) = futures::join!(
        api.get::<Queues>("/queues"),
        api.get::<Kinds>("/kinds"),
        api.get::<Limits>("/limits")
    );
    let page = QueuesPage {
        queues: ask!(visit, queues).queues,
        kinds: ask!(visit, kinds).kinds,
        limits: ask!(visit, limits).limits,
        frame: visit.frame("Queues", HERE),
    };
    visit.show(&page)
}

/// `POST /queues/{name}/pause`
pub(crate) async fn pause(visit: Visit, Path(name): Path<String>) -> Shown {
    turn_queue(&visit, &name, "pause").await
}

/// `POST /queues/{name}/resume`
pub(crate) async fn resume(visit: Visit, Path(name): Path<String>) -> Shown {
    turn_queue(&visit, &name, "resume").await
}

async fn turn_queue(visit: &Visit, name: &str, verb: &str) -> Shown {
    let done: Answer<QueuePaused> = visit.api.post(&format!("/queues/{}/{verb}", encode(name))).await;
    visit.after(HERE, done, |done| {
        let how = if done.paused { "paused: its jobs wait, those that run go on" } else { "resumed" };
        format!("The queue {} is {how}.", done.queue)
    })
}

/// `POST /kinds/{name}/pause`
pub(crate) async fn kind_pause(visit: Visit, Path(name): Path<String>) -> Shown {
    turn_kind(&visit, &name, "pause").await
}

/// `POST /kinds/{name}/resume`
pub(crate) async fn kind_resume(visit: Visit, Path(name): Path<String>) -> Shown {
    turn_kind(&visit, &name, "resume").await
}

async fn turn_kind(visit: &Visit, name: &str, verb: &str) -> Shown {
    let done: Answer<KindPaused> = visit.api.post(&format!("/kinds/{}/{verb}", encode(name))).await;
    visit.after(HERE, done, |done| {
        let how = if done.paused { "paused: its jobs wait, those that run go on" } else { "resumed" };
        format!("The kind {} is {how}.", done.kind)
    })
}

#[derive(Serialize)]
struct NewLimit<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
}

/// `POST /limits`
pub(crate) async fn limit_set(visit: Visit, Sent(fields): Sent) -> Shown {
    let limit = (|| {
        let rate = fields.get("rate");
        Ok::<_, Failed>(NewLimit {
            concurrency: fields.number("concurrency")?,
            rate,
            weight: fields.number("weight")?,
        })
    })();
    let done: Answer<Limit> = match limit {
        Ok(limit) => {
            let path = format!("/limits/{}", encode(fields.text("pattern")));
            visit.api.change(Method::PUT, &path, &limit).await
        }
        Err(failed) => Err(failed),
    };
    visit.after(HERE, done, |done| format!("The limit of {} is set.", done.pattern))
}

/// `POST /limits/remove`
pub(crate) async fn limit_remove(visit: Visit, Sent(fields): Sent) -> Shown {
    let done: Answer<Removed> =
        visit.api.delete(&format!("/limits/{}", encode(fields.text("pattern")))).await;
    visit.after(HERE, done, |done| format!("The limit of {} is removed.", done.name))
}
