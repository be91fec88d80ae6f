//! Asks a JSON API: headers, redirects, the pace of requests, and what an answer without a page means.
//!
//! Headers carry tokens, so a request never leaves the origin that the directive names, and what a server sends back is
//! shown without them.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use stargate_base::clock;
use stargate_directive::file::{HttpSource, Rate};
use stargate_directive::source::SourceError;
use tokio::time::{Instant, sleep_until, timeout};

use super::address::shown;
use super::hidden::Hidden;
use super::link::Home;
use crate::problem::{fatal, transient};
use crate::{Surroundings, reveal};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REDIRECTS_MAX: usize = 5;
/// The longest wait a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// From here on the end of a limit is a time, below it a delay.
const RESET_IS_TIME: u64 = 1_000_000_000;
/// What is shown of a text that should have been something else.
const SHOWN_CHARS: usize = 80;
/// What is read of an answer that is not a page.
const DETAIL_BYTES_MAX: usize = 4096;
/// Shorter words are too common to be hidden.
const SECRET_BYTES_MIN: usize = 6;

/// Asks one API, in its pace.
pub(super) struct Caller {
    client: Client,
    headers: HeaderMap,
    /// The address that the directive names.
    pub(super) home: Home,
    /// The address for messages.
    pub(super) label: String,
    secrets: Vec<String>,
    /// How long a server may be silent.
    pub(super) patience: Duration,
    interval: Duration,
    next_at: Option<Instant>,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("label", &self.label).finish_non_exhaustive()
    }
}

