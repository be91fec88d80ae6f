//! The routes in one place, and the server around them.
//!
//! The connections are accepted here rather than by axum, because axum gives a client any time it likes to send
//! the head of a request, and any number of connections to do so.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use stargate_base::Tasks;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

use crate::app::{App, Shared};
use crate::error::Problem;
use crate::metrics::INFO;
use crate::rate::Peer;
use crate::{api, health, host, live, page, request};

/// How long a route may take to answer; live streams have answered when they begin.
const ROUTE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a client may take to send the head of a request, and an idle connection may stay open.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections at once; further ones wait in the system's backlog.
const CONNECTIONS_MAX: usize = 4096;
/// How long to wait after a failed accept: the usual reason, no file handles left, does not go away at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long open connections may take to end at shutdown.
const DRAIN: Duration = Duration::from_secs(5);

/// Which routes a process serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The API, health and metrics.
    Full,
    /// Health and metrics only.
    Status,
}

/// The routes. Live streams end only with their jobs or their clients; use [`serve`] to have a shutdown end them.
pub fn router(app: App, scope: Scope) -> Router {
    let shared = Shared::new(app, CancellationToken::new());
    named(routes(shared.clone(), scope), shared)
}

/// Serves until told to stop, then lets open requests end for a few seconds.
///
/// `others` are routes that keep their own order: they get neither our time limit nor our envelope around errors.
pub async fn serve(
    listener: TcpListener,
    app: App,
    scope: Scope,
    others: Option<Router>,
    stop: CancellationToken,
) {
    let (version, instance) = (app.version.clone(), app.instance.clone());
    metrics::gauge!(INFO, "version" => version, "node" => instance).set(1.0);
    let shared = Shared::new(app, stop.clone());
    let mut routes = routes(shared.clone(), scope);
    if let Some(others) = others {
        routes = routes.merge(others);
    }
    let routes = named(routes, shared.clone());
    let live = live::run(&shared, stop.clone());
    tokio::join!(serve_routes(listener, routes, stop, HEAD_TIMEOUT), live);
}

fn routes(shared: Shared, scope: Scope) -> Router {
    let routes = match scope {
        Scope::Full => {
            let api = Router::new().nest(api::openapi::PREFIX, api::routes(&shared));
            let page = page::routes(&shared, api.clone().with_state(shared.clone()));
            status_routes().merge(api).merge(page)
        }
        Scope::Status => status_routes(),
    };
    finish(below(&shared.options.base_path.clone(), routes), shared)
}

/// Puts the question by which name we were called before all routes.
fn named(routes: Router, shared: Shared) -> Router {
    routes.layer(axum::middleware::from_fn_with_state(shared, host::check))
}

/// The same routes at the root and below a sub-path: some proxies cut it off and some do not.
fn below(base_path: &str, routes: Router<Shared>) -> Router<Shared> {
    match base_path {
        "" => routes,
        base_path => {
            // Nested, the root has no slash at its end, and people type one.
            let root = base_path.to_owned();
            let slashed = async move |uri: Uri| {
                let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
                Redirect::temporary(&format!("{root}{query}"))
            };
            routes.clone().nest(base_path, routes).route(&format!("{base_path}/"), get(slashed))
        }
    }
}

pub(crate) async fn serve_routes(
    listener: TcpListener,
    routes: Router,
    stop: CancellationToken,
    head_timeout: Duration,
) {
    let service = TowerToHyperService::new(routes);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_timeout);
    let (tasks, graceful) = (Tasks::new(), GracefulShutdown::new());
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Some((stream, permit)) = stop.run_until_cancelled(accept(&listener, &permits)).await {
        let peer = stream.peer_addr().ok().map(|address| Peer(address.ip().to_canonical()));
        let service = service.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            peer.and_then(|peer| request.extensions_mut().insert(peer));
            service.call(request)
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        let cut_off = tasks.stopping();
        tasks.spawn(async move {
            let _permit = permit;
            if let Some(Err(error)) = cut_off.run_until_cancelled(connection).await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!(timeout = ?DRAIN, "connections were cut off that did not end in time");
    }
    tasks.join().await;
}

async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    let permit = Arc::clone(permits).acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are written whole; waiting for more to send only delays them.
                let _ = stream.set_nodelay(true);
                return (stream, permit);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The routes that tell how a process is.
fn status_routes() -> Router<Shared> {
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(exposition))
}

/// What all routes have in common.
fn finish(routes: Router<Shared>, shared: Shared) -> Router {
    routes
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "NOT_FOUND", "no such route"))
        .method_not_allowed_fallback(async || {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "METHOD_NOT_ALLOWED",
                "this route has no such method",
            )
        })
        .layer(axum::middleware::from_fn(request::same_origin))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, ROUTE_TIMEOUT))
        .layer(CatchPanicLayer::custom(request::panicked))
        .layer(axum::middleware::from_fn(request::envelope))
        .layer(axum::middleware::from_fn(request::secure))
        .with_state(shared)
}

async fn exposition(State(shared): State<Shared>, headers: HeaderMap) -> impl IntoResponse {
    const TEXT: [(HeaderName, &str); 1] =
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    const OPEN: [(HeaderName, &str); 1] =
        [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    let about = &shared.about;
    about.health.measure();
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match accepts.contains("application/openmetrics-text") {
        true => (OPEN, about.metrics.render_with_exemplars()),
        false => (TEXT, about.metrics.render()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Sends the beginning of a request and waits until the server closes the connection.
    async fn sent_away(head: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let client = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut rest = String::new();
            stream.read_to_string(&mut rest).await.unwrap();
            stop.cancel();
            rest
        };
        let routes = Router::new().route("/", get(async || "hello"));
        let server = serve_routes(listener, routes, stop.clone(), Duration::from_millis(50));
        let both = async { tokio::join!(server, client) };
        tokio::time::timeout(Duration::from_secs(20), both).await.expect("the connection stays open").1
    }

    #[tokio::test]
    async fn a_client_that_never_finishes_its_head_is_sent_away() {
        assert!(!sent_away("GET / HTTP/1.1\r\nhost: x\r\n").await.contains("hello"));
        assert!(!sent_away("").await.contains("hello"));
    }

    #[tokio::test]
    async fn an_idle_connection_is_closed_after_its_answer() {
        assert!(sent_away("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.ends_with("hello"));
    }
}
