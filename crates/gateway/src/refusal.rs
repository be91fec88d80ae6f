//! Answers to requests that are not served: a status, and a line that git shows to its user.
//!
//! git prints the body of a failed `info/refs` as `remote: …` if it is plain text, so a refusal is that: code, then
//! what is wrong, then what to do. For the requests after it git shows the status only, but those are refused in the
//! same words.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::gate::Denied;

/// The header that tells where pushes are taken.
pub const LEADER_HEADER: HeaderName = HeaderName::from_static("x-stargate-leader");

/// When to come back to a node that is about to stop: about the time that a restart takes.
const CLOSING_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not something a git client sends.
    Malformed(&'static str),
    /// The method does not fit the route.
    Method,
    /// The body is not what the route takes.
    MediaType(&'static str),
    /// More bytes than are taken, after unpacking.
    TooLarge { bytes_max: u64 },
    /// More bytes of refs than are taken in one push.
    TooManyRefs { bytes_max: u64 },
    /// The client took too long to send.
    TooSlow,
    /// It took longer than a fetch or push may.
    TooLate,
    /// This process is about to stop.
    Closing,
    /// Everything that may run at once is running.
    Busy { retry_after: Duration },
    /// The gate said no.
    Denied(Denied),
    /// Our own trouble; the log has it.
    Internal,
}

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::MediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge { .. } | Self::TooManyRefs { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::TooLate => StatusCode::GATEWAY_TIMEOUT,
            Self::Busy { .. } | Self::Closing => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Denied(denied) => match denied {
                Denied::Unauthenticated
                | Denied::UnknownToken
                | Denied::ExpiredToken
                | Denied::RevokedToken => StatusCode::UNAUTHORIZED,
                Denied::Forbidden(_) => StatusCode::FORBIDDEN,
                Denied::NotFound => StatusCode::NOT_FOUND,
                Denied::NotLeader { .. } | Denied::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            },
        }
    }

    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "BAD_REQUEST",
            Self::Method => "METHOD_NOT_ALLOWED",
            Self::MediaType(_) => "UNSUPPORTED_MEDIA_TYPE",
            Self::TooLarge { .. } | Self::TooManyRefs { .. } => "BODY_TOO_LARGE",
            Self::TooSlow => "REQUEST_TIMEOUT",
            Self::TooLate => "TIMEOUT",
            Self::Busy { .. } | Self::Closing => "BUSY",
            Self::Internal => "INTERNAL",
            Self::Denied(denied) => match denied {
                Denied::Unauthenticated | Denied::UnknownToken => "UNAUTHENTICATED",
                Denied::ExpiredToken => "TOKEN_EXPIRED",
                Denied::RevokedToken => "TOKEN_REVOKED",
                Denied::Forbidden(_) => "FORBIDDEN",
                Denied::NotFound => "NOT_FOUND",
                Denied::NotLeader { .. } => "NOT_LEADER",
                Denied::Unavailable { .. } => "STORE_UNAVAILABLE",
            },
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Malformed(problem) | Self::MediaType(problem) => (*problem).to_owned(),
            Self::Method => "this route has no such method".to_owned(),
            Self::TooLarge { bytes_max } => {
                format!(
                    "more than {bytes_max} bytes are not taken in one request; git.max_push bounds a push, \
                     git.max_fetch_request what a fetch asks for"
                )
            }
            Self::TooManyRefs { bytes_max } => {
                format!("the list of refs is longer than {bytes_max} bytes; push fewer of them at once")
            }
            Self::TooSlow => "the request did not arrive in time".to_owned(),
            Self::TooLate => "it took longer than a fetch or push may".to_owned(),
            Self::Closing => "this node is about to stop; try again in a moment".to_owned(),
            Self::Busy { .. } => {
                "too many fetches or pushes at once (git.max_fetches, git.max_pushes); try again in a moment"
                    .to_owned()
            }
            Self::Internal => "the server failed; its log has the request id".to_owned(),
            Self::Denied(denied) => match denied {
                Denied::Unauthenticated => "give a token as the password".to_owned(),
                Denied::UnknownToken => "the token is not known".to_owned(),
                Denied::ExpiredToken => "the token has expired; ask for a new one".to_owned(),
                Denied::RevokedToken => "the token was revoked; ask for a new one".to_owned(),
                Denied::Forbidden(problem) | Denied::Unavailable { problem, .. } => problem.clone(),
                Denied::NotFound => "no such repository".to_owned(),
                Denied::NotLeader { leader: Some(leader), .. } => {
                    format!("this node does not take pushes; push to the leader, {leader}")
                }
                Denied::NotLeader { leader: None, .. } => {
                    "this node does not take pushes, and no leader is known; try again in a moment".to_owned()
                }
            },
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after }
            | Self::Denied(Denied::NotLeader { retry_after, .. } | Denied::Unavailable { retry_after, .. }) => {
                Some(*retry_after)
            }
            Self::Closing => Some(CLOSING_RETRY_AFTER),
            _ => None,
        }
    }
}

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let text = format!("{}: {}\n", self.code(), self.message());
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if let Some(after) = self.retry_after() {
            // Zero would ask for a retry without pause.
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        match &self {
            // git asks its user again, and has its helper forget what was refused.
            _ if self.status() == StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"stargate\""));
            }
            Self::Denied(Denied::NotLeader { leader: Some(leader), .. }) => {
                if let Ok(leader) = HeaderValue::from_str(leader) {
                    headers.insert(LEADER_HEADER, leader);
                }
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_does_not_lead_names_the_leader_and_when_to_come_back() {
        let leader = Some("http://10.0.0.2:8080".to_owned());
        let denied = Denied::NotLeader { leader, retry_after: Duration::from_millis(10) };
        let response = Refusal::from(denied).into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert_eq!(response.headers()[LEADER_HEADER], "http://10.0.0.2:8080");
        assert!(!response.headers().contains_key(WWW_AUTHENTICATE));
    }

    #[test]
    fn only_a_client_without_good_credentials_is_asked_for_some() {
        let asked =
            |denied: Denied| Refusal::from(denied).into_response().headers().contains_key(WWW_AUTHENTICATE);
        for none in
            [Denied::Unauthenticated, Denied::UnknownToken, Denied::ExpiredToken, Denied::RevokedToken]
        {
            assert!(asked(none));
        }
        assert!(!asked(Denied::Forbidden("no".into())));
        assert!(!asked(Denied::NotFound));
    }

    #[test]
    fn a_leader_that_is_no_header_value_does_not_spoil_the_answer() {
        let denied = Denied::NotLeader { leader: Some("a\r\nb: c".into()), retry_after: Duration::ZERO };
        let response = Refusal::from(denied).into_response();
        assert_eq!(response.status(), 503);
        assert!(!response.headers().contains_key(LEADER_HEADER));
    }
}
