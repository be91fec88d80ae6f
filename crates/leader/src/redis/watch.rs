//! Hears when the lock is released, so that a standby need not wait for its next look.

use std::time::Duration;

use futures::StreamExt as _;
use redis::aio::PubSub;
use redis::{Client, RedisResult};
use stargate_base::Backoff;
use tokio::sync::Mutex;

/// A connection that was silently cut looks like a lock that nobody releases, so a subscription is made anew now and
/// then.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How long subscribing may take.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// A subscription that mends itself. A lost message costs time only: the standby looks anyway.
pub(super) struct Watch {
    client: Client,
    channel: String,
    subscription: Mutex<Option<PubSub>>,
}

impl Watch {
    pub(super) fn new(client: Client, channel: String) -> Self {
        Self { client, channel, subscription: Mutex::new(None) }
    }

    /// Ends when a release was told, or may have been while nobody listened.
    pub(super) async fn freed(&self) {
        let mut slot = self.subscription.lock().await;
        if let Some(subscription) = &mut *slot {
            let told = tokio::time::timeout(SILENCE_MAX, subscription.on_message().next()).await;
            if let Ok(Some(_)) = told {
                return;
            }
        }
        *slot = None;
        let mut failures = 0;
        loop {
            if let Ok(Ok(subscription)) = tokio::time::timeout(SUBSCRIBE_TIMEOUT, self.subscribe()).await {
                *slot = Some(subscription);
                return;
            }
            failures += 1;
            tokio::time::sleep(Backoff::RECONNECT.delay(failures)).await;
        }
    }

    async fn subscribe(&self) -> RedisResult<PubSub> {
        let mut subscription = self.client.get_async_pubsub().await?;
        subscription.subscribe(&self.channel).await?;
        Ok(subscription)
    }
}