impl Caller {
    pub(super) fn new(source: &HttpSource, around: &Surroundings) -> Result<Self, SourceError> {
        let label = shown(&source.url.to_string());
        let wrong = |what: String| fatal("SOURCE_SETTING", what);
        let text = reveal(&source.url, around)?;
        let base = Url::parse(text.reveal()).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let base = base.ok_or_else(|| wrong(format!("{label} is no address of http or https")))?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        let hidden = Hidden::new(source, around);
        let mut secrets: Vec<String> = hidden.texts().collect();
        secrets.extend(base.password().into_iter().chain([base.username()]).map(str::to_owned));
        secrets.extend(base.query_pairs().map(|(_, value)| value.into_owned()));
        for (name, value) in &source.headers {
            let value = reveal(value, around)?;
            let wrong =
                |_| wrong(format!("{label}: the header {name:?} or its value is not allowed in HTTP"));
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(()))?;
            let mut sent = HeaderValue::from_str(value.reveal()).map_err(|_| wrong(()))?;
            sent.set_sensitive(true);
            headers.insert(header, sent);
            secrets.extend(value.reveal().split_ascii_whitespace().map(str::to_owned));
        }
        secrets.retain(|secret| secret.len() >= SECRET_BYTES_MIN);
        // Short ones may be parts of long ones.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("stargate/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| wrong(format!("cannot make requests: {error}")))?;
        let interval = source.rate_limit.map_or(Duration::ZERO, interval);
        let patience = source.timeout;
        let home = Home { url: base, hidden, written: source.url.to_string() };
        Ok(Self { client, headers, home, label, secrets, patience, interval, next_at: None })
    }

    /// An answer with a page.
    pub(super) async fn get(&mut self, url: Url) -> Result<Response, SourceError> {
        let mut url = url;
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send(url.clone()).await?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            let location = response.headers().get(LOCATION).filter(|_| status.is_redirection());
            match location.and_then(|location| location.to_str().ok()) {
                Some(location) => url = self.at_home(&url, location, "redirect")?,
                None => return Err(self.refused(response).await),
            }
        }
        let message =
            format!("{} redirects more than {REDIRECTS_MAX} times; write the final address", self.label);
        Err(fatal("SOURCE_REDIRECT", message))
    }

    /// Where a redirect or link leads, if that is the same origin.
    pub(super) fn at_home(&self, from: &Url, to: &str, what: &str) -> Result<Url, SourceError> {
        let mut to = from.join(to).ok();
        if let Some(to) = &mut to {
            // A name and password in the address are ours to send. Addresses that can have none go elsewhere anyway.
            let _ = to.set_username(self.home.url.username());
            let _ = to.set_password(self.home.url.password());
        }
        let home = self.home.url.origin();
        to.as_ref().filter(|to| to.origin() == home).cloned().ok_or_else(|| {
            let place = to.map_or_else(|| "no address".to_owned(), |to| to.origin().ascii_serialization());
            let message = format!(
                "{}: a {what} leads to {place}; headers are sent to {} only: name the right address in the \
                 directive",
                self.label,
                home.ascii_serialization()
            );
            fatal("SOURCE_REDIRECT", message)
        })
    }

    async fn send(&mut self, url: Url) -> Result<Response, SourceError> {
        if let Some(at) = self.next_at {
            sleep_until(at).await;
        }
        self.next_at = Some(Instant::now() + self.interval);
        let request = self.client.get(url).headers(self.headers.clone()).send();
        match timeout(self.patience, request).await {
            Err(_) => Err(self.silent()),
            Ok(Err(error)) => Err(self.unreachable(error)),
            Ok(Ok(response)) => Ok(response),
        }
    }

    pub(super) fn silent(&self) -> SourceError {
        let message = format!(
            "{} was silent for {:?}; ask for smaller pages or raise `timeout` if it always takes so long",
            self.label, self.patience
        );
        transient("SOURCE_TIMEOUT", message)
    }

    /// No answer, or none to the end.
    pub(super) fn unreachable(&self, error: reqwest::Error) -> SourceError {
        let is_timeout = error.is_timeout() && !error.is_connect();
        // The address in it may hold a password; the causes below it do not.
        let error = error.without_url();
        let (mut causes, mut is_network, mut source) =
            (String::new(), false, std::error::Error::source(&error));
        while let Some(inner) = source {
            causes.push_str(": ");
            causes.push_str(&inner.to_string());
            let io = inner.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
            is_network |= io.is_some_and(|kind| kind != std::io::ErrorKind::UnexpectedEof);
            source = inner.source();
        }
        let causes = self.redacted(causes);
        let label = &self.label;
        if is_timeout {
            self.silent()
        } else if (error.is_body() || error.is_decode()) && !is_network {
            transient("SOURCE_GARBLED", format!("{label}: the answer broke off before its end{causes}"))
        } else {
            transient("SOURCE_UNREACHABLE", format!("{label} could not be reached{causes}"))
        }
    }

    /// What an answer means that is not a page.
    async fn refused(&self, mut response: Response) -> SourceError {
        let status = response.status();
        let limit = Limit::read(response.headers(), clock::wall());
        let mut body = Vec::new();
        while let Ok(Ok(Some(chunk))) = timeout(self.patience, response.chunk()).await {
            body.extend_from_slice(&chunk[..chunk.len().min(DETAIL_BYTES_MAX)]);
            if body.len() >= DETAIL_BYTES_MAX {
                break;
            }
        }
        let detail = self.excerpt(&body);
        let mut message = format!("{} answered {status}", self.label);
        if !detail.is_empty() {
            message.push_str(&format!(": {detail:?}"));
        }
        judged(status, message, limit)
    }

    /// The beginning of a text for a message: what can be printed, without secrets.
    pub(super) fn excerpt(&self, bytes: &[u8]) -> String {
        let text = self.redacted(String::from_utf8_lossy(bytes).into_owned());
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        words.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect()
    }

    fn redacted(&self, text: String) -> String {
        self.secrets.iter().fold(text, |text, secret| text.replace(secret.as_str(), "***"))
    }
}

/// What an answer says of how often the source may be asked.
#[derive(Debug, Clone, Copy, Default)]
struct Limit {
    is_reached: bool,
    wait: Option<Duration>,
}

impl Limit {
    fn read(headers: &HeaderMap, now: Timestamp) -> Self {
        let read = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        let first = |names: [&str; 2]| names.iter().find_map(|name| read(name));
        let is_used_up = first(["x-ratelimit-remaining", "ratelimit-remaining"]) == Some("0");
        let reset = first(["x-ratelimit-reset", "ratelimit-reset"]).filter(|_| is_used_up);
        let wait = read(RETRY_AFTER.as_str()).and_then(|text| retry_delay(text, now));
        Self {
            is_reached: is_used_up || headers.contains_key(RETRY_AFTER),
            wait: wait.or_else(|| reset.and_then(|text| reset_delay(text, now))),
        }
    }
}

