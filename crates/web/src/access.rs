//! Who may use the API: each request presents a token with a role that is high enough.
//!
//! Asked before anything else, so that a request without rights is neither passed on to the leader nor read. Health and
//! metrics are outside: what asks for them has no token, and they tell nothing about single jobs.
//!
//! The token comes in the header `Authorization`, or, from a browser, in the cookie [`SESSION`]. A browser sends cookies
//! by itself, also on behalf of other sites, so with a cookie a change must say that it comes from our own page
//! (`Sec-Fetch-Site` or `Origin`); without such a header it is refused.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use stargate_access::audit::Source;
use stargate_access::{Denied, Role, header as credentials};
use stargate_base::Secret;

use crate::app::Shared;
use crate::caller::{Caller, read_only};
use crate::error::{Problem, Result};
use crate::rate::{Key, Peer};
use crate::request::{cross_origin, is_same_origin};

/// The cookie in which a browser carries the token.
pub(crate) const SESSION: &str = "stargate_session";

/// What a request needs. `path` is that below `/api/v1`.
///
/// Whoever adds a route that changes something gets the highest role unless it is entered here: forgetting it keeps people
/// out rather than in.
pub(crate) fn need(method: &Method, path: &str) -> Role {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    if method.is_safe() {
        return match parts[..] {
            // Who did what is not for everybody who may look at jobs.
            ["audit"] => Role::Operate,
            _ => Role::Read,
        };
    }
    match parts[..] {
        ["jobs"] | ["jobs", "batch"] => Role::Write,
        ["jobs", "bulk"] => Role::Operate,
        ["jobs", _, "retry" | "cancel"] => Role::Write,
        ["queues" | "kinds", _, "pause" | "resume"] => Role::Operate,
        ["failures", "requeue"] => Role::Operate,
        ["schedules" | "limits", _] | ["schedules", _, "fire"] => Role::Operate,
        ["directives", _, "runs" | "cursor"] | ["directives", _, "quarantine", "retry"] => Role::Operate,
        ["runs", _, "cancel"] | ["quarantine", _, "retry" | "resolve"] => Role::Operate,
        ["mirror", "dead-letters", "requeue"] | ["mirror", _, "verify"] => Role::Operate,
        _ => Role::Admin,
    }
}

