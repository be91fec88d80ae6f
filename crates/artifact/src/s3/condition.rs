//! Conditions for the request that makes an object appear.
//!
//! `object_store` can make a put conditional, but not the completion of a multipart upload, although servers can. So a
//! condition is set for the time of the call ([`Condition::around`]), and the connection adds it to the request on its
//! way out. A header that is not signed is allowed: the signature names the headers it covers.
//!
//! The connection is also where every request passes last, those that are tried again included. So there it is seen
//! whether the permission to publish is still fresh; if not, the request is not sent ([`is_expired`]).

use std::future::Future;

use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::{ClientOptions, HeaderValue};

use crate::permit::Permission;

/// What must hold at a key for an object to appear there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    /// Nothing is there.
    Absent,
    /// The object with this ETag is there.
    Unchanged(String),
}

/// The permission was too old when the request was about to be sent.
#[derive(Debug, thiserror::Error)]
#[error("the answer that the attempt holds its job is too old")]
struct Expired;

/// Whether a request was not sent because the permission for it was too old.
pub(super) fn is_expired(error: &object_store::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if inner.is::<Expired>() {
            return true;
        }
        cause = inner.source();
    }
    false
}

tokio::task_local! {
    static COMPLETION: (Condition, Permission);
}

impl Condition {
    /// Makes the completion of an upload inside `work` conditional, and sends nothing once the permission is old.
    pub(super) async fn around<F: Future>(self, permission: Permission, work: F) -> F::Output {
        COMPLETION.scope((self, permission), work).await
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
        if let Ok((header, permission)) =
            COMPLETION.try_with(|(condition, permission)| (condition.header(), *permission))
        {
            if completes && let Some((name, value)) = header {
                request.headers_mut().insert(name, value);
            }
            // Of a kind that is not tried again: the same answer would only grow older.
            if !permission.is_fresh() {
                return Err(HttpError::new(HttpErrorKind::Unknown, Expired));
            }
        }
        self.0.execute(request).await
    }
}
