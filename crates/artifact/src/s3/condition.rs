//! Conditions for requests that `object_store` makes without one.
//!
//! It can make a put conditional, but not the completion of a multipart upload, although servers can. So a condition
//! is set for the time of the call ([`Condition::around`]), and the connection adds it to the request on its way out.
//! A header that is not signed is allowed: the signature names the headers it covers.

use std::future::Future;

use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, HeaderValue};

/// What must hold at a key for an object to appear there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    /// Nothing is there.
    Absent,
    /// The object with this ETag is there.
    Unchanged(String),
}

tokio::task_local! {
    static CONDITION: Condition;
}

impl Condition {
    /// Makes the completion of an upload inside `work` conditional.
    pub(super) async fn around<F: Future>(self, work: F) -> F::Output {
        CONDITION.scope(self, work).await
    }

    fn header(&self) -> Option<(&'static str, HeaderValue)> {
        match self {
            Self::Absent => Some(("if-none-match", HeaderValue::from_static("*"))),
            Self::Unchanged(tag) => Some(("if-match", HeaderValue::from_str(tag).ok()?)),
        }
    }
}

/// Connections whose completing requests carry the condition.
#[derive(Debug, Default)]
pub(super) struct Conditional(ReqwestConnector);

impl HttpConnector for Conditional {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Service(HttpClient);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let completes = request.method().as_str() == "POST"
            && request
                .uri()
                .query()
                .is_some_and(|query| query.split('&').any(|part| part.starts_with("uploadId=")));
        if completes && let Ok(Some((name, value))) = CONDITION.try_with(Condition::header) {
            request.headers_mut().insert(name, value);
        }
        self.0.execute(request).await
    }
}
