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
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use stargate_base::{ErrorClass, Secret};
use stargate_queue::handler::Failure;
use stargate_repo::handlers::DELIVER_TIMEOUT;
use stargate_repo::{Courier, Delivery};
use url::Url;

use crate::fetch::Reach;
use crate::http::ConfigError;
use crate::post::{Letter, Post};

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
    post: Post,
    secrets: Secrets,
    at_once: Option<usize>,
}

impl std::fmt::Debug for HttpCourier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpCourier").field("reach", &self.post.reach()).finish_non_exhaustive()
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
        // A connection that the server has closed meanwhile would cost an attempt.
        let post = Post::new(reach, timeout, 0, "webhooks.allow_private")?;
        Ok(Self { post, secrets, at_once: None })
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
}

#[async_trait]
impl Courier for HttpCourier {
    async fn deliver(&self, delivery: &Delivery) -> Result<(), Failure> {
        let url = address(delivery)?;
        let secret = self.secret(delivery)?;
        let content = delivery.body();
        let event = content["event"].as_str().and_then(|event| HeaderValue::from_str(event).ok());
        let number = HeaderValue::from(delivery.id.0);
        let headers = HeaderMap::from_iter([
            (HeaderName::from_static("idempotency-key"), number.clone()),
            (HeaderName::from_static("x-stargate-delivery"), number),
            (
                HeaderName::from_static("x-stargate-event"),
                event.unwrap_or_else(|| HeaderValue::from_static("")),
            ),
        ]);
        let letter = Letter { url: &url, headers, body: content.to_string(), secret: secret.as_ref() };
        self.post.bring(letter).await.map_err(|unposted| unposted.failure)
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

#[cfg(test)]
mod tests;
