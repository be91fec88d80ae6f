//! Errors as clients see them: a status, a code to match on and a message that says what to do.
//!
//! A route answers a [`Problem`]; the outermost layer writes it as JSON together with the request's id (see
//! `request.rs`). What lies behind an error of the store goes to the log, not to the client.

use std::borrow::Cow;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use stargate_base::ErrorClass;
use stargate_queue::Error;

/// When to come back to a full queue.
const RETRY_AFTER_FULL_SEC: u16 = 5;
/// When to come back to a node that does not lead: a successor takes about so long.
const RETRY_AFTER_NOT_LEADER_SEC: u16 = 1;
/// When to come back to a store that is away.
const RETRY_AFTER_STORE_SEC: u16 = 2;

/// Where the leader is, for a client that asked another node to write.
const LEADER: HeaderName = HeaderName::from_static("x-stargate-leader");

/// The answer of a route.
pub(crate) type Result<T> = std::result::Result<T, Problem>;

/// What went wrong, before it becomes JSON.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: Cow<'static, str>,
    pub(crate) message: String,
    pub(crate) retry_after_sec: Option<u16>,
    /// The address of the leader.
    pub(crate) leader: Option<HeaderValue>,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Self { status, code: code.into(), message: message.into(), retry_after_sec: None, leader: None }
    }

    /// A field with a value that cannot be right.
    pub(crate) fn invalid(field: &str, problem: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID", format!("{field} {problem}"))
    }

    pub(crate) fn not_found(what: &str, name: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", format!("no {what} {name}"))
    }

    pub(crate) fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "INTERNAL",
            "the server failed; its log has the request id",
        )
    }

    /// Everything that fits one process is in use.
    pub(crate) fn busy(message: &str) -> Self {
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", message);
        problem.retry_after_sec = Some(RETRY_AFTER_FULL_SEC);
        problem
    }

    /// Somebody we depend on does not answer.
    pub(crate) fn unavailable(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        problem.retry_after_sec = Some(RETRY_AFTER_STORE_SEC);
        problem
    }

    /// Somebody asks more often than they may.
    pub(crate) fn too_many(retry_after_sec: u16) -> Self {
        let message = "too many changes from here in a short time; try again, or send batches";
        let mut problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", message);
        problem.retry_after_sec = Some(retry_after_sec);
        problem
    }

    /// This node may not write, and has not.
    pub(crate) fn not_leader(message: impl Into<String>, leader: Option<HeaderValue>) -> Self {
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "NOT_LEADER", message);
        problem.retry_after_sec = Some(RETRY_AFTER_NOT_LEADER_SEC);
        problem.leader = leader;
        problem
    }

    /// It may have been done or not, and nobody here can tell.
    pub(crate) fn outcome_unknown(happened: impl std::fmt::Display) -> Self {
        let message = format!(
            "{happened}: whether the request was done is not known; with an Idempotency-Key it can be repeated, \
             without one look first"
        );
        Self::new(StatusCode::BAD_GATEWAY, "OUTCOME_UNKNOWN", message)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (status, retry_after_sec) = match &error {
            Error::Invalid { .. } | Error::UnknownKind { .. } => (StatusCode::UNPROCESSABLE_ENTITY, None),
            Error::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, None),
            Error::NotFound { .. } => (StatusCode::NOT_FOUND, None),
            Error::WrongState { .. } | Error::Conflict { .. } => (StatusCode::CONFLICT, None),
            Error::QueueFull { .. } => (StatusCode::TOO_MANY_REQUESTS, Some(RETRY_AFTER_FULL_SEC)),
            Error::Store { .. } => (StatusCode::SERVICE_UNAVAILABLE, Some(RETRY_AFTER_STORE_SEC)),
            Error::Deposed { .. } => (StatusCode::SERVICE_UNAVAILABLE, Some(RETRY_AFTER_NOT_LEADER_SEC)),
            Error::SchemaTooNew { .. } | Error::SchemaTooOld { .. } => {
                (StatusCode::INTERNAL_SERVER_ERROR, None)
            }
        };
        if status.is_server_error() {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(code = error.code(), %error, cause, "the store failed a request");
        }
        let code = Cow::Borrowed(error.code());
        Self { status, code, message: error.to_string(), retry_after_sec, leader: None }
    }
}

