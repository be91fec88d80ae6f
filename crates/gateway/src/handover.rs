//! `POST /git-hook/push`: where the hooks of pushes through this node hand over what has moved, so that they need no
//! connection to the store of their own. To open one takes longer than to record the push.
//!
//! Only those hooks know the key: it is made with the process and told in their environment. A hook that gets no good
//! answer records the push itself, under the same name, and what is recorded twice is recorded once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use stargate_base::{Secret, chain};
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;

use crate::hook::SinkError;
use crate::hook::post_receive::BUDGET;

/// Where it is.
pub const PATH: &str = "/git-hook/push";
/// Bytes of a report at most: some 20,000 refs. A hook with more records them itself.
pub const REPORT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Reports at once: the store has few connections for everything that is not a claim. Others are told at once, and their hooks
/// open one of their own.
const PLACES: usize = 2;
/// The hook has no more time, and has turned to the store by then.
const TIME_MAX: Duration = BUDGET;

/// Records what hooks hand over.
#[async_trait]
pub trait Desk: Send + Sync {
    /// Records a report in one transaction: all of it, or nothing. May be dropped at any moment.
    async fn record(&self, report: &[u8]) -> Result<(), SinkError>;
}

/// Takes what hooks hand over. Cheap to clone.
#[derive(Clone)]
pub struct Handover(Arc<Inner>);

struct Inner {
    key: Secret,
    desk: Arc<dyn Desk>,
    places: Semaphore,
}

impl std::fmt::Debug for Handover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handover").finish_non_exhaustive()
    }
}

impl Handover {
    /// With a key that nobody has seen.
    pub fn new(desk: Arc<dyn Desk>) -> Self {
        let key = Secret::new(format!("{:032x}", rand::random::<u128>()));
        Self(Arc::new(Inner { key, desk, places: Semaphore::new(PLACES) }))
    }

    /// What a hook has to know; sent as a bearer token.
    pub fn key(&self) -> &Secret {
        &self.0.key
    }

    /// The route.
    pub(crate) fn router(&self) -> Router {
        Router::new().route(PATH, post(handle)).with_state(self.clone())
    }
}

async fn handle(State(handover): State<Handover>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let presented =
        head.headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    let key = handover.0.key.reveal().as_bytes();
    if !presented.is_some_and(|presented| bool::from(presented.ct_eq(key))) {
        // Who does not know the key is not told that there is a door.
        return StatusCode::NOT_FOUND.into_response();
    }
    let recorded = tokio::time::timeout(TIME_MAX, handover.0.record(body)).await;
    match recorded.unwrap_or_else(|_| Err("there was no time left".into())) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => {
            let why = chain(error.as_ref());
            tracing::warn!(why, "what a hook handed over was not recorded; it turns to the store");
            (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
        }
    }
}

impl Inner {
    async fn record(&self, body: Body) -> Result<(), SinkError> {
        let _place = self.places.try_acquire().map_err(|_| "others are being recorded")?;
        let report = to_bytes(body, REPORT_BYTES_MAX).await?;
        self.desk.record(&report).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Book {
        taken: Mutex<Vec<Vec<u8>>>,
        is_away: bool,
        is_slow: bool,
    }

    #[async_trait]
    impl Desk for Book {
        async fn record(&self, report: &[u8]) -> Result<(), SinkError> {
            if self.is_away {
                return Err("the store is away".into());
            }
            self.taken.lock().unwrap().push(report.to_vec());
            if self.is_slow {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    }

    async fn tell(handover: &Handover, authorization: Option<&str>, report: Vec<u8>) -> StatusCode {
        let mut request = Request::post(PATH);
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Body::from(report)).unwrap();
        handle(State(handover.clone()), request).await.status()
    }

    #[tokio::test]
    async fn only_who_knows_the_key_hands_something_over() {
        let book = Arc::new(Book::default());
        let handover = Handover::new(Arc::clone(&book) as Arc<dyn Desk>);
        let key = handover.key().reveal();
        let wrong = [None, Some(key.to_owned()), Some("Bearer ".to_owned()), Some(format!("Bearer {key}0"))];
        for authorization in wrong {
            let status = tell(&handover, authorization.as_deref(), b"{}".to_vec()).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{authorization:?}");
        }
        let another = Handover::new(Arc::clone(&book) as Arc<dyn Desk>);
        let bearer = format!("Bearer {key}");
        assert_eq!(tell(&another, Some(&bearer), b"{}".to_vec()).await, StatusCode::NOT_FOUND);
        assert_eq!(tell(&handover, Some(&bearer), b"{}".to_vec()).await, StatusCode::NO_CONTENT);
        assert_eq!(*book.taken.lock().unwrap(), [b"{}"]);
    }

    #[tokio::test]
    async fn what_is_not_recorded_is_not_answered_as_if_it_were() {
        let book = Arc::new(Book::default());
        let handover = Handover::new(Arc::clone(&book) as Arc<dyn Desk>);
        let bearer = format!("Bearer {}", handover.key().reveal());
        let large = vec![b' '; REPORT_BYTES_MAX + 1];
        assert_eq!(tell(&handover, Some(&bearer), large).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(*book.taken.lock().unwrap(), [[0_u8; 0]; 0]);
        let away = Handover::new(Arc::new(Book { is_away: true, ..Book::default() }));
        let bearer = format!("Bearer {}", away.key().reveal());
        assert_eq!(tell(&away, Some(&bearer), b"{}".to_vec()).await, StatusCode::SERVICE_UNAVAILABLE);
    }
    #[tokio::test(start_paused = true)]
    async fn who_would_have_to_wait_for_others_is_told_at_once() {
        let book = Arc::new(Book { is_slow: true, ..Book::default() });
        let handover = Handover::new(Arc::clone(&book) as Arc<dyn Desk>);
        let bearer = format!("Bearer {}", handover.key().reveal());
        let all = (0..=PLACES).map(|_| tell(&handover, Some(&bearer), b"{}".to_vec()));
        let began = tokio::time::Instant::now();
        let all = futures::future::join_all(all).await;
        assert_eq!(all, [StatusCode::SERVICE_UNAVAILABLE; PLACES + 1]);
        assert_eq!(began.elapsed(), TIME_MAX, "those with a place had their time");
        assert_eq!(book.taken.lock().unwrap().len(), PLACES);
    }
}
