//! `/api/v1`.
//!
//! | route | does |
//! | --- | --- |
//! | `POST jobs`, `POST jobs/batch` | enqueue, with `Idempotency-Key` and `traceparent` |
//! | `GET jobs`, `GET jobs/{id}` | a page, newest first; one with its last events |
//! | `GET jobs/{id}/events` | the timeline as JSON, or live with `Accept: text/event-stream` |
//! | `POST jobs/{id}/retry`, `…/cancel` | operator's decisions |
//! | `GET queues`, `POST queues/{name}/pause`, `…/resume` | by queue |
//! | `GET kinds`, `POST kinds/{name}/pause`, `…/resume` | by kind |
//! | `GET workers`, `GET stats` | who works, and how it goes |
//! | `GET mirror`, `GET mirror/dead-letters?repo=NAME` | how far remotes are behind; what was given up |
//! | `GET leader`, `POST leader/step-down` | who leads, since when, who did before; let another node lead |
//!
//! What changes something is done by the leader. Elsewhere it is refused with 503 `NOT_LEADER`, or passed on to the
//! leader. Reads are served everywhere.
//!
//! Where tokens are asked for, `GET` needs the role read, what changes jobs write, all else admin: `access.rs`.

mod enqueue;
mod events;
mod jobs;
mod leader;
pub(crate) mod mirror;
mod operate;
pub mod types;

use axum::Router;
use axum::routing::{get, post};

use crate::app::Shared;
use crate::{access, forward};

/// Most jobs in one batch.
pub const BATCH_JOBS_MAX: usize = 10_000;
/// The largest body with one job: the largest payload and its envelope.
pub const JOB_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// The largest body of a batch.
pub const BATCH_BYTES_MAX: usize = 64 << 20;

pub(crate) fn routes(shared: &Shared) -> Router<Shared> {
    Router::new()
        .route("/jobs", post(enqueue::one).get(jobs::list))
        .route("/jobs/batch", post(enqueue::batch))
        .route("/jobs/{id}", get(jobs::show))
        .route("/jobs/{id}/events", get(events::events))
        .route("/jobs/{id}/retry", post(jobs::retry))
        .route("/jobs/{id}/cancel", post(jobs::cancel))
        .route("/queues", get(operate::queues))
        .route("/queues/{name}/pause", post(operate::queue_pause))
        .route("/queues/{name}/resume", post(operate::queue_resume))
        .route("/kinds", get(operate::kinds))
        .route("/kinds/{name}/pause", post(operate::kind_pause))
        .route("/kinds/{name}/resume", post(operate::kind_resume))
        .route("/workers", get(operate::workers))
        .route("/stats", get(operate::stats))
        // What is added below is about this very node and never passed on.
        .route_layer(axum::middleware::from_fn_with_state(shared.clone(), forward::pass_on))
        .route("/mirror", get(mirror::show))
        .route("/mirror/dead-letters", get(mirror::dead_letters))
        .route("/leader", get(leader::show))
        .route("/leader/step-down", post(leader::step_down))
        // The outermost: a request without rights is neither passed on nor read.
        .route_layer(axum::middleware::from_fn_with_state(shared.clone(), access::check))
}
