//! How requests are read: bounded, and with errors that name the field.

use std::ops::RangeInclusive;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use jiff::{Span, SpanRelativeTo, Timestamp};
use serde::de::DeserializeOwned;
use stargate_base::clock;
use stargate_base::trace::Context;
use stargate_queue::JobId;

use crate::error::{Problem, Result};

/// How long a client may take to send a body.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A JSON body of at most `LIMIT` bytes, with the bytes it came as.
pub(crate) struct JsonBody<T, const LIMIT: usize> {
    pub(crate) value: T,
    pub(crate) bytes: Bytes,
}

impl<S: Sync, T: DeserializeOwned, const LIMIT: usize> FromRequest<S> for JsonBody<T, LIMIT> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self> {
        if !is_json(request.headers()) {
            return Err(not_json());
        }
        let bytes = read(request.into_body(), LIMIT).await?;
        let value = serde_json::from_slice(&bytes).map_err(malformed)?;
        Ok(Self { value, bytes })
    }
}

/// A JSON body that may be left out.
pub(crate) struct MaybeJson<T, const LIMIT: usize>(pub(crate) Option<T>);

impl<S: Sync, T: DeserializeOwned, const LIMIT: usize> FromRequest<S> for MaybeJson<T, LIMIT> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self> {
        if request.body().size_hint().exact() == Some(0) {
            return Ok(Self(None));
        }
        let typed = request.headers().contains_key(header::CONTENT_TYPE);
        if !typed {
            // Nothing says what it is; whether it is anything is known only now.
            let bytes = read(request.into_body(), LIMIT).await?;
            return match bytes.is_empty() {
                true => Ok(Self(None)),
                false => Err(not_json()),
            };
        }
        let body = JsonBody::<Option<T>, LIMIT>::from_request(request, state).await?;
        Ok(Self(body.value))
    }
}

fn not_json() -> Problem {
    let message = "send the body as JSON with content-type: application/json";
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", message)
}

async fn read(body: Body, limit: usize) -> Result<Bytes> {
    // A declared length is believed at once, without reading a byte.
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let read = tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, limit)).await;
    let Ok(read) = read else { return Err(too_slow()) };
    read.map_err(|error| {
        if is_length_limit(&error) {
            return too_large(limit);
        }
        unreadable()
    })
}

/// The answer to a body that did not arrive in time.
pub(crate) fn too_slow() -> Problem {
    let message = format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs());
    Problem::new(StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", message)
}

/// The answer to a body over its limit.
pub(crate) fn too_large(bytes_max: usize) -> Problem {
    let message = format!("the body has more than {bytes_max} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", message)
}

/// The answer to a body that broke off.
pub(crate) fn unreadable() -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "BAD_REQUEST", "the body could not be read to its end")
}

fn is_length_limit(error: &axum::Error) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(inner) = source {
        // The type is not part of axum's interface; its text is the only mark.
        if inner.to_string().contains("length limit exceeded") {
            return true;
        }
        source = inner.source();
    }
    false
}

fn malformed(error: serde_json::Error) -> Problem {
    let message = error.to_string();
    if error.is_data() {
        return Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "INVALID", message);
    }
    Problem::new(StatusCode::BAD_REQUEST, "MALFORMED_JSON", format!("the body is not JSON: {message}"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

/// The query string.
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(value)| Self(value)).map_err(|error| Problem::invalid("query", error.body_text()))
    }
}

/// A text that was given: one that is empty, as forms send it, was not.
pub(crate) fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// A number in a range, if it was given.
pub(crate) fn number<N: std::str::FromStr + PartialOrd + std::fmt::Display>(
    field: &str,
    text: Option<&str>,
    range: RangeInclusive<N>,
) -> Result<Option<N>> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let number = text.parse().ok().filter(|number| range.contains(number));
    let wrong =
        || Problem::invalid(field, format!("is {text}; allowed are {} to {}", range.start(), range.end()));
    number.ok_or_else(wrong).map(Some)
}

/// Whether something was asked for with `true`.
pub(crate) fn flag(field: &str, text: Option<&str>) -> Result<bool> {
    match text {
        None | Some("" | "false" | "0") => Ok(false),
        Some("true" | "1" | "on") => Ok(true),
        Some(other) => Err(Problem::invalid(field, format!("is {other:?}; allowed are true, false"))),
    }
}

/// The last part of a job's path; anything that is no id names no job.
pub(crate) fn job_id(text: &str) -> Result<JobId> {
    text.parse().map_err(|_| Problem::not_found("job", text.chars().take(40).collect::<String>()))
}

/// An instant such as `2026-01-31T12:00:00Z`.
pub(crate) fn timestamp(field: &str, text: &str) -> Result<Timestamp> {
    text.parse().map_err(|_| {
        Problem::invalid(field, format!("{text:?} is not an instant; e.g. 2026-01-31T12:00:00Z"))
    })
}

/// An instant, or how long ago.
pub(crate) fn timestamp_or_age(field: &str, text: &str) -> Result<Timestamp> {
    match duration(field, text) {
        Ok(age) => clock::wall().checked_sub(age).map_err(|_| Problem::invalid(field, "lies too far back")),
        Err(_) => timestamp(field, text),
    }
}

/// A duration such as `90s`, `5m`, `1h30m`, `2d` or `PT5M`; a bare number means seconds.
pub(crate) fn duration(field: &str, text: &str) -> Result<Duration> {
    let wrong = || Problem::invalid(field, format!("{text:?} is not a duration; e.g. 90s, 5m, 1h30m, 2d"));
    if let Ok(seconds) = text.trim().parse::<f64>() {
        return seconds_to_duration(field, seconds);
    }
    let span: Span = text.trim().parse().map_err(|_| wrong())?;
    let exact = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    Duration::try_from(exact).map_err(|_| Problem::invalid(field, "is negative"))
}

/// Seconds, with a fraction if need be.
pub(crate) fn seconds_to_duration(field: &str, seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Problem::invalid(field, format!("is {seconds}; not a number of seconds")))
}

/// Where a request is part of a trace, if it says so well: whatever else is in that header concerns nobody.
pub(crate) fn context(headers: &HeaderMap) -> Option<Context> {
    Context::parse(headers.get("traceparent")?.to_str().ok()?)
}

/// The enqueuer's trace context, as a job keeps it.
pub(crate) fn traceparent(headers: &HeaderMap) -> Option<String> {
    context(headers).map(|context| context.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_the_usual_spellings() {
        let seconds = |text| duration("delay", text).map(|d| d.as_secs_f64()).ok();
        assert_eq!(seconds("90"), Some(90.0));
        assert_eq!(seconds("0.5"), Some(0.5));
        assert_eq!(seconds("90s"), Some(90.0));
        assert_eq!(seconds("1h30m"), Some(5400.0));
        assert_eq!(seconds("250ms"), Some(0.25));
        assert_eq!(seconds("2d"), Some(172_800.0));
        assert_eq!(seconds("PT5M"), Some(300.0));
        for wrong in ["", "soon", "-5", "-5m", "1 month", "NaN", "inf", "1e300", "99999999999999999999d"] {
            assert_eq!(seconds(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn only_a_well_formed_traceparent_counts() {
        let with = |text: &'static str| {
            traceparent(&HeaderMap::from_iter([(
                header::HeaderName::from_static("traceparent"),
                text.parse().unwrap(),
            )]))
        };
        let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(with(valid).as_deref(), Some(valid));
        for wrong in ["", "x", "00-0-0-0", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"] {
            assert_eq!(with(wrong), None, "{wrong:?}");
        }
    }
}
