//! Brings a JSON text to a server that somebody else named: guarded, signed, judged.
//!
//! Only hosts of the internet are called, unless private ones are allowed. Redirects are not followed: they would
//! carry the text to a place that nobody entered. Failures hold neither a secret nor the path of the address.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response, StatusCode};
use stargate_base::{ErrorClass, Secret, clock};
use stargate_queue::handler::Failure;
use url::Url;

use crate::clip::SSRF_BLOCKED;
use crate::fetch::{Reach, is_blocked};
use crate::http::{ConfigError, Verdict, client_builder, origin, refused, signature, unreachable, verdict};

/// How long a connection that nobody uses is kept. Servers close theirs after five seconds and more.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// Who posts.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    client: Client,
    reach: Reach,
    /// The setting that allows private addresses, for the message.
    permit: &'static str,
}

/// One thing to bring.
#[derive(Debug)]
pub(crate) struct Letter<'a> {
    pub(crate) url: &'a Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    pub(crate) secret: Option<&'a Secret>,
}

/// Why it did not arrive.
#[derive(Debug)]
pub(crate) struct Unposted {
    pub(crate) failure: Failure,
    /// What the server answered, if it did.
    pub(crate) status: Option<StatusCode>,
}

impl From<Failure> for Unposted {
    fn from(failure: Failure) -> Self {
        Self { failure, status: None }
    }
}

impl Post {
    /// Gives a server `timeout` from the name service to the end of its answer, and keeps up to `idle` connections
    /// for the next letter.
    pub(crate) fn new(
        reach: Reach,
        timeout: Duration,
        idle: usize,
        permit: &'static str,
    ) -> Result<Self, ConfigError> {
        let client = client_builder()
            .referer(false)
            .dns_resolver(reach.resolver())
            .timeout(timeout)
            .pool_max_idle_per_host(idle)
            .pool_idle_timeout(IDLE_MAX)
            .build()
            .map_err(ConfigError::Client)?;
        Ok(Self { client, reach, permit })
    }

    pub(crate) fn reach(&self) -> Reach {
        self.reach
    }

    /// Brings a letter. Answers mean what they mean for the kind [`http`](crate::http).
    pub(crate) async fn bring(&self, letter: Letter<'_>) -> Result<(), Unposted> {
        let (url, secret) = (letter.url, letter.secret);
        let origin = origin(url);
        if !self.reach.admits(url) {
            return Err(self.blocked(&origin).into());
        }
        let parts = parts(url);
        let hidden: Vec<&str> = parts.iter().map(String::as_str).chain(secret.map(Secret::reveal)).collect();
        let response = match self.send(letter).await {
            Err(error) if is_blocked(&error) => return Err(self.blocked(&origin).into()),
            Err(error) => return Err(unreachable(error, &origin, &hidden).into()),
            Ok(response) if !self.reach.admits_answer(&response) => return Err(self.blocked(&origin).into()),
            Ok(response) => response,
        };
        match verdict(response.status()) {
            // What the server says to it is of no use to anybody, and is not read.
            Verdict::Ok => Ok(()),
            Verdict::Failed(code, class) => {
                let status = response.status();
                let mut failure = refused(response, &origin, &hidden, code, class).await;
                if status.is_redirection() {
                    failure.error.message.push_str(", which is not followed; enter the address it leads to");
                }
                Err(Unposted { failure, status: Some(status) })
            }
        }
    }

    async fn send(&self, letter: Letter<'_>) -> reqwest::Result<Response> {
        let mut request = self
            .client
            .post(letter.url.clone())
            .headers(letter.headers)
            .header(CONTENT_TYPE, "application/json");
        if let Some(secret) = letter.secret {
            let signed = signature(secret, clock::wall().as_second(), &letter.body);
            request = request.header("x-stargate-signature", signed);
        }
        request.body(letter.body).send().await
    }

    fn blocked(&self, origin: &str) -> Failure {
        let permit = self.permit;
        let message =
            format!("{origin} leads to a private address, which is refused unless {permit} is true");
        Failure::new(SSRF_BLOCKED, ErrorClass::ValidationFailure, message)
    }
}

/// What an answer may repeat of the address behind the host: all of it, the path, and each part as it is written and
/// as a server decodes it.
fn parts(url: &Url) -> Vec<String> {
    let query = url.query().unwrap_or_default();
    let mut parts = vec![format!("{}?{query}", url.path()), url.path().to_owned(), query.to_owned()];
    let words = url.path().split('/').chain(query.split(['&', '=', ';', '/']));
    for word in words.filter(|word| !word.is_empty()) {
        parts.push(word.to_owned());
        // In a path a plus is a plus, in a query a space.
        for text in [word.replace('+', "%2B"), word.to_owned()] {
            let decoded = url::form_urlencoded::parse(text.as_bytes());
            parts.extend(decoded.flat_map(|(name, value)| [name.into_owned(), value.into_owned()]));
        }
    }
    parts
}