/// How a status is to be treated.
fn judged(status: StatusCode, message: String, limit: Limit) -> SourceError {
    match status.as_u16() {
        408 | 425 | 429 | 500..=599 => SourceError {
            retry_after: limit.wait,
            limited: matches!(status.as_u16(), 429 | 503),
            ..transient("SOURCE_STATUS", message)
        },
        // Some say so that they are asked too often.
        403 if limit.is_reached => {
            SourceError { retry_after: limit.wait, limited: true, ..transient("SOURCE_STATUS", message) }
        }
        401 | 403 => fatal("SOURCE_REFUSED", format!("{message}; check the token that the directive names")),
        _ => fatal("SOURCE_STATUS", message),
    }
}

/// When a limit begins anew: in so many seconds, or at a second since 1970.
fn reset_delay(text: &str, now: Timestamp) -> Option<Duration> {
    let seconds: u64 = text.parse().ok()?;
    let passed = if seconds >= RESET_IS_TIME { u64::try_from(now.as_second()).ok()? } else { 0 };
    seconds.checked_sub(passed).map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

/// `Retry-After`: seconds or an HTTP date. A date in the past says nothing: it is as likely a wrong clock.
fn retry_delay(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
    }
    let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    let ahead = Duration::try_from(at.duration_since(now)).ok()?;
    Some(ahead.min(RETRY_AFTER_MAX))
}

/// The time between two requests.
fn interval(rate: Rate) -> Duration {
    rate.per.checked_div(rate.count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use stargate_base::ErrorClass;

    use super::*;

    #[test]
    fn each_status_has_its_class() {
        let judge = |status: u16| {
            let error = judged(StatusCode::from_u16(status).unwrap(), String::new(), Limit::default());
            (error.class, error.code, error.limited)
        };
        for status in [408, 425, 500, 502, 504, 599] {
            assert_eq!(judge(status), (ErrorClass::RetryableTransient, "SOURCE_STATUS", false), "{status}");
        }
        for status in [429, 503] {
            assert_eq!(judge(status), (ErrorClass::RetryableTransient, "SOURCE_STATUS", true), "{status}");
        }
        for status in [401, 403] {
            assert_eq!(judge(status), (ErrorClass::Fatal, "SOURCE_REFUSED", false), "{status}");
        }
        for status in [304, 400, 404, 410, 418] {
            assert_eq!(judge(status), (ErrorClass::Fatal, "SOURCE_STATUS", false), "{status}");
        }
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_date_and_capped_to_an_hour() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let read = |text: &str| retry_delay(text, now).map(|delay| delay.as_secs());
        assert_eq!(read(" 17 "), Some(17));
        assert_eq!(read("86400"), Some(3600));
        assert_eq!(read("Mon, 16 Nov 2026 12:01:30 GMT"), Some(90));
        assert_eq!(read("Tue, 17 Nov 2026 12:00:00 GMT"), Some(3600));
        for nothing in ["Mon, 16 Nov 2026 11:00:00 GMT", "-1", "soon", "1.5"] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn the_end_of_a_limit_is_read_as_delay_or_time_and_capped_to_an_hour() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let read = |text: &str| reset_delay(text, now).map(|delay| delay.as_secs());
        let at = |ahead: i64| (now.as_second() + ahead).to_string();
        assert_eq!((read("17"), read("86400")), (Some(17), Some(3600)));
        assert_eq!((read(&at(90)), read(&at(86400)), read(&at(-1))), (Some(90), Some(3600), None));
        assert_eq!((read("soon"), read("-1")), (None, None));
    }

    #[test]
    fn requests_are_spaced_evenly() {
        let rate = |count, secs| interval(Rate { count, per: Duration::from_secs(secs) });
        assert_eq!(rate(10, 1), Duration::from_millis(100));
        assert_eq!(rate(30, 60), Duration::from_secs(2));
        assert_eq!(rate(0, 60), Duration::ZERO);
    }
}