/// What a part of the program outside of this crate answers.
pub type Answer<T> = std::result::Result<T, Refusal>;

/// Why a part of the program outside of this crate could not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of reason it is.
    pub why: Why,
    /// A stable code.
    pub code: String,
    /// One line for people.
    pub message: String,
}

/// What kind of reason it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Nothing of that name.
    Missing,
    /// Not possible in the present state.
    Conflict,
    /// A value that will stay wrong.
    Invalid,
    /// Somebody else does not answer.
    Unavailable,
    /// It cannot be done here, however often it is tried.
    Failed,
}

impl Refusal {
    /// A refusal with a stable code.
    pub fn new(why: Why, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { why, code: code.into(), message: message.into() }
    }

    /// Nothing of that name.
    pub fn missing(what: &str, name: impl std::fmt::Display) -> Self {
        Self::new(Why::Missing, "NOT_FOUND", format!("no {what} {name}"))
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let why = match &error {
            Error::NotFound { .. } => Why::Missing,
            Error::Store { .. } | Error::Deposed { .. } | Error::QueueFull { .. } => Why::Unavailable,
            error => match error.class() {
                ErrorClass::Conflict => Why::Conflict,
                ErrorClass::ValidationFailure => Why::Invalid,
                ErrorClass::RetryableTransient => Why::Unavailable,
                ErrorClass::Fatal => Why::Failed,
            },
        };
        Self::new(why, error.code(), error.to_string())
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let Refusal { why, code, message } = refusal;
        match why {
            Why::Missing => Self::new(StatusCode::NOT_FOUND, code, message),
            Why::Conflict => Self::new(StatusCode::CONFLICT, code, message),
            Why::Invalid => Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message),
            Why::Unavailable => {
                tracing::warn!(code, error = message, "a request could not be done");
                Self::unavailable(code, message)
            }
            Why::Failed => {
                tracing::warn!(code, error = message, "a request cannot be done");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, message)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        if let Some(seconds) = self.retry_after_sec {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            // Programs send the first; a browser asks its user for the second.
            for challenge in ["Bearer realm=\"stargate\"", "Basic realm=\"stargate\""] {
                response.headers_mut().append(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
        }
        if let Some(leader) = &self.leader {
            response.headers_mut().insert(LEADER, leader.clone());
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use stargate_base::{Epoch, ErrorClass};
    use stargate_queue::{JobId, State};

    use super::*;

    #[test]
    fn every_error_of_the_queue_has_its_status() {
        let store = Error::Store {
            operation: "enqueue jobs",
            class: ErrorClass::RetryableTransient,
            hint: None,
            source: "password=swordfish".into(),
        };
        let wrong_state = Error::WrongState { job: JobId(1), state: State::Done, problem: "no".into() };
        for (error, status, retry_after) in [
            (Error::invalid("kind", "is wrong"), 422, false),
            (Error::UnknownKind { kind: "k".into(), known: Vec::new() }, 422, false),
            (Error::TooLarge { field: "payload", bytes: 2, bytes_max: 1 }, 413, false),
            (Error::NotFound { what: "job", name: "1".into() }, 404, false),
            (wrong_state, 409, false),
            (Error::Conflict { problem: "taken".into() }, 409, false),
            (Error::QueueFull { waiting: 2, depth_max: 1 }, 429, true),
            (store, 503, true),
            (Error::Deposed { epoch: Epoch::new(1), current: Epoch::new(2) }, 503, true),
            (Error::SchemaTooNew { found: 2, known: 1 }, 500, false),
        ] {
            let code = error.code();
            let problem = Problem::from(error);
            assert!(!problem.message.contains("swordfish"), "the driver's error reached the client");
            let response = problem.into_response();
            assert_eq!(response.status().as_u16(), status, "{code}");
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), retry_after, "{code}");
        }
    }
}
