//! The routes: `/git/<name>.git/info/refs`, `…/git-upload-pack` and `…/git-receive-pack`.
//!
//! Served outside of layers that give a request a time or rewrite its errors: a clone takes as long as it takes, within
//! [`Settings`], and what git shows of an error is plain text.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, EXPIRES, PRAGMA};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use stargate_base::Tasks;
use stargate_git::{RepoDir, Serve, Service};
use tokio::sync::mpsc;
use tracing::Instrument as _;

use crate::claim::Claim;
use crate::error::Result;
use crate::exchange::{CHUNKS_MAX, Exchange, Piece};
use crate::gate::{Access, Admission, Credentials, Denied, Gate};
use crate::handover::Handover;
use crate::hook;
use crate::intake::{self, Bounds};
use crate::pkt;
use crate::refusal::Refusal;
use crate::repositories::Repositories;
use crate::request::{self, Encoding, Step, Wanted};
use crate::settings::Settings;
use crate::slots::Slots;

/// Below which the repositories appear.
const PREFIX: &str = "/git/";
/// The request's id, taken over from the client if it is harmless.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Bytes of such an id at most.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// How long the gate may take to answer.
const GATE_TIME_MAX: Duration = Duration::from_secs(10);

/// Serves the repositories of a node. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    repositories: Repositories,
    gate: Arc<dyn Gate>,
    settings: Settings,
    slots: Slots,
    tasks: Tasks,
    hook_environment: Vec<(OsString, OsString)>,
    handover: Option<Handover>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("repositories", &self.0.repositories).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Puts a gateway together.
    ///
    /// `hook_environment` is what the hooks need to reach the rest of the system; its names begin with `STARGATE_`. With
    /// `handover` they find this node among it.
    /// The processes that it starts belong to `tasks`: after [`Tasks::join`] none is left.
    pub fn new(
        repositories: Repositories,
        gate: Arc<dyn Gate>,
        settings: Settings,
        hook_environment: Vec<(OsString, OsString)>,
        handover: Option<Handover>,
        tasks: Tasks,
    ) -> Result<Self> {
        settings.check()?;
        hook::check_environment(&hook_environment)?;
        // A root that pushes could not be served from is told now.
        repositories.push_settings(settings.push_bytes_max)?;
        let slots = Slots::new(&settings);
        Ok(Self(Arc::new(Inner { repositories, gate, settings, slots, tasks, hook_environment, handover })))
    }

    /// The routes.
    pub fn router(&self) -> Router {
        let git = Router::new().route("/git/{*path}", any(handle)).with_state(self.clone());
        match &self.0.handover {
            Some(handover) => git.merge(handover.router()),
            None => git,
        }
    }
}

async fn handle(State(gateway): State<Gateway>, request: Request) -> Response {
    let id = request_id(request.headers());
    let span = tracing::info_span!("git", request = %id, repo = tracing::field::Empty, service = tracing::field::Empty);
    async move {
        let answer = gateway.0.answer(request, &id).await;
        let mut response = answer.unwrap_or_else(|refusal| {
            tracing::info!(code = refusal.code(), status = refusal.status().as_u16(), "refused");
            refusal.into_response()
        });
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        response
    }
    .instrument(span)
    .await
}

impl Inner {
    async fn answer(self: &Arc<Self>, request: Request, id: &str) -> Result<Response, Refusal> {
        let (head, body) = request.into_parts();
        // As it was sent: a path that needs decoding names nothing here.
        let path = head.uri.path().strip_prefix(PREFIX).ok_or(Denied::NotFound)?;
        let wanted = request::wanted(&head.method, path, head.uri.query())?;
        let span = tracing::Span::current();
        span.record("repo", wanted.repo.as_str()).record("service", wanted.service.as_str());
        let protocol = request::protocol(&head.headers)?;
        let encoding = match wanted.step {
            Step::Advertise => Encoding::Plain,
            Step::Exchange => request::encoding(&head.headers, wanted.service)?,
        };
        let credentials = request::credentials(&head.headers)?;
        let access = Access::from(wanted.service);
        let admission = self.admit(&wanted, access, &credentials).await?;
        let bounds = self.bounds(wanted.service);
        check_length(&head.headers, encoding, bounds)?;
        let repo = self.repositories.find(&wanted.repo).map_err(|_| Denied::NotFound)?;
        let slot = self.slots.take(access).await?;

        let claim = self.claim(&wanted)?;
        let env = match &claim {
            Some(claim) => {
                let claim = Some(claim.path());
                hook::environment(&self.hook_environment, &wanted.repo, &admission, id, claim)
            }
            None => Vec::new(),
        };
        let session = self.start(&wanted, &repo, protocol, &env)?;
        let redactor = self.repositories.git().redactor().clone();
        let exchange = Exchange { session, claim, hold: admission.hold, slot, bounds, redactor };
        let chunks = match wanted.step {
            // Such a request has no body, and git reads none.
            Step::Advertise => futures::stream::empty().boxed(),
            Step::Exchange => intake::lingering(body, encoding, &self.tasks),
        };
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        let this = Arc::clone(self);
        let run = async move { exchange.run(chunks, sender, &this.settings, &this.tasks).await };
        self.tasks.spawn(run.instrument(span));
        respond(&wanted, protocol, receiver).await
    }