/// Lets a request through if its token allows it.
pub(crate) async fn check(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    match admit(&shared, request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn admit(shared: &Shared, mut request: Request) -> Result<Request> {
    let is_change = !request.method().is_safe();
    let need = need(request.method(), request.uri().path());
    let presented = presented(request.headers());
    if is_change && matches!(presented, Presented::Cookie(_)) && !is_same_origin(request.headers()) {
        return Err(cross_origin());
    }
    let source = request.extensions().get::<Source>().copied().unwrap_or(Source::Api);
    let caller = match identify(shared, &presented, need, source).await {
        Ok(caller) => caller,
        Err(denied) => {
            let problem = problem(&denied);
            if problem.status == StatusCode::UNAUTHORIZED {
                // Nobody guesses a token, but trying costs us a look at the store each time.
                let peer = request.extensions().get::<Peer>().copied();
                shared.rate.check(&Key::Address(peer.map(|Peer(address)| address)))?;
            }
            return Err(problem);
        }
    };
    if is_change {
        if shared.options.read_only {
            return Err(read_only());
        }
        if let Some(token) = &caller.token {
            shared.rate.check(&Key::Token(token.clone()))?;
        }
        to_header(&presented, request.headers_mut());
    }
    request.extensions_mut().insert(caller);
    Ok(request)
}

/// A request that is passed on to the leader says who it is as programs do: the leader cannot see where the page came from.
fn to_header(presented: &Presented, headers: &mut HeaderMap) {
    let Presented::Cookie(token) = presented else { return };
    headers.remove(header::COOKIE);
    if let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", token.reveal())) {
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
}

/// What a request came with.
#[derive(Debug)]
pub(crate) enum Presented {
    /// Nothing.
    Nothing,
    /// A header that holds no token. That is not the same as none: it is answered as a token that nobody has.
    Nonsense,
    /// A token in the header.
    Header(Secret),
    /// A token in the cookie.
    Cookie(Secret),
}

/// What a request came with. The header counts more than the cookie: who sends one means it.
pub(crate) fn presented(headers: &HeaderMap) -> Presented {
    if let Some(header) = headers.get(header::AUTHORIZATION) {
        return credentials::presented(header.as_bytes()).map_or(Presented::Nonsense, Presented::Header);
    }
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let session = pairs.find(|(name, value)| *name == SESSION && !value.is_empty());
    session.map_or(Presented::Nothing, |(_, value)| Presented::Cookie(Secret::new(value.trim_matches('"'))))
}

/// Who it is, if they may do what needs this role.
pub(crate) async fn identify(
    shared: &Shared,
    presented: &Presented,
    need: Role,
    source: Source,
) -> std::result::Result<Caller, Denied> {
    let Some(authority) = &shared.authority else { return Ok(Caller::local(source)) };
    let secret = match presented {
        Presented::Nothing => None,
        Presented::Nonsense => return Err(Denied::Unknown),
        Presented::Header(secret) | Presented::Cookie(secret) => Some(secret),
    };
    let principal = authority.authorize(secret, need, None).await?;
    Ok(Caller::of(&principal, source))
}

/// The answer to somebody who was not let in.
pub(crate) fn problem(denied: &Denied) -> Problem {
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
    fn looking_needs_read_jobs_need_write_operating_operate_and_the_rest_admin() {
        for (method, path, role) in [
            (Method::GET, "/jobs", Role::Read),
            (Method::HEAD, "/leader", Role::Read),
            (Method::GET, "/audit", Role::Operate),
            (Method::POST, "/jobs", Role::Write),
            (Method::POST, "/jobs/batch", Role::Write),
            (Method::POST, "/jobs/7/cancel", Role::Write),
            (Method::POST, "/jobs/bulk", Role::Operate),
            (Method::POST, "/jobs/7/purge", Role::Admin),
            (Method::POST, "/jobsx", Role::Admin),
            (Method::POST, "/queues/a/pause", Role::Operate),
            (Method::POST, "/kinds/a/resume", Role::Operate),
            (Method::PUT, "/directives/a/cursor", Role::Operate),
            (Method::POST, "/mirror/dead-letters/purge", Role::Admin),
            (Method::POST, "/leader/step-down", Role::Admin),
            (Method::DELETE, "/schedules/a", Role::Operate),
            (Method::DELETE, "/queues/a", Role::Admin),
        ] {
            assert_eq!(need(&method, path), role, "{method} {path}");
        }
    }

    #[test]
    fn the_header_counts_more_than_the_cookie_and_other_cookies_nothing() {
        let with = |pairs: &[(header::HeaderName, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
            match presented(&pairs.collect()) {
                Presented::Nothing => "-".to_owned(),
                Presented::Nonsense => "?".to_owned(),
                Presented::Header(secret) => format!("header {}", secret.reveal()),
                Presented::Cookie(secret) => format!("cookie {}", secret.reveal()),
            }
        };
        let cookie = (header::COOKIE, "a=b; stargate_session=sg_c; x=y");
        assert_eq!(with(std::slice::from_ref(&cookie)), "cookie sg_c");
        assert_eq!(with(&[cookie.clone(), (header::AUTHORIZATION, "Bearer sg_h")]), "header sg_h");
        assert_eq!(with(&[cookie, (header::AUTHORIZATION, "nonsense")]), "?");
        assert_eq!(with(&[(header::COOKIE, "xstargate_session=sg_c; stargate_session=")]), "-");
        assert_eq!(with(&[]), "-");
    }
}
