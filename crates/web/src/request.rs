//! The outermost layer: gives each request an id and a span, and each error its envelope.

use std::any::Any;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use metrics::Label;
use serde::Serialize;
use stargate_base::trace::{self, Kind, Span, Start};
use tracing::Instrument as _;

use crate::error::Problem;
use crate::input;
use crate::metrics::{REQUEST_TIME, REQUESTS};

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Where a request is part of a trace, by the W3C's rules.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Asked every few seconds by somebody who does not look at traces.
const UNTRACED: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
/// Methods that are counted apart.
const USUAL: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];
const NO_ROUTE: &str = "(none)";
/// A caller's own id is taken over if it is no longer than this.
const ID_BYTES_MAX: usize = 128;

/// Gives a request its id and its span, and an error its envelope.
pub(crate) async fn envelope(mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    if let Ok(value) = HeaderValue::from_str(&id) {
        // A request that is passed on keeps its id.
        request.headers_mut().insert(REQUEST_ID, value);
    }
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let method = request.method().clone();
    let mut traced = begin(&mut request, route.as_deref());
    let started = Instant::now();
    // The query may hold what does not belong in a log; the path is ours.
    let path: String = request.uri().path().chars().take(200).collect();
    let trace_id = input::context(request.headers()).map(|context| context.trace_id());
    let span = tracing::info_span!("request", request_id = id, method = %request.method(), path, trace_id);
    async move {
        let mut response = named_error(next.run(request).await, &id);
        let status = response.status().as_u16();
        count(&method, route.as_deref(), status, started.elapsed());
        if let Some(traced) = &mut traced {
            end(traced.as_mut(), status);
        }
        tracing::debug!(status, millis = started.elapsed().as_millis(), "answered");
        if let Ok(value) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        response
    }
    .instrument(span)
    .await
}

/// Begins the span of a request, if spans are collected and anybody would look at this one. What the request causes
/// belongs to that span, here and on the leader that it may be passed on to: the header says so from now on.
fn begin(request: &mut Request, route: Option<&str>) -> Option<Box<dyn Span>> {
    let route = route.filter(|route| !UNTRACED.contains(route))?;
    let span = trace::start(|| Start {
        name: format!("{} {route}", request.method()),
        kind: Kind::Server,
        parent: input::context(request.headers()),
        attributes: vec![
            ("http.request.method", request.method().as_str().into()),
            ("http.route", route.into()),
        ],
    })?;
    let place = HeaderValue::from_str(&span.context().to_string()).ok()?;
    request.headers_mut().insert(TRACEPARENT, place);
    Some(span)
}

/// Counts an answer. Routes are few; what fits none is counted as one, whatever was asked for.
fn count(method: &Method, route: Option<&str>, status: u16, took: Duration) {
    // Anybody may make up methods; each would be a label for ever.
    let method = if USUAL.contains(&method.as_str()) { method.as_str() } else { "other" };
    let labels = [
        Label::new("method", method.to_owned()),
        Label::new("route", route.unwrap_or(NO_ROUTE).to_owned()),
        Label::new("status", status.to_string()),
    ];
    metrics::histogram!(REQUEST_TIME, "route" => labels[1].value().to_owned()).record(took.as_secs_f64());
    metrics::counter!(REQUESTS, labels.to_vec()).increment(1);
}

fn end(span: &mut dyn Span, status: u16) {
    span.attribute("http.response.status_code", i64::from(status).into());
    if status >= 500 {
        span.failed(&status.to_string());
    }
}

/// Refuses changes that a browser sends on behalf of another site: a page anywhere could otherwise pause a queue on
/// its visitor's own machine. Programs do not send these headers and are not concerned.
pub(crate) async fn same_origin(request: Request, next: Next) -> Response {
    if request.method().is_safe() || !is_cross_origin(request.headers()) {
        return next.run(request).await;
    }
    cross_origin().into_response()
}

/// The answer to a change that does not come from our own page.
pub(crate) fn cross_origin() -> Problem {
    let message = "a page of another site may not change anything here";
    Problem::new(StatusCode::FORBIDDEN, "CROSS_ORIGIN", message)
}

