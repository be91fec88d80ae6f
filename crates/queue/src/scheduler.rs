//! Fires due schedules. The leader runs this, with the store as it is seen in its term; if there are several all the
//! same, the store lets exactly one of them win each instant.

use std::time::Duration;

use jiff::Timestamp;
use stargate_base::chain;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::job::JobId;
use crate::store::{SharedStore, Store};

/// How often to look for schedules that others added or changed.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Why firing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// The store has refused a write, because another term has begun.
    Deposed,
}

/// Fires schedules until `stop` is cancelled, or the term of the store given ([`Store::under`]) is over.
pub async fn run(store: SharedStore, stop: CancellationToken) -> Ended {
    while !stop.is_cancelled() {
        let wait = match run_once(&*store, &stop).await {
            Ok(round) => round.next.min(LOOK_EVERY),
            Err(Error::Deposed { .. }) => return Ended::Deposed,
            Err(error) => {
                tracing::warn!(error = chain(&error), "cannot look at schedules; will try again");
                LOOK_EVERY
            }
        };
        let _ = tokio::time::timeout(wait, stop.cancelled()).await;
    }
    Ended::Stopped
}

/// What one look at the schedules did.
#[derive(Debug, PartialEq, Eq)]
pub struct Round {
    /// Jobs enqueued by this process.
    pub fired: Vec<JobId>,
    /// Time until the next known instant.
    pub next: Duration,
}

/// Fires what is due by the store's clock, until `stop`. Instants missed meanwhile are made up for by one firing.
pub async fn run_once(store: &dyn Store, stop: &CancellationToken) -> Result<Round> {
    let now = store.now().await?;
    let mut round = Round { fired: Vec::new(), next: LOOK_EVERY };
    for schedule in store.schedules().await? {
        let Some(due) = schedule.next_at else { continue };
        if due > now {
            round.next = round.next.min(until(now, due));
            continue;
        }
        if stop.is_cancelled() {
            // A node that is to step down does not begin another write.
            break;
        }
        let next = match schedule.next_after(now) {
            Ok(next) => next,
            Err(error) => {
                tracing::error!(
                    schedule = schedule.name,
                    error = chain(&error),
                    "cannot tell when to fire it next"
                );
                continue;
            }
        };
        match store.schedule_fire(&schedule.name, due, next).await {
            Ok(Some(job)) => {
                tracing::info!(schedule = schedule.name, %job, %due, "schedule fired");
                round.fired.push(job);
            }
            Ok(None) => {} // Another process was faster.
            // Nothing else would be taken either.
            Err(error @ Error::Deposed { .. }) => return Err(error),
            // One bad schedule (its kind is gone, this machine does not know its time zone) must not stop the others.
            Err(error) => {
                tracing::error!(schedule = schedule.name, error = chain(&error), "cannot fire schedule")
            }
        }
        if let Some(next) = next {
            round.next = round.next.min(until(now, next));
        }
    }
    Ok(round)
}

fn until(now: Timestamp, then: Timestamp) -> Duration {
    // A little late is right, a little early would be a look for nothing.
    Duration::try_from(then.duration_since(now)).unwrap_or_default() + Duration::from_millis(1)
}
