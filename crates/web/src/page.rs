//! The page: what an operator sees, rendered here and sent as plain HTML.
//!
//! ```text
//!  browser ─▶ page/*.rs ─▶ Api (the same routes, inside this process) ─▶ store
//!                └─▶ templates/*.html
//! ```
//!
//! The page is a client of the API and nothing else: it asks the routes that programs ask, with the visitor's own
//! credentials, in the same process. What the API refuses, hides, records or passes on to the leader is refused, hidden,
//! recorded and passed on here as well, because there is no second way ([ADR 0012](../../../docs/adr/0012-page.md)).
//!
//! Every page works without JavaScript: links, forms, and a page that asks before anything that cannot be taken back.
//! Scripts add live updates, charts and keys. Nothing comes from another host, and no script or style stands in a page.

mod api_doc;
mod assets;
mod audit;
mod bulk;
mod call;
mod charts;
mod directives;
mod fields;
mod frame;
mod html;
mod job;
mod jobs;
mod json;
mod leadership;
mod letters;
mod login;
mod mirror;
mod overview;
mod problems;
mod queues;
mod runs;
mod schedules;
mod strip;
mod timeline;
mod workers;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::app::Shared;

/// What all pages share.
#[derive(Debug, Clone)]
pub(crate) struct Site(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Shared,
    /// The API, as it is served below `/api/v1`.
    api: Router,
}

impl Site {
    fn base(&self) -> &str {
        &self.0.shared.options.base_path
    }
}

/// The routes of the page. `api` has the routes of the API, below `/api/v1`.
pub(crate) fn routes(shared: &Shared, api: Router) -> Router<Shared> {
    let site = Site(Arc::new(Inner { shared: shared.clone(), api }));
    Router::new()
        .route("/", get(overview::show))
        .route("/jobs", get(jobs::list))
        .route("/jobs/new", get(jobs::new).post(jobs::enqueue))
        .route("/jobs/bulk", get(bulk::preview).post(bulk::apply))
        .route("/jobs/{id}", get(job::show))
        .route("/jobs/{id}/retry", get(job::edit).post(job::retry))
        .route("/jobs/{id}/cancel", get(job::ask_cancel).post(job::cancel))
        .route("/queues", get(queues::show))
        .route("/queues/{name}/pause", post(queues::pause))
        .route("/queues/{name}/resume", post(queues::resume))
        .route("/kinds/{name}/pause", post(queues::kind_pause))
        .route("/kinds/{name}/resume", post(queues::kind_resume))
        .route("/limits", post(queues::limit_set))
        .route("/limits/remove", post(queues::limit_remove))
        .route("/schedules", get(schedules::show).post(schedules::put))
        .route("/schedules/{name}/fire", post(schedules::fire))
        .route("/schedules/{name}/remove", get(schedules::ask_remove).post(schedules::remove))
        .route("/dead-letters", get(letters::show))
        .route("/dead-letters/requeue", get(letters::ask).post(letters::requeue))
        .route("/mirror", get(mirror::list))
        .route("/mirror/{repo}", get(mirror::show))
        .route("/mirror/{repo}/verify", post(mirror::verify))
        .route("/mirror/{repo}/requeue", get(mirror::ask_requeue).post(mirror::requeue))
        .route("/mirror/{repo}/purge", get(mirror::ask_purge).post(mirror::purge))
        .route("/mirror/{repo}/letters/{id}", get(mirror::letter))
        .route("/leadership", get(leadership::show))
        .route("/leadership/step-down", get(leadership::ask).post(leadership::step_down))
        .route("/directives", get(directives::list))
        .route("/directives/{name}", get(directives::show))
        .route("/directives/{name}/run", post(directives::run))
        .route("/directives/{name}/cursor", get(directives::edit_cursor).post(directives::move_cursor))
        .route("/directives/{name}/quarantine/retry", post(directives::retry_quarantined))
        .route("/directives/{name}/quarantine/{id}/resolve", post(directives::resolve))
        .route("/runs/{id}", get(runs::show))
        .route("/runs/{id}/cancel", post(runs::cancel))
        .route("/workers", get(workers::show))
        .route("/audit", get(audit::show))
        .route("/api", get(api_doc::show))
        .route("/login", get(login::show).post(login::sign_in))
        .route("/logout", post(login::sign_out))
        .route("/assets/{hash}/{*name}", get(assets::serve))
        .with_state(site)
}
