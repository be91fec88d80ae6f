//! Who may use the API: each request presents a token with a role that is high enough.
//!
//! Asked before anything else, so that a request without rights is neither passed on to the leader nor read. Health and
//! metrics are outside: what asks for them has no token, and they tell nothing about single jobs.

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use stargate_access::{Denied, Role, header as credentials};

use crate::app::Shared;
use crate::error::Problem;

/// What a request needs. `path` is that below `/api/v1`.
///
/// Whoever adds a route that changes something gets the highest role unless it is about jobs: forgetting it here keeps
/// people out rather than in.
fn need(method: &Method, path: &str) -> Role {
    let about_jobs = path == "/jobs" || path.starts_with("/jobs/");
    match (method.is_safe(), about_jobs) {
        (true, _) => Role::Read,
        (false, true) => Role::Write,
        (false, false) => Role::Admin,
    }
}

/// Lets a request through if its token allows it.
pub(crate) async fn check(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let Some(authority) = &shared.authority else { return next.run(request).await };
    let need = need(request.method(), request.uri().path());
    let header = request.headers().get(header::AUTHORIZATION);
    let presented = header.and_then(|value| credentials::presented(value.as_bytes()));
    // A header that holds no token is not the same as none: it is answered as a token that nobody has.
    if header.is_some() && presented.is_none() {
        return problem(&Denied::Unknown).into_response();
    }
    match authority.authorize(presented.as_ref(), need, None).await {
        Ok(principal) => {
            if need > Role::Read {
                tracing::info!(
                    token = principal.token.as_ref().map(tracing::field::display),
                    by = principal.name,
                    "a change"
                );
            }
            next.run(request).await
        }
        Err(denied) => problem(&denied).into_response(),
    }
}

fn problem(denied: &Denied) -> Problem {
    let status = match denied {
        Denied::Missing | Denied::Unknown | Denied::Expired | Denied::Revoked => StatusCode::UNAUTHORIZED,
        Denied::Insufficient { .. } => StatusCode::FORBIDDEN,
        Denied::Unavailable(error) => {
            tracing::warn!(error = error as &dyn std::error::Error, "a token could not be checked");
            return Problem::unavailable(denied.code(), denied.to_string());
        }
    };
    let message = match denied {
        // What the general text says about git does not help here.
        Denied::Missing => "a token is needed: send Authorization: Bearer TOKEN".to_owned(),
        other => other.to_string(),
    };
    Problem::new(status, denied.code(), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_needs_read_jobs_need_write_and_the_rest_needs_admin() {
        for (method, path, role) in [
            (Method::GET, "/jobs", Role::Read),
            (Method::HEAD, "/leader", Role::Read),
            (Method::POST, "/jobs", Role::Write),
            (Method::POST, "/jobs/batch", Role::Write),
            (Method::POST, "/jobs/7/cancel", Role::Write),
            (Method::POST, "/jobsx", Role::Admin),
            (Method::POST, "/queues/a/pause", Role::Admin),
            (Method::POST, "/kinds/a/resume", Role::Admin),
            (Method::POST, "/leader/step-down", Role::Admin),
            (Method::DELETE, "/schedules/a", Role::Admin),
        ] {
            assert_eq!(need(&method, path), role, "{method} {path}");
        }
    }
}
