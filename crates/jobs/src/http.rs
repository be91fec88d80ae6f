//! Handlers that are servers: one POST for each execution.
//!
//! 2xx is well and its JSON body the result; 408, 425, 429 and 5xx are transient, after the server's own
//! `Retry-After` if it named one; any other answer, a redirect included, is a validation failure. A redirect is
//! not followed because it would carry the payload to a place that nobody configured.
//!
//! With a secret the body is signed: `X-Stargate-Signature: t=<unix seconds>,v1=<hex>` where the hex is
//! HMAC-SHA256 of `<t>.<body>`. The receiver compares and refuses old times; [`signature`] is that function.

use std::time::Duration;

use async_trait::async_trait;
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, Response, StatusCode};
use serde_json::value::RawValue;
use sha2::Sha256;
use stargate_base::{ErrorClass, Secret, clock};
use stargate_queue::context::Context;
use stargate_queue::handler::{Failure, Handler, HandlerResult};
use stargate_queue::job::{Json, PAYLOAD_BYTES_MAX, check_json_size};
use stargate_queue::trace;
use url::Url;

use crate::execution::{Execution, stopped};

/// The server could not be reached, or the connection broke.
pub const HTTP_UNREACHABLE: &str = "HTTP_UNREACHABLE";
/// The server refuses this payload.
pub const HTTP_REJECTED: &str = "HTTP_REJECTED";
/// The server cannot do it now.
pub const HTTP_UNAVAILABLE: &str = "HTTP_UNAVAILABLE";

/// The longest delay a server may ask for.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// How much of a refusal's body is kept with the job.
const DETAIL_BYTES_MAX: usize = 4096;
/// Shorter texts are no secrets, and without them an answer could not be read.
const SECRET_BYTES_MIN: usize = 6;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A kind's http setting that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not an address that can be called. The address itself may hold a password and is not repeated.
    #[error("the http setting is not an address such as http://127.0.0.1:9000/hook")]
    Url,
    /// A header that HTTP does not allow.
    #[error("header {name:?} is not allowed by HTTP")]
    Header {
        /// Its name; its value may be a secret.
        name: String,
    },
    /// The TLS library did not start.
    #[error("the HTTP client could not be set up")]
    Client(#[source] reqwest::Error),
}

/// A handler that calls a server for each execution.
#[derive(Debug, Clone)]
pub struct Http {
    url: Url,
    secret: Option<Secret>,
    headers: HeaderMap,
    client: Client,
}

/// A client as this handler wants it: no redirects, no proxy from the environment.
pub fn client() -> Result<Client, ConfigError> {
    client_builder().build().map_err(ConfigError::Client)
}

pub(crate) fn client_builder() -> ClientBuilder {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("stargate/", env!("CARGO_PKG_VERSION")))
}

impl Http {
    /// A handler that calls `url`, with a client from [`client`] that several handlers may share.
    pub fn new(url: &str, client: Client) -> Result<Self, ConfigError> {
        let url = Url::parse(url).map_err(|_| ConfigError::Url)?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(ConfigError::Url);
        }
        Ok(Self { url, secret: None, headers: HeaderMap::new(), client })
    }

    /// Signs every body.
    #[must_use]
    pub fn with_secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// Adds a header to every call. Its value never appears in an error or a log line.
    pub fn with_header(mut self, name: &str, value: &Secret) -> Result<Self, ConfigError> {
        let wrong = || ConfigError::Header { name: name.to_owned() };
        let header: HeaderName = name.parse().map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.reveal()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        self.headers.insert(header, value);
        Ok(self)
    }

    async fn execute(&self, execution: &Execution<'_>) -> HandlerResult {
        let call = async {
            let response = self.send(execution).await.map_err(|error| self.unreached(error))?;
            match verdict(response.status()) {
                Verdict::Ok => self.result(response).await,
                Verdict::Failed(code, class) => {
                    Err(refused(response, &origin(&self.url), &self.secrets(), code, class).await)
                }
            }
        };
        tokio::select! {
            result = call => result,
            () = execution.stopping.cancelled() => Err(stopped()),
        }
    }

    async fn send(&self, execution: &Execution<'_>) -> reqwest::Result<Response> {
        let body = execution.payload.to_owned();
        let mut request = self
            .client
            .post(self.url.clone())
            .timeout(execution.timeout)
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", execution.job.to_string())
            .header("x-stargate-job-id", execution.job.to_string())
            .header("x-stargate-attempt", execution.attempt.to_string())
            .header("x-stargate-kind", execution.kind);
        if let Some(parent) = trace::context(execution.trace_id, execution.job, execution.attempt) {
            request = request.header("traceparent", parent.to_string());
        }
        if let Some(secret) = &self.secret {
            let signed = signature(secret, clock::wall().as_second(), &body);
            request = request.header("x-stargate-signature", signed);
        }
        request.body(body).send().await
    }

    /// The body of a success, if it is JSON that can be kept.
    async fn result(&self, mut response: Response) -> Result<Option<Json>, Failure> {
        let is_json = response.headers().get(CONTENT_TYPE).is_some_and(is_json);
        if !is_json || response.content_length().is_some_and(|length| length > PAYLOAD_BYTES_MAX as u64) {
            return Ok(None);
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreached(error))? {
            if body.len() + chunk.len() > PAYLOAD_BYTES_MAX {
                tracing::debug!(
                    bytes_max = PAYLOAD_BYTES_MAX,
                    "the answer is too large to be kept as the result"
                );
                return Ok(None);
            }
            body.extend_from_slice(&chunk);
        }
        let result = String::from_utf8(body).ok().and_then(|text| RawValue::from_string(text).ok());
        Ok(result.filter(|json| json.get() != "null" && check_json_size("result", json.get()).is_ok()))
    }

    fn unreached(&self, error: reqwest::Error) -> Failure {
        unreachable(error, &origin(&self.url), &self.secrets())
    }

    /// What must not be seen, although servers do repeat what they were sent.
    fn secrets(&self) -> Vec<&str> {
        let values = self.headers.values().filter_map(|value| value.to_str().ok());
        let words = values.flat_map(|value| std::iter::once(value).chain(value.split_ascii_whitespace()));
        words.chain(self.secret.iter().map(Secret::reveal)).chain(self.url.password()).collect()
    }
}

