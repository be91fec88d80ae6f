//! Hears when the lock is released and when Redis answers again, so that a standby need not wait for its next look.

use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use redis::aio::PubSub;
use redis::{Client, RedisResult};
use stargate_base::Backoff;
use tokio::sync::{Mutex, Notify};

use crate::lease::Hint;

/// A connection that was silently cut looks like a lock that nobody releases, so a subscription is made anew now and
/// then.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How long subscribing may take.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A subscription that mends itself. A lost message costs time only: the standby looks anyway.
pub(super) struct Watch {
    client: Client,
    channel: String,
    listening: Mutex<Listening>,
    doubted: Notify,
}

#[derive(Default)]
struct Listening {
    subscription: Option<PubSub>,
    /// Subscriptions in a row that came to nothing. A server that takes each of them and then fails must not keep us
    /// busy.
    failures: u32,
}

impl Watch {
    pub(super) fn new(client: Client, channel: String) -> Self {
        Self { client, channel, listening: Mutex::default(), doubted: Notify::new() }
    }

    /// Tells that a call got no answer: the subscription may be dead too. It is made anew, and when that succeeds
    /// Redis is back.
    pub(super) fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Ends when a release was told, or may have been while nobody listened.
    pub(super) async fn hint(&self) -> Hint {
        let mut listening = self.listening.lock().await;
        let Listening { subscription, failures } = &mut *listening;
        if let Some(heard) = subscription {
            let mut messages = heard.on_message();
            tokio::select! {
                told = tokio::time::timeout(SILENCE_MAX, messages.next()) => match told {
                    Ok(Some(message)) => {
                        *failures = 0;
                        return Hint::Released(message.get_payload().ok());
                    }
                    Ok(None) => *failures = failures.saturating_add(1),
                    Err(_) => *failures = 0,
                },
                () = self.doubted.notified() => *failures = failures.saturating_add(1),
            }
        }
        *subscription = None;
        loop {
            if *failures > 0 {
                tokio::time::sleep(Backoff::RECONNECT.delay(*failures)).await;
            }
            if let Ok(Ok(made)) = tokio::time::timeout(SUBSCRIBE_TIMEOUT, self.subscribe()).await {
                *subscription = Some(made);
                // What was doubted before this is no doubt about it.
                let _ = self.doubted.notified().now_or_never();
                return Hint::Reachable;
            }
            *failures = failures.saturating_add(1);
        }
    }

    async fn subscribe(&self) -> RedisResult<PubSub> {
        let mut subscription = self.client.get_async_pubsub().await?;
        subscription.subscribe(&self.channel).await?;
        Ok(subscription)
    }
}
