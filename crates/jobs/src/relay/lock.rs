//! Which process delivers a topic: a value with a time to live that only one of them can write.
//!
//! The store's clock decides when the value is gone (INV-6). The holder counts from before it asked, so that it stops
//! before the store lets another in, and leaves [`SPARE`] for what is on its way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::value::to_raw_value;
use sha2::{Digest as _, Sha256};
use stargate_base::clock::Moment;
use stargate_directive::kv::{Expected, Key, Purpose, Put, PutAnswer};
use stargate_directive::store::SharedDirectives;

use super::STORE_AGAIN;

/// How long the lock lasts without being renewed.
const TTL: Duration = Duration::from_secs(30);
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(10);
/// How long before its end nothing more is delivered.
const SPARE: Duration = Duration::from_secs(5);
/// How often a relay looks whether another one's lock is gone.
const LOOK: Duration = Duration::from_secs(5);
/// How often a renewal is tried again that got no answer.
const RENEW_AGAIN: Duration = Duration::from_secs(1);
/// How long the store may take to hear that the lock is given back.
const RELEASE_MAX: Duration = Duration::from_secs(2);
/// How much of a topic is in the key, so that people recognise it.
const READABLE_MAX: usize = 64;

/// The lock of a topic.
#[derive(Debug)]
pub(super) struct Lock {
    key: Key,
    store: SharedDirectives,
    holder: String,
    writer: String,
}

/// The lock, held.
#[derive(Debug)]
pub(super) struct Held {
    last: Mutex<Renewal>,
    is_lost: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Renewal {
    version: u64,
    /// Before the store was asked.
    asked: Moment,
}

impl Held {
    fn new(version: u64, asked: Moment) -> Self {
        Self { last: Mutex::new(Renewal { version, asked }), is_lost: AtomicBool::new(false) }
    }

    fn last(&self) -> Renewal {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renewed(&self, renewal: Renewal) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = renewal;
    }

    /// Whatever its time, it is another's.
    fn lost(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// How long deliveries may go on without a renewal.
    fn left(&self) -> Duration {
        (TTL - SPARE).saturating_sub(self.last().asked.age())
    }

    /// Whether no other relay can hold it, with time to spare.
    pub(super) fn is_good(&self) -> bool {
        !self.is_lost.load(Ordering::Relaxed) && !self.left().is_zero()
    }
}

impl Lock {
    pub(super) fn new(topic: &str, store: SharedDirectives, name: &str) -> Self {
        let name: String = name.chars().take(READABLE_MAX).collect();
        // Two relays of one process must not be taken for each other.
        let holder = format!("{name}-{:016x}", rand::random::<u64>());
        Self { key: key(topic), store, holder, writer: format!("outbox-relay:{}", readable(topic)) }
    }

    /// Waits until the lock is free, and takes it.
    pub(super) async fn acquire(&self) -> Held {
        let mut failures = 0;
        loop {
            match self.try_acquire().await {
                Ok(Some(held)) => return held,
                Ok(None) => {
                    failures = 0;
                    tokio::time::sleep(LOOK).await;
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(key = %self.key, %error, "cannot ask for the lock of a topic; trying again");
                    tokio::time::sleep(STORE_AGAIN.delay(failures)).await;
                }
            }
        }
    }

    async fn try_acquire(&self) -> stargate_queue::Result<Option<Held>> {
        let asked = Moment::now();
        // One of our own whose answer was lost is waited for like another's: nobody knows how old it is.
        if self.store.kv_get(&self.key).await?.is_some() {
            return Ok(None);
        }
        match self.store.kv_put(self.put(true, Expected::Absent)).await? {
            PutAnswer::Stored { version } => Ok(Some(Held::new(version, asked))),
            PutAnswer::Conflict { .. } => Ok(None),
        }
    }

    /// Renews the lock until it is lost, or so near its end that nothing more may be delivered.
    pub(super) async fn keep(&self, held: &Held) {
        loop {
            tokio::time::sleep(RENEW.min(held.left())).await;
            let put = self.put(true, Expected::Version(held.last().version));
            let asked = Moment::now();
            // The same request each time: if only the answer was lost, it is given again.
            let version = loop {
                let left = held.left();
                if left.is_zero() {
                    return;
                }
                match tokio::time::timeout(left, self.store.kv_put(put.clone())).await {
                    Ok(Ok(PutAnswer::Stored { version })) => break version,
                    Ok(Ok(PutAnswer::Conflict { .. })) => {
                        tracing::warn!(key = %self.key, "somebody else wrote the lock of a topic");
                        return held.lost();
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(key = %self.key, %error, "cannot renew the lock of a topic; trying again");
                        tokio::time::sleep(RENEW_AGAIN.min(held.left())).await;
                    }
                    Err(_) => return,
                }
            };
            held.renewed(Renewal { version, asked });
        }
    }

    /// Gives the lock back. If that fails, the others wait until its time is over.
    pub(super) async fn release(&self, held: &Held) {
        let put = self.put(false, Expected::Version(held.last().version));
        match tokio::time::timeout(RELEASE_MAX, self.store.kv_put(put)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(key = %self.key, %error, "cannot give back the lock of a topic");
            }
            Err(_) => {
                tracing::warn!(key = %self.key, "the store did not take back the lock of a topic in time")
            }
        }
    }

    fn put(&self, take: bool, expected: Expected) -> Put {
        let value = to_raw_value(&self.holder).ok().filter(|_| take);
        Put {
            key: self.key.clone(),
            value,
            expected,
            request_id: format!("{}-{:016x}", self.holder, rand::random::<u64>()),
            writer: self.writer.clone(),
            purpose: Purpose::Lock,
            spec_ref: None,
            ttl: take.then_some(TTL),
        }
    }
}

/// The key of a topic's lock. Topics may hold what keys may not, and two that look alike must not share a lock.
fn key(topic: &str) -> Key {
    let readable = readable(topic);
    let digest: String = Sha256::digest(topic).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Key::new("stargate", "outbox", &format!("relay/{readable}-{digest}"))
        .expect("only letters that keys may hold, and not too many")
}

/// The beginning of a topic with letters that keys may hold.
fn readable(topic: &str) -> String {
    let plain = |c: char| {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c) { c } else { '-' }
    };
    topic.chars().take(READABLE_MAX).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_has_a_key_of_its_own() {
        let long = "x".repeat(300);
        let longer = "x".repeat(301);
        let topics =
            ["items.changed", "Items.changed", "items changed", "items/changed", "", "ü", &long, &longer];
        let keys: std::collections::BTreeSet<Key> = topics.iter().map(|topic| key(topic)).collect();
        assert_eq!(keys.len(), topics.len(), "{keys:?}");
        let shown = key("items.changed").to_string();
        assert!(shown.starts_with("tenant/stargate/project/outbox/relay/items.changed-"), "{shown}");
    }
}
