//! Passes a write on from a standby to the leader, once.
//!
//! The body is streamed, and bounded in size and time as it would be here. Each request gets a connection of its own: an idle one that
//! the leader has closed meanwhile would leave it open whether the request was done. What could not be connected was
//! not done (`NOT_LEADER`); what was sent and not answered may have been (`OUTCOME_UNKNOWN`) and is never sent again
//! from here.
//!
//! The leader's address was read from the lock, which others write too: only addresses of the form `http://…` and
//! `https://…` are called, no redirect is followed, and the answer is bounded.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use reqwest::{Client, Url};
use stargate_base::chain;
use stargate_leader::Holder;
use tokio::sync::Semaphore;
use tokio::time::Sleep;

use crate::api::{BATCH_BYTES_MAX, JOB_BYTES_MAX};
use crate::app::Shared;
use crate::error::{Problem, Result};
use crate::input::{BODY_TIMEOUT, too_large, too_slow, unreadable};
use crate::lead::{not_leader, other_leader};
use crate::metrics::FORWARDED;
use crate::request::REQUEST_ID;

/// Set on a request that was passed on, to the node that did; such a request is not passed on again.
const FORWARDED_BY: HeaderName = HeaderName::from_static("x-stargate-forwarded");
/// How long the leader may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a request may take in all. Less than a route may, so that the answer says what is known.
const TIMEOUT: Duration = Duration::from_secs(50);
/// Requests on their way at once.
const FORWARDS_MAX: usize = 128;
/// The largest answer: a job with its payload and result, and room.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Headers about one connection, not about the request.
const HOP_BY_HOP: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
];

/// Headers for this node alone. Where a page came from was checked here and would not fit there.
const FOR_THIS_NODE: [HeaderName; 4] =
    [header::HOST, header::EXPECT, header::ORIGIN, HeaderName::from_static("sec-fetch-site")];