/// Whether a request says that it comes from our own page. One that does not say is none: see `access.rs`.
pub(crate) fn is_same_origin(headers: &HeaderMap) -> bool {
    let says = headers.contains_key("sec-fetch-site") || headers.contains_key(header::ORIGIN);
    says && !is_cross_origin(headers)
}

/// What a browser may do with our answers: nothing of another site, nothing inline, no frame.
const SECURITY: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
         connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Adds to every answer what keeps browsers from harm. Nothing is cached unless the answer says otherwise.
pub(crate) async fn secure(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in SECURITY {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn is_cross_origin(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    match (text("sec-fetch-site"), text("origin")) {
        // `none` is the user's own doing, such as an address typed in.
        (Some(site), _) => !matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => {
            let host = origin.split_once("://").map(|(_, host)| host);
            host.is_none() || host != text("host")
        }
        (None, None) => false,
    }
}

/// The whole answer to a request that came to no route.
pub(crate) fn refused(problem: Problem, headers: &HeaderMap) -> Response {
    let id = request_id(headers);
    let mut response = named_error(problem.into_response(), &id);
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The answer to a route that panicked. The panic itself was logged by the process' panic hook.
pub(crate) fn panicked(_panic: Box<dyn Any + Send + 'static>) -> Response {
    tracing::error!("a route panicked");
    Problem::internal().into_response()
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: &'a str,
    message: &'a str,
    request_id: &'a str,
}

/// Writes the problem a route left, or a general one for errors that axum itself answered.
fn named_error(mut response: Response, id: &str) -> Response {
    let status = response.status();
    let problem = match response.extensions_mut().remove::<Problem>() {
        Some(problem) => problem,
        // A page says itself what went wrong.
        None if status.as_u16() < 400 || is_json(response.headers()) || is_html(response.headers()) => {
            return response;
        }
        None => Problem::new(status, code(status), reason(status)),
    };
    let error = ErrorBody { code: &problem.code, message: &problem.message, request_id: id };
    let body = serde_json::to_vec(&Envelope { error }).unwrap_or_default();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().remove(header::CONTENT_LENGTH);
    *response.body_mut() = Body::from(body);
    response
}

fn code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::METHOD_NOT_ALLOWED => "METHOD_NOT_ALLOWED",
        StatusCode::PAYLOAD_TOO_LARGE => "BODY_TOO_LARGE",
        StatusCode::GATEWAY_TIMEOUT => "TIMEOUT",
        _ if status.is_server_error() => "INTERNAL",
        _ => "BAD_REQUEST",
    }
}

fn reason(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("the request was refused")
}

fn is_html(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/html"))
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/json"))
}

/// The caller's id if it is short and harmless in a log, else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "._:/+=@-".contains(c);
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    match given {
        Some(id) if !id.is_empty() && id.len() <= ID_BYTES_MAX && id.chars().all(harmless) => id.to_owned(),
        _ => format!("{:032x}", rand::random::<u128>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(id: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_static(id))])
    }

    #[test]
    fn only_requests_from_pages_of_other_sites_are_cross_origin() {
        let with = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            is_cross_origin(&HeaderMap::from_iter(pairs))
        };
        assert!(!with(&[("host", "127.0.0.1:8080")]));
        assert!(!with(&[("host", "127.0.0.1:8080"), ("origin", "http://127.0.0.1:8080")]));
        assert!(!with(&[("sec-fetch-site", "same-origin"), ("origin", "http://a")]));
        assert!(with(&[("host", "127.0.0.1:8080"), ("origin", "http://evil.example")]));
        assert!(with(&[("host", "127.0.0.1:8080"), ("origin", "null")]));
        assert!(with(&[("sec-fetch-site", "cross-site")]));
    }

    #[test]
    fn a_callers_id_is_taken_over_unless_it_is_strange_or_long() {
        assert_eq!(request_id(&with("abc-1:2")), "abc-1:2");
        for strange in ["", "a b", "a\"b", "x\\n"] {
            assert_eq!(request_id(&with(strange)).len(), 32, "{strange:?}");
        }
        let long = HeaderValue::from_str(&"x".repeat(ID_BYTES_MAX + 1)).unwrap();
        assert_eq!(request_id(&HeaderMap::from_iter([(REQUEST_ID, long)])).len(), 32);
        assert_ne!(request_id(&HeaderMap::new()), request_id(&HeaderMap::new()));
    }
}
