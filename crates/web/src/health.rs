//! `/healthz`: is the process itself well? `/readyz`: can it serve? Both answer JSON with every check.
//!
//! The store is asked for readiness only. A database that is away must not get every process restarted.
//!
//! A node that takes part in leadership tells its role as well, by the clock at the moment of the answer. A standby is
//! ready too; `/readyz?role=leader` is for what must find the leader, such as a load balancer.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use stargate_leader::Leadership;

use crate::api::types::leader as types;
use crate::app::Shared;
use crate::error::{Problem, Result};

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

    /// Sets gauges that are of use only if they are of this moment: called when somebody reads the metrics.
    fn measure(&self) {}
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
    #[serde(flatten)]
    role: Option<RoleReport>,
    checks: Vec<Check>,
}

/// Where this node stands.
#[derive(Serialize)]
struct RoleReport {
    role: &'static str,
    /// The name of the leader, as far as this node knows.
    leader: Option<String>,
    leader_address: Option<String>,
    /// The number of this node's term; a standby has none.
    epoch: Option<u64>,
    lease_expires_in_ms: Option<u64>,
}

impl RoleReport {
    fn of(leadership: &Leadership) -> Self {
        let standing = leadership.standing();
        Self {
            role: types::role(&standing),
            epoch: standing.term.map(|term| term.epoch.get()),
            lease_expires_in_ms: standing.lease_left.map(types::millis),
            leader_address: standing.leader.as_ref().and_then(|leader| leader.address.clone()),
            leader: standing.leader.map(|leader| leader.instance),
        }
    }

    /// Whether this is the leader, as a check.
    fn leads(&self) -> Check {
        match (&self.leader, self.role) {
            (_, types::LEADER) => Check::passed("leader"),
            (Some(leader), _) => Check::failed("leader", format!("{leader} leads")),
            (None, _) => Check::failed("leader", "this node does not lead, and does not know who does"),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReadyParams {
    role: Option<String>,
}

pub(crate) async fn healthz(State(shared): State<Shared>) -> Response {
    let checks = shared.about.health.checks();
    report(&shared, checks, Wanted::Any)
}

pub(crate) async fn readyz(
    State(shared): State<Shared>,
    params: std::result::Result<Query<ReadyParams>, axum::extract::rejection::QueryRejection>,
) -> Result<Response> {
    let wanted = params.ok().and_then(|Query(params)| Wanted::parse(params.role.as_deref()));
    let Some(wanted) = wanted else {
        let message = "role is not known; allowed is role=leader";
        return Err(Problem::new(StatusCode::BAD_REQUEST, "BAD_REQUEST", message));
    };
    let mut checks = shared.about.health.checks();
    checks.extend(shared.about.health.ready_checks());
    checks.push(store_check(&shared).await);
    checks.extend(depth_check(&shared).await);
    if shared.closing.is_cancelled() {
        checks.push(Check::failed("shutdown", "shutting down"));
    }
    Ok(report(&shared, checks, wanted))
}

/// What the caller is looking for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Any,
    Leader,
}

impl Wanted {
    fn parse(role: Option<&str>) -> Option<Self> {
        match role {
            None => Some(Self::Any),
            Some(types::LEADER) => Some(Self::Leader),
            Some(_) => None,
        }
    }
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
    let depth_max = shared.depth.depth_max()?;
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

fn report(shared: &Shared, mut checks: Vec<Check>, wanted: Wanted) -> Response {
    // Last, because this answer ages fastest; once, because what is told must fit together.
    let role = shared.leadership.as_ref().map(RoleReport::of);
    if wanted == Wanted::Leader {
        let apart = || Check::failed("leader", "this process takes no part in leadership");
        checks.push(role.as_ref().map_or_else(apart, RoleReport::leads));
    }
    let ok = checks.iter().all(|check| check.ok);
    let status = if ok { "ok" } else { "failing" };
    let about = &shared.about;
    let report = Report { status, instance: &about.instance, version: &about.version, role, checks };
    let code = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, axum::Json(report)).into_response()
}
