//! The API as the page uses it: the same routes in the same process, with the visitor's own credentials.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stargate_access::audit::Source;
use tower::ServiceExt as _;

use crate::api::types::access::ErrorEnvelope;
use crate::error::Problem;
use crate::rate::Peer;
use crate::request::REQUEST_ID;

/// The largest answer that is read: a page of a thousand jobs with their payloads.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Headers that the API decides by: who asks, from where, as which request.
const PASSED_ON: [HeaderName; 8] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::HOST,
    header::ORIGIN,
    header::REFERER,
    header::USER_AGENT,
    HeaderName::from_static("sec-fetch-site"),
    REQUEST_ID,
];

/// What the API said no with.
#[derive(Debug, Clone)]
pub(crate) struct Failed {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Failed {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID", message)
    }
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self { status: problem.status, code: problem.code.into_owned(), message: problem.message }
    }
}

/// The answer of the API.
pub(crate) type Answer<T> = std::result::Result<T, Failed>;

/// The API, asked by one visitor.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    router: Router,
    headers: HeaderMap,
    /// What the client's connection told; the API may go by the address.
    extensions: axum::http::Extensions,
}

impl Api {
    /// Asks in the name of whoever sent this request.
    pub(crate) fn new(router: &Router, request: &axum::http::request::Parts) -> Self {
        let named = PASSED_ON
            .into_iter()
            .filter_map(|name| Some((name.clone(), request.headers.get(&name)?.clone())));
        let mut extensions = axum::http::Extensions::new();
        if let Some(peer) = request.extensions.get::<Peer>() {
            extensions.insert(*peer);
        }
        // For the audit.
        extensions.insert(Source::Page);
        Self { router: router.clone(), headers: named.collect(), extensions }
    }

    /// With other credentials than the visitor's.
    pub(crate) fn with_token(mut self, token: &str) -> Option<Self> {
        let value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        self.headers.insert(header::AUTHORIZATION, value);
        self.headers.remove(header::COOKIE);
        Some(self)
    }

    /// `GET /api/v1{path}`
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        parse(&self.bytes(path).await?)
    }

    /// The same, as it came.
    pub(crate) async fn bytes(&self, path: &str) -> Answer<Bytes> {
        self.send(Method::GET, path, Body::empty(), false).await
    }

    /// `POST /api/v1{path}` without a body.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        parse(&self.send(Method::POST, path, Body::empty(), false).await?)
    }

    /// `POST`, `PUT` or `DELETE /api/v1{path}` with a body.
    pub(crate) async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Answer<T> {
        let body = serde_json::to_vec(body).map_err(|error| Failed::invalid(error.to_string()))?;
        parse(&self.send(method, path, Body::from(body), true).await?)
    }

    /// A `POST` that changes nothing, asked for by a page that is only looked at. Browsers do not say where such a page
    /// was come from over plain HTTP, so the page vouches for it.
    pub(crate) async fn look<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Answer<T> {
        let mut vouched = self.clone();
        vouched.headers.insert("sec-fetch-site", HeaderValue::from_static("same-origin"));
        vouched.change(Method::POST, path, body).await
    }

    /// `DELETE /api/v1{path}`
    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str) -> Answer<T> {
        parse(&self.send(Method::DELETE, path, Body::empty(), false).await?)
    }

    async fn send(&self, method: Method, path: &str, body: Body, json: bool) -> Answer<Bytes> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = format!("/api/v1{path}")
            .parse()
            .map_err(|_| Failed::invalid("that cannot be part of an address"))?;
        *request.headers_mut() = self.headers.clone();
        *request.extensions_mut() = self.extensions.clone();
        if json {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let answered = self.router.clone().oneshot(request).await;
        let response = answered.unwrap_or_else(|never| match never {});
        let status = response.status();
        let problem = response.extensions().get::<Problem>().cloned();
        let bytes = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
        if status.is_success() {
            return bytes.map_err(|_| Problem::internal().into());
        }
        Err(match problem {
            Some(problem) => problem.into(),
            None => refused(status, &bytes.unwrap_or_default()),
        })
    }
}

/// An answer that another node gave, or axum itself.
fn refused(status: StatusCode, body: &[u8]) -> Failed {
    match serde_json::from_slice::<ErrorEnvelope>(body) {
        Ok(ErrorEnvelope { error }) => Failed { status, code: error.code, message: error.message },
        Err(_) => {
            let reason = status.canonical_reason().unwrap_or("the request was refused");
            let code = if status == StatusCode::NOT_FOUND { "NOT_FOUND" } else { "BAD_REQUEST" };
            Failed::new(status, code, reason)
        }
    }
}

/// Reads an answer of the API.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Answer<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        tracing::error!(%error, "the page does not understand the API");
        Problem::internal().into()
    })
}