    async fn admit(
        &self,
        wanted: &Wanted,
        access: Access,
        credentials: &Credentials,
    ) -> Result<Admission, Denied> {
        let asked = self.gate.admit(&wanted.repo, access, credentials);
        tokio::time::timeout(GATE_TIME_MAX, asked).await.unwrap_or_else(|_| {
            let problem = "nobody can say who may do what; try again in a moment".to_owned();
            Err(Denied::Unavailable { problem, retry_after: GATE_TIME_MAX })
        })
    }

    fn bounds(&self, service: Service) -> Bounds {
        let (bytes_max, opening_bytes_max) = match service {
            Service::UploadPack => (self.settings.fetch_request_bytes_max, u64::MAX),
            Service::ReceivePack => (self.settings.push_bytes_max, pkt::REFS_BYTES_MAX),
        };
        Bounds { bytes_max, opening_bytes_max, idle_max: self.settings.idle_max }
    }

    fn claim(&self, wanted: &Wanted) -> Result<Option<Claim>, Refusal> {
        if wanted.service != Service::ReceivePack || wanted.step != Step::Exchange {
            return Ok(None);
        }
        Claim::create(&self.repositories.pushes()).map(Some).map_err(|error| internal(&error))
    }

    fn start(
        &self,
        wanted: &Wanted,
        repo: &RepoDir,
        protocol: Option<&str>,
        env: &[(OsString, OsString)],
    ) -> Result<stargate_git::Session, Refusal> {
        let settings = match wanted.service {
            Service::UploadPack => Vec::new(),
            Service::ReceivePack => {
                let settings = self.repositories.push_settings(self.settings.push_bytes_max);
                settings.map_err(|error| internal(&error))?
            }
        };
        let advertise = wanted.step == Step::Advertise;
        let serve = Serve {
            service: wanted.service,
            repo,
            advertise,
            stateless: true,
            protocol,
            settings: &settings,
            env,
        };
        self.repositories.git().serve(&serve).map_err(|error| internal(&error))
    }
}

fn internal(error: &dyn std::error::Error) -> Refusal {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    tracing::error!(%error, cause, "a request could not be served");
    Refusal::Internal
}

/// Refuses a body that says itself that it is too large, before anything is started.
fn check_length(headers: &HeaderMap, encoding: Encoding, bounds: Bounds) -> Result<(), Refusal> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    match length {
        Some(length) if encoding == Encoding::Plain && length > bounds.bytes_max => {
            Err(Refusal::TooLarge { bytes_max: bounds.bytes_max })
        }
        _ => Ok(()),
    }
}

/// Waits for the first piece, because until then the answer can still be a refusal, and streams the rest.
async fn respond(
    wanted: &Wanted,
    protocol: Option<&str>,
    mut pieces: mpsc::Receiver<Piece>,
) -> Result<Response, Refusal> {
    // Git may have nothing to say: to a client that only tries whether it may push, for instance.
    let first = pieces.recv().await.transpose()?.unwrap_or_default();
    let (kind, head) = match wanted.step {
        Step::Exchange => ("result", String::new()),
        Step::Advertise if request::is_announced(wanted.service, protocol) => {
            ("advertisement", pkt::line(&format!("# service={}\n", wanted.service)) + pkt::FLUSH)
        }
        Step::Advertise => ("advertisement", String::new()),
    };
    let begin = [Bytes::from(head), first].into_iter().filter(|bytes| !bytes.is_empty()).map(Ok);
    let body = Body::from_stream(futures::stream::iter(begin).chain(rest(pieces)));
    let media_type = format!("application/x-{}-{kind}", wanted.service);
    let headers = [
        (CONTENT_TYPE, media_type),
        (CACHE_CONTROL, "no-cache, max-age=0, must-revalidate".to_owned()),
        (PRAGMA, "no-cache".to_owned()),
        (EXPIRES, "Fri, 01 Jan 1980 00:00:00 GMT".to_owned()),
    ];
    Ok((headers, body).into_response())
}

/// What follows the first piece. A refusal cannot be told any more: the connection is cut, so that nobody takes what
/// has arrived for the whole.
fn rest(pieces: mpsc::Receiver<Piece>) -> impl Stream<Item = std::io::Result<Bytes>> {
    futures::stream::unfold(pieces, |mut pieces| async {
        let piece = pieces.recv().await?;
        Some((piece.map_err(|refusal| std::io::Error::other(refusal.code())), pieces))
    })
}

/// The client's id for the request if it is short and harmless in a log, else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "._:/+=@-".contains(c);
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    match given {
        Some(id) if !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.chars().all(harmless) => {
            id.to_owned()
        }
        _ => format!("{:032x}", rand::random::<u128>()),
    }
}
