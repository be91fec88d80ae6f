//! Brings deliveries to the servers of webhooks: one POST each.
//!
//! Whoever may enter a hook chooses its address, so it is guarded like a download: only hosts of the internet are
//! called, unless the settings allow private ones. Redirects are not followed: they would carry the event to a place
//! that nobody entered. Answers mean what they mean for the kind [`http`](crate::http).
//!
//! A hook with a `secret_ref` is signed as that kind signs, with the secret that the program knows by this name. A
//! secret that is not there fails the delivery ([`SECRET_MISSING`]): sent without a signature it would be taken for a
//! forgery, or worse, for good. Failures hold neither a secret nor the path of the address.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response};
use stargate_base::{ErrorClass, Secret, clock};
use stargate_queue::handler::Failure;
use stargate_repo::handlers::DELIVER_TIMEOUT;
use stargate_repo::{Courier, Delivery};
use url::Url;

use crate::clip::SSRF_BLOCKED;
use crate::fetch::{Reach, is_blocked};
use crate::http::{ConfigError, Verdict, client_builder, origin, refused, signature, unreachable, verdict};

/// The secret that a hook is to be signed with is not in the configuration of the worker.
pub const SECRET_MISSING: &str = "SECRET_MISSING";

/// How long a hook's server may take by default, from the name service to the end of its answer.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest it can be given. Shorter than the timeout of the job, so that the failure tells which server it was.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(50);
const _: () = assert!(TIMEOUT_MAX.as_secs() + 5 <= DELIVER_TIMEOUT.as_secs(), "the job must not end first");

/// Finds the secret behind a `secret_ref`.
pub type Secrets = Arc<dyn Fn(&str) -> Option<Secret> + Send + Sync>;

/// How deliveries are made.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether hooks may lead into private networks. Then whoever may enter a hook can have this worker POST there.
    pub allow_private: bool,
    /// How long a server may take.
    pub timeout: Duration,
    /// Deliveries at once: servers that keep us waiting must not have all the room that there is for jobs.
    pub at_once: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { allow_private: false, timeout: TIMEOUT, at_once: None }
    }
}

/// A courier that speaks HTTP.
#[derive(Clone)]
pub struct HttpCourier {
    client: Client,
    reach: Reach,
    secrets: Secrets,
    at_once: Option<usize>,
}

impl std::fmt::Debug for HttpCourier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpCourier").field("reach", &self.reach).finish_non_exhaustive()
    }
}

impl HttpCourier {
    /// A courier that asks `secrets` for what a `secret_ref` names, anew for each delivery.
    pub fn new(settings: &Settings, secrets: Secrets) -> Result<Self, ConfigError> {
        let reach = if settings.allow_private { Reach::Any } else { Reach::Public };
        let courier = Self::reaching(reach, settings.timeout.min(TIMEOUT_MAX), secrets)?;
        Ok(Self { at_once: settings.at_once, ..courier })
    }

    fn reaching(reach: Reach, timeout: Duration, secrets: Secrets) -> Result<Self, ConfigError> {
        let client = client_builder()
            .referer(false)
            .dns_resolver(reach.resolver())
            .timeout(timeout)
            // A connection that the server has closed meanwhile would cost an attempt.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(ConfigError::Client)?;
        Ok(Self { client, reach, secrets, at_once: None })
    }

    fn secret(&self, delivery: &Delivery) -> Result<Option<Secret>, Failure> {
        let Some(name) = &delivery.hook.hook.secret_ref else { return Ok(None) };
        // Anybody can sign with an empty secret.
        let found = (self.secrets)(name).filter(|secret| !secret.reveal().is_empty());
        let missing = || {
            let message = format!(
                "webhook {} is signed with the secret {name}, which this worker does not have under [webhooks.secrets]; \
                 add it there, restart the worker, and retry the job",
                delivery.hook.id
            );
            Failure::new(SECRET_MISSING, ErrorClass::Fatal, message)
        };
        found.ok_or_else(missing).map(Some)
    }

    async fn send(
        &self,
        url: &Url,
        delivery: &Delivery,
        secret: Option<&Secret>,
    ) -> reqwest::Result<Response> {
        let content = delivery.body();
        let event = content["event"].as_str().unwrap_or_default();
        let mut request = self
            .client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", delivery.id.to_string())
            .header("x-stargate-delivery", delivery.id.to_string())
            .header("x-stargate-event", event);
        let body = content.to_string();
        if let Some(secret) = secret {
            let signed = signature(secret, clock::wall().as_second(), &body);
            request = request.header("x-stargate-signature", signed);
        }
        request.body(body).send().await
    }
}

#[async_trait]
impl Courier for HttpCourier {
    async fn deliver(&self, delivery: &Delivery) -> Result<(), Failure> {
        let url = address(delivery)?;
        let origin = origin(&url);
        if !self.reach.admits(&url) {
            return Err(blocked(&origin));
        }
        let secret = self.secret(delivery)?;
        let parts = parts(&url);
        let hidden: Vec<&str> =
            parts.iter().map(String::as_str).chain(secret.as_ref().map(Secret::reveal)).collect();
        let response = match self.send(&url, delivery, secret.as_ref()).await {
            Err(error) if is_blocked(&error) => return Err(blocked(&origin)),
            Err(error) => return Err(unreachable(error, &origin, &hidden)),
            Ok(response) if !self.reach.admits_answer(&response) => return Err(blocked(&origin)),
            Ok(response) => response,
        };
        match verdict(response.status()) {
            // What the server says to it is of no use to anybody, and is not read.
            Verdict::Ok => Ok(()),
            Verdict::Failed(code, class) => {
                let is_redirect = response.status().is_redirection();
                let mut failure = refused(response, &origin, &hidden, code, class).await;
                if is_redirect {
                    failure.error.message.push_str(", which is not followed; enter the address it leads to");
                }
                Err(failure)
            }
        }
    }

    fn at_once(&self) -> Option<usize> {
        self.at_once
    }
}

/// Where to send. It was checked when the hook was entered, by a version that may have been another.
fn address(delivery: &Delivery) -> Result<Url, Failure> {
    let hook = &delivery.hook;
    let wrong = |problem: String| Failure::invalid(format!("webhook {}: {problem}", hook.id));
    hook.hook.check().map_err(|error| wrong(error.to_string()))?;
    Url::parse(&hook.hook.url).map_err(|_| wrong("url is not an address".to_owned()))
}

fn blocked(origin: &str) -> Failure {
    let message = format!(
        "{origin} leads to a private address, which is refused unless webhooks.allow_private is true"
    );
    Failure::new(SSRF_BLOCKED, ErrorClass::ValidationFailure, message)
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

#[cfg(test)]
mod tests;
