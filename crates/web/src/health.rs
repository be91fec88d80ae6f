//! `/healthz`: is the process itself well? `/readyz`: can it serve? Both answer JSON with every check.
//!
//! The store is asked for readiness only. A database that is away must not get every process restarted.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use crate::app::Shared;

/// How long the store may take to answer a readiness check.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What.
    pub name: String,
    /// Whether it is well.
    pub ok: bool,
    /// What was found; when it is not well, also what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Check {
    /// A check that found nothing wrong.
    pub fn passed(name: impl Into<String>) -> Self {
        Self { name: name.into(), ok: true, detail: None }
    }

    /// Something worth telling that is nothing wrong.
    pub fn told(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..Self::passed(name) }
    }

    /// A check that found something wrong.
    pub fn failed(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { name: name.into(), ok: false, detail: Some(detail.into()) }
    }
}

/// Tells how this process is. Asked often and by anybody, so it must answer at once, from what is known.
pub trait Health: Send + Sync + 'static {
    /// The process itself: disk, heartbeat thread. A failure asks the supervisor for a restart.
    fn checks(&self) -> Vec<Check>;

    /// What else it takes to serve, beside the store, which is checked anyway.
    fn ready_checks(&self) -> Vec<Check> {
        Vec::new()
    }
}

impl<F: Fn() -> Vec<Check> + Send + Sync + 'static> Health for F {
    fn checks(&self) -> Vec<Check> {
        self()
    }
}

#[derive(Serialize)]
struct Report<'a> {
    status: &'static str,
    instance: &'a str,
    version: &'a str,
    checks: Vec<Check>,
}

pub(crate) async fn healthz(State(shared): State<Shared>) -> Response {
    let checks = shared.app.health.checks();
    report(&shared, checks)
}

pub(crate) async fn readyz(State(shared): State<Shared>) -> Response {
    let mut checks = shared.app.health.checks();
    checks.extend(shared.app.health.ready_checks());
    checks.push(store_check(&shared).await);
    checks.extend(depth_check(&shared).await);
    if shared.closing.is_cancelled() {
        checks.push(Check::failed("shutdown", "shutting down"));
    }
    report(&shared, checks)
}

async fn store_check(shared: &Shared) -> Check {
    match tokio::time::timeout(STORE_TIMEOUT, shared.store().check()).await {
        Ok(Ok(health)) => {
            let found =
                format!("schema {}, {:.1} ms", health.schema, health.round_trip.as_secs_f64() * 1000.0);
            Check::told("store", found)
        }
        Ok(Err(error)) => Check::failed("store", error.to_string()),
        Err(_) => Check::failed("store", format!("did not answer within {} s", STORE_TIMEOUT.as_secs())),
    }
}

/// How close producers are to being pushed back. Never a failure: those who ask for jobs are served as ever.
async fn depth_check(shared: &Shared) -> Option<Check> {
    let depth_max = shared.app.max_depth?;
    let waiting = tokio::time::timeout(STORE_TIMEOUT, shared.depth.waiting(shared.store())).await;
    let detail = match waiting {
        Ok(Ok(waiting)) if waiting >= depth_max => {
            format!("at least {depth_max} jobs wait, the most that may (api.max_depth): producers get 429")
        }
        Ok(Ok(waiting)) => format!("{waiting} jobs wait, {depth_max} may (api.max_depth)"),
        // The store's own check says why.
        Ok(Err(_)) | Err(_) => "not known: the store does not answer".to_owned(),
    };
    Some(Check::told("depth", detail))
}

fn report(shared: &Shared, checks: Vec<Check>) -> Response {
    let ok = checks.iter().all(|check| check.ok);
    let status = if ok { "ok" } else { "failing" };
    let report = Report { status, instance: &shared.app.instance, version: &shared.app.version, checks };
    let code = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, axum::Json(report)).into_response()
}