/// The client for passing writes on could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client for forwarding could not be set up")]
pub struct ForwardError(#[source] reqwest::Error);

/// Passes writes on to the leader.
#[derive(Debug, Clone)]
pub struct Forward {
    client: Client,
    permits: Arc<Semaphore>,
}

impl Forward {
    /// Sets up the client. One is enough for a process.
    pub fn new() -> std::result::Result<Self, ForwardError> {
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .build()
            .map_err(ForwardError)?;
        Ok(Self { client, permits: Arc::new(Semaphore::new(FORWARDS_MAX)) })
    }

    async fn send(&self, route: Route, request: Request) -> Result<Response> {
        let _permit = self.permits.try_acquire().map_err(|_| {
            Problem::busy("too many requests are on their way to the leader; send them to it directly")
        })?;
        let (parts, body) = request.into_parts();
        let fault = Arc::new(OnceLock::new());
        let upload = match route.bytes_max {
            Some(bytes_max) => Upload::new(body, bytes_max, BODY_TIMEOUT, Arc::clone(&fault))?,
            None => Upload::new(Body::empty(), 0, BODY_TIMEOUT, Arc::clone(&fault))?,
        };
        let request = self
            .client
            .request(parts.method, route.url)
            .headers(passed_on(&parts.headers, route.by))
            .body(reqwest::Body::wrap(upload));
        match request.send().await {
            Ok(answer) => read(answer).await.map_err(|error| unanswered(&error, &route.leader)),
            Err(error) => Err(match fault.get() {
                // The leader got half a body, which it does not act on.
                Some(fault) => fault.clone(),
                None if error.is_connect() => unreachable(&error.without_url(), &route.leader),
                None => unanswered(&error.without_url(), &route.leader),
            }),
        }
    }
}

/// Where a request is passed on to.
#[derive(Debug)]
struct Route {
    url: Url,
    leader: Holder,
    by: HeaderValue,
    /// The largest body, as it would be here; absent: this route reads none, so none is passed on.
    bytes_max: Option<usize>,
}

/// Passes on what changes something, if this node does not lead, is told to forward, and knows where to.
pub(crate) async fn pass_on(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let (Some(forward), Some(route)) = (&shared.forward, route(&shared, &request)) else {
        return next.run(request).await;
    };
    let answer = forward.send(route, request).await;
    let outcome = match answer.as_ref().map_err(|problem| &*problem.code) {
        Ok(_) => "answered",
        Err("NOT_LEADER") => "unreachable",
        Err("OUTCOME_UNKNOWN") => "unknown",
        Err(_) => "refused",
    };
    metrics::counter!(FORWARDED, "outcome" => outcome).increment(1);
    answer.unwrap_or_else(|mut problem| {
        if let ("NOT_LEADER", Some(leadership)) = (&*problem.code, &shared.leadership) {
            problem.leader = not_leader(leadership).leader;
        }
        problem.into_response()
    })
}

fn route(shared: &Shared, request: &Request) -> Option<Route> {
    let leadership = shared.leadership.as_ref()?;
    let passed_on_already = request.headers().contains_key(FORWARDED_BY);
    if request.method().is_safe() || passed_on_already || leadership.is_leader() {
        return None;
    }
    let leader = other_leader(leadership)?;
    if leader.address == leadership.instance().address {
        // Two nodes that were given one address: it would come back here.
        return None;
    }
    // Inside the API the beginning of the path is cut off. The leader has it without our sub-path, whatever its own is.
    let OriginalUri(uri) = request.extensions().get()?;
    let path = uri.path().strip_prefix(shared.options.base_path.as_str()).unwrap_or(uri.path());
    let url = at(leader.address.as_deref()?, path, uri.query())?;
    let by = HeaderValue::from_str(&leadership.instance().instance).ok()?;
    Some(Route { url, leader, by, bytes_max: bytes_max(path) })
}

/// The largest body of a route. Those that read none end in a word that says all.
fn bytes_max(path: &str) -> Option<usize> {
    match path.rsplit_once('/').map(|(_, last)| last) {
        Some("pause" | "resume" | "cancel" | "fire" | "resolve" | "verify" | "runs") => None,
        Some("batch") => Some(BATCH_BYTES_MAX),
        _ => Some(JOB_BYTES_MAX),
    }
}

/// The address of a node as far as it can be called: `http://host:port`, perhaps with a path before ours.
pub(crate) fn base(address: &str) -> Option<Url> {
    let url = Url::parse(address).ok()?;
    let plain = url.username().is_empty() && url.password().is_none();
    let bare = url.query().is_none() && url.fragment().is_none();
    (matches!(url.scheme(), "http" | "https") && url.has_host() && plain && bare).then_some(url)
}

/// The same path on another node. Absent if it would not be the same: `..` is resolved in addresses.
fn at(address: &str, path: &str, query: Option<&str>) -> Option<Url> {
    let mut url = base(address)?;
    let whole = format!("{}{path}", url.path().trim_end_matches('/'));
    url.set_path(&whole);
    url.set_query(query);
    (url.path() == whole).then_some(url)
}

/// The headers that concern the request or the answer rather than the connection it came on.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<&str> = named.flat_map(|value| value.split(',')).map(str::trim).collect();
    let stays = |name: &HeaderName| {
        !HOP_BY_HOP.contains(name) && !named.iter().any(|named| named.eq_ignore_ascii_case(name.as_str()))
    };
    let pairs = headers.iter().filter(|(name, _)| stays(name));
    let mut kept = HeaderMap::new();
    for (name, value) in pairs {
        kept.append(name.clone(), value.clone());
    }
    kept
}

fn passed_on(headers: &HeaderMap, by: HeaderValue) -> HeaderMap {
    let mut headers = end_to_end(headers);
    for name in FOR_THIS_NODE {
        headers.remove(name);
    }
    headers.insert(FORWARDED_BY, by);
    headers
}

/// Reads the answer whole: half of one would leave open what happened.
async fn read(answer: reqwest::Response) -> std::result::Result<Response, axum::Error> {
    let (parts, body) = axum::http::Response::from(answer).into_parts();
    let bytes = axum::body::to_bytes(Body::new(body), ANSWER_BYTES_MAX).await?;
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = parts.status;
    *response.headers_mut() = end_to_end(&parts.headers);
    // Ours is set at the end, as in every answer; it is the same.
    response.headers_mut().remove(REQUEST_ID);
    Ok(response)
}

/// There was no connection, so nothing was done.
fn unreachable(error: &reqwest::Error, leader: &Holder) -> Problem {
    tracing::warn!(%leader, error = chain(error), "a write could not be passed on to the leader");
    Problem::not_leader(format!("the leader, {leader}, could not be reached; try again"), None)
}

/// The request was on its way.
fn unanswered(error: &dyn std::error::Error, leader: &Holder) -> Problem {
    tracing::warn!(%leader, error = chain(error), "a write was passed on to the leader and not answered");
    Problem::outcome_unknown(format!("the leader, {leader}, did not answer"))
}

/// A body on its way through, cut off when it gets too large or takes too long.
struct Upload {
    /// Only ever used by one thread at a time; the lock makes that visible to the compiler.
    body: Mutex<Body>,
    length: SizeHint,
    /// Until when it has to be there.
    time: Pin<Box<Sleep>>,
    bytes_left: usize,
    bytes_max: usize,
    /// Why it was cut off.
    fault: Arc<OnceLock<Problem>>,
}