#[async_trait]
impl Handler for Http {
    async fn run(&self, context: Context) -> HandlerResult {
        self.execute(&Execution::of(&context)).await
    }
}

/// The value of `X-Stargate-Signature` for a body sent at a time in unix seconds.
pub fn signature(secret: &Secret, unix_seconds: i64, body: &str) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()).expect("HMAC takes keys of any length");
    mac.update(unix_seconds.to_string().as_bytes());
    mac.update(b".");
    mac.update(body.as_bytes());
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={unix_seconds},v1={hex}")
}

/// What an answer means for the job.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Ok,
    Failed(&'static str, ErrorClass),
}

pub(crate) fn verdict(status: StatusCode) -> Verdict {
    match status.as_u16() {
        200..=299 => Verdict::Ok,
        408 | 425 | 429 | 500..=599 => Verdict::Failed(HTTP_UNAVAILABLE, ErrorClass::RetryableTransient),
        _ => Verdict::Failed(HTTP_REJECTED, ErrorClass::ValidationFailure),
    }
}

/// The failure that an answer is, with the beginning of its body and without the secrets in it.
pub(crate) async fn refused(
    mut response: Response,
    origin: &str,
    secrets: &[&str],
    code: &str,
    class: ErrorClass,
) -> Failure {
    let failure = Failure::new(code, class, format!("{origin} answered {}", response.status()));
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(|text| retry_delay(text, clock::wall()));
    let detail = beginning(&mut response, secrets).await;
    let failure = if detail.trim().is_empty() { failure } else { failure.with_detail(detail) };
    match retry_after.filter(|_| !class.is_poison()) {
        Some(delay) => failure.with_retry_after(delay),
        None => failure,
    }
}

/// The beginning of a body. Where it was cut, a secret may have been cut too and not be recognised any more, so as
/// much as the longest of them is left out.
async fn beginning(response: &mut Response, secrets: &[&str]) -> String {
    let mut body = Vec::new();
    let is_whole = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk[..chunk.len().min(DETAIL_BYTES_MAX + 1)]),
            Ok(None) => break true,
            Err(_) => break false,
        }
        if body.len() > DETAIL_BYTES_MAX {
            body.truncate(DETAIL_BYTES_MAX);
            break false;
        }
    };
    let mut text = redacted(String::from_utf8_lossy(&body).replace('\0', "\u{FFFD}"), secrets);
    if !is_whole {
        // A character that was cut takes up to two bytes more than before.
        let longest = secrets.iter().map(|secret| secret.len() + 2).max().unwrap_or(0);
        text.truncate(text.floor_char_boundary(text.len().saturating_sub(longest)));
    }
    text
}

/// The failure of a call that got no answer.
pub(crate) fn unreachable(error: reqwest::Error, origin: &str, secrets: &[&str]) -> Failure {
    let what = if error.is_timeout() { "did not answer in time" } else { "could not be reached" };
    // The address in the error may hold a password; the causes below it do not.
    let error = error.without_url();
    let mut message = format!("{origin} {what}");
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        message.push_str(": ");
        message.push_str(&inner.to_string());
        source = inner.source();
    }
    Failure::new(HTTP_UNREACHABLE, ErrorClass::RetryableTransient, redacted(message, secrets))
}

/// Scheme, host and port. Path and query of a hook are often its password.
pub(crate) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Without the secrets. Long ones go first, because short ones may be parts of them.
fn redacted(mut text: String, secrets: &[&str]) -> String {
    let mut secrets: Vec<&str> = secrets.iter().copied().filter(|s| s.len() >= SECRET_BYTES_MIN).collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    for secret in secrets {
        text = text.replace(secret, "***");
    }
    text
}

/// `Retry-After`: seconds or an HTTP date. A date in the past says nothing: it is as likely a wrong clock.
pub(crate) fn retry_delay(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
    }
    let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    let ahead = Duration::try_from(at.duration_since(now)).ok()?;
    Some(ahead.min(RETRY_AFTER_MAX))
}

fn is_json(content_type: &HeaderValue) -> bool {
    let essence = content_type.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json") || essence.to_ascii_lowercase().ends_with("+json")
}

#[cfg(test)]
pub(crate) mod tests;
