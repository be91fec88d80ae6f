//! `/api/v1`. `GET openapi.json` describes it all; here is the table of contents.
//!
//! | route | does |
//! | --- | --- |
//! | `POST jobs`, `POST jobs/batch` | enqueue, with `Idempotency-Key` and `traceparent` |
//! | `GET jobs`, `GET jobs/{id}`, `…/explain` | a page, newest first; one with its last events; why it does not run |
//! | `GET jobs/{id}/events` | the timeline as JSON, or live with `Accept: text/event-stream` |
//! | `POST jobs/{id}/retry`, `…/cancel`, `POST jobs/bulk` | operator's decisions, about one or many |
//! | `GET failures`, `POST failures/requeue` | failed jobs by cause |
//! | `GET queues`, `GET kinds`, `POST …/{name}/pause`, `…/resume` | by queue and by kind |
//! | `GET schedules`, `PUT`, `DELETE schedules/{name}`, `POST …/fire` | jobs at set times |
//! | `GET limits`, `PUT`, `DELETE limits/{pattern}` | limits per key |
//! | `GET workers`, `GET stats`, `GET activity` | who works, how it goes, how it went |
//! | `GET directives[/{name}]`, `POST …/runs`, `GET`, `PUT …/cursor`, `GET …/quarantine` | directives |
//! | `GET runs[/{id}]`, `POST …/cancel`; `GET quarantine/{id}`, `POST …/retry`, `…/resolve` | their runs, and what they kept aside |
//! | `GET repos`, `GET mirror[/{repo}]`, `POST …/verify` | repositories, and how far remotes are behind |
//! | `GET mirror/dead-letters[/{id}]`, `POST …/requeue`, `…/purge` | what mirrors gave up |
//! | `GET leader`, `POST leader/step-down` | who leads, since when, who did before; let another node lead |
//! | `GET audit`, `GET whoami` | who did what; who asks |
//! | `GET events` | what happens on this node, live |
//!
//! What changes something is done by the leader. Elsewhere it is refused with 503 `NOT_LEADER`, or passed on to the
//! leader. Reads are served everywhere.
//!
//! Each route is a thin function around another one, `…(&Shared, &Caller, …)` for what is told and `…(&Actor, …)` for what
//! is changed, which the page calls too. Roles: `access.rs`; audit: `caller.rs`.

pub(crate) mod audit;
pub(crate) mod bulk;
pub(crate) mod directives;
pub(crate) mod enqueue;
pub(crate) mod events;
pub(crate) mod failures;
pub(crate) mod jobs;
pub(crate) mod leader;
pub(crate) mod mirror;
pub(crate) mod openapi;
pub(crate) mod operate;
pub(crate) mod plans;
pub mod types;
mod watch;

use axum::Router;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::Shared;
use crate::{access, forward};

/// Most jobs in one batch.
pub const BATCH_JOBS_MAX: usize = 10_000;
/// The largest body with one job: the largest payload and its envelope.
pub const JOB_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// The largest body of a batch.
pub const BATCH_BYTES_MAX: usize = 64 << 20;

pub(crate) fn routes(shared: &Shared) -> Router<Shared> {
    let (passed_on, _) = passed_on().split_for_parts();
    let (of_this_node, _) = of_this_node().split_for_parts();
    passed_on
        .route_layer(axum::middleware::from_fn_with_state(shared.clone(), forward::pass_on))
        .merge(of_this_node)
        // The outermost: a request without rights is neither passed on nor read.
        .route_layer(axum::middleware::from_fn_with_state(shared.clone(), access::check))
}

/// The description of all routes, as they tell it themselves.
fn described() -> OpenApi {
    let mut api = passed_on().into_openapi();
    api.merge(of_this_node().into_openapi());
    api
}

/// Routes whose changes are passed on to the leader.
fn passed_on() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(enqueue::one, jobs::list))
        .routes(routes!(enqueue::batch))
        .routes(routes!(bulk::bulk))
        .routes(routes!(jobs::show))
        .routes(routes!(jobs::explain))
        .routes(routes!(events::events))
        .routes(routes!(jobs::retry))
        .routes(routes!(jobs::cancel))
        .routes(routes!(failures::list))
        .routes(routes!(failures::requeue))
        .routes(routes!(failures::show_activity))
        .routes(routes!(operate::queues))
        .routes(routes!(operate::queue_pause))
        .routes(routes!(operate::queue_resume))
        .routes(routes!(operate::kinds))
        .routes(routes!(operate::kind_pause))
        .routes(routes!(operate::kind_resume))
        .routes(routes!(operate::workers))
        .routes(routes!(operate::show_stats))
        .merge(plans_and_directives())
        .routes(routes!(mirror::verify))
        .routes(routes!(mirror::letters::requeue))
        .routes(routes!(mirror::letters::purge))
        .routes(routes!(audit::list))
}

fn plans_and_directives() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(plans::schedules))
        .routes(routes!(plans::schedule, plans::put_schedule, plans::remove_schedule))
        .routes(routes!(plans::fire))
        .routes(routes!(plans::limits))
        .routes(routes!(plans::put_limit, plans::remove_limit))
        .routes(routes!(directives::list))
        .routes(routes!(directives::show))
        .routes(routes!(directives::start))
        .routes(routes!(directives::cursor, directives::put_cursor))
        .routes(routes!(directives::quarantine))
        .routes(routes!(directives::retry_records))
        .routes(routes!(directives::runs))
        .routes(routes!(directives::run))
        .routes(routes!(directives::cancel))
        .routes(routes!(directives::quarantined))
        .routes(routes!(directives::retry_record))
        .routes(routes!(directives::resolve))
}

/// Routes about this very node, which are never passed on.
fn of_this_node() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(mirror::show))
        .routes(routes!(mirror::show_one))
        .routes(routes!(mirror::letters::letters))
        .routes(routes!(mirror::letters::letter))
        .routes(routes!(mirror::repos))
        .routes(routes!(leader::show))
        .routes(routes!(leader::step_down))
        .routes(routes!(audit::whoami))
        .routes(routes!(watch::events))
        .routes(routes!(openapi::show))
}