impl Upload {
    fn new(body: Body, bytes_max: usize, patience: Duration, fault: Arc<OnceLock<Problem>>) -> Result<Self> {
        let length = body.size_hint();
        // A declared length is believed at once, without reading a byte.
        if length.lower() > bytes_max as u64 {
            return Err(too_large(bytes_max));
        }
        let time = Box::pin(tokio::time::sleep(patience));
        Ok(Self { body: Mutex::new(body), length, time, bytes_left: bytes_max, bytes_max, fault })
    }

    /// Counts what comes through.
    fn pass(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>> {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(|| too_large(self.bytes_max))?;
        Ok(frame)
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, CutOff>>> {
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let passed = match Pin::new(body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => self.pass(frame),
            Poll::Ready(Some(Err(_))) => Err(unreadable()),
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => {
                std::task::ready!(self.time.as_mut().poll(context));
                Err(too_slow())
            }
        };
        Poll::Ready(Some(passed.map_err(|problem| {
            let _ = self.fault.set(problem);
            CutOff
        })))
    }

    fn size_hint(&self) -> SizeHint {
        self.length
    }
}

/// The body was cut off.
#[derive(Debug, thiserror::Error)]
#[error("the body was cut off")]
struct CutOff;

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    #[test]
    fn only_addresses_of_servers_are_called() {
        for good in ["http://10.0.0.1:8080", "https://a.example/x/", "http://[::1]:8080"] {
            assert!(base(good).is_some(), "{good}");
        }
        for bad in
            ["", "a", "a:8080", "ftp://a", "file:///etc/passwd", "unix:/run/x", "http://u:p@a", "http://a?x"]
        {
            assert!(base(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_path_arrives_as_it_came_or_is_not_passed_on() {
        let text = |address, path, query| at(address, path, query).map(String::from);
        let path = "/api/v1/queues/a%2Fb/pause";
        assert_eq!(text("http://a:1", path, None).unwrap(), format!("http://a:1{path}"));
        assert_eq!(text("http://a:1/p/", path, Some("x=%20")).unwrap(), format!("http://a:1/p{path}?x=%20"));
        for changed in ["/api/v1/queues/../pause", "/api/v1/queues/%2e%2e/pause"] {
            assert_eq!(text("http://a:1", changed, None), None, "{changed}");
        }
    }

    #[test]
    fn headers_of_the_connection_stay_behind_and_those_of_the_request_go_on() {
        let pairs = [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("keep-alive", "5"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "secret"),
            ("content-length", "5"),
            ("host", "b"),
            ("origin", "http://b"),
            ("sec-fetch-site", "same-origin"),
            ("authorization", "Bearer t"),
            ("idempotency-key", "k"),
            ("x-request-id", "r"),
            ("content-type", "application/json"),
        ];
        let pairs =
            pairs.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let headers = passed_on(&HeaderMap::from_iter(pairs), HeaderValue::from_static("b"));
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["authorization", "content-type", "idempotency-key", "x-request-id", "x-stargate-forwarded"]
        );
    }

    #[tokio::test]
    async fn a_body_that_stops_arriving_is_cut_off_in_time() {
        let fault = Arc::new(OnceLock::new());
        let first = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{"))]);
        let body = Body::from_stream(first.chain(futures::stream::pending()));
        let mut upload = Upload::new(body, 100, Duration::from_millis(50), Arc::clone(&fault)).unwrap();
        let mut frame =
            async || std::future::poll_fn(|context| Pin::new(&mut upload).poll_frame(context)).await;
        assert!(matches!(frame().await, Some(Ok(_))));
        assert!(matches!(frame().await, Some(Err(CutOff))));
        assert_eq!(fault.get().unwrap().code, "REQUEST_TIMEOUT");
    }

    #[test]
    fn a_body_is_passed_on_where_one_is_read() {
        assert_eq!(bytes_max("/api/v1/jobs"), Some(JOB_BYTES_MAX));
        assert_eq!(bytes_max("/api/v1/jobs/batch"), Some(BATCH_BYTES_MAX));
        assert_eq!(bytes_max("/api/v1/schedules/x"), Some(JOB_BYTES_MAX));
        for path in ["/api/v1/jobs/1/cancel", "/api/v1/queues/jobs/pause", "/api/v1/kinds/x/resume"] {
            assert_eq!(bytes_max(path), None, "{path}");
        }
    }
}
