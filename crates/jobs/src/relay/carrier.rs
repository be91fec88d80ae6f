//! Brings one announcement to where its topic goes.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use stargate_base::Secret;
use stargate_directive::outbox::Announcement;
use stargate_directive::store::SharedDirectives;
use stargate_queue::handler::Failure;
use url::Url;
use url::form_urlencoded::byte_serialize;

use super::Settings;
use crate::fetch::Reach;
use crate::http::ConfigError;
use crate::post::{Letter, Post, Unposted};

/// The number of an announcement, the same at each delivery.
const ANNOUNCEMENT: HeaderName = HeaderName::from_static("x-stargate-announcement");
const TOPIC: HeaderName = HeaderName::from_static("x-stargate-topic");
const KEY: HeaderName = HeaderName::from_static("x-stargate-key");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The setting that allows private addresses.
const PERMIT: &str = "allow_private in the topic's [outbox] section";
/// How much of an answer is kept with the announcement.
const DETAIL_CHARS_MAX: usize = 300;

/// Brings announcements one by one.
#[derive(Debug)]
pub(super) enum Carrier {
    Http { url: Url, secret: Option<Secret>, post: Post },
    Notify { channel: String, store: SharedDirectives },
}

/// What became of an announcement.
#[derive(Debug)]
pub(super) enum Carried {
    /// It has arrived, which is to be noted.
    Sent,
    /// It has arrived, and that is noted.
    Noted,
}

/// Why it has not arrived.
#[derive(Debug)]
pub(super) struct Uncarried {
    pub(super) problem: String,
    /// When the server wants to be asked again.
    pub(super) retry_after: Option<Duration>,
    /// Whether the server has too much of everything, not only of this key.
    pub(super) is_flooded: bool,
}

impl Carrier {
    pub(super) fn http(url: Url, secret: Option<Secret>, settings: &Settings) -> Result<Self, ConfigError> {
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(ConfigError::Url);
        }
        let reach = if settings.allow_private { Reach::Any } else { Reach::Public };
        let post = Post::new(reach, settings.timeout, settings.at_once, PERMIT)?;
        Ok(Self::Http { url, secret, post })
    }

    pub(super) async fn carry(&self, announcement: &Announcement) -> Result<Carried, Uncarried> {
        match self {
            Self::Http { url, secret, post } => {
                let letter = Letter {
                    url,
                    headers: headers(announcement),
                    body: announcement.payload.get().to_owned(),
                    secret: secret.as_ref(),
                };
                post.bring(letter).await.map(|()| Carried::Sent).map_err(Uncarried::from)
            }
            Self::Notify { channel, store } => match store.outbox_notify(channel, announcement.id).await {
                // False if it had been noted before, by a relay whose answer was lost.
                Ok(_) => Ok(Carried::Noted),
                Err(error) => {
                    Err(Uncarried { problem: error.to_string(), retry_after: None, is_flooded: false })
                }
            },
        }
    }
}

impl From<Unposted> for Uncarried {
    fn from(unposted: Unposted) -> Self {
        let Failure { error, retry_after } = unposted.failure;
        let detail = error.detail.unwrap_or_default();
        let detail: String = detail.trim().chars().take(DETAIL_CHARS_MAX).collect();
        let problem = if detail.is_empty() { error.message } else { format!("{}: {detail}", error.message) };
        let is_flooded = unposted.status == Some(StatusCode::TOO_MANY_REQUESTS);
        Self { problem, retry_after, is_flooded }
    }
}

fn headers(announcement: &Announcement) -> HeaderMap {
    let number = HeaderValue::from(announcement.id.0);
    HeaderMap::from_iter([
        (IDEMPOTENCY_KEY, number.clone()),
        (ANNOUNCEMENT, number),
        (TOPIC, encoded(&announcement.topic)),
        (KEY, encoded(&announcement.key)),
    ])
}

/// Percent-encoded: a key is whatever a source calls its records.
fn encoded(text: &str) -> HeaderValue {
    let encoded = byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20");
    HeaderValue::from_str(&encoded).expect("percent-encoded text is plain ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_key_can_be_a_header() {
        for (key, header) in
            [("7", "7"), ("a b+ü", "a%20b%2B%C3%BC"), ("x\r\ny: z", "x%0D%0Ay%3A%20z"), ("", "")]
        {
            assert_eq!(encoded(key).to_str().unwrap(), header);
        }
    }
}
